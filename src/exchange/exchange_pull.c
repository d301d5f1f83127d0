/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_pull.c: receivers ask senders for chunks through the engine, RKS_SERVICE_INDEX.
 *
 *   request  offset  size  field            reply  offset  size  field
 *                 0     8  offset                       0     8  XXH3-64 of what follows
 *                 8     8  size                         8     n  the bytes
 *
 * The checksum is 0 if the job checks the bytes itself.
 *
 * A receiver has one chunk of each of four senders on its way. A sender holds four replies at
 * most, or as many as fit 4 MiB; further requests wait for one of them to be sent. Small ones are
 * made on the engine's thread: for each to wake a thread costs more than to copy it. Their memory
 * is used again: the others are answered by many threads, and an allocator that keeps what each of
 * them freed would hold a multiple of it. What the engine may still touch after this rank has left
 * (replies being sent, places for replies) belongs to who lets go of it last. */
#include "exchange/exchange_backend.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"

enum {
    REQUEST_SIZE = 16,
    REPLY_HEAD = 8,
    QUICK_MAX = 256 << 10, /* bytes that the engine's thread copies */
    REPLIES_BYTES = 4 << 20,
};

/* ---- sender ------------------------------------------------------------------------------- */

typedef struct pull_reply pull_reply;

typedef struct pull_server {
    const rks_exchange_plan *plan; /* not used once the service is closed */
    pthread_mutex_t mutex;
    pthread_cond_t freed;
    unsigned users; /* guarded by mutex, as all below: this rank and each reply hold one */
    unsigned replies;
    pull_reply *spare;    /* each has `room` bytes */
    uint64_t room;        /* of the largest reply; never changes */
    unsigned replies_max; /* never changes */
    bool closing;
    uint64_t peak_bytes;
    uint64_t bytes_sent;
} pull_server;

struct pull_reply {
    pull_server *server;
    pull_reply *next; /* in `spare` */
    uint64_t size;
    uint8_t bytes[];
};

static void server_release(pull_server *server)
{
    pthread_mutex_lock(&server->mutex);
    bool last = --server->users == 0;
    pthread_mutex_unlock(&server->mutex);
    if (!last)
        return;
    while (server->spare != NULL) {
        pull_reply *next = server->spare->next;
        rks_free(server->spare);
        rks_usage_sub(RKS_MEMORY_STAGING, server->room);
        server->spare = next;
    }
    pthread_cond_destroy(&server->freed);
    pthread_mutex_destroy(&server->mutex);
    rks_free(server);
}

/* Waits, if `may_wait`, until one more reply fits. Returns false if none does, or the exchange has
 * ended. *reply: memory to use again, or NULL. */
static bool reply_begin(pull_server *server, bool may_wait, pull_reply **reply)
{
    pthread_mutex_lock(&server->mutex);
    while (may_wait && server->replies >= server->replies_max && !server->closing)
        rks_cond_wait_ms(&server->freed, &server->mutex, RKS_WAIT_SLICE_MS);
    bool open = !server->closing && server->replies < server->replies_max;
    if (open) {
        server->users++;
        server->replies++;
        *reply = server->spare;
        if (server->spare != NULL)
            server->spare = server->spare->next;
    }
    pthread_mutex_unlock(&server->mutex);
    return open;
}

/* `reply` may be NULL. */
static void reply_end(pull_server *server, pull_reply *reply)
{
    pthread_mutex_lock(&server->mutex);
    server->replies--;
    if (reply != NULL) {
        reply->next = server->spare;
        server->spare = reply;
    }
    pthread_cond_signal(&server->freed);
    pthread_mutex_unlock(&server->mutex);
    server_release(server);
}

static void reply_release(void *user)
{
    pull_reply *reply = user;
    reply_end(reply->server, reply);
}

static pull_reply *reply_create(pull_server *server, rks_error *err)
{
    pull_reply *made = rks_alloc_raw(sizeof(*made) + server->room, 1, err);
    if (made == NULL)
        return NULL;
    made->server = server;
    rks_usage_add(RKS_MEMORY_STAGING, server->room);
    pthread_mutex_lock(&server->mutex);
    server->peak_bytes += server->room;
    pthread_mutex_unlock(&server->mutex);
    return made;
}

