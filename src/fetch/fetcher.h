/* SPDX-License-Identifier: Apache-2.0
 *
 * fetcher.h: the inside of the requester's side, shared by fetcher.c (its life), fetch.c (life of a
 * fetch), local.c (copies from maps), collated.c (arrays), request.c (requests to owners), deal.c
 * (which requests), joint.c (small ones that go out as one) and retry.c (requests that fail).
 *
 * A fetch consists of pieces: its local samples are one, each request to an owner is one. A
 * request whose reply is large leaves it in the fetch's `arrived` list, to be checked. A fetch with
 * `collate` has the arrays as its last piece, which waits for all others and takes the local
 * samples from their maps. What takes time (copying, checking) is done by whoever takes the piece
 * first: the thread that waits for the fetch, or a worker. A fetch is over when no piece is left,
 * or with its first error. */
#ifndef RKS_FETCH_FETCHER_H
#define RKS_FETCH_FETCHER_H

#include <pthread.h>
#include <stdatomic.h>

#include "fetch/batch.h"
#include "fetch/plain.h"
#include "fetch/reads.h"

enum {
    RKS_FETCH_WORKERS = 2,
    RKS_FETCH_COLD_WORKERS = 4, /* of all together, if records come from the disk */
    RKS_FETCH_TRIES = 8,
    RKS_FETCH_REQUEST_ROWS = 128,
};

/* Ranks that failed. */
typedef struct rks_fetch_owners {
    size_t count;
    uint32_t ranks[RKS_FETCH_TRIES];
} rks_fetch_owners;

/* Who decides what becomes of a request's samples: the engine's thread, which takes it with its
 * reply or failure, or the waiter, which gives it up. */
enum {
    RKS_REQUEST_WAITS, /* in the queue, or nowhere yet */
    RKS_REQUEST_SENT,
    RKS_REQUEST_TAKEN,
    RKS_REQUEST_GIVEN_UP,
};

/* A request to an owner, from its making until its reply has been checked. Its samples are those at
 * fetch->order[first, first + count), which no other request looks at that is not given up. */
typedef struct rks_fetch_request {
    rks_call call;                  /* the engine's, from sending it until `over` */
    struct rks_fetch_request *next; /* in the queue or in arrived; guarded by fetcher->mutex */
    struct rks_fetch_request *next_sent, **at_sent; /* in sent; guarded by fetcher->mutex */
    struct rks_fetch_request *next_silent;          /* of those that the waiter gives up */
    struct rks_fetch_request *next_joined;          /* of those that go out as one: joint.c */
    rks_fetch *fetch;                               /* holds a reference */
    atomic_int holds;   /* ours, and the engine's while it is its: the last one frees it */
    atomic_int state;   /* leaves RKS_REQUEST_SENT once */
    uint64_t sent_ms;   /* guarded by fetcher->mutex */
    uint64_t traced;    /* rks_trace_begin, when it was sent */
    uint64_t need;      /* of inflight_bytes, before the reply's size is known */
    atomic_uint_least64_t reserve; /* what it has of them, until its reply has a place or it is
                                    * given up */
    uint64_t placed;    /* what its reply has of them; engine thread only */
    uint64_t limit;     /* bytes that the reply can have */
    size_t oversize;    /* a reply above the limit; engine thread only */
    bool no_memory;     /* for a reply; engine thread only */
    rks_block *reply;   /* until it has arrived, engine thread only */
    bool again;         /* asked a second time after a cut connection */
    bool alone;         /* it was joined with others, and did not come: not again */
    rks_fetch_owners tried; /* that failed before */
    size_t first;
    size_t count;   /* samples asked for; once it has arrived, records in the reply */
    uint8_t body[]; /* on the wire */
} rks_fetch_request;

