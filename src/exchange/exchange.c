/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.c: agrees on backend, sizes and who wants what, runs the backend, agrees on the end.
 *
 * Three collectives: "plan" (a record of each rank), "ready" (all have prepared), "end". Where auto
 * has chosen nccl and it fails, a fourth one finds out whether anything but NCCL has failed. */
#include "exchange/exchange_backend.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "group/agreement.h"

enum {
    CHUNK_DEFAULT = 4 << 20,
    CHUNK_MAX = 1 << 30,
    AUTO = -1,
    BACKENDS = 4,
};

/* A backend's number in a record is its place here; auto takes the first one that runs on all. */
static const rks_exchange_backend *const backends[BACKENDS] = {
    &rks_exchange_local,
    &rks_exchange_nccl,
    &rks_exchange_mpi,
    &rks_exchange_pull,
};

/* From so many bytes on auto chooses NCCL. Its start (context, communicators, connections) is said
 * to take about three seconds, in which the others move this much to a node. */
static uint64_t nccl_from_bytes = (uint64_t)4 << 30;

void rks_exchange_nccl_from(uint64_t bytes)
{
    nccl_from_bytes = bytes != 0 ? bytes : (uint64_t)4 << 30;
}

/* What all ranks know together. */
typedef struct exchange_choice {
    int32_t named;  /* AUTO or a backend's number */
    uint32_t can;   /* bits of the backends that every rank can run */
    uint64_t bytes; /* of all streams */
} exchange_choice;

/* A rank's record; after it follows a bit for each sender that it receives from:
 *
 *   offset  size  field
 *        0     8  size of its stream
 *        8     4  chunk
 *       12     4  the backend that its user named; -1: auto
 *       16     4  bits of the backends that can run here
 *       20     4  bits: 1 it receives, 2 its node shares, 4 the streams have checksums */
enum { RECORD_SIZE = 24, RECEIVES = 1, SHARES = 2, CHECKS = 4 };

static size_t record_size(uint32_t ranks)
{
    return RECORD_SIZE + ranks / 8 + 1;
}

static rks_status find_backend(const char *name, int32_t *named, const char **options,
                               rks_error *err)
{
    *named = AUTO;
    *options = NULL;
    if (name == NULL || strcmp(name, "auto") == 0)
        return RKS_OK;
    size_t size = strcspn(name, ":");
    for (int32_t i = 0; i < BACKENDS; i++)
        if (strlen(backends[i]->name) == size && strncmp(name, backends[i]->name, size) == 0)
            *named = i;
    if (*named == AUTO)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "exchange \"%s\": choose auto, local, nccl, mpi or pull", name);
    if (name[size] == ':')
        *options = name + size + 1;
    if (*options != NULL && !backends[*named]->takes_options)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "exchange \"%s\": %s has no options", name,
                        backends[*named]->name);
    return RKS_OK;
}

/* Returns whether this rank can use a backend. */
static rks_status ask_backend(rks_group *group, const rks_exchange_backend *backend, rks_error *why)
{
    const char *in_clear = rks_group_encrypts(group) ? backend->in_clear : NULL;
    return in_clear == NULL ? backend->can(group, why)
                            : rks_fail(why, RKS_ERR_UNSUPPORTED, 0,
                                       "RKS_ENCRYPT=1: %s does not encrypt", in_clear);
}

const char *rks_exchange_expected(rks_group *group)
{
    rks_error why;
    for (int32_t i = 0; i < BACKENDS; i++)
        if (!backends[i]->slow_start && ask_backend(group, backends[i], &why) == RKS_OK)
            return backends[i]->name;
    return rks_exchange_pull.name;
}

