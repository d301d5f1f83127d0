/* SPDX-License-Identifier: Apache-2.0
 *
 * share.h: an epoch of a plan lies once a node, in memory that its ranks share.
 *
 *   control     which epoch lies in which place, and who makes it
 *   place 0, 1  an epoch each: its ids, and which batch is where; pages come when it is made
 *
 * Whoever asks first for an epoch makes it, and the others wait for that rank. Then a thread of it,
 * with low priority, makes the next epoch in the other place, so that a new epoch is there when it
 * is asked for. As soon as the last rank has left an epoch, its place is free for the one after the
 * next.
 *
 * Memory a sample, beside lengths: 4 bytes for the sorted order (bucket, sorted, pack), 4 for an
 * epoch, 4 for the next one: 12 a node, however many ranks it has, and 12 for the index (lengths and
 * key hashes). So 1 G samples take 24 GB. random has no order, and takes its 4 bytes while it
 * shuffles; pack takes 4 more while it deals, and 4 a bin; resuming on another world 1 bit more.
 *
 * Laws
 *   owner    The ranks of a node own the memory together. It has no name: it is gone with the last
 *            process that holds it, however these end.
 *   writer   A place has one writer: the rank that holds its write lock. It writes arrays through a
 *            map that only it has, and seals them when it says that the epoch is ready. Nobody
 *            writes to a sealed place while a rank has it at hand.
 *   reader   A rank holds a read lock of the place that it has at hand, and maps it for reading. All
 *            see the same bits, which are those that each rank would make alone.
 *   death    Locks are the kernel's, and end with their holder. A rank that died as it wrote what the
 *            others wait for is found by the next one that asks, and from then on all ranks of the
 *            node get RKS_ERR_PEER with its rank. If it was at the next epoch, or was a child of a
 *            rank, another one takes its place: whether its job has failed is for the group to say. A writer that does not go on for the silence limit is RKS_ERR_TIMEOUT. Dead
 *            readers hold up nobody.
 *   failure  If there is no plan for an epoch, all get the writer's error. Other errors are the
 *            writer's alone, and the next rank tries. Ctrl-C ends writing and waiting.
 *   alone    A rank makes an epoch in memory of its own, with the same bits, if both places are in
 *            use for other epochs; if memory lacks (one line on stderr); of a plan with a mix, of
 *            less than 65,536 samples, of a store with no_share, or on a node whose ranks have no
 *            directory and no network namespace in common.
 *   fork     A child of a rank looks at the places by itself, and makes nothing ahead. Close, or a
 *            parent's end, does not take from it what it has at hand. */
#ifndef RKS_PLAN_SHARE_H
#define RKS_PLAN_SHARE_H

#include "rankstore/base.h"

typedef struct rks_plan_share_options {
    int fd;              /* from rks_plan_share_memory of this node; not kept. The same options and
                          * lengths on all ranks that have it */
    uint32_t rank;       /* for errors of others */
    uint32_t silence_ms; /* a writer that stands still for so long is waited for no more; 0: for
                          * ever */
    rks_status (*stopped)(void *user, rks_error *err); /* asked while waiting: is there still
                                                        * something to wait for? NULL: yes */
    void *user;
    void (*hold)(void *user); /* the plan keeps `user` until `release`, which comes when it ends; NULL:
                               * `user` outlives the plan */
    void (*release)(void *user);
} rks_plan_share_options;

/* Is sharing worth it for a plan of that size? */
bool rks_plan_shares(uint64_t samples);
/* The control memory, by one rank a node. The descriptor is the caller's. */
rks_status rks_plan_share_memory(int *fd, rks_error *err);
/* For tests, process-wide: plans of that many samples share, and such epochs are made ahead; 0: the
 * defaults, 2^16 and 2^20. */
void rks_plan_share_set(uint64_t shared_from, uint64_t ahead_from);

#endif
