/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c: one sample a line. */
#include "base/error.h"
#include "base/memory.h"
#include "ingest/line_units.h"

static bool is_text_name(const char *name)
{
    return rks_name_ends(name, ".txt");
}

static rks_status look_at_line(void *user, const rks_line *line, uint64_t row, bool *counts,
                               rks_error *err)
{
    (void)user, (void)line, (void)row, (void)err;
    *counts = true;
    return RKS_OK;
}

static rks_status infer_text(const rks_input *input, size_t unit, char **schema_text,
                             rks_error *err)
{
    uint64_t samples = 0;
    rks_status status = rks_by_line_look(input, unit, look_at_line, NULL, &samples, err);
    if (status != RKS_OK || samples == 0)
        return status;
    char *made = rks_strdup("{\"text\":\"str\"}", err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    *schema_text = made;
    return RKS_OK;
}

static rks_status check_text_schema(const rks_schema *schema, rks_error *err)
{
    rks_kind first = rks_schema_column(schema, 0)->kind;
    if (rks_schema_columns(schema) != 1 || (first != RKS_KIND_STR && first != RKS_KIND_BYTES))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: lines of text make one column, str or bytes, not %.100s",
                        rks_schema_text(schema));
    return RKS_OK;
}

static rks_status emit_text_line(rks_job *job, void *user, const rks_line *line, rks_error *err)
{
    (void)user;
    rks_value value = rks_blob_value(line->text, line->size);
    return rks_job_emit(job, &value, err);
}

static rks_status read_text_unit(rks_job *job, rks_error *err)
{
    return rks_by_line_read(job, emit_text_line, NULL, err);
}

const rks_input_format rks_format_text = {
    .name = "text",
    .is_named = is_text_name,
    .looks_like = rks_bytes_are_text,
    .packable = true,
    .utf8 = true,
    .reads = RKS_READS_LINES,
    .cut = rks_by_line_cut,
    .count_rows = rks_by_line_count,
    .infer = infer_text,
    .check_schema = check_text_schema,
    .read = read_text_unit,
};
