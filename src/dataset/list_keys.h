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
    RKS_LIST_KEYS_SHARD = 4096,  /* samples: a larger shard is not in it */
    RKS_LIST_KEYS_MAX = 1 << 19, /* hashes: shards that would make it more are not in it */
};

/* Begins with *hashes 0, and is asked for each of the list's shards, by id: does the file hold its
 * hashes? *hashes counts those of the shards that it does. */
bool rks_list_keys_cover(const rks_dataset_shard *shard, uint64_t *hashes);

/* "list-DIGITS.keys", of "list-DIGITS.units" */
void rks_list_keys_name(const rks_dataset_list *list, char name[64]);

/* *hashes is NULL unless there is such a file of `count` hashes. rks_free(*hashes). Only memory can
 * lack. */
rks_status rks_list_keys_load(const char *directory, const rks_dataset_list *list, uint64_t count,
                              uint64_t **hashes, rks_error *err);
/* The shards' hashes, by shard in the order of their ids, by row. */
rks_status rks_list_keys_save(const char *directory, const rks_dataset_list *list,
                              const uint64_t *hashes, uint64_t count, rks_error *err);

#endif
