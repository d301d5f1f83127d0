/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals.c: one mutex guards what is dealt to whom; the work itself is done without it. */
#include "home/arrivals.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "home/arrivals_state.h"

enum { LOOK_MS = 1000 };   /* until a thread without work looks again */
enum { JOIN_MS = 15000 };  /* for threads that close: a sync may take long */
enum { PAUSE_MS = 30000 }; /* after a failure, until the rest of the shard is tried again */

/* ---- needs ----------------------------------------------------------------------------------- */

static void add_need(rks_need_list *list, rks_need *need)
{
    need->next = NULL;
    need->before = list->last;
    *(list->last == NULL ? &list->first : &list->last->next) = need;
    list->last = need;
}

/* With the mutex. Without memory for its asker's turns a need comes as if it were the first. */
static uint64_t next_turn(rks_arrivals *set, uint32_t asker)
{
    if (asker >= set->askers) {
        const uint32_t askers = asker + 16;
        uint64_t *turns = rks_realloc(set->last_turns, askers, sizeof(*turns), NULL);
        if (turns == NULL)
            return set->turn + 1;
        memset(turns + set->askers, 0, (askers - set->askers) * sizeof(*turns));
        set->last_turns = turns;
        set->askers = askers;
    }
    uint64_t *last = &set->last_turns[asker];
    *last = (*last > set->turn ? *last : set->turn) + 1;
    return *last;
}

/* With the mutex. Puts a need behind those whose turn is not later. */
static void queue_need(rks_arrivals *set, rks_need *need)
{
    need->turn = next_turn(set, need->asker);
    set->unread = false;
    set->need_count++;
    rks_arrivals_quiet(set, need->end - need->first);
    set->need_bytes += need->end - need->first;
    rks_need *before = set->needs.last;
    while (before != NULL && before->turn > need->turn)
        before = before->before;
    need->before = before;
    need->next = before == NULL ? set->needs.first : before->next;
    *(before == NULL ? &set->needs.first : &before->next) = need;
    *(need->next == NULL ? &set->needs.last : &need->next->before) = need;
}

static void remove_need(rks_arrivals *set, rks_need *need)
{
    rks_need_list *list = &set->needs;
    set->need_count--;
    set->need_bytes -= need->end - need->first;
    *(need->before == NULL ? &list->first : &need->before->next) = need->next;
    *(need->next == NULL ? &list->last : &need->next->before) = need->before;
    need->next = need->before = NULL;
}

static bool is_here(const rks_arrivals *set, const rks_need *need)
{
    const rks_arriving_one *shard = &set->shards[need->shard];
    if (shard->stage == WHOLE)
        return true;
    return (shard->stage == ARRIVING || shard->stage == FINISHING) &&
           rks_pieces_have(rks_arrival_pieces(shard->arrival), need->first, need->end);
}

/* Moves needs from the set to `taken`: those of `shard` (NULL: of all) that fit. A busy one ends
 * with its record. */
static void move_needs(rks_arrivals *set, const rks_arriving_one *shard,
                       bool (*fits)(const rks_arrivals *set, const rks_need *need, const void *by),
                       const void *by, rks_need_list *taken)
{
    for (rks_need *need = set->needs.first, *next; need != NULL; need = next) {
        next = need->next;
        if (need->busy || (shard != NULL && set->shards + need->shard != shard) ||
            !fits(set, need, by))
            continue;
        remove_need(set, need);
        add_need(taken, need);
    }
}

static bool any_need(const rks_arrivals *set, const rks_need *need, const void *unused)
{
    (void)set, (void)need, (void)unused;
    return true;
}

static bool has_come(const rks_arrivals *set, const rks_need *need, const void *unused)
{
    (void)unused;
    return is_here(set, need);
}

/* The need lacks a piece of a job that failed; all of one that was to open its shard. */
static bool waits_for(const rks_arrivals *set, const rks_need *need, const void *failed)
{
    const rks_arrival_job *one = failed;
    return one->stage != ARRIVING ||
           (!is_here(set, need) && need->first < (one->first + one->count) * RKS_PIECE &&
            need->end > one->first * RKS_PIECE);
}

/* Ends needs, without the mutex. */
static void end_needs(rks_need_list *taken, const rks_error *err)
{
    for (rks_need *need = taken->first, *next; need != NULL; need = next) {
        next = need->next;
        need->here(need, false, err);
    }
}

/* ---- doing it -------------------------------------------------------------------------------- */

