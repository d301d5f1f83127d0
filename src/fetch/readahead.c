/* SPDX-License-Identifier: Apache-2.0
 *
 * readahead.c: a ring of ids, and the threads that read their records.
 *
 * Ids are counted from the first one pushed. Those in [0, started) are being fetched or were. For
 * those in [started, asked) the disk has been asked; for [asked, claimed) it is being asked;
 * [claimed, pushed) wait. The threads claim window after window while the bytes of [started,
 * claimed) are below the limit. One thread at a time finds a window. Several ask for theirs at
 * once, since each request to the disk costs its thread some 10 us and a disk answers more than
 * 100,000 a second.
 *
 * Windows that follow each other in a file are a stream. One thread reads it, and the system itself
 * reads ahead of that thread, in large pages. A fetch that is too early waits for the thread. If it
 * asked for its own samples, they would come in small pages, at twice the processor time. */
#include "fetch/readahead.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/guarded_map.h"
#include "base/memory.h"
#include "base/thread.h"
#include "fetch/fetcher.h"

enum {
    RING_LEAST = 1 << 16,
    WINDOW_IDS = 256,
    WINDOW_BYTES = 4 << 20,
    WINDOWS = 1024,
    THREADS = 4
};

static const uint64_t DEFAULT_BYTES = (uint64_t)32 << 20;
static const uint64_t IDLE = UINT64_MAX;

/* A claimed window: the ids before `end`. */
typedef struct window {
    uint64_t end, bytes;
} window;

typedef struct reader_thread {
    rks_readahead *ahead;
    pthread_t thread;
    uint64_t from; /* first id of its window, or IDLE; guarded by mutex */
    rks_range all[WINDOW_IDS], missing[WINDOW_IDS];
    rks_disk_window window;        /* uses these two arrays */
    uint64_t bytes, missing_bytes; /* of the pages that hold the records */
} reader_thread;

struct rks_readahead {
    rks_readahead_options options;
    uint64_t page;
    atomic_int references; /* its owner's, and one for each list */
    reader_thread *threads[THREADS];
    size_t running; /* used only by the caller: number of threads */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the threads */
    pthread_cond_t idle; /* for rks_readahead_settle */
    pthread_cond_t read; /* for fetches that wait for a stream */
    /* guarded by mutex */
    uint32_t *ids; /* id number i at i % room */
    size_t room;
    uint64_t pushed, claimed, started;
    uint64_t lost_until;     /* pages of earlier ids may be lost, since max_bytes has shrunk */
    bool last, finding;      /* finding: a thread finds a window, or reads one of a stream */
    bool streaming;          /* the window claimed last follows the previous one */
    size_t asking;           /* threads that ask for a window */
    window windows[WINDOWS]; /* a ring of windows not started yet */
    size_t first_window, window_count;
    uint64_t bytes; /* of `windows` */
    /* used by the thread that has set `finding` */
    uint32_t taken[WINDOW_IDS];
    rks_disk_stream stream;
};

/* Returns the end of the ids that have been asked for. The mutex must be held. */
static uint64_t asked(const rks_readahead *ahead)
{
    uint64_t first = ahead->claimed;
    for (size_t i = 0; i < THREADS && ahead->asking > 0; i++)
        if (ahead->threads[i] != NULL && ahead->threads[i]->from < first)
            first = ahead->threads[i]->from;
    return first;
}

/* ---- the threads --------------------------------------------------------------------------- */

/* Returns true if a window is worth claiming: there are many ids, the last ones, or ids that are
 * already being fetched. The mutex must be held. */
static bool has_work(const rks_readahead *ahead)
{
    uint64_t waiting = ahead->pushed - ahead->claimed;
    if (waiting == 0 || ahead->finding || ahead->window_count == WINDOWS)
        return false;
    if (ahead->claimed < ahead->started)
        return true;
    if (ahead->bytes >= ahead->options.max_bytes)
        return false;
    return waiting >= WINDOW_IDS || ahead->last || ahead->claimed - ahead->started < WINDOW_IDS;
}

/* Finds the records of a window. Returns how many of the ids the window has. The mutex must not be
 * held. */
static size_t find_window(rks_readahead *ahead, reader_thread *by, size_t count)
{
    const rks_disk_reader *disk = &ahead->options.fetcher->disk;
    size_t i = 0;
    rks_guarded_map_renew(); /* locate reads the map */
    for (; i < count && by->bytes < WINDOW_BYTES; i++) {
        uint32_t shard = 0;
        uint64_t row = 0;
        size_t missing = by->window.missing_count;
        if (!ahead->options.locate(ahead->options.user, ahead->taken[i], &shard, &row))
            continue;
        const rks_range *range = rks_disk_window_add(disk, &by->window, shard, row);
        if (range == NULL)
            continue;
        uint64_t pages = (range->end - 1) / ahead->page - range->first / ahead->page + 1;
        by->bytes += pages * ahead->page;
        if (by->window.missing_count > missing)
            by->missing_bytes += pages * ahead->page;
    }
    return i;
}

