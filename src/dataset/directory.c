/* SPDX-License-Identifier: Apache-2.0
 *
 * directory.c: names and the build lock. Ranks that share a directory are told apart by
 * device and inode within a node; across nodes (a network disk) by the job that the lock file
 * names: a lock that a rank of the same job holds is ours. */
#include "dataset/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"
#include "dataset/dataset.h"

struct rks_directory_lock {
    int fd;
    char *path;
};

rks_status rks_directory_expand(const rks_group *group, const char *pattern, char **directory,
                                rks_error *err)
{
    if (pattern == NULL || pattern[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "the directory's name is empty");
    rks_buffer name = {0};
    rks_status status = RKS_OK;
    for (const char *at = pattern; status == RKS_OK && *at != '\0';) {
        if (strncmp(at, "{rank}", 6) == 0) {
            status = rks_buffer_print(&name, err, "%u", rks_group_rank(group));
            at += 6;
        } else if (strncmp(at, "{node}", 6) == 0) {
            status = rks_buffer_print(&name, err, "%u", rks_group_node(group));
            at += 6;
        } else {
            status = rks_buffer_add(&name, at, 1, err);
            at++;
        }
    }
    if (status == RKS_OK)
        status = rks_buffer_add(&name, "", 1, err);
    if (status != RKS_OK) {
        rks_buffer_free(&name);
        return status;
    }
    while (name.size > 2 && name.data[name.size - 2] == '/')
        name.data[--name.size - 1] = '\0';
    *directory = (char *)name.data;
    return RKS_OK;
}

/* Bytes of "{word}" at `text`; 0: no braces around one. */
static size_t placeholder(const char *text)
{
    size_t size = text[0] == '{' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_") : 0;
    return size > 0 && text[1 + size] == '}' ? size + 2 : 0;
}

rks_status rks_directory_expand_target(const rks_group *group, const char *pattern,
                                       char **directory, rks_error *err)
{
    for (const char *at = pattern == NULL ? "" : pattern; *at != '\0'; at++) {
        size_t size = placeholder(at);
        if (size > 0 && strncmp(at, "{rank}", size) != 0 && strncmp(at, "{node}", size) != 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "%s: %.*s stands for nothing; {rank} and {node} are known", pattern,
                            (int)(size < 40 ? size : 40), at);
    }
    char *name = NULL;
    rks_status status = rks_directory_expand(group, pattern, &name, err);
    const char *sign = status == RKS_OK ? rks_dataset_generation_sign(name) : NULL;
    if (sign != NULL) {
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: this means generation %.20s of %.*s, and no directory is named so; "
                          "name %.*s itself, or another one",
                          name, sign + 1, (int)(sign - name), name, (int)(sign - name), name);
        rks_free(name);
        return status;
    }
    *directory = name;
    return status;
}

/* What tells a directory apart on a node. */
typedef struct place {
    uint64_t device;
    uint64_t inode;
    uint64_t job; /* drawn by rank 0 */
    uint32_t node;
    uint32_t reserved;
} place;

/* This rank is the lowest that sees this directory on its node. */
static bool is_first(const rks_group *group, const uint8_t *all, const place *mine)
{
    for (uint32_t rank = 0; rank < rks_group_rank(group); rank++) {
        place other;
        memcpy(&other, all + rank * sizeof(other), sizeof(other));
        if (other.node == mine->node && other.device == mine->device && other.inode == mine->inode)
            return false;
    }
    return true;
}

/* Good where a rank of this job, on another node, holds the lock: it writes for us. */
static rks_status look_at_holder(const char *directory, uint64_t job, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    unsigned long long holder = 0;
    char who[256] = "another process";
    char *path = rks_format(err, "%s/build.lock", directory);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_load(path, 4096, &text, &size, err);
    if (status == RKS_OK &&
        (sscanf(text, "job %llx\n%255[^\n]", &holder, who) < 1 || holder != job))
        status = rks_fail(err, RKS_ERR_STATE, 0, "%s: another build runs here (%s)", path, who);
    rks_free(text);
    rks_free(path);
    return status;
}

/* The file that the path names now: the one before it may have been unlinked by a holder who
 * left between our open and our flock, which is_current finds. */
