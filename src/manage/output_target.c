/* SPDX-License-Identifier: Apache-2.0
 *
 * output_target.c: renameat2 puts a part where nothing is, or exchanges it with what is there, in
 * one step. The lock is a file of its own, since a part may be a directory, and goes with it. */
#include "manage/output_target.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/forbidden_call.h"
#include "base/lock_file.h"
#include "base/memory.h"
#include "dataset/build_directory.h"

#define MARK ".rankstore-export"

struct rks_target {
    char *path; /* without slashes at the end */
    char *part;
    rks_lock_file *lock; /* NULL: not locked */
    bool force;
};

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Removes a file, or a directory with everything in it. Removes links without following them. */
static void remove_all(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Checks that it may be replaced; a directory only if nothing of the user's is lost. */
static rks_status check_place(const char *path, bool force, rks_error *err)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? RKS_OK : rks_fail_errno(err, errno, "%s", path);
    if (!force)
        return rks_fail(err, RKS_ERR_ARGUMENT, EEXIST,
                        "%s: is there already; use force to replace it", path);
    if (S_ISREG(info.st_mode))
        return RKS_OK;
    char *mark = rks_format(err, "%s/" MARK, path);
    if (mark == NULL)
        return RKS_ERR_MEMORY;
    bool ours = S_ISDIR(info.st_mode) && access(mark, F_OK) == 0;
    rks_free(mark);
    if (ours || (S_ISDIR(info.st_mode) && rks_directory_is_empty(path)))
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, EEXIST,
                    "%s: was not made by an export; remove it yourself", path);
}

/* Only one rank writes a target, so a file system without locks is enough. */
static rks_status lock(const char *path, rks_target *target, rks_error *err)
{
    const rks_lock_wish wish = {.path = path,
                                .name = target->path, /* the error about a held lock names the
                                                       * target */
                                .held = "another process writes this",
                                .optional = true};
    return rks_lock_file_take(&wish, &target->lock, err);
}

rks_status rks_target_open(const char *path, bool force, rks_target **target, rks_error *err)
{
    size_t size = path == NULL ? 0 : strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    if (size == 0 || (size == 1 && path[0] == '/'))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no target is given, or the root directory");
    rks_target *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->force = force;
    opened->path = rks_format(err, "%.*s", (int)size, path);
    opened->part = rks_format(err, "%.*s.rks-part", (int)size, path);
    char *lock_path = rks_format(err, "%.*s.rks-lock", (int)size, path);
    rks_status status = opened->path == NULL || opened->part == NULL || lock_path == NULL
                            ? RKS_ERR_MEMORY
                            : check_place(opened->path, force, err);
    if (status == RKS_OK)
        status = lock(lock_path, opened, err);
    rks_free(lock_path);
    if (status != RKS_OK) {
        rks_target_close(opened);
        return status;
    }
    remove_all(opened->part);
    *target = opened;
    return RKS_OK;
}

const char *rks_target_part(const rks_target *target)
{
    return target->part;
}

rks_status rks_target_mark(const rks_target *target, rks_error *err)
{
    char *mark = rks_format(err, "%s/" MARK, target->part);
    if (mark == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_replace(mark, "", 0, err);
    rks_free(mark);
    return status;
}

typedef enum placed { PLACED_NEW, PLACED_EXCHANGED, PLACED_OVER } placed;

/* Renames without renameat2's flags, which some file systems lack and some containers forbid. Our
 * lock keeps other exports away. */
static rks_status place_plainly(const rks_target *target, int error, placed *how, rks_error *err)
{
    bool there = access(target->path, F_OK) == 0;
    if (there && !target->force)
        return rks_fail_errno(err, EEXIST, "%s: renaming into place", target->path);
    *how = there ? PLACED_OVER : PLACED_NEW;
    if (rename(target->part, target->path) == 0)
        return RKS_OK;
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR || errno == EISDIR)
        return rks_fail_errno(err, error,
                              "%s: remove it, and run again: to replace a directory takes "
                              "renameat2, which the file system lacks or a container's filter "
                              "forbids",
                              target->path);
    return rks_fail_errno(err, errno, "%s: renaming into place", target->path);
}

static rks_status place_target(const rks_target *target, placed *how, rks_error *err)
{
    int failed = renameat2(AT_FDCWD, target->part, AT_FDCWD, target->path, RENAME_NOREPLACE);
    *how = PLACED_NEW;
    if (failed != 0 && errno == EEXIST && target->force) {
        failed = renameat2(AT_FDCWD, target->part, AT_FDCWD, target->path, RENAME_EXCHANGE);
        *how = PLACED_EXCHANGED;
    }
    if (failed == 0)
        return RKS_OK;
    if (errno == EINVAL || rks_call_is_forbidden(errno))
        return place_plainly(target, errno, how, err);
    return rks_fail_errno(err, errno, "%s: renaming into place", target->path);
}

/* Undoes place_target; false if it cannot. */
static bool undo_place(const rks_target *target, placed how)
{
    if (how == PLACED_EXCHANGED)
        return renameat2(AT_FDCWD, target->part, AT_FDCWD, target->path, RENAME_EXCHANGE) == 0;
    return how == PLACED_NEW && rename(target->path, target->part) == 0;
}

rks_status rks_target_commit(rks_target *target, rks_error *err)
{
    placed how = PLACED_NEW;
    rks_status status = check_place(target->path, target->force, err);
    if (status == RKS_OK)
        status = place_target(target, &how, err);
    if (status != RKS_OK)
        return status;
    rks_error why = {0};
    status = rks_file_sync_directory_of(target->path, &why);
    if (status == RKS_OK)
        return status;
    /* It comes back, to be removed: the same command, run again, must not meet it. */
    if (!undo_place(target, how))
        return rks_fail(err, status, why.cause,
                        "%s: in place, but not durable: a power cut may lose it (%s)", target->path,
                        why.text);
    return rks_fail(err, status, why.cause, "%s: not written, as it would not be durable: %s",
                    target->path, why.text);
}

void rks_target_close(rks_target *target)
{
    if (target == NULL)
        return;
    if (target->lock != NULL)
        remove_all(target->part); /* what was not committed, or what was replaced */
    rks_lock_file_release(target->lock);
    rks_free(target->path);
    rks_free(target->part);
    rks_free(target);
}
