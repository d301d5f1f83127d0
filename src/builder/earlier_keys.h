/* SPDX-License-Identifier: Apache-2.0
 *
 * earlier_keys.h: which shards an append must open to find equal keys. The key hashes of small
 * shards are stored beside the lists that name them (dataset/list_keys.h). If an append has none of
 * a shard's hashes, the shard has none of its keys.
 *
 * Used only if a single rank appends, since it alone decides, and if no samples are left out. */
#ifndef RKS_BUILDER_EARLIER_KEYS_H
#define RKS_BUILDER_EARLIER_KEYS_H

#include "builder/parts_state.h"

/* Begin with {0} and end with rks_earlier_keys_free. */
typedef struct rks_earlier_keys {
    bool used;
    const uint64_t **of; /* by shard of the dataset: its hashes, by row; NULL: not known */
    uint64_t *lists[RKS_DATASET_LISTS_MAX]; /* hashes of each of its lists; NULL: not known */
} rks_earlier_keys;

/* Chooses the shards to open. `dataset`: the base with what is appended; its new shards are those
 * that this rank has sealed. *part becomes a dataset of the shards to open; NULL: all of them. Free
 * it with rks_dataset_free. */
rks_status rks_earlier_keys_narrow(rks_earlier_keys *earlier, const rks_parts *parts,
                                   const rks_dataset *dataset, rks_dataset **part, rks_error *err);
/* After the commit: stores the hashes of the shards that new lists name, for the next append. If
 * they cannot be stored, the next append opens those shards. */
void rks_earlier_keys_keep(const rks_earlier_keys *earlier, const rks_parts *parts,
                           const rks_dataset *dataset);
void rks_earlier_keys_free(rks_earlier_keys *earlier);

#endif
