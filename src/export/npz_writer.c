/* SPDX-License-Identifier: Apache-2.0
 *
 * npz_writer.c: writes a zip of .npy arrays, as np.savez does. For N samples:
 *
 *   COLUMN          no `*` in its type: [N, dimensions...], missing values as zeros
 *                   else the items of all samples one after the other, [items]; str, bytes and
 *                   json are uint8
 *   COLUMN.offsets  int64 [N + 1]: sample i has items offsets[i] to offsets[i + 1]
 *   COLUMN.shapes   int64 [N, dimensions], if the type has more than one dimension and a `*`
 *   COLUMN.missing  bool [N], if a value may be missing
 *   __key__, __key__.offsets   if no column holds the keys
 *
 * A zip's members lie one after the other, and an array starts with its size. So each array grows
 * in an unnamed file beside the target, and at the end they are copied together. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "codec/archive_writer.h"
#include "codec/member_suffix.h"
#include "codec/npy.h"
#include "export/export.h"

enum { SPOOL = 16 << 10, COPY = 1 << 20 };

typedef struct array {
    char *name; /* without .npy */
    rks_kind kind;
    uint32_t item_size;
    uint64_t row_dims[RKS_DIMS_MAX]; /* the dimensions after the first */
    uint32_t row_dim_count;
    int fd;
    uint64_t written;
    rks_buffer spool;
} array;

typedef struct npz {
    const rks_export_job *job;
    array *arrays;
    size_t array_count;
    uint64_t count; /* of samples */
} npz;

/* ---- arrays ------------------------------------------------------------------------------ */

/* Opens an unnamed file. If the file system cannot, unlinks its name at once. */
static int open_spool(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? rks_strdup(".", NULL)
                                 : rks_format(NULL, "%.*s", (int)(slash - path + 1), path);
    char *name = rks_format(NULL, "%s.spool", path);
    int fd = folder == NULL ? -1 : open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0 && name != NULL) {
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0)
            unlink(name);
    }
    rks_free(folder);
    rks_free(name);
    return fd;
}

static rks_status add_array(npz *z, const char *name, const char *what, rks_kind kind,
                            uint32_t item_size, rks_error *err)
{
    array *grown = rks_realloc(z->arrays, z->array_count + 1, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    z->arrays = grown;
    rks_buffer safe = {0};
    rks_status status = rks_member_escape(name, &safe, err);
    array *made = &grown[z->array_count];
    *made = (array){.kind = kind, .item_size = item_size, .fd = -1};
    if (status == RKS_OK)
        made->name = rks_format(err, "%s%s", (const char *)safe.data, what);
    rks_buffer_free(&safe);
    if (made->name == NULL)
        return RKS_ERR_MEMORY;
    z->array_count++; /* it has something to free now */
    for (size_t i = 0; i + 1 < z->array_count; i++)
        if (strcmp(grown[i].name, made->name) == 0)
            return rks_fail(err, RKS_ERR_DATA, 0, "two arrays would be named \"%.100s\"",
                            made->name);
    made->fd = open_spool(z->job->path);
    return made->fd < 0 ? rks_fail_errno(err, errno, "%s: a temporary file for array \"%.100s\"",
                                         z->job->path, made->name)
                        : RKS_OK;
}

static rks_status flush_array(const npz *z, array *a, rks_error *err)
{
    rks_status status = rks_file_write(a->fd, z->job->path, a->spool.data, a->spool.size, err);
    a->written += a->spool.size;
    a->spool.size = 0;
    return status;
}

static rks_status append_items(const npz *z, array *a, const void *bytes, size_t size,
                               rks_error *err)
{
    rks_status status = RKS_OK;
    if (a->spool.size + size > SPOOL)
        status = flush_array(z, a, err);
    if (status == RKS_OK && size > SPOOL) {
        status = rks_file_write(a->fd, z->job->path, bytes, size, err);
        a->written += size;
        return status;
    }
    return status == RKS_OK ? rks_buffer_add(&a->spool, bytes, size, err) : status;
}

static rks_status put_zeros(const npz *z, array *a, uint64_t size, rks_error *err)
{
    static const uint8_t zeros[512];
    rks_status status = RKS_OK;
    for (; status == RKS_OK && size > 0; size -= size < sizeof(zeros) ? size : sizeof(zeros))
        status =
            append_items(z, a, zeros, size < sizeof(zeros) ? (size_t)size : sizeof(zeros), err);
    return status;
}

/* Returns the number of items so far, for offsets. */
static uint64_t items_of(const array *a)
{
    return (a->written + a->spool.size) / a->item_size;
}

static rks_status put_number(const npz *z, array *a, uint64_t number, rks_error *err)
{
    return append_items(z, a, &number, sizeof(number), err);
}

/* ---- columns ------------------------------------------------------------------------------- */

/* Refuses a column's name that readers would take for another column's .offsets, .shapes or
 * .missing. */
static rks_status check_npz_name(const npz *z, const char *name, rks_error *err)
{
    static const char *const parts[] = {"offsets", "shapes", "missing"};
    const char *dot = strrchr(name, '.');
    bool part = false;
    for (size_t i = 0; dot != NULL && i < sizeof(parts) / sizeof(parts[0]); i++)
        part |= strcmp(dot + 1, parts[i]) == 0;
    for (uint32_t i = 0; part && i < z->job->column_count; i++) {
        const char *other = rks_schema_name(z->job->schema, z->job->columns[i]);
        if (strlen(other) == (size_t)(dot - name) && strncmp(name, other, strlen(other)) == 0)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "array \"%.100s\" would be read as a part of \"%.100s\"; choose one by "
                            "its name",
                            name, other);
    }
    return RKS_OK;
}

