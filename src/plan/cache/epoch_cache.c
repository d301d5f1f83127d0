/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_cache.c: a plan's share of its node's epochs: which rank shows or makes an epoch, and the
 * thread that makes the next one. */
#include "plan/cache/epoch_cache_area.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "plan/plan_state.h"
#include "plan/cancellation.h"
#include "plan/batch/layout.h"

enum { AHEAD_FROM = 1 << 20, LOWER_PRIORITY = 10 };

static _Atomic(uint64_t) ahead_from;
static atomic_uint forks; /* forks that led to this process */
static pthread_once_t watches_forks = PTHREAD_ONCE_INIT;

typedef struct rks_epoch_cache {
    rks_cache_area area;
    int making;             /* its own description, for the epoch that is made ahead */
    int shown;              /* place of the current epoch; -1: none */
    uint64_t generation;    /* generation of that place */
    rks_plan_layout layout; /* layout of the current epoch */
    rks_pack pack;
    unsigned forks;
    /* The thread that makes the next epoch. */
    bool has_thread; /* to be joined */
    pthread_t thread;
    atomic_bool stop, done;
    rks_cache_maker maker;
    int place;
    uint64_t epoch;
} rks_epoch_cache;

void rks_plan_share_set(uint64_t shared, uint64_t ahead)
{
    rks_cache_shared_from(shared);
    atomic_store(&ahead_from, ahead);
}

bool rks_epoch_cache_is_mapped(const rks_plan *plan)
{
    return plan->cache != NULL && plan->cache->shown >= 0;
}

/* Drops the plan's current epoch. */
static void let_go(rks_plan *plan)
{
    rks_epoch_cache *cache = plan->cache;
    if (cache->shown < 0) {
        rks_epoch_image_clear(&plan->image);
        return;
    }
    rks_cache_lock(cache->area.options.fd, cache->shown, F_UNLCK);
    cache->shown = -1;
    plan->image.ids = plan->image.slots = plan->image.starts = plan->image.piece_places = NULL;
    plan->image.pieces = NULL;
    plan->image.pieces_shown = 0;
    plan->image.layout = NULL;
    plan->image.ready = false;
}

/* ---- the next epoch -------------------------------------------------------------------------- */

static void end_thread(rks_epoch_cache *cache)
{
    if (cache->has_thread)
        pthread_join(cache->thread, NULL);
    cache->has_thread = false;
}

static void *make_ahead(void *user)
{
    rks_epoch_cache *cache = user;
    rks_cache_place *place = &cache->area.control->places[cache->place];
    const rks_plan_watch watch = {&place->progress, &cache->stop};
    int before = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), before + LOWER_PRIORITY);
    bool lacks = false, rest_over;
    rks_error err;
    rks_plan_watch_set(&watch);
    rks_status status = rks_cache_write(&cache->maker, cache->making, place, cache->place,
                                        cache->epoch, &lacks, &rest_over, &err);
    rks_plan_watch_set(NULL);
    if (lacks) {
        cache->area.control->no_ahead = true;
        rks_log("plan: %s; epochs are not made ahead", err.text);
    }
    rks_cache_settle(&cache->area, cache->making, cache->place,
                     status == RKS_OK ? CACHE_READY : CACHE_EMPTY, F_UNLCK);
    atomic_store(&cache->done, true);
    return NULL;
}

static bool start_maker(rks_epoch_cache *cache)
{
    atomic_store(&cache->stop, false);
    atomic_store(&cache->done, false);
    cache->has_thread = rks_thread_start(&cache->thread, make_ahead, cache) == 0;
    return cache->has_thread;
}

static rks_cache_key key_of(rks_epoch_progress *progress, uint64_t epoch)
{
    rks_cache_key key = {.epoch = epoch};
    if (progress->done_count == 0 || progress->resumed_epoch != epoch)
        return key;
    uint64_t rest = 0;
    for (size_t i = 0; i < progress->done_count; i++)
        rest =
            rks_random_key(rks_random_key(rest, progress->done[i].world), progress->done[i].steps);
    for (size_t i = 0; i < progress->skip_count; i++) {
        const rks_plan_skip_range *skip = &progress->skips[i];
        const uint64_t range[] = {skip->segment, skip->first, skip->end};
        if (skip->epoch == epoch && skip->segment < progress->done_count)
            rest = rks_random_key(rest, rks_checksum64(range, sizeof(range)));
    }
    key.rest = rest | 1;
    return key;
}

