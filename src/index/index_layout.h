/* SPDX-License-Identifier: Apache-2.0
 *
 * index_layout.h: the index as its own files see it. */
#ifndef RKS_INDEX_INDEX_LAYOUT_H
#define RKS_INDEX_INDEX_LAYOUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "index/index.h"

/* A span without its count. The count is the next run's first id less its own. */
typedef struct rks_index_run {
    uint32_t first_id;
    uint32_t shard;
    uint64_t first_row;
} rks_index_run;

/* Ids by hash, from a counting sort by the hash's top bits (index_find.c). */
typedef struct rks_index_table rks_index_table;

/* Checksums of the sections of all streams, each from its first read on; 0 before. */
typedef struct rks_index_sums {
    uint64_t *first; /* of each shard: the place of its first section in `of` */
    _Atomic(uint64_t) *of;
    uint64_t bytes; /* what is counted as used */
} rks_index_sums;

/* Everything but `owners`, `order`, `table` and `sums` stays the same after the open. */
struct rks_index {
    atomic_uint owners;
    uint64_t count;
    int fd;
    uint8_t *map;
    uint64_t bytes;
    uint64_t lengths_at; /* offsets in the map */
    uint64_t hashes_at;
    size_t column_count;
    uint64_t *column_at;
    uint32_t *item_sizes;
    uint64_t row_size; /* bytes of a sample in the stream */

    rks_index_run *runs; /* run_count + 1 of them; the last one's first id is count */
    size_t run_count;
    uint32_t shift;
    uint32_t *blocks;   /* of each 2^shift ids: the run that holds the first one */
    uint32_t *by_id;    /* run numbers by (shard, first id) */
    uint64_t *position; /* position[i]: how many samples of the same shard come before run by_id[i]
                         * in that order */
    uint64_t own_bytes; /* of these four arrays, as counted */

    void *copied; /* lengths of this process; NULL: none */
    void *order;  /* mapped; NULL until a plan needs it */
    uint64_t order_bytes;

    pthread_mutex_t mutex;            /* held while one thread builds the table */
    _Atomic(rks_index_table *) table; /* NULL until the first find */
    _Atomic(rks_index_sums *) sums;   /* NULL until the first read of a stream */
};

static inline uint64_t rks_index_run_count(const rks_index *index, size_t run)
{
    return index->runs[run + 1].first_id - index->runs[run].first_id;
}

/* Sets the part of by_id that belongs to a shard: [*first, *end). */
void rks_index_runs_of(const rks_index *index, uint32_t shard, size_t *first, size_t *end);

void rks_index_table_free(rks_index_table *table); /* NULL is accepted */
void rks_index_sums_free(rks_index_sums *sums);    /* NULL is accepted */

#endif
