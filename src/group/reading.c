/* SPDX-License-Identifier: Apache-2.0
 *
 * reading.c: do the ranks read the same batches? Nobody waits for the answer.
 *
 * Epochs. The epochs that a reader gives are its track: each entry differs from the one before it.
 * A track has a number among those of its plan on this rank, and equal numbers are compared. A rank
 * sends each new entry to rank 0, about once an epoch, and rank 0 keeps the last ones of a track.
 * If an entry differs from another rank's, rank 0 asks all ranks for it (the same message, without
 * rank, changes and epoch). A rank that reads in that epoch repeats the entry, as an answer. The
 * group fails if two answers differ: so a rank that has only looked at an epoch is not wrong. Once
 * a rank reads on, the track is no longer compared.
 *
 *   offset  size  field
 *        0     4  rank
 *        4     4  number of the track
 *        8     8  plan
 *       16     8  changes
 *       24     8  epoch
 *       32     8  which entry of the track, from 0
 *       40     8  1: an answer */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "group/reading_state.h"

rks_status rks_readings_create(rks_group *group, rks_error *err)
{
    group->readings = group->size == 1 ? NULL : rks_alloc(1, sizeof(readings), err);
    return group->size == 1 || group->readings != NULL ? RKS_OK : RKS_ERR_MEMORY;
}

void rks_readings_free(rks_group *group)
{
    rks_free(group->readings);
}

/* Lets rank 0 fail the group: if several ranks fail it at once, each would see its own error. */
static void fail_at_root(rks_group *group, const group_error *apart)
{
    uint8_t body[GROUP_ERROR_SIZE];
    if (group->parent < 0) {
        rks_group_fail_with(group, apart, -1);
        return;
    }
    rks_group_error_encode(apart, body);
    rks_inbox_send(group, (uint32_t)group->parent, MESSAGE_APART, body, sizeof(body), NULL);
}

void rks_reading_fail(rks_group *group, const rks_error *err, uint32_t rank)
{
    group_error apart = {.error = *err, .apart = true};
    rks_error_place(&apart.error, rank, group->hosts[rank]);
    fail_at_root(group, &apart);
}

void rks_group_take_apart(rks_group *group, const message *m)
{
    group_error apart;
    if (m->from == group->parent || m->body.size != GROUP_ERROR_SIZE)
        return;
    rks_group_error_decode(m->body.data, &apart);
    if (apart.error.status != RKS_OK && apart.apart)
        fail_at_root(group, &apart);
}

/* ---- epochs: what rank 0 compares ------------------------------------------------------------ */

static track *find_track(readings *all, const entry *e)
{
    for (uint32_t i = 0; i < TRACKS; i++)
        if (all->tracks[i].count > 0 && all->tracks[i].plan == e->plan &&
            all->tracks[i].number == e->number)
            return &all->tracks[i];
    if (e->place != 0 || e->answers) /* its beginning is forgotten */
        return NULL;
    track *made = &all->tracks[all->track_count++ % TRACKS];
    *made = (track){.plan = e->plan, .number = e->number};
    return made;
}

static bool same_batches(const entry *a, const entry *b)
{
    return a->epoch == b->epoch && a->changes == b->changes;
}

/* Fails *err if two ranks that read at this moment answer differently. */
static void compare_answer(const rks_group *group, track *t, const entry *e, rks_error *err)
{
    const entry *first = &t->answer;
    if (!t->doubted || e->place != t->doubt)
        return;
    if (!t->answered) {
        t->answered = true;
        t->answer = *e;
        return;
    }
    if (same_batches(first, e))
        return;
    if (first->epoch != e->epoch)
        rks_fail(err, RKS_ERR_ARGUMENT, 0,
                 "rank %u (%s) reads epoch %" PRIu64 " and rank %u (%s) epoch %" PRIu64
                 " of the same plan: give all ranks the same epoch, as in "
                 "loader.set_epoch(epoch)",
                 first->rank, group->hosts[first->rank], first->epoch, e->rank,
                 group->hosts[e->rank], e->epoch);
    else
        rks_fail(err, RKS_ERR_ARGUMENT, 0,
                 "rank %u (%s) and rank %u (%s) read epoch %" PRIu64
                 " of the same plan with different changes: call remix, skip and "
                 "load_state_dict alike on all ranks",
                 first->rank, group->hosts[first->rank], e->rank, group->hosts[e->rank], e->epoch);
}

