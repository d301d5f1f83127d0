/* SPDX-License-Identifier: Apache-2.0
 *
 * members.c: a sample as small files, in a tar or in a directory. Their names are NAME.ENDING: NAME
 * from the key (names.c), ENDING from the column. It says how to read the file, as WebDataset does:
 *
 *   str   .txt     json  .json     an integer  .cls, decimal     bytes  the column's name
 *   other numbers and arrays  .npy
 *
 * A column whose name ends so keeps it as its ending ("wav", "json", "seg.png"); else the ending
 * comes behind it ("text.txt"). A value that is missing has no file.
 *
 * A directory of samples {path, data} or {path, text} is a folder of files again. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "export/export.h"
#include "ingest/archive_writer.h"
#include "ingest/number.h"

typedef struct members {
    const rks_export_job *job;
    int fd;                      /* of the tar, or of the directory */
    rks_archive_writer *archive; /* NULL: a directory */
    char **endings;              /* by place in job->columns */
    bool is_folder;              /* of {path, data} */
    rks_buffer name, head;
} members;

/* ---- endings ------------------------------------------------------------------------------ */

static const char *ending_of(const rks_column *column)
{
    if (column->kind == RKS_KIND_STR)
        return "txt";
    if (column->kind == RKS_KIND_JSON)
        return "json";
    if (column->kind == RKS_KIND_BYTES)
        return "bin";
    return column->dim_count == 0 && rks_kind_is_integer(column->kind) ? "cls" : "npy";
}

static bool says(const char *name, const char *ending)
{
    const char *dot = strrchr(name, '.');
    return strcmp(dot == NULL ? name : dot + 1, ending) == 0;
}

/* As it stands, or with the ending of its type behind it. */
static bool keeps_name(const rks_column *column)
{
    if (column->kind != RKS_KIND_BYTES)
        return says(column->name, ending_of(column));
    return !says(column->name, "txt") && !says(column->name, "json") &&
           !says(column->name, "cls") && !says(column->name, "npy");
}

static rks_status name_endings(members *m, rks_error *err)
{
    m->endings = rks_alloc(m->job->column_count, sizeof(char *), err);
    rks_status status = m->endings == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < m->job->column_count; i++) {
        const rks_column *column = rks_schema_column(m->job->schema, m->job->columns[i]);
        m->name.size = 0;
        status = rks_export_name(column->name, strlen(column->name), true, false, &m->name, err);
        for (size_t k = 0; k < m->name.size; k++)
            if (m->name.data[k] == '/') /* a column is no folder */
                m->name.data[k] = '_';
        if (status != RKS_OK)
            break;
        m->endings[i] = keeps_name(column) ? rks_strdup((const char *)m->name.data, err)
                                           : rks_format(err, "%s.%s", (const char *)m->name.data,
                                                        ending_of(column));
        status = m->endings[i] == NULL ? RKS_ERR_MEMORY : RKS_OK;
        for (uint32_t k = 0; status == RKS_OK && k < i; k++)
            if (strcmp(m->endings[k], m->endings[i]) == 0)
                status = rks_fail(err, RKS_ERR_DATA, 0,
                                  "two columns would be files named .%s; choose one by its name",
                                  m->endings[i]);
    }
    return status;
}

/* {path, data} or {path, text}, all of it. */
static bool is_folder(const rks_export_job *job)
{
    int path = rks_schema_find(job->schema, "path");
    if (job->format != RKS_EXPORT_DIR || job->column_count != 2 ||
        rks_schema_columns(job->schema) != 2 || path < 0)
        return false;
    const rks_column *named = rks_schema_column(job->schema, (uint32_t)path);
    const rks_column *other = rks_schema_column(job->schema, 1 - (uint32_t)path);
    return named->kind == RKS_KIND_STR && !named->nullable && !other->nullable &&
           ((other->kind == RKS_KIND_BYTES && strcmp(other->name, "data") == 0) ||
            (other->kind == RKS_KIND_STR && strcmp(other->name, "text") == 0));
}

/* ---- writing -------------------------------------------------------------------------------- */

static rks_status fail_at(const members *m, const char *name, rks_error *err)
{
    if (errno == EEXIST || errno == ENOTDIR || errno == EISDIR)
        return rks_fail(err, RKS_ERR_DATA, errno,
                        "%.100s: two samples would be this file; export --to jsonl or tar", name);
    return rks_fail_write(err, errno, m->job->path, 0);
}

