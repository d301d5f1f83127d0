/* SPDX-License-Identifier: Apache-2.0
 *
 * ahead.c: a ring of ids, and the thread that reads for them.
 *
 * Ids are counted from the first one pushed: [0, started) are being fetched or were, [started,
 * asked) are on their way from the disk, [asked, pushed) wait. The thread asks window after window
 * while the bytes of [started, asked) are below the limit. */
#include "fetch/ahead.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/guarded_map.h"
#include "base/memory.h"
#include "fetch/fetcher.h"

enum { RING_LEAST = 1 << 16, WINDOW_IDS = 512, WINDOW_BYTES = 8 << 20, WINDOWS = 1024 };

static const uint64_t DEFAULT_BYTES = (uint64_t)64 << 20;

/* A window that was asked for: ids up to `end`. */
typedef struct window {
    uint64_t end, bytes;
} window;

struct rks_ahead {
    rks_ahead_options options;
    atomic_int references; /* its owner's, and one a list */
    pthread_t thread;
    bool running; /* the caller's: there is a thread */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread */
    pthread_cond_t idle; /* for rks_ahead_settle */
    /* guarded by mutex */
    uint32_t *ids; /* id number i at i % room */
    size_t room;
    uint64_t pushed, asked, started;
    bool last, settled;
    window windows[WINDOWS]; /* not started yet, a ring */
    size_t first_window, window_count;
    uint64_t bytes; /* of them */
    /* the thread's */
    uint32_t taken[WINDOW_IDS];
    rks_range ranges[WINDOW_IDS];
};

/* ---- the thread ---------------------------------------------------------------------------- */

/* The mutex is held. Worth a window: many ids, the last ones, or ids that are fetched already. */
static bool has_work(const rks_ahead *ahead)
{
    uint64_t waiting = ahead->pushed - ahead->asked;
    if (waiting == 0 || ahead->window_count == WINDOWS)
        return false;
    if (ahead->asked < ahead->started)
        return true;
    if (ahead->bytes >= ahead->options.max_bytes)
        return false;
    return waiting >= WINDOW_IDS || ahead->last || ahead->asked - ahead->started < WINDOW_IDS;
}

/* Without the mutex. How many of the ids make a window; their ranges and bytes. */
static size_t find_window(rks_ahead *ahead, size_t count, size_t *ranges, uint64_t *bytes)
{
    const rks_reads *reads = &ahead->options.fetcher->reads;
    size_t i = 0;
    rks_guarded_map_renew(); /* locators are read from the map */
    *ranges = 0;
    *bytes = 0;
    for (; i < count && *bytes < WINDOW_BYTES; i++) {
        rks_range *range = &ahead->ranges[*ranges];
        uint32_t shard = 0;
        uint64_t row = 0;
        if (!ahead->options.locate(ahead->options.user, ahead->taken[i], &shard, &row) ||
            !rks_reads_range(reads, shard, row, range))
            continue;
        *bytes += range->end - range->first;
        ++*ranges;
    }
    return i;
}

/* The mutex is held, but not while it reads. */
static void ask_window(rks_ahead *ahead)
{
    rks_reads *reads = &ahead->options.fetcher->reads;
    uint64_t first = ahead->asked, waiting = ahead->pushed - first, bytes = 0;
    size_t count = waiting < WINDOW_IDS ? (size_t)waiting : WINDOW_IDS, ranges = 0;
    for (size_t i = 0; i < count; i++)
        ahead->taken[i] = ahead->ids[(first + i) % ahead->room];
    pthread_mutex_unlock(&ahead->mutex);
    if (!rks_reads_look(reads, &ahead->stop)) {
        count = find_window(ahead, count, &ranges, &bytes);
        rks_reads_ask(reads, ahead->ranges, ranges, &ahead->stop);
    }
    pthread_mutex_lock(&ahead->mutex);
    if (first + count <= ahead->asked) /* taken over */
        return;
    ahead->asked = first + count;
    if (ahead->asked <= ahead->started)
        return;
    size_t at = (ahead->first_window + ahead->window_count++) % WINDOWS;
    ahead->windows[at] = (window){ahead->asked, bytes};
    ahead->bytes += bytes;
}

