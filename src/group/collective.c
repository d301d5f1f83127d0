/* SPDX-License-Identifier: Apache-2.0
 *
 * collective.c: one walk up the control tree and one down: what agreements (agreement.c)
 * and all-gathers are made of.
 *
 * An UP or DOWN message:
 *
 *   offset  size  field
 *        0     8  number of the collective
 *        8    48  phase, filled with NUL
 *       56    16  what kind of call it is: equal on all ranks
 *       72   264  group_error of the failing rank with the lowest number; status 0: none
 *      336     8  bytes of the entries; 0 if the error is set
 *      344        entries: u32 rank, u32 reserved, u64 size, facts (agreement.c)
 *
 * An UP message that would be larger than a note ends before its entries: they follow as REST.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/agreement.h"
#include "group/group_state.h"

enum {
    AT_CALL = 56,
    AT_ERROR = 72,
    AT_ENTRIES = AT_ERROR + GROUP_ERROR_SIZE,
    HEAD = AT_ENTRIES + 8,
    ENTRY = 16
};

/* The same phase in another kind of call is a mismatch, too. */
typedef struct call {
    uint64_t kind; /* 0 agree, 1 allgather */
    uint64_t size; /* of an agreement: how many facts */
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
    bool copies;       /* the caller wants the bytes of the first fact for itself: */
    uint8_t *all;
    uint64_t *offsets;
} collective_round;

/* Keeps the more important of two errors: a real one before one that only reports another rank's,
 * then that of the lowest rank. */
static void merge_error(collective_round *r, const group_error *err)
{
    const group_error *have = &r->error;
    if (have->error.status == RKS_OK || (have->echo && !err->echo) ||
        (err->echo == have->echo && err->error.rank < have->error.rank))
        r->error = *err;
}

/* Records the error `err` of this rank and host. */
static void merge_own_error(collective_round *r, const rks_error *err)
{
    group_error own = {.error = *err, .echo = rks_group_is_echo(err)};
    rks_error_place(&own.error, r->group->rank, r->group->hosts[r->group->rank]);
    memset(own.error.reserved, 0, sizeof(own.error.reserved)); /* any caller may have set it */
    merge_error(r, &own);
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
    rks_store_u64(head + AT_ENTRIES, r->body.size - HEAD);
}

/* Writes this rank's entry. The body has room for it. */
static void put_entry(collective_round *r, size_t size)
{
    uint8_t *entry = r->body.data + HEAD;
    rks_store_u32(entry, r->group->rank);
    rks_store_u32(entry + 4, 0);
    rks_store_u64(entry + 8, size);
    rks_facts_encode(r->facts, r->fact_count, entry + ENTRY);
    r->body.size = HEAD + ENTRY + size;
}

/* Returns the most bytes that entries of so many ranks may have in this collective. */
static uint64_t entries_limit(const collective_round *r, uint32_t ranks)
{
    return (uint64_t)ranks * ENTRY + rks_facts_limit(r->facts, r->fact_count, ranks);
}

/* Checks this rank's own facts, which take `size` bytes. */
static rks_status check_own(const collective_round *r, size_t size, rks_error *err)
{
    uint64_t most = rks_facts_limit(r->facts, r->fact_count, 1);
    return size <= most
               ? RKS_OK
               : rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                          "%zu bytes for '%s', above its limit of %" PRIu64, size, r->phase, most);
}

static rks_status begin(collective_round *r, const char *phase, rks_status mine,
                        const rks_error *given, rks_error *err)
{
    rks_group *group = r->group;
    snprintf(r->phase, sizeof(r->phase), "%s", phase);
    pthread_mutex_lock(&group->mutex);
    bool failed = group->failed;
    r->sequence = group->sequence++;
    group->result_max = HEAD + entries_limit(r, group->size);
    group->asks = false;
    pthread_mutex_unlock(&group->mutex);
    rks_interrupt_forget(); /* a caller that continues has handled the interrupt */
    if (failed)
        return rks_group_failure(group, r->phase, err);
    rks_error local;
    size_t size = rks_facts_size(r->facts, r->fact_count);
    if (mine == RKS_OK) {
        mine = check_own(r, size, &local);
        if (mine == RKS_OK)
            mine = rks_buffer_reserve(&r->body, HEAD + ENTRY + size, &local);
        given = &local;
    }
    if (mine == RKS_OK) {
        put_entry(r, size); /* before memory is freed that the facts may point to */
        rks_buffer_free(&group->agreed);
        return RKS_OK;
    }
    /* This rank brings an error and still takes part. */
    rks_error own;
    if (given != NULL && given->status == mine)
        own = *given;
    else
        rks_fail(&own, mine, 0, "%s failed in '%s'", rks_status_name(mine), r->phase);
    merge_own_error(r, &own);
    rks_buffer_free(&group->agreed);
    rks_group_tell_stop(group, r->sequence, -1);
    if (rks_buffer_reserve(&r->body, HEAD, NULL) == RKS_OK)
        return RKS_OK;
    /* It cannot even report its error, and the others would wait for it as long as it lives. */
    rks_group_fail(group, &r->error.error, -1);
    return rks_group_failure(group, r->phase, err);
}

