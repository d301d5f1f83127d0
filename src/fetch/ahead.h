/* SPDX-License-Identifier: Apache-2.0
 *
 * ahead.h: reads from this node's disk what a plan will want, long before it is fetched.
 *
 * The caller pushes the ids of coming batches, hundreds of them: an id costs four bytes and no
 * buffer. Up to four threads find where they lie, and ask the disk for a window of them at a time,
 * sorted by place and with neighbours merged. They keep at most `max_bytes` of the page cache ahead
 * of the batches that have been started. A fetch that comes to its samples before the threads do
 * asks for them itself, or waits for the thread that reads them if ids come in the order of the file. If all shards are in memory, there is no thread and nothing is wanted. One
 * caller at a time. */
#ifndef RKS_FETCH_AHEAD_H
#define RKS_FETCH_AHEAD_H

#include "fetch/fetch.h"

typedef struct rks_ahead rks_ahead;

typedef struct rks_ahead_options {
    rks_fetcher *fetcher; /* must outlive it */
    /* Where sample `id` lies; false: nowhere. Called by the thread. */
    bool (*locate)(void *user, uint32_t id, uint32_t *shard, uint64_t *row);
    void *user;
    uint64_t max_bytes; /* 0: 32 MiB */
    uint32_t readers;   /* processes of this node that read by the same plan; 0: 1 */
} rks_ahead_options;

rks_status rks_ahead_open(const rks_ahead_options *options, rks_ahead **ahead, rks_error *err);
/* Ends the reading at once: at most the request under way is finished. NULL is accepted. */
void rks_ahead_close(rks_ahead *ahead);

/* Is there a use for more ids, and room? */
bool rks_ahead_wants(rks_ahead *ahead);
/* The ids of the next batch, copied; `last`: no others follow. False: no memory or no thread, and
 * nothing is read ahead. */
bool rks_ahead_push(rks_ahead *ahead, const uint32_t *ids, size_t count, bool last);
/* The first `count` ids of those that were pushed and not started yet are fetched now, or never.
 * `list`: their fetch's, which then leaves the disk to `ahead` and holds it; or NULL. */
void rks_ahead_started(rks_ahead *ahead, size_t count, rks_batch *list);

/* For tests: how many bytes it has asked for that are not started yet, and waits until it has
 * nothing to do. */
uint64_t rks_ahead_settle(rks_ahead *ahead);

#endif
