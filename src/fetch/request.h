/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h: a request to an owner. */
#ifndef RKS_FETCH_REQUEST_H
#define RKS_FETCH_REQUEST_H

#include "fetch/fetch_tasks.h"

enum { RKS_FETCH_REQUEST_ROWS = 128 }; /* most rows of a request */

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
struct rks_fetch_request {
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
};

/* Makes a request to `owner` for the samples at order[first, first + count), which it takes
 * over. */
rks_status rks_fetch_request_make(rks_fetch *fetch, uint32_t owner, size_t first, size_t count,
                                  rks_fetch_request **made, rks_error *err);
/* Returns the request of a call that was sent alone. */
rks_fetch_request *rks_fetch_request_of(rks_call *call);
/* Returns the request's i-th sample. */
const rks_wanted *rks_fetch_request_wanted(const rks_fetch_request *request, size_t i);
/* Drop one hold of a request, or of all in a list. If the mutex is held, it must not be the last
 * hold of a fetch. */
void rks_fetch_request_drop(rks_fetch_request *request);
void rks_fetch_request_free(rks_fetch_request *list);

#endif
