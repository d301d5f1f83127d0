/* SPDX-License-Identifier: Apache-2.0
 *
 * list_keys.h: the key hashes of a list's shards, in a file beside the list, so that an append
 * looks for equal keys without opening each shard. The picture of the file is in list_keys.c.
 *
 * Only appends look at it, and whoever lacks it opens the shards: it may be missing, and a damaged
 * one counts as missing. It is good for one list alone, by that list's digest, and what a list
 * names never changes. */
#ifndef RKS_DATASET_LIST_KEYS_H
#define RKS_DATASET_LIST_KEYS_H

#include "dataset/dataset.h"

enum {
    RKS_LIST_KEYS_SHARD = 4096,  /* a shard with more samples is not in the file */
    RKS_LIST_KEYS_MAX = 1 << 19, /* hashes; a shard that would exceed them is not in the file */
};

/* Called for each of the list's shards, by id, with *hashes 0 at first. Returns true if the file
 * holds the shard's hashes. *hashes counts those of the shards that it holds. */
bool rks_list_keys_cover(const rks_dataset_shard *shard, uint64_t *hashes);

/* "list-DIGITS.keys", for "list-DIGITS.units" */
void rks_list_keys_name(const rks_dataset_list *list, char name[64]);

/* Loads the file. *hashes becomes NULL unless there is such a file of `count` hashes; free it with
 * rks_free. Fails only if memory is short. */
rks_status rks_list_keys_load(const char *directory, const rks_dataset_list *list, uint64_t count,
                              uint64_t **hashes, rks_error *err);
/* Writes the shards' hashes, by shard in the order of their ids, then by row. */
rks_status rks_list_keys_save(const char *directory, const rks_dataset_list *list,
                              const uint64_t *hashes, uint64_t count, rks_error *err);

#endif
