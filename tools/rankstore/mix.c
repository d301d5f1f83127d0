/* SPDX-License-Identifier: Apache-2.0
 *
 * mix.c: the weights of sources on the command line, and what a plan makes of them. */
#include "mix.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "column.h"
#include "value.h"

/* A --remix or a --curriculum. */
typedef struct change {
    const char *option, *text;
    uint64_t epoch, step;
    double *weights;   /* NULL: as before */
    uint64_t longest;  /* longer samples wait; 0: none does */
    bool keeps_length; /* a remix: it is that of the stage that it is in */
} change;

/* What args->options.mix points to. */
typedef struct taken {
    rks_plan_mix options;
    char **names;
    double *weights;
    uint64_t *bounds;
    uint16_t *source_of;
    bool *given;     /* the weights that are being read name the source */
    change *changes; /* those of --curriculum, then those of --remix */
    size_t change_count;
} taken;

int cli_mix_check(const cli_command *command, const cli_plan_args *args)
{
    bool changes = args->stages.count > 0;
    if (args->mix == NULL && ((args->mix_by != NULL && !changes) || args->mix_unit != NULL))
        return cli_usage(command, "--mix-by and --mix-unit need --mix");
    if ((args->mix != NULL || args->mix_by != NULL) && args->lengths_file)
        return cli_usage(command, "--mix needs a dataset; lengths have no sources");
    if (args->remixes.count > 0 && args->mix == NULL && args->samples == 0 && !changes)
        return cli_usage(command, "--remix changes the weights of --mix, which is not there");
    return -1;
}

static rks_status no_mix(rks_error *err, rks_status status, const char *format, const char *name,
                         const char *more)
{
    *err = (rks_error){.status = status, .rank = -1};
    snprintf(err->text, sizeof(err->text), format, name, more);
    return status;
}

static rks_status out_of_memory(rks_error *err)
{
    return no_mix(err, RKS_ERR_MEMORY, "out of memory: %s%s", "sources", "");
}

static rks_status give_room(taken *t, size_t sources, rks_error *err)
{
    t->options.sources = sources;
    t->names = calloc(sources + 1, sizeof(*t->names));
    t->weights = calloc(sources + 1, sizeof(*t->weights));
    t->given = calloc(sources + 1, sizeof(*t->given));
    return t->names == NULL || t->weights == NULL || t->given == NULL ? out_of_memory(err) : RKS_OK;
}

/* ---- which sources there are ----------------------------------------------------------------- */

/* Lengths of a file are one source. */
static rks_status use_lengths(const cli_plan_args *args, taken *t, rks_error *err)
{
    rks_status status = give_room(t, 1, err);
    t->bounds = calloc(2, sizeof(*t->bounds));
    if (status == RKS_OK && (t->bounds == NULL || (t->names[0] = strdup("lengths")) == NULL))
        status = out_of_memory(err);
    if (status == RKS_OK)
        t->bounds[1] = args->count;
    t->options.bounds = t->bounds;
    return status;
}

/* The datasets that the store was opened over. */
static rks_status use_datasets(rks_store *store, taken *t, rks_error *err)
{
    size_t count = rks_store_sources(store);
    rks_status status = give_room(t, count, err);
    t->bounds = calloc(count + 1, sizeof(*t->bounds));
    if (status == RKS_OK && t->bounds == NULL)
        status = out_of_memory(err);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        rks_source source = {.struct_size = sizeof(source)};
        status = rks_store_source(store, i, &source, err);
        if (status == RKS_OK && (t->names[i] = strdup(source.name)) == NULL)
            status = out_of_memory(err);
        t->bounds[i + 1] = source.first + source.count;
    }
    t->options.bounds = t->bounds;
    return status;
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* The different values of a column, ascending: *keys, which the caller frees. */
static rks_status different(const cli_column *column, uint64_t **keys, size_t *count,
                            rks_error *err)
{
    uint64_t *all = calloc(column->count + 1, sizeof(*all)), used = 0;
    if (all == NULL)
        return out_of_memory(err);
    for (uint64_t i = 0; i < column->count; i++)
        used += cli_column_key(column, i, &all[used]) == CLI_ENTRY_NUMBER;
    qsort(all, used, sizeof(*all), compare_keys);
    *count = 0;
    for (uint64_t i = 0; i < used; i++)
        if (i == 0 || all[i] != all[*count - 1])
            all[(*count)++] = all[i];
    *keys = all;
    return RKS_OK;
}

