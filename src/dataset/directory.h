/* SPDX-License-Identifier: Apache-2.0
 *
 * directory.h: a dataset's directory: its name for this rank, and the lock that a build holds. */
#ifndef RKS_DATASET_DIRECTORY_H
#define RKS_DATASET_DIRECTORY_H

#include "group/group.h"

/* {rank} and {node} in `pattern` replaced by this rank's numbers. rks_free. */
rks_status rks_directory_expand(const rks_group *group, const char *pattern, char **directory,
                                rks_error *err);

/* The same for a directory that is written: DIR@2, which would hide generation 2 of DIR, and other
 * words in braces are refused. */
rks_status rks_directory_expand_target(const rks_group *group, const char *pattern,
                                       char **directory, rks_error *err);

typedef struct rks_directory_lock rks_directory_lock;

/* COLLECTIVE. One build at a time in a directory: the lowest rank of each directory makes it and
 * holds DIRECTORY/build.lock with flock, so that a killed build leaves nothing that blocks. *writes
 * is true on the rank that holds the lock: it alone commits and cleans up there. RKS_ERR_STATE
 * names pid and host of the build that has it. */
rks_status rks_directory_lock_take(rks_group *group, const char *directory,
                                   rks_directory_lock **lock, bool *writes, rks_error *err);
/* NULL is accepted. */
void rks_directory_lock_release(rks_directory_lock *lock);

/* False also where it cannot be read. */
bool rks_directory_is_empty(const char *path);
/* Removes the files in a directory, then the directory. What cannot be removed stays. */
void rks_directory_remove(const char *path);

#endif
