/* SPDX-License-Identifier: Apache-2.0
 *
 * arrivals.c: one mutex guards what is dealt to whom; the work itself is done without it. */
#include "home/arrivals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "home/link_rate.h"

enum { RECORD_MOST = RKS_PIECE, RECORD_SHARE = 100 };
static const double SOON_S = 0.25; /* what comes within it is no wait */

enum stage { TO_OPEN, OPENING, ARRIVING, FINISHING, WHOLE, FAILED };

typedef struct arriving {
    rks_arrival_wish wish;
    rks_arrival *arrival; /* from ARRIVING on */
    enum stage stage;
    uint8_t *busy;      /* by piece: a thread brings it */
    size_t under_way;   /* threads that bring pieces of it */
    bool headed;        /* its head is here */
    uint64_t next;      /* where the rest goes on */
    uint64_t file_size; /* 0 until it is known */
} arriving;

/* What a thread does next. */
typedef struct job {
    arriving *shard;
    enum stage stage;      /* TO_OPEN: open it; ARRIVING: bring pieces; FINISHING: seal it */
    uint64_t first, count; /* pieces */
    rks_need *record;      /* bring this record alone; NULL: none */
} job;

typedef struct need_list {
    rks_need *first, *last;
} need_list;

struct rks_arrivals {
    pthread_mutex_t mutex;
    pthread_cond_t work, progress;
    arriving *shards;
    size_t count, whole, failed;
    rks_link_rate rate;
    uint64_t bytes, records; /* of all files; of records that were read alone */
    need_list needs;         /* in the order in which they came */
    bool paused;
    atomic_bool stop;  /* the threads end */
    rks_status status; /* the first failure */
    rks_error error;
    uint64_t brought;
    pthread_t threads[RKS_ARRIVALS_THREADS];
    size_t thread_count;
};

/* ---- needs ----------------------------------------------------------------------------------- */

static void add_need(need_list *list, rks_need *need)
{
    need->next = NULL;
    need->before = list->last;
    *(list->last == NULL ? &list->first : &list->last->next) = need;
    list->last = need;
}

static void remove_need(need_list *list, rks_need *need)
{
    *(need->before == NULL ? &list->first : &need->before->next) = need->next;
    *(need->next == NULL ? &list->last : &need->next->before) = need->before;
    need->next = need->before = NULL;
}

static bool is_here(const rks_arrivals *set, const rks_need *need)
{
    const arriving *shard = &set->shards[need->shard];
    if (shard->stage == WHOLE || shard->stage == FINISHING)
        return true;
    return shard->stage == ARRIVING &&
           rks_pieces_have(rks_arrival_pieces(shard->arrival), need->first, need->end);
}

/* Fills *why if the need's shard is a further copy that does not come. */
static bool is_lost(const rks_arrivals *set, const rks_need *need, rks_error *why)
{
    const arriving *shard = &set->shards[need->shard];
    if (shard->stage != FAILED)
        return false;
    rks_fail(why, RKS_ERR_IO, 0, "%s/%s: this further copy does not come", shard->wish.directory,
             shard->wish.name);
    return true;
}

/* Moves needs that are over from a list to `taken`: those of `shard` whose bytes are here or do not
 * come; NULL: all. */
static void take_needs(need_list *list, const rks_arrivals *set, const arriving *shard,
                       need_list *taken)
{
    for (rks_need *need = list->first, *next; need != NULL; need = next) {
        next = need->next;
        if (need->busy || (shard != NULL && (set->shards + need->shard != shard ||
                                             (shard->stage != FAILED && !is_here(set, need)))))
            continue; /* a busy one ends with its record */
        remove_need(list, need);
        add_need(taken, need);
    }
}

/* Ends needs, without the mutex. */
static void end_needs(need_list *taken, const rks_error *err)
{
    for (rks_need *need = taken->first, *next; need != NULL; need = next) {
        next = need->next;
        need->here(need, false, err);
    }
}

/* ---- choosing a job -------------------------------------------------------------------------- */

/* Returns true if the piece is to be brought, and nobody brings it. */
static bool is_free(const arriving *shard, uint64_t piece)
{
    return shard->busy[piece] == 0 &&
           rks_pieces_get(rks_arrival_pieces(shard->arrival), piece) != RKS_PIECE_HERE;
}

