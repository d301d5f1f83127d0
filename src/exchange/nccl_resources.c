/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_resources.c: what the nccl exchange holds on a GPU, made, freed, or kept from one exchange
 * of a group to the next. */
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "exchange/nccl_state.h"

enum { DRAIN_MS = 10000, POLL_NS = 50 * 1000 };

/* A GPU has work that may never end, so the driver's frees would wait for it. */
static atomic_bool lost;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static nccl_resources *kept; /* guarded by mutex; one a group at most */

/* ---- buffers ------------------------------------------------------------------------------ */

static rks_status pin(nccl_resources *held, uint64_t bytes, uint8_t **memory, rks_error *err)
{
    rks_status status = rks_gpu_pin(held->gpu, bytes, (void **)memory, err);
    if (status == RKS_OK) {
        held->pinned_bytes += bytes;
        rks_usage_add(RKS_MEMORY_PINNED, bytes);
    }
    return status;
}

static rks_status make_buffer(nccl_resources *held, nccl_buffer *buffer, uint64_t chunk,
                              uint64_t round, rks_error *err)
{
    rks_gpu *gpu = held->gpu;
    rks_status status = rks_gpu_alloc(gpu, round, &buffer->gpu, err);
    if (status != RKS_OK)
        return status;
    held->buffer_bytes += round;
    rks_usage_add(RKS_MEMORY_GPU_SLOTS, round);
    if ((status = pin(held, chunk, &buffer->up, err)) != RKS_OK ||
        (status = pin(held, round, &buffer->down, err)) != RKS_OK ||
        (status = rks_gpu_event_create(gpu, &buffer->uploaded, err)) != RKS_OK ||
        (status = rks_gpu_event_create(gpu, &buffer->gathered, err)) != RKS_OK)
        return status;
    return rks_gpu_event_create(gpu, &buffer->downloaded, err);
}

/* None of them may be in use. */
static void free_buffers(nccl_resources *held)
{
    rks_gpu *gpu = held->gpu;
    for (int i = 0; i < NCCL_BUFFERS; i++) {
        nccl_buffer *buffer = &held->buffers[i];
        rks_gpu_event_destroy(gpu, buffer->uploaded);
        rks_gpu_event_destroy(gpu, buffer->gathered);
        rks_gpu_event_destroy(gpu, buffer->downloaded);
        rks_gpu_unpin(gpu, buffer->up);
        rks_gpu_unpin(gpu, buffer->down);
        rks_gpu_free(gpu, buffer->gpu);
        *buffer = (nccl_buffer){0};
    }
    rks_gpu_stream_destroy(gpu, held->up);
    rks_gpu_stream_destroy(gpu, held->net);
    rks_gpu_stream_destroy(gpu, held->down);
    held->up = held->net = held->down = NULL;
    rks_usage_sub(RKS_MEMORY_PINNED, held->pinned_bytes);
    rks_usage_sub(RKS_MEMORY_GPU_SLOTS, held->buffer_bytes);
    held->pinned_bytes = held->buffer_bytes = held->chunk_room = held->round_room = 0;
}

rks_status rks_nccl_make_buffers(nccl_resources *held, uint64_t chunk, uint64_t round,
                                 rks_error *err)
{
    if (held->chunk_room >= chunk && held->round_room >= round)
        return RKS_OK;
    free_buffers(held);
    rks_gpu *gpu = held->gpu;
    rks_status status;
    if ((status = rks_gpu_stream_create(gpu, &held->up, err)) != RKS_OK ||
        (status = rks_gpu_stream_create(gpu, &held->net, err)) != RKS_OK ||
        (status = rks_gpu_stream_create(gpu, &held->down, err)) != RKS_OK)
        return status;
    for (int i = 0; i < NCCL_BUFFERS; i++)
        if ((status = make_buffer(held, &held->buffers[i], chunk, round, err)) != RKS_OK)
            return status;
    held->chunk_room = chunk;
    held->round_room = round;
    return RKS_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Waits for copies on the streams, which may still run after the communicator's end. A stream that
 * failed runs nothing. */
static bool drain(nccl_resources *held)
{
    rks_gpu_stream streams[] = {held->up, held->net, held->down};
    uint64_t until = rks_now_ms() + DRAIN_MS;
    for (int i = 0; i < 3; i++) {
        bool idle = streams[i] == NULL;
        while (!idle && rks_gpu_idle(held->gpu, streams[i], &idle, NULL) == RKS_OK && !idle) {
            if (rks_now_ms() >= until)
                return false;
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
        }
    }
    return true;
}

static void end_communicator(nccl_resources *held, const rks_nccl_patience *patience)
{
    rks_error err;
    bool ended = true;
    if (held->communicator != NULL && patience != NULL) {
        if (rks_communicator_close(held->communicator, patience, &err) == RKS_OK)
            held->communicator = NULL;
        else
            rks_log("exchange nccl: %s", err.text); /* the index is complete; nothing is lost */
    }
    if (held->communicator != NULL)
        ended = rks_communicator_abort(held->communicator);
    held->communicator = NULL;
    held->left_behind |= !ended || !drain(held);
}

rks_status rks_nccl_refuse_lost(rks_error *err)
{
    if (!atomic_load(&lost))
        return RKS_OK;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                    "NCCL could not be ended in an earlier exchange of this process; start anew, "
                    "or use another exchange");
}