/* Claims a window of `count` ids from `first` on, with this many bytes. Returns false if a fetch
 * has taken all of them over. The mutex must be held. */
static bool claim_window(rks_readahead *ahead, reader_thread *by, uint64_t first, size_t count,
                         uint64_t bytes)
{
    if (first + count <= ahead->claimed)
        return false;
    ahead->claimed = first + count;
    by->from = first;
    ahead->asking++;
    if (ahead->claimed > ahead->started) {
        size_t at = (ahead->first_window + ahead->window_count++) % WINDOWS;
        ahead->windows[at] = (window){ahead->claimed, bytes};
        ahead->bytes += bytes;
    }
    return true;
}

/* Finds and reads a window. The mutex must be held; it is released while reading. */
static void read_window(rks_readahead *ahead, reader_thread *by)
{
    rks_disk_reader *disk = &ahead->options.fetcher->disk;
    uint64_t first = ahead->claimed, waiting = ahead->pushed - first;
    bool follows = false;
    size_t count = waiting < WINDOW_IDS ? (size_t)waiting : WINDOW_IDS;
    by->window = (rks_disk_window){.all = by->all, .missing = by->missing};
    by->bytes = by->missing_bytes = 0;
    for (size_t i = 0; i < count; i++)
        ahead->taken[i] = ahead->ids[(first + i) % ahead->room];
    ahead->finding = true;
    pthread_mutex_unlock(&ahead->mutex);
    if (!rks_disk_reader_scan(disk, &ahead->stop)) {
        count = find_window(ahead, by, count);
        follows = rks_disk_stream_follows(&ahead->stream, &by->window, ahead->options.readers);
    }
    pthread_mutex_lock(&ahead->mutex);
    ahead->finding = false;
    if (!claim_window(ahead, by, first, count, follows ? by->bytes : by->missing_bytes))
        return;
    ahead->streaming = follows;
    ahead->finding = follows; /* the stream stays with this thread until the window is read */
    if (has_work(ahead))      /* another thread continues after this window */
        pthread_cond_signal(&ahead->work);
    pthread_mutex_unlock(&ahead->mutex);
    if (follows)
        rks_disk_reader_stream(disk, &ahead->stream, by->all, &ahead->stop);
    else
        rks_disk_reader_ask(disk, by->missing, by->window.missing_count, &ahead->stop);
    pthread_mutex_lock(&ahead->mutex);
    if (follows)
        ahead->finding = false;
    by->from = IDLE;
    ahead->asking--;
    pthread_cond_broadcast(&ahead->read);
}

