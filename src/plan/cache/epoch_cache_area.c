/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_cache_area.c: the memory that the ranks of a node share for a plan, and its locks. The
 * locks are on bytes of the memfd and belong to open file descriptions, so the kernel ends them
 * with their holder.
 *
 *   byte 0      control: held for some stores and loads
 *   byte 1 + i  place i: write-locked by its maker, read-locked by each rank that uses it */
#include "plan/cache/epoch_cache_area.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/shared_memory.h"

enum { SHARED_FROM = 1 << 16, NAP_FIRST_US = 50, NAP_MOST_US = 2000, WAKE_ALL = INT32_MAX };

static _Atomic(uint64_t) shared_from;

bool rks_plan_shares(uint64_t samples)
{
    uint64_t from = atomic_load(&shared_from);
    return samples >= (from == 0 ? SHARED_FROM : from);
}

void rks_cache_shared_from(uint64_t samples)
{
    atomic_store(&shared_from, samples);
}

rks_status rks_plan_share_memory(int *fd, rks_error *err)
{
    int made = -1;
    rks_status status = rks_shared_growing("the plan's epochs", &made, err);
    if (status != RKS_OK)
        return status;
    status = rks_shared_grow("the plan's epochs", made, 0, sizeof(rks_cache_control), err);
    if (status != RKS_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return RKS_OK;
}

/* ---- locks ----------------------------------------------------------------------------------- */

static bool lock_byte(int fd, off_t at, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int done;
    do
        done = fcntl(fd, F_OFD_SETLK, &lock);
    while (done != 0 && errno == EINTR);
    return done == 0;
}

bool rks_cache_lock(int fd, int place, short type)
{
    return lock_byte(fd, 1 + place, type);
}

static rks_status is_stopped(const rks_cache_area *area, bool interrupted, rks_error *err)
{
    interrupted = interrupted && !area->deaf;
    rks_status status = interrupted ? rks_check_interrupt(err) : RKS_OK;
    if (status == RKS_OK && interrupted && area->options.stopped != NULL)
        status = area->options.stopped(area->options.user, err);
    return status;
}

rks_status rks_cache_enter(const rks_cache_area *area, int fd, bool interrupted, rks_error *err)
{
    uint64_t since = rks_now_ms(), asked = since;
    long nap = NAP_FIRST_US;
    while (!lock_byte(fd, 0, F_WRLCK)) {
        if (errno != EAGAIN && errno != EACCES)
            return rks_fail_errno(err, errno, "the plan's shared memory: lock");
        struct timespec time = {.tv_nsec = nap * 1000};
        nanosleep(&time, NULL);
        nap = nap < NAP_MOST_US ? nap * 2 : nap;
        uint64_t now = rks_now_ms();
        if (now - asked < RKS_WAIT_SLICE_MS)
            continue;
        asked = now;
        rks_status status = is_stopped(area, interrupted, err);
        if (status != RKS_OK)
            return status;
        if (area->options.silence_ms > 0 && now - since >= area->options.silence_ms)
            return rks_fail(err, RKS_ERR_TIMEOUT, 0,
                            "a rank of this node has held the plan's shared memory for %u ms",
                            area->options.silence_ms);
    }
    atomic_load_explicit(&area->control->order, memory_order_acquire);
    return RKS_OK;
}

void rks_cache_leave(const rks_cache_area *area, int fd)
{
    atomic_fetch_add_explicit(&area->control->order, 1, memory_order_release);
    lock_byte(fd, 0, F_UNLCK);
}

/* ---- open and close -------------------------------------------------------------------------- */

rks_status rks_cache_reopen(int fd, int *own, rks_error *err)
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0)
        return rks_fail_errno(err, errno, "the plan's shared memory: %s", path);
    *own = opened;
    return RKS_OK;
}

static rks_status map_control(rks_cache_area *area, rks_error *err)
{
    struct stat info;
    if (fstat(area->options.fd, &info) != 0)
        return rks_fail_errno(err, errno, "the plan's shared memory");
    if (info.st_size < (off_t)sizeof(rks_cache_control))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "the plan's shared memory has %jd bytes",
                        (intmax_t)info.st_size);
    void *map = mmap(NULL, sizeof(rks_cache_control), PROT_READ | PROT_WRITE, MAP_SHARED,
                     area->options.fd, 0);
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "mapping the plan's shared memory");
    area->control = map;
    rks_status status = rks_cache_enter(area, area->options.fd, true, err);
    if (status != RKS_OK)
        return status;
    if (area->control->size == 0)
        area->control->size = sizeof(rks_cache_control);
    bool ours = area->control->size == sizeof(rks_cache_control);
    rks_cache_leave(area, area->options.fd);
    return ours ? RKS_OK
                : rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                           "the plan's shared memory belongs to another build of the library");
}

