/* SPDX-License-Identifier: Apache-2.0
 *
 * reading_change.c: is a plan changed on all ranks?
 *
 * Before a rank waits for the others in a call that changes a plan, all ranks learn where
 * its reader is. A rank whose reader passes that place without the call, or has passed it, lets
 * rank 0 fail the group. One batch may be only a look: it counts if its iteration is still open a
 * second later, when the rank that waits repeats its message. Each rank passes on the first of
 * equal ones.
 *
 *   offset  size  field
 *        0     4  rank
 *        4     4  number of the track
 *        8     8  plan
 *       16     8  changes, before the call
 *       24     8  epoch
 *       32     8  step: the first one that no rank gives before the call
 *       40     8  how often it was sent before
 *       48    16  name of the call */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/reading_state.h"

static bool is_before(const rks_reading *a, const rks_reading *b)
{
    return a->epoch < b->epoch || (a->epoch == b->epoch && a->step < b->step);
}

static bool same_change(const change *a, const change *b)
{
    return a->track == b->track && a->place.plan == b->place.plan &&
           a->place.changes == b->place.changes && a->place.epoch == b->place.epoch &&
           a->place.step == b->place.step;
}

/* Returns true if this rank makes a change of the plan. */
static bool is_changing(const rks_group *group, uint64_t plan)
{
    const readings *all = group->readings;
    for (uint32_t i = 0; i < CHANGES; i++)
        if (all->changes[i].place.plan == plan && all->changes[i].rank == group->rank &&
            all->changes[i].call[0] != '\0')
            return true;
    return false;
}

static bool has_passed(const reader *r, const change *c)
{
    if (!r->open || c->place.plan != r->last.plan || c->place.changes != r->last.changes ||
        c->track != r->track || is_before(&r->last, &c->place))
        return false;
    return r->given_two || (c->repeated > 0 && rks_now_ms() - r->given_ms >= LOOK_MS);
}

bool rks_reading_check(const rks_group *group, const reader *r, rks_error *err)
{
    const readings *all = group->readings;
    for (uint32_t i = 0; i < CHANGES; i++) {
        const change *c = &all->changes[i];
        if (c->call[0] == '\0' || c->rank == group->rank || !has_passed(r, c) ||
            is_changing(group, c->place.plan))
            continue;
        rks_fail(err, RKS_ERR_ARGUMENT, 0,
                 "rank %u (%s) calls %s, and rank %u (%s) has read step %" PRIu64
                 " of epoch %" PRIu64 " without it: call it on all ranks after the same step",
                 c->rank, group->hosts[c->rank], c->call, group->rank, group->hosts[group->rank],
                 r->last.step, r->last.epoch);
        return false;
    }
    return true;
}

static void send_change(rks_group *group, const change *c, int64_t except)
{
    uint8_t body[CHANGE_SIZE];
    rks_store_u32(body, c->rank);
    rks_store_u32(body + 4, c->track);
    rks_store_u64(body + 8, c->place.plan);
    rks_store_u64(body + 16, c->place.changes);
    rks_store_u64(body + 24, c->place.epoch);
    rks_store_u64(body + 32, c->place.step);
    rks_store_u64(body + 40, c->repeated);
    memcpy(body + READING_SIZE, c->call, CALL_SIZE);
    rks_group_tell_neighbours(group, MESSAGE_CHANGE, body, sizeof(body), except);
}

/* Notes a change. Returns false if an equal one, repeated as often, is known. The mutex must be
 * held. */
static bool note_change(readings *all, const change *c)
{
    for (uint32_t i = 0; i < CHANGES; i++) {
        change *known = &all->changes[i];
        if (known->call[0] == '\0' || !same_change(known, c))
            continue;
        bool news = known->repeated < c->repeated;
        known->repeated = news ? c->repeated : known->repeated;
        return news;
    }
    all->changes[all->change_count++ % CHANGES] = *c;
    return true;
}

