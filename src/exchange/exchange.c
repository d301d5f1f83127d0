/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c: agrees on backend, sizes and who wants what, runs the backend, agrees on the end.
 *
 * Three collectives: "plan" (a record of each rank), "ready" (all have prepared), "end". */
#include "exchange/exchange_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum {
    CHUNK_DEFAULT = 4 << 20,
    CHUNK_MAX = 1 << 30,
    AUTO = -1,
    BACKENDS = 3,
};

/* A backend's number in a record is its place here. */
static const rks_exchange_backend *const backends[BACKENDS] = {
    &rks_exchange_local,
    &rks_exchange_mpi,
    &rks_exchange_pull,
};

/* What a rank tells the others, and behind it a bit for each sender that it wants:
 *
 *   offset  size  field
 *        0     8  size of its stream
 *        8     4  chunk
 *       12     4  the backend that its user named; -1: auto
 *       16     4  bits of the backends that can run here
 *       20     4  0 */
enum { RECORD_SIZE = 24 };

static size_t record_size(uint32_t ranks)
{
    return RECORD_SIZE + ranks / 8 + 1;
}

static rks_status find_backend(const char *name, int32_t *named, rks_error *err)
{
    *named = AUTO;
    if (name == NULL || strcmp(name, "auto") == 0)
        return RKS_OK;
    for (int32_t i = 0; i < BACKENDS; i++)
        if (strcmp(name, backends[i]->name) == 0)
            *named = i;
    if (*named == AUTO)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "exchange \"%s\": there are auto, local, mpi and pull", name);
    return RKS_OK;
}

/* This rank's record; its error where what its user named cannot run. */
static rks_status fill_record(const rks_exchange_plan *plan, const char *backend, uint8_t *record,
                              rks_error *err)
{
    const rks_exchange_job *job = plan->job;
    int32_t named = AUTO;
    rks_status status = find_backend(backend, &named, err);
    uint32_t can = 0;
    for (int32_t i = 0; i < BACKENDS; i++) {
        rks_error why;
        rks_status answer = backends[i]->can(plan->group, &why);
        if (answer == RKS_OK)
            can |= 1u << i;
        else if (i == named && status == RKS_OK)
            status = rks_fail(err, answer, why.cause, "exchange %s: %s", backend, why.text);
    }
    uint32_t chunk = job->chunk == 0 ? CHUNK_DEFAULT : job->chunk;
    rks_store_u64(record, job->size);
    rks_store_u32(record + 8, chunk < CHUNK_MAX ? chunk : CHUNK_MAX);
    rks_store_u32(record + 12, (uint32_t)named);
    rks_store_u32(record + 16, can);
    for (uint32_t sender = 0; sender < plan->size && job->receives; sender++)
        if (sender != plan->rank && (job->skip == NULL || !job->skip(job->user, sender)))
            record[RECORD_SIZE + sender / 8] |= (uint8_t)(1u << (sender % 8));
    return status;
}

/* Takes the records of all ranks; every rank comes to the same result. */
static rks_status read_records(rks_exchange_plan *plan, const uint8_t *all, const uint64_t *offsets,
                               const rks_exchange_backend **backend, rks_error *err)
{
    uint32_t can = UINT32_MAX;
    uint32_t named = rks_load_u32(all + 12);
    plan->chunk = CHUNK_MAX;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *record = all + offsets[rank];
        if (offsets[rank + 1] - offsets[rank] != record_size(plan->size))
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: record of rank %" PRIu32, rank);
        if (rks_load_u32(record + 12) != named)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "exchange: ranks 0 and %" PRIu32 " name different backends", rank);
        uint32_t chunk = rks_load_u32(record + 8);
        plan->chunk = chunk < plan->chunk ? chunk : plan->chunk;
        plan->sizes[rank] = rks_load_u64(record);
        can &= rks_load_u32(record + 16);
    }
    if (plan->chunk == 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: chunks of 0 bytes");
    const uint8_t *mine = all + offsets[plan->rank] + RECORD_SIZE;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *theirs = all + offsets[rank] + RECORD_SIZE;
        plan->wanted[rank] = (mine[rank / 8] >> (rank % 8) & 1) != 0 && plan->sizes[rank] > 0;
        plan->wanters[rank] =
            (theirs[plan->rank / 8] >> (plan->rank % 8) & 1) != 0 && plan->job->size > 0;
        uint32_t first = rks_exchange_chunk(plan, rank, 0);
        if (plan->wanted[rank] && first > plan->room)
            plan->room = first;
        if (plan->wanters[rank])
            plan->send_room = rks_exchange_chunk(plan, plan->rank, 0);
    }
    for (uint32_t i = 0; i < BACKENDS && *backend == NULL; i++)
        if (named == i || (named == (uint32_t)AUTO && (can >> i & 1) != 0))
            *backend = backends[i];
    if (*backend == NULL)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "exchange: no backend runs on all ranks");
    return RKS_OK;
}

