/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_nccl.c: the streams of all nodes by broadcasts between their GPUs; gpu_rails.h says who
 * carries what. Two buffers of GPU memory; while one is filled by NCCL, the other one is emptied:
 *
 *   pinned, 2 x a chunk      GPU, 2 x a round                     pinned, 2 x a round
 *   head, payload   ──up──►  [member 0][member 1]...  ──down──►  heads looked at, payloads used
 *                                  net: grouped ncclBroadcast
 *
 * A round is put on the streams before the one before it is looked at; everything is allocated, and
 * NCCL has connected in a first round of heads alone, before the first one that counts. A chunk's
 * head:
 *
 *   offset  size  field
 *        0     4  magic "RKXN"
 *        4     4  0; 1: this member has failed or heard of an error, and sends nothing more
 *        8     8  round
 *       16     8  bytes of payload
 *       24     8  XXH3-64 of the payload
 *       32    32  0
 *
 * A rank that fails by itself goes on with empty chunks that say so; all members see them in the
 * same round, end with the round that is on its way after it, and no one is left waiting. An error
 * of NCCL, of CUDA or of another rank's process, or a round that takes too long, ends the
 * communicator: the rank brings its error to the next collective, every other rank sees that while
 * it polls, and aborts as well. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "exchange/nccl_state.h"

enum {
    GRACE_MS = 400, /* time for empty chunks to reach all before the communicator is aborted */
    LOOK_MS = 5,
    POLL_NS = 50 * 1000,
};

static const uint32_t MAGIC = 0x4e584b52; /* "RKXN" */

/* ---- waiting ---------------------------------------------------------------------------- */

void rks_nccl_note_own(nccl_state *state, rks_status status, const rks_error *err)
{
    state->plan->job_failed = true;
    if (state->status != RKS_OK)
        return;
    state->status = status;
    state->err = *err;
}

static bool ending(const nccl_state *state)
{
    return state->status != RKS_OK || state->plan->stopped;
}

/* Called between two looks at the GPU. Decides whether this rank may continue to wait. After an
 * error is known, what is in progress gets a moment to finish. */
static rks_status look_around(void *user, rks_error *err)
{
    nccl_state *state = user;
    rks_exchange_plan *plan = state->plan;
    uint64_t now = rks_now_ms();
    if (now < state->looked_ms + LOOK_MS)
        return RKS_OK;
    state->looked_ms = now;
    rks_error why;
    rks_status status = rks_exchange_look(plan, &why);
    if (status != RKS_OK)
        rks_nccl_note_own(state, status, &why);
    if (rks_group_failed(plan->group)) {
        plan->stopped = true;
        return rks_fail(err, RKS_ERR_STATE, 0, "exchange: a rank was lost");
    }
    if (ending(state) && state->stop_ms == 0)
        state->stop_ms = now;
    if (state->stop_ms == 0 || now < state->stop_ms + GRACE_MS)
        return RKS_OK;
    if (state->status == RKS_OK)
        return rks_fail(err, RKS_ERR_STATE, 0, "exchange: stopped for another rank's error");
    *err = state->err;
    return state->status;
}

/* Before the first round there is nothing to wait for once an error is known. */
static rks_status look_around_early(void *user, rks_error *err)
{
    nccl_state *state = user;
    rks_status status = look_around(user, err);
    if (status == RKS_OK && ending(state)) {
        state->stop_ms = 1;
        state->looked_ms = 0;
        status = look_around(user, err);
    }
    return status;
}

static rks_nccl_patience patience(nccl_state *state)
{
    return (rks_nccl_patience){state->options.timeout_ms, look_around, state};
}

