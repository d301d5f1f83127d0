/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h: sealed shards with known contents, their index, and engines that know each other: what
 * the tests of fetching need. */
#ifndef RKS_TESTS_FETCH_WORLD_H
#define RKS_TESTS_FETCH_WORLD_H

#include "fetch/fetch.h"
#include "support/check.h"

enum { WORLD_SHARDS = 3, WORLD_ENGINES = 4, WORLD_ROWS = 400 };

/* Shards 0 and 1 store keys; shard 2 derives them. Ids: shard * WORLD_ROWS + row. */
typedef struct world {
    char directory[64];
    rks_schema *schema;
    rks_shard *shards[WORLD_SHARDS];
    rks_digest ids[WORLD_SHARDS];
    uint64_t largest[WORLD_SHARDS];
    uint32_t lengths[WORLD_SHARDS][WORLD_ROWS];
    uint64_t hashes[WORLD_SHARDS][WORLD_ROWS];
    size_t engine_count;
    rks_engine *engines[WORLD_ENGINES];
} world;

void world_open(world *w);
void world_close(world *w);
/* Engines of `count` ranks in this process, over loopback. */
void world_connect(world *w, size_t count, uint32_t silence_ms);
void world_disconnect(world *w);

/* What the index says of sample `id`. */
rks_wanted world_wanted(const world *w, uint64_t id);
void world_wanted_many(const world *w, const uint64_t *ids, size_t count, rks_wanted *wanted);
/* Options of a fetcher of rank `rank`; shards of the bits in `mapped` are mapped, others are asked
 * of owners[shard]. */
rks_fetcher_options world_options(world *w, uint32_t rank, unsigned mapped,
                                  const int32_t *const *owners);
/* Fails the test where sample i of the batch is not sample `id`, byte for byte. */
void world_check_sample(rks_batch *batch, size_t i, uint64_t id);
void world_check_batch(rks_batch *batch, const uint64_t *ids, size_t count);

#endif
