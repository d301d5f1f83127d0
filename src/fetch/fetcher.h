/* SPDX-License-Identifier: Apache-2.0
 *
 * fetcher.h: the internals of the requester's side, shared by fetcher.c (life of the fetcher),
 * fetch.c (life of a fetch), local.c (copies from maps), collated.c (arrays), request.c (requests
 * to owners), deal.c (which requests), coalesce.c (small requests sent as one) and retry.c (failed
 * requests).
 *
 * A fetch consists of tasks: its local samples are one, and each request to an owner is one. A
 * request with a large reply puts itself into the fetch's `arrived` list, to be checked. A fetch
 * with `collate` has the arrays as its last task, which waits for all others and reads the local
 * samples from their maps. The thread that takes a task first does the slow work (copying,
 * checking): the thread that waits for the fetch, or a worker. A fetch is over when no task
 * remains, or with its first error. */
#ifndef RKS_FETCH_FETCHER_H
#define RKS_FETCH_FETCHER_H

#include <pthread.h>
#include <stdatomic.h>

#include "fetch/batch.h"
#include "fetch/payload_size.h"
#include "fetch/disk_reader.h"

enum {
    RKS_FETCH_WORKERS = 2,
    RKS_FETCH_COLD_WORKERS = 4, /* most workers in all, if records come from the disk */
    RKS_FETCH_TRIES = 8,
    RKS_FETCH_REQUEST_ROWS = 128,
};

/* Ranks that failed. */
typedef struct rks_fetch_owners {
    size_t count;
    uint32_t ranks[RKS_FETCH_TRIES];
} rks_fetch_owners;

/* Decides who handles a request's samples: the engine's thread, which takes the request with its
 * reply or failure, or the waiter, which gives it up. */
enum {
    RKS_REQUEST_WAITS, /* in the queue, or in no list yet */
    RKS_REQUEST_SENT,
    RKS_REQUEST_CLAIMED,
    RKS_REQUEST_GIVEN_UP,
};

/* A request to an owner, from its creation until its reply is checked. Its samples are
 * fetch->order[first, first + count). No other request uses them, unless this one is given up. */
typedef struct rks_fetch_request {
    rks_call call;                  /* the engine's, from sending it until `over` */
    struct rks_fetch_request *next; /* in the queue or in arrived; guarded by fetcher->mutex */
    struct rks_fetch_request *next_sent, **at_sent; /* in sent; guarded by fetcher->mutex */
    struct rks_fetch_request *next_silent;          /* in the waiter's list of requests to give
                                                     * up */
    struct rks_fetch_request *next_joined; /* in a list of requests sent as one: coalesce.c */
    rks_fetch *fetch;                      /* holds a reference */
    atomic_int holds; /* ours, and the engine's while it has the request; the last one frees it */
    atomic_int state; /* leaves RKS_REQUEST_SENT only once */
    uint64_t sent_ms; /* guarded by fetcher->mutex */
    uint64_t traced;  /* rks_trace_begin when it was sent */
    uint64_t need;    /* share of inflight_bytes while the reply's size is unknown */
    atomic_uint_least64_t reserve; /* its current share of inflight_bytes, until its reply has a
                                    * place or it is given up */
    uint64_t placed;        /* share of inflight_bytes that its reply uses; engine thread only */
    uint64_t limit;         /* most bytes of a valid reply */
    size_t oversize;        /* size of a reply above the limit; engine thread only */
    bool no_memory;         /* memory for the reply was short; engine thread only */
    rks_block *reply;       /* until it has arrived, engine thread only */
    bool again;             /* second attempt after a cut connection */
    bool alone;             /* failed in a joint request: is not joined again */
    rks_fetch_owners tried; /* owners that failed before */
    size_t first;
    size_t count;   /* samples of the request; after arrival, records in the reply */
    uint8_t body[]; /* bytes on the wire */
} rks_fetch_request;

struct rks_fetch {
    rks_fetcher *fetcher; /* holds a reference */
    rks_batch *batch;
    rks_collate *collate; /* holds a reference; NULL: the fetch returns a batch */
    rks_arrays *arrays;   /* replaces the batch when made */
    size_t count;         /* number of samples */
    atomic_int references;
    pthread_cond_t changed;
    atomic_bool over;     /* it has failed, was ended, or has no task left; set under the mutex,
                           * after its results */
    atomic_size_t memory; /* bytes of its results; 0: not there yet */
    /* guarded by fetcher->mutex */
    bool ahead;       /* workers may take its tasks */
    bool queued;      /* in fetcher->work */
    bool waited_for;  /* a thread sleeps until something changes: it does the work, so no worker
                       * wakes */
    bool local_waits; /* nobody has taken the local task, or that of the arrays */
    size_t tasks;     /* tasks that are not finished */
    uint64_t local_bytes, remote_bytes;
    rks_status status; /* the first failure */
    rks_error error;
    rks_fetch_request *sent; /* sent requests that were not given up */
    rks_fetch_request *arrived;
    rks_fetch *next;