rks_status rks_cache_area_open(const rks_plan_share_options *options, rks_cache_area *area,
                               rks_error *err)
{
    *area = (rks_cache_area){.options = *options};
    area->options.fd = -1;
    rks_status status = rks_cache_reopen(options->fd, &area->options.fd, err);
    if (status == RKS_OK)
        status = map_control(area, err);
    if (status != RKS_OK)
        rks_cache_area_close(area);
    return status;
}

void rks_cache_area_close(rks_cache_area *area)
{
    for (int i = 0; i < CACHE_EPOCHS; i++)
        rks_cache_unmap(area, i);
    if (area->control != NULL)
        munmap(area->control, sizeof(*area->control));
    if (area->options.fd >= 0)
        close(area->options.fd);
    *area = (rks_cache_area){.options.fd = -1};
}

/* ---- claims ---------------------------------------------------------------------------------- */

static void wake(rks_cache_place *place)
{
    atomic_fetch_add(&place->turn, 1);
    syscall(SYS_futex, &place->turn, FUTEX_WAKE, WAKE_ALL, NULL, NULL, 0);
}

static void sleep_until_change(rks_cache_place *place, unsigned turn)
{
    struct timespec slice = {.tv_nsec = RKS_WAIT_SLICE_MS * 1000000L};
    syscall(SYS_futex, &place->turn, FUTEX_WAIT, turn, &slice, NULL, 0);
}

static rks_status say_dead(const rks_cache_control *control, rks_error *err)
{
    rks_status status = rks_fail(err, RKS_ERR_PEER, 0,
                                 "rank %u ended while it made epoch %" PRIu64
                                 " of the plan for the ranks of its node",
                                 control->dead, control->dead_epoch);
    if (err != NULL)
        err->rank = (int32_t)control->dead;
    return status;
}

/* Marks a maker dead: its lock is free, and it has not settled its place. */
static void mark_dead(rks_cache_control *control, rks_cache_place *place)
{
    control->has_dead = true;
    control->dead = place->maker;
    control->dead_epoch = place->key.epoch;
    for (size_t i = 0; i < CACHE_PLACES; i++)
        wake(&control->places[i]);
}

/* Chooses a place that no rank uses: an empty one, or that of the oldest epoch. Returns -1 if there
 * is none. */
static int choose(const rks_cache_area *area, int fd, const rks_cache_want *want)
{
    rks_cache_place *places = area->control->places;
    int best = -1;
    for (int i = want->first; i < want->first + want->count; i++) {
        bool is_free = places[i].state == CACHE_EMPTY || places[i].state == CACHE_FAILED;
        if (places[i].state == CACHE_MAKING)
            continue;
        if (!rks_cache_lock(fd, i, F_WRLCK))
            continue;
        bool better = best < 0 || is_free || places[i].key.epoch < places[best].key.epoch;
        if (best >= 0)
            rks_cache_lock(fd, better ? best : i, F_UNLCK);
        best = better ? i : best;
        if (is_free)
            break;
    }
    return best;
}

/* Returns the place of the key, or -1. */
static int find_place(const rks_cache_control *control, const rks_cache_want *want)
{
    for (int i = want->first; i < want->first + want->count; i++)
        if (control->places[i].state != CACHE_EMPTY &&
            control->places[i].key.epoch == want->key.epoch &&
            control->places[i].key.rest == want->key.rest)
            return i;
    return -1;
}

/* Frees the places of makers that died. Fails if the job cannot go on without such a maker. */
static rks_status check_makers(rks_cache_control *control, int fd, const rks_cache_want *want,
                               rks_error *err)
{
    for (int i = want->first; i < want->first + want->count; i++) {
        rks_cache_place *place = &control->places[i];
        if (place->state != CACHE_MAKING || !rks_cache_lock(fd, i, F_RDLCK))
            continue;
        rks_cache_lock(fd, i, F_UNLCK);
        if (place->spare == 0) {
            mark_dead(control, place);
            return say_dead(control, err);
        }
        place->state = CACHE_EMPTY;
        wake(place);
    }
    return RKS_OK;
}

