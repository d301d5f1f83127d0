/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch.h: samples by (shard, row), from the map of a shard on this node or from the rank that
 * owns it. The public calls (rks_store_fetch, rks_batch_...) are thin over this. */
#ifndef RKS_FETCH_FETCH_H
#define RKS_FETCH_FETCH_H

#include "collate/collate.h"
#include "rankstore/batch.h"
#include "shard/shard.h"
#include "transport/engine.h"

/* ---- owner's side --------------------------------------------------------------------- */

typedef struct rks_fetch_server rks_fetch_server;
/* Serves the shards on `service` (each open store has its own): records by shard and rows;
 * wire.c draws request and reply. `shards` is indexed as the dataset's list, NULL where this
 * rank has none; copied, the shards stay the caller's. `readers`: how many ranks the job has. If
 * they read a file in order, each asks for every `readers`-th batch of it, and the owner reads the
 * file as one stream. */
rks_status rks_fetch_server_open(rks_engine *engine, enum rks_service service,
                                 rks_shard *const *shards, size_t count, uint32_t readers,
                                 rks_fetch_server **server, rks_error *err);
/* Stops reading the disk, and waits until no reply uses the maps. NULL is accepted. */
void rks_fetch_server_close(rks_fetch_server *server);
uint64_t rks_fetch_server_bytes(const rks_fetch_server *server);
void rks_fetch_server_forget_cache(rks_fetch_server *server);
/* What it has read from the disk for others. */
void rks_fetch_server_disk(const rks_fetch_server *server, uint64_t *reads, uint64_t *bytes);

/* ---- requester's side ------------------------------------------------------------------ */

/* One sample that is wanted. */
typedef struct rks_wanted {
    uint64_t id; /* for messages and rks_batch_id */
    uint64_t row;
    uint64_t key_hash;
    uint32_t shard; /* number in the dataset's list */
    uint32_t length;
} rks_wanted;

typedef struct rks_fetcher_options {
    rks_engine *engine; /* may be NULL where everything is mapped */
    uint32_t rank;
    rks_shard *const *shards; /* mapped ones by dataset number; NULL: ask the owner. Copied */
    const rks_digest *shard_ids;
    const uint64_t *largest;      /* bytes of the largest record of each shard: bounds a reply */
    const int32_t *const *owners; /* ranks that serve each shard, in order of preference, ended by
                                     -1. Copied by reference: must outlive the fetcher */
    /* By rank: whom this rank asks first for what that rank owns. NULL: each owner itself. As
     * `owners`. */
    const uint32_t *asks;
    size_t shard_count;
    const rks_schema *schema; /* of the samples that batches and views show */
    /* By shard: how its records become samples of `schema`; an entry of NULL: they are. NULL: all
     * are. Must outlive the fetcher, as what the entries point to. */
    const rks_record_fit *const *fits;
    bool check;
    uint64_t inflight_bytes;
    /* An owner that sends no byte of what was asked for so long is given up by who waits; 0: never.
     */
    uint32_t timeout_ms;
    enum rks_service service; /* the owners' */
    /* "sample 17 (key ...)" for messages. Any thread, the engine's too: must not wait. */
    const char *(*describe)(void *user, uint64_t id, char *text, size_t size);
    /* Where keys are derived: writes the key of sample `id` with this source row (of its record)
     * into key[RKS_KEY_MAX] and returns its size, for rks_batch_key. NULL where keys are stored. */
    size_t (*derive_key)(void *user, uint64_t id, uint32_t source_row, uint8_t *key);
    void *user; /* of describe, derive_key and release */
    /* Called when the last batch and request are gone too, from any thread: all that the options
     * point to may go then. NULL: it is there for ever. Not called where opening fails. */
    void (*release)(void *user);
} rks_fetcher_options;

typedef struct rks_fetcher rks_fetcher;
rks_status rks_fetcher_open(const rks_fetcher_options *options, rks_fetcher **fetcher,
                            rks_error *err);
/* Fetches have been ended by the caller before; batches may live on. NULL is accepted. */
void rks_fetcher_close(rks_fetcher *fetcher);

