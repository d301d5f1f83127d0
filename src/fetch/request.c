/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c: the requester's side of a request for samples, from the batch's list to the reply.
 *
 *   make     makes a request for samples that deal.c has put together, and writes its bytes
 *   queue    reserves the largest possible reply in `inflight_bytes`; a request without room waits
 *            in the fetcher's queue
 *   send     passes the request, or one for several (coalesce.c), to the engine; the request is in
 * its fetch's `sent` list reply    receives the reply into a block of the batch; checks a small one
 * at once, and makes a large one a task for the next free thread
 *
 * Replies are bounded: samples that an owner did not serve become another request. retry.c handles
 * failed requests. */
#include "fetch/fetcher.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "base/memory_usage.h"
#include "fetch/wire.h"

enum { CHECK_AT_ONCE = 128 << 10 }; /* most bytes of a reply */

static rks_fetch_request *of_call(rks_call *call)
{
    return (rks_fetch_request *)(void *)call; /* its first member */
}

/* ---- make ------------------------------------------------------------------------------------ */

const rks_wanted *rks_fetch_request_wanted(const rks_fetch_request *request, size_t i)
{
    const rks_fetch *fetch = request->fetch;
    return &fetch->batch->wanted[fetch->order[request->first + i]];
}

/* Returns the end of the samples of the i-th one's shard. */
static size_t group_end(const rks_fetch_request *request, size_t i)
{
    uint32_t shard = rks_fetch_request_wanted(request, i)->shard;
    while (i < request->count && rks_fetch_request_wanted(request, i)->shard == shard)
        i++;
    return i;
}

static void write_body(const rks_fetch_request *request, uint32_t groups, uint8_t *body)
{
    uint8_t rows[RKS_FETCH_REQUEST_ROWS * 4];
    uint8_t *to = rks_fetch_put_request(body, groups, (uint32_t)request->count);
    for (size_t i = 0, end; i < request->count; i = end) {
        uint32_t shard = rks_fetch_request_wanted(request, i)->shard;
        end = group_end(request, i);
        for (size_t k = i; k < end; k++)
            rks_store_u32(rows + 4 * (k - i), (uint32_t)rks_fetch_request_wanted(request, k)->row);
        rks_fetch_group group = {request->fetch->fetcher->shard_ids[shard], shard,
                                 (uint32_t)(end - i), rows};
        to = rks_fetch_put_group(to, &group);
    }
}

static void set_limits(rks_fetch_request *request)
{
    uint64_t largest = 0;
    uint64_t sum = rks_fetch_reply_table(request->count) + 2 * RKS_FETCH_ALIGN;
    for (size_t i = 0; i < request->count; i++) {
        uint64_t record =
            request->fetch->fetcher->largest[rks_fetch_request_wanted(request, i)->shard];
        largest = record > largest ? record : largest;
        sum += record + RKS_FETCH_ALIGN;
    }
    request->limit = rks_fetch_reply_limit(request->count, largest);
    request->need = sum < request->limit ? sum : request->limit;
}

static void *place_reply(rks_call *call, size_t size);
static void reply_comes(rks_call *call);
static void reply_done(rks_call *call, const rks_error *err);
static void request_over(rks_call *call);

rks_status rks_fetch_request_make(rks_fetch *fetch, uint32_t owner, size_t first, size_t count,
                                  rks_fetch_request **made, rks_error *err)
{
    static const rks_call_ops ops = {place_reply, reply_comes, reply_done, request_over};
    rks_fetch_request key = {.fetch = fetch, .first = first, .count = count};
    uint32_t groups = 0;
    for (size_t i = 0; i < count; i = group_end(&key, i))
        groups++;
    size_t size = rks_fetch_request_size(groups, count);
    rks_fetch_request *request = rks_alloc_raw(sizeof(*request) + size, 1, err);
    if (request == NULL)
        return RKS_ERR_MEMORY;
    memset(request, 0, sizeof(*request));
    request->fetch = fetch;
    request->first = first;
    request->count = count;
    request->call = (rks_call){.ops = &ops,
                               .phase = "fetch",
                               .body = request->body,
                               .size = size,
                               .peer = owner,
                               .service = (uint16_t)fetch->fetcher->options.service};
    atomic_init(&request->holds, 1);
    atomic_init(&request->state, RKS_REQUEST_WAITS);
    set_limits(request);
    write_body(request, groups, request->body);
    atomic_fetch_add(&fetch->references, 1);
    *made = request;
    return RKS_OK;
}