/* The folders on the way to `name`, which is ours to change for a moment. */
static rks_status make_folders(const members *m, char *name, rks_error *err)
{
    for (char *at = strchr(name, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        int failed = mkdirat(m->fd, name, 0777);
        struct stat info;
        if (failed != 0 && errno == EEXIST)
            failed = fstatat(m->fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(info.st_mode)
                         ? (errno = EEXIST, -1)
                         : 0;
        if (failed != 0)
            return fail_at(m, name, err);
        *at = '/';
    }
    return RKS_OK;
}

static rks_status put_file(members *m, char *name, const void *head, size_t head_size,
                           const void *bytes, size_t size, rks_error *err)
{
    int fd = openat(m->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0 && errno == ENOENT) {
        rks_status status = make_folders(m, name, err);
        if (status != RKS_OK)
            return status;
        fd = openat(m->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    }
    if (fd < 0)
        return fail_at(m, name, err);
    rks_status status = rks_file_write(fd, m->job->path, head, head_size, err);
    if (status == RKS_OK)
        status = rks_file_write(fd, m->job->path, bytes, size, err);
    close(fd);
    return status;
}

static rks_status put_member(members *m, const void *head, size_t head_size, const void *bytes,
                             size_t size, rks_error *err)
{
    char *name = (char *)m->name.data;
    if (m->archive == NULL)
        return put_file(m, name, head, head_size, bytes, size, err);
    rks_status status = rks_archive_writer_begin(m->archive, name, head_size + size, err);
    if (status == RKS_OK)
        status = rks_archive_writer_put(m->archive, head, head_size, err);
    if (status == RKS_OK)
        status = rks_archive_writer_put(m->archive, bytes, size, err);
    return status == RKS_OK ? rks_archive_writer_end(m->archive, err) : status;
}

static rks_status put_value(members *m, const rks_column *column, const rks_value *value,
                            rks_error *err)
{
    m->head.size = 0;
    const char *ending = ending_of(column);
    rks_status status = RKS_OK;
    if (strcmp(ending, "cls") == 0) {
        rks_number number = rks_number_load(column->kind, value->data);
        status = number.kind == RKS_NUMBER_UINT
                     ? rks_buffer_print(&m->head, err, "%" PRIu64, number.as.u)
                     : rks_buffer_print(&m->head, err, "%" PRId64, number.as.i);
        return status == RKS_OK ? put_member(m, m->head.data, m->head.size, NULL, 0, err) : status;
    }
    if (strcmp(ending, "npy") == 0) {
        uint64_t dims[RKS_DIMS_MAX];
        for (uint32_t i = 0; i < column->dim_count; i++)
            dims[i] = value->dims[i];
        status = rks_npy_header(column->kind, dims, column->dim_count, &m->head, err);
    }
    return status == RKS_OK
               ? put_member(m, m->head.data, m->head.size, value->data, (size_t)value->size, err)
               : status;
}

static rks_status put_as_folder(members *m, const rks_sample *sample, rks_error *err)
{
    uint32_t path = (uint32_t)rks_schema_find(m->job->schema, "path");
    const rks_value *named = &sample->values[path], *value = &sample->values[1 - path];
    rks_status status =
        rks_export_name(named->data, (size_t)named->size, true, true, &m->name, err);
    return status == RKS_OK ? put_member(m, NULL, 0, value->data, (size_t)value->size, err)
                            : status;
}

static rks_status members_add(void *state, const rks_sample *sample, rks_error *err)
{
    members *m = state;
    m->name.size = 0;
    if (m->is_folder)
        return put_as_folder(m, sample, err);
    rks_status status =
        rks_export_name(sample->key, sample->key_size, false, m->archive == NULL, &m->name, err);
    size_t size = m->name.size;
    for (uint32_t i = 0; status == RKS_OK && i < m->job->column_count; i++) {
        const rks_value *value = &sample->values[m->job->columns[i]];
        if (value->data == NULL)
            continue;
        m->name.size = size;
        status = rks_buffer_print(&m->name, err, ".%s", m->endings[i]);
        if (status == RKS_OK)
            status = rks_buffer_add(&m->name, "", 1, err);
        if (status == RKS_OK)
            status =
                put_value(m, rks_schema_column(m->job->schema, m->job->columns[i]), value, err);
    }
    return status;
}

/* ---- open and close ------------------------------------------------------------------------ */

static void members_close(void *state)
{
    members *m = state;
    if (m == NULL)
        return;
    rks_archive_writer_close(m->archive);
    if (m->fd >= 0)
        close(m->fd);
    for (uint32_t i = 0; m->endings != NULL && i < m->job->column_count; i++)
        rks_free(m->endings[i]);
    rks_free(m->endings);
    rks_buffer_free(&m->name);
    rks_buffer_free(&m->head);
    rks_free(m);
}

static rks_status members_open(const rks_export_job *job, void **state, rks_error *err)
{
    members *m = rks_alloc(1, sizeof(*m), err);
    if (m == NULL)
        return RKS_ERR_MEMORY;
    m->job = job;
    m->fd = -1;
    m->is_folder = is_folder(job);
    rks_status status = name_endings(m, err);
    if (status == RKS_OK && job->format == RKS_EXPORT_TAR) {
        m->fd = open(job->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
        status = m->fd < 0
                     ? rks_fail_write(err, errno, job->path, 0)
                     : rks_archive_writer_open(RKS_ARCHIVE_TAR, m->fd, job->path, &m->archive, err);
    } else if (status == RKS_OK) {
        m->fd = mkdir(job->path, 0777) != 0
                    ? -1
                    : open(job->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        status = m->fd < 0 ? rks_fail_write(err, errno, job->path, 0) : RKS_OK;
    }
    if (status != RKS_OK) {
        members_close(m);
        return status;
    }
    *state = m;
    return RKS_OK;
}

static rks_status members_finish(void *state, rks_error *err)
{
    members *m = state;
    rks_status status = m->archive == NULL ? RKS_OK : rks_archive_writer_finish(m->archive, err);
    /* Of thousands of small files one by one would take minutes. */
    if (status == RKS_OK && (m->archive == NULL ? syncfs(m->fd) : fsync(m->fd)) != 0)
        status = rks_fail_write(err, errno, m->job->path, 0);
    return status;
}

const rks_export_ops rks_export_members = {members_open, members_add, members_finish,
                                           members_close};