/* Takes up to RKS_ARRIVAL_PIECES free pieces of [first, end), from the first such one on. */
static bool take_pieces(arriving *shard, uint64_t first, uint64_t end, job *next)
{
    uint64_t count = rks_pieces_count(rks_arrival_pieces(shard->arrival));
    end = end < count ? end : count;
    while (first < end && !is_free(shard, first))
        first++;
    uint64_t taken = 0;
    while (first + taken < end && taken < RKS_ARRIVAL_PIECES && is_free(shard, first + taken))
        shard->busy[first + taken++] = 1;
    if (taken == 0)
        return false;
    shard->under_way++;
    *next = (job){shard, ARRIVING, first, taken, NULL};
    return true;
}

/* Returns true if the records that are waited for are to be read alone. */
static bool reads_records(const rks_arrivals *set)
{
    uint64_t pieces = 0, records = 0;
    if (set->records > set->bytes / RECORD_SHARE)
        return false;
    if (set->rate.bytes_per_s == 0)
        return true; /* the link is not known yet */
    for (const rks_need *need = set->needs.first; need != NULL; need = need->next) {
        pieces += RKS_PIECE;
        records += need->end - need->first;
    }
    const double slow = rks_link_rate_seconds(&set->rate, pieces);
    return slow > SOON_S && slow > 1.25 * rks_link_rate_seconds(&set->rate, records);
}

static bool take_record(rks_arrivals *set, job *next)
{
    if (set->needs.first == NULL || !reads_records(set))
        return false;
    for (rks_need *need = set->needs.first; need != NULL; need = need->next) {
        arriving *shard = &set->shards[need->shard];
        if (shard->stage != ARRIVING || need->busy || need->by_pieces || need->check == NULL ||
            need->end - need->first > RECORD_MOST)
            continue;
        need->busy = true;
        set->records += need->end - need->first;
        shard->under_way++;
        *next = (job){shard, ARRIVING, 0, 0, need};
        return true;
    }
    return false;
}

static bool take_need(rks_arrivals *set, job *next)
{
    for (const rks_need *need = set->needs.first; need != NULL; need = need->next) {
        arriving *shard = &set->shards[need->shard];
        if (need->busy)
            continue;
        if (shard->stage == TO_OPEN) {
            *next = (job){shard, TO_OPEN, 0, 0, NULL};
            return true;
        }
        if (shard->stage == ARRIVING &&
            take_pieces(shard, need->first / RKS_PIECE, (need->end - 1) / RKS_PIECE + 1, next))
            return true;
    }
    return false;
}

/* A copy of what another rank brings, or has. To begin one may wait until that is whole. */
static bool is_copy(const rks_arrival_wish *wish)
{
    return wish->optional || wish->holder != NULL;
}

/* Returns true if nothing is to come but copies. */
static bool only_copies_lack(const rks_arrivals *set)
{
    for (size_t i = 0; i < set->count; i++)
        if (!is_copy(&set->shards[i].wish) && set->shards[i].stage != WHOLE)
            return false;
    return true;
}

static bool take_opening(rks_arrivals *set, bool copies, job *next)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->shards[i].stage == TO_OPEN && is_copy(&set->shards[i].wish) == copies) {
            *next = (job){&set->shards[i], TO_OPEN, 0, 0, NULL};
            return true;
        }
    return false;
}

/* Returns true if all pieces of the shard are here, and nobody works on it. */
static bool has_all(const arriving *shard)
{
    const rks_pieces *pieces = rks_arrival_pieces(shard->arrival);
    return shard->stage == ARRIVING && shard->under_way == 0 &&
           rks_pieces_have(pieces, 0, rks_arrival_size(shard->arrival));
}

static bool take_rest(rks_arrivals *set, job *next)
{
    if (set->rate.under_way > 0 && rks_link_rate_seconds(&set->rate, set->rate.under_way) > SOON_S)
        return false;
    for (size_t i = 0; i < set->count; i++) {
        arriving *shard = &set->shards[i];
        if (shard->stage != ARRIVING)
            continue;
        if (take_pieces(shard, shard->next, UINT64_MAX, next) ||
            take_pieces(shard, 0, shard->next, next)) {
            shard->next = next->first + next->count;
            return true;
        }
        if (has_all(shard)) {
            *next = (job){shard, FINISHING, 0, 0, NULL};
            return true;
        }
    }
    return false;
}

static bool take_job(rks_arrivals *set, job *next)
{
    if (set->status != RKS_OK)
        return false;
    bool took = take_record(set, next) || take_need(set, next) || take_opening(set, false, next) ||
                (!set->paused && (take_rest(set, next) ||
                                  (only_copies_lack(set) && take_opening(set, true, next))));
    if (took && next->stage == TO_OPEN)
        next->shard->stage = OPENING;
    if (took && next->stage == FINISHING)
        next->shard->stage = FINISHING;
    return took;
}