static void *ahead_main(void *user)
{
    rks_ahead *ahead = user;
    sigset_t mask; /* a locator's page that cannot be read is met here, too */
    sigfillset(&mask);
    sigdelset(&mask, SIGBUS);
    sigdelset(&mask, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_mutex_lock(&ahead->mutex);
    while (!atomic_load(&ahead->stop)) {
        if (has_work(ahead)) {
            ask_window(ahead);
            continue;
        }
        ahead->settled = true;
        pthread_cond_broadcast(&ahead->idle);
        pthread_cond_wait(&ahead->work, &ahead->mutex);
        ahead->settled = false;
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

/* ---- the caller ----------------------------------------------------------------------------- */

rks_status rks_ahead_open(const rks_ahead_options *options, rks_ahead **ahead, rks_error *err)
{
    rks_ahead *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->options = *options;
    if (made->options.max_bytes == 0)
        made->options.max_bytes = DEFAULT_BYTES;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    pthread_cond_init(&made->idle, NULL);
    atomic_init(&made->references, 1);
    *ahead = made;
    return RKS_OK;
}

void rks_ahead_release(rks_ahead *ahead)
{
    if (ahead == NULL || atomic_fetch_sub(&ahead->references, 1) != 1)
        return;
    pthread_cond_destroy(&ahead->idle);
    pthread_cond_destroy(&ahead->work);
    pthread_mutex_destroy(&ahead->mutex);
    rks_free(ahead->ids);
    rks_free(ahead);
}

void rks_ahead_close(rks_ahead *ahead)
{
    if (ahead == NULL)
        return;
    if (ahead->running) {
        pthread_mutex_lock(&ahead->mutex);
        atomic_store(&ahead->stop, true);
        pthread_cond_signal(&ahead->work);
        pthread_mutex_unlock(&ahead->mutex);
        pthread_join(ahead->thread, NULL);
    }
    rks_ahead_release(ahead);
}

bool rks_ahead_take_over(rks_ahead *ahead, uint64_t end, size_t count)
{
    pthread_mutex_lock(&ahead->mutex);
    bool taken = ahead->asked < end;
    if (taken && ahead->asked >= end - count) /* else those before them are left to the thread */
        ahead->asked = end;
    pthread_mutex_unlock(&ahead->mutex);
    return taken;
}

bool rks_ahead_wants(rks_ahead *ahead)
{
    if (rks_reads_warm(&ahead->options.fetcher->reads))
        return false;
    pthread_mutex_lock(&ahead->mutex);
    bool wants = ahead->room == 0 || ahead->pushed - ahead->started < ahead->room / 2;
    pthread_mutex_unlock(&ahead->mutex);
    return wants;
}

/* The mutex is held. Room for `count` ids more; those that are not asked for yet move. */
static bool make_ring(rks_ahead *ahead, size_t count)
{
    uint64_t waiting = ahead->pushed - ahead->asked;
    size_t room = ahead->room < RING_LEAST ? RING_LEAST : ahead->room;
    if (waiting + count <= ahead->room)
        return true;
    while (room < waiting + count)
        room *= 2;
    uint32_t *ids = rks_alloc_raw(room, sizeof(*ids), NULL);
    if (ids == NULL)
        return false;
    for (uint64_t i = ahead->asked; i < ahead->pushed; i++)
        ids[i % room] = ahead->ids[i % ahead->room];
    rks_free(ahead->ids);
    ahead->ids = ids;
    ahead->room = room;
    return true;
}

bool rks_ahead_push(rks_ahead *ahead, const uint32_t *ids, size_t count, bool last)
{
    if (!ahead->running)
        ahead->running = pthread_create(&ahead->thread, NULL, ahead_main, ahead) == 0;
    if (!ahead->running)
        return false;
    pthread_mutex_lock(&ahead->mutex);
    bool taken = make_ring(ahead, count);
    if (taken) {
        size_t at = (size_t)(ahead->pushed % ahead->room), head = ahead->room - at;
        head = head < count ? head : count;
        memcpy(ahead->ids + at, ids, head * sizeof(*ids));
        memcpy(ahead->ids, ids + head, (count - head) * sizeof(*ids));
        ahead->pushed += count;
        ahead->last = last;
        ahead->settled = false;
        if (has_work(ahead))
            pthread_cond_signal(&ahead->work);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return taken;
}

void rks_ahead_started(rks_ahead *ahead, size_t count, rks_batch *list)
{
    pthread_mutex_lock(&ahead->mutex);
    ahead->started += count;
    if (list != NULL) {
        atomic_fetch_add(&ahead->references, 1);
        list->ahead = ahead;
        list->ahead_end = ahead->started;
    }
    while (ahead->window_count > 0 && ahead->windows[ahead->first_window].end <= ahead->started) {
        ahead->bytes -= ahead->windows[ahead->first_window].bytes;
        ahead->first_window = (ahead->first_window + 1) % WINDOWS;
        ahead->window_count--;
    }
    if (has_work(ahead))
        pthread_cond_signal(&ahead->work);
    pthread_mutex_unlock(&ahead->mutex);
}

uint64_t rks_ahead_settle(rks_ahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    while (ahead->running && !(ahead->settled && !has_work(ahead)))
        pthread_cond_wait(&ahead->idle, &ahead->mutex);
    uint64_t bytes = ahead->bytes;
    pthread_mutex_unlock(&ahead->mutex);
    return bytes;
}
