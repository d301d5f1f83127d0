/* SPDX-License-Identifier: Apache-2.0
 *
 * retry.c: handles requests that fail and owners that fall silent.
 *
 * The engine asks again over a new connection if one breaks. If it gives the owner up, the same
 * owner is asked once more, unless its link failed, then the shard's next owners, and then the
 * fetch fails. If the user set a limit, the waiter gives up a request whose owner is alive
 * but sends no part of the reply, for example because its disk hangs. Others are asked then. The
 * request stays with the engine, and no longer uses the batch. A late reply is dropped. */
#include "fetch/retry.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fetch/deal.h"
#include "fetch/request_queue.h"

/* Adds an owner to the failed ones. Without room it drops the oldest. The mutex must be held. */
static void note_owner_failed(rks_fetcher *fetcher, uint32_t owner)
{
    rks_fetch_owners *failed = &fetcher->failed;
    if (rks_fetch_owners_have(failed, owner))
        return;
    if (failed->count == RKS_FETCH_TRIES)
        memmove(failed->ranks, failed->ranks + 1, sizeof(failed->ranks[0]) * --failed->count);
    failed->ranks[failed->count++] = owner;
    atomic_store(&fetcher->some_failed, true);
}

void rks_fetch_owner_answers(rks_fetcher *fetcher, uint32_t owner)
{
    rks_fetch_owners *failed = &fetcher->failed;
    for (size_t i = 0; i < failed->count; i++)
        if (failed->ranks[i] == owner)
            failed->ranks[i--] = failed->ranks[--failed->count];
    atomic_store_explicit(&fetcher->some_failed, failed->count != 0, memory_order_relaxed);
}

void rks_fetch_request_fatal(const rks_fetch_request *request, const rks_error *inner)
{
    rks_fetch *fetch = request->fetch;
    rks_error err;
    rks_fetcher_blame(fetch->fetcher, rks_fetch_request_wanted(request, 0), inner, &err);
    rks_error_place(&err, request->call.peer, "");
    pthread_mutex_lock(&fetch->fetcher->mutex);
    rks_fetch_set_failed(fetch, &err);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
}

/* Makes requests for the samples of this one, to the same owner or to the next ones. Returns false
 * if a sample has no owner left, or if memory is short. */
static bool replace_request(rks_fetch_request *request, bool again)
{
    rks_fetch *fetch = request->fetch;
    rks_fetch_request *list = NULL;
    rks_fetch_owners tried = request->tried;
    size_t made = 1;
    rks_status status;
    if (again) {
        status = rks_fetch_request_make(fetch, request->call.peer, request->first, request->count,
                                        &list, NULL);
        if (status == RKS_OK) {
            list->again = true;
            list->tried = tried;
        }
    } else {
        if (tried.count == RKS_FETCH_TRIES)
            return false;
        tried.ranks[tried.count++] = request->call.peer;
        status = rks_fetch_deal(fetch, request->first, request->count, &tried, &list, &made, NULL);
    }
    if (status != RKS_OK)
        return false;
    pthread_mutex_lock(&fetch->fetcher->mutex);
    if (!atomic_load(&fetch->fetcher->closing) && !rks_fetch_is_over(fetch)) {
        fetch->tasks += made - 1; /* they replace this one */
        rks_fetch_enqueue(fetch->fetcher, list);
        list = NULL;
    }
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    rks_fetch_request_free(list);
    return true;
}

void rks_fetch_request_failed(rks_fetch_request *request, const rks_error *err)
{
    rks_fetcher *fetcher = request->fetch->fetcher;
    if (atomic_load(&fetcher->closing) || rks_fetch_is_over(request->fetch))
        return;
    bool again = err->status == RKS_ERR_PEER && err->cause != ENOLINK && !request->again;
    if (!again) {
        pthread_mutex_lock(&fetcher->mutex);
        note_owner_failed(fetcher, request->call.peer);
        pthread_mutex_unlock(&fetcher->mutex);
    }
    if (!replace_request(request, again))
        rks_fetch_request_fatal(request, err);
}

static bool is_silent(const rks_fetch_request *request, uint64_t now)
{
    const rks_fetcher *fetcher = request->fetch->fetcher;
    uint64_t since =
        atomic_load_explicit(&fetcher->heard_ms[request->call.peer], memory_order_relaxed);
    if (since < request->sent_ms)
        since = request->sent_ms;
    return now >= since + fetcher->options.timeout_ms;
}

bool rks_fetch_give_up_silent(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_fetch_request *silent = NULL;
    rks_error err;
    uint64_t now = rks_now_ms();
    pthread_mutex_lock(&fetcher->mutex);
    for (rks_fetch_request *request = fetch->sent, *next; request != NULL; request = next) {
        next = request->next_sent;
        if (!is_silent(request, now) || !rks_fetch_request_claim(request, RKS_REQUEST_GIVEN_UP))
            continue;
        rks_fetch_request_unlink(request);
        rks_fetch_request_unreserve(request); /* their replacements need the room */
        atomic_fetch_add(&request->holds, 1); /* ours: the engine's thread may end it in between */
        request->next_silent = silent;
        silent = request;
    }
    pthread_mutex_unlock(&fetcher->mutex);
    if (silent == NULL)
        return false;
    rks_fail(&err, RKS_ERR_TIMEOUT, 0, "the owner is alive, but sent nothing for %" PRIu32 " ms",
             fetcher->options.timeout_ms);
    while (silent != NULL) {
        rks_fetch_request *request = silent;
        silent = request->next_silent;
        rks_fetch_request_failed(request, &err);
        rks_fetch_request_drop(request);
    }
    return true;
}
