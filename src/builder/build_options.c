/* SPDX-License-Identifier: Apache-2.0
 *
 * build_options.c: a build's options: defaults, checks, the text that decides its id, and the
 * comparison between ranks. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/available_memory.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "ingest/item_count.h"
#include "group/group.h"

void(rks_build_options_default)(rks_build_options *options)
{
    *options = (rks_build_options){
        .struct_size = sizeof(*options),
        .length_unit = 1,
        .max_sample = UINT64_C(1) << 30,
        .block_size = UINT64_C(1) << 20,
        .max_total = UINT64_C(1) << 40,
    };
}

/* Replaces values that stand for a default. */
static void fill_in_defaults(rks_build_options *options)
{
    if (options->length_unit == 0)
        options->length_unit = 1;
    if (options->max_sample == 0)
        options->max_sample = UINT64_C(1) << 30;
    if (options->max_total == 0)
        options->max_total = UINT64_C(1) << 40;
    if (options->unit_size > INT64_MAX) /* the most that JSON can hold; no input is larger */
        options->unit_size = INT64_MAX;
    if (options->block_size == 0)
        options->block_size = UINT64_C(1) << 20;
}

/* Checks the options that say how samples are stored. */
static rks_status check_sizes(const rks_build_options *options, rks_error *err)
{
    if (options->max_sample > RKS_SAMPLE_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "max_sample: %" PRIu64 " is above %" PRIu64
                        ", the most that a sample can have",
                        options->max_sample, RKS_SAMPLE_MAX);
    if (options->block_size < 64 << 10 || options->block_size > 64 << 20)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "block_size: %" PRIu64 " is not from 64 KiB to 64 MiB",
                        options->block_size);
    if (options->input_bytes != 0 && options->input_bytes < 1 << 20)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "input_bytes: %" PRIu64 " is below 1 MiB",
                        options->input_bytes);
    if (options->threads > RKS_BUILD_THREADS_MOST)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "threads: %" PRIu32 " is above %d",
                        options->threads, RKS_BUILD_THREADS_MOST);
    if (options->unit_size != 0 && options->unit_size < 4 << 10)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit_size: %" PRIu64 " is below 4 KiB",
                        options->unit_size);
    return RKS_OK;
}

/* Checks the options that say which samples are stored. */
static rks_status check_selection(const rks_build_options *options, rks_error *err)
{
    if (!(options->sample_rate >= 0 && options->sample_rate < 1)) /* also NaN */
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "sample_rate: %g is not at least 0 and below 1",
                        options->sample_rate);
    if (options->sample > 0 && options->sample_rate > 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "sample and sample_rate cannot be used together");
    if (options->sample > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "sample: %" PRIu64 " is above %" PRIu32,
                        options->sample, UINT32_MAX);
    if (options->max_length != 0 && options->min_length > options->max_length)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "min_length: %" PRIu32 " is above max_length: %" PRIu32,
                        options->min_length, options->max_length);
    return RKS_OK;
}

static rks_status check_texts(const rks_build_options *options, rks_error *err)
{
    if (options->extra != NULL && strcmp(options->extra, "error") != 0 &&
        strcmp(options->extra, "drop") != 0 && strcmp(options->extra, "json") != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "extra: \"%.40s\" is not \"error\", \"drop\" or \"json\"", options->extra);
    const char *made_from = options->made_from;
    for (size_t i = 0; made_from != NULL && made_from[i] != '\0'; i++)
        if (i == RKS_MADE_FROM_MAX || made_from[i] < ' ' || made_from[i] > '~')
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "made_from: at most %d printable ASCII characters", RKS_MADE_FROM_MAX);
    return RKS_OK;
}

rks_status rks_build_options_take(const rks_build_options *given, rks_build_options *options,
                                  rks_error *err)
{
    rks_build_options_default(options);
    if (given != NULL)
        memcpy(options, given,
               given->struct_size < sizeof(*options) ? given->struct_size : sizeof(*options));
    fill_in_defaults(options);
    rks_status status = check_sizes(options, err);
    if (status == RKS_OK)
        status = check_texts(options, err);
    return status == RKS_OK ? check_selection(options, err) : status;
}

uint32_t rks_build_threads(const rks_group *group, const rks_build_options *options)
{
    if (options->threads != 0)
        return options->threads;
    uint32_t each = rks_cores_available("") / rks_group_node_size(group, rks_group_node(group));
    return each == 0 ? 1 : each < RKS_BUILD_THREADS ? each : RKS_BUILD_THREADS;
}

const char *rks_build_default_length(const rks_schema *schema, const rks_build_options *options)
{
    if (options->length != NULL || options->length_fn != NULL)
        return NULL;
    const rks_column *column = rks_schema_length(schema, options->key);
    return column == NULL ? NULL : column->name;
}

rks_selection rks_build_selection(const rks_build_options *options)
{
    return (rks_selection){.sample_rate = options->sample_rate,
                           .seed = options->seed,
                           .sample = options->sample,
                           .dedup = options->dedup,
                           .key = options->key};
}

/* Adds only what is set: the text is part of the build's id. */
static void add_selection(json_t *object, const rks_build_options *options)
{
    if (options->min_length > 0)
        json_object_set_new(object, "min_length", json_integer(options->min_length));
    if (options->max_length > 0)
        json_object_set_new(object, "max_length", json_integer(options->max_length));
    if (options->sample_rate > 0)
        json_object_set_new(object, "sample_rate", json_real(options->sample_rate));
    if (options->sample > 0)
        json_object_set_new(object, "sample", json_integer((json_int_t)options->sample));
    if (options->columns != NULL)
        json_object_set_new(object, "columns", json_string(options->columns));
    if (options->json_path != NULL)
        json_object_set_new(object, "json_path", json_string(options->json_path));
    if (options->flatten)
        json_object_set_new(object, "flatten", json_true());
    if (options->dtype != NULL)
        json_object_set_new(object, "dtype", json_string(options->dtype));
    if (options->extra != NULL)
        json_object_set_new(object, "extra", json_string(options->extra));
    if (options->dedup)
        json_object_set_new(object, "dedup", json_true());
    if (options->seed > 0)
        json_object_set_new(object, "seed", json_integer((json_int_t)options->seed));
}

