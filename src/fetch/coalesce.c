/* SPDX-License-Identifier: Apache-2.0
 *
 * coalesce.c: sends small requests to one owner as one.
 *
 * If there are as many ranks as samples in a batch, an owner has one or two samples of each batch,
 * and a frame for each request costs more than the sample. So requests that are sent together to
 * the same owner are joined. The reply is cut up again: each request gets a reply of its own, and
 * does not know of the others.
 *
 *   success   Each request ends as if it had been sent alone.
 *   failure   If the connection is lost, all fail as if alone. Otherwise each request that was not
 *             served is sent again, alone: an error of one sample must not fail other batches.
 *   given up  A request's waiter may give it up, and its fetch may end. The others go on. If there
 *             is no room for the reply, each of them is sent again, alone. */
#include "fetch/coalesce.h"

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "fetch/reply.h"
#include "fetch/request_queue.h"
#include "fetch/wire.h"

enum {
    LIST_LEAST = 8,   /* fewest requests to send for which joining is tried */
    SMALL = 16 << 10, /* most bytes of the reply to a request that is joined */
    BYTES = 64 << 10, /* most bytes of a joint reply: it is checked at once, and its owner never
                       * cuts it */
    ROWS = 1024,      /* most rows of a joint request */
};

/* Belongs to the engine from sending it until `over`. */
typedef struct joint {
    rks_call call;
    rks_fetcher *fetcher;     /* holds a reference */
    rks_fetch_request *first; /* by next_joined; with the engine's holds on them */
    size_t count;             /* rows */
    uint64_t limit;           /* most bytes of a valid reply */
    uint64_t placed;          /* share of inflight_bytes that the reply uses */
    rks_block *reply;
    uint8_t body[];
} joint;

/* The requests to one owner, before they are joined. */
typedef struct lane {
    rks_fetch_request *first, **end;
    size_t requests, rows;
    uint64_t need;
} lane;

static joint *of_call(rks_call *call)
{
    return (joint *)(void *)call; /* its first member */
}

/* ---- request --------------------------------------------------------------------------------- */

/* The rows of all requests in order, and each row's shard. */
typedef struct rows {
    uint32_t shards[ROWS];
    uint8_t numbers[ROWS * 4];
    size_t count;
    uint32_t groups; /* of consecutive rows of one shard */
} rows;

/* Lists the rows from the requests' bodies: the batch of a request that was given up may be
 * gone. */
static void list_rows(const lane *from, rows *all)
{
    all->count = all->groups = 0;
    for (const rks_fetch_request *one = from->first; one != NULL; one = one->next_joined) {
        const uint8_t *next = one->body + RKS_FETCH_REQUEST_HEAD;
        while (next != one->body + one->call.size) {
            rks_fetch_group group;
            next = rks_fetch_get_group(next, &group);
            all->groups += all->count == 0 || all->shards[all->count - 1] != group.shard;
            memcpy(all->numbers + 4 * all->count, group.rows, 4 * (size_t)group.count);
            for (uint32_t i = 0; i < group.count; i++)
                all->shards[all->count++] = group.shard;
        }
    }
}

static void write_body(const rks_fetcher *fetcher, const rows *all, uint8_t *body)
{
    uint8_t *to = rks_fetch_put_request(body, all->groups, (uint32_t)all->count);
    for (size_t i = 0, end; i < all->count; i = end) {
        uint32_t shard = all->shards[i];
        for (end = i; end < all->count && all->shards[end] == shard; end++)
            ;
        const rks_fetch_group group = {fetcher->shard_ids[shard], shard, (uint32_t)(end - i),
                                       all->numbers + 4 * i};
        to = rks_fetch_put_group(to, &group);
    }
}

/* Returns NULL if memory is short. */
static joint *make_joint(const lane *from, const rks_call_ops *ops)
{
    rows all;
    list_rows(from, &all);
    size_t size = rks_fetch_request_size(all.groups, all.count);
    joint *made = rks_alloc_raw(1, sizeof(*made) + size, NULL);
    if (made == NULL)
        return NULL;
    memset(made, 0, sizeof(*made));
    made->fetcher = from->first->fetch->fetcher;
    atomic_fetch_add(&made->fetcher->references, 1);
    made->first = from->first;
    made->count = all.count;
    made->limit = from->need + rks_fetch_reply_table(all.count) + 2 * RKS_FETCH_ALIGN;
    made->call = from->first->call;
    made->call.ops = ops;
    made->call.body = made->body;
    made->call.size = size;
    write_body(made->fetcher, &all, made->body);
    return made;
}

