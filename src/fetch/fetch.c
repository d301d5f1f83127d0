/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch.c: fetches from their start to their end.
 *
 * A synchronous fetch does all slow work in the caller's thread. A fetch that was started ahead
 * also gives its tasks to the workers, which start with the first such fetch; so does one whose
 * samples are not in memory, since the caller's thread must not wait for storage (slow.h). If a
 * fetch is cancelled, its sent requests stay with the engine. The last of them frees the fetch, and
 * possibly the fetcher after its close. */
#include "fetch/fetch.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "fetch/collated.h"
#include "fetch/deal.h"
#include "fetch/fetch_tasks.h"
#include "fetch/local.h"
#include "fetch/reply.h"
#include "fetch/request_queue.h"
#include "fetch/request_sender.h"
#include "fetch/retry.h"
#include "fetch/slow.h"
#include "fetch/workers.h"

/* ---- tasks ---------------------------------------------------------------------------------- */

/* Takes the local task, and releases the mutex; or leaves the task to workers, and does not. Only
 * a thread of the program leaves any. */
static bool take_local(rks_fetch *fetch, bool is_worker)
{
    rks_fetcher *fetcher = fetch->fetcher;
    fetch->local_waits = false;
    pthread_mutex_unlock(&fetcher->mutex);
    if (is_worker || !rks_fetch_list_may_wait(fetch->batch->list))
        return true;
    pthread_mutex_lock(&fetcher->mutex);
    fetch->local_waits = true;
    fetch->left = true;
    rks_fetch_wake(fetch);
    return false;
}

static void do_local(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_block *block = NULL;
    uint64_t bytes = 0;
    rks_error err;
    rks_status status = rks_fetch_copy_local(fetch->batch, &block, &bytes, &err);
    pthread_mutex_lock(&fetcher->mutex);
    fetch->local_bytes += bytes;
    if (rks_fetch_finish(fetch, status == RKS_OK ? &block : NULL, 0, &err))
        pthread_cond_broadcast(&fetch->changed);
}

/* Makes the arrays. All other tasks are done, so no other thread uses the batch. */
static void do_arrays(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_arrays *arrays = NULL;
    uint64_t bytes = 0;
    rks_error err;
    rks_status status = rks_fetch_make_arrays(fetch->batch, fetch->collate, &arrays, &bytes, &err);
    pthread_mutex_lock(&fetcher->mutex);
    if (status == RKS_OK) {
        rks_batch *made_of = fetch->batch;
        fetch->batch = NULL;
        pthread_mutex_unlock(&fetcher->mutex);
        rks_batch_free(made_of);
        pthread_mutex_lock(&fetcher->mutex);
    }
    fetch->local_bytes += bytes;
    fetch->arrays = arrays;
    if (status != RKS_OK)
        rks_fetch_set_failed(fetch, &err);
    else if (rks_fetch_end_task(fetch))
        pthread_cond_broadcast(&fetch->changed);
}

static void do_arrived(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_fetch_request *request = fetch->arrived;
    uint64_t bytes = 0;
    rks_error err;
    fetch->arrived = request->next;
    pthread_mutex_unlock(&fetcher->mutex);
    rks_status status = rks_fetch_check_reply(request, &bytes, &err);
    pthread_mutex_lock(&fetcher->mutex);
    if (rks_fetch_finish(fetch, status == RKS_OK ? &request->reply : NULL, bytes, &err))
        pthread_cond_broadcast(&fetch->changed);
    rks_fetch_request_drop(request);
}

/* Takes a task and works on it without the mutex. Returns false if there is none for this thread.
 * The caller must hold the mutex and a reference. */
static bool work_on(rks_fetch *fetch, bool is_worker)
{
    if (rks_fetch_is_over(fetch))
        return false;
    if (fetch->arrived != NULL) {
        do_arrived(fetch);
        return true;
    }
    if (!fetch->local_waits || (fetch->left && !is_worker) ||
        (fetch->collate != NULL && fetch->tasks != 1) || !take_local(fetch, is_worker))
        return false;
    if (fetch->collate == NULL)
        do_local(fetch);
    else
        do_arrays(fetch);
    return true;
}

/* Drops a reference unless it is the last one; then returns false. So the mutex may be held. */
static bool release_shared(rks_fetch *fetch)
{
    int references = atomic_load(&fetch->references);
    while (references > 1)
        if (atomic_compare_exchange_weak(&fetch->references, &references, references - 1))
            return true;
    return false;
}

