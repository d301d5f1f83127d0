/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_files.c: writes, lists and removes files of a home that is a directory.
 *
 * A file is written as NAME.PID-N.sending, synced, and then gets its name: by link(2), which fails
 * if the name is there, also on network file systems whose locks are local to a node. A rename has
 * no such condition. So who replaces a file first links a claim (claim.h), unless the caller holds
 * one for the same contents, and removes it after the rename. */
#include "home/directory_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/forbidden_call.h"
#include "base/memory.h"
#include "home/claim.h"

void rks_directory_version(const struct stat *info, char version[RKS_HOME_VERSION])
{
    snprintf(version, RKS_HOME_VERSION, "%" PRIx64 "-%" PRIx64 "-%" PRIx64 ".%08lx",
             (uint64_t)info->st_ino, (uint64_t)info->st_size, (uint64_t)info->st_mtim.tv_sec,
             (unsigned long)info->st_mtim.tv_nsec);
}

rks_status rks_directory_path(const char *directory, const char *name, char **path, rks_error *err)
{
    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, ".") == 0 ||
        strcmp(name, "..") == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: '%s' is not the name of a file there",
                        directory, name);
    *path = rks_format(err, "%s/%s", directory, name);
    return *path == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* ---- a new file ------------------------------------------------------------------------------ */

/* A file that is written under a name of its own. */
typedef struct sending {
    char *path;
    int fd;
    rks_digest digest;
} sending;

static void end_sending(sending *file)
{
    if (file->fd >= 0)
        close(file->fd);
    if (file->path != NULL)
        unlink(file->path);
    rks_free(file->path);
    *file = (sending){.fd = -1};
}

static rks_status begin_sending(const char *directory, const char *name, sending *file,
                                rks_error *err)
{
    static atomic_uint last;
    rks_hold_standard_files();
    for (int tries = 0; tries < 100; tries++) {
        rks_free(file->path);
        file->path = rks_format(err, "%s/%s.%ld-%" PRIx64 "%x.sending", directory, name,
                                (long)getpid(), rks_now_ns(), atomic_fetch_add(&last, 1));
        if (file->path == NULL)
            return RKS_ERR_MEMORY;
        const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
        file->fd = open(file->path, flags, 0644);
        if (file->fd >= 0)
            return RKS_OK;
        int error = errno;
        rks_status status = error == EEXIST ? RKS_OK
                            : error == ENOENT && tries == 0
                                ? rks_directory_make(directory, err)
                                : rks_fail_write(err, error, file->path, 0);
        if (status != RKS_OK) {
            rks_free(file->path);
            file->path = NULL;
            return status;
        }
    }
    return rks_fail(err, RKS_ERR_IO, EEXIST, "%s: no free name to write to", file->path);
}

static rks_status fill_sending(sending *file, const rks_home_bytes *bytes, rks_error *err)
{
    rks_digester *digester = rks_digester_create(err);
    uint8_t *room = digester == NULL ? NULL : rks_alloc_raw(RKS_HOME_PIECE, 1, err);
    rks_status status = room == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint64_t at = 0; status == RKS_OK && at < bytes->size;) {
        size_t size =
            bytes->size - at < RKS_HOME_PIECE ? (size_t)(bytes->size - at) : RKS_HOME_PIECE;
        status = bytes->give(bytes->user, at, room, size, err);
        if (status == RKS_OK)
            status = rks_file_write(file->fd, file->path, room, size, err);
        if (status == RKS_OK)
            rks_digester_update(digester, room, size);
        at += size;
    }
    if (status == RKS_OK && fsync(file->fd) != 0)
        status = rks_fail_write(err, errno, file->path, bytes->size);
    if (status == RKS_OK)
        file->digest = rks_digester_result(digester);
    rks_free(room);
    rks_digester_free(digester);
    return status;
}

/* Gives a written file its name, if there is none of that name: RKS_ERR_STATE with EEXIST. */
static rks_status place_new(const sending *file, const char *path, rks_error *err)
{
    struct stat info;
    if (link(file->path, path) == 0)
        return RKS_OK;
    int error = errno;
    /* an answer of a server was lost, and its client asked again */
    if (error == EEXIST && stat(file->path, &info) == 0 && info.st_nlink == 2)
        return RKS_OK;
    if (rks_call_is_forbidden(error)) {
        if (renameat2(AT_FDCWD, file->path, AT_FDCWD, path, RENAME_NOREPLACE) == 0)
            return RKS_OK;
        error = errno;
        if (error == EINVAL || rks_call_is_forbidden(error))
            return rks_fail(err, RKS_ERR_UNSUPPORTED, error,
                            "%s: this file system has no links (ln), or a container's filter "
                            "forbids link and renameat2, so it cannot be a home",
                            path);
    }
    if (error == EEXIST)
        return rks_fail(err, RKS_ERR_STATE, EEXIST, "%s: is there already", path);
    return rks_fail_errno(err, error, "%s: linking into place", path);
}

