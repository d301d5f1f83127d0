/* SPDX-License-Identifier: Apache-2.0
 *
 * earlier_keys.h: which shards an append has to open to find equal keys. The key hashes of small
 * shards lie beside the lists that name them (dataset/list_keys.h): a shard none of whose hashes
 * comes with the append holds no key of it.
 *
 * Only if one rank appends, which alone decides, and if no samples are left out. */
#ifndef RKS_BUILDER_EARLIER_KEYS_H
#define RKS_BUILDER_EARLIER_KEYS_H

#include "builder/parts_internal.h"

/* Begin with {0}; end with rks_earlier_keys_free. */
typedef struct rks_earlier_keys {
    bool used;
    const uint64_t **of; /* by shard of the dataset: its hashes, row by row; NULL: not known */
    uint64_t *lists[RKS_DATASET_LISTS_MAX]; /* of each of its lists; NULL: not known */
} rks_earlier_keys;

/* `dataset` is what the append makes of its base; its new shards are this rank's sealed ones. *part
 * is the dataset of the shards to look at; NULL: of all. rks_dataset_free(*part). */
rks_status rks_earlier_keys_narrow(rks_earlier_keys *earlier, const rks_parts *parts,
                                   const rks_dataset *dataset, rks_dataset **part, rks_error *err);
/* After the commit: keeps the hashes of the shards that new lists name, for the next append. What
 * cannot be kept is not: the next one opens those shards. */
void rks_earlier_keys_keep(const rks_earlier_keys *earlier, const rks_parts *parts,
                           const rks_dataset *dataset);
void rks_earlier_keys_free(rks_earlier_keys *earlier);

#endif