/* Makes the epoch after the current one, unless another rank does, or no place is free yet: the
 * last rank that comes finds one. If that fails here, it fails again when a rank needs the
 * epoch. */
static void begin_next(rks_plan *plan, uint64_t epoch)
{
    rks_epoch_cache *cache = plan->cache;
    uint64_t from = atomic_load(&ahead_from);
    rks_cache_key key = key_of(&plan->progress, epoch + 1);
    if (cache->area.child || /* it reads a few batches, and may end at any time */
        rks_plan_kept(&plan->in) < (from == 0 ? AHEAD_FROM : from) || plan->in.config.no_shuffle ||
        cache->area.control->no_ahead || epoch == UINT64_MAX || key.rest != 0)
        return; /* the skips of a rest may change meanwhile */
    if (cache->has_thread && !atomic_load(&cache->done))
        return;
    end_thread(cache);
    const rks_cache_want want = {.key = key, .count = CACHE_EPOCHS};
    rks_cache_claimed claimed;
    if (rks_cache_claim(&cache->area, cache->making, &want, &claimed, NULL) != RKS_OK ||
        claimed.how == CACHE_NONE)
        return;
    cache->place = claimed.place;
    if (claimed.how == CACHE_THERE) {
        rks_cache_lock(cache->making, cache->place, F_UNLCK);
        return;
    }
    cache->maker = (rks_cache_maker){&plan->in, plan->progress};
    cache->epoch = epoch + 1;
    if (!start_maker(cache))
        rks_cache_settle(&cache->area, cache->making, cache->place, CACHE_EMPTY, F_UNLCK);
}

/* ---- showing --------------------------------------------------------------------------------- */

static rks_status show_place(rks_plan *plan, uint64_t epoch, int place, rks_error *err)
{
    rks_epoch_cache *cache = plan->cache;
    rks_status status = rks_cache_map(&plan->in, &plan->image, &cache->area, place, &cache->layout,
                                      &cache->pack, err);
    if (status != RKS_OK) {
        rks_cache_lock(cache->area.options.fd, place, F_UNLCK);
        return status;
    }
    cache->shown = place;
    cache->generation = cache->area.control->places[place].generation;
    plan->image.rest_over = false;
    plan->image.epoch = epoch;
    plan->image.ready = true;
    begin_next(plan, epoch);
    return RKS_OK;
}

static bool is_of_the_plan(rks_status status)
{
    return status == RKS_ERR_DATA || status == RKS_ERR_STATE;
}

/* Makes the epoch in a place that this rank has claimed. *lacks is true if memory is short, and
 * then no rank shares any more. */
static rks_status make_here(rks_plan *plan, uint64_t epoch, int place, bool *lacks, rks_error *err)
{
    rks_epoch_cache *cache = plan->cache;
    rks_cache_place *there = &cache->area.control->places[place];
    const rks_plan_watch watch = {&there->progress, NULL};
    int fd = cache->area.options.fd;
    const rks_cache_maker maker = {&plan->in, plan->progress};
    rks_error found = {0};
    rks_plan_watch_set(&watch);
    rks_status status =
        rks_cache_write(&maker, fd, there, place, epoch, lacks, &plan->image.rest_over, &found);
    rks_plan_watch_set(NULL);
    bool fails = is_of_the_plan(status);
    there->status = status;
    there->error = found;
    there->rest_over = plan->image.rest_over;
    if (*lacks)
        cache->area.control->off = true;
    rks_cache_settle(&cache->area, fd, place,
                     status == RKS_OK ? CACHE_READY
                     : fails          ? CACHE_FAILED
                                      : CACHE_EMPTY,
                     status == RKS_OK ? F_RDLCK : F_UNLCK);
    if (*lacks)
        rks_log("plan: %s; each rank of this node makes its own copy", found.text);
    if (status != RKS_OK && err != NULL)
        *err = found;
    return status;
}

