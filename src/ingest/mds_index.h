/* SPDX-License-Identifier: Apache-2.0
 *
 * mds_index.h: the index.json of a directory of MDS shards (version 2). */
#ifndef RKS_INGEST_MDS_INDEX_H
#define RKS_INGEST_MDS_INDEX_H

#include <jansson.h>

#include "ingest/unit.h"

#define RKS_MDS_INDEX "index.json"

/* The folder has an index.json that speaks of shards. */
bool rks_mds_is_folder(const char *path);
/* Bytes of a path in front of the file's own name. */
size_t rks_mds_folder_size(const char *path);
/* An object with a list of "shards", of which none is checked. json_decref(*root). */
rks_status rks_mds_index_load(const rks_input_file *file, json_t **root, rks_error *err);
/* The file of a shard, "raw_data" or "zip_data"; NULL where there is none, or not in this
 * directory. */
const char *rks_mds_base_name(const json_t *entry, const char *which);
/* RKS_ERR_DATA: shard `at` of the index `path` lacks its format, its sizes or its file. */
rks_status rks_mds_check_entry(const json_t *entry, size_t at, const char *path, rks_error *err);

#endif