/* Brings a record alone. *brought stays 0 if it is not right: its pieces are brought then. */
static rks_status bring_record(rks_arrival *arrival, rks_need *need, uint8_t *room,
                               uint64_t *brought, rks_error *err)
{
    const uint64_t size = need->end - need->first;
    need->doubts = rks_pieces_doubts(rks_arrival_pieces(arrival));
    rks_status status = rks_arrival_read(arrival, need->first, need->end, room, err);
    const uint64_t right = status == RKS_OK ? need->check(need, room, size) : 0;
    if (status != RKS_OK || right == 0 || right > size)
        return status;
    status = rks_arrival_write(arrival, need->first, room, right, err);
    *brought = status == RKS_OK ? size : 0;
    return status;
}

/* Opens an arrival, and brings its head. That of a copy is not wanted before the rest. */
static rks_status open_shard(const rks_arrival_wish *wish, uint8_t *room, rks_arrival **opened,
                             bool *whole, uint64_t *brought, rks_error *err)
{
    rks_status status = rks_arrival_open(wish, opened, whole, err);
    if (status == RKS_OK && !*whole && !rks_arrival_is_copy(wish))
        status = rks_arrival_bring_head(*opened, room, brought, err);
    if (status != RKS_OK) {
        rks_arrival_close(*opened);
        *opened = NULL;
    }
    return status;
}

static rks_status do_job(const rks_arrival_job *next, uint8_t *room, rks_arrival **opened,
                         bool *whole, uint64_t *brought, rks_error *err)
{
    rks_arriving_one *shard = next->shard;
    if (next->stage == TO_OPEN)
        return open_shard(&shard->wish, room, opened, whole, brought, err);
    if (next->stage == FINISHING)
        return rks_arrival_finish(shard->arrival, err);
    if (next->record != NULL)
        return bring_record(shard->arrival, next->record, room, brought, err);
    return rks_arrival_bring(shard->arrival, next->first, next->count, room, brought, err);
}

/* With the mutex. */
static void end_opening(rks_arrivals *set, rks_arriving_one *shard, rks_arrival *opened, bool whole)
{
    shard->arrival = opened;
    if (whole) {
        shard->stage = WHOLE;
        set->whole++;
        return;
    }
    shard->file_size = rks_arrival_size(opened);
    set->bytes += shard->file_size;
    shard->busy = rks_alloc((size_t)rks_pieces_count(rks_arrival_pieces(opened)), 1, &shard->error);
    shard->stage = shard->busy == NULL ? FAILED : ARRIVING;
    if (shard->busy == NULL && set->status == RKS_OK) {
        set->status = RKS_ERR_MEMORY;
        set->error = shard->error;
    }
}

/* Heads are the first that is known of the link. A copy's opening may wait for its holder. */
static bool opens_first(const rks_arrival_job *job)
{
    return job->stage == TO_OPEN && !rks_arrival_is_copy(&job->shard->wish);
}

/* With the mutex. */
static void end_job(rks_arrivals *set, const rks_arrival_job *done, rks_status status,
                    rks_arrival *opened, bool whole, uint64_t brought)
{
    rks_arriving_one *shard = done->shard;
    if (done->stage == TO_OPEN && status == RKS_OK)
        end_opening(set, shard, opened, whole);
    if (opens_first(done))
        rks_link_rate_end(&set->rate, 1, brought);
    set->piece_jobs -= done->stage == ARRIVING && done->record == NULL;
    if (done->stage == ARRIVING) {
        memset(shard->busy + done->first, 0, (size_t)done->count);
        shard->under_way--;
        if (done->record == NULL && !done->is_local)
            rks_link_rate_end(&set->rate, done->count * RKS_PIECE,
                              status == RKS_OK ? done->count * RKS_PIECE : 0);
    }
    if (shard->stage == ARRIVING && !shard->headed)
        shard->headed = rks_arrival_has_head(shard->arrival);
    if (done->stage == FINISHING && status == RKS_OK) {
        shard->stage = WHOLE;
        set->whole++;
    }
}

/* Home has lost what the job reads, or has something else in its place. */
static void name_dataset(const rks_arrival_wish *wish, rks_error *err)
{
    const rks_error plain = *err;
    if (wish->dataset == NULL || wish->home == NULL)
        return;
    if (plain.status == RKS_ERR_CORRUPT)
        rks_fail(err, RKS_ERR_CORRUPT, plain.cause, "%s (%s)", plain.text, wish->dataset);
    if (plain.status == RKS_ERR_NOT_FOUND || plain.status == RKS_ERR_STATE)
        rks_fail(err, (rks_status)plain.status, plain.cause,
                 "%s; %s, which this job reads, is not whole there any more: publish it again, or "
                 "open what is there now",
                 plain.text, wish->dataset);
}

