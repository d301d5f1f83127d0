/* SPDX-License-Identifier: Apache-2.0
 *
 * duplicates.h: looks for equal keys in a dataset that is sealed but not committed yet. */
#ifndef RKS_STORE_DUPLICATES_H
#define RKS_STORE_DUPLICATES_H

#include "dataset/key_description.h"
#include "group/group.h"
#include "rankstore/store.h"

/* A dataset that is sealed but not committed yet, and how to open it. */
typedef struct rks_sealed_dataset {
    const char *directory;
    rks_status status;          /* this rank's result so far, as in rks_group_agree */
    const rks_dataset *dataset; /* used only if that is RKS_OK */
    const char *missing;        /* as in rks_store_options, like the next two */
    const char *const *shards;
    size_t shard_count;
    uint8_t note; /* as in rks_loaded_dataset, like the next one */
    bool *noted;
} rks_sealed_dataset;

/* COLLECTIVE. Opens it as a store. End that with rks_store_close. *err goes with the status.
 * `pairs`: as in rks_store_open_dataset. */
rks_status rks_commit_open(rks_group *group, const rks_sealed_dataset *sealed, uint64_t *pairs,
                           rks_store **store, rks_error *err);
/* COLLECTIVE. Looks for equal keys in the store that rks_commit_open has opened: samples with equal
 * hashes are compared by full key at their owners. RKS_ERR_DATA shows the key, and where both
 * samples come from: holders[s] is the rank that brought dataset->shards[s]; NULL: ranks are not
 * named. `words` NULL: like one whose members are all NULL. */
rks_status rks_commit_compare_keys(rks_store *store, uint64_t pairs, const rks_dataset *dataset,
                                   const uint32_t *holders, const rks_key_words *words,
                                   rks_error *err);

#endif
