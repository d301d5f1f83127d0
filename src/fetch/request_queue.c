/* SPDX-License-Identifier: Apache-2.0
 *
 * request_queue.c: requests that wait for room in `inflight_bytes`, and those that were sent. */
#include "fetch/request_queue.h"

#include "base/clock.h"
#include "base/trace.h"

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

rks_fetch_request *rks_fetch_pop_queued(rks_fetcher *fetcher)
{
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request *list = rks_fetch_next_to_send(fetcher);
    pthread_mutex_unlock(&fetcher->mutex);
    return list;
}
