/* SPDX-License-Identifier: Apache-2.0
 *
 * readahead.h: reads samples of a plan from this node's disk long before they are fetched.
 *
 * The caller pushes the ids of hundreds of coming batches: an id costs four bytes and no buffer. Up
 * to four threads locate the records and ask the disk for a window of them at a time, sorted by
 * place and with neighbours merged. They stay at most `max_bytes` of the page cache ahead of the
 * batches that have been started. A fetch that needs its samples before the threads read them asks
 * for them itself. If the ids come in the order of a file, it waits for the thread that reads that
 * file instead. If all shards are in memory, there is no thread and rks_readahead_wants returns
 * false. One caller at a time. */
#ifndef RKS_FETCH_READAHEAD_H
#define RKS_FETCH_READAHEAD_H

#include "fetch/fetch.h"

typedef struct rks_readahead_options {
    rks_fetcher *fetcher; /* must outlive it */
    /* Finds the record of sample `id`. Returns false if there is none. Runs on the reading
     * threads. */
    bool (*locate)(void *user, uint32_t id, uint32_t *shard, uint64_t *row);
    void *user;
    uint64_t max_bytes; /* most bytes read ahead of the started batches; 0: 32 MiB */
    uint32_t readers;   /* processes of this node that read by the same plan; 0: 1 */
} rks_readahead_options;

/* Creates a reader, which starts no thread yet. */
rks_status rks_readahead_open(const rks_readahead_options *options, rks_readahead **ahead,
                              rks_error *err);
/* Stops reading at once, after the disk requests in progress, and frees the reader when no batch
 * uses it. NULL is accepted. */
void rks_readahead_close(rks_readahead *ahead);

/* Returns true if the caller should push more ids. */
bool rks_readahead_wants(rks_readahead *ahead);
/* Pushes the ids of the next batch; copies them. `last`: no others follow. Returns false if memory
 * is short or no thread starts; then nothing is read ahead. */
bool rks_readahead_push(rks_readahead *ahead, const uint32_t *ids, size_t count, bool last);
/* Reports that the next `count` pushed ids are being fetched now, or never will be. `list` is their
 * fetch's list, or NULL. The list then holds `ahead`, and leaves the disk to it. */
void rks_readahead_started(rks_readahead *ahead, size_t count, rks_request_list *list);

/* The fetch's side. Returns true if the `count` ids before `end` were not all asked for; the caller
 * must then ask the disk for them. If ids come in the order of a file, waits until they are
 * read. */
bool rks_readahead_claim(rks_readahead *ahead, uint64_t end, size_t count);
/* Reports that pages read ahead were gone before their fetch: memory is short. From now on it reads
 * half as far ahead, but at least a window. Counts once for all pages asked for so far. */
void rks_readahead_lost(rks_readahead *ahead);
void rks_readahead_release(rks_readahead *ahead); /* NULL is accepted */

/* For tests: waits until there is nothing to read, and returns the bytes asked for that have not
 * been started. */
uint64_t rks_readahead_settle(rks_readahead *ahead);

#endif