/* Marks the error as caused by the child. */
static void blame(const collective_round *r, uint32_t child, rks_error *error)
{
    error->rank = (int32_t)child;
    rks_group_name_rank(r->group, error);
}

/* Takes the error in a child's UP, or reports what is wrong with its head. Ranks in different calls
 * are an error of both. */
static void check_child(const collective_round *r, uint32_t child, const message *m,
                        group_error *theirs)
{
    const uint8_t *head = m->body.data;
    rks_error *error = &theirs->error;
    if (m->body.size < HEAD) {
        rks_fail(error, RKS_ERR_PEER, 0, "sent a malformed message");
        blame(r, child, error);
        return;
    }
    rks_group_error_decode(head + AT_ERROR, theirs);
    if (error->status != RKS_OK)
        return;
    if (rks_load_u64(head) != r->sequence || memcmp(head + 8, r->phase, PHASE_SIZE) != 0) {
        rks_fail(error, RKS_ERR_STATE, 0, "mismatched calls: rank %u is in '%.*s', rank %u in '%s'",
                 child, PHASE_SIZE - 1, (const char *)head + 8, r->group->rank, r->phase);
        error->rank = (int32_t)child;
    } else if (memcmp(head + AT_CALL, &r->call, sizeof(r->call)) != 0) {
        rks_fail(error, RKS_ERR_STATE, 0,
                 "mismatched calls: '%s' of rank %u and of rank %u differ in kind or size",
                 r->phase, child, r->group->rank);
        error->rank = (int32_t)child;
    }
}

/* Returns true if `below` ranks may send entries of `size` bytes. */
static bool check_entries(const collective_round *r, uint32_t child, uint32_t below, uint64_t size,
                          rks_error *error)
{
    uint64_t have = r->body.size - HEAD, all = entries_limit(r, r->group->size);
    uint64_t most = entries_limit(r, below), left = have < all ? all - have : 0;
    most = most < left ? most : left;
    if (size <= most)
        return true;
    rks_fail(error, RKS_ERR_PEER, 0,
             "brings %" PRIu64 " bytes to '%s', which takes %" PRIu64 " at most", size, r->phase,
             most);
    blame(r, child, error);
    return false;
}

/* Lets a child send what it has announced, and receives that into *m. */
static rks_status receive_rest(collective_round *r, uint32_t child, uint64_t size, message **m,
                               rks_error *err)
{
    rks_group *group = r->group;
    uint8_t number[8];
    rks_inbox_free(*m);
    *m = NULL;
    rks_store_u64(number, r->sequence);
    pthread_mutex_lock(&group->mutex);
    group->granted[child] = size;
    pthread_mutex_unlock(&group->mutex);
    rks_status status = rks_inbox_send(group, child, MESSAGE_GO, number, sizeof(number), err);
    if (status == RKS_OK)
        status = rks_inbox_wait(group, child, 1u << MESSAGE_REST, r->phase, m, err);
    return status;
}

/* Adds the entries of a child whose UP is right so far. *error: what is wrong with them. */
static rks_status add_entries(collective_round *r, uint32_t child, uint32_t below, message **m,
                              rks_error *error, rks_error *err)
{
    rks_error own;
    uint64_t size = rks_load_u64((*m)->body.data + AT_ENTRIES);
    size_t at = HEAD;
    if (!check_entries(r, child, below, size, error))
        return RKS_OK;
    if ((*m)->body.size == HEAD && size > 0) {
        rks_status status = receive_rest(r, child, size, m, err);
        if (status != RKS_OK)
            return status;
        at = 0;
    }
    if ((*m)->body.size - at != size) {
        rks_fail(error, RKS_ERR_PEER, 0, "sent a malformed message");
        blame(r, child, error);
    } else if (rks_buffer_add(&r->body, (*m)->body.data + at, (size_t)size, &own) != RKS_OK) {
        merge_own_error(r, &own);
    }
    return RKS_OK;
}

