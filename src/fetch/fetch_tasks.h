/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch_tasks.h: the tasks of a fetch.
 *
 * A fetch consists of tasks: its local samples are one, and each request to an owner is one. A
 * request with a large reply puts itself into the fetch's `arrived` list, to be checked. A fetch
 * with `collate` has the arrays as its last task, which waits for all others and reads the local
 * samples from their maps. The thread that takes a task first does the slow work (copying,
 * checking): the thread that waits for the fetch, or a worker. A fetch is over when no task
 * remains, or with its first error. */
#ifndef RKS_FETCH_FETCH_TASKS_H
#define RKS_FETCH_FETCH_TASKS_H

#include "fetch/batch.h"
#include "fetch/fetcher.h"

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
    bool left;        /* it is left to workers, since the waiting thread might hang in it */
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

static inline bool rks_fetch_is_over(const rks_fetch *fetch)
{
    return atomic_load_explicit(&fetch->over, memory_order_acquire);
}
/* The mutex must be held for these four. */
void rks_fetch_set_failed(rks_fetch *fetch, const rks_error *err);
void rks_fetch_wake(rks_fetch *fetch); /* a task is ready to be worked on */
/* Counts a finished task. Returns true if it was the last one and a thread sleeps on `changed`: the
 * caller must wake it, which needs no mutex. */
bool rks_fetch_end_task(rks_fetch *fetch);
/* Ends a task, and returns as rks_fetch_end_task. The batch takes *block over; if `block` is NULL,
 * the fetch fails with `err`. */
bool rks_fetch_finish(rks_fetch *fetch, rks_block **block, uint64_t remote_bytes,
                      const rks_error *err);
void rks_fetch_release(rks_fetch *fetch); /* no lock may be held, unless others hold it, too */

#endif