/* With the mutex. A shard that cannot be opened has failed; so has a copy, which is no loss. Others
 * go on: what was waited for has failed, and is tried again when somebody wants it; the rest of
 * that shard after a pause. */
static void note_failure(rks_arrivals *set, const rks_arrival_job *failed, const rks_error *err)
{
    rks_arriving_one *shard = failed->shard;
    shard->pause_ms = rks_now_ms() + PAUSE_MS;
    if (shard->stage == FINISHING)
        shard->stage = ARRIVING;
    if (shard->wish.optional && shard->stage != FAILED && set->failed++ == 0)
        rks_log("a copy is not made: %s", err->text);
    if (shard->wish.optional || shard->stage == OPENING) {
        shard->stage = FAILED;
        shard->error = *err;
    }
    if (!shard->wish.optional && set->status == RKS_OK) {
        set->status = (rks_status)err->status;
        set->error = *err;
    }
}

/* With the mutex. A record that has come, or that home does not give, ends its need. One that is
 * not right is brought by pieces. */
static void end_record(rks_arrivals *set, rks_need *need, uint64_t brought, const rks_error *err)
{
    need->busy = false;
    need->by_pieces = true;
    if (brought == 0 && err->status == RKS_OK)
        return;
    remove_need(set, need);
    pthread_mutex_unlock(&set->mutex);
    need->here(need, brought > 0, err);
    pthread_mutex_lock(&set->mutex);
}

/* With the mutex, which it gives back. Ends needs whose pieces came without a job of theirs: by
 * another process, or while their record was read. Returns true if there were any. */
static bool end_what_came(rks_arrivals *set)
{
    rks_need_list here = {0};
    move_needs(set, NULL, has_come, NULL, &here);
    if (here.first == NULL)
        return false;
    pthread_mutex_unlock(&set->mutex);
    end_needs(&here, &(rks_error){0});
    pthread_mutex_lock(&set->mutex);
    return true;
}

/* With the mutex, which it gives back. Ends the needs that a job has brought, or will not. */
static void end_needs_of(rks_arrivals *set, const rks_arrival_job *done, const rks_error *why)
{
    rks_need_list lost = {0};
    const bool over = set->over, failed = why->status != RKS_OK;
    rks_error because = over ? set->error : *why;
    if (over || done->shard->stage == FAILED)
        move_needs(set, over ? NULL : done->shard, any_need, NULL, &lost);
    else if (failed && done->record == NULL && done->stage != FINISHING)
        move_needs(set, done->shard, waits_for, done, &lost);
    if (lost.first != NULL) {
        pthread_mutex_unlock(&set->mutex);
        end_needs(&lost, &because);
        pthread_mutex_lock(&set->mutex);
    }
    if (done->record == NULL) /* one that is read alone ends its own need */
        (void)end_what_came(set);
}

/* With the mutex, which it gives back while it works. */
static void work(rks_arrivals *set, const rks_arrival_job *next, uint8_t *room)
{
    rks_arrival *opened = NULL;
    bool whole = false;
    uint64_t brought = 0;
    rks_error err = {0};
    set->piece_jobs += next->stage == ARRIVING && next->record == NULL;
    if (next->stage == ARRIVING && next->record == NULL && !next->is_local)
        rks_link_rate_ask(&set->rate, next->count * RKS_PIECE);
    if (opens_first(next))
        rks_link_rate_ask(&set->rate, 1);
    pthread_mutex_unlock(&set->mutex);
    rks_status status = do_job(next, room, &opened, &whole, &brought, &err);
    if (status != RKS_OK)
        name_dataset(&next->shard->wish, &err);
    pthread_mutex_lock(&set->mutex);
    set->brought += brought;
    end_job(set, next, status, opened, whole, brought);
    if (status == RKS_OK)
        err = (rks_error){0};
    else if (status != RKS_ERR_CANCELLED || !set->stop)
        note_failure(set, next, &err);
    if (next->record != NULL)
        end_record(set, next->record, brought, &err);
    end_needs_of(set, next, &err);
    if (next->stage == TO_OPEN)
        pthread_cond_broadcast(&set->work);
    else /* this thread goes on; all of them would find nothing but the mutex */
        pthread_cond_signal(&set->work);
    pthread_cond_broadcast(&set->progress);
}