    uint32_t order[]; /* places in the batch of the samples that are requested: see
                       * rks_fetch_request */
};

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
    pthread_cond_t work_comes;
    pthread_cond_t cold_work_comes; /* for the workers above workers_wanted */
    pthread_t workers[RKS_FETCH_COLD_WORKERS];
    size_t worker_count, workers_wanted; /* workers_wanted 0: not computed yet */
    rks_fetch_owners failed;             /* owners whose last request failed: asked after others */

    rks_blocks *pool; /* of replies and copies */
    atomic_uint_least64_t samples, local_bytes, remote_bytes, wait_ns;
};

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
/* ---- local.c ---- */
/* Locates all samples of the batch whose shards are mapped. *size is the room for their copies. */
rks_status rks_fetch_locate_local(rks_batch *batch, size_t *size, rks_error *err);
/* Asks the disk for all samples of the batch whose shards are mapped, unless they are in memory or
 * were already asked for. Does not wait. */
void rks_fetch_ask_disk(rks_batch *batch);
/* Checks whether this thread itself had to read pages of samples [0, count) from the disk. Returns
 * true if it read many pages. */
bool rks_fetch_notice_faults(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count);
/* Does the same for a batch, and reports lost pages to its `ahead`. */
void rks_fetch_notice_batch_faults(const rks_batch *batch);
/* Prefetches the bytes of a located local sample a little after the i-th. */
void rks_fetch_prefetch_local(const rks_batch *batch, size_t i);
/* Checks a record that was read from its map. Returns an error if one of its pages could not be
 * read and was replaced. */
rks_status rks_fetch_check_faults(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, rks_error *err);
/* Copies a record out of its map, and checks the copy unless checks are off. */
rks_status rks_fetch_copy_checked(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, uint8_t *to, rks_record_view *copy,
                                  rks_error *err);
/* Copies and checks all samples of the batch whose shards are mapped. Uses only their own views, so
 * replies may be checked at the same time. Does not add the block to the batch; *bytes counts
 * columns and keys. */
rks_status rks_fetch_copy_local(rks_batch *batch, rks_block **block, uint64_t *bytes,
                                rks_error *err);

/* ---- readahead.c ---- */
/* Returns true if the `count` ids before `end` were not all asked for; the caller must then ask the
 * disk for them. If ids come in the order of a file, waits until they are read. */
bool rks_readahead_claim(rks_readahead *ahead, uint64_t end, size_t count);
/* Reports that pages read ahead were gone before their fetch: memory is short. From now on it reads
 * half as far ahead, but at least a window. Counts once for all pages asked for so far. */
void rks_readahead_lost(rks_readahead *ahead);
void rks_readahead_release(rks_readahead *ahead); /* NULL is accepted */

/* ---- collated.c ---- */
/* Makes the arrays of all samples of the batch, the last task of a fetch with `collate`. Reads
 * local samples from their maps; the others have been received and checked. *bytes counts columns
 * and keys of local ones. */
rks_status rks_fetch_make_arrays(rks_batch *batch, rks_collate *collate, rks_arrays **arrays,
                                 uint64_t *bytes, rks_error *err);

/* ---- deal.c ---- */
/* Makes the list of requests for the `remote` samples of the fetch whose shards are not mapped;
 * *made is their number. No lock may be held. */
rks_status rks_fetch_deal_all(rks_fetch *fetch, size_t remote, rks_fetch_request **list,
                              size_t *made, rks_error *err);
/* Does the same for the samples at order[first, first + count), among owners that have not been
 * tried. */
rks_status rks_fetch_deal(rks_fetch *fetch, size_t first, size_t count,
                          const rks_fetch_owners *tried, rks_fetch_request **list, size_t *made,
                          rks_error *err);
/* Returns true if `rank` is in the list. */
bool rks_fetch_owners_have(const rks_fetch_owners *list, uint32_t rank);

/* ---- request.c ---- */
/* Makes a request to `owner` for the samples at order[first, first + count), which it takes
 * over. */
rks_status rks_fetch_request_make(rks_fetch *fetch, uint32_t owner, size_t first, size_t count,
                                  rks_fetch_request **made, rks_error *err);
/* Returns the request's i-th sample. */
const rks_wanted *rks_fetch_request_wanted(const rks_fetch_request *request, size_t i);
/* Drop one hold of a request, or of all in a list. If the mutex is held, it must not be the last
 * hold of a fetch. */
void rks_fetch_request_drop(rks_fetch_request *request);
void rks_fetch_request_free(rks_fetch_request *list);
/* Tries to move the request from RKS_REQUEST_SENT to `state`. Returns true for the one thread that
 * succeeds, which then handles the request. */
