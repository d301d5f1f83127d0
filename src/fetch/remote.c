/* SPDX-License-Identifier: Apache-2.0
 *
 * remote.c: requests for samples to the ranks that own them.
 *
 * A fetch's samples are dealt into requests of at most 128 rows of one owner, in order of shard
 * and row. A request reserves the largest reply that it can get of `inflight_bytes`; where there
 * is no room it waits in the fetcher's queue. What an owner did not serve (replies are bounded)
 * becomes another request. A request that fails is asked once more of the same owner if the
 * connection was cut, then of the shard's next owner, and then the fetch fails. A request
 * that silent.c has given up stays with the engine, and its reply, should it come, is dropped. */
#include "fetch/fetcher.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "base/usage.h"
#include "fetch/wire.h"

enum { CHECK_AT_ONCE = 128 << 10 }; /* bytes of a reply */

/* A sample that must be asked for. */
typedef struct spot {
    uint32_t owner, shard, row, at;
} spot;

static int compare_spots(const void *a, const void *b)
{
    const spot *x = a, *y = b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->row == y->row ? 0 : x->row < y->row ? -1 : 1;
}

static bool contains(const uint32_t *ranks, size_t count, uint32_t rank)
{
    for (size_t i = 0; i < count; i++)
        if (ranks[i] == rank)
            return true;
    return false;
}

/* The first owner that was not tried, rather one that did not fail a moment ago; -1: none. */
static int64_t choose_owner(const rks_fetcher *fetcher, uint32_t shard, const rks_ask *before)
{
    int64_t second = -1;
    const int32_t *owner = fetcher->options.owners[shard];
    for (; owner != NULL && *owner >= 0; owner++) {
        uint32_t rank = (uint32_t)*owner;
        if (rank == fetcher->options.rank ||
            (before != NULL && contains(before->tried, before->tried_count, rank)))
            continue;
        if (!contains(fetcher->failed, fetcher->failed_count, rank))
            return rank;
        if (second < 0)
            second = rank;
    }
    return second;
}

static rks_status make_ask(rks_fetch *fetch, const spot *spots, size_t count, const rks_ask *before,
                           rks_ask **made, rks_error *err)
{
    rks_ask *ask = rks_alloc(1, sizeof(*ask) + count * sizeof(ask->at[0]), err);
    if (ask == NULL)
        return RKS_ERR_MEMORY;
    uint64_t largest = 0, sum = rks_fetch_reply_table(count) + 2 * RKS_FETCH_ALIGN;
    for (size_t i = 0; i < count; i++) {
        uint64_t record = fetch->fetcher->largest[spots[i].shard];
        ask->at[i] = spots[i].at;
        largest = record > largest ? record : largest;
        sum += record + RKS_FETCH_ALIGN;
    }
    ask->count = count;
    ask->owner = spots[0].owner;
    ask->limit = rks_fetch_reply_limit(count, largest);
    ask->need = sum < ask->limit ? sum : ask->limit;
    if (before != NULL) {
        ask->tried_count = before->tried_count;
        memcpy(ask->tried, before->tried, sizeof(ask->tried));
    }
    ask->fetch = fetch;
    atomic_fetch_add(&fetch->references, 1);
    *made = ask;
    return RKS_OK;
}

void rks_ask_free(rks_ask *asks)
{
    while (asks != NULL) {
        rks_ask *next = asks->next;
        rks_fetch *fetch = asks->fetch;
        rks_blocks_give(fetch->fetcher->pool, asks->reply);
        rks_free(asks);
        rks_fetch_release(fetch);
        asks = next;
    }
}

/* Deals sorted spots into requests: a list, and how many. */
static rks_status make_asks(rks_fetch *fetch, const spot *spots, size_t count,
                            const rks_ask *before, rks_ask **list, size_t *made, rks_error *err)
{
    rks_ask *first = NULL, **end = &first;
    size_t asks = 0;
    for (size_t i = 0; i < count;) {
        size_t many = 1;
        while (many < RKS_FETCH_ASK_ROWS && i + many < count &&
               spots[i + many].owner == spots[i].owner)
            many++;
        rks_status status = make_ask(fetch, spots + i, many, before, end, err);
        if (status != RKS_OK) {
            rks_ask_free(first);
            return status;
        }
        end = &(*end)->next;
        asks++;
        i += many;
    }
    *list = first;
    *made = asks;
    return RKS_OK;
}

