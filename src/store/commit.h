/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h: the check that stands between sealed parts and a dataset. */
#ifndef RKS_STORE_COMMIT_H
#define RKS_STORE_COMMIT_H

#include "group/group.h"
#include "shard/dataset.h"
#include "store/build.h"
#include "store/parts.h"

/* Derived keys are equal where two units have one name and share rows: RKS_ERR_DATA names the rows
 * in `words` (NULL: by the units' numbers). */
rks_status rks_commit_check_names(const rks_dataset *dataset, const rks_key_words *words,
                                  rks_error *err);
/* COLLECTIVE. The sealed but not yet committed dataset as a store. End it with rks_store_close. */
rks_status rks_commit_open(rks_group *group, const char *directory, const rks_dataset *dataset,
                           rks_store **store, rks_error *err);
/* COLLECTIVE. Opens the not yet committed dataset as a store and looks for equal keys: equal hashes
 * are compared by full key at their owners. RKS_ERR_DATA shows the key, and where both
 * samples come from: holders[s] is the rank that brought dataset->shards[s]; NULL: not worth
 * saying. `words` NULL: as all of them NULL. */
rks_status rks_commit_check_keys(rks_group *group, const char *directory,
                                 const rks_dataset *dataset, const uint32_t *holders,
                                 const rks_key_words *words, rks_error *err);

/* COLLECTIVE. Sets what the build's selection leaves out of the sealed samples: dataset->excluded,
 * count and id. Nothing to do without dedup and sample. */
rks_status rks_commit_leave_out(rks_parts *parts, rks_dataset *dataset, const uint32_t *holders,
                                rks_error *err);

#endif
