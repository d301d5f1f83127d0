/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_cache.h: the ranks of a node share each epoch of a plan, in memory that holds it once.
 *
 *   control     which epoch is in which place, and which rank makes it
 *   place 0, 1  an epoch each: its ids, and which batch is at which slot; pages are allocated when
 *               the epoch is made
 *
 * The first rank that needs an epoch makes it, and the others wait for that rank. Then a thread of
 * that rank, with low priority, makes the next epoch in the other place, so that it is ready when
 * ranks need it. As soon as the last rank has left an epoch, its place is free for the epoch after
 * the next.
 *
 * Memory a sample, beside lengths: 4 bytes for the sorted order (bucket, sorted, pack), 4 for an
 * epoch, and 4 for the next one. That is 12 a node, however many ranks it has, and another 12 for
 * the index (lengths and key hashes). So 1 G samples take 24 GB.
 * - random has no order, but takes its 4 bytes while it shuffles.
 * - pack takes 4 more while it deals, and 4 a bin.
 * - Resuming on another world takes 1 bit more.
 *
 * Laws
 *   owner    The ranks of a node own the memory together. It has no name. It is freed with the last
 *            process that holds it, however the processes end.
 *   writer   A place has one writer: the rank that holds its write lock. The writer fills the
 *            arrays through a map of its own, and seals them when it marks the epoch ready. Nobody
 *            writes to a sealed place while a rank uses it.
 *   reader   A rank holds a read lock on the place of its current epoch, and maps it for reading.
 *            All ranks see the same bits, which each rank would also make alone.
 *   death    Locks belong to the kernel and end with their holder. If a rank dies while it makes an
 *            epoch that others wait for, the next rank that asks detects it. From then on all ranks
 *            of the node get RKS_ERR_PEER with its rank. If the dead rank was making the next
 *            epoch, or was a child of a rank, another rank takes over: the group decides whether
 *            the job has failed. A writer that makes no progress for the silence limit is
 *            RKS_ERR_TIMEOUT. Dead readers hold up nobody.
 *   failure  If no plan exists for an epoch, all ranks get the writer's error. Any other error goes
 *            only to the writer, and the next rank tries. Ctrl-C ends writing and waiting.
 *   alone    A rank makes an epoch in its own memory, with the same bits, if both places are in use
 *            for other epochs or memory is short (one line on stderr). It also does so for a plan
 *            with a mix, for fewer than 65,536 samples, for a store with no_share, and on a node
 *            whose ranks share neither a directory nor a network namespace.
 *   fork     A child of a rank reads the places on its own, and makes no epoch ahead. Closing the
 *            plan in the parent, or the parent's end, does not take the child's current epoch
 *            away. */
#ifndef RKS_PLAN_CACHE_EPOCH_CACHE_H
#define RKS_PLAN_CACHE_EPOCH_CACHE_H

#include "rankstore/base.h"

typedef struct rks_plan_share_options {
    int fd;              /* from rks_plan_share_memory of this node; reopened, so the caller keeps
                          * it. All ranks that pass it have the same options and lengths */
    uint32_t rank;       /* for the errors of other ranks */
    uint32_t silence_ms; /* time limit of the wait for a writer without progress; 0: none */
    rks_status (*stopped)(void *user, rks_error *err); /* called while waiting: returns an error to
                                                        * stop waiting; NULL: never stop */
    void *user;
    void (*hold)(void *user); /* the plan keeps `user` from this call until it calls `release` at
                               * its end; NULL: `user` outlives the plan */
    void (*release)(void *user);
} rks_plan_share_options;

/* Returns true if sharing is worth it for a plan of that many samples. */
bool rks_plan_shares(uint64_t samples);
/* Makes the memory; one rank of a node calls it. The caller owns *fd and closes it. RKS_ERR_IO or
 * RKS_ERR_MEMORY if memory is short. */
rks_status rks_plan_share_memory(int *fd, rks_error *err);
/* Sets from how many samples on plans cache, and from how many on the next epoch is made ahead, for
 * tests. 0 restores the defaults, 2^16 and 2^20. Process-wide. */
void rks_plan_share_set(uint64_t shared_from, uint64_t ahead_from);

#endif
