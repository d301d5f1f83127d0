/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch.h: fetches samples by (shard, row), from the map of a shard on this node or from the rank
 * that owns it: the requester's side. The public calls (rks_store_fetch, rks_batch_...) are thin
 * layers over this. */
#ifndef RKS_FETCH_FETCH_H
#define RKS_FETCH_FETCH_H

#include "collate/collate.h"
#include "fetch/arriving.h"
#include "fetch/request_list.h"
#include "rankstore/batch.h"
#include "shard/shard.h"
#include "transport/engine.h"

typedef struct rks_fetcher_options {
    rks_engine *engine; /* may be NULL if all shards are mapped */
    uint32_t rank;
    rks_shard *const *shards; /* mapped shards by dataset number; NULL: ask the owner. Copied */
    const rks_digest *shard_ids;
    const uint64_t *largest;      /* bytes of each shard's largest record; limits a reply */
    const int32_t *const *owners; /* ranks that serve each shard, in order of preference, ended by
                                     -1. Not copied: must outlive the fetcher */
    /* By rank: the rank to ask first for records that this rank owns. NULL: ask each owner itself.
     * Not copied: must outlive the fetcher. */
    const uint32_t *asks;
    size_t shard_count;
    const rks_schema *schema; /* of the samples in batches and views */
    /* By shard: converts its records to samples of `schema`; NULL entry: no conversion. NULL: no
     * shard needs one. The array and what its entries point to must outlive the fetcher. */
    const rks_record_fit *const *fits;
    /* Shards whose records may not be here yet. Not copied: what it points to must outlive the
     * fetcher's open life. NULL: all are. */
    const rks_arriving *arriving;
    bool check;
    uint64_t inflight_bytes;
    /* Milliseconds for which an owner may send no byte of a reply. Then the waiter gives the
     * request up and asks others. 0: no limit. */
    uint32_t timeout_ms;
    /* How long a close waits for threads that read from storage, which may hang. 0: no limit. */
    uint32_t silence_ms;
    uint32_t patience_ms;     /* after this wait a line on stderr names the file. 0: never */
    enum rks_service service; /* the service of the owners */
    /* Prints "sample 17 (key ...)" for messages. Runs on any thread, also the engine's: must not
     * wait. */
    const char *(*describe)(void *user, uint64_t id, char *text, size_t size);
    /* If keys are derived: writes the key of sample `id`, whose record has this source row, into
     * key[RKS_KEY_MAX]. Returns its size, for rks_batch_key. NULL if keys are stored. */
    size_t (*derive_key)(void *user, uint64_t id, uint32_t source_row, uint8_t *key);
    void *user; /* passed to describe, derive_key and release */
    /* Called on any thread when the last batch and request are gone: everything that the options
     * point to may be freed then. NULL: it is never freed. Not called if rks_fetcher_open fails. */
    void (*release)(void *user);
} rks_fetcher_options;

/* Opens a fetcher; copies the options. */
rks_status rks_fetcher_open(const rks_fetcher_options *options, rks_fetcher **fetcher,
                            rks_error *err);
/* Closes a fetcher. The caller must have ended its fetches; batches may live on. If the storage
 * hangs, the fetcher stays in memory for the thread that reads, and `release` is not called. NULL
 * is accepted. */
void rks_fetcher_close(rks_fetcher *fetcher);
/* Makes calls that wait for samples fail with RKS_ERR_STATE, now and later: the fetcher is about to
 * be closed. Any thread. */
void rks_fetcher_end_waits(rks_fetcher *fetcher);

/* Points `values`, one for each column of the schema, at the columns of sample i. */
rks_status rks_batch_decode(const rks_batch *batch, size_t i, rks_value *values, rks_error *err);

/* Fetches in the calling thread, and waits as rks_fetch_wait. Copies samples of maps in this
 * thread, so no other thread takes part if all are mapped and in memory. Takes the list over, also
 * on failure. */
