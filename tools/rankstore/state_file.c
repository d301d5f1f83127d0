/* SPDX-License-Identifier: Apache-2.0
 *
 * state_file.c: a saved state, and the options that its plan was made with ("given", in state.c of
 * the planner: NAME=VALUE of each option that has not its default). */
#include "state_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "value.h"

rks_status cli_state_read(const char *path, cli_state *state, rks_error *err)
{
    *state = (cli_state){0};
    FILE *file = fopen(path, "rbe");
    size_t size = file == NULL ? 0 : fread(state->text, 1, sizeof(state->text) - 1, file);
    int why = errno;
    bool failed = file == NULL || ferror(file) != 0;
    if (file != NULL)
        fclose(file);
    if (failed) {
        *err = (rks_error){.status = RKS_ERR_IO, .rank = -1};
        snprintf(err->text, sizeof(err->text), "%.120s: %s", cli_shown(path), strerror(why));
        return RKS_ERR_IO;
    }
    json_t *whole = json_loadb(state->text, size, 0, NULL);
    const char *inner = json_string_value(json_object_get(whole, "plan"));
    if (inner != NULL && strlen(inner) < sizeof(state->text)) {
        memset(state->text, 0, sizeof(state->text));
        memcpy(state->text, inner, strlen(inner));
    }
    json_decref(whole);
    return RKS_OK;
}

static void set_count(rks_plan_options *o, const char *name, const char *value)
{
    uint64_t number = strtoull(value, NULL, 10);
    const struct {
        const char *name;
        uint32_t *at;
    } numbers[] = {
        {"batch_size", &o->batch_size},         {"max_length", &o->max_length},
        {"batch_multiple", &o->batch_multiple}, {"capacity", &o->capacity},
        {"micro_batches", &o->micro_batches},   {"length_multiple", &o->length_multiple},
        {"pack_window", &o->pack_window},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0)
            *numbers[i].at = number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
    if (strcmp(name, "max_tokens") == 0)
        o->max_tokens = number;
    else if (strcmp(name, "no_shuffle") == 0)
        o->no_shuffle = number != 0;
    else if (strcmp(name, "mixed") == 0)
        o->mixed = number != 0;
    else if (strcmp(name, "cost_linear") == 0)
        o->cost_linear = (double)number;
    else if (strcmp(name, "cost_quadratic") == 0)
        o->cost_quadratic = (double)number;
}

static void set_option(rks_plan_options *o, const char *name, const char *value)
{
    const struct {
        const char *name, **at;
    } texts[] = {
        {"strategy", &o->strategy}, {"cost", &o->cost},   {"too_long", &o->too_long},
        {"tail", &o->tail},         {"steps", &o->steps}, {"order", &o->order},
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(name, texts[i].name) == 0)
            *texts[i].at = value;
    set_count(o, name, value);
}

void cli_state_options(cli_state *state, rks_plan_options *options)
{
    json_t *whole = json_loads(state->text, 0, NULL);
    const char *given = json_string_value(json_object_get(whole, "given"));
    const char *seed = json_string_value(json_object_get(whole, "seed"));
    const json_t *segments = json_object_get(whole, "segments");
    const json_t *last = json_array_get(segments, json_array_size(segments) - 1);
    json_int_t world = json_integer_value(json_array_get(last, 0));
    if (given != NULL && strlen(given) < sizeof(state->words)) {
        memcpy(state->words, given, strlen(given) + 1);
        options->length_multiple = 1; /* what a state does not name */
        options->seed = seed == NULL ? 0 : strtoull(seed, NULL, 10);
        if (options->world == 0 && world > 0 && world <= UINT32_MAX)
            options->world = (uint32_t)world;
        char *rest = NULL;
        for (char *word = strtok_r(state->words, " ", &rest); word != NULL;
             word = strtok_r(NULL, " ", &rest)) {
            char *value = strchr(word, '=');
            if (value == NULL)
                continue;
            *value = '\0';
            set_option(options, word, value + 1);
        }
    }
    json_decref(whole);
}