static bool has_shapes(const rks_column *column)
{
    return column->variable_dims > 0 && column->dim_count > 1;
}

static void set_row_dims(array *data, const rks_column *column)
{
    data->row_dim_count = column->dim_count;
    for (uint32_t i = 0; i < column->dim_count; i++)
        data->row_dims[i] = column->dims[i];
}

static rks_status add_offsets(npz *z, const rks_column *column, rks_error *err)
{
    rks_status status = add_array(z, column->name, ".offsets", RKS_KIND_INT64, 8, err);
    return status == RKS_OK ? put_number(z, &z->arrays[z->array_count - 1], 0, err) : status;
}

static rks_status add_shapes(npz *z, const rks_column *column, rks_error *err)
{
    rks_status status = add_array(z, column->name, ".shapes", RKS_KIND_INT64, 8, err);
    if (status != RKS_OK)
        return status;
    z->arrays[z->array_count - 1].row_dim_count = 1;
    z->arrays[z->array_count - 1].row_dims[0] = column->dim_count;
    return RKS_OK;
}

static rks_status add_npz_column(npz *z, const rks_column *column, rks_error *err)
{
    rks_status status = check_npz_name(z, column->name, err);
    if (status == RKS_OK)
        status = add_array(z, column->name, "", column->kind, column->item_size, err);
    if (status != RKS_OK)
        return status;
    if (column->variable_dims == 0)
        set_row_dims(&z->arrays[z->array_count - 1], column);
    else
        status = add_offsets(z, column, err);
    if (status == RKS_OK && has_shapes(column))
        status = add_shapes(z, column, err);
    if (status == RKS_OK && column->nullable)
        status = add_array(z, column->name, ".missing", RKS_KIND_BOOL, 1, err);
    return status;
}

/* Appends a value to the column's arrays, and moves *a past them. */
static rks_status put_npz_value(npz *z, const rks_column *column, const rks_value *value, array **a,
                                rks_error *err)
{
    array *data = (*a)++;
    uint8_t missing = value->data == NULL;
    rks_status status = RKS_OK;
    if (!missing && column->kind == RKS_KIND_JSON)
        status = rks_export_json(z->job, column, value, NULL, err);
    if (status == RKS_OK && !missing)
        status = append_items(z, data, value->data, (size_t)value->size, err);
    else if (status == RKS_OK && column->variable_dims == 0)
        status = put_zeros(z, data, column->unit, err);
    if (status == RKS_OK && column->variable_dims > 0)
        status = put_number(z, (*a)++, items_of(data), err);
    if (status == RKS_OK && has_shapes(column)) {
        for (uint32_t i = 0; status == RKS_OK && i < column->dim_count; i++)
            status = put_number(z, *a, missing ? 0 : value->dims[i], err);
        (*a)++;
    }
    if (status == RKS_OK && column->nullable)
        status = append_items(z, (*a)++, &missing, 1, err);
    return status;
}