rks_status rks_fetcher_fetch(rks_fetcher *fetcher, rks_request_list *list, rks_batch **batch,
                             rks_error *err);
/* Starts a fetch ahead of its use. Threads of the fetcher copy and check samples, or the waiter
 * does if it comes first. Takes the list over on success. Use the public rks_fetch_ready,
 * rks_fetch_wait and rks_fetch_cancel on the fetch. */
rks_status rks_fetcher_start(rks_fetcher *fetcher, rks_request_list *list, rks_fetch **fetch,
                             rks_error *err);
/* Returns true if some samples come from other ranks. */
bool rks_fetcher_is_remote(const rks_fetcher *fetcher);
/* With `on`, queues requests, and wakes no worker. Without, sends the queued ones together, those
 * to one owner in one write, and wakes workers for what was started meanwhile. Keep the time
 * between the two short: fetches of other threads wait, too. */
void rks_fetcher_gather(rks_fetcher *fetcher, bool on);
/* Returns how often samples came late because a rank had to bring them from home first. */
uint64_t rks_fetcher_home_waits(const rks_fetcher *fetcher);
/* The same two for arrays: a fetch with `collate` makes them when its last sample has arrived. */
rks_status rks_fetcher_collate(rks_fetcher *fetcher, rks_request_list *list, rks_collate *collate,
                               rks_arrays **arrays, rks_error *err);
rks_status rks_fetcher_start_arrays(rks_fetcher *fetcher, rks_request_list *list,
                                    rks_collate *collate, rks_fetch **fetch, rks_error *err);
/* Waits for a fetch that rks_fetcher_start_arrays started, as rks_fetch_wait. */
rks_status rks_fetch_wait_arrays(rks_fetch *fetch, rks_arrays **arrays, rks_error *err);
/* Waits for either kind of fetch, and sets *batch or *arrays. After RKS_ERR_CANCELLED the fetch
 * continues and *fetch stays; otherwise *fetch becomes NULL. */
rks_status rks_fetch_wait_either(rks_fetch **fetch, rks_batch **batch, rks_arrays **arrays,
                                 rks_error *err);
/* Returns the bytes of a batch's memory, as in peak_batch_bytes. */
uint64_t rks_batch_memory(const rks_batch *batch);
/* Returns the bytes of the fetch's batch or arrays if all of it has arrived, else 0. */
uint64_t rks_fetch_memory(rks_fetch *fetch);

/* Views one checked sample in the map of its shard. Fetches it if the shard is not mapped. A view
 * holds the fetcher, and so delays `release`. */
rks_status rks_fetcher_view(rks_fetcher *fetcher, const rks_wanted *wanted, rks_view **view,
                            rks_error *err);
/* Brings the record of a mapped sample into memory if it is not known to be there. Waits as
 * rks_fetch_wait, and fails only if that is to stop; what is wrong with the record, its reader will
 * see. */
rks_status rks_fetcher_bring(rks_fetcher *fetcher, const rks_wanted *wanted, rks_error *err);
/* Does the work of rks_store_read_now. */
rks_status rks_fetcher_read_now(rks_fetcher *fetcher, const rks_wanted *wanted, uint8_t *to,
                                size_t room, rks_value *values, bool *done, rks_error *err);
/* Counts since the fetcher was opened. The fields have the meanings of rks_store_stats. */
typedef struct rks_fetch_stats {
    uint64_t samples;
    uint64_t bytes;
    uint64_t local_bytes;
    uint64_t remote_bytes;
    uint64_t wait_ns;
    uint64_t peak_inflight_bytes;
    uint64_t peak_batch_bytes;
    uint64_t disk_reads, disk_bytes;
} rks_fetch_stats;
/* Forgets which pages are in memory. */
void rks_fetcher_forget_cache(rks_fetcher *fetcher);
void rks_fetcher_stats(rks_fetcher *fetcher, rks_fetch_stats *stats);

#endif