void rks_fetch_request_drop(rks_fetch_request *request)
{
    if (atomic_fetch_sub(&request->holds, 1) != 1)
        return;
    rks_fetch *fetch = request->fetch;
    rks_blocks_give(fetch->fetcher->pool, request->reply);
    rks_free(request);
    rks_fetch_release(fetch);
}

void rks_fetch_request_free(rks_fetch_request *list)
{
    while (list != NULL) {
        rks_fetch_request *next = list->next;
        rks_fetch_request_drop(list);
        list = next;
    }
}

/* ---- queue and send -------------------------------------------------------------------------- */

void rks_fetch_enqueue(rks_fetcher *fetcher, rks_fetch_request *list)
{
    for (; list != NULL; list = list->next) {
        *fetcher->queue_end = list;
        fetcher->queue_end = &list->next;
    }
}

rks_fetch_request *rks_fetch_unqueue(rks_fetcher *fetcher, const rks_fetch *fetch)
{
    rks_fetch_request *taken = NULL, **at = &fetcher->queue;
    while (*at != NULL) {
        rks_fetch_request *request = *at;
        if (fetch != NULL && request->fetch != fetch) {
            at = &request->next;
            continue;
        }
        *at = request->next;
        request->next = taken;
        taken = request;
    }
    fetcher->queue_end = at;
    return taken;
}

/* Marks a request as sent. From now on its waiter may give it up, and its fetch may end without it.
 * The mutex must be held. */
static void link_sent(rks_fetch_request *request)
{
    rks_fetch *fetch = request->fetch;
    request->sent_ms = rks_now_ms();
    request->traced = rks_trace_begin();
    atomic_store(&request->state, RKS_REQUEST_SENT);
    request->next_sent = fetch->sent;
    request->at_sent = &fetch->sent;
    if (request->next_sent != NULL)
        request->next_sent->at_sent = &request->next_sent;
    fetch->sent = request;
}

void rks_fetch_request_unlink(rks_fetch_request *request)
{
    if (request->at_sent == NULL)
        return;
    *request->at_sent = request->next_sent;
    if (request->next_sent != NULL)
        request->next_sent->at_sent = request->at_sent;
    request->at_sent = NULL;
}

rks_fetch_request *rks_fetch_next_to_send(rks_fetcher *fetcher)
{
    rks_fetch_request *list = NULL, **end = &list;
    uint64_t cap = fetcher->options.inflight_bytes;
    if (atomic_load(&fetcher->gathering) != 0)
        return NULL;
    while (fetcher->queue != NULL && !atomic_load(&fetcher->closing)) {
        rks_fetch_request *request = fetcher->queue;
        uint64_t reserved = atomic_load(&fetcher->reserved);
        if (reserved != 0 && (reserved >= cap || request->need > cap - reserved))
            break; /* a single request always has room */
        fetcher->queue = request->next;
        if (request->next == NULL)
            fetcher->queue_end = &fetcher->queue;
        request->next = NULL;
        atomic_store(&request->reserve, request->need);
        atomic_fetch_add(&fetcher->reserved, request->need);
        link_sent(request);
        *end = request;
        end = &request->next;
    }
    return list;
}

void rks_fetch_request_unreserve(rks_fetch_request *request)
{
    atomic_fetch_sub(&request->fetch->fetcher->reserved, atomic_exchange(&request->reserve, 0));
}

bool rks_fetch_request_claim(rks_fetch_request *request, int state)
{
    int sent = RKS_REQUEST_SENT;
    return atomic_compare_exchange_strong(&request->state, &sent, state);
}