/* Works on all tasks of the first fetch of the work list that this thread may work on. */
static bool work_on_first(rks_fetcher *fetcher, bool is_worker)
{
    rks_fetch **at = &fetcher->work, *fetch;
    while (*at != NULL && (*at)->left && !is_worker)
        at = &(*at)->next;
    if ((fetch = *at) == NULL)
        return false;
    *at = fetch->next;
    if (fetch->next == NULL)
        fetcher->work_end = at;
    fetch->queued = false;
    while (work_on(fetch, is_worker))
        ;
    if (release_shared(fetch)) /* the work list's reference */
        return true;
    if (fetch->batch == NULL && fetch->arrays == NULL) {
        rks_fetch_release(fetch); /* its results are taken, so freeing it needs no lock and little
                                   * time */
    } else {
        pthread_mutex_unlock(&fetcher->mutex);
        rks_fetch_release(fetch);
        pthread_mutex_lock(&fetcher->mutex);
    }
    return true;
}

static bool work_on_next(rks_fetcher *fetcher)
{
    return work_on_first(fetcher, true);
}

/* ---- fetches --------------------------------------------------------------------------------- */

/* Makes a fetch and its requests, without queueing them. */
static rks_status make_fetch(rks_request_list *list, size_t remote, rks_collate *collate,
                             bool ahead, rks_fetch **fetch, rks_fetch_request **requests,
                             rks_error *err)
{
    rks_fetch *made = rks_alloc_raw(sizeof(*made) + remote * sizeof(made->order[0]), 1, err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    memset(made, 0, sizeof(*made));
    made->fetcher = list->fetcher;
    made->count = list->count;
    made->ahead = ahead;
    atomic_init(&made->references, 1);
    atomic_fetch_add(&made->fetcher->references, 1);
    rks_cond_init(&made->changed);
    if (collate != NULL) {
        rks_collate_hold(collate);
        made->collate = collate;
    }
    made->local_waits = remote < list->count || collate != NULL;
    size_t asked = 0;
    rks_status status = rks_batch_create(list, &made->batch, err);
    if (status == RKS_OK && remote != 0)
        status = rks_fetch_deal_all(made, remote, requests, &asked, err);
    if (status != RKS_OK) {
        if (made->batch != NULL)
            rks_batch_discard(made->batch); /* the caller keeps the list */
        made->batch = NULL;
        rks_fetch_release(made);
        return status;
    }
    made->tasks = asked + made->local_waits;
    atomic_store(&made->over, made->tasks == 0);
    *fetch = made;
    return RKS_OK;
}

static rks_status begin_fetch(rks_fetcher *fetcher, rks_request_list *list, rks_collate *collate,
                              bool ahead, rks_fetch **fetch, rks_error *err)
{
    rks_fetch *made = NULL;
    rks_fetch_request *requests = NULL;
    size_t remote = 0;
    rks_status status = rks_request_list_look(list, &remote, err);
    bool leaves =
        status == RKS_OK && (!ahead || list->ahead == NULL) && rks_fetch_list_may_wait(list);
    ahead = ahead || leaves;
    if (status == RKS_OK && ahead && list->count != 0)
        status = rks_fetcher_start_workers(fetcher, work_on_next, err);
    if (status == RKS_OK && list->ahead == NULL && !leaves)
        rks_fetch_ask_disk(list);
    if (status == RKS_OK)
        status = make_fetch(list, remote, collate, ahead, &made, &requests, err);
    if (status != RKS_OK)
        return status;
    bool wakes = ahead && made->local_waits && (collate == NULL || remote == 0);
    if (wakes || remote != 0) {
        pthread_mutex_lock(&fetcher->mutex);
        if (wakes)
            rks_fetch_wake(made);
        rks_fetch_enqueue(fetcher, requests);
        requests = rks_fetch_next_to_send(fetcher);
        pthread_mutex_unlock(&fetcher->mutex);
        rks_fetch_send(requests);
    }
    *fetch = made;
    return RKS_OK;
}

rks_status rks_fetcher_start(rks_fetcher *fetcher, rks_request_list *list, rks_fetch **fetch,
                             rks_error *err)
{
    return begin_fetch(fetcher, list, NULL, true, fetch, err);
}

/* Ends a fetch that its caller no longer needs: drops its queued requests and unchecked replies,
 * and the reference. A fetch whose results are complete has neither. */
static void end_fetch(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    if (atomic_load_explicit(&fetch->memory, memory_order_relaxed) == 0) {
        pthread_mutex_lock(&fetcher->mutex);
        atomic_store(&fetch->over, true);
        rks_fetch_request *arrived = fetch->arrived;
        fetch->arrived = NULL;
        rks_fetch_request *queued = rks_fetch_unqueue(fetcher, fetch);
        /* Replies still to come get no memory now, so others may use their room. */
        for (rks_fetch_request *sent = fetch->sent; sent != NULL; sent = sent->next_sent)
            rks_fetch_request_unreserve(sent);
        rks_fetch_request *next = fetch->sent != NULL ? rks_fetch_next_to_send(fetcher) : NULL;
        pthread_mutex_unlock(&fetcher->mutex);
        rks_fetch_request_free(arrived);
        rks_fetch_request_free(queued);
        rks_fetch_send(next);
    }
    rks_fetch_release(fetch);
}

/* Between two waits: is the caller to stop? Says what it waits for if that takes long. */
static rks_status look_around(rks_fetch *fetch, uint64_t now_ms, uint64_t begun_ms,
                              uint64_t *said_ms, rks_error *err)
{
    const rks_fetcher *fetcher = fetch->fetcher;
    if (atomic_load(&fetcher->ending))
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "the dataset was closed while this call waited for its samples");
    uint32_t patience_ms = fetcher->options.patience_ms;
    if (patience_ms != 0 && now_ms - *said_ms >= patience_ms) {
        *said_ms = now_ms;
        rks_fetch_say_slow(fetch, now_ms - begun_ms);
    }
    rks_status status = rks_check_interrupt(err);
    return status == RKS_OK ? rks_arriving_must_stop(fetcher->options.arriving, err) : status;
}

