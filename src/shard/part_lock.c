/* SPDX-License-Identifier: Apache-2.0
 *
 * part_lock.c: NAME.lock: one line, "pid 123 on HOST". */
#include "shard/part_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum { TRIES = 100 };

struct rks_part_lock {
    int fd;
    char *path;
};

static rks_status held_by(int fd, const char *path, rks_error *err)
{
    char holder[160];
    ssize_t size = pread(fd, holder, sizeof(holder) - 1, 0);
    holder[size < 0 ? 0 : size] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return rks_fail(err, RKS_ERR_STATE, EWOULDBLOCK, "%s: %s is writing here", path,
                    holder[0] == '\0' ? "another process" : holder);
}

/* Opens and locks; *fd is -1 where the file was removed meanwhile. */
static rks_status try_lock(const char *path, int *fd, rks_error *err)
{
    struct stat opened, named;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (file < 0)
        return rks_fail_errno(err, errno, "%s: opening the lock file", path);
    rks_status status = RKS_OK;
    if (flock(file, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK ? held_by(file, path, err)
                                      : rks_fail_errno(err, errno, "%s: locking", path);
    if (status == RKS_OK && fstat(file, &opened) == 0 && stat(path, &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
        *fd = file;
        return RKS_OK;
    }
    close(file);
    return status;
}

static rks_status sign(int fd, const char *path, rks_error *err)
{
    char host[65] = "?", line[160];
    gethostname(host, sizeof(host) - 1);
    int size = snprintf(line, sizeof(line), "pid %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, line, (size_t)size, 0) != size)
        return rks_fail_write(err, errno == 0 ? ENOSPC : errno, path, (uint64_t)size);
    return RKS_OK;
}

rks_status rks_part_lock_take(const char *path, rks_part_lock **lock, rks_error *err)
{
    rks_part_lock *taken = rks_alloc(1, sizeof(*taken), err);
    if (taken == NULL)
        return RKS_ERR_MEMORY;
    taken->fd = -1;
    taken->path = rks_strdup(path, err);
    rks_status status = taken->path == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (int i = 0; status == RKS_OK && taken->fd < 0; i++)
        status = i < TRIES ? try_lock(path, &taken->fd, err)
                           : rks_fail(err, RKS_ERR_STATE, 0, "%s: others keep taking it", path);
    if (status == RKS_OK)
        status = sign(taken->fd, path, err);
    if (status == RKS_OK) {
        *lock = taken;
        taken = NULL;
    }
    rks_part_lock_release(taken);
    return status;
}

void rks_part_lock_release(rks_part_lock *lock)
{
    if (lock == NULL)
        return;
    if (lock->fd >= 0) {
        unlink(lock->path); /* before the lock ends, so that nobody locks a file about to go */
        close(lock->fd);
    }
    rks_free(lock->path);
    rks_free(lock);
}