/* Fills this rank's record. Returns an error if the backend that its user named cannot run. */
static rks_status fill_record(rks_exchange_plan *plan, const char *backend, uint8_t *record,
                              rks_error *err)
{
    const rks_exchange_job *job = plan->job;
    int32_t named = AUTO;
    rks_status status = find_backend(backend, &named, &plan->options, err);
    uint32_t can = 0;
    for (int32_t i = 0; i < BACKENDS; i++) {
        rks_error why;
        rks_status answer = ask_backend(plan->group, backends[i], &why);
        if (backends[i]->reads_others && answer == RKS_OK && !job->reads_node)
            answer = rks_fail(&why, RKS_ERR_UNSUPPORTED, 0, "it does not carry these streams");
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
    rks_store_u32(record + 20, (job->receives ? RECEIVES : 0u) | (job->shares ? SHARES : 0u) |
                                   (job->checks ? CHECKS : 0u));
    for (uint32_t sender = 0; sender < plan->size && job->receives; sender++)
        if (sender != plan->rank && (job->has == NULL || !job->has[sender]))
            record[RECORD_SIZE + sender / 8] |= (uint8_t)(1u << (sender % 8));
    return status;
}

static bool has_bit(const uint8_t *record, uint32_t rank)
{
    return (record[RECORD_SIZE + rank / 8] >> (rank % 8) & 1) != 0;
}

/* Sets what `sender` sends to `rank` if nothing is shared. */
static void read_whole(rks_exchange_plan *plan, const uint8_t *record, uint32_t rank,
                       uint32_t sender)
{
    rks_exchange_part whole = {0, plan->sizes[sender]};
    if (!has_bit(record, sender))
        return;
    if (rks_group_node_of(plan->group, rank) == rks_group_node(plan->group))
        plan->node_wanted[sender] = whole.end > 0;
    if (rank == plan->rank)
        plan->parts[sender] = whole;
    if (sender == plan->rank)
        plan->given[rank] = whole;
}

static uint64_t bytes_of(const rks_exchange_part *part)
{
    return part->end - part->begin;
}

/* Finds the largest chunks, and the ranks that this one sends to and receives from. */
static void find_rooms(rks_exchange_plan *plan)
{
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        uint64_t in = bytes_of(&plan->parts[rank]), out = bytes_of(&plan->given[rank]);
        plan->wanted[rank] = in > 0;
        plan->wanters[rank] = out > 0;
        in = in < plan->chunk ? in : plan->chunk;
        out = out < plan->chunk ? out : plan->chunk;
        plan->room = in > plan->room ? (uint32_t)in : plan->room;
        plan->send_room = out > plan->send_room ? (uint32_t)out : plan->send_room;
    }
}

/* Refuses a second receiver on a node that shares. */
static rks_status look_for_another(const rks_exchange_plan *plan, const rks_agreed *agreed,
                                   uint32_t receiver, rks_error *err)
{
    for (uint32_t rank = 0; rank < receiver; rank++) {
        const uint8_t *record = rks_agreed_get(agreed, rank, 0, NULL);
        if (rks_group_node_of(plan->group, rank) == rks_group_node_of(plan->group, receiver) &&
            (rks_load_u32(record + 20) & RECEIVES) != 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "exchange: ranks %" PRIu32 " and %" PRIu32
                            " receive for one node that shares",
                            rank, receiver);
    }
    return RKS_OK;
}

/* Finds which streams this rank and its node receive, which ranks receive this rank's, and which
 * parts. */
static rks_status read_wants(rks_exchange_plan *plan, const rks_agreed *agreed, rks_error *err)
{
    bool shares = plan->job->shares;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *record = rks_agreed_get(agreed, rank, 0, NULL);
        if (((rks_load_u32(record + 20) & SHARES) != 0) != shares ||
            ((rks_load_u32(record + 20) & CHECKS) != 0) != plan->job->checks)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "exchange: rank %" PRIu32 " shares or checks otherwise", rank);
        uint32_t node = rks_group_node_of(plan->group, rank);
        for (uint32_t sender = 0; sender < plan->size; sender++)
            if (!shares || rks_group_node_of(plan->group, sender) == node)
                read_whole(plan, record, rank, sender);
        if (!shares || (rks_load_u32(record + 20) & RECEIVES) == 0)
            continue;
        rks_status status = look_for_another(plan, agreed, rank, err);
        if (status == RKS_OK)
            status = rks_exchange_share(plan, rank, record + RECORD_SIZE, err);
        if (status != RKS_OK)
            return status;
    }
    find_rooms(plan);
    return RKS_OK;
}

/* Reads the records of all ranks. Every rank gets the same result. */
static rks_status read_records(rks_exchange_plan *plan, const rks_agreed *agreed,
                               exchange_choice *choice, rks_error *err)
{
    const uint8_t *first = rks_agreed_get(agreed, 0, 0, NULL);
    choice->can = UINT32_MAX;
    choice->named = (int32_t)rks_load_u32(first + 12);
    plan->chunk = CHUNK_MAX;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        const uint8_t *record = rks_agreed_get(agreed, rank, 0, NULL);
        if ((int32_t)rks_load_u32(record + 12) != choice->named)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "exchange: ranks 0 and %" PRIu32 " name different backends", rank);
        uint32_t chunk = rks_load_u32(record + 8);
        plan->chunk = chunk < plan->chunk ? chunk : plan->chunk;
        plan->sizes[rank] = rks_load_u64(record);
        choice->can &= rks_load_u32(record + 16);
        if (__builtin_add_overflow(choice->bytes, plan->sizes[rank], &choice->bytes))
            choice->bytes = UINT64_MAX;
    }
    if (plan->chunk == 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "exchange: chunks of 0 bytes");
    return read_wants(plan, agreed, err);
}

