/* SPDX-License-Identifier: Apache-2.0
 *
 * reply.c: what becomes of a request for samples, from the batch's list to the reply.
 *
 *   make     request.c makes a request for samples that deal.c has put together, and writes its
 *            bytes
 *   queue    request_queue.c reserves the largest possible reply in `inflight_bytes`; a request
 *            without room waits in the fetcher's queue
 *   send     request_sender.c passes the request, or one for several (coalesce.c), to the engine;
 *            the request is in its fetch's `sent` list
 *   reply    receives the reply into a block of the batch; checks a small one at once, and makes a
 *            large one a task for the next free thread
 *
 * Replies are bounded: samples that an owner did not serve become another request. retry.c handles
 * failed requests. */
#include "fetch/reply.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "base/trace.h"
#include "fetch/request_queue.h"
#include "fetch/retry.h"
#include "fetch/wire.h"

enum { CHECK_AT_ONCE = 128 << 10 }; /* most bytes of a reply */

/* ---- check: the engine's thread, the waiter or a worker -------------------------------------- */

static rks_status check_record(const rks_fetch_request *request, size_t i, rks_record_view *view,
                               rks_error *err)
{
    const rks_fetcher *fetcher = request->fetch->fetcher;
    const rks_wanted *wanted = rks_fetch_request_wanted(request, i);
    rks_error inner;
    rks_status status = rks_fetch_reply_record(request->reply->data, request->reply->size,
                                               request->count, i, view, &inner);
    if (status != RKS_OK)
        rks_fetcher_blame(fetcher, wanted, &inner, err);
    else if (fetcher->options.check)
        status = rks_fetcher_check(fetcher, wanted, view, err);
    if (status != RKS_OK)
        rks_error_place(err, request->call.peer, "");
    return status;
}

rks_status rks_fetch_check_reply(rks_fetch_request *request, uint64_t *bytes, rks_error *err)
{
    rks_fetch *fetch = request->fetch;
    uint64_t sum = 0;
    for (size_t i = 0; i < request->count; i++) {
        rks_record_view *view = &fetch->batch->views[fetch->order[request->first + i]];
        rks_status status = check_record(request, i, view, err);
        if (status != RKS_OK)
            return status;
        const rks_wanted *wanted = rks_fetch_request_wanted(request, i);
        sum += rks_payload_bytes(fetch->fetcher->layouts.of[wanted->shard], view);
    }
    *bytes = sum;
    return RKS_OK;
}

/* ---- engine thread --------------------------------------------------------------------------- */

void rks_fetch_owner_heard(rks_fetcher *fetcher, uint32_t owner)
{
    atomic_store_explicit(&fetcher->heard_ms[owner], rks_now_ms(), memory_order_relaxed);
}

void rks_fetch_count_inflight(rks_fetcher *fetcher, const rks_block *reply)
{
    uint64_t inflight = atomic_fetch_add(&fetcher->inflight, reply->size) + reply->size;
    uint64_t peak = atomic_load_explicit(&fetcher->peak_inflight, memory_order_relaxed);
    while (inflight > peak &&
           !atomic_compare_exchange_weak(&fetcher->peak_inflight, &peak, inflight))
        ;
    rks_usage_add(RKS_MEMORY_IN_FLIGHT, reply->size);
}

void rks_fetch_reply_comes(rks_call *call)
{
    rks_fetch_owner_heard(rks_fetch_request_of(call)->fetch->fetcher, call->peer);
}

void *rks_fetch_reply_place(rks_call *call, size_t size)
{
    rks_fetch_request *request = rks_fetch_request_of(call);
    rks_fetcher *fetcher = request->fetch->fetcher;
    rks_fetch_reply_comes(call);
    if (size > request->limit) {
        request->oversize = size;
        return NULL;
    }
    if (atomic_load(&request->state) == RKS_REQUEST_GIVEN_UP || atomic_load(&fetcher->closing) ||
        rks_fetch_is_over(request->fetch))
        return NULL; /* nobody waits for it: the engine drops its bytes */
    uint64_t reserve = atomic_exchange(&request->reserve, 0);
    request->placed = size < reserve ? size : reserve;
    atomic_fetch_sub(&fetcher->reserved, reserve - request->placed);
    if (reserve == 0)
        return NULL; /* given up just now */
    rks_block *block = rks_blocks_take(fetcher->pool, size, NULL);
    if (block == NULL) {
        request->no_memory = true;
        return NULL;
    }
    request->reply = block;
    rks_fetch_count_inflight(fetcher, block);
    return block->data;
}

/* Frees the room of a request for those that wait. */
static void free_room(rks_fetch_request *request)
{
    rks_fetcher *fetcher = request->fetch->fetcher;
    rks_fetch_request_unreserve(request);
    atomic_fetch_sub(&fetcher->reserved, request->placed);
    if (request->reply == NULL)
        return;
    atomic_fetch_sub(&fetcher->inflight, request->reply->size);
    rks_usage_sub(RKS_MEMORY_IN_FLIGHT, request->reply->size);
}

/* The outcome of a reply: a finished task of the fetch, or one that a thread must check. */
typedef struct outcome {
    size_t served;
    uint64_t bytes;
    bool checked;
    rks_fetch_request *rest; /* for samples that the owner did not serve */
    rks_status status;       /* of a checked reply */
    rks_error error;
} outcome;

/* Looks at a reply, and checks a small one: it is still in the processor's cache, and checking it
 * costs less than waking another thread. */