static void *reader_main(void *user)
{
    reader_thread *by = user;
    rks_readahead *ahead = by->ahead;
    pthread_mutex_lock(&ahead->mutex);
    while (!atomic_load(&ahead->stop)) {
        if (has_work(ahead)) {
            read_window(ahead, by);
            continue;
        }
        pthread_cond_broadcast(&ahead->idle);
        pthread_cond_wait(&ahead->work, &ahead->mutex);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return NULL;
}

/* ---- the caller ----------------------------------------------------------------------------- */

rks_status rks_readahead_open(const rks_readahead_options *options, rks_readahead **ahead,
                              rks_error *err)
{
    rks_readahead *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->options = *options;
    if (made->options.max_bytes == 0)
        made->options.max_bytes = DEFAULT_BYTES;
    if (made->options.readers == 0)
        made->options.readers = 1;
    made->page = (uint64_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->work, NULL);
    pthread_cond_init(&made->idle, NULL);
    pthread_cond_init(&made->read, NULL);
    atomic_init(&made->references, 1);
    *ahead = made;
    return RKS_OK;
}

void rks_readahead_release(rks_readahead *ahead)
{
    if (ahead == NULL || atomic_fetch_sub(&ahead->references, 1) != 1)
        return;
    pthread_cond_destroy(&ahead->read);
    pthread_cond_destroy(&ahead->idle);
    pthread_cond_destroy(&ahead->work);
    pthread_mutex_destroy(&ahead->mutex);
    rks_resident_stream_end(&ahead->stream.file);
    for (size_t i = 0; i < THREADS; i++)
        rks_free(ahead->threads[i]);
    rks_free(ahead->ids);
    rks_free(ahead);
}

void rks_readahead_close(rks_readahead *ahead)
{
    if (ahead == NULL)
        return;
    pthread_mutex_lock(&ahead->mutex);
    atomic_store(&ahead->stop, true);
    pthread_cond_broadcast(&ahead->work);
    pthread_cond_broadcast(&ahead->read);
    pthread_mutex_unlock(&ahead->mutex);
    rks_fetcher *fetcher = ahead->options.fetcher;
    for (; ahead->running > 0; ahead->running--) {
        if (rks_thread_join_within(ahead->threads[ahead->running - 1]->thread,
                                   rks_fetcher_close_ms(fetcher)))
            continue;
        atomic_fetch_add(&ahead->references, 1); /* the thread's, which never comes back */
        atomic_fetch_add(&fetcher->references, 1);
    }
    rks_readahead_release(ahead);
}

bool rks_readahead_claim(rks_readahead *ahead, uint64_t end, size_t count)
{
    pthread_mutex_lock(&ahead->mutex);
    while (ahead->streaming && asked(ahead) < end && !atomic_load(&ahead->stop))
        pthread_cond_wait(&ahead->read, &ahead->mutex);
    bool taken = asked(ahead) < end;
    if (taken && ahead->claimed < end && /* otherwise the threads still read earlier ids */
        ahead->claimed >= end - count)
        ahead->claimed = end;
    pthread_mutex_unlock(&ahead->mutex);
    return taken;
}

void rks_readahead_lost(rks_readahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    if (ahead->options.max_bytes > WINDOW_BYTES && ahead->started >= ahead->lost_until) {
        ahead->options.max_bytes /= 2;
        ahead->lost_until = ahead->claimed; /* later ids are read with the smaller limit */
    }
    pthread_mutex_unlock(&ahead->mutex);
}

bool rks_readahead_wants(rks_readahead *ahead)
{
    if (rks_disk_reader_is_warm(&ahead->options.fetcher->disk))
        return false;
    pthread_mutex_lock(&ahead->mutex);
    bool wants = ahead->room == 0 || ahead->pushed - ahead->started < ahead->room / 2;
    pthread_mutex_unlock(&ahead->mutex);
    return wants;
}

/* Makes room for `count` more ids; moves those not claimed yet. The mutex must be held. */
static bool make_ring(rks_readahead *ahead, size_t count)
{
    uint64_t waiting = ahead->pushed - ahead->claimed;
    size_t room = ahead->room < RING_LEAST ? RING_LEAST : ahead->room;
    if (waiting + count <= ahead->room)
        return true;
    while (room < waiting + count)
        room *= 2;
    uint32_t *ids = rks_alloc_raw(room, sizeof(*ids), NULL);
    if (ids == NULL)
        return false;
    for (uint64_t i = ahead->claimed; i < ahead->pushed; i++)
        ids[i % room] = ahead->ids[i % ahead->room];
    rks_free(ahead->ids);
    ahead->ids = ids;
    ahead->room = room;
    return true;
}

/* Starts more threads if there are windows for them. Returns false if there is no thread at all.
 * The mutex must be held. */
static bool have_threads(rks_readahead *ahead)
{
    uint64_t waiting = ahead->pushed - ahead->claimed;
    while (ahead->running < THREADS &&
           (ahead->running == 0 || waiting > ahead->running * WINDOW_IDS)) {
        reader_thread *made = rks_alloc(1, sizeof(*made), NULL);
        if (made == NULL)
            break;
        *made = (reader_thread){.ahead = ahead, .from = IDLE};
        if (rks_thread_start_reader(&made->thread, reader_main, made) != 0) {
            rks_free(made);
            break;
        }
        ahead->threads[ahead->running++] = made;
    }
    return ahead->running > 0;
}

bool rks_readahead_push(rks_readahead *ahead, const uint32_t *ids, size_t count, bool last)
{
    pthread_mutex_lock(&ahead->mutex);
    bool taken = make_ring(ahead, count);
    if (taken) {
        size_t at = (size_t)(ahead->pushed % ahead->room), head = ahead->room - at;
        head = head < count ? head : count;
        memcpy(ahead->ids + at, ids, head * sizeof(*ids));
        memcpy(ahead->ids, ids + head, (count - head) * sizeof(*ids));
        ahead->pushed += count;
        ahead->last = last;
        taken = have_threads(ahead);
        if (has_work(ahead))
            pthread_cond_signal(&ahead->work);
    }
    pthread_mutex_unlock(&ahead->mutex);
    return taken;
}

void rks_readahead_started(rks_readahead *ahead, size_t count, rks_request_list *list)
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

uint64_t rks_readahead_settle(rks_readahead *ahead)
{
    pthread_mutex_lock(&ahead->mutex);
    while (ahead->running > 0 && (ahead->finding || ahead->asking > 0 || has_work(ahead)))
        pthread_cond_wait(&ahead->idle, &ahead->mutex);
    uint64_t bytes = ahead->bytes;
    pthread_mutex_unlock(&ahead->mutex);
    return bytes;
}
