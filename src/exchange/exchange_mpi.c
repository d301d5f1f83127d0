/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_mpi.c: chunks by messages of the MPI module. Receivers ask, as in exchange_pull.c, so
 * that memory is bounded on both sides and each message has its receive before it is sent.
 *
 *   request  offset  size  field              reply  offset  size  field
 *                 0     4  magic "RKXQ"                   0     4  magic "RKXA"
 *                 4     4  1 want, 2 stop                 4     4  1 chunk, 2 stop
 *                 8     8  offset                         8     8  offset
 *                16     8  size                          16     8  size of the chunk that follows
 *                24     8  0                             24     8  XXH3-64 of it; 0 if the job
 *                                                                  checks the bytes itself
 *
 * Everything happens in the calling thread: one loop that serves, receives, and naps when nothing
 * moves. A pair of ranks is over with the last chunk, or when one of them says stop; so a rank that
 * has failed, or that sees that another one has, ends its pairs in order and no message is left
 * behind. Only if a rank no longer answers (the group has failed, or a chunk is overdue by T)
 * messages are abandoned: their buffers are then never freed, since MPI may still write to them. */
#include "exchange/exchange_backend.h"

#include <inttypes.h>
#include <time.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"

enum {
    TAG_REQUEST = 7101,
    TAG_REPLY = 7102,
    HEAD_SIZE = 32,
    WANT = 1,
    CHUNK = 1,
    STOP = 2,
    NAP_MIN_NS = 20 * 1000,
    NAP_MAX_NS = 200 * 1000, /* MPI makes progress only while some thread tests */
};

static const uint32_t REQUEST_MAGIC = 0x51584b52; /* "RKXQ" */
static const uint32_t REPLY_MAGIC = 0x41584b52;   /* "RKXA" */

/* What this rank receives: one lane for each of up to four senders. A pair that ends early gets a
 * stop. */
typedef struct mpi_lane {
    bool busy;
    bool stopping; /* the request is a stop, which has no reply */
    uint32_t sender;
    uint64_t offset;
    uint32_t size;
    uint64_t asked_ms;
    void *request; /* handles; NULL once over */
    void *reply;
    uint8_t *message; /* head and chunk */
    uint8_t head[HEAD_SIZE];
} mpi_lane;

/* What this rank sends: a reply in progress. */
typedef struct mpi_buffer {
    void *handle;
    uint8_t *message;
} mpi_buffer;

/* A rank that receives this rank's stream. */
typedef struct mpi_peer {
    uint32_t rank;
    void *request; /* handle of a receive; NULL once it has arrived */
    bool asked;    /* a request waits for a buffer */
    bool over;
    uint8_t head[HEAD_SIZE];
} mpi_peer;

typedef struct mpi_state {
    const rks_mpi_ops *ops;
    size_t lane_count;
    mpi_lane *lanes;
    uint32_t cursor;
    size_t buffer_count;
    mpi_buffer *buffers;
    size_t peer_count;
    mpi_peer *peers;
    size_t turn;       /* the peer to look at first */
    bool ending;       /* no more chunks: this rank or another one has failed */
    uint64_t stop_ms;  /* since when the group wants all to stop; 0: it does not */
    uint64_t last_ms;  /* when the loop last ran */
    bool abandoned;    /* messages are left in progress; nothing is freed */
    rks_status status; /* this rank's first error */
    rks_error err;
} mpi_state;

static rks_status mpi_can(rks_group *group, rks_error *err)
{
    const rks_bootstrap *bootstrap = rks_group_bootstrap(group);
    const char *name = bootstrap == NULL ? "solo" : bootstrap->name;
    if (strcmp(name, "mpi") != 0)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "the ranks found each other by %s; start them with mpirun", name);
    rks_error why;
    if (rks_mpi_load(&why) == NULL)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, why.cause, "%s", why.text);
    return RKS_OK;
}

