/* SPDX-License-Identifier: Apache-2.0
 *
 * input.c: checks that ranks have the same input, infers its schema, and finds where its units
 * begin. */
#include "builder/input.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/build.h"
#include "ingest/item_count.h"
#include "dataset/dataset.h"
#include "dataset/key_description.h"
#include "home/address.h"
#include "ingest/format.h"
#include "ingest/ingest.h"
#include "ingest/row.h"
#include "shard/manifest.h"

enum {
    INFER_UNITS = 16
}; /* units of lines that are read to infer a schema, however many there
    * are */

/* Refuses a dataset: its files would be read like those of any folder; and standard input, which is
 * not among these. */
static rks_status refuse_others(const char *const *sources, size_t count, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        rks_dataset *dataset = NULL;
        if (sources[i] != NULL && strcmp(sources[i], "-") == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "-: standard input is a source alone, of a build; append adds one "
                            "source after another, and ./- is a file of that name");
        if (sources[i] != NULL && !rks_home_is_url(sources[i]) &&
            rks_dataset_load(sources[i], &dataset, NULL) == RKS_OK)
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "%s: a dataset already, no input; merge makes one of several, append "
                              "adds input to one, export writes its samples as files",
                              sources[i]);
        rks_dataset_free(dataset);
    }
    return status;
}

rks_ingest_options rks_build_ingest_options(const rks_build_options *options)
{
    bool all = options->schema != NULL && strcmp(options->schema, "auto:all") == 0;
    bool is_auto = all || (options->schema != NULL && strcmp(options->schema, "auto") == 0);
    return (rks_ingest_options){
        .infer_all = all,
        .extra = options->extra,
        .format = options->format,
        .columns = options->columns,
        .json_path = options->json_path,
        .flatten = options->flatten,
        .dtype = options->dtype,
        .schema = is_auto ? NULL : options->schema,
        .unit_size = options->unit_size,
        .max_sample = options->max_sample,
        .max_total = options->max_total,
        .input_bytes = options->input_bytes,
        .storage_options = options->storage_options,
        .listing = options->listing,
        .skip_bad = options->skip_bad,
        .unchecked = options->unchecked,
        .sample_rate = options->sample_rate,
        .seed = options->seed,
        .key = options->key,
        .length = options->length,
        .length_unit = options->length_unit,
        .min_length = options->min_length,
        .max_length = options->max_length,
        .where = options->where,
        .index = options->index,
        .index_count = options->index_count,
        .counts = options->counts,
        .counts_count = options->counts_count,
        .filter = options->filter,
        .length_fn = options->length_fn,
        .callback_user = options->callback_user,
        .own_keys = options->own_keys,
    };
}

rks_status rks_input_look(const char *const *sources, size_t count, rks_build_options *options,
                          rks_input **input, rks_error *err)
{
    rks_ingest_options reading = rks_build_ingest_options(options);
    rks_status status = refuse_others(sources, count, err);
    if (status == RKS_OK)
        status = rks_input_open(sources, count, &reading, input, err);
    if (status == RKS_OK) {
        rks_input_options(*input, &reading);
        options->schema = reading.schema;
        options->format = reading.format;
        options->key = reading.key;
    }
    return status;
}

void rks_input_key(const rks_input *input, const char *given, const rks_schema *schema,
                   rks_build_options *options)
{
    const char *key = input->format->key;
    if (given == NULL && options->key == NULL && key != NULL && rks_schema_find(schema, key) >= 0)
        options->key = key;
}

/* ---- schema ----------------------------------------------------------------------------- */

/* Merges *b into *a; NULL is the empty schema. */
static rks_status merge(char **a, const char *b, rks_error *err)
{
    if (b == NULL)
        return RKS_OK;
    if (*a == NULL) {
        *a = rks_strdup(b, err);
        return *a == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    char *merged = NULL;
    rks_status status = rks_ingest_merge(*a, b, &merged, err);
    if (status == RKS_OK) {
        rks_free(*a);
        *a = merged;
    }
    return status;
}

static rks_status fail_empty(const rks_input *input, rks_error *err)
{
    char others[48] = "";
    if (input->file_count > 1)
        snprintf(others, sizeof(others), " and %zu more", input->file_count - 1);
    return rks_fail(err, RKS_ERR_DATA, 0, "%s%s: %s: no row to infer a schema from",
                    input->file_count > 0 ? input->files[0].path : "input", others,
                    input->skip_bad ? "empty, or all malformed" : "empty");
}

/* Returns the unit to look at in a turn. Turns are spread evenly, and the first is unit 0. */
static size_t unit_of_turn(const rks_input *input, uint64_t turn, uint64_t turns)
{
    return (size_t)((uint64_t)input->unit_count * turn / turns);
}

/* Merges the schemas of the units of turns. */
static rks_status look_at_turns(const rks_input *input, uint64_t from, uint64_t to, uint64_t turns,
                                char **schema_text, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t sent = from; /* ahead */
    for (uint64_t turn = from; status == RKS_OK && turn < to; turn++) {
        char *one = NULL;
        for (; sent < to && sent < turn + RKS_UNITS_AHEAD; sent++)
            rks_unit_ahead(input, unit_of_turn(input, sent, turns), RKS_LOOK_BYTES);
        status = rks_ingest_infer(input, unit_of_turn(input, turn, turns), &one, err);
        if (status == RKS_OK)
            status = merge(schema_text, one, err);
        rks_free(one);
    }
    return status;
}

/* Looks at all units, if those that had a turn hold no row. */
static rks_status look_at_any(const rks_input *input, char **schema_text, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t unit = 0; status == RKS_OK && *schema_text == NULL && unit < input->unit_count;
         unit++)
        status = rks_ingest_infer(input, unit, schema_text, err);
    return status;
}