static rks_status check_request(const rks_exchange_plan *plan, rks_request *request,
                                uint64_t *offset, uint64_t *size, rks_error *err)
{
    size_t body_size;
    const uint8_t *body = rks_request_body(request, &body_size);
    uint32_t from = rks_request_sender(request);
    if (body_size != REQUEST_SIZE)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: a request of %zu bytes", body_size);
    if (from >= plan->size || !plan->wanters[from])
        return rks_fail(err, RKS_ERR_STATE, 0, "exchange: rank %" PRIu32 " receives nothing", from);
    *offset = rks_load_u64(body);
    *size = rks_load_u64(body + 8);
    const rks_exchange_part *part = &plan->given[from];
    if (*size == 0 || *size > plan->chunk || *offset < part->begin || *offset > part->end ||
        *size > part->end - *offset)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "exchange: rank %" PRIu32 " asks for %" PRIu64 " bytes at %" PRIu64
                        ", outside its part from %" PRIu64 " to %" PRIu64,
                        from, *size, *offset, part->begin, part->end);
    return RKS_OK;
}

/* *reply is spare memory or NULL; afterwards, also after an error, it is what was used. */
static rks_status read_reply(pull_server *server, uint64_t offset, uint64_t size,
                             pull_reply **reply, rks_error *err)
{
    const rks_exchange_job *job = server->plan->job;
    if (*reply == NULL)
        *reply = reply_create(server, err);
    if (*reply == NULL)
        return RKS_ERR_MEMORY;
    uint8_t *bytes = (*reply)->bytes;
    rks_status status =
        job->read(job->user, server->plan->rank, offset, bytes + REPLY_HEAD, size, err);
    if (status != RKS_OK)
        return status;
    (*reply)->size = REPLY_HEAD + size;
    rks_store_u64(bytes, job->checks ? 0 : rks_checksum64(bytes + REPLY_HEAD, size));
    return RKS_OK;
}

/* Answers a request. Returns false if there is no room for the reply; then nothing was done. */
static bool answer(pull_server *server, rks_request *request, bool may_wait)
{
    const rks_exchange_plan *plan = server->plan;
    rks_error err = {0};
    pull_reply *reply = NULL;
    uint64_t offset = 0, size = 0;
    rks_status status = check_request(plan, request, &offset, &size, &err);
    if (status == RKS_OK && !reply_begin(server, may_wait, &reply)) {
        if (!may_wait)
            return false;
        status = rks_fail(&err, RKS_ERR_STATE, 0, "exchange: it has ended");
    } else if (status == RKS_OK) {
        status = read_reply(server, offset, size, &reply, &err);
        if (status != RKS_OK)
            reply_end(server, reply);
    }
    if (status != RKS_OK) {
        rks_error_place(&err, plan->rank, rks_group_host(plan->group, plan->rank));
        rks_request_fail(request, &err);
        return true;
    }
    pthread_mutex_lock(&server->mutex);
    server->bytes_sent += reply->size;
    pthread_mutex_unlock(&server->mutex);
    struct iovec part = {reply->bytes, reply->size};
    rks_request_reply(request, &part, 1, reply_release, reply);
    return true;
}

static void pull_serve(void *user, rks_request *request)
{
    answer(user, request, true);
}

/* Answers on the engine's thread. */
static bool pull_serve_quick(void *user, rks_request *request)
{
    pull_server *server = user;
    return server->room <= QUICK_MAX && answer(server, request, false);
}

static pull_server *server_create(const rks_exchange_plan *plan, rks_error *err)
{
    pull_server *server = rks_alloc(1, sizeof(*server), err);
    if (server == NULL)
        return NULL;
    server->plan = plan;
    server->users = 1;
    server->room = REPLY_HEAD + (uint64_t)plan->send_room;
    server->replies_max = (unsigned)(REPLIES_BYTES / server->room);
    if (server->replies_max < RKS_EXCHANGE_LANES)
        server->replies_max = RKS_EXCHANGE_LANES;
    pthread_mutex_init(&server->mutex, NULL);
    rks_cond_init(&server->freed);
    return server;
}

/* ---- receiver ----------------------------------------------------------------------------- */

typedef enum lane_state { LANE_IDLE, LANE_ASKED, LANE_ARRIVED, LANE_FAILED } lane_state;

typedef struct pull_box pull_box;

typedef struct pull_lane {
    pull_box *box;
    uint32_t sender;
    uint64_t offset;
    uint32_t size;
    uint8_t *reply;   /* used by the engine while the lane is LANE_ASKED */
    size_t arrived;   /* size of the reply */
    lane_state state; /* guarded by box->mutex */
    rks_error err;
} pull_lane;

struct pull_box {
    pthread_mutex_t mutex;
    pthread_cond_t arrived;
    unsigned users; /* guarded by mutex: this rank and each lane that is LANE_ASKED hold one */
    size_t room;
    size_t lane_count;
    pull_lane lanes[RKS_EXCHANGE_LANES];
};