static rks_status npz_add(void *state, const rks_sample *sample, rks_error *err)
{
    npz *z = state;
    array *a = z->arrays;
    rks_status status = RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < z->job->column_count; i++)
        status = put_npz_value(z, rks_schema_column(z->job->schema, z->job->columns[i]),
                               &sample->values[z->job->columns[i]], &a, err);
    if (status == RKS_OK && z->job->keys_apart) {
        status = append_items(z, a, sample->key, sample->key_size, err);
        if (status == RKS_OK)
            status = put_number(z, a + 1, items_of(a), err);
    }
    z->count++;
    return status;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void npz_close(void *state)
{
    npz *z = state;
    if (z == NULL)
        return;
    for (size_t i = 0; i < z->array_count; i++) {
        if (z->arrays[i].fd >= 0)
            close(z->arrays[i].fd);
        rks_buffer_free(&z->arrays[i].spool);
        rks_free(z->arrays[i].name);
    }
    rks_free(z->arrays);
    rks_free(z);
}

static rks_status npz_open(const rks_export_job *job, void **state, rks_error *err)
{
    npz *z = rks_alloc(1, sizeof(*z), err);
    if (z == NULL)
        return RKS_ERR_MEMORY;
    z->job = job;
    rks_status status = RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < job->column_count; i++)
        status = add_npz_column(z, rks_schema_column(job->schema, job->columns[i]), err);
    if (status == RKS_OK && job->keys_apart) {
        status = add_array(z, "__key__", "", RKS_KIND_BYTES, 1, err);
        if (status == RKS_OK)
            status = add_array(z, "__key__", ".offsets", RKS_KIND_INT64, 8, err);
        if (status == RKS_OK)
            status = put_number(z, &z->arrays[z->array_count - 1], 0, err);
    }
    if (status != RKS_OK) {
        npz_close(z);
        return status;
    }
    *state = z;
    return RKS_OK;
}

static rks_status copy_array(const npz *z, array *a, rks_archive_writer *zip, uint8_t *room,
                             rks_error *err)
{
    rks_buffer head = {0};
    uint64_t dims[RKS_DIMS_MAX + 1], row_items = 1;
    for (uint32_t i = 0; i < a->row_dim_count; i++) {
        dims[i + 1] = a->row_dims[i];
        row_items *= a->row_dims[i];
    }
    char *name = rks_format(err, "%s.npy", a->name);
    rks_status status = name == NULL ? RKS_ERR_MEMORY : flush_array(z, a, err);
    dims[0] = row_items == 0 ? z->count : a->written / a->item_size / row_items;
    if (status == RKS_OK)
        status = rks_npy_header(a->kind, dims, a->row_dim_count + 1, &head, err);
    if (status == RKS_OK)
        status = rks_archive_writer_begin(zip, name, head.size + a->written, err);
    if (status == RKS_OK)
        status = rks_archive_writer_put(zip, head.data, head.size, err);
    for (uint64_t at = 0; status == RKS_OK && at < a->written; at += COPY) {
        size_t size = a->written - at < COPY ? (size_t)(a->written - at) : COPY;
        status = rks_file_read_at(a->fd, z->job->path, at, room, size, err);
        if (status == RKS_OK)
            status = rks_archive_writer_put(zip, room, size, err);
    }
    if (status == RKS_OK)
        status = rks_archive_writer_end(zip, err);
    rks_buffer_free(&head);
    rks_free(name);
    return status;
}

static rks_status npz_finish(void *state, rks_error *err)
{
    npz *z = state;
    rks_archive_writer *zip = NULL;
    uint8_t *room = NULL;
    int fd = open(z->job->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return rks_fail_write(err, errno, z->job->path, 0);
    rks_status status = rks_archive_writer_open(RKS_ARCHIVE_ZIP, fd, z->job->path, &zip, err);
    if (status == RKS_OK && (room = rks_alloc_raw(COPY, 1, err)) == NULL)
        status = RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < z->array_count; i++)
        status = copy_array(z, &z->arrays[i], zip, room, err);
    if (status == RKS_OK)
        status = rks_archive_writer_finish(zip, err);
    if (status == RKS_OK && fsync(fd) != 0)
        status = rks_fail_write(err, errno, z->job->path, 0);
    rks_archive_writer_close(zip);
    rks_free(room);
    close(fd);
    return status;
}

const rks_export_ops rks_export_npz = {npz_open, npz_add, npz_finish, npz_close};
