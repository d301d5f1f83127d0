/* SPDX-License-Identifier: Apache-2.0
 *
 * collective.c: one walk up the control tree and one down: what agreements (agreement.c),
 * all-gather and broadcast are made of.
 *
 * An UP or DOWN message:
 *
 *   offset  size  field
 *        0     8  number of the collective
 *        8    48  phase, filled with NUL
 *       56    16  what kind of call it is: equal on all ranks
 *       72   264  group_error of the failing rank with the lowest number; status 0: none
 *      336        entries: u32 rank, u32 reserved, u64 size, facts (agreement.c); none where the
 *                 error is set
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/agreement.h"
#include "group/internal.h"

enum { AT_CALL = 56, AT_ERROR = 72, HEAD = AT_ERROR + GROUP_ERROR_SIZE, ENTRY = 16 };

/* The same phase in another call is a mismatch, too. */
typedef struct call {
    uint32_t kind; /* 0 agree, 1 allgather, 2 broadcast */
    uint32_t root;
    uint64_t size; /* of a broadcast; of an agreement: how many facts */
} call;

typedef struct collective_round {
    rks_group *group;
    uint64_t sequence;
    char phase[PHASE_SIZE];
    call call;
    const rks_fact *facts;
    size_t fact_count;
    group_error error; /* status 0: none yet */
    rks_buffer body;   /* HEAD, then entries */
    bool copies;       /* the first fact's bytes are wanted as the caller's own: */
    uint8_t *all;
    uint64_t *offsets;
} collective_round;

/* An error that only echoes another rank's gives way to a real one; then the lowest rank counts. */
static void take_error(collective_round *r, const group_error *err)
{
    const group_error *have = &r->error;
    if (have->error.status == RKS_OK || (have->echo && !err->echo) ||
        (err->echo == have->echo && err->error.rank < have->error.rank))
        r->error = *err;
}

/* This rank, at its host, has failed with `err`. */
static void take_own_error(collective_round *r, const rks_error *err)
{
    group_error own = {.error = *err, .echo = rks_group_is_echo(err)};
    rks_error_place(&own.error, r->group->rank, r->group->hosts[r->group->rank]);
    memset(own.error.reserved, 0, sizeof(own.error.reserved)); /* it may be any caller's */
    take_error(r, &own);
}

static void put_head(collective_round *r)
{
    uint8_t *head = r->body.data;
    if (r->error.error.status != RKS_OK)
        r->body.size = HEAD;
    rks_store_u64(head, r->sequence);
    memcpy(head + 8, r->phase, PHASE_SIZE);
    memcpy(head + AT_CALL, &r->call, sizeof(r->call));
    rks_group_error_encode(&r->error, head + AT_ERROR);
}

/* This rank's entry, in a body with room for it. */
static void put_entry(collective_round *r, size_t size)
{
    uint8_t *entry = r->body.data + HEAD;
    rks_store_u32(entry, r->group->rank);
    rks_store_u32(entry + 4, 0);
    rks_store_u64(entry + 8, size);
    rks_facts_encode(r->facts, r->fact_count, entry + ENTRY);
    r->body.size = HEAD + ENTRY + size;
}

static rks_status begin(collective_round *r, const char *phase, rks_status mine,
                        const rks_error *given, rks_error *err)
{
    rks_group *group = r->group;
    snprintf(r->phase, sizeof(r->phase), "%s", phase);
    pthread_mutex_lock(&group->mutex);
    bool failed = group->failed;
    r->sequence = group->sequence++;
    pthread_mutex_unlock(&group->mutex);
    rks_interrupt_forget(); /* whoever goes on has dealt with it */
    if (failed)
        return rks_group_failure(group, r->phase, err);
    rks_error local;
    size_t size = rks_facts_size(r->facts, r->fact_count);
    if (mine == RKS_OK) {
        mine = rks_buffer_reserve(&r->body, HEAD + ENTRY + size, &local);
        given = &local;
    }
    if (mine == RKS_OK) {
        put_entry(r, size); /* before what the facts may point into is freed */
        rks_buffer_free(&group->agreed);
        return RKS_OK;
    }
    /* This rank brings an error, and still takes part. */
    rks_error own;
    if (given != NULL && given->status == mine)
        own = *given;
    else
        rks_fail(&own, mine, 0, "%s failed in '%s'", rks_status_name(mine), r->phase);
    take_own_error(r, &own);
    rks_buffer_free(&group->agreed);
    rks_group_tell_stop(group, r->sequence, -1);
    if (rks_buffer_reserve(&r->body, HEAD, NULL) == RKS_OK)
        return RKS_OK;
    /* It cannot even say so: the others would wait for it as long as it lives. */
    rks_group_fail(group, &r->error.error, -1);
    return rks_group_failure(group, r->phase, err);
}