/* Each rank looks at consecutive turns. The results are merged in rank order, which is unit order,
 * so the schema does not depend on the number of ranks. */
rks_status rks_input_infer(const rks_group *group, const rks_input *input, char **schema_text,
                           rks_error *err)
{
    /* All units are looked at with skip_bad: a line that does not fit is then skipped, so no later
     * error could show that too few units were looked at. */
    bool few = input->unit_count < INFER_UNITS || input->infer_all || !input->format->utf8 ||
               input->skip_bad;
    uint64_t turns = few ? input->unit_count : INFER_UNITS;
    uint32_t ranks = rks_group_size(group), rank = rks_group_rank(group);
    return look_at_turns(input, turns * rank / ranks, turns * (rank + 1) / ranks, turns,
                         schema_text, err);
}

rks_fact rks_input_inferred(const rks_group *group, const char *schema_text)
{
    return rks_fact_bytes(schema_text, schema_text == NULL ? 0 : strlen(schema_text) + 1,
                          rks_group_size(group) * (uint64_t)RKS_MANIFEST_MAX);
}

/* Adds the column for fields that the schema lacks. */
static rks_status add_extra(rks_schema **schema, rks_error *err)
{
    static const char *const extra[] = {RKS_EXTRA_COLUMN};
    int found = rks_schema_find(*schema, RKS_EXTRA_COLUMN);
    const rks_column *column = found < 0 ? NULL : rks_schema_column(*schema, (uint32_t)found);
    if (column != NULL && column->kind == RKS_KIND_JSON && column->nullable)
        return RKS_OK; /* it belongs to the dataset that is appended to, or it was given */
    if (column != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "extra: \"json\" needs the column \"" RKS_EXTRA_COLUMN
                        "\", which is %s here; it is json?",
                        column->type);
    rks_schema *wider = NULL;
    rks_status status = rks_schema_with(*schema, extra, 1, "json?", &wider, err);
    rks_schema_free(*schema);
    *schema = wider;
    return status;
}

/* Puts the columns of `counts` at the end. */
static rks_status add_counts(const rks_build_options *options, rks_schema **schema, rks_error *err)
{
    const char *const *rules = options->counts;
    rks_schema *rows = NULL, *whole = NULL;
    rks_status status = rks_item_counts_source(*schema, rules, options->counts_count,
                                               options->schema == NULL, &rows, err);
    if (status == RKS_OK)
        status = rks_item_counts_schema(rows, rules, options->counts_count, &whole, err);
    rks_schema_free(rows);
    rks_schema_free(*schema);
    *schema = whole;
    return status;
}

rks_status rks_input_schema(const rks_build_options *options, const char *text, rks_schema **schema,
                            rks_error *err)
{
    rks_status status = rks_schema_parse(text, schema, err);
    if (status == RKS_OK && options->extra != NULL && strcmp(options->extra, "json") == 0)
        status = add_extra(schema, err);
    return status == RKS_OK && options->counts_count > 0 ? add_counts(options, schema, err)
                                                         : status;
}

rks_status rks_input_join(const rks_input *input, const rks_agreed *agreed, size_t fact,
                          char **schema_text, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(agreed->group); rank++)
        status = merge(schema_text, rks_agreed_get(agreed, rank, fact, NULL), err);
    if (status == RKS_OK && *schema_text == NULL)
        status = look_at_any(input, schema_text, err); /* the same on each rank */
    return status == RKS_OK && *schema_text == NULL ? fail_empty(input, err) : status;
}

/* ---- rows --------------------------------------------------------------------------------- */

bool rks_input_goes_on(const rks_input *input, size_t unit)
{
    return unit + 1 < input->unit_count && !input->units[unit + 1].first_of_file;
}

bool rks_input_begins_inside(const rks_input *input)
{
    for (size_t unit = 0; unit < input->unit_count; unit++)
        if (rks_input_goes_on(input, unit))
            return true;
    return false;
}

/* Returns true if the unit's rows must be counted: a later unit of its file needs the count, and no
 * rank knows it. */
static bool needs_count(const rks_input *input, const uint64_t *known, size_t unit)
{
    return rks_input_goes_on(input, unit) && (known == NULL || known[unit] == UINT64_MAX);
}

