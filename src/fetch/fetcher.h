/* SPDX-License-Identifier: Apache-2.0
 *
 * fetcher.h: what all files of the requester's side know of a fetcher. */
#ifndef RKS_FETCH_FETCHER_H
#define RKS_FETCH_FETCHER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/blocks.h"
#include "fetch/disk_reader.h"
#include "fetch/fetch.h"
#include "fetch/payload_size.h"

enum {
    RKS_FETCH_WORKERS = 2,
    RKS_FETCH_COLD_WORKERS = 4, /* most workers in all, if records come from the disk */
    RKS_FETCH_TRIES = 8,
};

/* Ranks that failed. */
typedef struct rks_fetch_owners {
    size_t count;
    uint32_t ranks[RKS_FETCH_TRIES];
} rks_fetch_owners;

typedef struct rks_fetch_request rks_fetch_request;

/* Works on the first fetch of the fetcher's work list. Returns false if there is none. The mutex is
 * held. */
typedef bool (*rks_work_fn)(rks_fetcher *fetcher);

struct rks_fetcher {
    rks_fetcher_options options;
    rks_shard **shards;
    rks_digest *shard_ids;
    uint64_t *largest;
    size_t ranks;                    /* one above the highest rank that is asked */
    atomic_uint_least64_t *heard_ms; /* by rank: when the last byte of a reply arrived */
    rks_disk_reader disk;            /* of this node's disk */
    rks_payload_layouts layouts;     /* by shard */
    atomic_int references;           /* the caller's, and one for each fetch, batch and view */
    atomic_bool closing;             /* set under the mutex */
    atomic_bool ending;              /* waits are to fail: rks_fetcher_end_waits */
    atomic_bool started;             /* all workers have started; set under the mutex */
    atomic_uint_least64_t reserved;  /* used part of inflight_bytes; grows under the mutex */
    atomic_uint_least64_t inflight, peak_inflight;
    atomic_bool some_failed; /* failed.count != 0 */
    atomic_uint gathering;   /* rks_fetcher_gather calls in progress: requests are queued and sent
                              * together later */
    pthread_mutex_t mutex;
    /* guarded by mutex */
    rks_fetch_request *queue, **queue_end; /* requests that wait for room in inflight_bytes */
    rks_fetch *work, **work_end;
    size_t unwoken; /* fetches of `work` for which workers are woken when `gathering` ends */
    pthread_cond_t work_comes;
    pthread_cond_t cold_work_comes; /* for the workers above workers_wanted */
    rks_work_fn work_on_next;
    pthread_t workers[RKS_FETCH_COLD_WORKERS];
    size_t worker_count, workers_wanted; /* workers_wanted 0: not computed yet */
    rks_fetch_owners failed;             /* owners whose last request failed: asked after others */

    rks_blocks *pool; /* of replies and copies */
    atomic_uint_least64_t samples, local_bytes, remote_bytes, wait_ns;
    atomic_uint_least64_t home_waits;
};

/* Counts one of rks_fetcher_home_waits. Any thread. */
static inline void rks_fetcher_note_home_wait(rks_fetcher *fetcher)
{
    atomic_fetch_add_explicit(&fetcher->home_waits, 1, memory_order_relaxed);
}

/* Returns true if sample i is read from its map, else it is asked of its owner. The same answer
 * until rks_request_list_look looks again. */
static inline bool rks_request_list_is_local(const rks_request_list *list, size_t i)
{
    return list->fetcher->shards[list->wanted[i].shard] != NULL &&
           (list->elsewhere == NULL || (list->elsewhere[i / 8] >> i % 8 & 1) == 0);
}

/* Returns how long to wait for a thread that reads. */
static inline uint32_t rks_fetcher_close_ms(const rks_fetcher *fetcher)
{
    return fetcher->options.silence_ms == 0 ? UINT32_MAX : fetcher->options.silence_ms;
}

void rks_fetcher_release(rks_fetcher *fetcher);
/* Counts the samples, and the bytes of columns and keys, that a call begun at `begin_ns`
 * delivers. */
void rks_fetcher_count_delivered(rks_fetcher *fetcher, size_t samples, uint64_t local,
                                 uint64_t remote, uint64_t begin_ns);
/* Fills *err with the sample's name and *inner. Returns its status. */
rks_status rks_fetcher_blame(const rks_fetcher *fetcher, const rks_wanted *wanted,
                             const rks_error *inner, rks_error *err);

/* Checks a sample's bytes against the index. An error names the sample. */
rks_status rks_fetcher_check(const rks_fetcher *fetcher, const rks_wanted *wanted,
                             const rks_record_view *view, rks_error *err);
/* Points `values`, one for each column of the fetcher's schema, into the record. `pick` selects
 * columns of that schema; NULL: all columns. */
rks_status rks_fetcher_decode(const rks_fetcher *fetcher, const rks_wanted *wanted,
                              const rks_record_pick *pick, const rks_record_view *view,
                              rks_value *values, rks_error *err);

#endif