/* Works and waits until the fetch is over. A thread that waits for a fetch started ahead helps with
 * later fetches instead of sleeping: it will wait for them next. */
static rks_status wait_until_over(rks_fetch *fetch, rks_error *err)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_status status = RKS_OK;
    if (rks_fetch_is_over(fetch))
        return RKS_OK;
    uint64_t looked_ms = rks_now_ms(), begun_ms = looked_ms, said_ms = looked_ms;
    pthread_mutex_lock(&fetcher->mutex);
    while (status == RKS_OK && !rks_fetch_is_over(fetch)) {
        bool worked =
            work_on(fetch, !fetch->ahead) || (fetch->ahead && work_on_first(fetcher, false));
        if (!worked) {
            fetch->waited_for = true;
            rks_cond_wait_ms(&fetch->changed, &fetcher->mutex, RKS_WAIT_SLICE_MS);
            fetch->waited_for = false;
        }
        if (rks_fetch_is_over(fetch))
            break;
        uint64_t now = rks_now_ms();
        if (worked && now < looked_ms + RKS_WAIT_SLICE_MS)
            continue;
        looked_ms = now;
        pthread_mutex_unlock(&fetcher->mutex);
        status = look_around(fetch, now, begun_ms, &said_ms, err);
        if (status == RKS_OK && fetcher->options.timeout_ms != 0 && rks_fetch_give_up_silent(fetch))
            rks_fetch_send_queued(fetcher);
        pthread_mutex_lock(&fetcher->mutex);
    }
    pthread_mutex_unlock(&fetcher->mutex);
    return status;
}

rks_status rks_fetch_wait_either(rks_fetch **fetch, rks_batch **batch, rks_arrays **arrays,
                                 rks_error *err)
{
    rks_fetch *taken = *fetch;
    uint64_t begin = rks_now_ns();
    rks_status status = wait_until_over(taken, err);
    if (status == RKS_ERR_CANCELLED)
        return status;
    if (status != RKS_OK) {
        /* the dataset is closed, or the job has ended: the fetch stays unfinished */
    } else if (taken->status != RKS_OK) {
        status = taken->status;
        if (err != NULL)
            *err = taken->error;
    } else {
        rks_fetcher_count_delivered(taken->fetcher, taken->count, taken->local_bytes,
                                    taken->remote_bytes, begin);
        *batch = taken->batch;
        *arrays = taken->arrays;
        taken->batch = NULL;
        taken->arrays = NULL;
    }
    end_fetch(taken);
    *fetch = NULL;
    return status;
}

rks_status rks_fetch_wait(rks_fetch *fetch, rks_batch **batch, rks_error *err)
{
    rks_arrays *none;
    rks_status status = rks_fetch_wait_either(&fetch, batch, &none, err);
    rks_fetch_cancel(fetch);
    return status;
}

rks_status rks_fetch_wait_arrays(rks_fetch *fetch, rks_arrays **arrays, rks_error *err)
{
    rks_batch *none;
    rks_status status = rks_fetch_wait_either(&fetch, &none, arrays, err);
    rks_fetch_cancel(fetch);
    return status;
}

bool rks_fetch_ready(rks_fetch *fetch)
{
    return rks_fetch_is_over(fetch);
}