/* Receives the contribution of one subtree of `below` ranks. */
static rks_status receive_child(collective_round *r, uint32_t child, uint32_t below, rks_error *err)
{
    message *m = NULL;
    group_error theirs = {0};
    rks_status status = rks_inbox_wait(r->group, child, 1u << MESSAGE_UP, r->phase, &m, err);
    if (status != RKS_OK)
        return status;
    check_child(r, child, m, &theirs);
    if (theirs.error.status == RKS_OK && r->error.error.status == RKS_OK)
        status = add_entries(r, child, below, &m, &theirs.error, err);
    rks_inbox_free(m);
    if (status == RKS_OK && theirs.error.status != RKS_OK)
        merge_error(r, &theirs);
    return status;
}

/* Replaces this subtree's contribution with the parent's result, the message `m`. */
static rks_status receive_result(collective_round *r, message *m, rks_error *err)
{
    uint32_t parent = (uint32_t)r->group->parent;
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

/* Sends this subtree's contribution up and receives the result. A parent that meets an error before
 * it has sent GO needs no REST. */
static rks_status exchange_with_parent(collective_round *r, rks_error *err)
{
    rks_group *group = r->group;
    uint32_t parent = (uint32_t)group->parent, result = 1u << MESSAGE_DOWN;
    bool whole = r->body.size <= RKS_UP_MAX;
    message *m = NULL;
    pthread_mutex_lock(&group->mutex);
    group->asks = !whole;
    pthread_mutex_unlock(&group->mutex);
    rks_status status =
        rks_inbox_send(group, parent, MESSAGE_UP, r->body.data, whole ? r->body.size : HEAD, err);
    if (status == RKS_OK)
        status = rks_inbox_wait(group, parent, result | (whole ? 0 : 1u << MESSAGE_GO), r->phase,
                                &m, err);
    if (status == RKS_OK && m->kind == MESSAGE_GO) {
        rks_inbox_free(m);
        status = rks_inbox_send(group, parent, MESSAGE_REST, r->body.data + HEAD,
                                r->body.size - HEAD, err);
        if (status == RKS_OK)
            status = rks_inbox_wait(group, parent, result, r->phase, &m, err);
    }
    return status == RKS_OK ? receive_result(r, m, err) : status;
}

/* Finds where each rank's facts are. The message is malformed unless each rank appears once. */
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
        if (size > left - ENTRY || !rks_facts_valid(r->facts, r->fact_count, entry + ENTRY, size))
            return rks_fail(err, RKS_ERR_PEER, 0, "rank %u brought malformed facts to '%s'", rank,
                            r->phase);
        group->places[rank] = at + ENTRY;
        at += ENTRY + (size_t)size;
    }
    return seen == group->size ? RKS_OK
                               : rks_fail(err, RKS_ERR_PEER, 0, "'%s' lacks %u ranks", r->phase,
                                          group->size - seen);
}

/* Copies the first fact of all ranks, in rank order. */
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

/* Finishes a round whose whole result is in the body. */
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
        status = receive_child(r, group->children[i], group->below[i], err);
    if (status != RKS_OK)
        return status;
    if (group->waiting != NULL)
        group->waiting(group->waiting_user);
    if (group->parent < 0 && r->error.error.status == RKS_OK) {
        rks_error own; /* settled before the others learn that all is well */
        if (settle_round(r, &own) != RKS_OK)
            merge_own_error(r, &own);
    }
    put_head(r);
    if (group->parent >= 0)
        status = exchange_with_parent(r, err);
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

/* A rank that cannot receive the result fails the group, since the others do not know. */
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
        if (r->copies || r->fact_count == 0) /* no caller will ask for it */
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
    collective_round r = {.group = group, .call.size = count, .facts = facts, .fact_count = count};
    return collective(&r, phase, mine, err);
}

rks_status rks_group_agree(rks_group *group, const char *phase, rks_status status, rks_error *err)
{
    return rks_group_collect(group, phase, status, NULL, 0, err);
}

rks_status rks_group_allgather(rks_group *group, const char *phase, rks_status mine,
                               const void *bytes, size_t size, rks_gathered *all, rks_error *err)
{
    const rks_fact fact = rks_fact_bytes(bytes, size, RKS_ALLGATHER_MAX);
    collective_round r = {
        .group = group, .call.kind = 1, .facts = &fact, .fact_count = 1, .copies = true};
    rks_status status = collective(&r, phase, mine, err);
    if (status != RKS_OK)
        return status;
    *all = (rks_gathered){.bytes = r.all, .offsets = r.offsets};
    return RKS_OK;
}

uint64_t rks_group_collectives(const rks_group *group)
{
    return group->sequence;
}
