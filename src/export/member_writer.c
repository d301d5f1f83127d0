/* SPDX-License-Identifier: Apache-2.0
 *
 * member_writer.c: writes a sample as small files, into a tar or a directory. Their names are
 * NAME.ENDING: NAME comes from the key (member_names.c), ENDING from the column
 * (codec/member_suffix.h). A missing value has no file. If NAME is not the key itself and no column
 * holds the key, or if the sample has no value, the first member is NAME.__key__.txt with the key
 * (NAME.__key__.bin if it is not UTF-8). A directory, which is not read back, has this member only
 * if the key cannot be derived from NAME.
 *
 * A directory of samples {path, data} or {path, text} becomes a folder of files again. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "codec/archive_writer.h"
#include "codec/input_file.h"
#include "codec/member_suffix.h"
#include "codec/npy.h"
#include "codec/number.h"
#include "export/export.h"

typedef struct members {
    const rks_export_job *job;
    int fd;                      /* of the tar, or of the directory */
    rks_archive_writer *archive; /* NULL for a directory */
    char **endings;              /* by place in job->columns; NULL: the key, which names hold */
    bool is_folder;              /* the samples are {path, data} */
    bool names_hold_keys;        /* no column holds the keys */
    int key_column;              /* "__key__", whose values are the keys; -1: the samples' own */
    rks_buffer name, head;
    rks_buffer last; /* NAME of the sample before, in a tar: two of one name would be one */
} members;

/* ---- endings ------------------------------------------------------------------------------ */

static rks_status check_ending(const members *m, uint32_t at, rks_error *err)
{
    const char *ending = m->endings[at];
    for (uint32_t i = 0; i < at; i++)
        if (m->endings[i] != NULL && strcmp(m->endings[i], ending) == 0)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "two columns would be files named .%s; choose one by its name", ending);
    if (rks_member_holds_key(ending))
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"%s\" would be files that hold keys; choose others by name",
                        rks_schema_name(m->job->schema, m->job->columns[at]));
    if (strlen(ending) > RKS_MEMBER_ENDING_MAX)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"%.60s...\" makes a name of %zu bytes, at most %d are possible; "
                        "choose others by name",
                        rks_schema_name(m->job->schema, m->job->columns[at]), strlen(ending),
                        RKS_MEMBER_ENDING_MAX);
    return RKS_OK;
}

static rks_status name_endings(members *m, rks_error *err)
{
    m->endings = rks_alloc(m->job->column_count, sizeof(char *), err);
    rks_status status = m->endings == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < m->job->column_count; i++) {
        const rks_column *column = rks_schema_column(m->job->schema, m->job->columns[i]);
        rks_buffer ending = {0};
        bool key = (int)m->job->columns[i] == m->job->key_column &&
                   strcmp(column->name, RKS_EXPORT_KEY) == 0;
        if (key) {
            m->key_column = m->job->key_column;
            continue;
        }
        status = rks_member_ending_of(column, &ending, err);
        m->endings[i] = (char *)ending.data;
        if (status == RKS_OK)
            status = check_ending(m, i, err);
    }
    m->names_hold_keys = m->job->key_column < 0 || m->key_column >= 0;
    return status;
}

/* Returns true for a job of exactly {path, data} or {path, text}. */
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
                        "%.100s: two samples would be this file; export to jsonl or tar", name);
    return rks_fail_write(err, errno, m->job->path, 0);
}

/* Makes the folders above `name`, which it changes temporarily. */
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

static rks_status put_member_value(members *m, const rks_column *column, const rks_value *value,
                                   rks_error *err)
{
    m->head.size = 0;
    const char *type = rks_member_type_of(column);
    rks_status status = RKS_OK;
    if (strcmp(type, "cls") == 0) {
        rks_number number = rks_number_load(column->kind, value->data);
        status = number.kind == RKS_NUMBER_UINT
                     ? rks_buffer_print(&m->head, err, "%" PRIu64, number.as.u)
                     : rks_buffer_print(&m->head, err, "%" PRId64, number.as.i);
        return status == RKS_OK ? put_member(m, m->head.data, m->head.size, NULL, 0, err) : status;
    }
    if (strcmp(type, "npy") == 0) {
        uint64_t dims[RKS_DIMS_MAX];
        for (uint32_t i = 0; i < column->dim_count; i++)
            dims[i] = value->dims[i];
        status = rks_npy_header(column->kind, dims, column->dim_count, &m->head, err);
    }
    if (strcmp(type, "json") == 0)
        status = rks_export_json(m->job, column, value, NULL, err);
    return status == RKS_OK
               ? put_member(m, m->head.data, m->head.size, value->data, (size_t)value->size, err)
               : status;
}

/* Returns true for a path that reading a folder finds again: relative, nothing hidden. */
static bool is_path(const uint8_t *path, size_t size)
{
    if (size == 0 || size > RKS_INPUT_NAME_MAX || memchr(path, 0, size) != NULL)
        return false;
    for (size_t at = 0; at <= size;) {
        const uint8_t *slash = at < size ? memchr(path + at, '/', size - at) : NULL;
        size_t end = slash == NULL ? size : (size_t)(slash - path);
        if (end == at || end - at > NAME_MAX || path[at] == '.')
            return false;
        at = end + 1;
    }
    return true;
}