typedef struct pull_state {
    pull_server *server;
    pull_box *box;
} pull_state;

/* Releases one user. The mutex must be held; this unlocks it. */
static void box_release(pull_box *box)
{
    bool last = --box->users == 0;
    pthread_mutex_unlock(&box->mutex);
    if (!last)
        return;
    for (size_t i = 0; i < RKS_EXCHANGE_LANES; i++) {
        rks_usage_sub(RKS_MEMORY_STAGING, box->lanes[i].reply == NULL ? 0 : box->room);
        rks_free(box->lanes[i].reply);
    }
    pthread_cond_destroy(&box->arrived);
    pthread_mutex_destroy(&box->mutex);
    rks_free(box);
}

static pull_box *box_create(rks_exchange_plan *plan, rks_error *err)
{
    pull_box *box = rks_alloc(1, sizeof(*box), err);
    if (box == NULL)
        return NULL;
    box->users = 1;
    box->room = REPLY_HEAD + (size_t)plan->room;
    pthread_mutex_init(&box->mutex, NULL);
    rks_cond_init(&box->arrived);
    for (uint32_t rank = 0; rank < plan->size; rank++)
        box->lane_count += plan->wanted[rank] && box->lane_count < RKS_EXCHANGE_LANES;
    for (size_t i = 0; i < box->lane_count; i++) {
        pull_lane *lane = &box->lanes[i];
        lane->box = box;
        lane->reply = rks_alloc_raw(box->room, 1, err);
        if (lane->reply == NULL) {
            pthread_mutex_lock(&box->mutex);
            box_release(box);
            return NULL;
        }
        plan->stats.peak_bytes += box->room;
        rks_usage_add(RKS_MEMORY_STAGING, box->room);
    }
    return box;
}

static void *lane_place(void *user, size_t size)
{
    pull_lane *lane = user;
    lane->arrived = size;
    return size <= lane->box->room ? lane->reply : NULL;
}

static void lane_done(void *user, const rks_error *err)
{
    pull_lane *lane = user;
    pull_box *box = lane->box;
    pthread_mutex_lock(&box->mutex);
    lane->state = err == NULL ? LANE_ARRIVED : LANE_FAILED;
    if (err != NULL)
        lane->err = *err;
    pthread_cond_signal(&box->arrived);
    box_release(box);
}

static rks_status lane_ask(rks_exchange_plan *plan, pull_lane *lane, rks_error *err)
{
    uint8_t body[REQUEST_SIZE];
    lane->size = rks_exchange_chunk(plan, lane->sender, lane->offset);
    rks_store_u64(body, lane->offset);
    rks_store_u64(body + 8, lane->size);
    pthread_mutex_lock(&lane->box->mutex);
    lane->state = LANE_ASKED;
    lane->box->users++;
    pthread_mutex_unlock(&lane->box->mutex);
    rks_reply_sink sink = {.place = lane_place, .done = lane_done, .user = lane};
    rks_status status = rks_engine_request(
        rks_group_engine(plan->group), lane->sender,
        &(rks_outgoing){RKS_SERVICE_INDEX, body, sizeof(body), "exchange"}, &sink, err);
    if (status == RKS_OK) {
        plan->stats.bytes_sent += sizeof(body);
        return RKS_OK;
    }
    pthread_mutex_lock(&lane->box->mutex);
    lane->state = LANE_IDLE;
    box_release(lane->box);
    return status;
}

/* Waits for a lane whose reply, or failure, has arrived; NULL if `stopped`. */
static rks_status wait_for_lane(rks_exchange_plan *plan, pull_box *box, pull_lane **lane,
                                rks_error *err)
{
    rks_status status = RKS_OK;
    *lane = NULL;
    while (*lane == NULL && status == RKS_OK) {
        pthread_mutex_lock(&box->mutex);
        for (int look = 0; look < 2 && *lane == NULL; look++) {
            for (size_t i = 0; i < box->lane_count && *lane == NULL; i++)
                if (box->lanes[i].state > LANE_ASKED)
                    *lane = &box->lanes[i];
            if (*lane == NULL && look == 0)
                rks_cond_wait_ms(&box->arrived, &box->mutex, RKS_WAIT_SLICE_MS);
        }
        pthread_mutex_unlock(&box->mutex);
        status = rks_exchange_look(plan, err);
        if (plan->stopped) {
            *lane = NULL;
            break;
        }
    }
    return status;
}

