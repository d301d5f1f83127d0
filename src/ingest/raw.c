/* SPDX-License-Identifier: Apache-2.0
 *
 * raw.c: files that hold only numbers of one type, as tokenizers write them (uint16 tokens, one
 * after the other, little-endian). A sample is a run of RUN items; the file's last run is the
 * rest. The column is "tokens", the key "NAME:run". The reader takes windows of any length over
 * the runs. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/unpack.h"

enum { RUN = 1024, RUNS_READ = 128 };

/* Makes the column that the option `dtype` describes. */
static rks_status find_type(const rks_input *input, rks_schema **schema, rks_error *err)
{
    if (input->dtype == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "dtype: a raw file does not say what it holds; give the type of its items, "
                        "as dtype=uint16");
    char *text = rks_format(err, "tokens:%.32s[*]", input->dtype);
    rks_status status = text == NULL ? RKS_ERR_MEMORY : rks_schema_parse(text, schema, NULL);
    rks_free(text);
    const rks_column *column = status == RKS_OK ? rks_schema_column(*schema, 0) : NULL;
    if (column != NULL && (rks_schema_columns(*schema) != 1 || column->dim_count != 1 ||
                           column->nullable || column->kind == RKS_KIND_BOOL)) {
        rks_schema_free(*schema);
        *schema = NULL;
        status = RKS_ERR_ARGUMENT;
    }
    return status == RKS_OK || status == RKS_ERR_MEMORY
               ? status
               : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "dtype: \"%.32s\" is not a number type, such as uint16, int32 or float32",
                          input->dtype);
}

static rks_status item_size(const rks_input *input, uint64_t *size, rks_error *err)
{
    rks_schema *schema = NULL;
    rks_status status = find_type(input, &schema, err);
    if (status == RKS_OK)
        *size = rks_schema_column(schema, 0)->item_size;
    rks_schema_free(schema);
    return status;
}

static rks_status cut_raw(rks_input *input, uint64_t unit_size, rks_error *err)
{
    uint64_t item = 0;
    rks_status status = item_size(input, &item, err);
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++) {
        uint64_t size = input->files[i].size, run = RUN * item;
        uint64_t step = unit_size / run == 0 ? run : unit_size / run * run;
        if (size % item != 0)
            return rks_fail(err, RKS_ERR_DATA, 0, "%s: %" PRIu64 " bytes are not whole items of %s",
                            input->files[i].path, size, input->dtype);
        for (uint64_t at = 0; status == RKS_OK && at < size; at += step) {
            uint64_t end = size - at < step ? size : at + step;
            status = rks_unit_of_bytes(input, i, at, end, unit_size, err);
        }
    }
    return status;
}

static rks_status count_runs(const rks_input *input, size_t unit, uint64_t *count, rks_error *err)
{
    uint64_t item = 0, size = input->units[unit].size;
    rks_status status = item_size(input, &item, err);
    if (status == RKS_OK)
        *count = size / (RUN * item) + (size % (RUN * item) != 0);
    return status;
}

static rks_status infer_raw(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    rks_schema *schema = NULL;
    (void)unit;
    rks_status status = find_type(input, &schema, err);
    char *made = status == RKS_OK ? rks_strdup(rks_schema_text(schema), err) : NULL;
    rks_schema_free(schema);
    if (status == RKS_OK && made == NULL)
        return RKS_ERR_MEMORY;
    *schema_text = made;
    return status;
}

/* Checks that the schema has one column of the option's type, under any name. */
static rks_status check_type(const rks_job *job, uint64_t *item, rks_error *err)
{
    rks_schema *schema = NULL;
    const rks_column *column = rks_schema_column(job->schema, 0);
    rks_status status = find_type(job->input, &schema, err);
    if (status != RKS_OK)
        return status;
    *item = column->item_size;
    if (rks_schema_columns(job->schema) != 1 || column->dim_count != 1 || column->dims[0] != 0 ||
        column->kind != rks_schema_column(schema, 0)->kind)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "schema: a raw file of %s makes one column %s[*], not %.100s",
                          job->input->dtype, job->input->dtype, rks_schema_text(job->schema));
    rks_schema_free(schema);
    return status;
}

static rks_status emit_run(rks_job *job, const uint8_t *bytes, uint64_t size, uint64_t item,
                           rks_error *err)
{
    const rks_value value = {.data = bytes, .size = size, .dims = {(uint32_t)(size / item)}};
    if (size > job->max_sample)
        return rks_job_too_long(job, size, err);
    return rks_job_emit(job, &value, err);
}

static rks_status read_runs(rks_job *job, rks_unpack *stream, uint8_t *bytes, uint64_t item,
                            rks_error *err)
{
    const rks_place place = {.path = job->input->files[job->unit->first_file].path};
    uint64_t run = RUN * item, left = job->unit->size;
    rks_status status = RKS_OK;
    while (status == RKS_OK && left > 0) {
        uint64_t now = left < RUNS_READ * run ? left : RUNS_READ * run;
        status = rks_unpack_read_all(stream, bytes, (size_t)now, err);
        for (uint64_t at = 0; status == RKS_OK && at < now; at += run) {
            if (rks_job_is_sampled(job))
                status = emit_run(job, bytes + at, now - at < run ? now - at : run, item, err);
            status = rks_job_row(job, &place, status, err);
        }
        left -= now;
        if (status == RKS_OK)
            status = rks_job_tick(job, job->unit->size - left, err);
    }
    return status == RKS_OK ? rks_unpack_unchanged(stream, err) : status;
}

static rks_status read_raw_unit(rks_job *job, rks_error *err)
{
    rks_unpack *stream = NULL;
    uint8_t *bytes = NULL;
    uint64_t item = 0;
    rks_status status = check_type(job, &item, err);
    if (status == RKS_OK && (bytes = rks_alloc_raw(RUNS_READ * RUN, item, err)) == NULL)
        status = RKS_ERR_MEMORY;
    if (status == RKS_OK)
        status = rks_unpack_open(&job->input->files[job->unit->first_file], job->unit->offset,
                                 &stream, err);
    if (status == RKS_OK)
        status = read_runs(job, stream, bytes, item, err);
    rks_unpack_close(stream);
    rks_free(bytes);
    return status;
}

const rks_input_format rks_format_raw = {
    .name = "raw",
    .reads = RKS_READS_ON,
    .cut = cut_raw,
    .count_rows = count_runs,
    .infer = infer_raw,
    .read = read_raw_unit,
};