/* Returns the first backend from *from on that may be chosen, and moves *from past it. */
static const rks_exchange_backend *next_backend(const rks_exchange_plan *plan,
                                                const exchange_choice *choice, int32_t *from)
{
    for (int32_t i = (*from)++; i < BACKENDS; i = (*from)++) {
        if (choice->named != AUTO && i != choice->named)
            continue;
        if (choice->named == AUTO && (choice->can >> i & 1) == 0)
            continue;
        /* The same on all ranks, since nodes and bytes are. */
        if (choice->named == AUTO && backends[i]->slow_start &&
            (rks_group_nodes(plan->group) == 1 || choice->bytes < nccl_from_bytes))
            continue;
        return backends[i];
    }
    return NULL;
}

bool rks_exchange_next(const rks_exchange_plan *plan, uint32_t *cursor, uint32_t *sender,
                       uint64_t *offset)
{
    while (*cursor + 1 < plan->size) {
        uint32_t rank = (uint32_t)(((uint64_t)plan->rank + 1 + (*cursor)++) % plan->size);
        if (plan->wanted[rank]) {
            *sender = rank;
            *offset = plan->parts[rank].begin;
            return true;
        }
    }
    return false;
}

uint32_t rks_exchange_chunk(const rks_exchange_plan *plan, uint32_t sender, uint64_t offset)
{
    const rks_exchange_job *job = plan->job;
    uint64_t left = plan->parts[sender].end - offset;
    if (left <= plan->chunk || job->segments == NULL)
        return (uint32_t)(left < plan->chunk ? left : plan->chunk);
    /* Ends the chunk at the last boundary in it, if all boundaries are equally far apart. */
    uint64_t step = rks_exchange_boundary(job->segments, sender, offset + 1) - offset;
    if (step >= plan->chunk)
        return plan->chunk;
    uint64_t end = rks_exchange_boundary(job->segments, sender, offset + plan->chunk - step + 1);
    return end - offset <= plan->chunk ? (uint32_t)(end - offset) : plan->chunk;
}

rks_status rks_exchange_take(rks_exchange_plan *plan, uint32_t sender, uint64_t offset,
                             const void *bytes, uint32_t size, rks_error *err)
{
    char text[96];
    snprintf(text, sizeof(text), "exchange: %" PRIu64 " of %" PRIu64 " bytes of rank %" PRIu32,
             offset + size, plan->sizes[sender], sender);
    rks_group_tell_progress(plan->group, NULL, text);
    return plan->job->write(plan->job->user, sender, offset, bytes, size, err);
}

rks_status rks_exchange_look(rks_exchange_plan *plan, rks_error *err)
{
    if (rks_group_must_stop(plan->group, NULL) != RKS_OK) /* also if the group has failed */
        plan->stopped = true;
    return rks_check_interrupt(err);
}

static rks_status make_plan(rks_exchange_plan *plan, const char *backend, exchange_choice *choice,
                            rks_error *err)
{
    uint8_t *record = NULL;
    rks_agreed agreed;
    rks_status status = RKS_OK;
    if ((plan->sizes = rks_alloc(plan->size, sizeof(*plan->sizes), err)) == NULL ||
        (plan->wanted = rks_alloc(plan->size, sizeof(*plan->wanted), err)) == NULL ||
        (plan->wanters = rks_alloc(plan->size, sizeof(*plan->wanters), err)) == NULL ||
        (plan->parts = rks_alloc(plan->size, sizeof(*plan->parts), err)) == NULL ||
        (plan->given = rks_alloc(plan->size, sizeof(*plan->given), err)) == NULL ||
        (plan->node_wanted = rks_alloc(plan->size, sizeof(*plan->node_wanted), err)) == NULL ||
        (plan->tokens = rks_alloc(plan->size, sizeof(*plan->tokens), err)) == NULL ||
        (record = rks_alloc(record_size(plan->size), 1, err)) == NULL)
        status = RKS_ERR_MEMORY;
    else
        status = fill_record(plan, backend, record, err);
    const rks_fact fact = rks_fact_fixed(record, record_size(plan->size));
    status = rks_group_agree_on(plan->group, "exchange: plan", status, &fact, 1, &agreed, err);
    if (status == RKS_OK)
        status = read_records(plan, &agreed, choice, err);
    rks_free(record);
    return status;
}

static rks_status get_ready(rks_exchange_plan *plan, const rks_exchange_backend *backend,
                            void **state, rks_error *err)
{
    uint64_t token = 0;
    rks_agreed agreed;
    const rks_fact fact = rks_fact_fixed(&token, sizeof(token));
    rks_status status = backend->prepare(plan, state, &token, err);
    status = rks_group_agree_on(plan->group, "exchange: ready", status, &fact, 1, &agreed, err);
    for (uint32_t rank = 0; rank < plan->size && status == RKS_OK; rank++)
        plan->tokens[rank] = rks_load_u64(rks_agreed_get(&agreed, rank, 0, NULL));
    return status;
}

