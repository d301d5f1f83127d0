/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox.c: messages between neighbours of the control tree, and the waiting for them.
 *
 * A message is cut into notes; notes of one peer arrive in order, so the parts simply follow each
 * other:
 *
 *   offset  size  field
 *        0     4  kind
 *        4     4  reserved, 0
 *        8     8  bytes of the whole message
 *       16     n  a part, at most 1 MiB
 */
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "group/group_state.h"

enum { HEADER = 16, NOTE_MOST = RKS_UP_MAX, OTHER_MAX = 4096, GO_SIZE = 8 };

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
    size_t left = size, room = HEADER + (size < NOTE_MOST ? size : NOTE_MOST);
    uint8_t *note = rks_alloc_raw(room, 1, err);
    if (note == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    pthread_mutex_lock(&group->sending);
    do {
        size_t part = left < NOTE_MOST ? left : NOTE_MOST;
        rks_store_u32(note, kind);
        rks_store_u32(note + 4, 0);
        rks_store_u64(note + 8, size);
        if (part > 0)
            memcpy(note + HEADER, at, part);
        status = rks_engine_note(group->engine, to, RKS_SERVICE_GROUP, note, HEADER + part, err);
        at += part;
        left -= part;
    } while (status == RKS_OK && left > 0);
    pthread_mutex_unlock(&group->sending);
    rks_free(note);
    return status;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void handle_failed(rks_group *group, const message *m)
{
    group_error err;
    if (m->body.size != GROUP_ERROR_SIZE)
        return;
    rks_group_error_decode(m->body.data, &err);
    if (err.error.status == RKS_OK)
        rks_error_sanitize(&err.error); /* the group fails anyway */
    rks_group_fail_with(group, &err, m->from);
}

static bool is_of_collective(uint32_t kind)
{
    return kind == MESSAGE_UP || kind == MESSAGE_GO || kind == MESSAGE_REST || kind == MESSAGE_DOWN;
}

/* Handles a complete message. Those of a collective wait in the inbox, the others act at once. */
static void deliver(rks_group *group, message *m)
{
    if (is_of_collective(m->kind)) {
        pthread_mutex_lock(&group->mutex);
        group->progress[m->from].text[0] = '\0'; /* what it did before is over */
        m->next = NULL;
        *group->inbox_end = m;
        group->inbox_end = &m->next;
        pthread_cond_broadcast(&group->cond);
        pthread_mutex_unlock(&group->mutex);
        return;
    }
    if (m->kind == MESSAGE_FAILED)
        handle_failed(group, m);
    else if (m->kind == MESSAGE_STOP && m->body.size == 8)
        rks_group_tell_stop(group, rks_load_u64(m->body.data), m->from);
    else if (m->kind == MESSAGE_LEAVING)
        rks_group_take_leaving(group, m->from);
    else if (m->kind == MESSAGE_PROGRESS)
        rks_group_take_progress(group, m);
    else if (m->kind == MESSAGE_READING)
        rks_group_take_reading(group, m);
    else if (m->kind == MESSAGE_DOUBT)
        rks_group_take_doubt(group, m);
    else if (m->kind == MESSAGE_CHANGE)
        rks_group_take_change(group, m);
    else if (m->kind == MESSAGE_APART)
        rks_group_take_apart(group, m);
    rks_inbox_free(m);
}

/* Fails the group if a neighbour's message finds no memory: every rank would wait for what it
 * says. */
static void give_up(rks_group *group, rks_error *err)
{
    rks_error_place(err, group->rank, group->hosts[group->rank]);
    rks_group_fail(group, err, -1);
}

static bool is_child(const rks_group *group, uint32_t rank)
{
    for (uint32_t i = 0; i < group->child_count; i++)
        if (group->children[i] == rank)
            return true;
    return false;
}

/* Returns the most bytes that a message of a collective may have; 0: none may come. A neighbour
 * sends one message to a collective, and the next one only after all have finished that collective.
 * So at most one message waits, for the collective that this rank is in or enters next. `number`:
 * of the collective, as the message says; a REST has none. The mutex must be held. */
static uint64_t collective_limit(rks_group *group, uint32_t from, uint32_t kind, uint64_t number)
{
    bool here = number + 1 == group->sequence;
    for (const message *m = group->inbox; m != NULL; m = m->next)
        if (m->from == from && m->kind == kind)
            return 0;
    if (from == group->parent)
        return !here                  ? 0
               : kind == MESSAGE_DOWN ? group->result_max
               : kind == MESSAGE_GO   ? group->asks * GO_SIZE
                                      : 0;
    if (kind == MESSAGE_UP)
        return here || number == group->sequence ? RKS_UP_MAX : 0;
    uint64_t granted = kind == MESSAGE_REST ? group->granted[from] : 0;
    group->granted[from] = 0;
    return granted;
}

/* Returns the most bytes of a message of this kind from that neighbour; 0: it must not send one
 * now. `body` is its first note. */
static uint64_t message_limit(rks_group *group, uint32_t from, uint32_t kind, const uint8_t *body,
                              size_t size)
{
    switch (kind) {
    case MESSAGE_UP:
    case MESSAGE_GO:
    case MESSAGE_REST:
    case MESSAGE_DOWN: {
        if (size < HEADER + 8)
            return 0;
        pthread_mutex_lock(&group->mutex);
        uint64_t limit = collective_limit(group, from, kind, rks_load_u64(body + HEADER));
        pthread_mutex_unlock(&group->mutex);
        return limit;
    }
    case MESSAGE_FAILED:
    case MESSAGE_STOP:
    case MESSAGE_PROGRESS:
    case MESSAGE_READING:
    case MESSAGE_DOUBT:
    case MESSAGE_CHANGE:
    case MESSAGE_APART:
        return OTHER_MAX;
    default:
        return 0;
    }
}

/* Returns true for kinds without which the ranks would come to different ends. Progress and kinds
 * of later versions are only information. */
static bool must_be_understood(uint32_t kind)
{
    return is_of_collective(kind) || kind == MESSAGE_FAILED || kind == MESSAGE_STOP;
}

void rks_inbox_on_note(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    rks_group *group = user;
    rks_error err;
    if (size < HEADER || (from != group->parent && !is_child(group, from)))
        return; /* this rank expects none from it */
    partial *p = &group->partials[from];
    uint64_t total = rks_load_u64(body + 8);
    if (p->body.size == 0 && p->skipped == 0) {
        p->kind = rks_load_u32(body);
        p->total = total;
        p->limit = message_limit(group, from, p->kind, body, size);
    }
    bool too_large = total > p->limit;
    if (p->kind != rks_load_u32(body) || p->total != total ||
        (is_of_collective(p->kind) && p->limit == 0) ||
        (too_large && must_be_understood(p->kind)) ||
        size - HEADER > total - p->body.size - p->skipped) {
        rks_fail(&err, RKS_ERR_PEER, 0, "rank %u (%s): a malformed message", from,
                 group->hosts[from]);
        err.rank = (int32_t)from;
        rks_group_fail(group, &err, -1);
        return;
    }
    if (too_large) { /* perhaps from a later version; it takes no memory */
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

static message *pop_message(rks_group *group, uint32_t from, uint32_t kinds)
{
    for (message **at = &group->inbox; *at != NULL; at = &(*at)->next) {
        message *m = *at;
        if (m->from != from || (kinds & 1u << m->kind) == 0)
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
    /* A rank that builds says what it does: most often a script builds on rank 0 alone. */
    if (text[0] == '\0' && strncmp(phase, "build", 5) == 0)
        text = "build is collective: call it on every rank, or on one alone with a group of its "
               "own (in Python init(\"solo\"))";
    rks_log("rank %u has waited %llu s for rank %u (%s) in '%s'%s%s", group->rank,
            (unsigned long long)(waited_ms / 1000), from, group->hosts[from], phase,
            text[0] != '\0' ? ": " : "", text);
}

rks_status rks_inbox_wait(rks_group *group, uint32_t from, uint32_t kinds, const char *phase,
                          message **got, rks_error *err)
{
    uint64_t begun = rks_now_ms(), said = begun;
    message *m = NULL;
    pthread_mutex_lock(&group->mutex);
    while (true) {
        m = pop_message(group, from, kinds);
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
            rks_group_repeat_change(group);
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
