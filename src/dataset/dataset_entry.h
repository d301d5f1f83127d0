/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_entry.h: a shard and a unit as dataset.json lists them. */
#ifndef RKS_DATASET_ENTRY_H
#define RKS_DATASET_ENTRY_H

#include <jansson.h>

#include "base/buffer.h"
#include "dataset/dataset.h"

/* Appends an entry, after a comma unless it is the first of the list. `builds`: include the build
 * that wrote the shard. */
rks_status rks_dataset_put_shard(const rks_dataset_shard *shard, bool builds, bool first,
                                 rks_buffer *json, rks_error *err);
/* `shard`: its place in the text's list. `named`: include the name that keys are derived from. */
rks_status rks_dataset_put_unit(const rks_dataset_unit *unit, uint32_t shard, bool named,
                                bool first, rks_buffer *json, rks_error *err);

/* Appends `,"index_files":[...]` if the dataset has index files. */
rks_status rks_dataset_put_index_files(const rks_dataset *dataset, rks_buffer *json,
                                       rks_error *err);
rks_status rks_dataset_decode_index_files(const json_t *root, const char *path,
                                          rks_dataset *dataset, rks_error *err);

/* Decodes into an entry of zeros. RKS_ERR_CORRUPT, with `path`, for anything that is not an entry.
 * A unit's `shard` is its place in the text's list, which may not exist. */
rks_status rks_dataset_decode_shard(const json_t *item, const char *path, rks_dataset_shard *shard,
                                    rks_error *err);
rks_status rks_dataset_decode_unit(const json_t *item, const char *path, rks_dataset_unit *unit,
                                   rks_error *err);

#endif
