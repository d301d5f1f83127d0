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

/* One build at a time in a directory, by DIRECTORY/build.lock, so that a killed build leaves nothing
 * that blocks. Every rank tries, and makes the directory if it is not there; *lock stays NULL if
 * another process has it. RKS_ERR_UNSUPPORTED: the file system has no locks, several ranks build, and
 * `no_lock` is not set. */
rks_status rks_directory_lock_try(const rks_group *group, const char *directory, bool no_lock,
                                  rks_lock_file **lock, rks_error *err);
/* After an agreement: whoever got the lock has written its name into it. *lock is NULL but on the
 * one rank that has it: that one alone commits and cleans up there, and ends it with
 * rks_lock_file_release. RKS_ERR_STATE names pid and host of the build of another group that has it.
 */
rks_status rks_directory_lock_settle(const rks_group *group, const char *directory,
                                     rks_lock_file **lock, rks_error *err);

/* Files that a killed process was about to rename, NAME.PID.tmp, unless a process PID of this machine
 * lives. Only for who holds the lock, while no rank of its group writes there. */
void rks_directory_remove_temporaries(const char *directory);

/* False also if it cannot be read. */
bool rks_directory_is_empty(const char *path);
/* Removes the files in a directory, then the directory. What cannot be removed stays. */
void rks_directory_remove(const char *path);

#endif