static rks_status wait_downloaded(nccl_state *state, const nccl_buffer *buffer, uint64_t round,
                                  rks_error *err)
{
    uint64_t until = rks_now_ms() + state->options.timeout_ms;
    bool done = false;
    for (;;) {
        rks_status status = rks_gpu_done(state->held->gpu, buffer->downloaded, &done, err);
        if (status != RKS_OK || done)
            return status;
        if ((status = rks_communicator_look(state->held->communicator, err)) != RKS_OK ||
            (status = look_around(state, err)) != RKS_OK)
            return status;
        if (rks_now_ms() >= until)
            return rks_fail(err, RKS_ERR_TIMEOUT, 0,
                            "NCCL: round %" PRIu64 " of %" PRIu64 " (rail %" PRId64
                            ") was not done within %u ms",
                            round, state->rails.rounds, state->rails.mine,
                            state->options.timeout_ms);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

/* ---- a round: out ----------------------------------------------------------------------- */

/* Reads a stretch of this rank's slice, from its own stream or from one of its node's. */
static rks_status read_stretch(void *user, const rks_stretch *stretch, uint64_t at, rks_error *err)
{
    struct {
        nccl_state *state;
        uint8_t *to;
    } *where = user;
    const rks_exchange_job *job = where->state->plan->job;
    return job->read(job->user, stretch->sender, stretch->offset, where->to + at, stretch->size,
                     err);
}

static uint64_t fill_chunk(nccl_state *state, nccl_buffer *buffer, uint64_t round, uint64_t payload)
{
    rks_exchange_plan *plan = state->plan;
    struct {
        nccl_state *state;
        uint8_t *to;
    } where = {state, buffer->up + RKS_ROUND_HEAD};
    rks_error err;
    if (!ending(state)) {
        rks_status status = rks_exchange_look(plan, &err);
        if (status == RKS_OK)
            status = rks_rails_each(&state->rails, state->rails.me, round * state->rails.room,
                                    payload, read_stretch, &where, &err);
        if (status != RKS_OK)
            rks_nccl_note_own(state, status, &err);
    }
    bool failed = ending(state);
    if (failed)
        payload = 0;
    memset(buffer->up, 0, RKS_ROUND_HEAD);
    rks_store_u32(buffer->up, MAGIC);
    rks_store_u32(buffer->up + 4, failed);
    rks_store_u64(buffer->up + 8, round);
    rks_store_u64(buffer->up + 16, payload);
    rks_store_u64(buffer->up + 24, rks_checksum64(buffer->up + RKS_ROUND_HEAD, payload));
    return RKS_ROUND_HEAD + payload;
}

/* Queues a round. `size`: room of each member's chunk; this rank sends `bytes`. All ranks know the
 * size of each chunk. A rank that ends early leaves the rest of its chunk as it was. */
static rks_status put_round(nccl_state *state, nccl_buffer *buffer, uint64_t size, uint64_t bytes,
                            rks_error *err)
{
    rks_gpu *gpu = state->held->gpu;
    rks_nccl_patience waits = patience(state);
    uint64_t own = buffer->gpu + state->rails.me * size;
    uint64_t all = size * state->rails.member_count;
    rks_status status;
    if ((status = rks_gpu_upload(gpu, own, buffer->up, bytes, state->held->up, err)) != RKS_OK ||
        (status = rks_gpu_record(gpu, buffer->uploaded, state->held->up, err)) != RKS_OK ||
        (status = rks_gpu_wait(gpu, state->held->net, buffer->uploaded, err)) != RKS_OK ||
        (status = rks_communicator_gather(state->held->communicator, buffer->gpu, size,
                                          state->chunk_sizes, state->held->net, &waits, err)) !=
            RKS_OK ||
        (status = rks_gpu_record(gpu, buffer->gathered, state->held->net, err)) != RKS_OK ||
        (status = rks_gpu_wait(gpu, state->held->down, buffer->gathered, err)) != RKS_OK ||
        (status = rks_gpu_download(gpu, buffer->down, buffer->gpu, all, state->held->down, err)) !=
            RKS_OK)
        return status;
    return rks_gpu_record(gpu, buffer->downloaded, state->held->down, err);
}

static rks_status send_round(nccl_state *state, uint64_t round, rks_error *err)
{
    nccl_buffer *buffer = &state->held->buffers[round % NCCL_BUFFERS];
    for (uint32_t i = 0; i < state->rails.member_count; i++)
        state->chunk_sizes[i] = RKS_ROUND_HEAD + rks_rails_payload(&state->rails, i, round);
    uint64_t payload = state->chunk_sizes[state->rails.me] - RKS_ROUND_HEAD;
    uint64_t bytes = fill_chunk(state, buffer, round, payload);
    state->plan->stats.bytes_sent += bytes;
    return put_round(state, buffer, rks_rails_round(&state->rails, round), bytes, err);
}

/* ---- a round: in ------------------------------------------------------------------------ */

static rks_status receive_stretch(void *user, const rks_stretch *stretch, uint64_t at,
                                  rks_error *err)
{
    struct {
        nccl_state *state;
        const uint8_t *from;
    } *where = user;
    rks_exchange_plan *plan = where->state->plan;
    if (!plan->node_wanted[stretch->sender])
        return RKS_OK;
    return rks_exchange_take(plan, stretch->sender, stretch->offset, where->from + at,
                             (uint32_t)stretch->size, err);
}

static rks_status receive_chunk(nccl_state *state, uint32_t number, uint64_t round,
                                const uint8_t *chunk, rks_error *err)
{
    const rks_member *member = &state->rails.members[number];
    uint64_t payload = rks_rails_payload(&state->rails, number, round);
    const char *wrong = NULL;
    if (rks_load_u32(chunk) != MAGIC)
        wrong = "wrong magic";
    else if (rks_load_u64(chunk + 8) != round)
        wrong = "another round";
    if (wrong == NULL && rks_load_u32(chunk + 4) != 0) {
        state->plan->stopped = true; /* that rank, or the one it heard of, brings the error */
        return RKS_OK;
    }
    if (wrong == NULL && rks_load_u64(chunk + 16) != payload)
        wrong = "another size";
    else if (wrong == NULL &&
             rks_checksum64(chunk + RKS_ROUND_HEAD, payload) != rks_load_u64(chunk + 24))
        wrong = "wrong checksum";
    if (wrong != NULL)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "exchange: round %" PRIu64 " from rank %" PRIu32 " (%s): %s", round,
                        member->rank, rks_group_host(state->plan->group, member->rank), wrong);
    if (member->carrier != state->rails.members[state->rails.me].carrier || ending(state))
        return RKS_OK;
    struct {
        nccl_state *state;
        const uint8_t *from;
    } where = {state, chunk + RKS_ROUND_HEAD};
    return rks_rails_each(&state->rails, number, round * state->rails.room, payload,
                          receive_stretch, &where, err);
}

/* Receives a round. *last: some member has announced that it ends, so all end after the round that
 * is in progress. */
static rks_status receive_round(nccl_state *state, uint64_t round, bool *last, rks_error *err)
{
    nccl_buffer *buffer = &state->held->buffers[round % NCCL_BUFFERS];
    uint64_t size = rks_rails_round(&state->rails, round);
    rks_status status = wait_downloaded(state, buffer, round, err);
    if (status != RKS_OK)
        return status;
    rks_error why;
    for (uint32_t i = 0; i < state->rails.member_count; i++) {
        const uint8_t *chunk = buffer->down + i * size;
        if (i != state->rails.me)
            state->plan->stats.bytes_received +=
                RKS_ROUND_HEAD + rks_rails_payload(&state->rails, i, round);
        *last |= rks_load_u32(chunk + 4) != 0;
        status = receive_chunk(state, i, round, chunk, &why);
        if (status != RKS_OK)
            rks_nccl_note_own(state, status, &why);
    }
    return RKS_OK;
}

static rks_status run_rounds(nccl_state *state, rks_error *err)
{
    uint64_t rounds = state->rails.rounds, sent = 0;
    rks_status status = RKS_OK;
    bool last = false;
    for (uint64_t round = 0; status == RKS_OK && round < (last ? sent : rounds); round++) {
        while (status == RKS_OK && !last && sent < rounds && sent < round + NCCL_BUFFERS)
            status = send_round(state, sent++, err);
        if (status == RKS_OK)
            status = receive_round(state, round, &last, err);
    }
    return status;
}

static void measure_gpu_memory(nccl_state *state)
{
    uint64_t left = 0, buffers = state->plan->stats.gpu_buffer_bytes;
    if (state->reuses || rks_gpu_free_memory(state->held->gpu, &left, NULL) != RKS_OK ||
        left >= state->free_before)
        return;
    uint64_t taken = state->free_before - left;
    uint64_t nccl = taken > buffers ? taken - buffers : 0;
    if (nccl <= state->plan->stats.gpu_nccl_bytes)
        return;
    rks_usage_add(RKS_MEMORY_GPU_NCCL, nccl - state->plan->stats.gpu_nccl_bytes);
    state->plan->stats.gpu_nccl_bytes = state->held->nccl_bytes = nccl;
}

/* Returns this rank's error, for the next collective. Ending early because of another rank is not
 * an error: that rank brings it. */
static rks_status own_error(nccl_state *state, rks_status status, rks_error *err)
{
    if (state->status != RKS_OK) {
        *err = state->err;
        return state->status;
    }
    return state->plan->stopped ? RKS_OK : status;
}

static rks_status nccl_run(rks_exchange_plan *plan, void *user, rks_error *err)
{
    nccl_state *state = user;
    state->plan = plan;
    if (state->rails.mine < 0 || plan->stopped)
        return RKS_OK;
    rks_status status = run_rounds(state, err);
    measure_gpu_memory(state);
    return own_error(state, status, err);
}

/* ---- before and after ------------------------------------------------------------------- */

static rks_status nccl_can(rks_group *group, rks_error *err)
{
    if (rks_group_size(group) > 1 && rks_group_is_threads(group))
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "the ranks are threads of one process; NCCL needs a process each");
    return RKS_OK;
}

