/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: the internals of a batch: which samples are wanted, where each one is, and the memory
 * that holds them. */
#ifndef RKS_FETCH_BATCH_H
#define RKS_FETCH_BATCH_H

#include "base/blocks.h"
#include "fetch/readahead.h"
#include "fetch/fetch.h"

typedef struct rks_derived_key rks_derived_key;

struct rks_batch {
    rks_fetcher *fetcher; /* holds a reference */
    const rks_schema *schema;
    size_t count;
    rks_wanted *wanted;     /* `count` of them, after this struct */
    rks_record_view *views; /* `count` of them, after `wanted` */
    rks_block *blocks;      /* received replies, and copies of local samples */
    size_t bytes;           /* all memory of the batch */
    size_t own_bytes;       /* of `bytes`: this struct and what follows it */
    rks_value *values;      /* columns of sample `decoded`; allocated on first use */
    bool asked;             /* the disk was asked for its local samples */
    rks_readahead *ahead;   /* reads its samples ahead; holds a reference; NULL: none */
    uint64_t ahead_end;     /* end of its ids, counted from the first one pushed to `ahead` */
    size_t decoded;         /* SIZE_MAX: none */
    rks_piece *pieces;      /* pieces of its samples; NULL: all are whole */
    size_t piece_count;
    uint32_t *bins; /* for layout rows: bin_count + 1 bounds from 0; NULL: unknown */
    size_t bin_count;
    rks_derived_key **keys; /* `count` of them: derived keys that were read */
};

/* Adds a block of the fetcher's pool to the batch, which takes it over. */
void rks_batch_add(rks_batch *batch, rks_block *block);

#endif
