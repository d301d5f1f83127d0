/* SPDX-License-Identifier: Apache-2.0
 *
 * fetcher.h: the inside of the requester's side, shared by fetcher.c (life of a fetch), local.c
 * (copies from maps), collated.c (arrays), remote.c (requests to owners) and silent.c (owners that
 * do not answer).
 *
 * A fetch consists of pieces: its local samples are one, each request to an owner is one. A
 * request that was answered leaves its reply in the fetch's `arrived` list, to be checked. A fetch
 * with `collate` has the arrays as its last piece, which waits for all others and takes the local
 * samples from their maps. What
 * takes time (copying, checking) is done by whoever takes the piece first: the thread that waits
 * for the fetch, or a worker. A fetch is over when no piece is left, or with its first error. */
#ifndef RKS_FETCH_FETCHER_H
#define RKS_FETCH_FETCHER_H

#include <pthread.h>
#include <stdatomic.h>

#include "fetch/batch.h"
#include "fetch/plain.h"

enum { RKS_FETCH_WORKERS = 2, RKS_FETCH_TRIES = 8, RKS_FETCH_ASK_ROWS = 128 };

/* A request to an owner, from its making until its reply has been checked. */
typedef struct rks_ask {
    struct rks_ask *next;     /* in the queue, in sent or in arrived; guarded by fetcher->mutex */
    struct rks_ask **at_sent; /* what points to it in sent, or NULL; guarded by fetcher->mutex */
    rks_fetch *fetch;         /* holds a reference */
    uint64_t sent_ms;         /* guarded by fetcher->mutex */
    uint64_t traced;          /* rks_trace_begin, when it was sent */
    bool given_up;            /* others are asked instead; guarded by fetcher->mutex */
    uint64_t need;            /* of inflight_bytes, before the reply's size is known */
    uint64_t reserve;         /* what it has of them; guarded by fetcher->mutex */
    uint64_t limit;           /* bytes that the reply can have */
    size_t oversize;          /* a reply above the limit; engine thread only */
    bool no_memory;           /* for a reply; engine thread only */
    rks_block *reply;
    uint32_t owner;
    bool again;           /* asked a second time after a cut connection */
    uint32_t tried_count; /* owners that failed before */
    uint32_t tried[RKS_FETCH_TRIES];
    size_t count;  /* samples asked for; once it has arrived, records in the reply */
    uint32_t at[]; /* samples by their place in the batch; those of a shard lie together */
} rks_ask;

struct rks_fetch {
    rks_fetcher *fetcher; /* holds a reference */
    rks_batch *batch;
    rks_collate *collate; /* holds a reference; NULL: it brings a batch, no arrays */
    rks_arrays *arrays;   /* instead of the batch, once they are made */
    size_t count;         /* samples */
    atomic_int references;
    pthread_cond_t changed;
    /* guarded by fetcher->mutex */
    bool ahead;       /* workers may take its pieces */
    bool queued;      /* in fetcher->work */
    bool waited_for;  /* a thread sleeps until something changes: it works, no worker need wake */
    bool local_waits; /* the local piece, or that of the arrays, has not been taken */
    bool ended;       /* waited for or cancelled: nobody wants it any more */
    size_t pieces;    /* not finished */
    uint64_t local_bytes, remote_bytes;
    rks_status status; /* the first failure */
    rks_error error;
    rks_ask *sent; /* on their way, written, without those that were given up */
    rks_ask *arrived;
    rks_fetch *next;
};

struct rks_fetcher {
    rks_fetcher_options options;
    rks_shard **shards;
    rks_digest *shard_ids;
    uint64_t *largest;
    atomic_uint_least64_t *heard_ms; /* by rank: when a byte of a reply came last */
    rks_plain plain;
    atomic_int references; /* the caller's, and one a fetch, batch and view */
    pthread_mutex_t mutex;
    /* guarded by mutex */
    bool closing;
    size_t busy; /* replies that are being looked at by the engine's thread */
    pthread_cond_t idle;
    rks_ask *queue, **queue_end; /* wait for room in inflight_bytes */
    uint64_t reserved, inflight, peak_inflight;
    rks_fetch *work, **work_end;
    pthread_cond_t work_comes;
    pthread_t workers[RKS_FETCH_WORKERS];
    size_t worker_count, workers_wanted; /* 0: nobody has asked the system for its cores yet */
    uint32_t failed[RKS_FETCH_TRIES]; /* owners that failed last time: asked after others */
    size_t failed_count;

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
/* ---- local.c ---- */
/* Finds all samples of the batch that lie in maps; *size is what their copies take. */
rks_status rks_fetch_locate_local(rks_batch *batch, size_t *size, rks_error *err);
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

/* ---- collated.c ---- */
/* Arrays of all samples of the batch, which a fetch with `collate` ends with: local ones from their
 * maps, the others as they were received and checked. *bytes counts columns and keys of local ones.
 */
rks_status rks_fetch_make_arrays(rks_batch *batch, rks_collate *collate, rks_arrays **arrays,
                                 uint64_t *bytes, rks_error *err);

/* ---- remote.c ---- */
/* Makes and queues the requests for the `remote` samples of the fetch that do not lie in maps. */
rks_status rks_fetch_ask_all(rks_fetch *fetch, size_t remote, rks_error *err);
/* Sends what waits, as far as there is room. No lock is held. */
void rks_fetch_send_queued(rks_fetcher *fetcher);
/* Parses and checks what a reply holds; *bytes counts columns and keys. */
rks_status rks_fetch_check_reply(rks_ask *ask, uint64_t *bytes, rks_error *err);
/* Takes it out of its fetch's sent list, if it is there; fetcher->mutex is held. */
void rks_ask_unlink_sent(rks_ask *ask);
/* Takes the request: it is sent again, others are asked, or its fetch has failed. No lock is held.
 */
void rks_ask_failed(rks_ask *ask, const rks_error *err);
/* Takes the requests of a fetch (NULL: all) out of the queue; fetcher->mutex is held. */
rks_ask *rks_fetch_unqueue(rks_fetcher *fetcher, const rks_fetch *fetch);
/* Frees a list of them, and their references to the fetch: not the last ones where the mutex is
 * held. */
void rks_ask_free(rks_ask *asks);

/* ---- silent.c ---- */
/* Gives up the requests of the fetch whose owners have sent nothing for timeout_ms: others are
 * asked, or the fetch has failed. No lock is held. */
void rks_fetch_give_up_silent(rks_fetch *fetch);

/* ---- fetcher.c ---- */
/* A fetch with its requests sent; of `ahead` ones workers may take the pieces. */
rks_status rks_fetch_begin(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                           rks_collate *collate, bool ahead, rks_fetch **fetch, rks_error *err);
/* How many of the samples do not lie in maps; RKS_ERR_ARGUMENT for one that cannot be. */
rks_status rks_fetch_count_remote(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  size_t count, size_t *remote, rks_error *err);
/* The mutex is held for these four. */
bool rks_fetch_is_over(const rks_fetch *fetch);
void rks_fetch_set_failed(rks_fetch *fetch, const rks_error *err);
void rks_fetch_wake(rks_fetch *fetch); /* a piece has come that somebody must work on */
/* The end of a piece: the batch takes *block over, or, where `block` is NULL, the fetch has failed.
 */
void rks_fetch_finish(rks_fetch *fetch, rks_block **block, uint64_t remote_bytes,
                      const rks_error *err);
void rks_fetch_release(rks_fetch *fetch); /* no lock is held, or it is not the last one */
void rks_fetcher_release(rks_fetcher *fetcher);

#endif