bool rks_fetch_request_claim(rks_fetch_request *request, int state);
/* Removes a request from its fetch's sent list, if it is there. The mutex must be held for these
 * four. */
void rks_fetch_request_unlink(rks_fetch_request *request);
void rks_fetch_enqueue(rks_fetcher *fetcher, rks_fetch_request *list);
/* Returns the request's share of inflight_bytes. Needs no lock. */
void rks_fetch_request_unreserve(rks_fetch_request *request);
/* Takes the requests of a fetch (NULL: of all) out of the queue. */
rks_fetch_request *rks_fetch_unqueue(rks_fetcher *fetcher, const rks_fetch *fetch);
/* Takes the requests that inflight_bytes has room for out of the queue. The caller must send them
 * at once. */
rks_fetch_request *rks_fetch_next_to_send(rks_fetcher *fetcher);
/* Send requests. No lock may be held for these two. */
void rks_fetch_send(rks_fetch_request *list);
void rks_fetch_send_queued(rks_fetcher *fetcher);
/* Ends a request with its reply, if err is NULL, or with an error. Engine thread. */
void rks_fetch_request_done(rks_fetch_request *request, const rks_error *err);
/* Makes a request of its own for one that a joint request did not serve. Engine thread. */
void rks_fetch_request_alone(rks_fetch_request *request);
void rks_fetch_owner_heard(rks_fetcher *fetcher, uint32_t owner); /* part of a reply came */
void rks_fetch_count_inflight(rks_fetcher *fetcher, const rks_block *reply);
/* Parses and checks the records of a reply; *bytes counts columns and keys. */
rks_status rks_fetch_check_reply(rks_fetch_request *request, uint64_t *bytes, rks_error *err);

/* ---- coalesce.c ---- */
/* Makes the engine's calls, linked by `next`, for a list of requests to send. Each request gets a
 * hold for the engine. */
rks_call *rks_fetch_coalesce(rks_fetcher *fetcher, rks_fetch_request *list);
/* Ends a joint call that was not sent, and calls `each` for each of its requests. Returns false if
 * the call is of a single request. */
bool rks_fetch_separate(rks_call *call,
                        void (*each)(rks_fetch_request *request, const rks_error *err),
                        const rks_error *err);

/* ---- retry.c ---- */
/* Handles a failed request: asks the same owner again or another one, or fails the fetch. The
 * caller keeps the request. No lock may be held for these three. */
void rks_fetch_request_failed(rks_fetch_request *request, const rks_error *err);
/* Fails the fetch with this request's error. */
void rks_fetch_request_fatal(const rks_fetch_request *request, const rks_error *inner);
/* Gives up the fetch's requests whose owners have sent nothing for timeout_ms. Asks others, or
 * fails the fetch. */
void rks_fetch_give_up_silent(rks_fetch *fetch);
/* Removes an owner from the failed ones. The mutex must be held. */
void rks_fetch_owner_answers(rks_fetcher *fetcher, uint32_t owner);

/* ---- fetch.c ---- */
/* Works on the first fetch of the work list. Returns false if there is none. The mutex must be
 * held. */
bool rks_fetch_work_on_next(rks_fetcher *fetcher);
/* Starts a fetch and sends its requests. Takes the list over on success. With `ahead`, workers may
 * take its tasks. */
rks_status rks_fetch_begin(rks_fetcher *fetcher, rks_batch *list, rks_collate *collate, bool ahead,
                           rks_fetch **fetch, rks_error *err);
/* Counts the samples of the list whose shards are not mapped. RKS_ERR_ARGUMENT if one is out of
 * range. */
rks_status rks_fetch_count_remote(const rks_batch *list, size_t *remote, rks_error *err);
static inline bool rks_fetch_is_over(const rks_fetch *fetch)
{
    return atomic_load_explicit(&fetch->over, memory_order_acquire);
}
/* The mutex must be held for these three. */
void rks_fetch_set_failed(rks_fetch *fetch, const rks_error *err);
void rks_fetch_wake(rks_fetch *fetch); /* a task is ready to be worked on */
/* Ends a task. The batch takes *block over; if `block` is NULL, the fetch fails with `err`.
 * Returns true if a thread sleeps on `changed` and the caller must wake it, which needs no
 * mutex. */
bool rks_fetch_finish(rks_fetch *fetch, rks_block **block, uint64_t remote_bytes,
                      const rks_error *err);
void rks_fetch_release(rks_fetch *fetch); /* no lock may be held, unless others hold it, too */

/* ---- fetcher.c ---- */
rks_status rks_fetcher_start_workers(rks_fetcher *fetcher, rks_error *err);
/* Wakes a worker for a queued fetch, or two if records come from the disk: while one waits for a
 * page, the other copies. The mutex must be held. */
void rks_fetcher_wake_workers(rks_fetcher *fetcher);
void rks_fetcher_release(rks_fetcher *fetcher);

#endif