struct rks_fetch {
    rks_fetcher *fetcher; /* holds a reference */
    rks_batch *batch;
    rks_collate *collate; /* holds a reference; NULL: it brings a batch, no arrays */
    rks_arrays *arrays;   /* instead of the batch, once they are made */
    size_t count;         /* samples */
    atomic_int references;
    pthread_cond_t changed;
    atomic_bool over;       /* it has failed, has been ended, or has no piece left; set under the
                             * mutex, behind what it brings */
    atomic_size_t memory;   /* of what it brings; 0: it has not come */
    /* guarded by fetcher->mutex */
    bool ahead;       /* workers may take its pieces */
    bool queued;      /* in fetcher->work */
    bool waited_for;  /* a thread sleeps until something changes: it works, no worker need wake */
    bool local_waits; /* the local piece, or that of the arrays, has not been taken */
    size_t pieces;    /* not finished */
    uint64_t local_bytes, remote_bytes;
    rks_status status; /* the first failure */
    rks_error error;
    rks_fetch_request *sent; /* on their way, without those that were given up */
    rks_fetch_request *arrived;
    rks_fetch *next;

    uint32_t order[]; /* samples that are asked for, by their place in the batch: see requests */
};

struct rks_fetcher {
    rks_fetcher_options options;
    rks_shard **shards;
    rks_digest *shard_ids;
    uint64_t *largest;
    size_t ranks; /* above those of all that are asked */
    atomic_uint_least64_t *heard_ms; /* by rank: when a byte of a reply came last */
    rks_reads reads; /* of this node's disk */
    rks_plains plains; /* by shard */
    atomic_int references; /* the caller's, and one a fetch, batch and view */
    atomic_bool closing;   /* set under the mutex */
    atomic_bool started;   /* the workers; set under the mutex */
    atomic_uint_least64_t reserved; /* of inflight_bytes; grows under the mutex */
    atomic_uint_least64_t inflight, peak_inflight;
    atomic_bool some_failed; /* failed.count != 0 */
    atomic_uint gathering;   /* requests are queued, and sent together later */
    pthread_mutex_t mutex;
    /* guarded by mutex */
    rks_fetch_request *queue, **queue_end; /* wait for room in inflight_bytes */
    rks_fetch *work, **work_end;
    pthread_cond_t work_comes;
    pthread_cond_t cold_work_comes; /* for workers behind workers_wanted */
    pthread_t workers[RKS_FETCH_COLD_WORKERS];
    size_t worker_count, workers_wanted; /* 0: nobody has asked the system for its cores yet */
    rks_fetch_owners failed;             /* last time: asked after others */

    rks_blocks *pool; /* of replies and copies */
    atomic_uint_least64_t samples, local_bytes, remote_bytes, wait_ns;
};

/* Counts what a call delivers that began at `begin_ns`; bytes of columns and keys. */
void rks_fetcher_count_delivered(rks_fetcher *fetcher, size_t samples, uint64_t local,
                                 uint64_t remote, uint64_t begin_ns);
/* Fills *err with *inner and the sample's name before it. Returns its status. */
rks_status rks_fetcher_blame(const rks_fetcher *fetcher, const rks_wanted *wanted,
                             const rks_error *inner, rks_error *err);

/* Compares a sample's bytes with what the index says of it; a failure names the sample. */
rks_status rks_fetcher_check(const rks_fetcher *fetcher, const rks_wanted *wanted,
                             const rks_record_view *view, rks_error *err);
/* Points `values` (one a column of the fetcher's schema) into the record. `pick`: of that schema;
 * NULL: all columns. */
rks_status rks_fetcher_decode(const rks_fetcher *fetcher, const rks_wanted *wanted,
                              const rks_record_pick *pick, const rks_record_view *view,
                              rks_value *values, rks_error *err);
/* ---- local.c ---- */
/* Finds all samples of the batch that lie in maps; *size is what their copies take. */
rks_status rks_fetch_locate_local(rks_batch *batch, size_t *size, rks_error *err);
/* Asks the disk for all samples of the batch that lie in maps, unless they are in memory or somebody
 * else has asked for them. Does not wait. */
void rks_fetch_ask_disk(rks_batch *batch);
/* After samples [0, count) were read from their maps: did this thread have to read them from the
 * disk itself? True: many of their pages. */
