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

/* A batch owns the bytes of its samples; writable, valid until rks_batch_free. It may outlive its
 * store: all of it stays readable, and what the store had mapped stays so until its last batch and
 * view are gone. */
RKS_API size_t rks_batch_count(const rks_batch *batch);
RKS_API uint64_t rks_batch_id(const rks_batch *batch, size_t i);
RKS_API uint32_t rks_batch_length(const rks_batch *batch, size_t i);
/* Of which samples the plan meant a piece alone, by place; their bytes are whole, and
 * rks_batch_collate cuts them. If all are whole, *count is 0 and the result may be NULL. */
RKS_API const rks_piece *rks_batch_pieces(const rks_batch *batch, size_t *count);
/* *size (may be NULL) bytes, owned by the batch. NULL if i is out of range, if allocation fails, or if
 * the keys are derived and the store was closed before the first call. */
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

/* Arrays of a batch, which stays as it is. RKS_ERR_ARGUMENT names the column and the rule that it
 * breaks. The caller owns *arrays. */
RKS_API rks_status rks_batch_collate(rks_batch *batch, const rks_collate_options *options,
                                     rks_arrays **arrays, rks_error *err);

/* What rks_store_view() gives. */
typedef struct rks_view rks_view;
/* value->data points into the view: not to be written. */
RKS_API rks_status rks_view_value(const rks_view *view, uint32_t column, rks_value *value,
                                  rks_error *err);
RKS_API void rks_view_free(rks_view *view); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
