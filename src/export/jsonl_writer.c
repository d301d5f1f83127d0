/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonl_writer.c: writes samples as lines of JSON. Numbers get as few digits as give back the same
 * value of their type. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "codec/json.h"
#include "codec/json_value.h"
#include "export/export.h"

enum { FLUSH = 1 << 20 };

rks_status rks_export_json(const rks_export_job *job, const rks_column *column,
                           const rks_value *value, rks_buffer *text, rks_error *err)
{
    rks_json_parser parser = {0};
    rks_json root = {0};
    rks_error why = {0};
    rks_buffer spelled = {0};
    size_t size = (size_t)value->size;
    rks_status status = rks_json_read(&parser, value->data, size, size, &root, &why);
    if (status != RKS_OK)
        status = rks_fail(err, status, 0, "column \"%s\": %s", column->name, why.text);
    else if (column->nullable && rks_json_is(root, RKS_JSON_NULL))
        status = rks_fail(err, RKS_ERR_DATA, 0,
                          "column \"%s\": a JSON null would be read back as a missing value; "
                          "export other columns by name",
                          column->name);
    if (status == RKS_OK)
        status = rks_json_print(root, &spelled, err);
    rks_json_parser_free(&parser);
    if (status == RKS_OK && text != NULL)
        status = rks_buffer_add(text, spelled.data, spelled.size, err);
    if (status == RKS_OK && job->respelled != NULL)
        *job->respelled +=
            spelled.size != value->size || memcmp(spelled.data, value->data, spelled.size) != 0;
    rks_buffer_free(&spelled);
    return status;
}

static rks_status put_json_value(const rks_export_job *job, const rks_column *column,
                                 const rks_value *value, rks_buffer *text, rks_error *err)
{
    return column->kind == RKS_KIND_JSON && value->data != NULL
               ? rks_export_json(job, column, value, text, err)
               : rks_json_print_value(column, value, text, err);
}

static rks_status put_key(const rks_sample *sample, rks_buffer *text, rks_error *err)
{
    rks_status status = rks_buffer_print(text, err, "\"" RKS_EXPORT_KEY "\":");
    if (status != RKS_OK)
        return status;
    return rks_utf8_valid(sample->key, sample->key_size, NULL)
               ? rks_json_print_string(sample->key, sample->key_size, text, err)
               : rks_json_print_base64(sample->key, sample->key_size, text, err);
}

rks_status rks_export_object(const rks_export_job *job, const rks_sample *sample, rks_buffer *text,
                             rks_error *err)
{
    rks_status status = rks_buffer_add(text, "{", 1, err);
    bool first = !job->keys_apart;
    if (status == RKS_OK && job->keys_apart)
        status = put_key(sample, text, err);
    for (uint32_t i = 0; status == RKS_OK && i < job->column_count; i++) {
        const rks_column *column = rks_schema_column(job->schema, job->columns[i]);
        if (!first)
            status = rks_buffer_add(text, ",", 1, err);
        first = false;
        if (status == RKS_OK)
            status = rks_json_print_string(column->name, strlen(column->name), text, err);
        if (status == RKS_OK)
            status = rks_buffer_add(text, ":", 1, err);
        if (status == RKS_OK)
            status = put_json_value(job, column, &sample->values[job->columns[i]], text, err);
    }
    return status == RKS_OK ? rks_buffer_add(text, "}", 1, err) : status;
}

/* ---- the file ------------------------------------------------------------------------------ */

typedef struct lines {
    const rks_export_job *job;
    int fd;
    rks_buffer text;
} lines;

static void lines_close(void *state)
{
    lines *l = state;
    if (l == NULL)
        return;
    if (l->fd >= 0)
        close(l->fd);
    rks_buffer_free(&l->text);
    rks_free(l);
}

static rks_status lines_open(const rks_export_job *job, void **state, rks_error *err)
{
    lines *l = rks_alloc(1, sizeof(*l), err);
    if (l == NULL)
        return RKS_ERR_MEMORY;
    l->job = job;
    l->fd = open(job->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (l->fd < 0) {
        rks_status status = rks_fail_write(err, errno, job->path, 0);
        lines_close(l);
        return status;
    }
    *state = l;
    return RKS_OK;
}

static rks_status flush_lines(lines *l, rks_error *err)
{
    rks_status status = rks_file_write(l->fd, l->job->path, l->text.data, l->text.size, err);
    l->text.size = 0;
    return status;
}

static rks_status lines_add(void *state, const rks_sample *sample, rks_error *err)
{
    lines *l = state;
    rks_status status = rks_export_object(l->job, sample, &l->text, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&l->text, "\n", 1, err);
    return status == RKS_OK && l->text.size >= FLUSH ? flush_lines(l, err) : status;
}

static rks_status lines_finish(void *state, rks_error *err)
{
    lines *l = state;
    rks_status status = flush_lines(l, err);
    if (status == RKS_OK && fsync(l->fd) != 0)
        status = rks_fail_write(err, errno, l->job->path, 0);
    return status;
}

const rks_export_ops rks_export_jsonl = {lines_open, lines_add, lines_finish, lines_close};