/* ---- the claim ------------------------------------------------------------------------------- */

static rks_status give_note(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *err)
{
    (void)err;
    memcpy(to, ((const rks_claim *)user)->text + first, size);
    return RKS_OK;
}

/* Fails if the claim that is there is for other contents. *gone: it is not there. */
static rks_status look_at_claim(const char *directory, const char *name, const char *path,
                                const rks_claim *own, bool *gone, rks_error *err)
{
    char *text = NULL, who[RKS_CLAIM_WHO];
    size_t size = 0;
    rks_status status = rks_file_load(path, RKS_CLAIM_MOST, &text, &size, err);
    *gone = status == RKS_ERR_NOT_FOUND;
    if (status != RKS_OK)
        return *gone ? RKS_OK : status;
    if (!rks_claim_is_same(own, text, size)) {
        rks_claim_look(own, text, size, who);
        status = rks_claim_refuse(directory, name, who, err);
    }
    rks_free(text);
    return status;
}

/* Makes the claim, or finds one for the same contents. *made: it is this call's. */
static rks_status take_claim(const char *directory, const char *name, const char *path,
                             rks_digest contents, bool *made, rks_error *err)
{
    rks_claim own;
    sending file = {.fd = -1};
    rks_claim_write(contents, &own);
    const rks_home_bytes bytes = {.size = own.size, .give = give_note, .user = &own};
    bool gone = true;
    rks_status status = begin_sending(directory, name, &file, err);
    if (status == RKS_OK)
        status = fill_sending(&file, &bytes, err);
    for (int tries = 0; status == RKS_OK && gone && tries < 4; tries++) {
        gone = false;
        status = place_new(&file, path, err);
        *made = status == RKS_OK;
        if (status == RKS_ERR_STATE)
            status = look_at_claim(directory, name, path, &own, &gone, err);
    }
    if (status == RKS_OK && gone)
        status = rks_claim_refuse(directory, name, "", err);
    end_sending(&file);
    return status;
}

/* Keeps other processes of this machine, and those that the file system's locks reach, from
 * looking at a file's version and changing it at the same time. Returns -1 without locks. */