void rks_nccl_drop(nccl_resources *held, const rks_nccl_patience *patience)
{
    bool holds = held->communicator != NULL || held->up != NULL;
    bool entered = held->entered;
    if (!holds || held->left_behind)
        return;
    /* Frees would wait for what another exchange, also of another group, had to leave. */
    if (atomic_load(&lost) || (!entered && rks_gpu_enter(held->gpu, NULL) != RKS_OK)) {
        held->left_behind = true;
    } else {
        end_communicator(held, patience);
        if (!held->left_behind)
            free_buffers(held);
        if (!entered)
            rks_gpu_leave(held->gpu);
    }
    held->serial = 0;
    rks_usage_sub(RKS_MEMORY_GPU_NCCL, held->nccl_bytes);
    held->nccl_bytes = 0;
    if (held->left_behind && !atomic_exchange(&lost, true))
        rks_log("exchange nccl: NCCL could not be ended; its memory stays taken until this "
                "process ends");
}

void rks_nccl_release(nccl_resources *held, const rks_nccl_patience *patience)
{
    rks_nccl_drop(held, patience);
    if (held->entered)
        rks_gpu_leave(held->gpu);
    if (!held->left_behind)
        rks_gpu_close(held->gpu);
    rks_free(held);
}

/* ---- from one exchange to the next ----------------------------------------------------------- */

/* A forked child sees its parent's, and leaves them alone. */
static nccl_resources *pop_kept(const rks_group *group)
{
    pthread_mutex_lock(&mutex);
    nccl_resources **at = &kept;
    while (*at != NULL && ((*at)->group != group || (*at)->pid != getpid()))
        at = &(*at)->next;
    nccl_resources *found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&mutex);
    return found;
}

nccl_resources *rks_nccl_take(rks_group *group, rks_error *err)
{
    nccl_resources *held = pop_kept(group);
    if (held == NULL && (held = rks_alloc(1, sizeof(*held), err)) != NULL)
        held->group = group;
    return held;
}

static rks_status wait_on(void *user, rks_error *err)
{
    (void)user;
    (void)err;
    return RKS_OK;
}

/* Frees buffers and NCCL's memory. NCCL's code stays, so only now the two can be distinguished. */
static void release_and_judge(nccl_resources *held, const rks_nccl_patience *patience)
{
    uint64_t before = 0, after = 0;
    held->entered = held->communicator != NULL && rks_gpu_enter(held->gpu, NULL) == RKS_OK;
    bool known = held->entered && rks_gpu_free_memory(held->gpu, &before, NULL) == RKS_OK;
    rks_nccl_drop(held, patience);
    if (known && !held->left_behind && rks_gpu_free_memory(held->gpu, &after, NULL) == RKS_OK &&
        after > before)
        rks_nccl_judge_memory(held->gpu, after - before);
    rks_nccl_release(held, NULL);
}

/* The other ranks close their groups at about the same time. */
static void on_group_close(rks_group *group)
{
    const rks_nccl_patience patience = {NCCL_END_MS, wait_on, NULL};
    nccl_resources *held = pop_kept(group);
    if (held != NULL)
        release_and_judge(held, rks_group_failed(group) ? NULL : &patience);
}

void rks_nccl_keep(nccl_resources *held, bool flat)
{
    if (held->entered)
        rks_gpu_leave(held->gpu);
    held->entered = false;
    held->serial++;
    held->flat = flat;
    held->pid = getpid();
    rks_group_on_close(held->group, on_group_close);
    pthread_mutex_lock(&mutex);
    held->next = kept;
    kept = held;
    pthread_mutex_unlock(&mutex);
}