static char *value_text(const cli_column *column, uint64_t key)
{
    json_t *value = cli_column_json(column, key);
    char *text = json_is_string(value) ? strdup(json_string_value(value))
                                       : json_dumps(value, JSON_ENCODE_ANY);
    json_decref(value);
    return text;
}

/* The values of an index column. */
static rks_status use_values(rks_store *store, const char *name, taken *t, rks_error *err)
{
    cli_column column;
    char problem[sizeof(err->text) - 16] = "";
    uint64_t *keys = NULL, key = 0;
    size_t count = 0;
    if (!cli_column_find(store, name, &column, problem, sizeof(problem)))
        return no_mix(err, RKS_ERR_ARGUMENT, "--mix-by: %s%s", problem, "");
    rks_status status = different(&column, &keys, &count, err);
    if (status == RKS_OK && count > RKS_MIX_SOURCES_MAX)
        status =
            no_mix(err, RKS_ERR_ARGUMENT,
                   "--mix-by: column '%s' has more than 65,535 different values; choose one with "
                   "fewer, as groups of them%s",
                   name, "");
    if (status == RKS_OK)
        status = give_room(t, count, err);
    if (status == RKS_OK &&
        (t->source_of = malloc((column.count + 1) * sizeof(*t->source_of))) == NULL)
        status = out_of_memory(err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        if ((t->names[i] = value_text(&column, keys[i])) == NULL)
            status = out_of_memory(err);
    for (uint64_t i = 0; status == RKS_OK && i < column.count; i++) {
        const uint64_t *found = NULL;
        if (cli_column_key(&column, i, &key) == CLI_ENTRY_NUMBER)
            found = bsearch(&key, keys, count, sizeof(*keys), compare_keys);
        t->source_of[i] = found == NULL ? UINT16_MAX : (uint16_t)(found - keys);
    }
    t->options.source_of = t->source_of;
    free(keys);
    return status;
}

/* ---- their weights --------------------------------------------------------------------------- */

/* Says which sources there are. */
static rks_status no_such_source(const taken *t, const char *option, const char *name,
                                 rks_error *err)
{
    char there[160] = "";
    size_t used = 0;
    const char *near = cli_nearest(name, (const char *const *)t->names, t->options.sources);
    for (size_t i = 0; i < t->options.sources && used < sizeof(there) - 48; i++)
        used += (size_t)snprintf(there + used, sizeof(there) - used, "%s%.40s", i == 0 ? "" : ", ",
                                 t->names[i]);
    *err = (rks_error){.status = RKS_ERR_ARGUMENT, .rank = -1};
    snprintf(err->text, sizeof(err->text), "%s: there is no '%.40s'%s%.40s%s the sources are %s",
             option, name, near == NULL ? ";" : "; did you mean '", near == NULL ? "" : near,
             near == NULL ? "" : "'?", there);
    return RKS_ERR_ARGUMENT;
}

/* NAME=WEIGHT, cut out of `text`; the library looks at the weight. */
static rks_status parse_weight(taken *t, const char *option, const char *whole, char *text,
                               double *weights, rks_error *err)
{
    char *sign = strrchr(text, '='), *end = NULL;
    size_t at = 0;
    double weight = sign == NULL ? 0 : strtod(sign + 1, &end);
    if (sign == NULL || sign == text || sign[1] == '\0' || *end != '\0')
        return no_mix(err, RKS_ERR_ARGUMENT, "%s: sources are NAME=WEIGHT,NAME=WEIGHT, not %.120s",
                      option, whole);
    *sign = '\0';
    while (at < t->options.sources && strcmp(t->names[at], text) != 0)
        at++;
    if (at == t->options.sources)
        return no_such_source(t, option, text, err);
    if (t->given[at])
        return no_mix(err, RKS_ERR_ARGUMENT, "%s: '%.120s' appears twice", option, text);
    t->given[at] = true;
    weights[at] = weight;
    return RKS_OK;
}

static rks_status parse_weights(taken *t, const char *option, const char *mix, double *weights,
                                rks_error *err)
{
    char *text = strdup(mix), *rest = NULL;
    rks_status status = text == NULL ? out_of_memory(err) : RKS_OK;
    char *one = text == NULL ? NULL : strtok_r(text, ",", &rest);
    if (status == RKS_OK && one == NULL)
        status = no_mix(err, RKS_ERR_ARGUMENT, "%s: %s", option, "no source is named");
    memset(t->given, 0, t->options.sources * sizeof(*t->given));
    for (; status == RKS_OK && one != NULL; one = strtok_r(NULL, ",", &rest))
        status = parse_weight(t, option, mix, one, weights, err);
    free(text);
    return status;
}

/* ---- when they change ------------------------------------------------------------------------ */

/* Digits and the ':' after them, or the end; moves *at after that. */
static bool parse_place_number(const char **at, uint64_t *number)
{
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > 18 || ((*at)[digits] != ':' && (*at)[digits] != '\0'))
        return false;
    *number = strtoull(*at, NULL, 10);
    *at += digits + ((*at)[digits] == ':');
    return true;
}