static rks_status find_spot(const rks_fetch *fetch, size_t at, const rks_ask *before, spot *found,
                            rks_error *err)
{
    const rks_wanted *wanted = &fetch->batch->wanted[at];
    int64_t owner = choose_owner(fetch->fetcher, wanted->shard, before);
    if (owner < 0) {
        rks_error inner;
        rks_fail(&inner, RKS_ERR_NOT_FOUND, 0, "no rank serves shard %" PRIu32, wanted->shard);
        return rks_fetcher_blame(fetch->fetcher, wanted, &inner, err);
    }
    *found = (spot){(uint32_t)owner, wanted->shard, (uint32_t)wanted->row, (uint32_t)at};
    return RKS_OK;
}

/* Requests for the samples of `before`, which failed, or for all that are not mapped. */
static rks_status plan_asks(rks_fetch *fetch, const rks_ask *before, size_t count, rks_ask **list,
                            size_t *made, rks_error *err)
{
    rks_fetcher *fetcher = fetch->fetcher;
    spot *spots = rks_alloc_raw(count, sizeof(*spots), err);
    if (spots == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    size_t found = 0;
    pthread_mutex_lock(&fetcher->mutex);
    if (before != NULL) {
        for (; status == RKS_OK && found < count; found++)
            status = find_spot(fetch, before->at[found], before, &spots[found], err);
    } else {
        for (size_t i = 0; status == RKS_OK && found < count; i++)
            if (fetcher->shards[fetch->batch->wanted[i].shard] == NULL)
                status = find_spot(fetch, i, NULL, &spots[found++], err);
    }
    pthread_mutex_unlock(&fetcher->mutex);
    if (status == RKS_OK) {
        qsort(spots, count, sizeof(*spots), compare_spots);
        status = make_asks(fetch, spots, count, before, list, made, err);
    }
    rks_free(spots);
    return status;
}

/* The mutex is held. */
static void enqueue(rks_fetcher *fetcher, rks_ask *list)
{
    while (list != NULL) {
        rks_ask *next = list->next;
        list->next = NULL;
        *fetcher->queue_end = list;
        fetcher->queue_end = &list->next;
        list = next;
    }
}

/* From now on it may be given up, and its fetch may end without it: what it needs of the batch has
 * been read. */
static void link_sent(rks_ask *ask)
{
    rks_fetch *fetch = ask->fetch;
    pthread_mutex_lock(&fetch->fetcher->mutex);
    ask->sent_ms = rks_now_ms();
    ask->traced = rks_trace_begin();
    ask->next = fetch->sent;
    ask->at_sent = &fetch->sent;
    if (ask->next != NULL)
        ask->next->at_sent = &ask->next;
    fetch->sent = ask;
    pthread_mutex_unlock(&fetch->fetcher->mutex);
}

void rks_ask_unlink_sent(rks_ask *ask)
{
    if (ask->at_sent == NULL)
        return;
    *ask->at_sent = ask->next;
    if (ask->next != NULL)
        ask->next->at_sent = ask->at_sent;
    ask->next = NULL;
    ask->at_sent = NULL;
}

rks_ask *rks_fetch_unqueue(rks_fetcher *fetcher, const rks_fetch *fetch)
{
    rks_ask *taken = NULL, **at = &fetcher->queue;
    while (*at != NULL) {
        rks_ask *ask = *at;
        if (fetch != NULL && ask->fetch != fetch) {
            at = &ask->next;
            continue;
        }
        *at = ask->next;
        ask->next = taken;
        taken = ask;
    }
    fetcher->queue_end = at;
    return taken;
}

rks_status rks_fetch_ask_all(rks_fetch *fetch, size_t remote, rks_error *err)
{
    rks_ask *list = NULL;
    size_t made = 0;
    if (fetch->fetcher->options.engine == NULL)
        return rks_fail(err, RKS_ERR_STATE, 0, "a sample of another rank: there is no connection");
    rks_status status = plan_asks(fetch, NULL, remote, &list, &made, err);
    if (status != RKS_OK)
        return status;
    pthread_mutex_lock(&fetch->fetcher->mutex);
    fetch->pieces += made;
    enqueue(fetch->fetcher, list);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    return RKS_OK;
}

/* ---- failures ------------------------------------------------------------------------- */

/* The mutex is held. The oldest note is forgotten where there is no room. */
static void note_owner_failed(rks_fetcher *fetcher, uint32_t owner)
{
    if (contains(fetcher->failed, fetcher->failed_count, owner))
        return;
    if (fetcher->failed_count == RKS_FETCH_TRIES)
        memmove(fetcher->failed, fetcher->failed + 1,
                sizeof(fetcher->failed[0]) * --fetcher->failed_count);
    fetcher->failed[fetcher->failed_count++] = owner;
}

/* The mutex is held. */
static void note_owner_answers(rks_fetcher *fetcher, uint32_t owner)
{
    for (size_t i = 0; i < fetcher->failed_count; i++)
        if (fetcher->failed[i] == owner)
            fetcher->failed[i--] = fetcher->failed[--fetcher->failed_count];
}

/* Ends the fetch with what went wrong with this request. */
static void give_up(rks_ask *ask, const rks_error *inner)
{
    rks_fetch *fetch = ask->fetch;
    rks_error err;
    rks_fetcher_blame(fetch->fetcher, &fetch->batch->wanted[ask->at[0]], inner, &err);
    rks_error_place(&err, ask->owner, "");
    pthread_mutex_lock(&fetch->fetcher->mutex);
    rks_fetch_set_failed(fetch, &err);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    rks_ask_free(ask);
}

/* Asks the next owners; false: a sample has none, or there is no memory. */
static bool ask_others(rks_ask *ask)
{
    rks_fetch *fetch = ask->fetch;
    if (ask->tried_count == RKS_FETCH_TRIES)
        return false;
    ask->tried[ask->tried_count++] = ask->owner;
    rks_ask *list = NULL;
    size_t made = 0;
    if (plan_asks(fetch, ask, ask->count, &list, &made, NULL) != RKS_OK)
        return false;
    pthread_mutex_lock(&fetch->fetcher->mutex);
    fetch->pieces += made - 1; /* instead of this one */
    enqueue(fetch->fetcher, list);
    pthread_mutex_unlock(&fetch->fetcher->mutex);
    rks_ask_free(ask);
    return true;
}

void rks_ask_failed(rks_ask *ask, const rks_error *err)
{
    rks_fetcher *fetcher = ask->fetch->fetcher;
    rks_blocks_give(fetcher->pool, ask->reply);
    ask->reply = NULL;
    if (ask->oversize != 0 || ask->no_memory) {
        rks_error own = *err;
        if (ask->no_memory)
            rks_fail(&own, RKS_ERR_MEMORY, 0, "no memory for a reply with samples");
        else
            rks_fail(&own, RKS_ERR_CORRUPT, 0,
                     "reply with samples: %zu bytes, at most %" PRIu64 " are possible",
                     ask->oversize, ask->limit);
        give_up(ask, &own);
        return;
    }
    pthread_mutex_lock(&fetcher->mutex);
    bool over = fetcher->closing || rks_fetch_is_over(ask->fetch);
    bool again = !over && err->status == RKS_ERR_PEER && !ask->again;
    if (again) {
        ask->again = true;
        enqueue(fetcher, ask);
    } else if (!over) {
        note_owner_failed(fetcher, ask->owner);
    }
    pthread_mutex_unlock(&fetcher->mutex);
    if (over)
        rks_ask_free(ask);
    else if (!again && !ask_others(ask))
        give_up(ask, err);
}

/* ---- replies: engine thread ------------------------------------------------------------ */

static void reply_comes(void *user)
{
    const rks_ask *ask = user;
    atomic_store_explicit(&ask->fetch->fetcher->heard_ms[ask->owner], rks_now_ms(),
                          memory_order_relaxed);
}

static void *place_reply(void *user, size_t size)
{
    rks_ask *ask = user;
    rks_fetcher *fetcher = ask->fetch->fetcher;
    reply_comes(user);
    if (size > ask->limit) {
        ask->oversize = size;
        return NULL;
    }
    pthread_mutex_lock(&fetcher->mutex);
    bool over = ask->given_up || fetcher->closing || rks_fetch_is_over(ask->fetch);
    pthread_mutex_unlock(&fetcher->mutex);
    if (over)
        return NULL; /* nobody waits for it: the engine reads it away */
    rks_block *block = rks_blocks_take(fetcher->pool, size, NULL);
    if (block == NULL) {
        ask->no_memory = true;
        return NULL;
    }
    pthread_mutex_lock(&fetcher->mutex);
    ask->reply = block;
    if (size < ask->reserve) {
        fetcher->reserved -= ask->reserve - size;
        ask->reserve = size;
    }
    fetcher->inflight += size;
    rks_usage_add(RKS_MEMORY_IN_FLIGHT, size);
    if (fetcher->inflight > fetcher->peak_inflight)
        fetcher->peak_inflight = fetcher->inflight;
    pthread_mutex_unlock(&fetcher->mutex);
    return block->data;
}

/* What the owner did not serve is asked for again. */
static rks_status ask_rest(const rks_ask *ask, size_t served, rks_ask **rest, rks_error *err)
{
    const rks_batch *batch = ask->fetch->batch;
    size_t count = ask->count - served;
    spot *spots = rks_alloc_raw(count, sizeof(*spots), err);
    if (spots == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        uint32_t at = ask->at[served + i];
        spots[i] = (spot){ask->owner, batch->wanted[at].shard, (uint32_t)batch->wanted[at].row, at};
    }
    rks_status status = make_ask(ask->fetch, spots, count, ask, rest, err);
    rks_free(spots);
    return status;
}

/* What the reply leaves to do is handed on, or done: a small one is still in the processor's cache,
 * and checking it costs less than waking another thread. */
static void take_reply(rks_ask *ask, size_t served, rks_ask *rest)
{
    rks_fetch *fetch = ask->fetch;
    rks_fetcher *fetcher = fetch->fetcher;
    bool small = ask->reply->size <= CHECK_AT_ONCE;
    uint64_t bytes = 0;
    rks_error err;
    rks_status status = RKS_OK;
    ask->count = served;
    if (small)
        status = rks_fetch_check_reply(ask, &bytes, &err);
    pthread_mutex_lock(&fetcher->mutex);
    note_owner_answers(fetcher, ask->owner);
    bool over = fetcher->closing || rks_fetch_is_over(fetch);
    if (!over && rest != NULL) {
        fetch->pieces++;
        enqueue(fetcher, rest);
        rest = NULL;
    }
    if (!over && small) {
        rks_fetch_finish(fetch, status == RKS_OK ? &ask->reply : NULL, bytes, &err);
        if (fetch->collate != NULL && fetch->pieces == 1)
            rks_fetch_wake(fetch);
    } else if (!over) {
        ask->next = fetch->arrived;
        fetch->arrived = ask;
        ask = NULL;
        rks_fetch_wake(fetch);
    }
    pthread_mutex_unlock(&fetcher->mutex);
    rks_ask_free(rest);
    rks_ask_free(ask);
}

static void ask_answered(rks_ask *ask)
{
    rks_ask *rest = NULL;
    rks_error err;
    size_t served = 0;
    rks_status status;
    if (ask->reply == NULL)
        status = rks_fail(&err, RKS_ERR_CORRUPT, 0, "reply with samples: empty");
    else
        status =
            rks_fetch_reply_check(ask->reply->data, ask->reply->size, ask->count, &served, &err);
    if (status == RKS_OK && served < ask->count)
        status = ask_rest(ask, served, &rest, &err);
    if (status == RKS_OK)
        take_reply(ask, served, rest);
    else
        give_up(ask, &err);
}

static void reply_done(void *user, const rks_error *err)
{
    rks_ask *ask = user;
    rks_fetcher *fetcher = ask->fetch->fetcher;
    atomic_fetch_add(&fetcher->references, 1); /* the fetch's may go with the request */
    pthread_mutex_lock(&fetcher->mutex);
    fetcher->busy++;
    fetcher->reserved -= ask->reserve;
    if (ask->reply != NULL) {
        fetcher->inflight -= ask->reply->size;
        rks_usage_sub(RKS_MEMORY_IN_FLIGHT, ask->reply->size);
    }
    rks_ask_unlink_sent(ask);
    bool given_up = ask->given_up;
    pthread_mutex_unlock(&fetcher->mutex);
    rks_trace_end(ask->traced, RKS_TRACE_FETCH, ask->owner, ask->count,
                  ask->reply == NULL ? 0 : ask->reply->size);
    if (given_up)
        rks_ask_free(ask);
    else if (err != NULL)
        rks_ask_failed(ask, err);
    else
        ask_answered(ask);
    rks_fetch_send_queued(fetcher);
    pthread_mutex_lock(&fetcher->mutex);
    if (--fetcher->busy == 0)
        pthread_cond_broadcast(&fetcher->idle);
    pthread_mutex_unlock(&fetcher->mutex);
    rks_fetcher_release(fetcher);
}

/* ---- sending --------------------------------------------------------------------------- */

static size_t count_groups(const rks_ask *ask)
{
    const rks_wanted *wanted = ask->fetch->batch->wanted;
    size_t groups = 1;
    for (size_t i = 1; i < ask->count; i++)
        groups += wanted[ask->at[i]].shard != wanted[ask->at[i - 1]].shard;
    return groups;
}

static void write_request(const rks_ask *ask, size_t groups, uint8_t *body)
{
    const rks_wanted *wanted = ask->fetch->batch->wanted;
    uint8_t rows[RKS_FETCH_ASK_ROWS * 4];
    uint8_t *at = rks_fetch_put_request(body, (uint32_t)groups, (uint32_t)ask->count);
    for (size_t i = 0; i < ask->count;) {
        uint32_t shard = wanted[ask->at[i]].shard, count = 0;
        for (; i < ask->count && wanted[ask->at[i]].shard == shard; i++)
            rks_store_u32(rows + 4 * count++, (uint32_t)wanted[ask->at[i]].row);
        rks_fetch_group group = {ask->fetch->fetcher->shard_ids[shard], shard, count, rows};
        at = rks_fetch_put_group(at, &group);
    }
}

static rks_status send_ask(rks_ask *ask, rks_error *err)
{
    size_t groups = count_groups(ask), size = rks_fetch_request_size(groups, ask->count);
    uint8_t *body = rks_alloc_raw(size, 1, err);
    if (body == NULL) {
        ask->no_memory = true;
        return RKS_ERR_MEMORY;
    }
    write_request(ask, groups, body);
    link_sent(ask);
    const rks_reply_sink sink = {
        .place = place_reply, .come = reply_comes, .done = reply_done, .user = ask};
    const rks_fetcher_options *options = &ask->fetch->fetcher->options;
    rks_status status = rks_engine_request(options->engine, ask->owner, options->service, body,
                                           size, "fetch", &sink, err);
    rks_free(body);
    return status;
}

/* The next request that there is room for, with its room taken; a single one always has. */
static rks_ask *next_to_send(rks_fetcher *fetcher)
{
    rks_ask *ask = NULL;
    pthread_mutex_lock(&fetcher->mutex);
    uint64_t cap = fetcher->options.inflight_bytes;
    if (!fetcher->closing && fetcher->queue != NULL &&
        (fetcher->reserved == 0 ||
         (fetcher->reserved < cap && fetcher->queue->need <= cap - fetcher->reserved))) {
        ask = fetcher->queue;
        fetcher->queue = ask->next;
        if (ask->next == NULL)
            fetcher->queue_end = &fetcher->queue;
        ask->next = NULL;
        ask->reserve = ask->need;
        fetcher->reserved += ask->need;
    }
    pthread_mutex_unlock(&fetcher->mutex);
    return ask;
}

void rks_fetch_send_queued(rks_fetcher *fetcher)
{
    rks_ask *ask;
    while ((ask = next_to_send(fetcher)) != NULL) {
        rks_error err;
        if (send_ask(ask, &err) == RKS_OK)
            continue;
        pthread_mutex_lock(&fetcher->mutex);
        fetcher->reserved -= ask->reserve;
        rks_ask_unlink_sent(ask);
        bool given_up = ask->given_up;
        pthread_mutex_unlock(&fetcher->mutex);
        if (given_up)
            rks_ask_free(ask);
        else
            rks_ask_failed(ask, &err);
    }
}

/* ---- checking: the waiter or a worker ---------------------------------------------------- */

static rks_status check_record(const rks_ask *ask, size_t i, rks_error *err)
{
    const rks_fetcher *fetcher = ask->fetch->fetcher;
    rks_batch *batch = ask->fetch->batch;
    const rks_wanted *wanted = &batch->wanted[ask->at[i]];
    rks_error inner;
    rks_record_view view;
    rks_status status =
        rks_fetch_reply_record(ask->reply->data, ask->reply->size, ask->count, i, &view, &inner);
    if (status != RKS_OK)
        rks_fetcher_blame(fetcher, wanted, &inner, err);
    else if (fetcher->options.check)
        status = rks_fetcher_check(fetcher, wanted, &view, err);
    if (status != RKS_OK) {
        rks_error_place(err, ask->owner, "");
        return status;
    }
    batch->views[ask->at[i]] = view;
    return RKS_OK;
}

rks_status rks_fetch_check_reply(rks_ask *ask, uint64_t *bytes, rks_error *err)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ask->count; i++) {
        rks_status status = check_record(ask, i, err);
        if (status != RKS_OK)
            return status;
        const rks_record_view *view = &ask->fetch->batch->views[ask->at[i]];
        sum += rks_plain_bytes(&ask->fetch->fetcher->plain, view);
    }
    *bytes = sum;
    return RKS_OK;
}