/* ---- reply: engine thread -------------------------------------------------------------------- */

static bool is_wanted(const rks_fetch_request *request)
{
    return atomic_load(&request->state) == RKS_REQUEST_SENT && !rks_fetch_is_over(request->fetch);
}

void rks_fetch_joint_comes(rks_call *call)
{
    rks_fetch_owner_heard(of_call(call)->fetcher, call->peer);
}

void *rks_fetch_joint_place(rks_call *call, size_t size)
{
    joint *one = of_call(call);
    rks_fetcher *fetcher = one->fetcher;
    uint64_t reserve = 0;
    bool wanted = false;
    rks_fetch_joint_comes(call);
    if (size > one->limit || atomic_load(&fetcher->closing))
        return NULL;
    for (rks_fetch_request *i = one->first; i != NULL; i = i->next_joined) {
        wanted = wanted || is_wanted(i);
        reserve += atomic_exchange(&i->reserve, 0);
    }
    /* Requests that were given up have returned their room to others. */
    one->reply = wanted && size <= reserve ? rks_blocks_take(fetcher->pool, size, NULL) : NULL;
    one->placed = one->reply == NULL ? 0 : size;
    atomic_fetch_sub(&fetcher->reserved, reserve - one->placed);
    if (one->reply == NULL)
        return NULL;
    rks_fetch_count_inflight(fetcher, one->reply);
    return one->reply->data;
}

/* Copies records [first, first + count) of a checked reply into a reply of their own. Their places
 * move by a multiple of 64 bytes, so that payloads stay aligned. Returns NULL if memory is
 * short. */
static rks_block *cut_out(const joint *from, size_t served, size_t first, size_t count)
{
    const uint8_t *table = from->reply->data + RKS_FETCH_REPLY_HEAD;
    size_t begin = (size_t)rks_load_u32(table + 4 * first) * 8, end = from->reply->size;
    if (first + count < served)
        end = (size_t)rks_load_u32(table + 4 * (first + count)) * 8;
    size_t before = (size_t)rks_round_up(rks_fetch_reply_table(count), RKS_FETCH_ALIGN) +
                    begin % RKS_FETCH_ALIGN;
    rks_block *made = rks_blocks_take(from->fetcher->pool, before + (end - begin), NULL);
    if (made == NULL)
        return NULL;
    memset(made->data, 0, before);
    rks_store_u32(made->data, (uint32_t)count);
    memcpy(made->data + 4, from->reply->data + 4, 4); /* its flags */
    for (size_t i = 0; i < count; i++) {
        uint32_t place = rks_load_u32(table + 4 * (first + i));
        rks_store_u32(made->data + RKS_FETCH_REPLY_HEAD + 4 * i,
                      (uint32_t)(place - begin / 8 + before / 8));
    }
    memcpy(made->data + before, from->reply->data + begin, end - begin);
    return made;
}

/* Counts a cut of the reply as in flight, until its request is done. */
static void count_cut(rks_fetcher *fetcher, const rks_block *cut)
{
    atomic_fetch_add(&fetcher->inflight, cut->size);
    rks_usage_add(RKS_MEMORY_IN_FLIGHT, cut->size);
}

static void uncount_reply(joint *one)
{
    if (one->reply == NULL)
        return;
    atomic_fetch_sub(&one->fetcher->inflight, one->reply->size);
    rks_usage_sub(RKS_MEMORY_IN_FLIGHT, one->reply->size);
}

static bool is_the_owners(const rks_error *err)
{
    return err->status != RKS_ERR_PEER && err->status != RKS_ERR_TIMEOUT &&
           err->status != RKS_ERR_STATE && err->status != RKS_ERR_CANCELLED;
}

/* Returns how many records the reply serves. */
static size_t count_served(joint *one)
{
    size_t served = 0;
    if (one->reply == NULL || rks_fetch_reply_check(one->reply->data, one->reply->size, one->count,
                                                    &served, NULL) != RKS_OK)
        return 0;
    return served;
}

