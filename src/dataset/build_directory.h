/* SPDX-License-Identifier: Apache-2.0
 *
 * build_directory.h: a dataset's directory: its name for this rank, and the lock that a build
 * holds. */
#ifndef RKS_DATASET_BUILD_DIRECTORY_H
#define RKS_DATASET_BUILD_DIRECTORY_H

#include "base/lock_file.h"
#include "group/group.h"

/* Replaces {rank} and {node} in `pattern` by this rank's numbers. Free the result with rks_free. */
rks_status rks_directory_expand(const rks_group *group, const char *pattern, char **directory,
                                rks_error *err);

/* The same for a directory that will be written. Refuses DIR@2, which would hide generation 2 of
 * DIR, a `*`, and other words in braces. */
rks_status rks_directory_expand_target(const rks_group *group, const char *pattern,
                                       char **directory, rks_error *err);

/* Tries to take the lock of a directory, DIRECTORY/build.lock: one build at a time runs there, and
 * a killed build blocks no other. Every rank tries, and makes the directory if it does not exist.
 * *lock stays NULL if another process has the lock. RKS_ERR_UNSUPPORTED: the file system has no
 * locks, several ranks build, and `no_lock` is not set. RKS_ERR_ARGUMENT: it is a local copy
 * (home_file.h). */
rks_status rks_directory_lock_try(const rks_group *group, const char *directory, bool no_lock,
                                  rks_lock_file **lock, rks_error *err);
/* After an agreement: the rank that got the lock has written its name into the file. *lock becomes
 * NULL on all ranks but that one. That rank commits and cleans up in the directory, and ends the
 * lock with rks_lock_file_release. RKS_ERR_STATE names pid and host of another group's build that
 * holds it. */
rks_status rks_directory_lock_settle(const rks_group *group, const char *directory,
                                     rks_lock_file **lock, rks_error *err);

/* Removes files that a killed process was about to rename, NAME.PID.tmp, unless a process PID of
 * this machine lives. Only for the rank that holds the lock, while no rank of its group writes
 * there. */
void rks_directory_remove_temporaries(const char *directory);

/* Returns false also if it cannot be read. */
bool rks_directory_is_empty(const char *path);
/* Removes the files in a directory, then the directory. What cannot be removed stays. */
void rks_directory_remove(const char *path);

#endif