/* One subtree's message. Ranks in different calls are an error of both. */
static rks_status take_child(collective_round *r, uint32_t child, rks_error *err)
{
    message *m = NULL;
    rks_status status = rks_inbox_wait(r->group, child, MESSAGE_UP, r->phase, &m, err);
    if (status != RKS_OK)
        return status;
    group_error theirs = {0};
    rks_error *error = &theirs.error;
    if (m->body.size < HEAD) {
        rks_fail(error, RKS_ERR_PEER, 0, "sent a malformed message");
        error->rank = (int32_t)child;
        rks_group_name_rank(r->group, error);
    } else {
        rks_group_error_decode(m->body.data + AT_ERROR, &theirs);
    }
    if (error->status == RKS_OK && (rks_load_u64(m->body.data) != r->sequence ||
                                    memcmp(m->body.data + 8, r->phase, PHASE_SIZE) != 0)) {
        rks_fail(error, RKS_ERR_STATE, 0,
                 "mismatched calls: rank %u is in '%.*s', rank %u in '%s'", child, PHASE_SIZE - 1,
                 (const char *)m->body.data + 8, r->group->rank, r->phase);
        error->rank = (int32_t)child;
    } else if (error->status == RKS_OK &&
               memcmp(m->body.data + AT_CALL, &r->call, sizeof(r->call)) != 0) {
        rks_fail(error, RKS_ERR_STATE, 0,
                 "mismatched calls: '%s' of rank %u and of rank %u differ in kind or size",
                 r->phase, child, r->group->rank);
        error->rank = (int32_t)child;
    }
    if (error->status != RKS_OK) {
        take_error(r, &theirs);
    } else if (r->error.error.status == RKS_OK) {
        status = rks_buffer_add(&r->body, m->body.data + HEAD, m->body.size - HEAD, error);
        if (status != RKS_OK)
            take_own_error(r, error);
    }
    rks_inbox_free(m);
    return RKS_OK;
}

/* The result from the parent, in place of this subtree's contribution. */
static rks_status take_result(collective_round *r, rks_error *err)
{
    message *m = NULL;
    uint32_t parent = (uint32_t)r->group->parent;
    rks_status status = rks_inbox_wait(r->group, parent, MESSAGE_DOWN, r->phase, &m, err);
    if (status != RKS_OK)
        return status;
    if (m->body.size < HEAD || rks_load_u64(m->body.data) != r->sequence) {
        rks_inbox_free(m);
        rks_fail(err, RKS_ERR_PEER, 0, "sent a malformed message");
        err->rank = (int32_t)parent;
        rks_group_name_rank(r->group, err);
        return RKS_ERR_PEER;
    }
    rks_buffer_free(&r->body);
    r->body = m->body;
    m->body = (rks_buffer){0};
    rks_inbox_free(m);
    rks_group_error_decode(r->body.data + AT_ERROR, &r->error);
    return RKS_OK;
}

/* Notes where each rank's facts lie. Each rank is there once, or the message is malformed. */
static rks_status find_facts(collective_round *r, rks_error *err)
{
    rks_group *group = r->group;
    uint32_t seen = 0;
    memset(group->places, 0, group->size * sizeof(*group->places));
    for (size_t at = HEAD; at < r->body.size; seen++) {
        const uint8_t *entry = r->body.data + at;
        size_t left = r->body.size - at;
        uint32_t rank = left < ENTRY ? group->size : rks_load_u32(entry);
        if (rank >= group->size || group->places[rank] != 0)
            return rks_fail(err, RKS_ERR_PEER, 0, "a malformed message in '%s'", r->phase);
        uint64_t size = rks_load_u64(entry + 8);
        if (size > left - ENTRY ||
            !rks_facts_valid(r->facts, r->fact_count, entry + ENTRY, size))
            return rks_fail(err, RKS_ERR_PEER, 0, "rank %u brought malformed facts to '%s'", rank,
                            r->phase);
        group->places[rank] = at + ENTRY;
        at += ENTRY + (size_t)size;
    }
    return seen == group->size ? RKS_OK
                               : rks_fail(err, RKS_ERR_PEER, 0, "'%s' lacks %u ranks", r->phase,
                                          group->size - seen);
}

/* The first fact of all ranks, in rank order. */
static rks_status copy_facts(collective_round *r, rks_error *err)
{
    uint32_t ranks = r->group->size;
    r->offsets = rks_alloc(ranks + 1u, sizeof(*r->offsets), err);
    r->all = rks_alloc_raw(r->body.size, 1, err);
    if (r->offsets == NULL || r->all == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const uint8_t *fact = r->body.data + r->group->places[rank];
        uint64_t size = rks_load_u64(fact) == UINT64_MAX ? 0 : rks_load_u64(fact);
        memcpy(r->all + r->offsets[rank], fact + sizeof(size), (size_t)size);
        r->offsets[rank + 1] = r->offsets[rank] + size;
    }
    return RKS_OK;
}

