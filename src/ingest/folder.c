/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.c: makes each file a sample: its path and its contents. */
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "codec/input_file.h"
#include "ingest/format.h"

static rks_status cut_folder(rks_input *input, uint64_t unit_size, rks_error *err)
{
    rks_input_unit *unit = NULL;
    input->units = rks_alloc(input->file_count, sizeof(*input->units), err);
    if (input->units == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->file_count; i++) {
        uint64_t size = input->files[i].size;
        if (unit == NULL || unit->file_count == RKS_UNIT_FILES_MAX || unit->size >= unit_size ||
            size > unit_size - unit->size) {
            if (input->unit_count == RKS_UNITS_MAX)
                return rks_too_many_units(unit_size, err);
            unit = &input->units[input->unit_count];
            *unit = (rks_input_unit){
                .number = input->unit_count++, .first_file = i, .first_of_file = true};
        }
        unit->file_count++;
        unit->size += size;
    }
    return RKS_OK;
}

static rks_status count_folder_files(const rks_input *input, size_t unit, uint64_t *rows,
                                     rks_error *err)
{
    (void)err;
    *rows = input->units[unit].file_count;
    return RKS_OK;
}

static rks_status file_is_text(const rks_input_file *file, uint8_t *bytes, uint64_t room,
                               bool *text, rks_error *err)
{
    rks_input_handle *handle = NULL;
    uint64_t size = 0, want = file->size < room ? file->size : room;
    rks_status status = rks_input_file_open(file, &handle, err);
    while (status == RKS_OK && size < want) {
        size_t got = 0;
        status =
            rks_input_file_read(file, handle, size, bytes + size, (size_t)(want - size), &got, err);
        size += got;
    }
    if (status == RKS_OK)
        *text = rks_bytes_are_text(bytes, (size_t)size, size == file->size);
    rks_input_file_close(handle);
    return status;
}

static rks_status infer_folder(const rks_input *input, size_t unit, char **schema_text,
                               rks_error *err)
{
    const rks_input_unit *at = &input->units[unit];
    bool is_text = true;
    uint64_t looked = 0, most = rks_infer_bytes(input, unit);
    most = most < RKS_INFER_BYTES ? most : RKS_INFER_BYTES;
    uint8_t *bytes = rks_alloc_raw((size_t)most, 1, err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < at->file_count && i < RKS_INFER_ROWS && looked < most && is_text; i++) {
        const rks_input_file *file = &input->files[at->first_file + i];
        status = file_is_text(file, bytes, most - looked, &is_text, err);
        if (status != RKS_OK)
            break;
        looked += file->size;
    }
    rks_free(bytes);
    if (status != RKS_OK)
        return status;
    char *made = rks_strdup(is_text ? "{\"text\":\"str\",\"path\":\"str\"}"
                                    : "{\"data\":\"bytes\",\"path\":\"str\"}",
                            err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    *schema_text = made;
    return RKS_OK;
}

static bool column_is(const rks_schema *schema, const char *name, rks_kind kind)
{
    int at = rks_schema_find(schema, name);
    return at >= 0 && rks_schema_column(schema, (uint32_t)at)->kind == kind;
}

static rks_status check_folder_schema(const rks_schema *schema, rks_error *err)
{
    if (rks_schema_columns(schema) != 2 || !column_is(schema, "path", RKS_KIND_STR) ||
        (!column_is(schema, "data", RKS_KIND_BYTES) && !column_is(schema, "text", RKS_KIND_STR)))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: a folder makes path:str and data:bytes or text:str, not %.100s",
                        rks_schema_text(schema));
    return RKS_OK;
}

static rks_status read_folder_unit(rks_job *job, rks_error *err)
{
    rks_buffer data = {0};
    rks_input_folder folder = {0};
    rks_status status = RKS_OK;
    uint64_t bytes = 0;
    size_t sent = 0; /* ahead */
    const rks_input_file *files = &job->input->files[job->unit->first_file];
    int path = rks_schema_find(job->schema, "path"); /* the schema was checked: 0 or 1 */
    for (size_t i = 0; status == RKS_OK && i < job->unit->file_count; i++) {
        const rks_input_file *file = &files[i];
        const rks_place place = {.path = file->path};
        bool taken = rks_job_is_sampled(job), fits = file->size <= job->max_sample;
        for (; sent < job->unit->file_count && sent <= i + RKS_FILES_AHEAD; sent++)
            if (job->draw_limit == 0) /* else it may not be taken */
                rks_input_file_ahead(&files[sent], 0, files[sent].size);
        if (taken && fits)
            status = rks_input_file_load(file, &folder, &data, err);
        if (status != RKS_OK)
            break;
        rks_value values[2];
        values[path] = rks_blob_value(file->name, strlen(file->name));
        values[1 - path] = rks_blob_value(data.data, data.size);
        if (taken)
            status = fits ? rks_job_emit(job, values, err) : rks_job_too_long(job, file->size, err);
        status = rks_job_row(job, &place, status, err);
        bytes += file->size;
        if (status == RKS_OK)
            status = rks_job_tick(job, bytes, err);
    }
    rks_input_folder_close(&folder);
    rks_buffer_free(&data);
    return status;
}

const rks_input_format rks_format_folder = {
    .name = "folder",
    .key = "path",
    .named_only = true,
    .reads = RKS_READS_ON,
    .cut = cut_folder,
    .count_rows = count_folder_files,
    .infer = infer_folder,
    .check_schema = check_folder_schema,
    .read = read_folder_unit,
};
