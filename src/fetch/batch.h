/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: the internals of a batch, which answers a list of requests: where each sample is, and
 * the memory that holds them. */
#ifndef RKS_FETCH_BATCH_H
#define RKS_FETCH_BATCH_H

#include "base/blocks.h"
#include "fetch/fetch.h"

typedef struct rks_derived_key rks_derived_key;

struct rks_batch {
    rks_request_list *list;
    rks_fetcher *fetcher; /* the list's, and held by it, as the next two */
    size_t count;
    const rks_wanted *wanted;
    const rks_schema *schema;
    rks_record_view *views; /* `count` of them, after this struct */
    rks_block *blocks;      /* received replies, and copies of local samples */
    size_t bytes;           /* all memory of the batch */
    size_t own_bytes;       /* of `bytes`: this struct and what follows it */
    rks_value *values;      /* columns of sample `decoded`; allocated on first use */
    size_t decoded;         /* SIZE_MAX: none */
    rks_derived_key **keys; /* `count` of them: derived keys that were read */
};

/* Creates the batch of a list, and takes that over on success. No sample has arrived yet. */
rks_status rks_batch_create(rks_request_list *list, rks_batch **batch, rks_error *err);
/* Frees the batch, but leaves its list to the caller. */
void rks_batch_discard(rks_batch *batch);
/* Adds a block of the fetcher's pool to the batch, which takes it over. */
void rks_batch_add(rks_batch *batch, rks_block *block);

#endif