static void note_error(mpi_state *state, rks_status status, const rks_error *err)
{
    if (status == RKS_OK || state->status != RKS_OK)
        return;
    state->status = status;
    state->err = *err;
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* Asks for the lane's next chunk, or tells its sender to stop. */
static rks_status lane_ask(rks_exchange_plan *plan, mpi_state *state, mpi_lane *lane,
                           rks_error *err)
{
    lane->busy = true;
    lane->stopping = state->ending;
    lane->size = rks_exchange_chunk(plan, lane->sender, lane->offset);
    lane->asked_ms = rks_now_ms();
    rks_store_u32(lane->head, REQUEST_MAGIC);
    rks_store_u32(lane->head + 4, lane->stopping ? STOP : WANT);
    rks_store_u64(lane->head + 8, lane->offset);
    rks_store_u64(lane->head + 16, lane->size);
    rks_store_u64(lane->head + 24, 0);
    rks_status status = RKS_OK;
    if (!lane->stopping)
        status = state->ops->receive(lane->sender, TAG_REPLY, lane->message,
                                     HEAD_SIZE + (size_t)lane->size, &lane->reply, err);
    if (status == RKS_OK)
        status =
            state->ops->send(lane->sender, TAG_REQUEST, lane->head, HEAD_SIZE, &lane->request, err);
    plan->stats.bytes_sent += HEAD_SIZE;
    return status;
}

/* Checks a reply. *chunk: it has a chunk; else, without an error, the sender has stopped. */
static rks_status check_reply(rks_exchange_plan *plan, const mpi_lane *lane, bool *chunk,
                              rks_error *err)
{
    const uint8_t *head = lane->message;
    const char *what = NULL;
    *chunk = rks_load_u32(head + 4) == CHUNK;
    if (rks_load_u32(head) != REPLY_MAGIC)
        what = "wrong magic";
    else if (rks_load_u64(head + 8) != lane->offset)
        what = "another offset";
    else if (*chunk && rks_load_u64(head + 16) != lane->size)
        what = "another size";
    else if (*chunk && !plan->job->checks &&
             rks_checksum64(head + HEAD_SIZE, lane->size) != rks_load_u64(head + 24))
        what = "wrong checksum";
    if (what == NULL)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_CORRUPT, 0,
                    "exchange: chunk at %" PRIu64 " from rank %" PRIu32 " (%s): %s", lane->offset,
                    lane->sender, rks_group_host(plan->group, lane->sender), what);
}

/* Takes a reply that has arrived. Returns true if the pair continues. */
static bool lane_take(rks_exchange_plan *plan, mpi_state *state, mpi_lane *lane)
{
    bool chunk = false;
    rks_error err;
    rks_status status = check_reply(plan, lane, &chunk, &err);
    if (status == RKS_OK && !chunk) {
        plan->stopped = true; /* the sender, or the rank that it heard of, brings the error */
        state->ending = true;
        return false;
    }
    plan->stats.bytes_received += HEAD_SIZE + lane->size;
    if (status == RKS_OK && !state->ending)
        status = rks_exchange_take(plan, lane->sender, lane->offset, lane->message + HEAD_SIZE,
                                   lane->size, &err);
    note_error(state, status, &err);
    state->ending |= status != RKS_OK;
    lane->offset += lane->size;
    return lane->offset < plan->parts[lane->sender].end;
}

/* Returns RKS_ERR_TIMEOUT if a chunk is overdue. */
static rks_status lane_step(rks_exchange_plan *plan, mpi_state *state, mpi_lane *lane, bool *moved,
                            bool *all_over, rks_error *err)
{
    if (lane->busy) {
        bool done;
        void **handles[] = {&lane->request, &lane->reply};
        for (int i = 0; i < 2; i++) {
            if (*handles[i] == NULL)
                continue;
            rks_status status = state->ops->test(*handles[i], &done, err);
            if (status != RKS_OK)
                return status;
            if (done)
                *handles[i] = NULL;
        }
        *all_over = false;
        if (lane->request != NULL || lane->reply != NULL) {
            uint32_t silence_ms = rks_group_silence_ms(plan->group);
            if (rks_now_ms() < lane->asked_ms + silence_ms)
                return RKS_OK;
            rks_fail(err, RKS_ERR_TIMEOUT, 0,
                     "exchange: no chunk from rank %" PRIu32 " (%s) for %" PRIu32 " ms",
                     lane->sender, rks_group_host(plan->group, lane->sender), silence_ms);
            return RKS_ERR_TIMEOUT;
        }
        *moved = true;
        lane->busy = false;
        if (!lane->stopping && lane_take(plan, state, lane))
            return lane_ask(plan, state, lane, err);
    }
    if (!rks_exchange_next(plan, &state->cursor, &lane->sender, &lane->offset))
        return RKS_OK;
    *moved = true;
    *all_over = false;
    return lane_ask(plan, state, lane, err);
}

