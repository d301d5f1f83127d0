/* SPDX-License-Identifier: Apache-2.0
 *
 * collective.c: agree, all-gather and broadcast: one walk up the control tree and one down.
 *
 * An UP or DOWN message:
 *
 *   offset  size  field
 *        0     8  number of the collective
 *        8    48  phase, filled with NUL
 *       56    16  what kind of call it is: equal on all ranks
 *       72   256  rks_error of the failing rank with the lowest number; status 0: none
 *      328        entries: u32 rank, u32 reserved, u64 size, bytes; none where the error is set
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/internal.h"

enum { AT_CALL = 56, AT_ERROR = 72, HEAD = 328, ENTRY = 16 };

/* The same phase in another call is a mismatch, too. */
typedef struct call {
    uint32_t kind; /* 0 agree, 1 allgather, 2 broadcast */
    uint32_t root;
    uint64_t size; /* of a broadcast */
} call;

typedef struct collective_round {
    rks_group *group;
    uint64_t sequence;
    char phase[PHASE_SIZE];
    call call;
    rks_error error; /* status 0: none yet */
    rks_buffer body; /* HEAD, then entries */
    bool gathers;    /* the entries are wanted: */
    uint8_t *all;
    uint64_t *offsets;
} collective_round;

/* An error that only echoes another rank's gives way to a real one; then the lowest rank counts. */
static void take_error(collective_round *r, const rks_error *err)
{
    bool echo = err->reserved[0] != 0, have_echo = r->error.reserved[0] != 0;
    if (r->error.status == RKS_OK || (have_echo && !echo) ||
        (echo == have_echo && err->rank < r->error.rank))
        r->error = *err;
}

static void put_head(collective_round *r)
{
    uint8_t *head = r->body.data;
    if (r->error.status != RKS_OK)
        r->body.size = HEAD;
    rks_store_u64(head, r->sequence);
    memcpy(head + 8, r->phase, PHASE_SIZE);
    memcpy(head + AT_CALL, &r->call, sizeof(r->call));
    memcpy(head + AT_ERROR, &r->error, sizeof(r->error));
}

static rks_status begin(collective_round *r, const char *phase, rks_status mine, const void *bytes,
                        size_t size, const rks_error *given, rks_error *err)
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
    uint8_t entry[ENTRY] = {0};
    rks_error local;
    rks_store_u32(entry, group->rank);
    rks_store_u64(entry + 8, size);
    if (mine == RKS_OK) {
        mine = rks_buffer_reserve(&r->body, HEAD + ENTRY + size, &local);
        given = &local;
    }
    if (mine == RKS_OK) {
        r->body.size = HEAD;
        rks_buffer_add(&r->body, entry, ENTRY, NULL);
        rks_buffer_add(&r->body, bytes, size, NULL);
        return RKS_OK;
    }
    /* This rank brings an error, and still takes part. */
    rks_error own = {.rank = -1};
    if (given != NULL && given->status == mine)
        own = *given;
    else
        rks_fail(&own, mine, 0, "%s failed in '%s'", rks_status_name(mine), r->phase);
    rks_error_place(&own, group->rank, group->hosts[group->rank]);
    take_error(r, &own);
    rks_group_tell_stop(group, r->sequence, -1);
    if (rks_buffer_reserve(&r->body, HEAD, NULL) == RKS_OK)
        return RKS_OK;
    /* It cannot even say so: the others would wait for it as long as it lives. */
    rks_group_fail(group, &own, -1);
    return rks_group_failure(group, r->phase, err);
}

