/* SPDX-License-Identifier: Apache-2.0
 *
 * call_memory.h: how many bytes of memory a call takes at its peak, in the order of the calls'
 * names. Callers compare them with what is left (rks_memory_check) before they take any. Each is
 * measured: the test that it names compares it with what the kernel says. Memory of the caller, and
 * pages of files, which the kernel can drop, do not count. */
#ifndef RKS_BASE_CALL_MEMORY_H
#define RKS_BASE_CALL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Gather, on the rank that receives: of `results` of all ranks, for each
 *
 *   18  and its name, in the list of all; the rank's own ones twice
 *   64  its place in the order, and a copy while they are sorted
 *   12  the index of all results
 *   20  the shard that holds them
 *
 * `listed`, `own_listed`: bytes of all names and of the rank's own, with 18 for each.
 * unit/builder/test_gather_memory. */
static inline uint64_t rks_memory_of_gather(uint64_t results, uint64_t listed, uint64_t own_listed)
{
    return listed + own_listed + 96 * results;
}

/* A plan and one of its epochs: for each sample and each piece that planning makes of samples
 *
 *   4   the order of lengths, or an order to shuffle; not for "sequential"
 *   4   the epoch's ids; with a mix for each draw instead
 *   4   with a mix: the draws that remain
 *   4   "pack": the places in bins
 *   60  pack_window: the bins while they are packed
 *   16  for a piece: its sample, begin and place
 *
 * and 8 for each batch or bin. unit/plan/test_plan_memory. */
typedef struct rks_plan_amounts {
    uint64_t items; /* samples and pieces */
    uint64_t draws; /* without a mix the same */
    uint64_t pieces, batches;
    bool ordered, mixed, packs, windows;
} rks_plan_amounts;

static inline uint64_t rks_memory_of_plan(const rks_plan_amounts *of)
{
    uint64_t each =
        (of->ordered ? 4 : 0) + (of->mixed ? 4 : 0) + (of->packs ? 4 : 0) + (of->windows ? 60 : 0);
    return each * of->items + 4 * of->draws + 16 * of->pieces + 8 * of->batches;
}

#endif