void rks_arrivals_give_up(rks_arrivals *set, const rks_error *why)
{
    rks_need_list lost = {0};
    set->over = true;
    if (set->status == RKS_OK)
        set->status = (rks_status)why->status;
    set->error = *why;
    move_needs(set, NULL, any_need, NULL, &lost);
    pthread_cond_broadcast(&set->work);
    pthread_cond_broadcast(&set->progress);
    pthread_mutex_unlock(&set->mutex);
    end_needs(&lost, why);
    pthread_mutex_lock(&set->mutex);
}

/* With the mutex. Returns how long a thread without work waits: the rest may begin then. */
static uint64_t pause_of(const rks_arrivals *set)
{
    const uint64_t now = rks_now_ns();
    const uint64_t quiet_ms = set->quiet_ns > now ? (set->quiet_ns - now) / NS_A_MS + 1 : LOOK_MS;
    return quiet_ms < LOOK_MS ? quiet_ms : LOOK_MS;
}

static void *arrivals_main(void *user)
{
    rks_arrivals *set = user;
    rks_error err;
    uint8_t *room = rks_alloc_raw(RKS_ARRIVAL_PIECES, RKS_PIECE, &err);
    rks_interrupt_from(&set->stop); /* the caller's thread hears interrupts */
    pthread_mutex_lock(&set->mutex);
    rks_arrivals_worker *own = rks_arrivals_begin_worker(set);
    if (room == NULL && !set->over)
        rks_arrivals_give_up(set, &err);
    while (!set->stop && room != NULL) {
        rks_arrival_job next;
        own->at_work = rks_arrivals_take_job(set, &next);
        if (own->at_work)
            work(set, &next, room);
        else if (!end_what_came(set))
            rks_cond_wait_ms(&set->work, &set->mutex, pause_of(set));
    }
    own->at_work = false;
    pthread_mutex_unlock(&set->mutex);
    rks_free(room);
    return NULL;
}

/* ---- the set --------------------------------------------------------------------------------- */

static rks_status start_threads(rks_arrivals *set, rks_error *err)
{
    /* One thread a shard would open them all at once; more than a piece each have nothing to do. */
    const size_t most = set->stored ? RKS_ARRIVALS_STORE_THREADS : RKS_ARRIVALS_THREADS;
    while (set->thread_count < most) {
        int error = rks_thread_start(&set->workers[set->thread_count].thread, arrivals_main, set);
        if (error != 0)
            return rks_fail_start(err, error, "a thread that brings shards");
        set->thread_count++;
    }
    return rks_arrivals_watch(set, err);
}

rks_status rks_arrivals_open(const rks_arrival_wish *wishes, size_t count, bool paused,
                             rks_arrivals **set, rks_error *err)
{
    rks_arrivals *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->shards = rks_alloc(count, sizeof(*made->shards), err);
    if (made->shards == NULL || pthread_mutex_init(&made->mutex, NULL) != 0) {
        rks_free(made->shards);
        rks_free(made);
        return RKS_ERR_MEMORY;
    }
    rks_cond_init(&made->work);
    rks_cond_init(&made->progress);
    rks_cond_init(&made->watch_ends);
    made->count = count;
    made->paused = paused;
    made->stored = count > 0 && wishes[0].home != NULL && wishes[0].home->ops->far;
    for (size_t i = 0; i < count; i++)
        made->shards[i].wish = wishes[i];
    rks_status status = count == 0 ? RKS_OK : start_threads(made, err);
    if (status != RKS_OK) {
        rks_arrivals_close(made);
        return status;
    }
    *set = made;
    return RKS_OK;
}

void rks_arrivals_go(rks_arrivals *set, bool needs_soon)
{
    pthread_mutex_lock(&set->mutex);
    set->paused = false;
    set->begun_ms = rks_now_ms();
    set->unread = !needs_soon && set->needs.first == NULL;
    if (needs_soon)
        rks_arrivals_quiet(set, UINT64_MAX);
    pthread_cond_broadcast(&set->work);
    pthread_mutex_unlock(&set->mutex);
}

/* A thread of it hangs, and uses it when it comes back. */
static void leave_behind(rks_arrivals *set)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static rks_arrivals *all; /* keeps them in reach, for tools that look for lost memory */
    if (set->left)
        return;
    set->left = true;
    pthread_mutex_lock(&mutex);
    set->next = all;
    all = set;
    pthread_mutex_unlock(&mutex);
}

