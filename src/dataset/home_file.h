/* SPDX-License-Identifier: Apache-2.0
 *
 * home_file.h: home.json, by which a directory is a local copy: it names the home, where its
 * dataset is kept whole. Shards come from there and may go again, so nothing is built there. */
#ifndef RKS_DATASET_HOME_FILE_H
#define RKS_DATASET_HOME_FILE_H

#include "rankstore/base.h"

#define RKS_HOME_FILE "home.json"
enum { RKS_HOME_FILE_MAX = 64 << 10 };

/* Reads home.json of a directory: the home's name, or NULL if there is no such file. Free *home
 * with rks_free. RKS_ERR_CORRUPT if it cannot be understood. */
rks_status rks_home_file_read(const char *directory, char **home, rks_error *err);
/* Looks for a local copy in the folders of a directory, for messages: the path of the first, and
 * its home's name; both NULL if none is seen. Free them with rks_free. */
void rks_home_file_below(const char *directory, char **folder, char **home);
/* Writes home.json. RKS_ERR_ARGUMENT: the name is not UTF-8. */
rks_status rks_home_file_write(const char *directory, const char *home, rks_error *err);
/* Reads its text; `path` is for messages. */
rks_status rks_home_file_decode(const char *text, size_t size, const char *path, char **home,
                                rks_error *err);

/* RKS_ERR_ARGUMENT: the directory is a local copy. Names its home. */
rks_status rks_home_file_refuse(const char *directory, rks_error *err);

#endif
