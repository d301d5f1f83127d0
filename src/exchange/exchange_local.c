/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_local.c: ranks that are threads of one process read from each other's sources.
 *
 * A source is known by a number, not by its address: when a group fails, a rank may be gone while
 * another still wants a chunk of it, and then finds no source of that number. */
#include "exchange/exchange_backend.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"

typedef struct local_source {
    uint64_t number;
    const rks_exchange_job *job;
    unsigned users; /* threads that read from it at the moment */
    uint64_t bytes_sent;
    struct local_source *next;
} local_source;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static local_source *sources;    /* guarded by mutex, like what they hold */
static uint64_t last_number = 0; /* guarded by mutex */

typedef struct local_state {
    local_source source;
    uint8_t *staging;
} local_state;

static rks_status local_can(rks_group *group, rks_error *err)
{
    if (rks_group_is_threads(group))
        return RKS_OK;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "the ranks are not threads of one process");
}

static rks_status local_prepare(rks_exchange_plan *plan, void **state, uint64_t *token,
                                rks_error *err)
{
    local_state *prepared = rks_alloc(1, sizeof(*prepared), err);
    if (prepared == NULL)
        return RKS_ERR_MEMORY;
    prepared->staging = rks_alloc_raw(plan->room, 1, err);
    if (prepared->staging == NULL) {
        rks_free(prepared);
        return RKS_ERR_MEMORY;
    }
    plan->stats.peak_bytes = plan->room;
    rks_usage_add(RKS_MEMORY_STAGING, plan->room);
    local_source *source = &prepared->source;
    source->job = plan->job;
    pthread_mutex_lock(&mutex);
    source->number = ++last_number;
    source->next = sources;
    sources = source;
    pthread_mutex_unlock(&mutex);
    *token = source->number;
    *state = prepared;
    return RKS_OK;
}

static local_source *enter_source(uint64_t number)
{
    pthread_mutex_lock(&mutex);
    local_source *source = sources;
    while (source != NULL && source->number != number)
        source = source->next;
    if (source != NULL)
        source->users++;
    pthread_mutex_unlock(&mutex);
    return source;
}

static void leave(local_source *source, uint32_t size)
{
    pthread_mutex_lock(&mutex);
    source->bytes_sent += size;
    if (--source->users == 0)
        pthread_cond_broadcast(&idle);
    pthread_mutex_unlock(&mutex);
}

static rks_status copy_chunk(rks_exchange_plan *plan, local_state *state, uint32_t sender,
                             uint64_t offset, uint32_t size, rks_error *err)
{
    local_source *source = enter_source(plan->tokens[sender]);
    if (source == NULL) {
        rks_fail(err, RKS_ERR_PEER, 0, "exchange: rank %" PRIu32 " has left", sender);
        rks_error_place(err, sender, rks_group_host(plan->group, sender));
        return RKS_ERR_PEER;
    }
    rks_status status =
        source->job->read(source->job->user, sender, offset, state->staging, size, err);
    leave(source, size);
    if (status != RKS_OK) {
        rks_error_place(err, sender, rks_group_host(plan->group, sender));
        return status;
    }
    plan->stats.bytes_received += size;
    return rks_exchange_take(plan, sender, offset, state->staging, size, err);
}

static rks_status local_run(rks_exchange_plan *plan, void *user, rks_error *err)
{
    local_state *state = user;
    uint32_t cursor = 0, sender;
    uint64_t offset;
    while (rks_exchange_next(plan, &cursor, &sender, &offset)) {
        while (offset < plan->parts[sender].end) {
            rks_status status = rks_exchange_look(plan, err);
            if (status != RKS_OK || plan->stopped)
                return status;
            uint32_t size = rks_exchange_chunk(plan, sender, offset);
            status = copy_chunk(plan, state, sender, offset, size, err);
            if (status != RKS_OK)
                return status;
            offset += size;
        }
    }
    return RKS_OK;
}

static void local_close(rks_exchange_plan *plan, void *user)
{
    local_state *state = user;
    pthread_mutex_lock(&mutex);
    local_source **at = &sources;
    while (*at != &state->source)
        at = &(*at)->next;
    *at = state->source.next;
    while (state->source.users > 0) /* no longer than one read takes */
        pthread_cond_wait(&idle, &mutex);
    plan->stats.bytes_sent = state->source.bytes_sent;
    pthread_mutex_unlock(&mutex);
    rks_usage_sub(RKS_MEMORY_STAGING, plan->room);
    rks_free(state->staging);
    rks_free(state);
}

const rks_exchange_backend rks_exchange_local = {
    .name = "local",
    .why_auto = "the ranks are threads of one process",
    .can = local_can,
    .prepare = local_prepare,
    .run = local_run,
    .close = local_close,
};