/* ---- doing it -------------------------------------------------------------------------------- */

/* Brings a record alone. *brought stays 0 if it is not right: its pieces are brought then. */
static rks_status bring_record(rks_arrival *arrival, rks_need *need, uint8_t *room,
                               uint64_t *brought, rks_error *err)
{
    const uint64_t size = need->end - need->first;
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
    if (status == RKS_OK && !*whole && !is_copy(wish))
        status = rks_arrival_bring_head(*opened, room, brought, err);
    if (status != RKS_OK) {
        rks_arrival_close(*opened);
        *opened = NULL;
    }
    return status;
}

static rks_status do_job(const job *next, uint8_t *room, rks_arrival **opened, bool *whole,
                         uint64_t *brought, rks_error *err)
{
    arriving *shard = next->shard;
    if (next->stage == TO_OPEN)
        return open_shard(&shard->wish, room, opened, whole, brought, err);
    if (next->stage == FINISHING)
        return rks_arrival_finish(shard->arrival, err);
    if (next->record != NULL)
        return bring_record(shard->arrival, next->record, room, brought, err);
    return rks_arrival_bring(shard->arrival, next->first, next->count, room, brought, err);
}

/* With the mutex. */
static void end_opening(rks_arrivals *set, arriving *shard, rks_arrival *opened, bool whole)
{
    shard->arrival = opened;
    if (whole) {
        shard->stage = WHOLE;
        set->whole++;
        return;
    }
    shard->file_size = rks_arrival_size(opened);
    set->bytes += shard->file_size;
    shard->busy = rks_alloc((size_t)rks_pieces_count(rks_arrival_pieces(opened)), 1, &set->error);
    if (shard->busy == NULL && set->status == RKS_OK)
        set->status = RKS_ERR_MEMORY;
    shard->stage = shard->busy == NULL ? OPENING : ARRIVING;
}

/* With the mutex. */
static void end_job(rks_arrivals *set, const job *done, rks_status status, rks_arrival *opened,
                    bool whole, uint64_t brought)
{
    arriving *shard = done->shard;
    if (done->stage == TO_OPEN && status == RKS_OK)
        end_opening(set, shard, opened, whole);
    if (done->stage == ARRIVING) {
        memset(shard->busy + done->first, 0, (size_t)done->count);
        shard->under_way--;
        if (done->record == NULL)
            rks_link_rate_end(&set->rate, done->count * RKS_PIECE, brought);
    }
    if (shard->stage == ARRIVING && !shard->headed)
        shard->headed = rks_arrival_has_head(shard->arrival);
    if (done->stage == FINISHING && status == RKS_OK) {
        shard->stage = WHOLE;
        set->whole++;
    }
}

/* With the mutex. A copy that does not come is no loss. */
static void note_failure(rks_arrivals *set, arriving *shard, rks_status status,
                         const rks_error *err)
{
    if (status == RKS_ERR_CANCELLED && set->stop)
        return;
    if (shard->wish.optional) {
        if (shard->stage != FAILED && set->failed++ == 0)
            rks_log("a copy is not made: %s", err->text);
        shard->stage = FAILED;
    } else if (set->status == RKS_OK) {
        set->status = status;
        set->error = *err;
    }
}

/* With the mutex. A record that has come ends its need. One that has not is brought by pieces, or
 * ends with the set's failure. */
static void end_record(rks_arrivals *set, rks_need *need, uint64_t brought)
{
    need->busy = false;
    need->by_pieces = true;
    if (brought == 0)
        return;
    remove_need(&set->needs, need);
    pthread_mutex_unlock(&set->mutex);
    need->here(need, true, &(rks_error){0});
    pthread_mutex_lock(&set->mutex);
}

/* With the mutex, which it gives back while it works. */
static void work(rks_arrivals *set, const job *next, uint8_t *room)
{
    need_list taken = {0};
    rks_arrival *opened = NULL;
    bool whole = false;
    uint64_t brought = 0;
    rks_error err = {0};
    if (next->stage == ARRIVING && next->record == NULL)
        rks_link_rate_ask(&set->rate, next->count * RKS_PIECE);
    pthread_mutex_unlock(&set->mutex);
    rks_status status = do_job(next, room, &opened, &whole, &brought, &err);
    pthread_mutex_lock(&set->mutex);
    set->brought += brought;
    end_job(set, next, status, opened, whole, brought);
    if (status != RKS_OK)
        note_failure(set, next->shard, status, &err);
    if (next->record != NULL)
        end_record(set, next->record, brought);
    bool failed = set->status != RKS_OK;
    rks_error why = failed ? set->error : (rks_error){0};
    take_needs(&set->needs, set, failed ? NULL : next->shard, &taken);
    if (!failed && taken.first != NULL)
        (void)is_lost(set, taken.first, &why);
    pthread_cond_broadcast(&set->work);
    pthread_cond_broadcast(&set->progress);
    if (taken.first == NULL)
        return;
    pthread_mutex_unlock(&set->mutex);
    end_needs(&taken, &why);
    pthread_mutex_lock(&set->mutex);
}

