/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonl.c: one JSON object a line (json_rows.h). */
#include <string.h>

#include "ingest/line_units.h"
#include "ingest/json_rows.h"

static bool is_jsonl_name(const char *name)
{
    return rks_name_ends(name, ".jsonl") || rks_name_ends(name, ".ndjson");
}

static bool looks_like_jsonl(const uint8_t *bytes, size_t size, bool all)
{
    size_t at = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < size && (bytes[at] == ' ' || (bytes[at] >= '\t' && bytes[at] <= '\r')))
        at++;
    return at < size && bytes[at] == '{' && rks_bytes_are_text(bytes, size, all);
}

static rks_status look_at_line(void *user, const rks_line *line, uint64_t row, bool *counts,
                               rks_error *err)
{
    return rks_json_look(user, line, row, counts, err);
}

static rks_status infer_jsonl(const rks_input *input, size_t unit, char **schema_text,
                              rks_error *err)
{
    rks_json_looking at = {.input = input};
    uint64_t samples = 0;
    rks_status status = rks_by_line_look(input, unit, look_at_line, &at, &samples, err);
    if (status == RKS_OK)
        status = rks_json_looked(&at, samples, input->files[input->units[unit].first_file].path,
                                 schema_text, err);
    rks_json_looking_free(&at);
    return status;
}

static rks_status emit_json_line(rks_job *job, void *user, const rks_line *line, rks_error *err)
{
    return rks_json_take(job, user, line, err);
}

static rks_status read_jsonl_unit(rks_job *job, rks_error *err)
{
    rks_row *row = NULL;
    rks_status status = rks_json_row_create(job, &row, err);
    if (status == RKS_OK)
        status = rks_by_line_read(job, emit_json_line, row, err);
    rks_row_free(row);
    return status;
}

const rks_input_format rks_format_jsonl = {
    .name = "jsonl",
    .is_named = is_jsonl_name,
    .looks_like = looks_like_jsonl,
    .packable = true,
    .utf8 = true,
    .has_objects = true,
    .reads = RKS_READS_LINES,
    .cut = rks_by_line_cut,
    .count_rows = rks_by_line_count,
    .infer = infer_jsonl,
    .read = read_jsonl_unit,
};