/* One subtree's message. Ranks in different calls are an error of both. */
static rks_status take_child(collective_round *r, uint32_t child, rks_error *err)
{
    message *m = NULL;
    rks_status status = rks_inbox_wait(r->group, child, MESSAGE_UP, r->phase, &m, err);
    if (status != RKS_OK)
        return status;
    rks_error theirs = {0};
    if (m->body.size < HEAD) {
        rks_fail(&theirs, RKS_ERR_PEER, 0, "sent a malformed message");
        theirs.rank = (int32_t)child;
        rks_group_name_rank(r->group, &theirs);
    } else {
        memcpy(&theirs, m->body.data + AT_ERROR, sizeof(theirs));
    }
    if (theirs.status == RKS_OK && (rks_load_u64(m->body.data) != r->sequence ||
                                    memcmp(m->body.data + 8, r->phase, PHASE_SIZE) != 0)) {
        rks_fail(&theirs, RKS_ERR_STATE, 0,
                 "mismatched calls: rank %u is in '%.*s', rank %u in '%s'", child, PHASE_SIZE - 1,
                 (const char *)m->body.data + 8, r->group->rank, r->phase);
        theirs.rank = (int32_t)child;
    } else if (theirs.status == RKS_OK &&
               memcmp(m->body.data + AT_CALL, &r->call, sizeof(r->call)) != 0) {
        rks_fail(&theirs, RKS_ERR_STATE, 0,
                 "mismatched calls: '%s' of rank %u and of rank %u differ in kind or size",
                 r->phase, child, r->group->rank);
        theirs.rank = (int32_t)child;
    }
    if (theirs.status != RKS_OK) {
        rks_error_sanitize(&theirs);
        if (m->body.size >= HEAD)
            theirs.reserved[0] = m->body.data[AT_ERROR + offsetof(rks_error, reserved)] != 0;
        take_error(r, &theirs);
    } else if (r->error.status == RKS_OK) {
        status = rks_buffer_add(&r->body, m->body.data + HEAD, m->body.size - HEAD, &theirs);
        if (status != RKS_OK) {
            rks_error_place(&theirs, r->group->rank, r->group->hosts[r->group->rank]);
            take_error(r, &theirs);
        }
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
    memcpy(&r->error, r->body.data + AT_ERROR, sizeof(r->error));
    if (r->error.status != RKS_OK)
        rks_error_sanitize(&r->error);
    return RKS_OK;
}

/* Sorts the entries into rank order. Each rank is there once, or the message is malformed. */
static rks_status unpack(collective_round *r, rks_error *err)
{
    uint32_t ranks = r->group->size;
    uint64_t *ends = rks_alloc(ranks + 1u, sizeof(*ends), err);
    uint8_t *bytes = rks_alloc_raw(r->body.size, 1, err);
    const uint8_t **places = rks_alloc(ranks, sizeof(*places), err);
    rks_status status = ends == NULL || bytes == NULL || places == NULL ? RKS_ERR_MEMORY : RKS_OK;
    uint32_t seen = 0;
    for (size_t at = HEAD; status == RKS_OK && at < r->body.size;) {
        const uint8_t *entry = r->body.data + at;
        size_t left = r->body.size - at;
        uint32_t rank = left < ENTRY ? ranks : rks_load_u32(entry);
        if (rank >= ranks || rks_load_u64(entry + 8) > left - ENTRY || places[rank] != NULL) {
            status = rks_fail(err, RKS_ERR_PEER, 0, "a malformed message in '%s'", r->phase);
            break;
        }
        places[rank] = entry;
        ends[rank + 1] = rks_load_u64(entry + 8);
        at += ENTRY + (size_t)ends[rank + 1];
        seen++;
    }
    if (status == RKS_OK && seen != ranks)
        status = rks_fail(err, RKS_ERR_PEER, 0, "'%s' lacks %u ranks", r->phase, ranks - seen);
    for (uint32_t rank = 0; status == RKS_OK && rank < ranks; rank++) {
        uint64_t size = ends[rank + 1];
        ends[rank + 1] += ends[rank];
        memcpy(bytes + ends[rank], places[rank] + ENTRY, size);
    }
    rks_free(places);
    if (status != RKS_OK) {
        rks_free(ends);
        rks_free(bytes);
        return status;
    }
    r->all = bytes;
    r->offsets = ends;
    return RKS_OK;
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
    if (group->parent < 0 && r->gathers && r->error.status == RKS_OK) {
        rks_error own = {0}; /* taken in before the others are told that all is well */
        if (unpack(r, &own) != RKS_OK) {
            rks_error_place(&own, group->rank, group->hosts[group->rank]);
            take_error(r, &own);
        }
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
    if (r->error.status != RKS_OK) {
        r->error.reserved[0] = 0;
        *err = r->error;
    }
    return r->error.status;
}

/* A rank that cannot take the result in has left the others without knowing: it fails the group. */
static rks_status collective(rks_group *group, const char *phase, call kind, rks_status mine,
                             const void *bytes, size_t size, uint8_t **all, uint64_t **offsets,
                             rks_error *err)
{
    collective_round r = {.group = group, .call = kind, .gathers = all != NULL};
    rks_error given = {0}, local;
    if (mine != RKS_OK && err != NULL)
        given = *err;
    rks_status status = begin(&r, phase, mine, bytes, size, &given, &local);
    if (status == RKS_OK)
        status = walk(&r, &local);
    if (status == RKS_OK && r.gathers && r.all == NULL) {
        status = unpack(&r, &local);
        if (status != RKS_OK) {
            rks_error_place(&local, group->rank, group->hosts[group->rank]);
            rks_group_fail(group, &local, -1);
        }
    }
    rks_buffer_free(&r.body);
    if (status == RKS_OK && r.gathers) {
        *all = r.all;
        *offsets = r.offsets;
        return RKS_OK;
    }
    rks_free(r.all);
    rks_free(r.offsets);
    if (status != RKS_OK && err != NULL)
        *err = local;
    return status;
}

rks_status rks_group_agree(rks_group *group, const char *phase, rks_status status, rks_error *err)
{
    return collective(group, phase, (call){.kind = 0}, status, NULL, 0, NULL, NULL, err);
}

rks_status rks_group_allgather(rks_group *group, const char *phase, rks_status mine,
                               const void *bytes, size_t size, uint8_t **all, uint64_t **offsets,
                               rks_error *err)
{
    return collective(group, phase, (call){.kind = 1}, mine, bytes, size, all, offsets, err);
}

rks_status rks_group_broadcast(rks_group *group, const char *phase, uint32_t root, void *bytes,
                               size_t size, rks_error *err)
{
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    rks_status status =
        collective(group, phase, (call){.kind = 2, .root = root, .size = size}, RKS_OK, bytes,
                   group->rank == root ? size : 0, &all, &offsets, err);
    if (status == RKS_OK && offsets[root + 1] - offsets[root] != size)
        status = rks_fail(err, RKS_ERR_STATE, 0, "'%s': rank %u brings %" PRIu64 " bytes, not %zu",
                          phase, root, offsets[root + 1] - offsets[root], size);
    if (status == RKS_OK && size > 0)
        memcpy(bytes, all + offsets[root], size);
    rks_free(all);
    rks_free(offsets);
    return status;
}