/* The whole result is in the body. */
static rks_status settle_round(collective_round *r, rks_error *err)
{
    rks_status status = find_facts(r, err);
    return status == RKS_OK && r->copies ? copy_facts(r, err) : status;
}

static rks_status walk(collective_round *r, rks_error *err)
{
    rks_group *group = r->group;
    rks_status status = RKS_OK;
    for (uint32_t i = 0; status == RKS_OK && i < group->child_count; i++)
        status = take_child(r, group->children[i], err);
    if (status != RKS_OK)
        return status;
    if (group->waiting != NULL)
        group->waiting(group->waiting_user);
    if (group->parent < 0 && r->error.error.status == RKS_OK) {
        rks_error own; /* settled before the others hear that all is well */
        if (settle_round(r, &own) != RKS_OK)
            take_own_error(r, &own);
    }
    put_head(r);
    if (group->parent >= 0) {
        status = rks_inbox_send(group, (uint32_t)group->parent, MESSAGE_UP, r->body.data,
                                r->body.size, err);
        if (status == RKS_OK)
            status = take_result(r, err);
    }
    for (uint32_t i = 0; status == RKS_OK && i < group->child_count; i++)
        status = rks_inbox_send(group, group->children[i], MESSAGE_DOWN, r->body.data, r->body.size,
                                err);
    if (status != RKS_OK) {
        rks_error_place(err, group->rank, group->hosts[group->rank]);
        rks_group_fail(group, err, -1);
        return rks_group_failure(group, r->phase, err);
    }
    if (r->error.error.status != RKS_OK)
        *err = r->error.error;
    return r->error.error.status;
}

/* A rank that cannot take the result in has left the others without knowing: it fails the group. */
static rks_status collective(collective_round *r, const char *phase, rks_status mine,
                             rks_error *err)
{
    rks_group *group = r->group;
    rks_error given = {0}, local;
    if (mine != RKS_OK && err != NULL)
        given = *err;
    rks_status status = begin(r, phase, mine, &given, &local);
    if (status == RKS_OK)
        status = walk(r, &local);
    if (status == RKS_OK && group->parent >= 0) {
        status = settle_round(r, &local);
        if (status != RKS_OK) {
            rks_error_place(&local, group->rank, group->hosts[group->rank]);
            rks_group_fail(group, &local, -1);
        }
    }
    if (status == RKS_OK) {
        group->agreed_in = r->sequence;
        if (r->copies || r->fact_count == 0) /* nobody asks for it again */
            rks_buffer_free(&r->body);
        group->agreed = r->body;
        return RKS_OK;
    }
    rks_buffer_free(&r->body);
    rks_free(r->all);
    rks_free(r->offsets);
    if (err != NULL)
        *err = local;
    return status;
}

rks_status rks_group_collect(rks_group *group, const char *phase, rks_status mine,
                             const rks_fact *facts, size_t count, rks_error *err)
{
    collective_round r = {
        .group = group, .call.size = count, .facts = facts, .fact_count = count};
    return collective(&r, phase, mine, err);
}

rks_status rks_group_agree(rks_group *group, const char *phase, rks_status status, rks_error *err)
{
    return rks_group_collect(group, phase, status, NULL, 0, err);
}

rks_status rks_group_allgather(rks_group *group, const char *phase, rks_status mine,
                               const void *bytes, size_t size, uint8_t **all, uint64_t **offsets,
                               rks_error *err)
{
    const rks_fact fact = rks_fact_bytes(bytes, size);
    collective_round r = {
        .group = group, .call.kind = 1, .facts = &fact, .fact_count = 1, .copies = true};
    rks_status status = collective(&r, phase, mine, err);
    if (status != RKS_OK)
        return status;
    *all = r.all;
    *offsets = r.offsets;
    return RKS_OK;
}

rks_status rks_group_broadcast(rks_group *group, const char *phase, uint32_t root, void *bytes,
                               size_t size, rks_error *err)
{
    const rks_fact fact = rks_fact_bytes(group->rank == root ? bytes : NULL, size);
    collective_round r = {.group = group,
                          .call = {.kind = 2, .root = root, .size = size},
                          .facts = &fact,
                          .fact_count = 1};
    size_t come = 0;
    rks_status status = collective(&r, phase, RKS_OK, err);
    if (status != RKS_OK)
        return status;
    const rks_agreed agreed = {group, r.sequence};
    const void *from = rks_agreed_get(&agreed, root, 0, &come);
    if (come != size)
        status = rks_fail(err, RKS_ERR_STATE, 0, "'%s': rank %u brings %zu bytes, not %zu", phase,
                          root, come, size);
    else if (size > 0)
        memcpy(bytes, from, size);
    rks_buffer_free(&group->agreed);
    return status;
}

uint64_t rks_group_collectives(const rks_group *group)
{
    return group->sequence;
}