static void *arrivals_main(void *user)
{
    rks_arrivals *set = user;
    rks_error err;
    uint8_t *room = rks_alloc_raw(RKS_ARRIVAL_PIECES, RKS_PIECE, &err);
    rks_interrupt_from(&set->stop); /* the caller's thread hears interrupts */
    pthread_mutex_lock(&set->mutex);
    if (room == NULL && set->status == RKS_OK) {
        set->status = RKS_ERR_MEMORY;
        set->error = err;
        pthread_cond_broadcast(&set->progress);
    }
    while (!set->stop) {
        job next;
        if (take_job(set, &next))
            work(set, &next, room);
        else
            pthread_cond_wait(&set->work, &set->mutex);
    }
    pthread_mutex_unlock(&set->mutex);
    rks_free(room);
    return NULL;
}

/* ---- the set --------------------------------------------------------------------------------- */

static rks_status start_threads(rks_arrivals *set, rks_error *err)
{
    /* One thread a shard would open them all at once; more than a piece each have nothing to do. */
    while (set->thread_count < RKS_ARRIVALS_THREADS) {
        int error = rks_thread_start(&set->threads[set->thread_count], arrivals_main, set);
        if (error != 0)
            return rks_fail_errno(err, error, "starting a thread that brings shards");
        set->thread_count++;
    }
    return RKS_OK;
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
    made->count = count;
    made->paused = paused;
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

void rks_arrivals_go(rks_arrivals *set)
{
    pthread_mutex_lock(&set->mutex);
    set->paused = false;
    pthread_cond_broadcast(&set->work);
    pthread_mutex_unlock(&set->mutex);
}

void rks_arrivals_stop(rks_arrivals *set)
{
    if (set == NULL)
        return;
    need_list taken = {0};
    pthread_mutex_lock(&set->mutex);
    set->stop = true;
    if (set->status == RKS_OK)
        set->status =
            rks_fail(&set->error, RKS_ERR_CANCELLED, 0, "closed while a shard was on its way");
    const rks_error why = set->error;
    take_needs(&set->needs, set, NULL, &taken);
    pthread_cond_broadcast(&set->work);
    pthread_mutex_unlock(&set->mutex);
    end_needs(&taken, &why);
    for (size_t i = 0; i < set->thread_count; i++)
        pthread_join(set->threads[i], NULL);
    set->thread_count = 0;
}

void rks_arrivals_close(rks_arrivals *set)
{
    if (set == NULL)
        return;
    rks_arrivals_stop(set);
    for (size_t i = 0; i < set->count; i++) {
        rks_arrival_close(set->shards[i].arrival);
        rks_free(set->shards[i].busy);
    }
    pthread_cond_destroy(&set->work);
    pthread_cond_destroy(&set->progress);
    pthread_mutex_destroy(&set->mutex);
    rks_free(set->shards);
    rks_free(set);
}

/* With the mutex. */
static bool is_reached(const rks_arrivals *set, enum rks_arrivals_until until)
{
    for (size_t i = 0; set->whole < set->count && i < set->count; i++) {
        const arriving *shard = &set->shards[i];
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
    const arriving *one = &set->shards[shard];
    rks_arrival *arrival = one->stage == ARRIVING || one->stage == FINISHING ? one->arrival : NULL;
    pthread_mutex_unlock(&set->mutex);
    return arrival;
}

void rks_arrivals_counted(rks_arrivals *set, rks_arrivals_count *count)
{
    *count = (rks_arrivals_count){0};
    pthread_mutex_lock(&set->mutex);
    for (size_t i = 0; i < set->count; i++) {
        const arriving *shard = &set->shards[i];
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
    rks_error why = set->status != RKS_OK ? set->error : (rks_error){0};
    bool ends = why.status != RKS_OK || is_lost(set, need, &why) || is_here(set, need);
    if (!ends) {
        add_need(&set->needs, need);
        pthread_cond_signal(&set->work);
    }
    pthread_mutex_unlock(&set->mutex);
    if (ends)
        need->here(need, false, &why);
}
