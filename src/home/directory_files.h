/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_files.h: files of a home that is a directory: versions, writing, listing, removing. It
 * waits as long as the file system does (directory_calls.h). */
#ifndef RKS_HOME_DIRECTORY_FILES_H
#define RKS_HOME_DIRECTORY_FILES_H

#include <sys/stat.h>

#include "home/home.h"

/* Inode, size and time: a file that replaces another one differs in one of them. */
void rks_directory_version(const struct stat *info, char version[RKS_HOME_VERSION]);
/* "DIRECTORY/NAME". RKS_ERR_ARGUMENT if the name has a slash, or is empty, "." or "..". */
rks_status rks_directory_path(const char *directory, const char *name, char **path, rks_error *err);

/* Seconds by the clock of the directory's file system, which may be another machine's; if nothing
 * can be written there, by this machine's. */
uint64_t rks_directory_now(const char *directory);

/* As in rks_home_ops. */
rks_status rks_directory_put(const char *directory, const char *name, const rks_home_bytes *bytes,
                             enum rks_put_rule rule, char version[RKS_HOME_VERSION],
                             rks_error *err);
rks_status rks_directory_list(const char *directory, const char *prefix, rks_home_listed_fn each,
                              void *user, rks_error *err);
rks_status rks_directory_drop(const char *directory, const char *name, const char *version,
                              rks_error *err);

#endif
