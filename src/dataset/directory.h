/* SPDX-License-Identifier: Apache-2.0
 *
 * directory.h: a dataset's directory: its name for this rank, and the lock that a build holds. */
#ifndef RKS_DATASET_DIRECTORY_H
#define RKS_DATASET_DIRECTORY_H

#include "base/lock_file.h"
#include "group/group.h"

/* {rank} and {node} in `pattern` replaced by this rank's numbers. rks_free. */
rks_status rks_directory_expand(const rks_group *group, const char *pattern, char **directory,
                                rks_error *err);

/* The same for a directory that is written: DIR@2, which would hide generation 2 of DIR, and other
 * words in braces are refused. */
rks_status rks_directory_expand_target(const rks_group *group, const char *pattern,
                                       char **directory, rks_error *err);

/* COLLECTIVE. One build at a time in a directory: the lowest rank of each directory makes it and
 * holds DIRECTORY/build.lock, so that a killed build leaves nothing that blocks. *writes is true on
 * the rank that holds the lock: it alone commits and cleans up there. RKS_ERR_STATE names pid and
 * host of the build that has it. RKS_ERR_UNSUPPORTED: the file system has no locks, several ranks
 * build, and `no_lock` is not set. *lock is ended with rks_lock_file_release; it may be NULL. */
rks_status rks_directory_lock_take(rks_group *group, const char *directory, bool no_lock,
                                   rks_lock_file **lock, bool *writes, rks_error *err);

/* False also where it cannot be read. */
bool rks_directory_is_empty(const char *path);
/* Removes the files in a directory, then the directory. What cannot be removed stays. */
void rks_directory_remove(const char *path);

#endif