/* Called after everything held was freed: what stays in use is NCCL's code, which does not count
 * for the exchange. */
static void tell_gpu_memory(nccl_state *state)
{
    rks_exchange_stats *stats = &state->plan->stats;
    uint64_t left = 0;
    if (state->held->left_behind || state->free_before == 0 || stats->gpu_nccl_bytes == 0 ||
        rks_gpu_free_memory(state->held->gpu, &left, NULL) != RKS_OK)
        return;
    uint64_t stays = left < state->free_before ? state->free_before - left : 0;
    stats->gpu_code_bytes = stays < stats->gpu_nccl_bytes ? stays : stats->gpu_nccl_bytes;
    stats->gpu_nccl_bytes -= stats->gpu_code_bytes;
    rks_log_debug("exchange nccl: MiB of GPU memory: %" PRIu64 " of buffers, %" PRIu64
                  " of NCCL's, %" PRIu64 " of its code",
                  stats->gpu_buffer_bytes >> 20, stats->gpu_nccl_bytes >> 20,
                  stats->gpu_code_bytes >> 20);
    rks_nccl_judge_memory(state->held->gpu, stats->gpu_buffer_bytes + stats->gpu_nccl_bytes);
}

/* Closes in order only if nothing has failed on any rank. */
static void nccl_close(rks_exchange_plan *plan, void *user)
{
    nccl_state *state = user;
    nccl_resources *held = state->held;
    state->plan = plan;
    rks_nccl_patience waits = patience(state);
    if (!plan->failed && state->options.memory == NCCL_KEEPS) {
        rks_nccl_keep(held, state->options.flat);
    } else {
        rks_nccl_drop(held, plan->failed ? NULL : &waits);
        if (held->entered)
            tell_gpu_memory(state);
        rks_nccl_release(held, NULL);
    }
    rks_rails_free(&state->rails);
    rks_free(state->chunk_sizes);
    rks_free(state);
}