/* EPOCH:STEP, and what is after it: WEIGHTS, which end in =NUMBER, LENGTH, or WEIGHTS:LENGTH. */
static rks_status parse_change(taken *t, const char *option, const char *text, change *one,
                               rks_error *err)
{
    bool is_remix = strcmp(option, "--remix") == 0;
    *one = (change){.option = option, .text = text, .keeps_length = is_remix};
    const char *at = text;
    bool good = parse_place_number(&at, &one->epoch) && at[-1] == ':' &&
                parse_place_number(&at, &one->step);
    const char *last = strrchr(at, ':');
    const char *length = last == NULL ? at : last + 1;
    if (is_remix || strchr(length, '=') != NULL)
        length = at + strlen(at);        /* none */
    size_t size = (size_t)(length - at); /* of the weights, and a ':' after them */
    size -= size > 0 && *length != '\0';
    if (good && *length != '\0')
        good = cli_parse_size(length, UINT32_MAX, &one->longest) && one->longest > 0;
    if (!good || (is_remix && size == 0))
        return no_mix(err, RKS_ERR_ARGUMENT,
                      is_remix ? "%s: %.120s is not EPOCH:STEP:NAME=WEIGHT,NAME=WEIGHT"
                               : "%s: %.120s is not EPOCH:STEP[:NAME=WEIGHT,NAME=WEIGHT][:LENGTH]",
                      option, text);
    if (size == 0)
        return RKS_OK;
    one->weights = calloc(t->options.sources + 1, sizeof(*one->weights));
    char *weights = strndup(at, size);
    rks_status status = one->weights == NULL || weights == NULL
                            ? out_of_memory(err)
                            : parse_weights(t, option, weights, one->weights, err);
    free(weights);
    return status;
}

static rks_status parse_changes(taken *t, const cli_plan_args *args, rks_error *err)
{
    size_t stages = args->stages.count;
    t->changes = calloc(stages + args->remixes.count + 1, sizeof(*t->changes));
    if (t->changes == NULL)
        return out_of_memory(err);
    rks_status status = RKS_OK;
    for (size_t i = 0; i < stages + args->remixes.count && status == RKS_OK; i++) {
        t->change_count = i + 1;
        status =
            i < stages
                ? parse_change(t, "--curriculum", args->stages.items[i], &t->changes[i], err)
                : parse_change(t, "--remix", args->remixes.items[i - stages], &t->changes[i], err);
    }
    return status;
}

/* The LENGTH of the stage that a step is in; of two at one step the later one holds. */
static uint64_t length_at(const taken *t, uint64_t epoch, uint64_t step)
{
    const change *in = NULL;
    for (size_t i = 0; i < t->change_count; i++) {
        const change *one = &t->changes[i];
        bool begun = one->epoch != epoch ? one->epoch < epoch : one->step <= step;
        bool later = in == NULL ||
                     (one->epoch != in->epoch ? one->epoch > in->epoch : one->step >= in->step);
        if (!one->keeps_length && begun && later)
            in = one;
    }
    return in == NULL ? 0 : in->longest;
}

/* The library calls both a change. */
static rks_status make_change(rks_plan *plan, const taken *t, const change *one, rks_error *err)
{
    rks_error why = {0};
    uint64_t longest = one->keeps_length ? length_at(t, one->epoch, one->step) : one->longest;
    rks_status status =
        rks_plan_change(plan, one->epoch, one->step, one->weights,
                        one->weights == NULL ? 0 : t->options.sources, (uint32_t)longest, &why);
    if (status == RKS_OK)
        return status;
    *err = why;
    snprintf(err->text, sizeof(err->text), "%.16s %" PRIu64 ":%" PRIu64 ": %.120s", one->option,
             one->epoch, one->step, why.text + (strncmp(why.text, "change: ", 8) == 0 ? 8 : 0));
    return status;
}

