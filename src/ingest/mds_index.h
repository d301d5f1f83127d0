/* SPDX-License-Identifier: Apache-2.0
 *
 * mds_index.h: reads the index.json of a directory of MDS shards (version 2). */
#ifndef RKS_INGEST_MDS_INDEX_H
#define RKS_INGEST_MDS_INDEX_H

#include <jansson.h>

#include "ingest/unit.h"

#define RKS_MDS_INDEX "index.json"

/* Returns true if the folder has an index.json that mentions "shards". */
bool rks_mds_is_folder(const char *path);
/* Says whether a file mentions "shards" at its start, as such an index does. */
rks_status rks_mds_is_index(const rks_input_file *file, bool *index, rks_error *err);
/* Returns the bytes of a path before the file's own name. */
size_t rks_mds_folder_size(const char *path);
/* Loads an index: an object with a list of "shards", which are not checked yet. Free *root with
 * json_decref. */
rks_status rks_mds_index_load(const rks_input_file *file, json_t **root, rks_error *err);
/* Returns the name of a shard's file, for `which` "raw_data" or "zip_data"; NULL if there is none,
 * or it is not in this directory. */
const char *rks_mds_base_name(const json_t *entry, const char *which);
/* Returns RKS_ERR_DATA if shard `at` of the index `path` lacks its format, its sizes or its
 * file. */
rks_status rks_mds_check_entry(const json_t *entry, size_t at, const char *path, rks_error *err);

#endif
