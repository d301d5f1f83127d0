/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h: the inside of a batch: which samples were wanted, where each lies, and the memory
 * that holds them. */
#ifndef RKS_FETCH_BATCH_H
#define RKS_FETCH_BATCH_H

#include "fetch/fetch.h"

/* Memory of a batch: a reply as it was received, or the copies of local samples. `data` is
 * aligned to 64 bytes and lies in the same allocation. */
typedef struct rks_batch_block {
    struct rks_batch_block *next;
    uint8_t *data;
    size_t size;  /* of data */
    size_t bytes; /* of the allocation */
} rks_batch_block;

typedef struct rks_derived_key rks_derived_key;

struct rks_batch {
    rks_fetcher *fetcher;
    const rks_schema *schema;
    size_t count;
    rks_wanted *wanted;     /* count of them, behind this struct */
    rks_record_view *views; /* count of them, behind the wanted */
    rks_batch_block *blocks;
    size_t bytes;           /* all memory of the batch */
    rks_value *values;      /* columns of sample `decoded`; made when first asked for */
    size_t decoded;         /* SIZE_MAX: none */
    rks_derived_key **keys; /* count of them: derived keys that were asked for */
};

/* A batch that waits for its samples. `wanted` is copied. */
rks_status rks_batch_create(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                            rks_batch **batch, rks_error *err);
/* Memory that is no batch's yet; RKS_ERR_MEMORY. It holds whatever was in it before. */
rks_batch_block *rks_batch_block_create(rks_fetcher *fetcher, size_t size, rks_error *err);
/* NULL is accepted. The fetcher keeps up to 16 MiB of large blocks, which count as its memory. */
void rks_batch_block_free(rks_fetcher *fetcher, rks_batch_block *block);
void rks_batch_blocks_free_kept(rks_fetcher *fetcher); /* at its end */
/* The batch takes the block over. */
void rks_batch_add(rks_batch *batch, rks_batch_block *block);

#endif
