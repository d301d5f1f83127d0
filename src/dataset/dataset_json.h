/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_json.h: what dataset.c and dataset_json.c share. */
#ifndef RKS_DATASET_DATASET_JSON_H
#define RKS_DATASET_DATASET_JSON_H

#include "dataset/dataset.h"

#define RKS_DATASET_FILE "dataset.json"
#define RKS_DATASET_MAX ((size_t)64 << 20)

/* Keeps dataset.json as dataset.N.json if it is generation N; then *is_there is true and the
 * dataset is returned. */
rks_status rks_dataset_keep_generation(const char *directory, uint64_t generation,
                                       rks_dataset_summary *before, bool *is_there, rks_error *err);
/* Decodes a file's text, with the lists that it refers to, which `lists` loads. */
rks_status rks_dataset_decode_with(const rks_list_source *lists, const char *text, size_t size,
                                   const char *path, rks_dataset **dataset, rks_error *err);
/* The same with the lists of `directory`. */
rks_status rks_dataset_decode_file(const char *directory, const char *text, size_t size,
                                   const char *path, rks_dataset **dataset, rks_error *err);
rks_status rks_dataset_decode_summary(const char *text, size_t size, const char *path,
                                      rks_dataset_summary *summary, rks_error *err);
/* Writes the text of dataset.json for a directory that holds the layout's lists. */
rks_status rks_dataset_encode_file(const rks_dataset *dataset, const rks_dataset_layout *layout,
                                   char **text, size_t *size, rks_error *err);
/* Returns true if it has no path, no leading dot and no control characters. */
bool rks_dataset_name_good(const char *name);
int rks_dataset_compare_ids(rks_digest a, rks_digest b);
/* Checks what must hold for a dataset that is written or read. `status` is returned for a breach:
 * it is the caller's mistake, or damage. */
rks_status rks_dataset_check(const rks_dataset *dataset, const char *path, rks_status status,
                             rks_error *err);

/* Sorts shards by id. Two with the same id are RKS_ERR_CORRUPT. */
rks_status rks_dataset_order_shards(rks_dataset *dataset, const char *path, rks_error *err);
/* Appends `whose` to `joined`, which has room for its shards and units. */
rks_status rks_dataset_append(rks_dataset *joined, const rks_dataset *whose, rks_error *err);

#endif
