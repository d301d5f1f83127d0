/* SPDX-License-Identifier: Apache-2.0
 *
 * lost_shards.h: the shards of a dataset that are on no rank's disk. */
#ifndef RKS_BUILDER_LOST_SHARDS_H
#define RKS_BUILDER_LOST_SHARDS_H

#include "dataset/dataset.h"
#include "group/group.h"

typedef struct rks_lost_shards {
    uint8_t *lost;  /* by shard: 1: no rank has it, nor a copy */
    size_t count;   /* of them */
    uint64_t *held; /* by rank: bytes of the dataset's samples that lie in the rank's directory */
} rks_lost_shards;

/* Where a rank looks for shards: in a directory, and in the folders that patterns fit. */
typedef struct rks_shard_search {
    const char *directory;
    const char *const *shards; /* patterns, before those of RKS_PATH */
    size_t shard_count;
} rks_shard_search;

/* COLLECTIVE. Looks for the dataset's shards on all ranks. On network file systems, which show
 * files late, it looks again for a few seconds. Free `shards` also after a failure. */
rks_status rks_lost_shards_find(rks_group *group, const rks_shard_search *search,
                                const rks_dataset *dataset, rks_lost_shards *shards,
                                rks_error *err);
void rks_lost_shards_free(rks_lost_shards *shards);

#endif