static void add_counts(json_t *object, const rks_build_options *options)
{
    json_t *rules = options->counts_count == 0 ? NULL : json_array();
    for (size_t i = 0; i < options->counts_count; i++)
        json_array_append_new(rules, json_string(options->counts[i]));
    if (rules != NULL)
        json_object_set_new(object, "count", rules);
}

rks_status rks_recorded_counts(const json_t *recorded, const char ***rules, size_t *count,
                               rks_error *err)
{
    const json_t *texts = json_object_get(recorded, "count");
    *count = json_array_size(texts);
    *rules = rks_alloc(*count, sizeof(**rules), err);
    if (*rules == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < *count; i++) {
        (*rules)[i] = json_string_value(json_array_get(texts, i));
        if ((*rules)[i] == NULL)
            return rks_fail(err, RKS_ERR_DATA, 0, "build options: \"count\" has no rule");
    }
    return RKS_OK;
}

rks_status rks_build_options_text(const rks_build_options *options, char **text, rks_error *err)
{
    json_t *index = json_array();
    for (size_t i = 0; i < options->index_count; i++)
        json_array_append_new(index, json_string(options->index[i]));
    json_t *object = json_pack(
        "{s:s*, s:s*, s:s*, s:I, s:s*, s:o*, s:b, s:b, s:b}", "format", options->format, "key",
        options->key, "length", options->length, "length_unit", (json_int_t)options->length_unit,
        "where", options->where, "index", index, "filter", options->filter != NULL, "length_fn",
        options->length_fn != NULL, "skip_bad", options->skip_bad);
    /* It decides what parts hold, so it is part of the build's id. */
    if (options->own_keys)
        json_object_set_new(object, "own_keys", json_true());
    add_counts(object, options);
    add_selection(object, options);
    char *dumped = object == NULL ? NULL : json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(object);
    if (dumped == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "an option's text is not UTF-8");
    *text = rks_strdup(dumped, err);
    free(dumped);
    return *text == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_build_row_schema(const char *schema, const char *const *counts, size_t counts_count,
                                bool inferred, char **rows, rks_error *err)
{
    rks_schema *whole = NULL, *made = NULL;
    rks_status status = rks_schema_parse(schema, &whole, err);
    if (status == RKS_OK)
        status = rks_item_counts_source(whole, counts, counts_count, inferred, &made, err);
    if (status == RKS_OK) {
        *rows = rks_strdup(rks_schema_text(made), err);
        status = *rows == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    rks_schema_free(made);
    rks_schema_free(whole);
    return status;
}

/* ---- the same on all ranks ------------------------------------------------------------------ */

rks_status rks_build_id(const char *what, rks_digest input, const rks_schema *schema,
                        const char *options_text, rks_digest *id, rks_error *err)
{
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    const char *schema_text = rks_schema_text(schema);
    rks_digester_update(digester, what, strlen(what) + 1);
    rks_digester_update(digester, &input, sizeof(input));
    rks_digester_update(digester, schema_text, strlen(schema_text) + 1);
    rks_digester_update(digester, options_text, strlen(options_text) + 1);
    *id = rks_digester_result(digester);
    rks_digester_free(digester);
    return RKS_OK;
}

/* Names the first field in which two objects differ. */
static rks_status name_option(const char *name, const char *ours, size_t our_size,
                              const char *theirs, size_t their_size, uint32_t rank, rks_error *err)
{
    json_t *one = json_loadb(ours, our_size, 0, NULL);
    json_t *other = json_loadb(theirs, their_size, 0, NULL);
    const char *field;
    json_t *value;
    rks_status status = RKS_OK;
    bool whole = one != NULL && other != NULL; /* of long texts only the beginning is here */
    for (int turn = 0; whole && status == RKS_OK && turn < 2; turn++) {
        json_object_foreach(turn == 0 ? one : other, field, value)
        {
            if (json_equal(value, json_object_get(turn == 0 ? other : one, field)))
                continue;
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "the build's option \"%s\" differs between rank 0 and rank %u", field,
                              rank);
            break;
        }
    }
    json_decref(one);
    json_decref(other);
    return status == RKS_OK ? rks_fail(err, RKS_ERR_ARGUMENT, 0,
                                       "%s differ between rank 0 and rank %u", name, rank)
                            : status;
}

void rks_build_same(rks_fact facts[RKS_BUILD_SAME], const char *what, const rks_digest *input,
                    const rks_schema *schema, const rks_build_options *options,
                    const char *options_text)
{
    const char *text = options_text == NULL ? "" : options_text;
    facts[0] = rks_fact_same_bytes(what, input, sizeof(*input), NULL);
    facts[1] = rks_fact_same("the schema", schema == NULL ? NULL : rks_schema_text(schema));
    facts[2] = rks_fact_same_bytes("the options", text, strlen(text), name_option);
    facts[3] = rks_fact_same("the build's option \"append\"", options->append ? "yes" : NULL);
    facts[4] = rks_fact_same("the build's option \"replace\"", options->replace ? "yes" : NULL);
    facts[5] = rks_fact_same("the build's option \"made_from\"", options->made_from);
    facts[6] = rks_fact_same_shown("home", options->home);
}