rks_status cli_mix_plan(rks_store *store, const cli_plan_args *args,
                        const rks_plan_options *options, rks_plan **plan, rks_error *err)
{
    const taken *t = args->taken_mix;
    rks_plan *made = NULL;
    rks_status status = store == NULL
                            ? rks_plan_create(args->lengths, args->count, NULL, options, &made, err)
                            : rks_plan_open(store, options, &made, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; t != NULL && i < t->change_count && status == RKS_OK; i++)
        status = make_change(made, t, &t->changes[i], err);
    if (t != NULL && t->change_count > 0 && store != NULL)
        status = rks_group_agree(rks_store_group(store), "plan: changes", status, err);
    if (status == RKS_OK)
        *plan = made;
    else
        rks_plan_free(made);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

rks_status cli_mix_take(rks_store *store, cli_plan_args *args, rks_error *err)
{
    if (args->mix == NULL && args->samples == 0 && args->stages.count == 0)
        return RKS_OK;
    taken *t = calloc(1, sizeof(*t));
    args->taken_mix = t;
    if (t == NULL)
        return out_of_memory(err);
    rks_plan_mix_default(&t->options);
    rks_status status = store == NULL          ? use_lengths(args, t, err)
                        : args->mix_by == NULL ? use_datasets(store, t, err)
                                               : use_values(store, args->mix_by, t, err);
    if (status == RKS_OK && args->mix != NULL)
        status = parse_weights(t, "--mix", args->mix, t->weights, err);
    if (status == RKS_OK)
        status = parse_changes(t, args, err);
    t->options.weights = args->mix == NULL ? NULL : t->weights;
    t->options.names = (const char *const *)t->names;
    t->options.samples = args->samples;
    t->options.tokens = args->mix_unit != NULL && strcmp(args->mix_unit, "tokens") == 0;
    args->options.mix = &t->options;
    return store == NULL ? status
                         : rks_group_agree(rks_store_group(store), "plan: mix", status, err);
}

void cli_mix_free(cli_plan_args *args)
{
    taken *t = args->taken_mix;
    if (t == NULL)
        return;
    for (size_t i = 0; t->names != NULL && i < t->options.sources; i++)
        free(t->names[i]);
    free(t->names);
    free(t->weights);
    free(t->bounds);
    free(t->source_of);
    free(t->given);
    for (size_t i = 0; i < t->change_count; i++)
        free(t->changes[i].weights);
    free(t->changes);
    free(t);
    args->taken_mix = NULL;
    args->options.mix = NULL;
}

/* ---- what came of them ----------------------------------------------------------------------- */

rks_status cli_mix_sources(rks_plan *plan, const cli_plan_args *args, rks_plan_source **list,
                           size_t *count, rks_error *err)
{
    *list = NULL;
    *count = 0;
    if (args->options.mix == NULL)
        return RKS_OK;
    size_t room = args->options.mix->sources;
    rks_plan_source *made = calloc(room + 1, sizeof(*made));
    if (made == NULL)
        return out_of_memory(err);
    made[0].struct_size = sizeof(*made);
    rks_status status = rks_plan_sources(plan, args->epoch, made, room, count, err);
    if (status == RKS_OK && (*count = *count < room ? *count : room) > 0)
        *list = made;
    else
        free(made);
    /* Names are the plan's, which may go first. */
    for (size_t i = 0; *list != NULL && i < *count; i++)
        made[i].name = args->options.mix->names[i];
    return status;
}

void cli_mix_print(const rks_plan_source *list, size_t count)
{
    uint64_t draws = 0;
    for (size_t i = 0; i < count; i++)
        draws += list[i].draws;
    for (size_t i = 0; i < count; i++) {
        const rks_plan_source *one = &list[i];
        if (one->draws == 0 && one->share == 0)
            continue;
        printf("  source %s: %.2f %%, %s of %s", cli_shown(one->name),
               draws == 0 ? 0 : 100 * (double)one->draws / (double)draws,
               cli_counted(one->draws, "draw"), cli_counted(one->samples, "sample"));
        printf(", %s, %s", cli_counted(one->draws - one->distinct, "repeat"),
               cli_counted(one->tokens, "token"));
        printf(", at most %.2f points off in any %d steps\n", 100 * one->deviation, RKS_MIX_WINDOW);
    }
}

json_t *cli_mix_json(const rks_plan_source *list, size_t count)
{
    json_t *made = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            made, json_pack("{s:o, s:f, s:I, s:I, s:I, s:I, s:I, s:f}", "name",
                            cli_text_json(list[i].name, strlen(list[i].name)), "share",
                            list[i].share, "samples", (json_int_t)list[i].samples, "draws",
                            (json_int_t)list[i].draws, "distinct", (json_int_t)list[i].distinct,
                            "repeats", (json_int_t)(list[i].draws - list[i].distinct), "tokens",
                            (json_int_t)list[i].tokens, "deviation", list[i].deviation));
    return made;
}