uint64_t rks_fetch_memory(rks_fetch *fetch)
{
    return atomic_load_explicit(&fetch->memory, memory_order_relaxed);
}

void rks_fetch_cancel(rks_fetch *fetch)
{
    if (fetch != NULL)
        end_fetch(fetch);
}

/* Fetches without requests: all shards are mapped. */
static rks_status fetch_local(rks_request_list *list, rks_batch **batch, uint64_t *bytes,
                              rks_error *err)
{
    rks_batch *made = NULL;
    rks_block *block = NULL;
    rks_status status = rks_batch_create(list, &made, err);
    if (status == RKS_OK && list->count > 0)
        status = rks_fetch_copy_local(made, &block, bytes, err);
    if (status != RKS_OK) {
        if (made != NULL)
            rks_batch_discard(made);
        return status;
    }
    if (block != NULL)
        rks_batch_add(made, block);
    *batch = made;
    return RKS_OK;
}

rks_status rks_fetcher_fetch(rks_fetcher *fetcher, rks_request_list *list, rks_batch **batch,
                             rks_error *err)
{
    uint64_t begin = rks_now_ns(), bytes = 0;
    rks_fetch *fetch = NULL;
    size_t remote = 0, count = list->count;
    rks_status status = rks_request_list_look(list, &remote, err);
    if (status == RKS_OK && (remote != 0 || rks_fetch_list_may_wait(list))) {
        status = begin_fetch(fetcher, list, NULL, false, &fetch, err);
        if (status == RKS_OK)
            return rks_fetch_wait(fetch, batch, err);
    } else if (status == RKS_OK) {
        status = fetch_local(list, batch, &bytes, err);
    }
    if (status == RKS_OK)
        rks_fetcher_count_delivered(fetcher, count, bytes, 0, begin);
    else
        rks_request_list_free(list);
    return status;
}

/* ---- arrays ---------------------------------------------------------------------------------- */

/* Makes arrays without requests. Frees the list in any case. */
static rks_status collate_local(rks_request_list *list, rks_collate *collate, rks_arrays **arrays,
                                uint64_t *bytes, rks_error *err)
{
    rks_batch *batch = NULL;
    rks_status status = rks_batch_create(list, &batch, err);
    if (status == RKS_OK)
        status = rks_fetch_make_arrays(batch, collate, arrays, bytes, err);
    if (batch == NULL)
        rks_request_list_free(list);
    rks_batch_free(batch);
    return status;
}

rks_status rks_fetcher_collate(rks_fetcher *fetcher, rks_request_list *list, rks_collate *collate,
                               rks_arrays **arrays, rks_error *err)
{
    uint64_t begin = rks_now_ns(), bytes = 0;
    rks_fetch *fetch = NULL;
    size_t remote = 0, count = list->count;
    rks_status status = rks_request_list_look(list, &remote, err);
    if (status == RKS_OK && remote == 0 && !rks_fetch_list_may_wait(list)) {
        status = collate_local(list, collate, arrays, &bytes, err);
        if (status == RKS_OK)
            rks_fetcher_count_delivered(fetcher, count, bytes, 0, begin);
        return status;
    }
    if (status == RKS_OK)
        status = begin_fetch(fetcher, list, collate, false, &fetch, err);
    if (status == RKS_OK)
        return rks_fetch_wait_arrays(fetch, arrays, err);
    rks_request_list_free(list);
    return status;
}

rks_status rks_fetcher_start_arrays(rks_fetcher *fetcher, rks_request_list *list,
                                    rks_collate *collate, rks_fetch **fetch, rks_error *err)
{
    return begin_fetch(fetcher, list, collate, true, fetch, err);
}

/* ---- the end --------------------------------------------------------------------------------- */

void rks_fetcher_close(rks_fetcher *fetcher)
{
    if (fetcher == NULL)
        return;
    pthread_mutex_lock(&fetcher->mutex);
    atomic_store(&fetcher->closing, true); /* nothing is queued after this */
    rks_fetch_request *queued = rks_fetch_unqueue(fetcher, NULL);
    pthread_mutex_unlock(&fetcher->mutex);
    rks_fetcher_join_workers(fetcher);
    rks_fetch_request_free(queued);
    pthread_mutex_lock(&fetcher->mutex); /* a thread that hung may come back now */
    rks_fetch *left = fetcher->work;
    fetcher->work = NULL;
    fetcher->work_end = &fetcher->work;
    pthread_mutex_unlock(&fetcher->mutex);
    while (left != NULL) {
        rks_fetch *fetch = left;
        left = fetch->next;
        rks_fetch_release(fetch);
    }
    rks_fetcher_release(fetcher);
}
