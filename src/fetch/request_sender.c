/* SPDX-License-Identifier: Apache-2.0
 *
 * request_sender.c: passes requests to the engine, and hears from it. Whatever a reply makes room
 * for is sent next. */
#include "fetch/request_sender.h"

#include "base/error.h"
#include "fetch/coalesce.h"
#include "fetch/reply.h"
#include "fetch/request_queue.h"
#include "fetch/workers.h"
#include "fetch/retry.h"

/* ---- the engine's calls: engine thread ------------------------------------------------------- */

static void reply_done(rks_call *call, const rks_error *err)
{
    rks_fetch_request *request = rks_fetch_request_of(call);
    rks_fetcher *fetcher = request->fetch->fetcher;
    atomic_fetch_add(&fetcher->references, 1); /* the fetch's reference may go with the request */
    rks_fetch_send(rks_fetch_reply_done(request, err));
    rks_fetcher_release(fetcher);
}

static void request_over(rks_call *call)
{
    rks_fetch_request_drop(rks_fetch_request_of(call));
}

static const rks_call_ops REPLY_OPS = {rks_fetch_reply_place, rks_fetch_reply_comes, reply_done,
                                       request_over};

static void joint_done(rks_call *call, const rks_error *err)
{
    rks_fetch_send(rks_fetch_joint_done(call, err)); /* the call holds the fetcher until it is
                                                      * over */
}

static const rks_call_ops JOINT_OPS = {rks_fetch_joint_place, rks_fetch_joint_comes, joint_done,
                                       rks_fetch_joint_over};

/* ---- send ------------------------------------------------------------------------------------ */

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
    for (rks_fetch_request *i = list; i != NULL; i = i->next)
        i->call.ops = &REPLY_OPS;
    rks_call *first = rks_fetch_coalesce(fetcher, list, &JOINT_OPS);
    if (rks_engine_call_all(fetcher->options.engine, first, &err) == RKS_OK)
        return true;
    while (first != NULL) {
        rks_call *next = first->next;
        if (first->ops == &JOINT_OPS)
            rks_fetch_separate(first, not_sent, &err);
        else
            not_sent(rks_fetch_request_of(first), &err);
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
        if (!sent) /* asks other owners, until none is left */
            list = rks_fetch_pop_queued(fetcher);
    }
}

void rks_fetch_send_queued(rks_fetcher *fetcher)
{
    rks_fetch_send(rks_fetch_pop_queued(fetcher));
}

/* Sends what was queued meanwhile, unless others still gather, and wakes workers for what they have
 * to do. */
static void end_gathering(rks_fetcher *fetcher)
{
    atomic_fetch_sub(&fetcher->gathering, 1);
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request *list = rks_fetch_next_to_send(fetcher);
    rks_fetcher_wake_gathered(fetcher);
    pthread_mutex_unlock(&fetcher->mutex);
    rks_fetch_send(list);
}

void rks_fetcher_gather(rks_fetcher *fetcher, bool on)
{
    if (on)
        atomic_fetch_add(&fetcher->gathering, 1);
    else
        end_gathering(fetcher);
}