/* Returns the rank that counts a unit. Its reader does: it has the bytes then, or its node has. */
static uint32_t counter_of(const rks_group *group, const rks_counting *counting, size_t unit)
{
    uint32_t owner = counting->owners == NULL ? UINT32_MAX : counting->owners[unit];
    return owner != UINT32_MAX ? owner : (uint32_t)(unit % rks_group_size(group));
}

/* Returns true if this rank counts the unit. */
static bool counts(const rks_group *group, const rks_input *input, const rks_counting *counting,
                   size_t unit)
{
    return counter_of(group, counting, unit) == rks_group_rank(group) &&
           needs_count(input, counting->known, unit);
}

/* Stores begin to send the units that this rank counts after `unit`. */
static void send_ahead(const rks_group *group, const rks_input *input, const rks_counting *counting,
                       size_t unit, size_t *sent)
{
    for (size_t at = unit, found = 0; at < input->unit_count && found <= RKS_UNITS_AHEAD; at++) {
        bool counted = counts(group, input, counting, at);
        if (counted && at > unit && at > *sent)
            rks_unit_ahead(input, at, UINT64_MAX);
        *sent = at > *sent ? at : *sent;
        found += counted;
    }
}

/* Counts on all ranks at once, each a part of the units, as (unit, rows). */
static rks_status count(rks_group *group, const rks_input *input, const rks_counting *counting,
                        rks_buffer *pairs, rks_error *err)
{
    rks_status status = RKS_OK;
    size_t sent = 0; /* ahead */
    for (size_t unit = 0; status == RKS_OK && unit < input->unit_count; unit++) {
        uint64_t pair[2] = {unit, 0};
        if (!counts(group, input, counting, unit))
            continue;
        if (input->stores != NULL)
            send_ahead(group, input, counting, unit, &sent);
        status = rks_unit_count_rows(input, unit, &pair[1], err);
        if (status == RKS_OK)
            status = rks_buffer_add(pairs, pair, sizeof(pair), err);
    }
    return status;
}

static void put_first_rows(const rks_input *input, const uint64_t *known, uint64_t *rows,
                           uint64_t *first)
{
    for (size_t unit = 0; unit < input->unit_count; unit++) {
        if (known != NULL && known[unit] != UINT64_MAX)
            rows[unit] = known[unit];
        first[unit] =
            input->units[unit].first_of_file || unit == 0 ? 0 : first[unit - 1] + rows[unit - 1];
    }
}

rks_status rks_input_first_rows(rks_group *group, rks_status status, const rks_input *input,
                                const rks_counting *counting, uint64_t **first_rows, rks_error *err)
{
    size_t units = input == NULL ? 0 : input->unit_count;
    uint64_t *rows = NULL, *first = NULL;
    rks_buffer mine = {0};
    rks_agreed agreed;
    if (status == RKS_OK) {
        rows = rks_alloc(units, sizeof(*rows), err);
        first = rks_alloc(units, sizeof(*first), err);
        status = rows == NULL || first == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK)
        status = count(group, input, counting, &mine, err);
    const rks_fact fact = rks_fact_bytes(mine.data, mine.size, units * sizeof(uint64_t[2]));
    if (counting->is_needed)
        status = rks_group_agree_on(group, "build: counting rows", status, &fact, 1, &agreed, err);
    for (uint32_t rank = 0; counting->is_needed && status == RKS_OK && rank < rks_group_size(group);
         rank++) {
        size_t size = 0;
        const uint8_t *pairs = rks_agreed_get(&agreed, rank, 0, &size);
        for (size_t at = 0; size - at >= 16; at += 16)
            if (rks_load_u64(pairs + at) < units)
                rows[rks_load_u64(pairs + at)] = rks_load_u64(pairs + at + 8);
    }
    if (status == RKS_OK) {
        put_first_rows(input, counting->known, rows, first);
        *first_rows = first;
        first = NULL;
    }
    rks_buffer_free(&mine);
    rks_free(rows);
    rks_free(first);
    return status;
}

void rks_input_describe_row(void *input, const rks_dataset *dataset, size_t at, uint64_t row,
                            char *text, size_t room)
{
    const rks_input *own_input = input;
    const rks_dataset_unit *unit = &dataset->units[at];
    uint64_t number = unit->summary.unit - dataset->shards[unit->shard].first_unit;
    bool own = rks_digest_equal(rks_dataset_build_of(dataset, unit->shard), dataset->build_id);
    if (!own || number >= own_input->unit_count) {
        snprintf(text, room, "row %" PRIu64 " of unit %" PRIu64 ", there before", row,
                 unit->summary.unit);
        return;
    }
    const rks_input_unit *from = &own_input->units[number];
    bool many = from->file_count > 1; /* one row a file */
    const char *name =
        own_input->files[from->first_file + (many && row < from->file_count ? row : 0)].name;
    if (many)
        snprintf(text, room, "%s", rks_text_end(name, RKS_PLACE_NAME));
    else
        snprintf(text, room, "row %" PRIu64 " of %s", unit->summary.first_source_row + row,
                 rks_text_end(name, RKS_PLACE_NAME));
}
