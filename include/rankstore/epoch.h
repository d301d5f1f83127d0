/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/epoch.h: a store's plan, and its batches in step order. Part of rankstore.h. */
#ifndef RANKSTORE_EPOCH_H
#define RANKSTORE_EPOCH_H

#include "rankstore/plan.h"
#include "rankstore/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* COLLECTIVE. Creates a plan (rks_plan_create) over the store's lengths. Each node needs 24 bytes a
 * sample, 12 for the plan and 12 for the index, shared by its ranks: the sorted order (bucket,
 * sorted, pack), the current epoch, and the next one, which is made in the background from 2^20
 * samples on. So 1 G samples fit a node of 64 GB. While an epoch is made, pack needs 4 more bytes a
 * sample and 4 a bin. While the plan is made, random with max_tokens needs 8 more bytes a sample,
 * and sequential 4.
 *
 * The rank that first asks for an epoch makes it while the others wait; an interrupt ends both. If
 * that rank dies, all ranks of its node get RKS_ERR_PEER with its number. rks_plan_free ends the
 * work in the background.
 *
 * Each rank makes the same bits for itself, and shares no epoch, if the plan has a mix or fewer
 * than 2^16 samples, or if the store was opened with no_share. So does a rank while the others of
 * its node use two other epochs. If shared memory has no room, each does, and a line on stderr says
 * so. Shared memory is a memfd: the size of /dev/shm does not matter. */
RKS_API rks_status rks_plan_open(rks_store *store, const rks_plan_options *options, rks_plan **plan,
                                 rks_error *err);

/* Lists the earlier generations of the store's dataset, oldest first, including those that
 * rks_prune has removed; its units record them. *count is 0 for a store over several datasets,
 * whose generations are combinations; a plan of rks_plan_open can resume their states, too. Free
 * *earlier with rks_release. */
RKS_API rks_status rks_store_earlier(const rks_store *store, rks_generation **earlier,
                                     size_t *count, rks_error *err);

/* ---- epoch: batches of this rank, in step order, fetched ahead ------------------------------- */

typedef struct rks_epoch rks_epoch;

typedef struct rks_epoch_options {
    size_t struct_size;
    uint64_t epoch;
    uint64_t first_step;
    /* Most batches fetched ahead. Default 0: as many as prefetch_bytes hold. */
    uint32_t prefetch_batches;
    /* Memory of batches fetched ahead, in bytes; one batch is always allowed. Default 0: four
     * batches within 1 GiB, and up to 64 batches within 2 MiB; of more than 64 ranks, as many
     * batches as ranks, up to 512, with 32 KiB for each. What is read from this node's disk ahead
     * of the fetches is bounded apart: up to 1,024 batches and 32 MiB of the page cache. */
    uint64_t prefetch_bytes;
    /* How to collate batches. Threads do it ahead of time, and only rks_epoch_next_arrays returns
     * them. Copied. NULL: batches are samples, from rks_epoch_next. */
    const rks_collate_options *collate;
    /* Arenas for the arrays, used while one is free; NULL: the library's memory. They serve this
     * epoch only: its close, or a failed open, ends them. rks_arenas_free may be called before the
     * epoch is closed. RKS_ERR_ARGUMENT without `collate`. */
    rks_arenas *arenas;
} rks_epoch_options;

RKS_API void rks_epoch_options_default(rks_epoch_options *options);
RKS_SIZED_DEFAULT(rks_epoch_options)
#define rks_epoch_options_default(options) rks_epoch_options_default_sized(options)

/* Opens an epoch and starts to fetch ahead. Store and plan must outlive it. The plan's world must
 * be the group's size. Not collective. The caller owns *epoch. */
RKS_API rks_status rks_epoch_open(rks_store *store, rks_plan *plan,
                                  const rks_epoch_options *options, rks_epoch **epoch,
                                  rks_error *err);
/* Returns the next batch, which the caller owns; *batch is NULL at the end. `step` may be NULL. If
 * another rank of the job is lost or fails, this rank gets that error, even if it needs nothing
 * from that rank. The error names the rank. It comes within 100 ms after this rank learns of the
 * loss. */
RKS_API rks_status rks_epoch_next(rks_epoch *epoch, rks_batch **batch, uint64_t *step,
                                  rks_error *err);
/* Returns the next batch as arrays, of an epoch that was opened with `collate`; *arrays is NULL at
 * the end. Both functions return RKS_ERR_STATE if the epoch was opened for the other. */
RKS_API rks_status rks_epoch_next_arrays(rks_epoch *epoch, rks_arrays **arrays, uint64_t *step,
                                         rks_error *err);
RKS_API void rks_epoch_close(rks_epoch *epoch); /* cancels what is in flight; NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
