/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h: sealed shards with known contents, their index, and engines that know each other: what
 * the tests of fetching need. */
#ifndef RKS_TESTS_FETCH_WORLD_H
#define RKS_TESTS_FETCH_WORLD_H

#include "fetch/fetch.h"
#include "fetch/fetch_server.h"
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

/* The one that the tests of a program share, and their error. */
extern world w;
extern rks_error err;

void world_open(void);
void world_close(void);
/* A group's set-up and tear-down: opens `w`; closes it, and fails where memory is still in use. */
int world_begin(void **state);
int world_end(void **state);
/* Engines of `count` ranks in this process, over loopback. */
void world_connect(size_t count, uint32_t silence_ms);
void world_disconnect(void);

/* What the index says of sample `id`. */
rks_wanted world_wanted(uint64_t id);
void world_wanted_many(const uint64_t *ids, size_t count, rks_wanted *wanted);
/* Ids all over the shards, with repeats. */
void world_draw(uint64_t *ids, size_t count, unsigned seed);
/* Options of a fetcher of rank `rank`; shards of the bits in `mapped` are mapped, others are asked
 * of owners[shard]. */
rks_fetcher_options world_options(uint32_t rank, unsigned mapped, const int32_t *const *owners);
/* rks_fetcher_fetch and its like, of a list that is copied. */
rks_status world_fetch(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                       rks_batch **batch, rks_error *why);
rks_status world_start(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                       rks_fetch **fetch, rks_error *why);
rks_status world_collate(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                         rks_collate *collate, rks_arrays **arrays, rks_error *why);
rks_status world_start_arrays(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                              rks_collate *collate, rks_fetch **fetch, rks_error *why);
/* A fetcher of rank 0, with those options. */
rks_fetcher *world_fetcher(unsigned mapped, const int32_t *const *owners);
/* Four threads read through one fetcher, `rounds` times each; fails where one answers false. */
typedef bool (*world_read_fn)(rks_fetcher *fetcher, unsigned round, unsigned seed);
void world_read_by_threads(rks_fetcher *fetcher, world_read_fn read, unsigned rounds);
/* Fails the test where sample i of the batch is not sample `id`, byte for byte. */
void world_check_sample(rks_batch *batch, size_t i, uint64_t id);
void world_check_batch(rks_batch *batch, const uint64_t *ids, size_t count);
/* The page `offset` bytes after the row's begin cannot be read any more: it is of a file that has
 * none. */
void world_lose_page(const rks_shard *shard, uint64_t row, size_t offset);

#endif
