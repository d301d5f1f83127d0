/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox.c: messages between neighbours of the control tree, and the waiting for them.
 *
 * A message is cut into notes; notes of one peer arrive in order, so the pieces simply follow each
 * other:
 *
 *   offset  size  field
 *        0     4  kind
 *        4     4  reserved, 0
 *        8     8  bytes of the whole message
 *       16     n  a piece, at most 1 MiB
 */
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "group/internal.h"

enum { HEADER = 16, PIECE = 1 << 20, OTHER_MAX = 4096 };
static const uint64_t CONTRIBUTION_MAX = UINT64_C(1) << 32; /* of a rank, to a collective */

void rks_inbox_free(message *m)
{
    if (m == NULL)
        return;
    rks_buffer_free(&m->body);
    rks_free(m);
}

rks_status rks_inbox_send(rks_group *group, uint32_t to, enum message_kind kind, const void *body,
                          size_t size, rks_error *err)
{
    const uint8_t *at = body;
    size_t left = size, room = HEADER + (size < PIECE ? size : PIECE);
    uint8_t *note = rks_alloc_raw(room, 1, err);
    if (note == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    pthread_mutex_lock(&group->sending);
    do {
        size_t piece = left < PIECE ? left : PIECE;
        rks_store_u32(note, kind);
        rks_store_u32(note + 4, 0);
        rks_store_u64(note + 8, size);
        if (piece > 0)
            memcpy(note + HEADER, at, piece);
        status = rks_engine_note(group->engine, to, RKS_SERVICE_GROUP, note, HEADER + piece, err);
        at += piece;
        left -= piece;
    } while (status == RKS_OK && left > 0);
    pthread_mutex_unlock(&group->sending);
    rks_free(note);
    return status;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void take_failed(rks_group *group, const message *m)
{
    group_error err;
    if (m->body.size != GROUP_ERROR_SIZE)
        return;
    rks_group_error_decode(m->body.data, &err);
    if (err.error.status == RKS_OK)
        rks_error_sanitize(&err.error); /* it fails all the same */
    rks_group_fail_with(group, &err, m->from);
}

/* A whole message is here. Those of a collective wait in the inbox, the others act at once. */
static void deliver(rks_group *group, message *m)
{
    if (m->kind == MESSAGE_UP || m->kind == MESSAGE_DOWN) {
        pthread_mutex_lock(&group->mutex);
        m->next = NULL;
        *group->inbox_end = m;
        group->inbox_end = &m->next;
        pthread_cond_broadcast(&group->cond);
        pthread_mutex_unlock(&group->mutex);
        return;
    }
    if (m->kind == MESSAGE_FAILED)
        take_failed(group, m);
    else if (m->kind == MESSAGE_STOP && m->body.size == 8)
        rks_group_tell_stop(group, rks_load_u64(m->body.data), m->from);
    else if (m->kind == MESSAGE_LEAVING)
        rks_group_take_leaving(group, m->from);
    else if (m->kind == MESSAGE_PROGRESS)
        rks_group_take_progress(group, m);
    rks_inbox_free(m);
}

/* No memory for a neighbour's message: without it every rank would wait, so the group ends. */
static void give_up(rks_group *group, rks_error *err)
{
    rks_error_place(err, group->rank, group->hosts[group->rank]);
    rks_group_fail(group, err, -1);
}

/* How many ranks' contributions the child brings; 0: it is no child. */
static uint32_t below_child(const rks_group *group, uint32_t rank)
{
    for (uint32_t i = 0; i < group->child_count; i++)
        if (group->children[i] == rank)
            return group->below[i];
    return 0;
}

/* Most bytes of a message of this kind from that neighbour; 0: it must not send one. `below`: of a
 * child; 0: the parent. */
static uint64_t message_limit(const rks_group *group, uint32_t kind, uint32_t below)
{
    switch (kind) {
    case MESSAGE_UP:
        return below * CONTRIBUTION_MAX;
    case MESSAGE_DOWN:
        return below > 0 ? 0 : group->size * CONTRIBUTION_MAX;
    case MESSAGE_FAILED:
    case MESSAGE_STOP:
    case MESSAGE_PROGRESS:
        return OTHER_MAX;
    default:
        return 0;
    }
}

/* A neighbour sends one message to a collective, and its next one only when all have come through
 * that: so there is at most one that nobody has taken yet, of the collective that this rank is in or
 * will enter next. `body`: the message's first piece, which begins with the collective's number. */
static bool is_awaited(rks_group *group, uint32_t from, uint32_t kind, const uint8_t *body,
                       size_t size)
{
    if (kind != MESSAGE_UP && kind != MESSAGE_DOWN)
        return true;
    if (size < HEADER + 8)
        return false;
    uint64_t number = rks_load_u64(body + HEADER);
    pthread_mutex_lock(&group->mutex);
    uint64_t next = group->sequence;
    bool awaited = number + 1 == next || (number == next && kind == MESSAGE_UP);
    for (const message *m = group->inbox; m != NULL && awaited; m = m->next)
        awaited = m->from != from || m->kind != kind;
    pthread_mutex_unlock(&group->mutex);
    return awaited;
}

/* Without it the ranks would not come to the same end. Progress and kinds to come are only news. */
static bool must_be_understood(uint32_t kind)
{
    return kind == MESSAGE_UP || kind == MESSAGE_DOWN || kind == MESSAGE_FAILED ||
           kind == MESSAGE_STOP;
}

void rks_inbox_on_note(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    rks_group *group = user;
    rks_error err;
    uint32_t below = below_child(group, from);
    if (size < HEADER || (from != group->parent && below == 0))
        return; /* it has nothing to say here */
    partial *p = &group->partials[from];
    uint64_t total = rks_load_u64(body + 8);
    bool awaited = true;
    if (p->body.size == 0 && p->skipped == 0) {
        p->kind = rks_load_u32(body);
        p->total = total;
        awaited = is_awaited(group, from, p->kind, body, size);
    }
    bool wrong_way = below > 0 ? p->kind == MESSAGE_DOWN : p->kind == MESSAGE_UP;
    bool too_large = total > message_limit(group, p->kind, below);
    if (wrong_way || !awaited || p->kind != rks_load_u32(body) || p->total != total ||
        (too_large && must_be_understood(p->kind)) ||
        size - HEADER > total - p->body.size - p->skipped) {
        rks_fail(&err, RKS_ERR_PEER, 0, "rank %u (%s): a malformed message", from,
                 group->hosts[from]);
        err.rank = (int32_t)from;
        rks_group_fail(group, &err, -1);
        return;
    }
    if (too_large) { /* a later version's, perhaps; it takes no memory */
        p->skipped += size - HEADER;
        if (p->skipped == total)
            *p = (partial){0};
        return;
    }
    if (rks_buffer_add(&p->body, body + HEADER, size - HEADER, &err) != RKS_OK) {
        give_up(group, &err);
        return;
    }
    if (p->body.size < p->total)
        return;
    message *m = rks_alloc(1, sizeof(*m), &err);
    if (m == NULL) {
        give_up(group, &err);
        return;
    }
    m->from = from;
    m->kind = p->kind;
    m->body = p->body;
    *p = (partial){0};
    deliver(group, m);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static message *take_from_inbox(rks_group *group, uint32_t from, enum message_kind kind)
{
    for (message **at = &group->inbox; *at != NULL; at = &(*at)->next) {
        message *m = *at;
        if (m->from != from || m->kind != kind)
            continue;
        *at = m->next;
        if (*at == NULL)
            group->inbox_end = at;
        return m;
    }
    return NULL;
}

static void say_who(const rks_group *group, uint32_t from, const char *phase, uint64_t waited_ms)
{
    const char *text = group->progress[from].text;
    rks_log("rank %u waits for rank %u (%s) in '%s' since %llu s%s%s", group->rank, from,
            group->hosts[from], phase, (unsigned long long)(waited_ms / 1000),
            text[0] != '\0' ? ": " : "", text);
}

rks_status rks_inbox_wait(rks_group *group, uint32_t from, enum message_kind kind,
                          const char *phase, message **got, rks_error *err)
{
    uint64_t begun = rks_now_ms(), said = begun;
    message *m = NULL;
    pthread_mutex_lock(&group->mutex);
    while (true) {
        m = take_from_inbox(group, from, kind);
        if (m != NULL || group->failed)
            break;
        if (group->left[from]) {
            pthread_mutex_unlock(&group->mutex);
            rks_group_fail_left(group, from);
            pthread_mutex_lock(&group->mutex);
            continue;
        }
        if (!rks_cond_wait_ms(&group->cond, &group->mutex, RKS_WAIT_SLICE_MS)) {
            pthread_mutex_unlock(&group->mutex);
            rks_group_look_around(group);
            if (group->waiting != NULL)
                group->waiting(group->waiting_user);
            pthread_mutex_lock(&group->mutex);
        }
        uint64_t now = rks_now_ms();
        if (now - said > group->patience_ms) {
            said = now;
            say_who(group, from, phase, now - begun);
        }
    }
    pthread_mutex_unlock(&group->mutex);
    if (m == NULL)
        return rks_group_failure(group, phase, err);
    *got = m;
    return RKS_OK;
}