void rks_group_take_change(rks_group *group, const message *m)
{
    const uint8_t *body = m->body.data;
    if (m->body.size != CHANGE_SIZE || rks_load_u32(body) >= group->size ||
        rks_load_u32(body) == group->rank || rks_load_u32(body + 4) >= LEFT_TRACK ||
        (m->from != group->parent && !rks_group_may_tell(group, m->from, rks_load_u32(body))))
        return;
    change c = {
        .place = {.plan = rks_load_u64(body + 8),
                  .changes = rks_load_u64(body + 16),
                  .epoch = rks_load_u64(body + 24),
                  .step = rks_load_u64(body + 32)},
        .rank = rks_load_u32(body),
        .track = rks_load_u32(body + 4),
        .repeated = rks_load_u64(body + 40),
    };
    memcpy(c.call, body + READING_SIZE, CALL_SIZE - 1);
    rks_text_clean(c.call);
    if (c.call[0] == '\0')
        return;
    rks_error err = {0};
    bool passed = false;
    pthread_mutex_lock(&group->mutex);
    bool news = note_change(group->readings, &c);
    for (uint32_t i = 0; news && !passed && i < READERS; i++)
        passed = !rks_reading_check(group, &group->readings->readers[i], &err);
    pthread_mutex_unlock(&group->mutex);
    if (news)
        send_change(group, &c, m->from);
    if (passed)
        rks_reading_fail(group, &err, group->rank);
}

/* Returns the reader by which a change of a plan has its place: an open one, else the newest. */
static const reader *find_place(const readings *all, uint64_t plan)
{
    for (uint32_t i = 0; i < READERS; i++)
        if (all->readers[i].open && all->readers[i].last.plan == plan &&
            all->readers[i].track < LEFT_TRACK)
            return &all->readers[i];
    for (uint32_t i = 0; i < all->plan_count; i++)
        if (all->plans[i].plan == plan)
            return all->plans[i].newest;
    return NULL;
}

void rks_group_change_begins(rks_group *group, const rks_reading *first, const char *call)
{
    if (group->readings == NULL)
        return;
    change c = {.place = *first, .rank = group->rank};
    strncpy(c.call, call, CALL_SIZE - 1);
    pthread_mutex_lock(&group->mutex);
    readings *all = group->readings;
    const reader *r = find_place(all, first->plan);
    if (r != NULL) {
        c.track = r->track;
        c.place.epoch = r->last.epoch;
        c.place.step = r->last.step + 1;
    }
    bool news = note_change(all, &c);
    if (!news) /* another rank's, which this rank makes too */
        all->changes[all->change_count++ % CHANGES] = c;
    all->repeated_ms = rks_now_ms();
    pthread_mutex_unlock(&group->mutex);
    if (news)
        send_change(group, &c, -1);
}

void rks_group_repeat_change(rks_group *group)
{
    change c = {0};
    if (group->readings == NULL)
        return;
    pthread_mutex_lock(&group->mutex);
    readings *all = group->readings;
    uint64_t now_ms = rks_now_ms();
    for (uint32_t i = 0; now_ms - all->repeated_ms >= LOOK_MS && i < CHANGES; i++)
        if (all->changes[i].call[0] != '\0' && all->changes[i].rank == group->rank) {
            all->changes[i].repeated++;
            all->repeated_ms = now_ms;
            c = all->changes[i];
        }
    pthread_mutex_unlock(&group->mutex);
    if (c.call[0] != '\0')
        send_change(group, &c, -1);
}

void rks_group_change_ends(rks_group *group, uint64_t plan)
{
    if (group->readings == NULL)
        return;
    pthread_mutex_lock(&group->mutex);
    for (uint32_t i = 0; i < CHANGES; i++)
        if (group->readings->changes[i].place.plan == plan)
            group->readings->changes[i] = (change){0};
    pthread_mutex_unlock(&group->mutex);
}