static rks_status look_at_reply(rks_fetch_request *request, outcome *found, rks_error *err)
{
    const rks_block *reply = request->reply;
    if (reply == NULL)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "reply with samples: no bytes");
    rks_status status =
        rks_fetch_reply_check(reply->data, reply->size, request->count, &found->served, err);
    if (status == RKS_OK && found->served < request->count) {
        status = rks_fetch_request_make(request->fetch, request->call.peer,
                                        request->first + found->served,
                                        request->count - found->served, &found->rest, err);
        if (status == RKS_OK)
            found->rest->tried = request->tried;
    }
    if (status != RKS_OK)
        return status;
    if (rks_fetch_reply_waited(reply->data))
        rks_fetcher_note_home_wait(request->fetch->fetcher);
    request->count = found->served;
    found->checked = reply->size <= CHECK_AT_ONCE;
    if (found->checked)
        found->status = rks_fetch_check_reply(request, &found->bytes, &found->error);
    return RKS_OK;
}

/* Passes the reply to the fetch. Returns true if the request is in `arrived`. *wakes: the caller
 * must wake the waiter. The mutex must be held. */
static bool deliver_reply(rks_fetch_request *request, outcome *found, bool *wakes)
{
    rks_fetch *fetch = request->fetch;
    rks_fetch_owner_answers(fetch->fetcher, request->call.peer);
    if (atomic_load(&fetch->fetcher->closing) || rks_fetch_is_over(fetch))
        return false;
    if (found->rest != NULL) {
        fetch->tasks++;
        rks_fetch_enqueue(fetch->fetcher, found->rest);
        found->rest = NULL;
    }
    if (found->checked) {
        *wakes = rks_fetch_finish(fetch, found->status == RKS_OK ? &request->reply : NULL,
                                  found->bytes, &found->error);
        if (fetch->collate != NULL && fetch->tasks == 1)
            rks_fetch_wake(fetch);
        return false;
    }
    request->next = fetch->arrived;
    fetch->arrived = request;
    rks_fetch_wake(fetch);
    return true;
}

static rks_fetch_request *reply_good(rks_fetch_request *request, outcome *found)
{
    rks_fetch *fetch = request->fetch;
    bool wakes = false;
    pthread_mutex_lock(&fetch->fetcher->mutex);
    rks_fetch_request_unlink(request);
    bool arrived = deliver_reply(request, found, &wakes);
    rks_fetch_request *next = rks_fetch_next_to_send(fetch->fetcher);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    if (wakes)
        pthread_cond_broadcast(&fetch->changed); /* the request still holds the fetch */
    rks_fetch_request_free(found->rest);
    if (!arrived)
        rks_fetch_request_drop(request);
    return next;
}

static rks_fetch_request *reply_bad(rks_fetch_request *request, bool taken, const rks_error *err)
{
    rks_fetcher *fetcher = request->fetch->fetcher;
    rks_error own = *err;
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request_unlink(request);
    pthread_mutex_unlock(&fetcher->mutex);
    if (taken && (request->oversize != 0 || request->no_memory)) {
        if (request->no_memory)
            rks_fail(&own, RKS_ERR_MEMORY, 0, "no memory for a reply with samples");
        else
            rks_fail(&own, RKS_ERR_CORRUPT, 0,
                     "reply with samples: %zu bytes, at most %" PRIu64 " are possible",
                     request->oversize, request->limit);
        rks_fetch_request_fatal(request, &own);
    } else if (taken) {
        rks_fetch_request_failed(request, err);
    }
    rks_fetch_request_drop(request);
    return rks_fetch_pop_queued(fetcher);
}

rks_fetch_request *rks_fetch_reply_done(rks_fetch_request *request, const rks_error *err)
{
    outcome found = {.status = RKS_OK};
    rks_error why;
    bool taken = rks_fetch_request_claim(request, RKS_REQUEST_CLAIMED);
    free_room(request);
    rks_trace_end(request->traced, RKS_TRACE_FETCH, request->call.peer, request->count,
                  request->reply == NULL ? 0 : request->reply->size);
    if (!taken || err != NULL) {
        static const rks_error none = {.status = RKS_OK, .rank = -1};
        return reply_bad(request, taken, err == NULL ? &none : err);
    }
    if (look_at_reply(request, &found, &why) == RKS_OK)
        return reply_good(request, &found);
    rks_fetch_request_fatal(request, &why);
    return reply_bad(request, false, &why);
}

void rks_fetch_request_alone(rks_fetch_request *request)
{
    rks_fetch *fetch = request->fetch;
    rks_fetcher *fetcher = fetch->fetcher;
    rks_fetch_request *again = NULL;
    rks_error err;
    rks_status status = RKS_OK;
    bool taken = rks_fetch_request_claim(request, RKS_REQUEST_CLAIMED);
    if (taken)
        status = rks_fetch_request_make(fetch, request->call.peer, request->first, request->count,
                                        &again, &err);
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request_unlink(request);
    if (again != NULL && !atomic_load(&fetcher->closing) && !rks_fetch_is_over(fetch)) {
        again->again = request->again;
        again->tried = request->tried;
        again->alone = true;
        rks_fetch_enqueue(fetcher, again); /* replaces this task of the fetch */
        again = NULL;
    }
    pthread_mutex_unlock(&fetcher->mutex);
    if (status != RKS_OK)
        rks_fetch_request_fatal(request, &err);
    rks_fetch_request_free(again);
    rks_fetch_request_drop(request);
}