static rks_status open_lock(const char *path, int *fd, rks_error *err)
{
    int opened = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (opened < 0)
        return rks_fail_errno(err, errno, "%s", path);
    *fd = opened;
    return RKS_OK;
}

static bool is_current(const char *path, int fd)
{
    struct stat named, held;
    return stat(path, &named) == 0 && fstat(fd, &held) == 0 && named.st_ino == held.st_ino &&
           named.st_dev == held.st_dev;
}

/* *lock stays NULL where another has it. */
static rks_status take(rks_group *group, const char *directory, uint64_t job,
                       rks_directory_lock **lock, rks_error *err)
{
    rks_directory_lock *taken = rks_alloc(1, sizeof(*taken), err);
    if (taken == NULL)
        return RKS_ERR_MEMORY;
    taken->fd = -1;
    rks_status status = RKS_ERR_MEMORY;
    taken->path = rks_format(err, "%s/build.lock", directory);
    if (taken->path == NULL)
        goto out;
    status = open_lock(taken->path, &taken->fd, err);
    if (status != RKS_OK)
        goto out;
    if (flock(taken->fd, LOCK_EX | LOCK_NB) != 0)
        goto out;
    if (!is_current(taken->path, taken->fd)) {
        status = rks_fail(err, RKS_ERR_STATE, 0, "%s: another build has just ended here; run again",
                          taken->path);
        goto out;
    }
    char text[256];
    int size = snprintf(text, sizeof(text), "job %llx\npid %ld on %s\n", (unsigned long long)job,
                        (long)getpid(), rks_group_host(group, rks_group_rank(group)));
    if (ftruncate(taken->fd, 0) != 0 || pwrite(taken->fd, text, (size_t)size, 0) != size) {
        status = rks_fail_write(err, errno, taken->path, (uint64_t)size);
        unlink(taken->path); /* it is ours and held */
        goto out;
    }
    *lock = taken;
    return RKS_OK;
out:
    if (taken->fd >= 0)
        close(taken->fd);
    rks_free(taken->path);
    rks_free(taken);
    return status;
}

rks_status rks_directory_lock_take(rks_group *group, const char *directory,
                                   rks_directory_lock **lock, bool *writes, rks_error *err)
{
    place mine = {.node = rks_group_node(group)};
    rks_directory_lock *taken = NULL;
    bool first = false;
    uint64_t job = 0;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    struct stat info;
    rks_status status = rks_directory_make(directory, err);
    if (status == RKS_OK && stat(directory, &info) != 0)
        status = rks_fail_errno(err, errno, "%s", directory);
    if (status == RKS_OK) {
        mine.device = info.st_dev;
        mine.inode = info.st_ino;
        status = rks_random(&mine.job, sizeof(mine.job), err);
    }
    status = rks_group_allgather(group, "build: directory", status, &mine, sizeof(mine), &all,
                                 &offsets, err);
    if (status == RKS_OK) {
        place root;
        memcpy(&root, all, sizeof(root));
        job = root.job;
        first = is_first(group, all, &mine);
        if (first)
            status = take(group, directory, job, &taken, err);
    }
    rks_free(all);
    rks_free(offsets);
    /* Who has a lock has written its name into it before anybody looks. */
    status = rks_group_agree(group, "build: lock", status, err);
    if (status == RKS_OK) {
        if (first && taken == NULL)
            status = look_at_holder(directory, job, err);
        status = rks_group_agree(group, "build: locked", status, err);
    }
    if (status != RKS_OK) {
        rks_directory_lock_release(taken);
        return status;
    }
    *lock = taken;
    *writes = taken != NULL;
    return RKS_OK;
}

void rks_directory_lock_release(rks_directory_lock *lock)
{
    if (lock == NULL)
        return;
    unlink(lock->path); /* while it is held: nobody else can have it */
    close(lock->fd);
    rks_free(lock->path);
    rks_free(lock);
}

bool rks_directory_is_empty(const char *path)
{
    DIR *directory = opendir(path);
    bool empty = directory != NULL;
    for (struct dirent *entry; empty && (entry = readdir(directory)) != NULL;)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (directory != NULL)
        closedir(directory);
    return empty;
}

void rks_directory_remove(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(directory), entry->d_name, 0);
    closedir(directory);
    rmdir(path);
}