/* Runs the first round, of heads only: NCCL connects now and allocates nothing later. */
static rks_status warm_up(nccl_state *state, rks_error *err)
{
    nccl_buffer *buffer = &state->held->buffers[0];
    memset(buffer->up, 0, RKS_ROUND_HEAD);
    for (uint32_t i = 0; i < state->rails.member_count; i++)
        state->chunk_sizes[i] = RKS_ROUND_HEAD;
    rks_status status = put_round(state, buffer, RKS_ROUND_HEAD, RKS_ROUND_HEAD, err);
    return status == RKS_OK ? wait_downloaded(state, buffer, 0, err) : status;
}

static rks_status make_buffers(nccl_state *state, rks_error *err)
{
    nccl_resources *held = state->held;
    uint64_t chunk = rks_rails_round(&state->rails, 0); /* no later round is longer */
    rks_status status = rks_nccl_make_buffers(held, chunk, chunk * state->rails.member_count, err);
    state->plan->stats.gpu_buffer_bytes = held->buffer_bytes;
    state->plan->stats.pinned_bytes = held->pinned_bytes;
    return status;
}

static rks_status connect(nccl_state *state, const uint8_t *id, rks_error *err)
{
    nccl_resources *held = state->held;
    uint64_t limit_ms = 10 * (uint64_t)state->options.timeout_ms;
    rks_nccl_patience waits = {limit_ms < NCCL_MAKE_MS ? (uint32_t)limit_ms : NCCL_MAKE_MS,
                               look_around_early, state};
    state->chunk_sizes = rks_alloc(state->rails.member_count, sizeof(*state->chunk_sizes), err);
    if (state->chunk_sizes == NULL)
        return RKS_ERR_MEMORY;
    if (state->reuses) {
        state->plan->stats.gpu_nccl_bytes = held->nccl_bytes;
        return make_buffers(state, err);
    }
    rks_status status = rks_gpu_free_memory(held->gpu, &state->free_before, err);
    if (status == RKS_OK)
        status = make_buffers(state, err);
    if (status == RKS_OK)
        status = rks_communicator_open(held->gpu, id, state->rails.member_count, state->rails.me,
                                       &waits, &held->communicator, err);
    if (status == RKS_OK)
        status = warm_up(state, err);
    measure_gpu_memory(state);
    return status;
}