/* ---- sending -------------------------------------------------------------------------------- */

static rks_status peer_listen(mpi_state *state, mpi_peer *peer, rks_error *err)
{
    return state->ops->receive(peer->rank, TAG_REQUEST, peer->head, HEAD_SIZE, &peer->request, err);
}

static rks_status check_request(const rks_exchange_plan *plan, const mpi_peer *peer, bool *stop,
                                rks_error *err)
{
    uint32_t kind = rks_load_u32(peer->head + 4);
    uint64_t offset = rks_load_u64(peer->head + 8), size = rks_load_u64(peer->head + 16);
    const rks_exchange_part *part = &plan->given[peer->rank];
    *stop = kind == STOP;
    if (rks_load_u32(peer->head) == REQUEST_MAGIC &&
        (kind == STOP ||
         (kind == WANT && size > 0 && size <= plan->send_room && offset >= part->begin &&
          offset <= part->end && size <= part->end - offset)))
        return RKS_OK;
    return rks_fail(err, RKS_ERR_CORRUPT, 0,
                    "exchange: rank %" PRIu32 " asks for %" PRIu64 " bytes at %" PRIu64
                    ", outside its part from %" PRIu64 " to %" PRIu64,
                    peer->rank, size, offset, part->begin, part->end);
}

/* Fills the buffer with a chunk, or with a stop if this rank is ending or its source fails. */
static rks_status peer_answer(rks_exchange_plan *plan, mpi_state *state, mpi_peer *peer,
                              mpi_buffer *buffer, rks_error *err)
{
    uint64_t offset = rks_load_u64(peer->head + 8), size = rks_load_u64(peer->head + 16);
    if (!state->ending) {
        rks_error why;
        rks_status status = plan->job->read(plan->job->user, plan->rank, offset,
                                            buffer->message + HEAD_SIZE, size, &why);
        note_error(state, status, &why);
        state->ending |= status != RKS_OK;
    }
    bool chunk = !state->ending;
    size = chunk ? size : 0;
    rks_store_u32(buffer->message, REPLY_MAGIC);
    rks_store_u32(buffer->message + 4, chunk ? CHUNK : STOP);
    rks_store_u64(buffer->message + 8, offset);
    rks_store_u64(buffer->message + 16, size);
    rks_store_u64(buffer->message + 24,
                  plan->job->checks ? 0 : rks_checksum64(buffer->message + HEAD_SIZE, size));
    peer->asked = false;
    state->turn = (size_t)(peer - state->peers) + 1; /* the others have their turn next */
    peer->over = !chunk || offset + size == plan->given[peer->rank].end;
    plan->stats.bytes_sent += HEAD_SIZE + size;
    rks_status status = peer->over ? RKS_OK : peer_listen(state, peer, err);
    if (status == RKS_OK)
        status = state->ops->send(peer->rank, TAG_REPLY, buffer->message, HEAD_SIZE + size,
                                  &buffer->handle, err);
    return status;
}

