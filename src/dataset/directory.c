/* SPDX-License-Identifier: Apache-2.0
 *
 * directory.c: names and the build lock. Ranks that share a directory are told apart by
 * device and inode within a node; across nodes (a network disk) by the job that the lock file
 * names: a lock that a rank of the same job holds is ours. */
#include "dataset/directory.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"
#include "dataset/dataset.h"

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

static rks_status find_place(const char *directory, place *mine, rks_error *err)
{
    struct stat info;
    rks_status status = rks_directory_make(directory, err);
    if (status != RKS_OK)
        return status;
    if (stat(directory, &info) != 0)
        return rks_fail_errno(err, errno, "%s", directory);
    mine->device = info.st_dev;
    mine->inode = info.st_ino;
    return rks_random(&mine->job, sizeof(mine->job), err);
}

/* COLLECTIVE. Sets the wish's job. *first: this rank is the lowest of its node in its directory. */
static rks_status meet(rks_group *group, const char *directory, rks_lock_wish *wish, bool *first,
                       rks_error *err)
{
    place mine = {.node = rks_group_node(group)}, root;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status =
        wish->path == NULL ? RKS_ERR_MEMORY : find_place(directory, &mine, err);
    status = rks_group_allgather(group, "build: directory", status, &mine, sizeof(mine), &all,
                                 &offsets, err);
    if (status != RKS_OK)
        return status;
    memcpy(&root, all, sizeof(root));
    wish->job = root.job;
    *first = is_first(group, all, &mine);
    rks_free(all);
    rks_free(offsets);
    return RKS_OK;
}

/* *lock stays NULL where another process has it, which may be a rank of this job on another node.
 */
static rks_status take_directory_lock(const rks_lock_wish *wish, rks_lock_file **lock,
                                      rks_error *err)
{
    rks_error why;
    rks_status status = rks_lock_file_take(wish, lock, &why);
    if (status == RKS_OK || status == RKS_ERR_STATE)
        return RKS_OK;
    if (err != NULL)
        *err = why;
    return status;
}

/* After all ranks have written their names. Where the file system does not keep nodes apart, it is
 * the last name that counts: *lock becomes NULL on the others. */
static rks_status settle(const rks_lock_wish *wish, rks_lock_file **lock, rks_error *err)
{
    if (*lock != NULL && rks_lock_file_is_ours(*lock))
        return RKS_OK;
    rks_lock_file_release(*lock);
    *lock = NULL;
    return rks_lock_file_check_job(wish, err);
}

rks_status rks_directory_lock_take(rks_group *group, const char *directory, bool no_lock,
                                   rks_lock_file **lock, bool *writes, rks_error *err)
{
    char *path = rks_format(err, "%s/build.lock", directory);
    rks_lock_wish wish = {.path = path,
                          .held = "another build runs here",
                          .optional = no_lock || rks_group_size(group) == 1};
    rks_lock_file *taken = NULL;
    bool first = false;
    rks_status status = meet(group, directory, &wish, &first, err);
    if (status == RKS_OK) {
        if (first)
            status = take_directory_lock(&wish, &taken, err);
        status = rks_group_agree(group, "build: lock", status, err);
    }
    if (status == RKS_OK) {
        if (first)
            status = settle(&wish, &taken, err);
        status = rks_group_agree(group, "build: locked", status, err);
    }
    rks_free(path);
    if (status != RKS_OK) {
        rks_lock_file_release(taken);
        return status;
    }
    *lock = taken;
    *writes = taken != NULL;
    return RKS_OK;
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
