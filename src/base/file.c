/* SPDX-License-Identifier: Apache-2.0
 *
 * file.c: system calls on files, with errors that name the file. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

void rks_hold_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        int held = open("/dev/null", O_RDONLY);
        if (held > STDERR_FILENO) /* another thread has just taken that number */
            close(held);
    }
}

enum { READ = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

static rks_status fail_link(const char *path, int cause, const char *why, rks_error *err)
{
    return rks_fail(err, RKS_ERR_CORRUPT, cause, "%s: a symbolic link %s", path, why);
}

/* Opens a file on a descriptor above 2, also if one of 0 to 2 is closed. */
static int open_above_standard(const char *path, int flags)
{
    int opened = open(path, flags);
    if (opened < 0 || opened > STDERR_FILENO)
        return opened;
    close(opened);
    rks_hold_standard_files();
    return open(path, flags);
}

/* Opens what a link leads to. Looks first: opening a device may have effects. */
static rks_status open_link(const char *path, int *fd, rks_error *err)
{
    struct stat link, file, opened;
    if (lstat(path, &link) != 0)
        return rks_fail_errno(err, errno, "%s", path);
    if (stat(path, &file) != 0)
        return errno == ENOENT || errno == ELOOP ? fail_link(path, errno, "that leads nowhere", err)
                                                 : rks_fail_errno(err, errno, "%s", path);
    if (!S_ISREG(file.st_mode))
        return fail_link(path, 0, "to something that is not a regular file", err);
    if (link.st_uid != geteuid() && link.st_uid != 0 && link.st_uid != file.st_uid)
        return fail_link(path, EPERM, "of another user, to a file that is not theirs", err);
    *fd = open_above_standard(path, READ);
    if (*fd < 0)
        return rks_fail_errno(err, errno, "%s", path);
    if (fstat(*fd, &opened) == 0 && opened.st_dev == file.st_dev && opened.st_ino == file.st_ino)
        return RKS_OK;
    close(*fd);
    return fail_link(path, 0, "that changed while it was opened", err);
}

rks_status rks_file_open(const char *path, int *fd, uint64_t *size, rks_error *err)
{
    int opened = open_above_standard(path, READ | O_NOFOLLOW);
    rks_status status = RKS_OK;
    if (opened < 0 && errno == ELOOP)
        status = open_link(path, &opened, err);
    else if (opened < 0)
        status = errno == ENOENT ? rks_fail(err, RKS_ERR_NOT_FOUND, errno, "%s: no such file", path)
                                 : rks_fail_errno(err, errno, "%s", path);
    if (status != RKS_OK)
        return status;
    struct stat info;
    if (fstat(opened, &info) != 0)
        status = rks_fail_errno(err, errno, "%s", path);
    else if (!S_ISREG(info.st_mode))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: not a regular file", path);
    if (status != RKS_OK) {
        close(opened);
        return status;
    }
    *fd = opened;
    if (size != NULL)
        *size = (uint64_t)info.st_size;
    return RKS_OK;
}

rks_status rks_file_read_at(int fd, const char *path, uint64_t offset, void *bytes, size_t size,
                            rks_error *err)
{
    uint8_t *at = bytes;
    while (size > 0) {
        ssize_t got = pread(fd, at, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return rks_fail_errno(err, errno, "%s: reading at %" PRIu64, path, offset);
        if (got == 0)
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: ends at %" PRIu64 ", %zu bytes early",
                            path, offset, size);
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return RKS_OK;
}

/* Returns the limit on a file's size if `needed` more bytes would pass it; else RLIM_INFINITY. */
static rlim_t passed_limit(int error, const char *path, uint64_t needed)
{
    struct rlimit limit;
    struct stat info;
    if ((error != EFBIG && error != EIO) || getrlimit(RLIMIT_FSIZE, &limit) != 0)
        return RLIM_INFINITY;
    uint64_t size = stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    bool passes = needed > limit.rlim_cur || size > limit.rlim_cur - needed;
    return error == EFBIG || passes ? limit.rlim_cur : RLIM_INFINITY;
}

rks_status rks_fail_write(rks_error *err, int error, const char *path, uint64_t needed)
{
    struct statvfs room;
    rlim_t limit = passed_limit(error, path, needed);
    if (error == ENOSPC || error == EDQUOT ||
        (error == EIO && statvfs(path, &room) == 0 &&
         (uint64_t)room.f_bavail * room.f_frsize < needed))
        return rks_fail(err, RKS_ERR_IO, error,
                        "%s: disk full, %" PRIu64
                        " bytes were to be written; make room and run again",
                        path, needed);
    if (limit != RLIM_INFINITY)
        return rks_fail(err, RKS_ERR_IO, EFBIG,
                        "%s: larger than the limit on a file's size (ulimit -f), %" PRIu64 " bytes",
                        path, (uint64_t)limit);
    return rks_fail_errno(err, error, "%s: writing", path);
}

rks_status rks_file_write(int fd, const char *path, const void *bytes, size_t size, rks_error *err)
{
    const uint8_t *at = bytes;
    while (size > 0) {
        ssize_t put = write(fd, at, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return rks_fail_write(err, put < 0 ? errno : ENOSPC, path, size);
        at += put;
        size -= (size_t)put;
    }
    return RKS_OK;
}

rks_status rks_file_load(const char *path, size_t limit, char **bytes, size_t *size, rks_error *err)
{
    int fd = -1;
    uint64_t file_size = 0;
    rks_status status = rks_file_open(path, &fd, &file_size, err);
    if (status != RKS_OK)
        return status;
    char *loaded = NULL;
    if (file_size > limit) {
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %" PRIu64 " bytes, at most %zu expected",
                          path, file_size, limit);
        goto out;
    }
    loaded = rks_alloc_raw((size_t)file_size + 1, 1, err);
    status = loaded == NULL ? RKS_ERR_MEMORY
                            : rks_file_read_at(fd, path, 0, loaded, (size_t)file_size, err);
    if (status != RKS_OK)
        goto out;
    loaded[file_size] = '\0';
    *bytes = loaded;
    loaded = NULL;
    *size = (size_t)file_size;
out:
    rks_free(loaded);
    close(fd);
    return status;
}

rks_status rks_file_sync_directory_of(const char *path, rks_error *err)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL   ? rks_strdup(".", err)
                      : slash == path ? rks_strdup("/", err)
                                      : rks_format(err, "%.*s", (int)(slash - path), path);
    if (directory == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    int fd = open(directory, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (fd < 0 || fsync(fd) != 0)
        status = rks_fail_errno(err, errno, "%s: syncing the directory", directory);
    if (fd >= 0)
        close(fd);
    rks_free(directory);
    return status;
}

/* Syncs the directory after `path` was renamed into place. */
static rks_status sync_place(const char *path, rks_error *err)
{
    rks_error why;
    rks_status status = rks_file_sync_directory_of(path, &why);
    if (status != RKS_OK)
        rks_fail(err, status, why.cause,
                 "%s: in place, but not durable: a power cut may lose it; run again (%s)", path,
                 why.text);
    return status;
}

rks_status rks_file_make_durable(const char *path, rks_error *err)
{
    int fd = -1;
    rks_status status = rks_file_open(path, &fd, NULL, err);
    if (status != RKS_OK)
        return status;
    if (fsync(fd) != 0 && errno != EROFS)
        status = rks_fail_errno(err, errno, "%s: not durable: syncing", path);
    close(fd);
    return status == RKS_OK ? sync_place(path, err) : status;
}

rks_status rks_file_replace_by(const char *path, uint64_t size, rks_file_fill fill, void *user,
                               rks_error *err)
{
    int fd = -1;
    char *temporary = rks_format(err, "%s.%ld.tmp", path, (long)getpid());
    if (temporary == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    rks_hold_standard_files();
    unlink(temporary);
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        status = rks_fail_write(err, errno, temporary, size);
        goto out;
    }
    status = fill(user, fd, temporary, err);
    if (status == RKS_OK && fsync(fd) != 0)
        status = rks_fail_write(err, errno, temporary, size);
    if (status == RKS_OK && rename(temporary, path) != 0)
        status = rks_fail_errno(err, errno, "%s: renaming into place", path);
    if (status == RKS_OK)
        status = sync_place(path, err);
    else
        unlink(temporary);
out:
    if (fd >= 0)
        close(fd);
    rks_free(temporary);
    return status;
}

typedef struct one_text {
    const void *bytes;
    size_t size;
} one_text;

static rks_status fill_with_text(void *user, int fd, const char *path, rks_error *err)
{
    const one_text *text = user;
    return rks_file_write(fd, path, text->bytes, text->size, err);
}

rks_status rks_file_replace(const char *path, const void *bytes, size_t size, rks_error *err)
{
    one_text text = {bytes, size};
    return rks_file_replace_by(path, size, fill_with_text, &text, err);
}

rks_status rks_directory_make(const char *path, rks_error *err)
{
    char *copy = rks_strdup(path, err);
    if (copy == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (char *at = copy + 1; status == RKS_OK; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char end = *at;
        *at = '\0';
        struct stat info;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = rks_fail_errno(err, errno, "%s: making the directory", copy);
        else if (stat(copy, &info) != 0)
            status = rks_fail_errno(err, errno, "%s", copy);
        else if (!S_ISDIR(info.st_mode))
            status = rks_fail(err, RKS_ERR_IO, ENOTDIR, "%s: not a directory", copy);
        *at = end;
        if (end == '\0')
            break;
    }
    rks_free(copy);
    return status;
}

static rks_status copy_bytes(int from, int to, const char *path, rks_error *err)
{
    enum { PIECE = 1 << 20 };
    rks_status status = RKS_OK;
    ssize_t got = 1;
    uint8_t *bytes = rks_alloc_raw(PIECE, 1, err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    while (status == RKS_OK && got > 0) {
        got = read(from, bytes, PIECE);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            status = rks_fail_errno(err, errno, "%s: reading", path);
        else if (got > 0)
            status = rks_file_write(to, path, bytes, (size_t)got, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
    }
    rks_free(bytes);
    if (status == RKS_OK && fsync(to) != 0)
        status = rks_fail_write(err, errno, path, 0);
    return status;
}

rks_status rks_file_renew(const char *path, rks_error *err)
{
    int from = -1, to = -1;
    char *copy = rks_format(err, "%s.copy", path);
    rks_status status = copy == NULL ? RKS_ERR_MEMORY : rks_file_open(path, &from, NULL, err);
    if (status == RKS_OK) {
        to = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
        status = to < 0 ? rks_fail_write(err, errno, copy, 0) : copy_bytes(from, to, copy, err);
    }
    if (status == RKS_OK && rename(copy, path) != 0)
        status = rks_fail_errno(err, errno, "%s: renaming", copy);
    if (to >= 0 && status != RKS_OK)
        unlink(copy);
    if (to >= 0)
        close(to);
    if (from >= 0)
        close(from);
    rks_free(copy);
    return status;
}
