/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_json.h: what dataset.c and dataset_json.c share. */
#ifndef RKS_DATASET_DATASET_JSON_H
#define RKS_DATASET_DATASET_JSON_H

#include "dataset/dataset.h"

#define RKS_DATASET_FILE "dataset.json"
#define RKS_DATASET_MAX ((size_t)64 << 20)

/* Keeps dataset.json as dataset.N.json where it is generation N; then *is_there, with what it is. */
rks_status rks_dataset_keep_generation(const char *directory, uint64_t generation,
                                       rks_dataset_summary *before, bool *is_there, rks_error *err);
/* A file's text, with the lists of DIRECTORY that it refers to. */
rks_status rks_dataset_decode_file(const char *directory, const char *text, size_t size,
                                   const char *path, rks_dataset **dataset, rks_error *err);
rks_status rks_dataset_decode_summary(const char *text, size_t size, const char *path,
                                      rks_dataset_summary *summary, rks_error *err);
/* dataset.json as it is written to a directory, which holds the layout's lists. */
rks_status rks_dataset_encode_file(const rks_dataset *dataset, const rks_dataset_layout *layout,
                                   char **text, size_t *size, rks_error *err);
/* No path, no hidden file, no control characters. */
bool rks_dataset_name_good(const char *name);
int rks_dataset_compare_ids(rks_digest a, rks_digest b);
/* What must hold for what is written and what is read. `status` is what a breach is: the caller's
 * mistake, or damage. */
rks_status rks_dataset_check(const rks_dataset *dataset, const char *path, rks_status status,
                             rks_error *err);

/* Puts shards in the order of their ids; two with one id are RKS_ERR_CORRUPT. */
rks_status rks_dataset_order_shards(rks_dataset *dataset, const char *path, rks_error *err);
/* `whose`, with its shards and units after those of `joined`, which has room for them. */
rks_status rks_dataset_append(rks_dataset *joined, const rks_dataset *whose, rks_error *err);

#endif
