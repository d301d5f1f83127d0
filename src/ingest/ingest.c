/* SPDX-License-Identifier: Apache-2.0
 *
 * ingest.c: a unit's rows, one after the other, through schema and selector into the writer. */
#include "ingest/ingest.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "ingest/lines.h"
#include "ingest/row.h"

enum { TICK = 1 << 20, CHUNK = 1 << 20, BAD_ROOM = 64 << 10 };

typedef struct job {
    const rks_input *input;
    const rks_input_unit *unit;
    const rks_schema *schema;
    rks_selector *selector;
    rks_shard_writer *writer;
    rks_buffer *bad_list;
    const rks_ingest_progress *progress;
    bool skip_bad;
    uint64_t max_sample;
    uint64_t first_row;
    uint64_t rows; /* seen so far; the row at hand has this number in the unit */
    uint64_t kept;
    uint64_t filtered;
    uint64_t bad;
    uint64_t ticked; /* bytes at the last tick */
} job;

static rks_status tick(job *at, uint64_t bytes, bool last, rks_error *err)
{
    if (at->progress == NULL || at->progress->tick == NULL)
        return RKS_OK;
    if (bytes > at->unit->size)
        bytes = at->unit->size; /* the last line may end behind it */
    if (!last && bytes - at->ticked < TICK)
        return RKS_OK;
    at->ticked = bytes;
    return at->progress->tick(at->progress->user, bytes, at->kept, err);
}

/* One sample: chosen, measured, written. */
static rks_status offer(job *at, const rks_value *values, rks_error *err)
{
    bool keep = false;
    uint32_t length = 0;
    const void *key = NULL;
    size_t key_size = 0;
    rks_status status =
        rks_selector_apply(at->selector, values, &keep, &length, &key, &key_size, err);
    if (status != RKS_OK)
        return status;
    if (!keep) {
        at->filtered++;
        return RKS_OK;
    }
    status =
        rks_shard_writer_add(at->writer, values, key, key_size, length, (uint32_t)at->rows, err);
    if (status == RKS_OK)
        at->kept++;
    return status;
}

/* What becomes of a row that ended with `status` and *err: skipped and listed, or the unit's end.
 * Its place goes in front where the row is to blame, or a callback that saw it; not where the disk
 * is full. `line` is false for a file of a folder. */
static rks_status settle(job *at, const rks_input_file *file, bool line, rks_status status,
                         rks_error *err)
{
    bool callback = rks_selector_callback_failed(at->selector);
    if (status == RKS_OK || (status != RKS_ERR_DATA && !callback))
        return status;
    rks_error inner = *err;
    if (line)
        rks_fail_at_row(err, file->path, at->first_row + at->rows);
    else
        rks_fail(err, status, inner.cause, "%s: %s", file->path, inner.text);
    if (callback || !at->skip_bad)
        return status;
    at->bad++;
    if (at->bad_list->size + strlen(err->text) + 1 > BAD_ROOM)
        return RKS_OK;
    rks_error full;
    rks_status added = rks_buffer_print(at->bad_list, &full, "%s\n", err->text);
    if (added != RKS_OK)
        *err = full;
    return added;
}

static rks_status too_long(const job *at, uint64_t size, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0, "%" PRIu64 " bytes, above max_sample (%" PRIu64 ")", size,
                    at->max_sample);
}

static rks_value text_value(const void *text, size_t size)
{
    return (rks_value){.data = text, .size = size, .dims = {(uint32_t)size}};
}

static rks_status take_text(job *at, const rks_line *line, rks_error *err)
{
    rks_value value = text_value(line->text, line->size);
    return offer(at, &value, err);
}

static rks_status take_line(job *at, rks_row *row, const rks_line *line, rks_error *err)
{
    if (line->too_long)
        return too_long(at, line->size, err);
    if (row == NULL)
        return take_text(at, line, err);
    if (rks_line_is_blank(line->text, line->size))
        return RKS_OK;
    rks_status status = rks_row_parse(row, line->text, line->size, err);
    return status == RKS_OK ? offer(at, row->values, err) : status;
}

/* `row` is NULL for text. */
static rks_status read_lines(job *at, rks_row *row, rks_error *err)
{
    const rks_input_file *file = &at->input->files[at->unit->first_file];
    rks_lines lines;
    rks_line line;
    rks_status status =
        rks_lines_open(&lines, file, at->unit->offset, at->unit->size, at->max_sample, err);
    while (status == RKS_OK) {
        status = rks_lines_next(&lines, &line, err);
        if (status != RKS_OK || line.text == NULL)
            break;
        if (at->rows == UINT32_MAX) {
            status = rks_fail(err, RKS_ERR_DATA, 0,
                              "%s: more than 2^32 - 1 lines in a unit; take a smaller unit_size",
                              file->path);
            break;
        }
        status = settle(at, file, true, take_line(at, row, &line, err), err);
        at->rows++;
        if (status == RKS_OK && lines.position > at->unit->offset)
            status = tick(at, lines.position - at->unit->offset, false, err);
    }
    rks_lines_close(&lines);
    return status;
}