/* Handles a request that was not sent: queues its replacement. */
static void not_sent(rks_fetch_request *request, const rks_error *err)
{
    rks_fetcher *fetcher = request->fetch->fetcher;
    atomic_fetch_sub(&request->holds, 1);
    rks_fetch_request_unreserve(request);
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request_unlink(request);
    pthread_mutex_unlock(&fetcher->mutex);
    if (rks_fetch_request_claim(request, RKS_REQUEST_CLAIMED))
        rks_fetch_request_failed(request, err);
    rks_fetch_request_drop(request);
}

/* Sends the list. Returns false if that failed. */
static bool send_all(rks_fetcher *fetcher, rks_fetch_request *list)
{
    rks_error err;
    rks_call *first = rks_fetch_coalesce(fetcher, list);
    if (rks_engine_call_all(fetcher->options.engine, first, &err) == RKS_OK)
        return true;
    while (first != NULL) {
        rks_call *next = first->next;
        if (!rks_fetch_separate(first, not_sent, &err))
            not_sent(of_call(first), &err);
        first = next;
    }
    return false;
}

void rks_fetch_send(rks_fetch_request *list)
{
    while (list != NULL) {
        rks_fetcher *fetcher = list->fetch->fetcher; /* the caller holds it */
        bool sent = send_all(fetcher, list);
        list = NULL;
        if (!sent) { /* asks other owners, until none is left */
            pthread_mutex_lock(&fetcher->mutex);
            list = rks_fetch_next_to_send(fetcher);
            pthread_mutex_unlock(&fetcher->mutex);
        }
    }
}

void rks_fetch_send_queued(rks_fetcher *fetcher)
{
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request *list = rks_fetch_next_to_send(fetcher);
    pthread_mutex_unlock(&fetcher->mutex);
    rks_fetch_send(list);
}

/* ---- reply: engine thread -------------------------------------------------------------------- */

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

static void reply_comes(rks_call *call)
{
    rks_fetch_owner_heard(of_call(call)->fetch->fetcher, call->peer);
}

static void *place_reply(rks_call *call, size_t size)
{
    rks_fetch_request *request = of_call(call);
    rks_fetcher *fetcher = request->fetch->fetcher;
    reply_comes(call);
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

static void reply_good(rks_fetch_request *request, outcome *found)
{
    rks_fetch *fetch = request->fetch;
    bool wakes = false;
    pthread_mutex_lock(&fetch->fetcher->mutex);
    rks_fetch_request_unlink(request);
    bool arrived = deliver_reply(request, found, &wakes);
    rks_fetch_request *list = rks_fetch_next_to_send(fetch->fetcher);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    if (wakes)
        pthread_cond_broadcast(&fetch->changed); /* the request still holds the fetch */
    rks_fetch_send(list);
    rks_fetch_request_free(found->rest);
    if (!arrived)
        rks_fetch_request_drop(request);
}

static void reply_bad(rks_fetch_request *request, bool taken, const rks_error *err)
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
    rks_fetch_send_queued(fetcher);
}

void rks_fetch_request_done(rks_fetch_request *request, const rks_error *err)
{
    rks_fetcher *fetcher = request->fetch->fetcher;
    outcome found = {.status = RKS_OK};
    rks_error why;
    bool taken = rks_fetch_request_claim(request, RKS_REQUEST_CLAIMED);
    atomic_fetch_add(&fetcher->references, 1); /* the fetch's reference may go with the request */
    free_room(request);
    rks_trace_end(request->traced, RKS_TRACE_FETCH, request->call.peer, request->count,
                  request->reply == NULL ? 0 : request->reply->size);
    if (!taken || err != NULL) {
        static const rks_error none = {.status = RKS_OK, .rank = -1};
        reply_bad(request, taken, err == NULL ? &none : err);
    } else if (look_at_reply(request, &found, &why) == RKS_OK) {
        reply_good(request, &found);
    } else {
        rks_fetch_request_fatal(request, &why);
        reply_bad(request, false, &why);
    }
    rks_fetcher_release(fetcher);
}

static void reply_done(rks_call *call, const rks_error *err)
{
    rks_fetch_request_done(of_call(call), err);
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

static void request_over(rks_call *call)
{
    rks_fetch_request_drop(of_call(call));
}

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