bool rks_fetch_notice_faults(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count);
/* The same for a batch, and whoever read ahead for it learns it. */
void rks_fetch_notice_batch_faults(const rks_batch *batch);
/* Asks for the bytes of a local sample a little behind the i-th, of those that were found. */
void rks_fetch_prefetch_local(const rks_batch *batch, size_t i);
/* After a record was read from its map: an error where a page of it was replaced. */
rks_status rks_fetch_check_faults(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, rks_error *err);
/* Copies a record out of its map; the copy is checked, unless checks are off. */
rks_status rks_fetch_copy_checked(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, uint8_t *to, rks_record_view *copy,
                                  rks_error *err);
/* Copies and checks all samples of the batch that lie in maps; they take the views of their own, so
 * replies may be checked meanwhile. The block is not added yet; *bytes counts columns and keys. */
rks_status rks_fetch_copy_local(rks_batch *batch, rks_block **block, uint64_t *bytes,
                                rks_error *err);

/* ---- ahead.c ---- */
/* The `count` ids before `end`: true: they were not asked for, and the caller does it now. If ids
 * come in the order of a file, waits until they are read. */
bool rks_ahead_take_over(rks_ahead *ahead, uint64_t end, size_t count);
/* Pages that it had asked for were gone when a fetch came to them: memory is short. From now on it
 * reads half as far ahead, but at least a window; once for all pages that were asked for so far. */
void rks_ahead_lost(rks_ahead *ahead);
void rks_ahead_release(rks_ahead *ahead); /* NULL is accepted */

/* ---- collated.c ---- */
/* Arrays of all samples of the batch, which a fetch with `collate` ends with: local ones from their
 * maps, the others as they were received and checked. *bytes counts columns and keys of local ones.
 */
rks_status rks_fetch_make_arrays(rks_batch *batch, rks_collate *collate, rks_arrays **arrays,
                                 uint64_t *bytes, rks_error *err);

/* ---- deal.c ---- */
/* Makes the requests for the `remote` samples of the fetch that do not lie in maps: a list, and how
 * many. No lock is held. */
rks_status rks_fetch_deal_all(rks_fetch *fetch, size_t remote, rks_fetch_request **list,
                              size_t *made, rks_error *err);
/* The same for the samples at order[first, first + count), of owners that have not been tried. */
rks_status rks_fetch_deal(rks_fetch *fetch, size_t first, size_t count,
                          const rks_fetch_owners *tried, rks_fetch_request **list, size_t *made,
                          rks_error *err);
bool rks_fetch_owners_have(const rks_fetch_owners *list, uint32_t rank);

/* ---- request.c ---- */
/* A request to `owner` for the samples at order[first, first + count), which become its own. */
rks_status rks_fetch_request_make(rks_fetch *fetch, uint32_t owner, size_t first, size_t count,
                                  rks_fetch_request **made, rks_error *err);
/* Its i-th sample. */
const rks_wanted *rks_fetch_request_wanted(const rks_fetch_request *request, size_t i);
/* Drops one of its holds; and of all in a list. Not the last one of a fetch where the mutex is
 * held. */
void rks_fetch_request_drop(rks_fetch_request *request);
void rks_fetch_request_free(rks_fetch_request *list);
/* Is it this thread that decides what becomes of it? Only one is, once. */
bool rks_fetch_request_take(rks_fetch_request *request, int state);
/* The mutex is held for these four. Takes it out of its fetch's sent list, if it is there. */
void rks_fetch_request_unlink(rks_fetch_request *request);
void rks_fetch_enqueue(rks_fetcher *fetcher, rks_fetch_request *list);
/* What it has of inflight_bytes is free again. No lock is needed. */
void rks_fetch_request_unreserve(rks_fetch_request *request);
/* Takes the requests of a fetch (NULL: all) out of the queue. */
rks_fetch_request *rks_fetch_unqueue(rks_fetcher *fetcher, const rks_fetch *fetch);
/* Takes what there is room for out of the queue; to be sent at once. */
rks_fetch_request *rks_fetch_next_to_send(rks_fetcher *fetcher);
/* No lock is held for these two. */
void rks_fetch_send(rks_fetch_request *list);
void rks_fetch_send_queued(rks_fetcher *fetcher);
/* The engine's thread: its reply, which it has by now, or err. */
void rks_fetch_request_done(rks_fetch_request *request, const rks_error *err);
/* The same where it was not served with others: the owner is asked for it alone. */
void rks_fetch_request_alone(rks_fetch_request *request);
void rks_fetch_owner_heard(rks_fetcher *fetcher, uint32_t owner); /* a part of a reply */
void rks_fetch_count_inflight(rks_fetcher *fetcher, const rks_block *reply);
/* Parses and checks what a reply holds; *bytes counts columns and keys. */
rks_status rks_fetch_check_reply(rks_fetch_request *request, uint64_t *bytes, rks_error *err);

