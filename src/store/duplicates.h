/* SPDX-License-Identifier: Apache-2.0
 *
 * duplicates.h: looks for equal keys in a dataset that is sealed but not committed yet. */
#ifndef RKS_STORE_DUPLICATES_H
#define RKS_STORE_DUPLICATES_H

#include "dataset/key_description.h"
#include "group/group.h"
#include "rankstore/store.h"

/* COLLECTIVE. Opens the sealed but not yet committed dataset as a store. End it with
 * rks_store_close. `status` and *err: this rank's result so far, as in rks_group_agree; `dataset`
 * is used only if it is RKS_OK. `missing`: the option of rks_store_open. `pairs`: as in
 * rks_store_open_dataset. */
rks_status rks_commit_open(rks_group *group, const char *directory, rks_status status,
                           const rks_dataset *dataset, const char *missing, uint64_t *pairs,
                           rks_store **store, rks_error *err);
/* COLLECTIVE. Looks for equal keys in the store that rks_commit_open has opened: samples with equal
 * hashes are compared by full key at their owners. RKS_ERR_DATA shows the key, and where both
 * samples come from: holders[s] is the rank that brought dataset->shards[s]; NULL: ranks are not
 * named. `words` NULL: like one whose members are all NULL. */
rks_status rks_commit_compare_keys(rks_store *store, uint64_t pairs, const rks_dataset *dataset,
                                   const uint32_t *holders, const rks_key_words *words,
                                   rks_error *err);

#endif