rks_status rks_cache_show(rks_plan *plan, uint64_t epoch, bool *shown, rks_error *err)
{
    rks_epoch_cache *cache = plan->cache;
    const rks_cache_want want = {
        .key = key_of(&plan->progress, epoch), .count = CACHE_EPOCHS, .waits = true};
    rks_cache_claimed claimed;
    *shown = false;
    let_go(plan);
    rks_status status = rks_cache_claim(&cache->area, cache->area.options.fd, &want, &claimed, err);
    plan->image.rest_over = claimed.rest_over;
    if (status != RKS_OK || claimed.how == CACHE_NONE)
        return status;
    if (claimed.how == CACHE_MAKE) {
        bool lacks = false;
        status = make_here(plan, epoch, claimed.place, &lacks, err);
        if (lacks)
            return RKS_OK;
    }
    if (status == RKS_OK)
        status = show_place(plan, epoch, claimed.place, err);
    *shown = status == RKS_OK;
    return status;
}

/* ---- what is known of all epochs --------------------------------------------------------------
 */

/* Lays out all epochs, by one rank for all of the node. *lacks is true if memory is short to share
 * it. */
static rks_status look_for_all(rks_plan *plan, int place, bool *lacks, rks_error *err)
{
    rks_epoch_cache *cache = plan->cache;
    rks_cache_place *there = &cache->area.control->places[place];
    const rks_plan_watch watch = {&there->progress, NULL};
    rks_plan_input own = plan->in; /* its layout is made here */
    rks_epoch_image image = {0};
    rks_error found = {0};
    rks_plan_watch_set(&watch);
    rks_status status = rks_plan_lay_out(&own, &image, &found);
    if (status == RKS_OK) {
        status = rks_cache_write_layout(&own.whole, cache->area.options.fd, &there->image, &found);
        *lacks = status == RKS_ERR_IO || status == RKS_ERR_MEMORY;
    }
    rks_plan_watch_set(NULL);
    there->facts = (rks_cache_facts){.fill_most = own.fill_most,
                                     .fill_least = own.fill_least,
                                     .window_most = own.window_most,
                                     .window_least = own.window_least,
                                     .window_all = own.window_all};
    rks_plan_layout_free(&own.whole);
    rks_epoch_image_clear(&image);
    there->status = status;
    there->error = found;
    rks_cache_settle(&cache->area, cache->area.options.fd, place,
                     status == RKS_OK         ? CACHE_READY
                     : is_of_the_plan(status) ? CACHE_FAILED
                                              : CACHE_EMPTY,
                     status == RKS_OK ? F_RDLCK : F_UNLCK);
    if (status != RKS_OK && err != NULL)
        *err = found;
    return status;
}

rks_status rks_cache_lay_out(rks_plan *plan, rks_error *err)
{
    rks_epoch_cache *cache = plan->cache;
    const rks_cache_want want = {.first = CACHE_FACTS, .count = 1, .waits = true};
    rks_cache_claimed claimed = {.how = CACHE_NONE};
    bool lacks = false;
    rks_status status = rks_cache_check(plan, err);
    int fd = cache->area.options.fd; /* a child's own from here on */
    if (status == RKS_OK)
        status = rks_cache_claim(&cache->area, fd, &want, &claimed, err);
    if (status == RKS_OK && claimed.how == CACHE_MAKE)
        status = look_for_all(plan, claimed.place, &lacks, err);
    if (lacks || (status == RKS_OK && claimed.how == CACHE_NONE))
        return rks_plan_lay_out(&plan->in, &plan->image, err);
    if (status != RKS_OK)
        return status;
    const rks_cache_place *there = &cache->area.control->places[claimed.place];
    const rks_cache_facts *facts = &there->facts;
    plan->in.fill_most = facts->fill_most;
    plan->in.fill_least = facts->fill_least;
    plan->in.window_most = facts->window_most;
    plan->in.window_least = facts->window_least;
    plan->in.window_all = facts->window_all;
    status = rks_cache_read_layout(&plan->in, fd, &there->image, err);
    rks_cache_lock(fd, claimed.place, F_UNLCK);
    return status;
}

