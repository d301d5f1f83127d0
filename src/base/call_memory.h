/* SPDX-License-Identifier: Apache-2.0
 *
 * call_memory.h: how many bytes of memory a call takes at its peak, in the order of the calls'
 * names. Each is measured: the test that it names compares it with what the kernel says. Memory of
 * the caller, and pages of files, which the kernel can drop, do not count.
 *
 * gather, ls --sort and plans can need more than there is: they compare it with what is left
 * (rks_memory_check) before they take any. What the others need has a bound, or lies in files
 * where it is large (base/scratch.h). */
#ifndef RKS_BASE_CALL_MEMORY_H
#define RKS_BASE_CALL_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* What an array takes that base/scratch.h holds: above 96 MiB it lies in a file. */
static inline uint64_t rks_memory_of_scratch(uint64_t bytes)
{
    return bytes <= (uint64_t)96 << 20 ? bytes : 0;
}

/* Dedup while building, on each rank, beyond the build: 16 for each sample of its share, and on
 * one node 16 in memory that its ranks share. `samples`: of all ranks.
 * unit/manage/test_call_memory. */
static inline uint64_t rks_memory_of_dedup(uint64_t samples, uint64_t ranks)
{
    return rks_memory_of_scratch(16 * (samples / ranks)) + 16 * samples;
}

/* The search for a key, from the first call on: 4 for each sample and each of its buckets, of which
 * there are the least power of two above a quarter of the samples. unit/manage/test_call_memory. */
static inline uint64_t rks_memory_of_find(uint64_t samples)
{
    uint64_t buckets = 1;
    while (samples / buckets >= 4)
        buckets *= 2;
    return rks_memory_of_scratch(4 * (samples + buckets));
}

/* Diff, on rank 0, of `samples` in b: 8 for the contents of each, a bit for whether it was found,
 * the search for its key, and three times 8 for each of at most 2^20 ids: this rank's contents,
 * those that all ranks brought, and the chunk that is compared. unit/manage/test_call_memory. */
static inline uint64_t rks_memory_of_diff(uint64_t samples)
{
    uint64_t chunk = samples < 1 << 20 ? samples : 1 << 20;
    return rks_memory_of_scratch(8 * samples) + samples / 8 + rks_memory_of_find(samples) +
           3 * 8 * chunk;
}

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

/* ls --sort without --head, of the samples that it chooses: 32 for each, the same again while they
 * are sorted, and for a key the 32 or more of its own allocation. With --head N: of N samples. The
 * list doubles, so what it reserves may be twice as much. tools/rankstore/cmd_ls.c has the sum,
 * since the command calls the public library alone; cli/memory. */

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