bool rks_exchange_next(const rks_exchange_plan *plan, uint32_t *cursor, uint32_t *sender)
{
    while (*cursor + 1 < plan->size) {
        uint32_t rank = (uint32_t)(((uint64_t)plan->rank + 1 + (*cursor)++) % plan->size);
        if (plan->wanted[rank]) {
            *sender = rank;
            return true;
        }
    }
    return false;
}

uint32_t rks_exchange_chunk(const rks_exchange_plan *plan, uint32_t sender, uint64_t offset)
{
    uint64_t left = plan->sizes[sender] - offset;
    return (uint32_t)(left < plan->chunk ? left : plan->chunk);
}

rks_status rks_exchange_take(rks_exchange_plan *plan, uint32_t sender, uint64_t offset,
                             const void *bytes, uint32_t size, rks_error *err)
{
    char text[96];
    snprintf(text, sizeof(text), "exchange: %" PRIu64 " of %" PRIu64 " bytes of rank %" PRIu32,
             offset + size, plan->sizes[sender], sender);
    rks_group_progress(plan->group, text);
    return plan->job->write(plan->job->user, sender, offset, bytes, size, err);
}

rks_status rks_exchange_look(rks_exchange_plan *plan, rks_error *err)
{
    if (rks_group_must_stop(plan->group, NULL) != RKS_OK) /* also where the group has failed */
        plan->stopped = true;
    return rks_check_interrupt(err);
}

static rks_status make_plan(rks_exchange_plan *plan, const char *backend,
                            const rks_exchange_backend **chosen, rks_error *err)
{
    uint8_t *record = NULL, *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status = RKS_OK;
    if ((plan->sizes = rks_alloc(plan->size, sizeof(*plan->sizes), err)) == NULL ||
        (plan->wanted = rks_alloc(plan->size, sizeof(*plan->wanted), err)) == NULL ||
        (plan->wanters = rks_alloc(plan->size, sizeof(*plan->wanters), err)) == NULL ||
        (plan->tokens = rks_alloc(plan->size, sizeof(*plan->tokens), err)) == NULL ||
        (record = rks_alloc(record_size(plan->size), 1, err)) == NULL)
        status = RKS_ERR_MEMORY;
    else
        status = fill_record(plan, backend, record, err);
    status = rks_group_allgather(plan->group, "exchange: plan", status, record,
                                 record == NULL ? 0 : record_size(plan->size), &all, &offsets, err);
    if (status == RKS_OK)
        status = read_records(plan, all, offsets, chosen, err);
    rks_free(record);
    rks_free(all);
    rks_free(offsets);
    return status;
}

static rks_status get_ready(rks_exchange_plan *plan, const rks_exchange_backend *backend,
                            void **state, rks_error *err)
{
    uint64_t token = 0;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status = backend->prepare(plan, state, &token, err);
    status = rks_group_allgather(plan->group, "exchange: ready", status, &token, sizeof(token),
                                 &all, &offsets, err);
    for (uint32_t rank = 0; rank < plan->size && status == RKS_OK; rank++) {
        if (offsets[rank + 1] - offsets[rank] != sizeof(token))
            status = rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: token of rank %" PRIu32, rank);
        else
            plan->tokens[rank] = rks_load_u64(all + offsets[rank]);
    }
    rks_free(all);
    rks_free(offsets);
    return status;
}

rks_status rks_exchange_run(rks_group *group, const char *backend, const rks_exchange_job *job,
                            rks_exchange_stats *stats, const char **used, rks_error *err)
{
    rks_error local;
    if (err == NULL)
        err = &local;
    rks_exchange_plan plan = {
        .group = group, .job = job, .rank = rks_group_rank(group), .size = rks_group_size(group)};
    const rks_exchange_backend *chosen = NULL;
    void *state = NULL;
    rks_status status = make_plan(&plan, backend, &chosen, err);
    if (status == RKS_OK)
        status = get_ready(&plan, chosen, &state, err);
    if (status == RKS_OK) {
        status = chosen->run(&plan, state, err);
        status = rks_group_agree(group, "exchange: end", status, err);
        if (status == RKS_OK && plan.stopped)
            status = rks_fail(err, RKS_ERR_STATE, 0, "exchange: stopped for an error of no rank");
    }
    if (state != NULL)
        chosen->close(&plan, state);
    rks_group_progress(group, "");
    if (status == RKS_OK) {
        if (stats != NULL)
            *stats = plan.stats;
        if (used != NULL)
            *used = chosen->name;
    }
    rks_free(plan.sizes);
    rks_free(plan.wanted);
    rks_free(plan.wanters);
    rks_free(plan.tokens);
    return status;
}