uint64_t rks_cache_digest(rks_plan *plan)
{
    rks_epoch_cache *cache = plan->cache;
    const rks_cache_want want = {.first = CACHE_DIGEST, .count = 1, .waits = true};
    rks_cache_claimed claimed = {.how = CACHE_NONE};
    bool own_locks = rks_cache_check(plan, NULL) == RKS_OK;
    int fd = cache->area.options.fd; /* a child's own from here on */
    rks_cache_area area = cache->area;
    area.deaf = true; /* this call cannot return an interrupt */
    if (!own_locks || rks_cache_claim(&area, fd, &want, &claimed, NULL) != RKS_OK)
        claimed.how = CACHE_NONE; /* the next call returns the error */
    rks_cache_facts *facts =
        claimed.how == CACHE_NONE ? NULL : &cache->area.control->places[claimed.place].facts;
    if (claimed.how == CACHE_THERE) {
        uint64_t digest = facts->digest;
        rks_cache_lock(fd, claimed.place, F_UNLCK);
        return digest;
    }
    uint64_t digest = rks_checksum64(plan->in.lengths, plan->in.count * sizeof(*plan->in.lengths));
    if (claimed.how == CACHE_MAKE) {
        facts->digest = digest;
        rks_cache_settle(&cache->area, fd, claimed.place, CACHE_READY, F_UNLCK);
    }
    return digest;
}

/* ---- open, close, fork ----------------------------------------------------------------------- */

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

rks_status rks_cache_open(rks_plan *plan, const rks_plan_share_options *options, rks_error *err)
{
    rks_epoch_cache *cache = rks_alloc(1, sizeof(*cache), err);
    if (cache == NULL)
        return RKS_ERR_MEMORY;
    rks_error why;
    cache->shown = cache->making = -1;
    pthread_once(&watches_forks, watch_forks);
    cache->forks = atomic_load(&forks);
    rks_status status = rks_cache_area_open(options, &cache->area, &why);
    if (status == RKS_OK)
        status = rks_cache_reopen(cache->area.options.fd, &cache->making, &why);
    if (status == RKS_OK) {
        plan->cache = cache;
        if (options->hold != NULL)
            options->hold(options->user);
        return RKS_OK;
    }
    rks_cache_area_close(&cache->area);
    rks_free(cache);
    if (status == RKS_ERR_CANCELLED || status == RKS_ERR_TIMEOUT || status == RKS_ERR_PEER) {
        if (err != NULL)
            *err = why;
        return status;
    }
    rks_log("plan: %s; this rank makes its own copy", why.text);
    return RKS_OK;
}

/* Opens a child's own descriptions, whose locks are its own. The parent's thread does not exist
 * here. */
static rks_status open_again(rks_plan *plan, rks_error *err)
{
    rks_epoch_cache *cache = plan->cache;
    int own = -1, making = -1;
    rks_status status = rks_cache_reopen(cache->area.options.fd, &own, err);
    if (status == RKS_OK)
        status = rks_cache_reopen(own, &making, err);
    if (status != RKS_OK) {
        if (own >= 0)
            close(own);
        return status;
    }
    close(cache->area.options.fd);
    close(cache->making);
    cache->area.options.fd = own;
    cache->making = making;
    cache->has_thread = false;
    cache->area.child = true;
    cache->forks = atomic_load(&forks);
    if (cache->shown < 0)
        return RKS_OK;
    status = rks_cache_enter(&cache->area, own, true, err);
    if (status != RKS_OK) {
        let_go(plan); /* its place may have changed */
        return status;
    }
    const rks_cache_place *place = &cache->area.control->places[cache->shown];
    bool there = place->state == CACHE_READY && place->generation == cache->generation &&
                 rks_cache_lock(own, cache->shown, F_RDLCK);
    rks_cache_leave(&cache->area, own);
    if (!there)
        let_go(plan);
    return RKS_OK;
}

rks_status rks_cache_check(rks_plan *plan, rks_error *err)
{
    return plan->cache->forks == atomic_load_explicit(&forks, memory_order_relaxed)
               ? RKS_OK
               : open_again(plan, err);
}

void rks_cache_close(rks_plan *plan)
{
    rks_epoch_cache *cache = plan->cache;
    if (cache == NULL)
        return;
    bool forked = cache->forks != atomic_load(&forks);
    atomic_store(&cache->stop, true);
    if (!forked)
        end_thread(cache);
    if (forked && cache->shown >= 0) { /* the locks are the parent's */
        plan->image.ids = plan->image.slots = plan->image.starts = plan->image.piece_places = NULL;
        plan->image.pieces = NULL;
        plan->image.layout = NULL;
    } else if (cache->shown >= 0) {
        let_go(plan);
    }
    if (cache->making >= 0)
        close(cache->making);
    if (cache->area.options.release != NULL)
        cache->area.options.release(cache->area.options.user);
    rks_cache_area_close(&cache->area);
    rks_free(cache);
    plan->cache = NULL;
}
