/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/batch.h: samples that were fetched, and fetches on their way. Part of rankstore.h. */
#ifndef RANKSTORE_BATCH_H
#define RANKSTORE_BATCH_H

#include "rankstore/collate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A fetch that rks_store_fetch_start() began. */
typedef struct rks_fetch rks_fetch;
typedef struct rks_batch rks_batch;
RKS_API bool rks_fetch_ready(rks_fetch *fetch);
RKS_API rks_status rks_fetch_wait(rks_fetch *fetch, rks_batch **batch, rks_error *err);
RKS_API void rks_fetch_cancel(rks_fetch *fetch); /* NULL is accepted */

/* A batch owns the bytes of its samples. They are writable, and valid until rks_batch_free. A batch
 * may outlive its store: what the store had mapped stays mapped until its last batch and view are
 * freed. */
RKS_API size_t rks_batch_count(const rks_batch *batch);
RKS_API uint64_t rks_batch_id(const rks_batch *batch, size_t i);
RKS_API uint32_t rks_batch_length(const rks_batch *batch, size_t i);
/* Returns the pieces of the batch, by place: samples of which the plan has only a part. The batch
 * holds their whole bytes; rks_batch_collate cuts them. If all samples are whole, *count is 0 and
 * the result may be NULL. */
RKS_API const rks_piece *rks_batch_pieces(const rks_batch *batch, size_t *count);
/* Returns the key of sample i, *size bytes, owned by the batch; `size` may be NULL. Returns NULL if
 * i is out of range, if allocation fails, or if keys are derived and the store was closed before
 * the first call. */
RKS_API const void *rks_batch_key(const rks_batch *batch, size_t i, size_t *size);
/* All columns of sample i in the stored layout (FORMAT.md). */
RKS_API uint8_t *rks_batch_payload(rks_batch *batch, size_t i, size_t *size);
/* One column of sample i; value->data points into the batch. */
RKS_API rks_status rks_batch_value(rks_batch *batch, size_t i, uint32_t column, rks_value *value,
                                   rks_error *err);
/* Adds the digest (XXH3-128 over key and contents) of each sample to sum[0] (low) and sum[1]
 * (high), modulo 2^128: a sum that does not depend on order, batches or ranks. */
RKS_API void rks_batch_digest(rks_batch *batch, uint64_t sum[2]);
RKS_API void rks_batch_free(rks_batch *batch); /* NULL is accepted */

/* Collates a batch into arrays; the batch does not change. RKS_ERR_ARGUMENT names the column and
 * the broken rule. The caller owns *arrays. */
RKS_API rks_status rks_batch_collate(rks_batch *batch, const rks_collate_options *options,
                                     rks_arrays **arrays, rks_error *err);

/* A sample that rks_store_view() has opened. */
typedef struct rks_view rks_view;
/* Returns a column. value->data points into the view; do not write to it. */
RKS_API rks_status rks_view_value(const rks_view *view, uint32_t column, rks_value *value,
                                  rks_error *err);
RKS_API void rks_view_free(rks_view *view); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
