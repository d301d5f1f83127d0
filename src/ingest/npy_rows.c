/* SPDX-License-Identifier: Apache-2.0
 *
 * npy_rows.c: .npy files: the first axis is samples; a row is the column "data" (or the only column
 * of the schema). Units are runs of rows; a packed file is one unit. Fortran order is refused: its
 * rows are scattered over the whole file. */
#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/npy.h"
#include "ingest/format.h"
#include "ingest/unpack.h"

enum { CHUNK = 1 << 20, HEADER_ROOM = RKS_NPY_HEADER_MAX + 12 };

typedef struct rows {
    uint64_t count;
    uint64_t begin; /* position of the first row */
    rks_npy row;    /* one row: a dimension less than the file's; row.size > 0 */
} rows;

static bool is_npy_name(const char *name)
{
    return rks_name_ends(name, ".npy");
}

static bool looks_like_npy(const uint8_t *bytes, size_t size, bool all)
{
    (void)all;
    return size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
}

static rks_status split_rows(const rks_input_file *file, const rks_npy *npy, rows *found,
                             rks_error *err)
{
    rks_error why = {0};
    *found = (rows){.begin = npy->begin};
    rks_status status = rks_npy_row(npy, &found->row, &why);
    if (status != RKS_OK)
        return rks_fail(err, status, 0, "%s: %s", file->path, why.text);
    found->count = npy->dims[0];
    if (file->packing == RKS_PACKING_NONE && npy->size != file->size - npy->begin)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: %" PRIu64 " rows of %" PRIu64 " bytes are not the %" PRIu64
                        " bytes after its header",
                        file->path, found->count, found->row.size, file->size - npy->begin);
    return RKS_OK;
}

static rks_status read_npy_header(const rks_input_file *file, rows *found, rks_error *err)
{
    rks_error why = {0};
    rks_npy npy;
    rks_unpack *stream = NULL;
    size_t size = 0, got = 1;
    uint8_t *bytes = rks_alloc_raw(HEADER_ROOM, 1, err);
    rks_status status = bytes == NULL ? RKS_ERR_MEMORY : rks_unpack_open(file, 0, &stream, err);
    for (; status == RKS_OK && got > 0 && size < HEADER_ROOM; size += got)
        status = rks_unpack_read(stream, bytes + size, HEADER_ROOM - size, &got, err);
    rks_unpack_close(stream);
    if (status == RKS_OK) {
        status = rks_npy_parse(bytes, size, &npy, &why);
        if (status != RKS_OK)
            rks_fail(err, status, 0, "%s: %s", file->path, why.text);
    }
    if (status == RKS_OK)
        status = split_rows(file, &npy, found, err);
    rks_free(bytes);
    return status;
}

/* Appends units of whole rows of file `i`. */
static rks_status cut_npy_file(rks_input *input, size_t i, uint64_t unit_size, rks_error *err)
{
    rows all;
    rks_status status = read_npy_header(&input->files[i], &all, err);
    if (status == RKS_OK && input->files[i].packing != RKS_PACKING_NONE)
        return rks_unit_of_file(input, i, unit_size, err);
    if (status != RKS_OK)
        return status;
    uint64_t most = unit_size / all.row.size == 0 ? 1 : unit_size / all.row.size;
    most = most > UINT32_MAX ? UINT32_MAX : most;
    for (uint64_t row = 0; status == RKS_OK && row < all.count; row += most) {
        uint64_t count = all.count - row < most ? all.count - row : most;
        const rks_input_unit unit = {
            .first_file = i,
            .offset = all.begin + row * all.row.size,
            .size = count * all.row.size,
            .first_of_file = row == 0,
        };
        status = rks_unit_add(input, unit, unit_size, err);
    }
    return status;
}

static rks_status cut_npy(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < input->file_count; i++)
        if (input->files[i].size > 0)
            status = cut_npy_file(input, i, unit_size, err);
    return status;
}

static uint64_t rows_of(const rks_input *input, const rks_input_unit *unit, const rows *all)
{
    return input->files[unit->first_file].packing != RKS_PACKING_NONE ? all->count
                                                                      : unit->size / all->row.size;
}

static rks_status count_npy_rows(const rks_input *input, size_t unit, uint64_t *count,
                                 rks_error *err)
{
    rows all;
    const rks_input_unit *at = &input->units[unit];
    rks_status status = read_npy_header(&input->files[at->first_file], &all, err);
    if (status == RKS_OK)
        *count = rows_of(input, at, &all);
    return status;
}

static rks_status infer_npy(const rks_input *input, size_t unit, char **schema_text, rks_error *err)
{
    rows all;
    char type[128];
    rks_status status = read_npy_header(&input->files[input->units[unit].first_file], &all, err);
    rks_error why = {0};
    if (status == RKS_OK && rks_npy_check_typed(&all.row, &why) != RKS_OK)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: %s",
                          input->files[input->units[unit].first_file].path, why.text);
    if (status != RKS_OK)
        return status;
    rks_npy_fixed_type(&all.row, type);
    char *made = rks_format(err, "{\"data\":\"%s\"}", type);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    *schema_text = made;
    return RKS_OK;
}