void rks_arrivals_stop(rks_arrivals *set)
{
    if (set == NULL)
        return;
    rks_error why;
    rks_fail(&why, RKS_ERR_CANCELLED, 0, "closed while a shard was on its way");
    pthread_mutex_lock(&set->mutex);
    set->stop = true;
    rks_arrivals_give_up(set, &why);
    pthread_cond_signal(&set->watch_ends);
    pthread_mutex_unlock(&set->mutex);
    if (set->watched)
        pthread_join(set->watch, NULL);
    set->watched = false;
    for (size_t i = 0; i < set->thread_count; i++)
        if (!rks_thread_join_within(set->workers[i].thread, JOIN_MS))
            leave_behind(set);
    set->thread_count = 0;
}

bool rks_arrivals_close(rks_arrivals *set)
{
    if (set == NULL)
        return true;
    rks_arrivals_stop(set);
    if (set->left)
        return false;
    for (size_t i = 0; i < set->count; i++) {
        rks_arrival_close(set->shards[i].arrival);
        rks_free(set->shards[i].busy);
    }
    pthread_cond_destroy(&set->work);
    pthread_cond_destroy(&set->progress);
    pthread_cond_destroy(&set->watch_ends);
    pthread_mutex_destroy(&set->mutex);
    rks_free(set->last_turns);
    rks_free(set->shards);
    rks_free(set);
    return true;
}

/* With the mutex. */
static bool is_reached(const rks_arrivals *set, enum rks_arrivals_until until)
{
    for (size_t i = 0; set->whole < set->count && i < set->count; i++) {
        const rks_arriving_one *shard = &set->shards[i];
        if (shard->stage == WHOLE || (until == RKS_ARRIVALS_HEADS && shard->headed))
            continue;
        if (!shard->wish.optional || (until == RKS_ARRIVALS_ALL && shard->stage != FAILED))
            return false;
    }
    return true;
}

rks_status rks_arrivals_wait(rks_arrivals *set, enum rks_arrivals_until until, uint64_t ms,
                             bool *reached, rks_error *err)
{
    uint64_t end = rks_now_ms() + ms, now = 0;
    rks_status status = RKS_OK;
    pthread_mutex_lock(&set->mutex);
    while (status == RKS_OK && !is_reached(set, until) && (now = rks_now_ms()) < end) {
        uint64_t left = end - now;
        rks_cond_wait_ms(&set->progress, &set->mutex,
                         left < RKS_WAIT_SLICE_MS ? left : RKS_WAIT_SLICE_MS);
        status = set->status;
        if (status != RKS_OK && err != NULL)
            *err = set->error;
        pthread_mutex_unlock(&set->mutex);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
        pthread_mutex_lock(&set->mutex);
    }
    *reached = is_reached(set, until);
    pthread_mutex_unlock(&set->mutex);
    return status;
}

rks_arrival *rks_arrivals_get(rks_arrivals *set, size_t shard)
{
    pthread_mutex_lock(&set->mutex);
    const rks_arriving_one *one = &set->shards[shard];
    rks_arrival *arrival = one->stage == ARRIVING || one->stage == FINISHING ? one->arrival : NULL;
    pthread_mutex_unlock(&set->mutex);
    return arrival;
}

void rks_arrivals_counted(rks_arrivals *set, rks_arrivals_count *count)
{
    *count = (rks_arrivals_count){0};
    pthread_mutex_lock(&set->mutex);
    for (size_t i = 0; i < set->count; i++) {
        const rks_arriving_one *shard = &set->shards[i];
        count->bytes += shard->file_size;
        if (shard->stage == ARRIVING)
            count->here += rks_pieces_bytes(rks_arrival_pieces(shard->arrival));
        else
            count->here += shard->stage == OPENING ? 0 : shard->file_size;
    }
    count->brought = set->brought;
    count->whole = set->whole;
    count->failed = set->failed;
    count->records = set->records;
    pthread_mutex_unlock(&set->mutex);
}

void rks_arrivals_need(rks_arrivals *set, rks_need *need)
{
    pthread_mutex_lock(&set->mutex);
    const rks_arriving_one *shard = &set->shards[need->shard];
    rks_error why = set->over ? set->error : shard->stage == FAILED ? shard->error : (rks_error){0};
    bool ends = why.status != RKS_OK || is_here(set, need);
    if (!ends) {
        queue_need(set, need);
        pthread_cond_signal(&set->work);
    }
    pthread_mutex_unlock(&set->mutex);
    if (ends)
        need->here(need, false, &why);
}
