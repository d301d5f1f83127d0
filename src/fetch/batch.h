/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: the inside of a batch: which samples were wanted, where each lies, and the memory
 * that holds them. */
#ifndef RKS_FETCH_BATCH_H
#define RKS_FETCH_BATCH_H

#include "base/blocks.h"
#include "fetch/ahead.h"
#include "fetch/fetch.h"

typedef struct rks_derived_key rks_derived_key;

struct rks_batch {
    rks_fetcher *fetcher; /* holds a reference */
    const rks_schema *schema;
    size_t count;
    rks_wanted *wanted;     /* count of them, behind this struct */
    rks_record_view *views; /* count of them, behind the wanted */
    rks_block *blocks;      /* replies as they were received, copies of local samples */
    size_t bytes;           /* all memory of the batch */
    size_t own_bytes;       /* of it this struct and what lies behind it */
    rks_value *values;      /* columns of sample `decoded`; made when first asked for */
    bool asked;             /* its local samples were asked of the disk */
    rks_ahead *ahead;       /* asks for them; held; NULL: nobody does */
    uint64_t ahead_end;     /* its ids end there among those of `ahead` */
    size_t decoded;         /* SIZE_MAX: none */
    rks_piece *pieces;      /* of its samples; NULL: all are whole */
    size_t piece_count;
    uint32_t *bins;         /* for layout rows: bin_count + 1 bounds from 0; NULL: not known */
    size_t bin_count;
    rks_derived_key **keys; /* count of them: derived keys that were asked for */
};

/* The batch takes the block, of the fetcher's pool, over. */
void rks_batch_add(rks_batch *batch, rks_block *block);

#endif
