/* SPDX-License-Identifier: Apache-2.0
 *
 * json_array.c: JSON objects in an array (json_items.h). A plain file larger than a unit is cut
 * between items, which needs one pass over it; a packed file is one unit. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "ingest/format.h"
#include "ingest/json_items.h"
#include "ingest/json_rows.h"

/* The only column of a schema that stores each item as it stands in the file. */
static const char RAW_COLUMN[] = "__item__";

static bool is_json_name(const char *name)
{
    return rks_name_ends(name, ".json");
}

/* Finds out whether NAME.json holds an array or an object a line. */
static const rks_input_format *look_closer(const uint8_t *bytes, size_t size)
{
    return rks_bytes_are_json_items(bytes, size) ? &rks_format_json : &rks_format_jsonl;
}

static bool looks_like_json(const uint8_t *bytes, size_t size, bool all)
{
    return rks_bytes_are_json_items(bytes, size) && rks_bytes_are_text(bytes, size, all);
}

static rks_status open_range(rks_json_items *items, const rks_input *input,
                             const rks_input_unit *unit, rks_error *err)
{
    return rks_json_items_open(items, &input->files[unit->first_file], unit->offset, unit->size,
                               input->max_sample, input->json_path, err);
}

static rks_status cut_json_file(rks_input *input, size_t number, uint64_t unit_size, rks_error *err)
{
    const rks_input_unit whole = {.first_file = number, .size = input->files[number].size};
    uint64_t begin = 0, position = 0;
    rks_json_items items;
    rks_line item = {0};
    rks_status status = open_range(&items, input, &whole, err);
    while (status == RKS_OK) {
        status = rks_json_items_next(&items, &item, &position, err);
        if (status != RKS_OK || item.text == NULL)
            break;
        if (position - begin >= unit_size) {
            status = rks_unit_of_bytes(input, number, begin, position, unit_size, err);
            begin = position;
        }
    }
    rks_json_items_close(&items);
    if (status == RKS_OK)
        status = rks_unit_of_bytes(input, number, begin, whole.size, unit_size, err);
    return status;
}

static rks_status cut_json(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        bool one = rks_file_is_whole(file) || file->size <= unit_size;
        status = one ? rks_unit_of_file(input, i, unit_size, err)
                     : cut_json_file(input, i, unit_size, err);
    }
    return status;
}

static rks_status count_items(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    rks_json_items items;
    rks_line item = {0};
    uint64_t position = 0, found = 0;
    rks_status status = open_range(&items, input, &input->units[unit], err);
    while (status == RKS_OK) {
        status = rks_json_items_next(&items, &item, &position, err);
        if (status != RKS_OK || item.text == NULL)
            break;
        found++;
    }
    rks_json_items_close(&items);
    if (status == RKS_OK)
        *rows = found;
    return status;
}

static rks_status fail_at_item(const char *path, uint64_t byte, rks_error *err)
{
    rks_error inner = *err;
    return rks_fail(err, (rks_status)inner.status, inner.cause, "%s: item at byte %" PRIu64 ": %s",
                    path, byte, inner.text);
}

static rks_status infer_json(const rks_input *input, size_t unit, char **schema_text,
                             rks_error *err)
{
    const rks_input_unit *at = &input->units[unit];
    const char *path = input->files[at->first_file].path;
    rks_json_looking looking = {.input = input, .all = {.rows_are = "items"}};
    rks_json_items items;
    rks_line item = {0};
    uint64_t row = 0, samples = 0, position = at->offset;
    rks_status status = open_range(&items, input, at, err);
    while (status == RKS_OK && row < input->infer_rows &&
           position - at->offset < rks_infer_bytes(input, unit)) {
        bool counts = false;
        status = rks_json_items_next(&items, &item, &position, err);
        if (status != RKS_OK || item.text == NULL)
            break;
        status = rks_json_look(&looking, &item, row++, &counts, err);
        if (status == RKS_ERR_DATA)
            status = fail_at_item(path, position, err);
        samples += counts;
    }
    rks_json_items_close(&items);
    if (status == RKS_OK)
        status = rks_json_looked(&looking, samples, path, schema_text, err);
    rks_json_looking_free(&looking);
    return status;
}

static bool wants_raw(const rks_schema *schema)
{
    const rks_column *column = rks_schema_column(schema, 0);
    return rks_schema_columns(schema) == 1 && column->kind == RKS_KIND_STR &&
           strcmp(column->name, RAW_COLUMN) == 0;
}

static rks_status emit_item(rks_job *job, rks_row *row, const rks_line *item, rks_error *err)
{
    if (item->too_long)
        return rks_job_too_long(job, item->size, err);
    if (!wants_raw(job->schema))
        return rks_json_take(job, row, item, err);
    const rks_value value = rks_blob_value(item->text, item->size);
    return rks_job_emit(job, &value, err);
}

static rks_status read_json_items(rks_job *job, rks_json_items *items, rks_row *row, rks_error *err)
{
    const char *path = job->input->files[job->unit->first_file].path;
    const rks_place place = {.path = path, .called = "item"};
    rks_line item = {0};
    uint64_t position = 0;
    rks_status status = RKS_OK;
    while (status == RKS_OK) {
        status = rks_json_items_next(items, &item, &position, err);
        if (status != RKS_OK || item.text == NULL)
            break;
        if (rks_job_is_sampled(job))
            status = emit_item(job, row, &item, err);
        status = rks_job_row(job, &place, status, err);
        uint64_t done = rks_window_done(&items->window);
        if (status == RKS_OK && done > job->unit->offset)
            status = rks_job_tick(job, done - job->unit->offset, err);
    }
    return status;
}

static rks_status read_json_unit(rks_job *job, rks_error *err)
{
    rks_row *row = NULL;
    rks_status status = rks_json_row_create(job, &row, err);
    if (status != RKS_OK)
        return status;
    rks_json_items items;
    status = open_range(&items, job->input, job->unit, err);
    if (status == RKS_OK)
        status = read_json_items(job, &items, row, err);
    rks_json_items_close(&items);
    rks_row_free(row);
    return status;
}

const rks_input_format rks_format_json = {
    .name = "json",
    .is_named = is_json_name,
    .look_closer = look_closer,
    .looks_like = looks_like_json,
    .packable = true,
    .utf8 = true,
    .has_objects = true,
    .reads = RKS_READS_ON,
    .cut = cut_json,
    .count_rows = count_items,
    .infer = infer_json,
    .read = read_json_unit,
};