rks_fetch_request *rks_fetch_joint_done(rks_call *call, const rks_error *err)
{
    joint *one = of_call(call);
    rks_fetch_request *next = NULL, **end = &next;
    size_t at = 0, served = err == NULL ? count_served(one) : 0, count;
    uncount_reply(one);
    for (rks_fetch_request *i = one->first; i != NULL; i = i->next_joined, at += count) {
        count = i->count; /* the request may be gone after this */
        rks_block *cut = NULL;
        if (at + count <= served)
            cut = cut_out(one, served, at, count);
        if (cut != NULL) {
            count_cut(one->fetcher, cut);
            i->reply = cut;
            *end = rks_fetch_reply_done(i, NULL);
        } else if (err != NULL && !is_the_owners(err)) {
            *end = rks_fetch_reply_done(i, err);
        } else {
            rks_fetch_request_unreserve(i);
            rks_fetch_request_alone(i);
        }
        while (*end != NULL)
            end = &(*end)->next;
    }
    atomic_fetch_sub(&one->fetcher->reserved, one->placed);
    *end = rks_fetch_pop_queued(one->fetcher);
    return next;
}

void rks_fetch_joint_over(rks_call *call)
{
    joint *one = of_call(call);
    rks_fetcher *fetcher = one->fetcher;
    rks_blocks_give(fetcher->pool, one->reply);
    for (rks_fetch_request *i = one->first, *next; i != NULL; i = next) {
        next = i->next_joined;
        rks_fetch_request_drop(i);
    }
    rks_free(one);
    rks_fetcher_release(fetcher);
}

/* ---- send ------------------------------------------------------------------------------------ */

static rks_call **put_alone(rks_fetch_request *request, rks_call **end)
{
    *end = &request->call;
    request->call.next = NULL;
    return &request->call.next;
}

static rks_call **put_lane(lane *from, const rks_call_ops *ops, rks_call **end)
{
    joint *made = from->requests < 2 ? NULL : make_joint(from, ops);
    if (made != NULL) {
        made->call.next = NULL;
        *end = &made->call;
        end = &made->call.next;
    } else {
        for (rks_fetch_request *i = from->first; i != NULL; i = i->next_joined)
            end = put_alone(i, end);
    }
    *from = (lane){0};
    return end;
}

static rks_call **put_request(rks_fetch_request *request, lane *lanes, const rks_call_ops *ops,
                              rks_call **end)
{
    if (request->alone || request->need > SMALL)
        return put_alone(request, end);
    lane *own = &lanes[request->call.peer];
    if (own->requests != 0 &&
        (own->rows + request->count > ROWS || own->need + request->need > BYTES))
        end = put_lane(own, ops, end);
    if (own->requests == 0)
        own->end = &own->first;
    request->next_joined = NULL;
    *own->end = request;
    own->end = &request->next_joined;
    own->requests++;
    own->rows += request->count;
    own->need += request->need;
    return end;
}

rks_call *rks_fetch_coalesce(rks_fetcher *fetcher, rks_fetch_request *list, const rks_call_ops *ops)
{
    rks_call *calls = NULL, **end = &calls;
    size_t least = LIST_LEAST;
    for (const rks_fetch_request *i = list; i != NULL && least > 0; i = i->next)
        least--;
    lane *lanes = least > 0 ? NULL : rks_alloc(fetcher->ranks, sizeof(*lanes), NULL);
    while (list != NULL) {
        rks_fetch_request *next = list->next;
        atomic_fetch_add(&list->holds, 1); /* the engine's */
        list->next = NULL;
        end = lanes == NULL ? put_alone(list, end) : put_request(list, lanes, ops, end);
        list = next;
    }
    for (size_t i = 0; lanes != NULL && i < fetcher->ranks; i++)
        if (lanes[i].requests != 0)
            end = put_lane(&lanes[i], ops, end);
    rks_free(lanes);
    return calls;
}

void rks_fetch_separate(rks_call *call,
                        void (*each)(rks_fetch_request *request, const rks_error *err),
                        const rks_error *err)
{
    joint *one = of_call(call);
    rks_fetcher *fetcher = one->fetcher;
    for (rks_fetch_request *i = one->first, *next; i != NULL; i = next) {
        next = i->next_joined;
        each(i, err);
    }
    rks_free(one);
    rks_fetcher_release(fetcher);
}
