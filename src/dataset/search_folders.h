/* SPDX-License-Identifier: Apache-2.0
 *
 * search_folders.h: folders whose names fit a pattern. A `*` stands for any text within one part of
 * a path, not for a name that begins with a dot. Nothing else stands for other text. */
#ifndef RKS_DATASET_SEARCH_FOLDERS_H
#define RKS_DATASET_SEARCH_FOLDERS_H

#include "rankstore/group.h"

/* The folders that patterns may fit, and those that are listed on the way to them. */
enum { RKS_FOLDERS_MAX = 16384 };

/* Begin with {0}. */
typedef struct rks_folders {
    char **paths;
    size_t count;
} rks_folders;

/* Returns true if the name has a `*` and no file or folder is named so. */
bool rks_folders_is_pattern(const char *name);
/* Adds the folders that `pattern` fits, sorted by name; that of a name without `*` if it exists.
 * Folders that cannot be listed hold none. RKS_ERR_ARGUMENT: more than RKS_FOLDERS_MAX. */
rks_status rks_folders_find(rks_folders *folders, const char *pattern, rks_error *err);
/* Adds the folders that the patterns fit, in their order, then those of the patterns in RKS_PATH,
 * which has colons between them. {rank} and {node} are this rank's numbers, unless `group` is NULL.
 * *none, which the caller frees, becomes the first pattern that fits nothing; NULL: all fit. */
rks_status rks_folders_of_shards(rks_folders *folders, const rks_group *group,
                                 const char *const *patterns, size_t count, char **none,
                                 rks_error *err);
rks_status rks_folders_add(rks_folders *folders, const char *path, rks_error *err);
void rks_folders_free(rks_folders *folders);

#endif