/* Returns the status that the maker left in the place, and its error in *err. */
static rks_status pass_on(const rks_cache_place *place, bool *rest_over, rks_error *err)
{
    *rest_over = place->rest_over;
    if (err != NULL)
        *err = place->error;
    return place->status;
}

static void begin_making(const rks_cache_area *area, rks_cache_place *place,
                         const rks_cache_want *want)
{
    place->state = CACHE_MAKING;
    place->key = want->key;
    place->maker = area->options.rank;
    place->spare = area->child || !want->waits;
    place->generation++;
    place->rest_over = false;
    wake(place);
}

/* A place that another rank makes, NULL if there is none; and its turn when this rank looked. */
typedef struct awaited {
    rks_cache_place *place;
    unsigned turn;
} awaited;

/* Looks once for the key, under the control lock. */
static rks_status look_locked(const rks_cache_area *area, int fd, const rks_cache_want *want,
                              rks_cache_claimed *claimed, awaited *other, rks_error *err)
{
    rks_cache_control *control = area->control;
    if (control->has_dead)
        return say_dead(control, err);
    if (control->off && want->first < CACHE_EPOCHS)
        return RKS_OK;
    rks_status status = check_makers(control, fd, want, err);
    if (status != RKS_OK)
        return status;
    int place = find_place(control, want);
    if (place >= 0) {
        rks_cache_place *there = &control->places[place];
        if (there->state == CACHE_FAILED)
            return pass_on(there, &claimed->rest_over, err);
        if (there->state == CACHE_MAKING) {
            other->place = there;
            other->turn = atomic_load(&there->turn);
        }
        if (there->state == CACHE_READY && rks_cache_lock(fd, place, F_RDLCK))
            claimed->how = CACHE_THERE;
    } else {
        place = choose(area, fd, want);
        if (place >= 0) {
            begin_making(area, &control->places[place], want);
            claimed->how = CACHE_MAKE;
        }
    }
    claimed->place = place;
    return RKS_OK;
}

static rks_status look_once(const rks_cache_area *area, int fd, const rks_cache_want *want,
                            rks_cache_claimed *claimed, awaited *other, rks_error *err)
{
    *claimed = (rks_cache_claimed){.how = CACHE_NONE, .place = -1};
    *other = (awaited){0};
    rks_status status = rks_cache_enter(area, fd, want->waits, err);
    if (status != RKS_OK)
        return status;
    status = look_locked(area, fd, want, claimed, other, err);
    rks_cache_leave(area, fd);
    return status;
}

static rks_status say_silent(const rks_cache_area *area, const rks_cache_place *place,
                             rks_error *err)
{
    rks_status status =
        rks_fail(err, RKS_ERR_TIMEOUT, 0,
                 "rank %u has not gone on with epoch %" PRIu64 " of the plan for %u ms",
                 place->maker, place->key.epoch, area->options.silence_ms);
    if (err != NULL)
        err->rank = (int32_t)place->maker;
    return status;
}

rks_status rks_cache_claim(const rks_cache_area *area, int fd, const rks_cache_want *want,
                           rks_cache_claimed *claimed, rks_error *err)
{
    uint64_t heard = rks_now_ms(), progress = UINT64_MAX;
    for (;;) {
        awaited other;
        rks_status status = look_once(area, fd, want, claimed, &other, err);
        if (status != RKS_OK || other.place == NULL || !want->waits)
            return status;
        sleep_until_change(other.place, other.turn);
        status = is_stopped(area, true, err);
        if (status != RKS_OK)
            return status;
        uint64_t now = rks_now_ms(), gone = atomic_load(&other.place->progress);
        heard = gone != progress || atomic_load(&other.place->turn) != other.turn ? now : heard;
        progress = gone;
        if (area->options.silence_ms > 0 && now - heard >= area->options.silence_ms)
            return say_silent(area, other.place, err);
    }
}

void rks_cache_settle(const rks_cache_area *area, int fd, int place, enum rks_cache_state state,
                      short lock)
{
    rks_cache_place *there = &area->control->places[place];
    /* If the control lock cannot be taken, the free lock of the place shows that its maker
     * failed. */
    if (rks_cache_enter(area, fd, false, NULL) == RKS_OK) {
        there->state = state;
        rks_cache_lock(fd, place, lock);
        rks_cache_leave(area, fd);
    } else {
        rks_cache_lock(fd, place, F_UNLCK);
    }
    wake(there);
}
