/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c: keeps one ring of spans for each thread. New spans replace the oldest, which are
 * counted. A new thread takes over the ring of a thread that has ended, so memory follows the most
 * threads at once. A ring's mutex is free except while a drain reads it. */
#include "base/trace.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

typedef struct ring {
    struct ring *next; /* guarded by list_mutex */
    bool taken;        /* a living thread uses it; guarded by list_mutex */
    pthread_mutex_t mutex;
    /* guarded by mutex */
    uint32_t thread;
    uint64_t count; /* added since the last drain; the ring holds the last `room` of them */
    uint32_t room;
    rks_trace_event events[];
} ring;

atomic_bool rks_trace_on;

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static ring *rings;          /* guarded by list_mutex */
static uint32_t room_wanted; /* guarded by list_mutex */
static uint32_t threads;     /* guarded by list_mutex */
static uint64_t lost;        /* spans without a ring; guarded by list_mutex */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;

/* Frees the ring when its thread ends. */
static void give_back(void *mine)
{
    pthread_mutex_lock(&list_mutex);
    ((ring *)mine)->taken = false;
    pthread_mutex_unlock(&list_mutex);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, give_back) == 0;
}

static ring *free_ring(void)
{
    for (ring *one = rings; one != NULL; one = one->next)
        if (!one->taken)
            return one;
    ring *made = rks_alloc(1, sizeof(*made) + room_wanted * sizeof(made->events[0]), NULL);
    if (made == NULL || pthread_mutex_init(&made->mutex, NULL) != 0) {
        rks_free(made);
        return NULL;
    }
    made->room = room_wanted;
    made->next = rings;
    rings = made;
    return made;
}

static ring *own_ring(void)
{
    pthread_once(&once, make_key);
    ring *mine = key_made ? pthread_getspecific(key) : NULL;
    if (mine != NULL || !key_made)
        return mine;
    pthread_mutex_lock(&list_mutex);
    mine = free_ring();
    if (mine != NULL && pthread_setspecific(key, mine) == 0) {
        mine->taken = true;
        pthread_mutex_lock(&mine->mutex);
        mine->thread = ++threads;
        pthread_mutex_unlock(&mine->mutex);
    } else {
        mine = NULL;
    }
    pthread_mutex_unlock(&list_mutex);
    return mine;
}

void rks_trace_add(uint64_t begin_ns, rks_trace_kind kind, int64_t peer, uint64_t samples,
                   uint64_t bytes)
{
    uint64_t now = rks_now_ns();
    ring *mine = own_ring();
    if (mine == NULL) {
        pthread_mutex_lock(&list_mutex);
        lost++;
        pthread_mutex_unlock(&list_mutex);
        return;
    }
    pthread_mutex_lock(&mine->mutex);
    mine->events[mine->count++ % mine->room] = (rks_trace_event){.kind = kind,
                                                                 .thread = mine->thread,
                                                                 .begin_ns = begin_ns,
                                                                 .duration_ns = now - begin_ns,
                                                                 .peer = peer,
                                                                 .samples = samples,
                                                                 .bytes = bytes};
    pthread_mutex_unlock(&mine->mutex);
}

const char *rks_trace_name(rks_trace_kind kind)
{
    static const char *const names[] = {"plan", "prefetch", "fetch", "copy", "wait", "batch"};
    return (unsigned)kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "unknown";
}

rks_status rks_trace_start(uint32_t events_a_thread, rks_error *err)
{
    uint32_t room = events_a_thread == 0 ? 65536 : events_a_thread;
    if (room > RKS_TRACE_EVENTS_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "trace: %u events a thread, at most %d", room,
                        RKS_TRACE_EVENTS_MAX);
    pthread_mutex_lock(&list_mutex);
    if (room_wanted == 0)
        room_wanted = room; /* existing rings keep their size */
    pthread_mutex_unlock(&list_mutex);
    atomic_store(&rks_trace_on, true);
    return RKS_OK;
}

void rks_trace_stop(void)
{
    atomic_store(&rks_trace_on, false);
}

/* Moves a ring's spans to `events`, which has room for all, oldest first. Returns how many. */
static size_t empty_ring(ring *one, rks_trace_event *events, uint64_t *dropped)
{
    pthread_mutex_lock(&one->mutex);
    uint64_t kept = one->count < one->room ? one->count : one->room;
    *dropped += one->count - kept;
    for (uint64_t i = 0; i < kept; i++)
        events[i] = one->events[(one->count - kept + i) % one->room];
    one->count = 0;
    pthread_mutex_unlock(&one->mutex);
    return (size_t)kept;
}

rks_status rks_trace_drain(rks_trace_event **events, size_t *count, uint64_t *dropped,
                           rks_error *err)
{
    uint64_t room = 0, gone = 0;
    size_t used = 0;
    pthread_mutex_lock(&list_mutex);
    for (ring *one = rings; one != NULL; one = one->next)
        room += one->room;
    rks_trace_event *all = rks_alloc(room, sizeof(*all), err);
    for (ring *one = rings; all != NULL && one != NULL; one = one->next)
        used += empty_ring(one, all + used, &gone);
    if (all != NULL) {
        gone += lost;
        lost = 0;
    }
    pthread_mutex_unlock(&list_mutex);
    if (all == NULL)
        return RKS_ERR_MEMORY;
    *events = all;
    *count = used;
    *dropped = gone;
    return RKS_OK;
}