static rks_status lane_take(rks_exchange_plan *plan, pull_lane *lane, rks_error *err)
{
    const char *host = rks_group_host(plan->group, lane->sender);
    if (lane->state == LANE_FAILED) {
        *err = lane->err;
        rks_error_place(err, lane->sender, host);
        return (rks_status)err->status;
    }
    const uint8_t *bytes = lane->reply + REPLY_HEAD;
    plan->stats.bytes_received += lane->arrived;
    if (lane->arrived != REPLY_HEAD + (size_t)lane->size)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "exchange: %zu bytes from rank %" PRIu32 " (%s), not %" PRIu32,
                        lane->arrived, lane->sender, host, REPLY_HEAD + lane->size);
    if (!plan->job->checks && rks_checksum64(bytes, lane->size) != rks_load_u64(lane->reply))
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "exchange: wrong checksum of %" PRIu32 " bytes at %" PRIu64
                        " from rank %" PRIu32 " (%s)",
                        lane->size, lane->offset, lane->sender, host);
    return rks_exchange_take(plan, lane->sender, lane->offset, bytes, lane->size, err);
}

static rks_status pull_run(rks_exchange_plan *plan, void *user, rks_error *err)
{
    pull_box *box = ((pull_state *)user)->box;
    uint32_t cursor = 0;
    size_t busy = 0;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < box->lane_count && status == RKS_OK; i++) {
        pull_lane *lane = &box->lanes[i];
        if (!rks_exchange_next(plan, &cursor, &lane->sender, &lane->offset))
            break;
        status = lane_ask(plan, lane, err);
        busy++;
    }
    while (busy > 0 && status == RKS_OK) {
        pull_lane *lane;
        status = wait_for_lane(plan, box, &lane, err);
        if (status != RKS_OK || lane == NULL)
            break;
        status = lane_take(plan, lane, err);
        if (status != RKS_OK)
            break;
        lane->offset += lane->size;
        bool more = lane->offset < plan->parts[lane->sender].end ||
                    rks_exchange_next(plan, &cursor, &lane->sender, &lane->offset);
        if (more) {
            status = lane_ask(plan, lane, err);
        } else {
            lane->state = LANE_IDLE;
            busy--;
        }
    }
    return status;
}

/* ---- both ---------------------------------------------------------------------------------- */

static rks_status pull_can(rks_group *group, rks_error *err)
{
    if (rks_group_engine(group) != NULL || rks_group_size(group) == 1)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "this group has no engine");
}

static void pull_close(rks_exchange_plan *plan, void *user)
{
    pull_state *state = user;
    rks_engine *engine = rks_group_engine(plan->group);
    if (state->server != NULL) {
        pthread_mutex_lock(&state->server->mutex);
        state->server->closing = true;
        pthread_cond_broadcast(&state->server->freed);
        pthread_mutex_unlock(&state->server->mutex);
        if (engine != NULL)
            rks_engine_serve(engine, RKS_SERVICE_INDEX, NULL, NULL, NULL);
        pthread_mutex_lock(&state->server->mutex);
        plan->stats.bytes_sent += state->server->bytes_sent;
        plan->stats.peak_bytes += state->server->peak_bytes;
        pthread_mutex_unlock(&state->server->mutex);
        server_release(state->server);
    }
    if (state->box != NULL) {
        pthread_mutex_lock(&state->box->mutex);
        box_release(state->box);
    }
    rks_free(state);
}

static rks_status pull_prepare(rks_exchange_plan *plan, void **state, uint64_t *token,
                               rks_error *err)
{
    (void)token;
    pull_state *prepared = rks_alloc(1, sizeof(*prepared), err);
    if (prepared == NULL)
        return RKS_ERR_MEMORY;
    if ((prepared->box = box_create(plan, err)) == NULL ||
        (prepared->server = server_create(plan, err)) == NULL) {
        pull_close(plan, prepared);
        return RKS_ERR_MEMORY;
    }
    rks_engine *engine = rks_group_engine(plan->group);
    if (engine != NULL) {
        rks_engine_serve(engine, RKS_SERVICE_INDEX, pull_serve, NULL, prepared->server);
        rks_engine_serve_quick(engine, RKS_SERVICE_INDEX, pull_serve_quick);
    }
    *state = prepared;
    return RKS_OK;
}

const rks_exchange_backend rks_exchange_pull = {
    .name = "pull",
    .why_auto = "needs neither MPI nor GPUs",
    .tells_size = true,
    .can = pull_can,
    .prepare = pull_prepare,
    .run = pull_run,
    .close = pull_close,
};