static nccl_state *create_state(rks_exchange_plan *plan, rks_error *err)
{
    nccl_state *state = rks_alloc(1, sizeof(*state), err);
    if (state == NULL)
        return NULL;
    state->plan = plan;
    state->rails.mine = -1;
    state->held = rks_nccl_take(plan->group, err);
    if (state->held == NULL) {
        rks_free(state);
        return NULL;
    }
    return state;
}

/* COLLECTIVE, unlike that of other backends. */
static rks_status nccl_prepare(rks_exchange_plan *plan, void **prepared, uint64_t *token,
                               rks_error *err)
{
    (void)token;
    uint8_t id[RKS_COMMUNICATOR_ID] = {0};
    nccl_state *state = create_state(plan, err);
    rks_status status =
        state == NULL ? RKS_ERR_MEMORY : rks_nccl_read_options(plan->options, &state->options, err);
    status = rks_group_agree(plan->group, "exchange: NCCL", status, err);
    if (status == RKS_OK)
        status = rks_nccl_meet(state, err);
    if (status == RKS_OK && !state->reuses) {
        rks_nccl_drop(state->held, NULL); /* what was kept has other rails */
        status = rks_nccl_hand_round_ids(state, id, err);
    }
    if (status == RKS_OK && state->rails.mine >= 0)
        status = own_error(state, connect(state, id, err), err);
    *prepared = state; /* closed once all ranks know of an error, since an abort may take long */
    return status;
}

const rks_exchange_backend rks_exchange_nccl = {
    .name = "nccl",
    .tells_size = true,
    .takes_options = true,
    .reads_others = true,
    .slow_start = true,
    .in_clear = "NCCL",
    .can = nccl_can,
    .prepare = nccl_prepare,
    .run = nccl_run,
    .close = nccl_close,
};