static rks_status put_as_folder(members *m, const rks_sample *sample, rks_error *err)
{
    uint32_t path = (uint32_t)rks_schema_find(m->job->schema, "path");
    const rks_value *named = &sample->values[path], *value = &sample->values[1 - path];
    if (!is_path(named->data, (size_t)named->size))
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "its path, \"%.*s\", is none that a folder is read with; export to tar, or "
                        "column %s alone for files named by escaped keys",
                        (int)(named->size < 60 ? named->size : 60), (const char *)named->data,
                        rks_schema_name(m->job->schema, 1 - path));
    rks_status status = rks_buffer_add(&m->name, named->data, (size_t)named->size, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&m->name, "", 1, err);
    return status == RKS_OK ? put_member(m, NULL, 0, value->data, (size_t)value->size, err)
                            : status;
}

/* Sets the name to NAME.ENDING; NAME is the first `size` bytes of the old name. */
static rks_status set_ending(members *m, size_t size, const char *ending, rks_error *err)
{
    m->name.size = size;
    rks_status status = rks_buffer_print(&m->name, err, ".%s", ending);
    return status == RKS_OK ? rks_buffer_add(&m->name, "", 1, err) : status;
}

/* Returns true if the name gives the key back when each %XX is replaced by its byte. */
static bool tells_key(const rks_buffer *name, size_t size, const rks_value *key)
{
    const uint8_t *bytes = key->data;
    size_t at = 0, place = 0;
    for (; at < size && place < key->size; place++) {
        char digits[3];
        bool escaped = name->data[at] == '%';
        snprintf(digits, sizeof(digits), "%02X", bytes[place]);
        if (escaped ? memcmp(name->data + at + 1, digits, 2) != 0 : name->data[at] != bytes[place])
            return false;
        at += escaped ? 3 : 1;
    }
    return at == size && place == key->size;
}

static rks_status put_key(members *m, size_t size, const rks_value *key, const rks_sample *sample,
                          rks_error *err)
{
    bool same = size == key->size && memcmp(m->name.data, key->data, size) == 0;
    bool told =
        m->names_hold_keys && !same && (m->archive != NULL || !tells_key(&m->name, size, key));
    bool empty = true;
    for (uint32_t i = 0; i < m->job->column_count; i++)
        empty &= m->endings[i] == NULL || sample->values[m->job->columns[i]].data == NULL;
    if (!told && !empty)
        return RKS_OK;
    rks_status status =
        set_ending(m, size,
                   rks_utf8_valid(key->data, (size_t)key->size, NULL) ? RKS_MEMBER_KEY_TEXT
                                                                      : RKS_MEMBER_KEY_BYTES,
                   err);
    return status == RKS_OK ? put_member(m, NULL, 0, key->data, (size_t)key->size, err) : status;
}

/* Makes NAME, which must differ from that of the sample before. */
static rks_status name_sample(members *m, const rks_value *key, rks_error *err)
{
    if (key->size == 0) /* also if it is missing */
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "column \"" RKS_EXPORT_KEY "\", which names the files, is empty");
    rks_status status =
        rks_export_name(key->data, (size_t)key->size, false, m->archive == NULL, &m->name, err);
    if (status != RKS_OK || m->archive == NULL)
        return status;
    if (m->last.size == m->name.size && memcmp(m->last.data, m->name.data, m->name.size) == 0)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%.100s: two samples would be these members; export to jsonl",
                        (const char *)m->name.data);
    m->last.size = 0;
    return rks_buffer_add(&m->last, m->name.data, m->name.size, err);
}

static rks_status members_add(void *state, const rks_sample *sample, rks_error *err)
{
    members *m = state;
    m->name.size = 0;
    if (m->is_folder)
        return put_as_folder(m, sample, err);
    const rks_value key = m->key_column >= 0 ? sample->values[m->key_column]
                                             : rks_blob_value(sample->key, sample->key_size);
    rks_status status = name_sample(m, &key, err);
    size_t size = m->name.size;
    if (status == RKS_OK)
        status = put_key(m, size, &key, sample, err);
    for (uint32_t i = 0; status == RKS_OK && i < m->job->column_count; i++) {
        const rks_value *value = &sample->values[m->job->columns[i]];
        if (value->data == NULL || m->endings[i] == NULL)
            continue;
        status = set_ending(m, size, m->endings[i], err);
        if (status == RKS_OK)
            status = put_member_value(m, rks_schema_column(m->job->schema, m->job->columns[i]),
                                      value, err);
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
    rks_buffer_free(&m->last);
    rks_free(m);
}

static rks_status members_open(const rks_export_job *job, void **state, rks_error *err)
{
    members *m = rks_alloc(1, sizeof(*m), err);
    if (m == NULL)
        return RKS_ERR_MEMORY;
    m->job = job;
    m->fd = m->key_column = -1;
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
    /* Syncing thousands of small files one by one would take minutes. */
    if (status == RKS_OK && (m->archive == NULL ? syncfs(m->fd) : fsync(m->fd)) != 0)
        status = rks_fail_write(err, errno, m->job->path, 0);
    return status;
}

const rks_export_ops rks_export_members = {members_open, members_add, members_finish,
                                           members_close};