/* Returns true if the entry differs from another rank's, so that all are to be asked. */
static bool compare_entry(track *t, const entry *e)
{
    if (e->place > t->count || e->place + WINDOW < t->count)
        return false;
    entry *known = &t->entries[e->place % WINDOW];
    if (e->place == t->count) {
        *known = *e;
        t->count++;
        t->ignored = t->ignored || t->doubted; /* the doubt was a look */
        return false;
    }
    if (t->doubted || same_batches(known, e))
        return false;
    t->doubted = true;
    t->doubt = e->place;
    return true;
}

static void encode_entry(const entry *e, uint8_t *body)
{
    rks_store_u32(body, e->rank);
    rks_store_u32(body + 4, e->number);
    rks_store_u64(body + 8, e->plan);
    rks_store_u64(body + 16, e->changes);
    rks_store_u64(body + 24, e->epoch);
    rks_store_u64(body + 32, e->place);
    rks_store_u64(body + 40, e->answers);
}

static void decode_entry(const uint8_t *body, entry *e)
{
    *e = (entry){
        .rank = rks_load_u32(body),
        .number = rks_load_u32(body + 4),
        .plan = rks_load_u64(body + 8),
        .changes = rks_load_u64(body + 16),
        .epoch = rks_load_u64(body + 24),
        .place = rks_load_u64(body + 32),
        .answers = rks_load_u64(body + 40) != 0,
    };
}

static void ask_all(rks_group *group, const entry *doubt, int64_t except);

/* Compares an entry at rank 0, or sends it there. */
static void report_entry(rks_group *group, const entry *e)
{
    uint8_t body[READING_SIZE];
    rks_error err = {0};
    bool doubts = false;
    if (group->parent >= 0) {
        encode_entry(e, body);
        rks_inbox_send(group, (uint32_t)group->parent, MESSAGE_READING, body, sizeof(body), NULL);
        return;
    }
    pthread_mutex_lock(&group->mutex);
    track *t = find_track(group->readings, e);
    if (t != NULL && !t->ignored && e->answers)
        compare_answer(group, t, e, &err);
    else if (t != NULL && !t->ignored)
        doubts = compare_entry(t, e);
    pthread_mutex_unlock(&group->mutex);
    if (err.status != RKS_OK)
        rks_reading_fail(group, &err, e->rank);
    if (doubts)
        ask_all(group, e, -1);
}

void rks_group_take_reading(rks_group *group, const message *m)
{
    entry e;
    if (m->body.size != READING_SIZE ||
        !rks_group_may_tell(group, m->from, rks_load_u32(m->body.data)))
        return;
    decode_entry(m->body.data, &e);
    report_entry(group, &e);
}

/* Returns true and the answer if this reader still reads the entry that is doubted. The mutex must
 * be held. */
static bool find_answer(const rks_group *group, const reader *r, entry *answer)
{
    entry *doubts = group->readings->doubts;
    for (uint32_t i = 0; i < DOUBTS; i++) {
        if (!doubts[i].answers || doubts[i].plan != r->last.plan || doubts[i].number != r->track ||
            doubts[i].place + 1 != r->count || !r->open || !r->given_two ||
            r->last.epoch != r->epoch || r->last.changes != r->changes)
            continue;
        *answer = doubts[i];
        answer->rank = group->rank;
        answer->epoch = r->epoch;
        answer->changes = r->changes;
        doubts[i] = (entry){0};
        return true;
    }
    return false;
}

/* Asks this rank and those below it. */
static void ask_all(rks_group *group, const entry *doubt, int64_t except)
{
    uint8_t body[READING_SIZE];
    entry asked = *doubt, answer;
    bool found = false;
    asked.answers = true;
    encode_entry(&asked, body);
    rks_group_tell_neighbours(group, MESSAGE_DOUBT, body, sizeof(body), except);
    pthread_mutex_lock(&group->mutex);
    readings *all = group->readings;
    all->doubts[all->doubt_count++ % DOUBTS] = asked;
    for (uint32_t i = 0; !found && i < READERS; i++)
        found = find_answer(group, &all->readers[i], &answer);
    pthread_mutex_unlock(&group->mutex);
    if (found)
        report_entry(group, &answer);
}

void rks_group_take_doubt(rks_group *group, const message *m)
{
    entry doubt;
    if (m->body.size != READING_SIZE || m->from != group->parent)
        return;
    decode_entry(m->body.data, &doubt);
    if (doubt.number < LEFT_TRACK)
        ask_all(group, &doubt, m->from);
}

/* ---- this rank's readers --------------------------------------------------------------------- */

static plan_here *find_plan(readings *all, uint64_t plan)
{
    for (uint32_t i = 0; i < all->plan_count; i++)
        if (all->plans[i].plan == plan)
            return &all->plans[i];
    if (all->plan_count == PLANS)
        return NULL; /* never freed: its readers would be numbered anew */
    all->plans[all->plan_count].plan = plan;
    return &all->plans[all->plan_count++];
}