/* The list of a fetch: `count` samples, for the caller to fill in all of them. It lies in the batch
 * that comes of it, so nothing is copied. Free it with rks_batch_free unless a fetch takes it. */
rks_status rks_fetcher_list(rks_fetcher *fetcher, size_t count, rks_batch **list, rks_error *err);
rks_wanted *rks_batch_wanted(rks_batch *list);
/* Which samples of the list are pieces, by place; copied. RKS_ERR_ARGUMENT for one that does not lie
 * in its sample. */
rks_status rks_batch_set_pieces(rks_batch *list, const rks_piece *pieces, size_t count,
                                rks_error *err);
/* The bins of the list: bounds[0] to bounds[bins], in samples; copied. */
rks_status rks_batch_set_bins(rks_batch *list, const uint32_t *bounds, size_t bins, rks_error *err);
/* Points `values` (one a column of the schema) at the columns of sample i. */
rks_status rks_batch_decode(const rks_batch *batch, size_t i, rks_value *values, rks_error *err);

/* Fetches and waits, in the calling thread: samples of maps are copied here, so nothing is handed
 * to another thread where all are mapped. Waits as rks_fetch_wait. Takes the list, also on failure.
 */
rks_status rks_fetcher_fetch(rks_fetcher *fetcher, rks_batch *list, rks_batch **batch,
                             rks_error *err);
/* For fetching ahead: copying and checking is done by threads of the fetcher, or by the waiter if
 * it comes first. Takes the list on success. rks_fetch_ready, _wait and _cancel are the public
 * ones. */
rks_status rks_fetcher_start(rks_fetcher *fetcher, rks_batch *list, rks_fetch **fetch,
                             rks_error *err);
/* Are there samples that come from other ranks? */
bool rks_fetcher_is_remote(const rks_fetcher *fetcher);
/* Between `on` and not, requests are queued; then they are sent together, those to one owner in one
 * write. So keep it short: also fetches of other threads wait. */
void rks_fetcher_gather(rks_fetcher *fetcher, bool on);
/* The same for arrays: a fetch that carries `collate` makes them when its last sample has come. */
rks_status rks_fetcher_collate(rks_fetcher *fetcher, rks_batch *list, rks_collate *collate,
                               rks_arrays **arrays, rks_error *err);
rks_status rks_fetcher_start_arrays(rks_fetcher *fetcher, rks_batch *list, rks_collate *collate,
                                    rks_fetch **fetch, rks_error *err);
/* rks_fetch_wait for what rks_fetcher_start_arrays started. */
rks_status rks_fetch_wait_arrays(rks_fetch *fetch, rks_arrays **arrays, rks_error *err);
/* Both, whichever it brings. After RKS_ERR_CANCELLED the fetch goes on and *fetch stays; otherwise
 * it is NULL. */
rks_status rks_fetch_take(rks_fetch **fetch, rks_batch **batch, rks_arrays **arrays,
                          rks_error *err);
/* Memory of a batch: what peak_batch_bytes counts. */
uint64_t rks_batch_memory(const rks_batch *batch);
/* The memory of a fetch's batch or arrays once all of it has arrived, else 0. */
uint64_t rks_fetch_memory(rks_fetch *fetch);

/* One sample in the map of its shard, checked, or fetched where it does not lie in one. A view
 * holds the fetcher's memory, and so what `release` would let go. */
rks_status rks_fetcher_view(rks_fetcher *fetcher, const rks_wanted *wanted, rks_view **view,
                            rks_error *err);
/* rks_store_read_now. */
rks_status rks_fetcher_read_now(rks_fetcher *fetcher, const rks_wanted *wanted, uint8_t *to,
                                size_t room, rks_value *values, bool *done, rks_error *err);
/* Since the fetcher was created; the fields mean what those of rks_store_stats mean. */
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
/* Nothing is known to be in memory any more. */
void rks_fetcher_forget_cache(rks_fetcher *fetcher);
void rks_fetcher_stats(rks_fetcher *fetcher, rks_fetch_stats *stats);

#endif
