/* SPDX-License-Identifier: Apache-2.0
 *
 * line_units.c: cuts files into units of whole lines, and reads a row a line. */
#include "ingest/line_units.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"
#include "ingest/row.h"

static rks_status count_units(const rks_input *input, uint64_t unit_size, size_t *count,
                              rks_error *err)
{
    uint64_t units = 0;
    for (size_t i = 0; i < input->file_count; i++) {
        uint64_t size = input->files[i].size;
        if (input->files[i].packing != RKS_PACKING_NONE)
            units += 1;
        else
            units += size / unit_size + (size % unit_size != 0);
        if (units > RKS_UNITS_MAX)
            return rks_too_many_units(unit_size, err);
    }
    *count = (size_t)units;
    return RKS_OK;
}

rks_status rks_by_line_cut(rks_input *input, uint64_t unit_size, rks_error *err)
{
    size_t count = 0;
    rks_status status = count_units(input, unit_size, &count, err);
    if (status != RKS_OK)
        return status;
    input->units = rks_alloc(count, sizeof(*input->units), err);
    if (input->units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->file_count; i++) {
        uint64_t size = input->files[i].size;
        bool packed = input->files[i].packing != RKS_PACKING_NONE; /* cannot be cut */
        for (uint64_t offset = 0; offset < size; offset += unit_size) {
            uint64_t left = size - offset;
            input->units[input->unit_count] = (rks_input_unit){
                .number = input->unit_count,
                .first_file = i,
                .file_count = 1,
                .offset = offset,
                .size = left < unit_size || packed ? left : unit_size,
                .first_of_file = offset == 0,
            };
            input->unit_count++;
            if (left <= unit_size || packed)
                break; /* offset + unit_size might overflow */
        }
    }
    return RKS_OK;
}

rks_status rks_by_line_count(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    const rks_input_unit *at = &input->units[unit];
    return rks_lines_count(&input->files[at->first_file], at->offset, at->size, rows, err);
}

/* Puts file and line before the error of row `row` of the unit. */
static rks_status fail_in_unit(const rks_input *input, size_t unit, uint64_t row, rks_error *err)
{
    const rks_input_unit *at = &input->units[unit];
    rks_error inner = *err;
    for (size_t before = unit; before > 0 && !input->units[before].first_of_file; before--) {
        uint64_t rows = 0;
        rks_status status = rks_by_line_count(input, before - 1, &rows, err);
        if (status != RKS_OK)
            return status;
        row += rows;
    }
    *err = inner;
    return rks_fail_at_row(err, input->files[at->first_file].path, row);
}

rks_status rks_by_line_look(const rks_input *input, size_t unit, rks_look_line_fn look, void *user,
                            uint64_t *samples, rks_error *err)
{
    const rks_input_unit *at = &input->units[unit];
    rks_lines lines;
    uint64_t rows = 0, found = 0;
    rks_status status = rks_lines_open(&lines, &input->files[at->first_file], at->offset, at->size,
                                       input->max_sample, err);
    uint64_t most = rks_infer_bytes(input, unit);
    if (status == RKS_OK) /* mostly the limit of rows ends it */
        rks_window_until(&lines.window,
                         at->offset + (most < RKS_LOOK_BYTES ? most : RKS_LOOK_BYTES));
    while (status == RKS_OK && rows < input->infer_rows &&
           (lines.window.position < at->offset ||
            lines.window.position - at->offset < rks_infer_bytes(input, unit))) {
        rks_line line;
        bool counts = false;
        status = rks_lines_next(&lines, &line, err);
        if (status != RKS_OK || line.text == NULL)
            break;
        status = look(user, &line, rows, &counts, err);
        if (status != RKS_OK && status != RKS_ERR_MEMORY)
            status = fail_in_unit(input, unit, rows, err);
        rows++;
        found += counts;
    }
    rks_lines_close(&lines);
    if (status == RKS_OK)
        *samples = found;
    return status;
}

rks_status rks_by_line_read(rks_job *job, rks_take_line_fn take, void *user, rks_error *err)
{
    const rks_input_file *file = &job->input->files[job->unit->first_file];
    const rks_place place = {.path = file->path, .line = true};
    rks_lines lines;
    rks_line line;
    rks_status status =
        rks_lines_open(&lines, file, job->unit->offset, job->unit->size, job->max_sample, err);
    while (status == RKS_OK) {
        status = rks_lines_next(&lines, &line, err);
        if (status != RKS_OK || line.text == NULL)
            break;
        if (rks_job_is_sampled(job))
            status =
                line.too_long ? rks_job_too_long(job, line.size, err) : take(job, user, &line, err);
        status = rks_job_row(job, &place, status, err);
        uint64_t done = rks_window_done(&lines.window);
        if (status == RKS_OK && done > job->unit->offset)
            status = rks_job_tick(job, done - job->unit->offset, err);
    }
    rks_lines_close(&lines);
    return status;
}