/* Frees a reader that is gone, unless another one may take its track. */
static void free_reader(const readings *all, reader *r)
{
    for (uint32_t i = 0; i < all->plan_count; i++)
        if (all->plans[i].newest == r)
            return;
    *r = (reader){0};
}

static reader *find_reader(readings *all, uint64_t id)
{
    for (uint32_t i = 0; i < READERS; i++)
        if (all->readers[i].last.reader == id && !all->readers[i].gone)
            return &all->readers[i];
    return NULL;
}

static reader *find_or_add_reader(readings *all, uint64_t id)
{
    reader *found = find_reader(all, id);
    if (found == NULL && (found = find_reader(all, 0)) != NULL)
        *found = (reader){.track = NO_TRACK};
    return found;
}

/* Returns true if another reader of the plan is in an iteration. */
static bool is_within_another(const readings *all, const reader *r)
{
    for (uint32_t i = 0; i < READERS; i++)
        if (&all->readers[i] != r && all->readers[i].open && all->readers[i].track < LEFT_TRACK &&
            all->readers[i].last.plan == r->last.plan)
            return true;
    return false;
}

/* Gives a reader its track: the one of the newest reader if it goes on in that one's epoch. */
static void choose_track(readings *all, reader *r)
{
    plan_here *plan = find_plan(all, r->last.plan);
    reader *newest = plan == NULL ? NULL : plan->newest;
    if (plan == NULL || plan->tracks == LEFT_TRACK)
        return;
    if (is_within_another(all, r)) { /* perhaps an evaluation on this rank alone */
        r->track = LEFT_TRACK;
        return;
    }
    plan->newest = r;
    if (newest == NULL || newest->open || newest->epoch != r->last.epoch ||
        newest->changes != r->last.changes) {
        r->track = plan->tracks++;
    } else {
        r->track = newest->track;
        r->count = newest->count;
        r->epoch = newest->epoch;
        r->changes = newest->changes;
        newest->track = LEFT_TRACK;
    }
    if (newest != NULL && newest->gone)
        free_reader(all, newest);
}

/* Notes a batch. Returns true if *e is a new entry of the reader's track. The mutex must be held.
 */
static bool note_batch(rks_group *group, reader *r, const rks_reading *given, entry *e)
{
    bool again = r->open && r->last.plan == given->plan && r->last.epoch == given->epoch &&
                 r->last.changes == given->changes;
    r->given_two = again || (given->is_last != 0 && given->step == 0);
    r->last = *given;
    r->open = true;
    r->given_ms = rks_now_ms();
    if (r->given_two && r->track == NO_TRACK)
        choose_track(group->readings, r);
    if (!r->given_two || r->track >= LEFT_TRACK ||
        (r->count > 0 && r->epoch == given->epoch && r->changes == given->changes))
        return false;
    r->epoch = given->epoch;
    r->changes = given->changes;
    *e = (entry){.rank = group->rank,
                 .number = r->track,
                 .plan = given->plan,
                 .changes = given->changes,
                 .epoch = given->epoch,
                 .place = r->count++};
    return true;
}

rks_status rks_group_reading(rks_group *group, const rks_reading *given, rks_error *err)
{
    rks_error passed = {0};
    entry e;
    if (group->readings == NULL)
        return RKS_OK;
    pthread_mutex_lock(&group->mutex);
    reader *r = group->failed ? NULL : find_or_add_reader(group->readings, given->reader);
    bool reports = r != NULL && (note_batch(group, r, given, &e) || find_answer(group, r, &e));
    bool on_track = r == NULL || rks_reading_check(group, r, &passed);
    pthread_mutex_unlock(&group->mutex);
    if (reports)
        report_entry(group, &e);
    if (!on_track)
        rks_reading_fail(group, &passed, group->rank);
    pthread_mutex_lock(&group->mutex);
    bool apart = group->failed && group->failure.apart;
    if (apart && err != NULL)
        *err = group->failure.error;
    rks_status status = apart ? group->failure.error.status : RKS_OK;
    pthread_mutex_unlock(&group->mutex);
    return status;
}

void rks_group_reading_ends(rks_group *group, uint64_t id, int gone)
{
    if (group->readings == NULL || id == 0)
        return;
    pthread_mutex_lock(&group->mutex);
    reader *r = find_reader(group->readings, id);
    if (r != NULL) {
        r->open = false;
        r->gone = gone != 0;
    }
    if (r != NULL && r->gone)
        free_reader(group->readings, r);
    pthread_mutex_unlock(&group->mutex);
}