static rks_status check_npy_schema(const rks_schema *schema, rks_error *err)
{
    if (rks_schema_columns(schema) == 1)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "schema: an array makes one column, not %.100s",
                    rks_schema_text(schema));
}

static rks_status emit_row(rks_job *job, const rks_npy *row, uint8_t *bytes, rks_error *err)
{
    rks_value value = {.data = bytes, .size = row->size};
    for (uint32_t i = 0; i < row->dim_count; i++)
        value.dims[i] = (uint32_t)row->dims[i];
    rks_status status = rks_npy_arrange(row, bytes, err);
    return status == RKS_OK ? rks_job_emit(job, &value, err) : status;
}

static rks_status read_rows(rks_job *job, const rks_input_file *file, rks_unpack *stream,
                            const rows *all, rks_buffer *chunk, rks_error *err)
{
    const rks_place place = {.path = file->path};
    uint64_t step = all->row.size, count = rows_of(job->input, job->unit, all);
    bool fits = step <= job->max_sample;            /* otherwise nothing is read */
    if (!fits && file->packing != RKS_PACKING_NONE) /* the header's count cannot be trusted */
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%s: rows of %" PRIu64 " bytes, above max_sample (%" PRIu64 ")", file->path,
                        step, job->max_sample);
    uint64_t most = fits && CHUNK / step > 1 ? CHUNK / step : 1;
    rks_status status = fits ? rks_buffer_reserve(chunk, most * step, err) : RKS_OK;
    for (uint64_t done = 0; status == RKS_OK && done < count;) {
        uint64_t left = count - done, now = left < most ? left : most;
        status = fits ? rks_unpack_read_all(stream, chunk->data, (size_t)(now * step), err)
                      : rks_check_interrupt(err);
        for (uint64_t row = 0; status == RKS_OK && row < now; row++) {
            if (rks_job_is_sampled(job))
                status = fits ? emit_row(job, &all->row, chunk->data + row * step, err)
                              : rks_job_too_long(job, step, err);
            status = rks_job_row(job, &place, status, err);
        }
        done += now;
        if (status == RKS_OK)
            status = rks_job_tick(job, rks_unpack_taken(stream) - job->unit->offset, err);
    }
    return status;
}

/* Opens the file at the unit's first row. */
static rks_status open_rows(const rks_job *job, const rks_input_file *file, const rows *all,
                            rks_unpack **stream, rks_buffer *chunk, rks_error *err)
{
    rks_status status = rks_unpack_open(file, job->unit->offset, stream, err);
    if (status != RKS_OK || file->packing == RKS_PACKING_NONE)
        return status;
    status = rks_buffer_reserve(chunk, (size_t)all->begin, err);
    return status == RKS_OK ? rks_unpack_read_all(*stream, chunk->data, (size_t)all->begin, err)
                            : status;
}

static rks_status end_rows(const rks_input_file *file, rks_unpack *stream, const rows *all,
                           rks_error *err)
{
    uint8_t byte;
    size_t got = 0;
    if (file->packing == RKS_PACKING_NONE)
        return rks_unpack_unchanged(stream, err);
    rks_status status = rks_unpack_read(stream, &byte, 1, &got, err);
    if (status == RKS_OK && got > 0)
        status = rks_fail(err, RKS_ERR_DATA, 0,
                          "%s: continues after its %" PRIu64 " rows of %" PRIu64 " bytes",
                          file->path, all->count, all->row.size);
    return status;
}

static rks_status read_npy_unit(rks_job *job, rks_error *err)
{
    const rks_input_file *file = &job->input->files[job->unit->first_file];
    const rks_column *column = rks_schema_column(job->schema, 0);
    rks_buffer chunk = {0};
    rks_unpack *stream = NULL;
    rows all;
    rks_status status = read_npy_header(file, &all, err);
    if (status == RKS_OK && !rks_npy_fits(&all.row, column)) {
        char type[128];
        rks_npy_fixed_type(&all.row, type);
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s: rows of %s, the schema has %s", file->path,
                          type, column->type);
    }
    if (status == RKS_OK)
        status = open_rows(job, file, &all, &stream, &chunk, err);
    if (status == RKS_OK)
        status = read_rows(job, file, stream, &all, &chunk, err);
    if (status == RKS_OK)
        status = end_rows(file, stream, &all, err);
    rks_unpack_close(stream);
    rks_buffer_free(&chunk);
    return status;
}

const rks_input_format rks_format_npy = {
    .name = "npy",
    .packable = true,
    .is_named = is_npy_name,
    .looks_like = looks_like_npy,
    .cut = cut_npy,
    .count_rows = count_npy_rows,
    .infer = infer_npy,
    .check_schema = check_npy_schema,
    .read = read_npy_unit,
};
