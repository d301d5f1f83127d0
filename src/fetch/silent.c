/* SPDX-License-Identifier: Apache-2.0
 *
 * silent.c: owners that beat but send nothing of what was asked, as one whose disk hangs. Who waits
 * for a fetch looks for them, where the user set a limit. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "fetch/fetcher.h"

/* The mutex is held. A copy of a request that is on its way, as one that failed; the engine keeps
 * the request itself until its reply or its failure. NULL: no memory. */
static rks_ask *give_up_sent(rks_ask *ask, rks_error *err)
{
    size_t size = sizeof(*ask) + ask->count * sizeof(ask->at[0]);
    rks_ask *copy = rks_alloc(1, size, err);
    if (copy == NULL)
        return NULL;
    copy->fetch = ask->fetch;
    atomic_fetch_add(&ask->fetch->references, 1);
    copy->owner = ask->owner;
    copy->again = true; /* not of the same owner */
    copy->tried_count = ask->tried_count;
    memcpy(copy->tried, ask->tried, sizeof(copy->tried));
    copy->count = ask->count;
    memcpy(copy->at, ask->at, ask->count * sizeof(ask->at[0]));
    ask->given_up = true;
    rks_ask_unlink_sent(ask);
    return copy;
}

/* The mutex is held. */
static bool is_silent(const rks_ask *ask, uint64_t now)
{
    const rks_fetcher *fetcher = ask->fetch->fetcher;
    uint64_t since = atomic_load_explicit(&fetcher->heard_ms[ask->owner], memory_order_relaxed);
    if (since < ask->sent_ms)
        since = ask->sent_ms;
    return now >= since + fetcher->options.timeout_ms;
}

void rks_fetch_give_up_silent(rks_fetch *fetch)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_ask *silent = NULL;
    rks_error err;
    uint64_t now = rks_now_ms();
    pthread_mutex_lock(&fetcher->mutex);
    for (rks_ask *ask = fetch->sent, *next; ask != NULL; ask = next) {
        next = ask->next;
        if (!is_silent(ask, now))
            continue;
        rks_ask *copy = give_up_sent(ask, &err);
        if (copy == NULL) {
            rks_fetch_set_failed(fetch, &err);
            break;
        }
        copy->next = silent;
        silent = copy;
    }
    pthread_mutex_unlock(&fetcher->mutex);
    if (silent == NULL)
        return;
    rks_fail(&err, RKS_ERR_TIMEOUT, 0, "the owner beats, but sent nothing for %" PRIu32 " ms",
             fetcher->options.timeout_ms);
    while (silent != NULL) {
        rks_ask *copy = silent;
        silent = copy->next;
        copy->next = NULL;
        rks_ask_failed(copy, &err);
    }
    rks_fetch_send_queued(fetcher);
}