static int lock_changes(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void unlock_changes(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* ---- put ------------------------------------------------------------------------------------- */

static rks_status check_same(const char *path, const char *version, rks_error *err)
{
    struct stat info;
    char now[RKS_HOME_VERSION] = "";
    if (stat(path, &info) == 0)
        rks_directory_version(&info, now);
    else if (errno != ENOENT)
        return rks_fail_errno(err, errno, "%s", path);
    return strcmp(now, version) == 0
               ? RKS_OK
               : rks_fail(err, RKS_ERR_STATE, 0, "%s: another publisher has replaced it meanwhile",
                          path);
}

static rks_status replace(const char *directory, sending *file, const char *path, const char *claim,
                          const char *version, rks_error *err)
{
    char *claimed = NULL;
    bool made = false;
    rks_status status = rks_directory_path(directory, claim, &claimed, err);
    if (status == RKS_OK)
        status = take_claim(directory, claim, claimed, file->digest, &made, err);
    if (status == RKS_OK) {
        int lock = lock_changes(directory);
        status = check_same(path, version, err);
        if (status == RKS_OK && rename(file->path, path) != 0)
            status = rks_fail_errno(err, errno, "%s: renaming into place", path);
        unlock_changes(lock);
        if (status == RKS_OK)
            status = rks_file_sync_directory_of(path, err);
    }
    if (made)
        unlink(claimed);
    rks_free(claimed);
    return status;
}

static rks_status look_before(const char *path, enum rks_put_rule rule, const char *version,
                              rks_error *err)
{
    struct stat info;
    if (rule == RKS_PUT_SAME)
        return check_same(path, version, err);
    if (lstat(path, &info) == 0)
        return rks_fail(err, RKS_ERR_STATE, EEXIST, "%s: is there already", path);
    return RKS_OK;
}

static rks_status put_once(const char *directory, const char *name, const rks_home_bytes *bytes,
                           enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err)
{
    sending file = {.fd = -1};
    struct stat info;
    char *path = NULL;
    rks_status status = rks_directory_path(directory, name, &path, err);
    if (status == RKS_OK)
        status = look_before(path, rule, version, err);
    if (status == RKS_OK)
        status = begin_sending(directory, name, &file, err);
    if (status == RKS_OK)
        status = fill_sending(&file, bytes, err);
    if (status == RKS_OK && fstat(file.fd, &info) != 0)
        status = rks_fail_errno(err, errno, "%s", file.path);
    if (status == RKS_OK && rule == RKS_PUT_SAME)
        status = replace(directory, &file, path, bytes->claim, version, err);
    else if (status == RKS_OK) {
        status = place_new(&file, path, err);
        if (status == RKS_OK)
            status = rks_file_sync_directory_of(path, err);
    }
    if (status == RKS_OK)
        rks_directory_version(&info, version);
    end_sending(&file);
    rks_free(path);
    return status;
}

rks_status rks_directory_put(const char *directory, const char *name, const rks_home_bytes *bytes,
                             enum rks_put_rule rule, char version[RKS_HOME_VERSION], rks_error *err)
{
    enum { TRIES = 16 };
    rks_error why = {0};
    if (rule == RKS_PUT_SAME && bytes->claim == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: a claim is needed to replace it", name);
    rks_status status = put_once(directory, name, bytes, rule, version, &why);
    /* A prune took it for a leftover, which a busy machine and several prunes can do in turn. */
    for (int tries = 1; status == RKS_ERR_IO && why.cause == ENOENT && tries < TRIES; tries++)
        status = put_once(directory, name, bytes, rule, version, &why);
    if (status != RKS_OK && err != NULL)
        *err = why;
    return status;
}

/* ---- list, remove ---------------------------------------------------------------------------- */

uint64_t rks_directory_now(const char *directory)
{
    sending file = {.fd = -1};
    struct stat info;
    rks_error ignored;
    uint64_t now = (uint64_t)time(NULL);
    if (access(directory, W_OK) == 0 &&
        begin_sending(directory, "clock", &file, &ignored) == RKS_OK && fstat(file.fd, &info) == 0)
        now = (uint64_t)info.st_mtim.tv_sec;
    end_sending(&file);
    return now;
}

rks_status rks_directory_list(const char *directory, const char *prefix, rks_home_listed_fn each,
                              void *user, rks_error *err)
{
    uint64_t now = rks_directory_now(directory);
    DIR *stream = opendir(directory);
    if (stream == NULL)
        return errno == ENOENT ? RKS_OK
                               : rks_fail_errno(err, errno, "%s: reading the directory", directory);
    rks_status status = RKS_OK;
    for (struct dirent *entry; status == RKS_OK && (entry = readdir(stream)) != NULL;) {
        struct stat info;
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
            fstatat(dirfd(stream), entry->d_name, &info, 0) != 0 || !S_ISREG(info.st_mode))
            continue;
        uint64_t written = (uint64_t)info.st_mtim.tv_sec;
        rks_home_listed file = {.name = entry->d_name,
                                .size = (uint64_t)info.st_size,
                                .age_s = written < now ? now - written : 0};
        rks_directory_version(&info, file.version);
        status = each(user, &file, err);
    }
    closedir(stream);
    return status;
}

rks_status rks_directory_drop(const char *directory, const char *name, const char *version,
                              rks_error *err)
{
    struct stat info;
    char now[RKS_HOME_VERSION], *path = NULL;
    rks_status status = rks_directory_path(directory, name, &path, err);
    int lock = status == RKS_OK ? lock_changes(directory) : -1;
    if (status == RKS_OK && stat(path, &info) == 0) {
        rks_directory_version(&info, now);
        if (version[0] != '\0' && strcmp(now, version) != 0)
            status = rks_fail(err, RKS_ERR_STATE, 0, "%s: was replaced meanwhile", path);
        else if (unlink(path) != 0 && errno != ENOENT)
            status = rks_fail_errno(err, errno, "%s: removing it", path);
    } else if (status == RKS_OK && errno != ENOENT) {
        status = rks_fail_errno(err, errno, "%s", path);
    }
    unlock_changes(lock);
    rks_free(path);
    return status;
}
