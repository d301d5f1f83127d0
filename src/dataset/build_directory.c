/* SPDX-License-Identifier: Apache-2.0
 *
 * build_directory.c: names and the build lock. Every rank tries to take its directory's lock. Of
 * ranks that share a directory, on one node or on several (a network disk), one gets it: the lock
 * file names their group, and a lock that a rank of the same group holds is good for all. */
#include "dataset/build_directory.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/home_file.h"
#include "dataset/search_folders.h"

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

/* Returns the size of a "{word}" at `text`; 0 if there is none. */
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
    if (status == RKS_OK && rks_folders_is_pattern(name)) {
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: a name with * stands for several folders; name the one to write to",
                          name);
        rks_free(name);
        return status;
    }
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

enum { BEAT_MS = 1000 }; /* short enough for waiters with a shorter limit, too */

/* Returns the path of a file that shows that this rank waits for the lock. The caller frees it. */
static char *wish_for(const rks_group *group, const char *directory, rks_lock_wish *wish,
                      rks_error *err)
{
    uint32_t beat = rks_group_silence_ms(group) / 3;
    char *path = rks_format(err, "%s/build.lock", directory);
    *wish = (rks_lock_wish){.path = path,
                            .held = "another build runs here",
                            .job = rks_group_id(group),
                            .beat_ms = beat > BEAT_MS ? BEAT_MS : beat,
                            .quiet = rks_group_rank(group) != 0};
    return path;
}

rks_status rks_directory_lock_try(const rks_group *group, const char *directory, bool no_lock,
                                  rks_lock_file **lock, rks_error *err)
{
    rks_lock_wish wish;
    rks_error why;
    rks_status status = rks_home_file_refuse(directory, err);
    if (status == RKS_OK)
        status = rks_directory_make(directory, err);
    if (status != RKS_OK)
        return status;
    char *path = wish_for(group, directory, &wish, err);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    wish.optional = no_lock || rks_group_size(group) == 1;
    status = rks_lock_file_take(&wish, lock, &why);
    rks_free(path);
    if (status == RKS_OK || status == RKS_ERR_STATE)
        return RKS_OK; /* its holder may be a rank of this group */
    if (err != NULL)
        *err = why;
    return status;
}

/* If the file system does not keep locks of nodes apart, the last name that was written counts. */
rks_status rks_directory_lock_settle(const rks_group *group, const char *directory,
                                     rks_lock_file **lock, rks_error *err)
{
    rks_lock_wish wish;
    if (*lock != NULL && rks_lock_file_is_ours(*lock))
        return RKS_OK;
    rks_lock_file_release(*lock);
    *lock = NULL;
    char *path = wish_for(group, directory, &wish, err);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_lock_file_check_job(&wish, err);
    rks_free(path);
    return status;
}

/* Returns the process in names that builds write, such as "part-....json.PID.tmp"; 0: none. */
static long temporary_of(const char *name)
{
    static const char *const begins[] = {"part-",    "excluded-",    "list-",
                                         "dataset.", "python.json.", "schema-"};
    size_t size = strlen(name);
    bool ours = false;
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
        ours = ours || strncmp(name, begins[i], strlen(begins[i])) == 0;
    if (!ours || size < 6 || strcmp(name + size - 4, ".tmp") != 0)
        return 0;
    const char *digits = name + size - 4;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9')
        digits--;
    bool is_number = digits > name && digits[-1] == '.' && name + size - 4 - digits <= 9;
    return is_number ? strtol(digits, NULL, 10) : 0;
}

void rks_directory_remove_temporaries(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        long pid = temporary_of(entry->d_name);
        if (pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH)
            unlinkat(dirfd(directory), entry->d_name, 0);
    }
    closedir(directory);
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