static rks_status peer_step(rks_exchange_plan *plan, mpi_state *state, mpi_peer *peer, bool *moved,
                            rks_error *err)
{
    bool done = false, stop = false;
    if (peer->request != NULL) {
        rks_status status = state->ops->test(peer->request, &done, err);
        if (status != RKS_OK || !done)
            return status;
        peer->request = NULL;
        *moved = true;
        status = check_request(plan, peer, &stop, err);
        if (status != RKS_OK)
            return status;
        peer->over = stop;
        peer->asked = !stop;
    }
    for (size_t i = 0; i < state->buffer_count && peer->asked; i++) {
        if (state->buffers[i].handle == NULL) {
            *moved = true;
            return peer_answer(plan, state, peer, &state->buffers[i], err);
        }
    }
    return RKS_OK;
}

static rks_status serve_chunks(rks_exchange_plan *plan, mpi_state *state, bool *moved,
                               bool *all_over, rks_error *err)
{
    for (size_t i = 0; i < state->buffer_count; i++) {
        mpi_buffer *buffer = &state->buffers[i];
        bool done = true;
        if (buffer->handle == NULL)
            continue;
        rks_status status = state->ops->test(buffer->handle, &done, err);
        if (status != RKS_OK)
            return status;
        if (done)
            buffer->handle = NULL;
        *moved |= done;
        *all_over &= done;
    }
    size_t first = state->turn;
    for (size_t i = 0; i < state->peer_count; i++) {
        size_t at = (first + i) % state->peer_count;
        mpi_peer *peer = &state->peers[at];
        if (peer->over)
            continue;
        *all_over = false;
        rks_status status = peer_step(plan, state, peer, moved, err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Subtracts time that this rank spent in a callback: it is not silence of others. */
static void discount_own_time(mpi_state *state)
{
    uint64_t now_ms = rks_now_ms(), away_ms = now_ms - state->last_ms;
    for (size_t i = 0; i < state->lane_count && away_ms > RKS_WAIT_SLICE_MS; i++)
        state->lanes[i].asked_ms += away_ms;
    state->last_ms = now_ms;
}

/* Returns an error if this rank must end alone, without the others. A rank with an error of its own
 * may wait for others that are busy: they come to ask, and are answered with a stop. */
static rks_status look_for_messages(rks_exchange_plan *plan, mpi_state *state, rks_error *err)
{
    rks_error why;
    rks_status status = rks_exchange_look(plan, &why);
    note_error(state, status, &why);
    state->ending |= plan->stopped || state->status != RKS_OK;
    discount_own_time(state);
    if (!state->ending)
        return RKS_OK;
    if (rks_group_failed(plan->group))
        return rks_fail(err, RKS_ERR_PEER, 0, "exchange: the group has failed");
    if (state->stop_ms == 0 && rks_group_must_stop(plan->group, NULL) != RKS_OK)
        state->stop_ms = state->last_ms;
    if (state->stop_ms != 0 && state->last_ms - state->stop_ms > rks_group_silence_ms(plan->group))
        return rks_fail(err, RKS_ERR_TIMEOUT, 0, "exchange: ranks do not end it");
    return RKS_OK;
}

static rks_status step(rks_exchange_plan *plan, mpi_state *state, bool *moved, bool *all_over,
                       rks_error *err)
{
    rks_status status = look_for_messages(plan, state, err);
    if (status == RKS_OK)
        status = serve_chunks(plan, state, moved, all_over, err);
    for (size_t i = 0; i < state->lane_count && status == RKS_OK; i++)
        status = lane_step(plan, state, &state->lanes[i], moved, all_over, err);
    return status;
}

static rks_status mpi_run(rks_exchange_plan *plan, void *user, rks_error *err)
{
    mpi_state *state = user;
    rks_error why;
    rks_status status = RKS_OK;
    state->last_ms = rks_now_ms();
    for (size_t i = 0; i < state->peer_count && status == RKS_OK; i++)
        status = peer_listen(state, &state->peers[i], &why);
    long nap_ns = NAP_MIN_NS;
    bool all_over = false;
    while (status == RKS_OK && !all_over) {
        bool moved = false;
        all_over = true;
        status = step(plan, state, &moved, &all_over, &why);
        if (moved || all_over) {
            nap_ns = NAP_MIN_NS;
            continue;
        }
        nanosleep(&(struct timespec){0, nap_ns}, NULL);
        nap_ns = nap_ns * 2 < NAP_MAX_NS ? nap_ns * 2 : NAP_MAX_NS;
    }
    if (status != RKS_OK) {
        state->abandoned = true;
        state->ops->abandon();
        if (!plan->stopped) /* else the agreement has the better error */
            note_error(state, status, &why);
    }
    if (state->status != RKS_OK)
        *err = state->err;
    return state->status;
}

static void mpi_close(rks_exchange_plan *plan, void *user)
{
    mpi_state *state = user;
    if (state->abandoned)
        return;
    rks_usage_sub(RKS_MEMORY_STAGING, plan->stats.peak_bytes);
    for (size_t i = 0; i < state->lane_count && state->lanes != NULL; i++)
        rks_free(state->lanes[i].message);
    for (size_t i = 0; i < state->buffer_count && state->buffers != NULL; i++)
        rks_free(state->buffers[i].message);
    rks_free(state->lanes);
    rks_free(state->buffers);
    rks_free(state->peers);
    rks_free(state);
}

static rks_status allocate_buffers(rks_exchange_plan *plan, mpi_state *state, rks_error *err)
{
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        state->lane_count += plan->wanted[rank] && state->lane_count < RKS_EXCHANGE_LANES;
        state->peer_count += plan->wanters[rank];
    }
    state->buffer_count =
        state->peer_count < RKS_EXCHANGE_LANES ? state->peer_count : RKS_EXCHANGE_LANES;
    if ((state->lanes = rks_alloc(state->lane_count, sizeof(mpi_lane), err)) == NULL ||
        (state->buffers = rks_alloc(state->buffer_count, sizeof(mpi_buffer), err)) == NULL ||
        (state->peers = rks_alloc(state->peer_count, sizeof(mpi_peer), err)) == NULL)
        return RKS_ERR_MEMORY;
    uint32_t filled = 0;
    for (uint32_t rank = 0; rank < plan->size; rank++)
        if (plan->wanters[rank])
            state->peers[filled++].rank = rank;
    for (size_t i = 0; i < state->lane_count; i++) {
        state->lanes[i].message = rks_alloc_raw(HEAD_SIZE + (size_t)plan->room, 1, err);
        if (state->lanes[i].message == NULL)
            return RKS_ERR_MEMORY;
        plan->stats.peak_bytes += HEAD_SIZE + (uint64_t)plan->room;
        rks_usage_add(RKS_MEMORY_STAGING, HEAD_SIZE + (uint64_t)plan->room);
    }
    for (size_t i = 0; i < state->buffer_count; i++) {
        state->buffers[i].message = rks_alloc_raw(HEAD_SIZE + (size_t)plan->send_room, 1, err);
        if (state->buffers[i].message == NULL)
            return RKS_ERR_MEMORY;
        plan->stats.peak_bytes += HEAD_SIZE + (uint64_t)plan->send_room;
        rks_usage_add(RKS_MEMORY_STAGING, HEAD_SIZE + (uint64_t)plan->send_room);
    }
    return RKS_OK;
}

static rks_status mpi_prepare(rks_exchange_plan *plan, void **state, uint64_t *token,
                              rks_error *err)
{
    (void)token;
    mpi_state *prepared = rks_alloc(1, sizeof(*prepared), err);
    if (prepared == NULL)
        return RKS_ERR_MEMORY;
    prepared->ops = rks_mpi_load(err);
    rks_status status =
        prepared->ops == NULL ? RKS_ERR_UNSUPPORTED : allocate_buffers(plan, prepared, err);
    if (status != RKS_OK) {
        mpi_close(plan, prepared);
        return status;
    }
    *state = prepared;
    return RKS_OK;
}

const rks_exchange_backend rks_exchange_mpi = {
    .name = "mpi",
    .why_auto = "MPI is there",
    .tells_size = true,
    .in_clear = "MPI",
    .can = mpi_can,
    .prepare = mpi_prepare,
    .run = mpi_run,
    .close = mpi_close,
};