/* A whole file, of the size that it had when it was listed. */
static rks_status load_file(const rks_input_file *file, rks_buffer *data, rks_error *err)
{
    int fd = -1;
    data->size = 0;
    rks_status status = rks_buffer_reserve(data, file->size + 1, err); /* data is not NULL */
    if (status == RKS_OK)
        status = rks_input_file_open(file, &fd, err);
    while (status == RKS_OK && data->size < file->size) {
        size_t left = file->size - data->size, got = 0;
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_input_file_read(file, fd, data->size, data->data + data->size,
                                         left < CHUNK ? left : CHUNK, &got, err);
        data->size += got;
    }
    if (status == RKS_OK)
        status = rks_input_file_unchanged(file, fd, err);
    if (fd >= 0)
        close(fd);
    return status;
}

static rks_status read_folder(job *at, rks_error *err)
{
    rks_buffer data = {0};
    rks_status status = RKS_OK;
    uint64_t bytes = 0;
    int path = rks_schema_find(at->schema, "path"); /* the schema was checked: 0 or 1 */
    for (size_t i = 0; status == RKS_OK && i < at->unit->file_count; i++) {
        const rks_input_file *file = &at->input->files[at->unit->first_file + i];
        bool fits = file->size <= at->max_sample;
        if (fits)
            status = load_file(file, &data, err);
        if (status != RKS_OK)
            break;
        rks_value values[2];
        values[path] = text_value(file->name, strlen(file->name));
        values[1 - path] = text_value(data.data, data.size);
        status = settle(at, file, false,
                        fits ? offer(at, values, err) : too_long(at, file->size, err), err);
        at->rows++;
        bytes += file->size;
        if (status == RKS_OK)
            status = tick(at, bytes, false, err);
    }
    rks_buffer_free(&data);
    return status;
}

static bool column_is(const rks_schema *schema, const char *name, rks_kind kind)
{
    int at = rks_schema_find(schema, name);
    return at >= 0 && rks_schema_column(schema, (uint32_t)at)->kind == kind;
}

static rks_status check_schema(rks_input_format format, const rks_schema *schema, rks_error *err)
{
    uint32_t count = rks_schema_columns(schema);
    rks_kind first = rks_schema_column(schema, 0)->kind;
    if (format == RKS_FORMAT_TEXT &&
        (count != 1 || (first != RKS_KIND_STR && first != RKS_KIND_BYTES)))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: lines of text make one column, str or bytes, not %.100s",
                        rks_schema_text(schema));
    if (format == RKS_FORMAT_FOLDER &&
        (count != 2 || !column_is(schema, "path", RKS_KIND_STR) ||
         (!column_is(schema, "data", RKS_KIND_BYTES) && !column_is(schema, "text", RKS_KIND_STR))))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "schema: a folder makes path:str and data:bytes or text:str, not %.100s",
                        rks_schema_text(schema));
    return RKS_OK;
}

static rks_status read_rows(job *at, const rks_build_options *options, rks_error *err)
{
    rks_row *row = NULL;
    if (at->input->format == RKS_FORMAT_FOLDER)
        return read_folder(at, err);
    if (at->input->format == RKS_FORMAT_TEXT)
        return read_lines(at, NULL, err);
    rks_status status = rks_row_create(at->schema, options->schema == NULL, &row, err);
    if (status == RKS_OK)
        status = read_lines(at, row, err);
    rks_row_free(row);
    return status;
}

rks_status rks_ingest_unit(const rks_input *input, size_t unit, uint64_t first_row,
                           const rks_schema *schema, const rks_build_options *options,
                           rks_selector *selector, rks_shard_writer *writer, rks_buffer *bad,
                           const rks_ingest_progress *progress, rks_error *err)
{
    rks_error unseen = {0};
    if (err == NULL)
        err = &unseen; /* rows are told apart by what their errors say */
    if (unit >= input->unit_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %zu of %zu", unit, input->unit_count);
    job at = {
        .input = input,
        .unit = &input->units[unit],
        .schema = schema,
        .selector = selector,
        .writer = writer,
        .bad_list = bad,
        .progress = progress,
        .skip_bad = options->skip_bad,
        .max_sample = options->max_sample != 0 ? options->max_sample : input->max_sample,
        .first_row = first_row,
    };
    bool derived = rks_selector_derived_keys(selector);
    rks_status status = check_schema(input->format, schema, err);
    if (status == RKS_OK && derived && input->format == RKS_FORMAT_FOLDER)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "key: a folder's samples need a key column");
    if (status == RKS_OK)
        status = rks_shard_writer_begin(writer, at.unit->number,
                                        derived ? input->files[at.unit->first_file].name : NULL,
                                        first_row, err);
    if (status == RKS_OK)
        status = read_rows(&at, options, err);
    if (status == RKS_OK)
        status = rks_shard_writer_end(writer, at.rows, at.filtered, at.bad, err);
    if (status == RKS_OK)
        status = tick(&at, at.unit->size, true, err);
    return status;
}