/* COLLECTIVE. */
static rks_status run_backend(rks_exchange_plan *plan, const rks_exchange_backend *backend,
                              rks_error *err)
{
    void *state = NULL;
    plan->stats = (rks_exchange_stats){0};
    plan->stopped = plan->failed = plan->job_failed = false;
    rks_status status = get_ready(plan, backend, &state, err);
    if (status == RKS_OK) {
        status = backend->run(plan, state, err);
        /* Stopping because of an error that no rank brings is an error of its own. */
        uint64_t stopped = plan->stopped;
        const rks_fact fact = rks_fact_sum(&stopped, 1);
        status = rks_group_agree_on(plan->group, "exchange: end", status, &fact, 1, NULL, err);
        if (status == RKS_OK && stopped > 0)
            status = rks_fail(err, RKS_ERR_STATE, 0, "exchange: stopped, but no rank has an error");
    }
    plan->stats.agreed_ns = rks_now_ns();
    plan->failed = status != RKS_OK;
    if (state != NULL)
        backend->close(plan, state);
    return status;
}

/* COLLECTIVE. Returns true if only the backend has failed, on all ranks, so that the next backend
 * may do it. */
static bool may_fall_back(rks_exchange_plan *plan)
{
    uint64_t against =
        plan->job_failed || plan->job->restart == NULL || rks_check_interrupt(NULL) != RKS_OK;
    const rks_fact fact = rks_fact_sum(&against, 1);
    rks_error err;
    return rks_group_agree_on(plan->group, "exchange: another way", RKS_OK, &fact, 1, NULL, &err) ==
               RKS_OK &&
           against == 0;
}

/* Records why this backend runs, for stats, and prints a line if the choice was not obvious.
 * `failed`: what happened to the one before it, or "". */
static void say_why(rks_exchange_plan *plan, const exchange_choice *choice,
                    const rks_exchange_backend *backend, const char *failed)
{
    char *why = plan->stats.why;
    size_t room = sizeof(plan->stats.why);
    uint32_t nodes = rks_group_nodes(plan->group);
    if (choice->named != AUTO)
        snprintf(why, room, "named");
    else if (failed[0] != '\0')
        snprintf(why, room, "auto: %.110s", failed);
    else if (!backend->tells_size)
        snprintf(why, room, "auto: %s", backend->why_auto);
    else
        snprintf(why, room, "auto: %s%s%" PRIu64 " MB for each of %" PRIu32 " nodes",
                 backend->why_auto == NULL ? "" : backend->why_auto,
                 backend->why_auto == NULL ? "" : ", ", choice->bytes / 1000000, nodes);
    rks_log_debug("exchange: %s (%s)", backend->name, why);
}

static void free_plan(rks_exchange_plan *plan)
{
    rks_group_tell_progress(plan->group, NULL, "");
    rks_free(plan->sizes);
    rks_free(plan->wanted);
    rks_free(plan->wanters);
    rks_free(plan->parts);
    rks_free(plan->given);
    rks_free(plan->node_wanted);
    rks_free(plan->tokens);
}

rks_status rks_exchange_run(rks_group *group, const char *backend, const rks_exchange_job *job,
                            rks_exchange_stats *stats, const char **used, rks_error *err)
{
    rks_error local;
    if (err == NULL)
        err = &local;
    rks_exchange_plan plan = {
        .group = group, .job = job, .rank = rks_group_rank(group), .size = rks_group_size(group)};
    exchange_choice choice = {0};
    int32_t from = 0;
    char failed[sizeof(err->text) + 32] = "";
    const rks_exchange_backend *chosen = NULL;
    rks_status status = make_plan(&plan, backend, &choice, err);
    if (status == RKS_OK && (chosen = next_backend(&plan, &choice, &from)) == NULL)
        status = rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "exchange: no backend runs on all ranks");
    while (status == RKS_OK) {
        status = run_backend(&plan, chosen, err);
        say_why(&plan, &choice, chosen, failed);
        if (status == RKS_OK || choice.named != AUTO || !chosen->slow_start ||
            !may_fall_back(&plan))
            break;
        snprintf(failed, sizeof(failed), "%s failed: %s", chosen->name, err->text);
        chosen = next_backend(&plan, &choice, &from);
        if (chosen == NULL)
            break;
        /* That a machine has no GPU is not worth a line; stats say it. */
        if (plan.rank == 0 && status != RKS_ERR_UNSUPPORTED)
            rks_log("exchange: %s; going on with %s", failed, chosen->name);
        job->restart(job->user);
        status = RKS_OK;
    }
    if (stats != NULL)
        *stats = plan.stats;
    if (status == RKS_OK && used != NULL)
        *used = chosen->name;
    free_plan(&plan);
    return status;
}