/* ---- joint.c ---- */
/* What the engine is asked for a list of requests that are to be sent, by `next` of rks_call; each
 * request gets a hold for the engine. */
rks_call *rks_fetch_join(rks_fetcher *fetcher, rks_fetch_request *list);
/* Of a call that was not sent: ends it, and calls `each` for each of its requests. False: it is of one
 * request alone. */
bool rks_fetch_part(rks_call *call, void (*each)(rks_fetch_request *request, const rks_error *err),
                    const rks_error *err);

/* ---- retry.c ---- */
/* No lock is held for these three; the request stays the caller's. It is asked again, others are
 * asked, or its fetch has failed. */
void rks_fetch_request_failed(rks_fetch_request *request, const rks_error *err);
/* Ends the fetch with what went wrong with this request. */
void rks_fetch_request_fatal(const rks_fetch_request *request, const rks_error *inner);
/* Gives up the requests of the fetch whose owners have sent nothing for timeout_ms: others are
 * asked, or the fetch has failed. */
void rks_fetch_give_up_silent(rks_fetch *fetch);
/* The mutex is held: the owner is no longer among those that failed. */
void rks_fetch_owner_answers(rks_fetcher *fetcher, uint32_t owner);

/* ---- fetch.c ---- */
/* Works on the first fetch of the work list; false: there is none. The mutex is held. */
bool rks_fetch_work_on_next(rks_fetcher *fetcher);
/* A fetch with its requests sent, of a list that it takes on success; of `ahead` ones workers may
 * take the pieces. */
rks_status rks_fetch_begin(rks_fetcher *fetcher, rks_batch *list, rks_collate *collate, bool ahead,
                           rks_fetch **fetch, rks_error *err);
/* How many samples of the list do not lie in maps; RKS_ERR_ARGUMENT for one that cannot be. */
rks_status rks_fetch_count_remote(const rks_batch *list, size_t *remote, rks_error *err);
static inline bool rks_fetch_is_over(const rks_fetch *fetch)
{
    return atomic_load_explicit(&fetch->over, memory_order_acquire);
}
/* The mutex is held for these three. */
void rks_fetch_set_failed(rks_fetch *fetch, const rks_error *err);
void rks_fetch_wake(rks_fetch *fetch); /* a piece has come that somebody must work on */
/* The end of a piece: the batch takes *block over, or, if `block` is NULL, the fetch has failed.
 * True: a thread sleeps on `changed` and must be woken, which needs no mutex. */
bool rks_fetch_finish(rks_fetch *fetch, rks_block **block, uint64_t remote_bytes,
                      const rks_error *err);
void rks_fetch_release(rks_fetch *fetch); /* no lock is held, or it is not the last one */

/* ---- fetcher.c ---- */
rks_status rks_fetcher_start_workers(rks_fetcher *fetcher, rks_error *err);
/* The mutex is held. Wakes a worker for a fetch that was queued, or two if records come from the
 * disk: while one waits for a page, the other copies what has come. */
void rks_fetcher_wake_workers(rks_fetcher *fetcher);
void rks_fetcher_release(rks_fetcher *fetcher);

#endif
