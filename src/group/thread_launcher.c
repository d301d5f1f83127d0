/* SPDX-License-Identifier: Apache-2.0
 *
 * thread_launcher.c: ranks that are threads of this process. They meet in shared memory and speak
 * over the transport in memory; from there on everything is as between processes. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "group/group_state.h"
#include "transport/memory_net.h"

typedef struct meeting {
    uint32_t ranks;
    rks_transport *transport;
    rks_rank_fn main_fn;
    void *user;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint32_t arrived;    /* guarded by mutex */
    uint64_t round;      /* guarded by mutex */
    bool *here;          /* by rank; guarded by mutex */
    uint8_t *records[2]; /* by parity of the round; guarded by mutex */
} meeting;

typedef struct seat {
    meeting *m;
    uint32_t rank;
    int code;
    pthread_t thread;
    bool started;
    _Atomic uint64_t ended_ms; /* when it ended; 0: it runs */
    _Atomic bool closed;       /* the group that it opened last */
} seat;

enum { PATIENCE_MS = 2000 };

/* Finds a rank that has ended. Unless `any`, only one that has not closed its group. */
static rks_status find_ended(const seat *mine, bool any, rks_error *err)
{
    const seat *all = mine - mine->rank;
    for (uint32_t rank = 0; rank < mine->m->ranks; rank++) {
        uint64_t ended_ms = atomic_load(&all[rank].ended_ms);
        if (ended_ms == 0 || rks_now_ms() < ended_ms + PATIENCE_MS ||
            (!any && atomic_load(&all[rank].closed)))
            continue;
        rks_fail(err, RKS_ERR_PEER, 0, "ended without closing its group");
        if (err != NULL)
            err->rank = (int32_t)rank;
        return RKS_ERR_PEER;
    }
    return RKS_OK;
}

/* A process's connections end with it. But a thread may return and leave its group open, which
 * continues to send signs of life, so ranks that wait for it would never stop. A rank that has
 * closed its group, for example because another one was lost, is not the cause: its neighbours know
 * the cause. */
static rks_status check_threads(void *user, rks_error *err)
{
    return find_ended(user, false, err);
}

static void close_seat(void *user)
{
    atomic_store(&((seat *)user)->closed, true);
}

static rks_status name_missing(const meeting *m, uint32_t timeout_ms, rks_error *err)
{
    for (uint32_t rank = 0; rank < m->ranks; rank++)
        if (!m->here[rank]) {
            rks_fail(err, RKS_ERR_TIMEOUT, 0, "did not come within %u ms", timeout_ms);
            if (err != NULL)
                err->rank = (int32_t)rank;
            break;
        }
    return RKS_ERR_TIMEOUT;
}

static rks_status gather_threads(void *user, const void *record, size_t size, void *all,
                                 uint32_t timeout_ms, rks_error *err)
{
    seat *s = user;
    meeting *m = s->m;
    uint64_t until = rks_now_ms() + timeout_ms;
    rks_status status = RKS_OK;
    if (size > RKS_RECORD_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a record of %zu bytes", size);
    atomic_store(&s->closed, false);
    pthread_mutex_lock(&m->mutex);
    uint64_t round = m->round;
    uint8_t *records = m->records[round % 2];
    memcpy(records + s->rank * size, record, size);
    m->here[s->rank] = true;
    if (++m->arrived == m->ranks) {
        m->arrived = 0;
        m->round++;
        memset(m->here, 0, m->ranks);
        pthread_cond_broadcast(&m->cond);
    }
    while (status == RKS_OK && m->round == round) {
        rks_cond_wait_ms(&m->cond, &m->mutex, RKS_WAIT_SLICE_MS);
        if (m->round == round && rks_now_ms() >= until)
            status = name_missing(m, timeout_ms, err);
        else if (m->round == round)
            status = rks_check_interrupt(err);
        if (m->round == round && status == RKS_OK)
            status = find_ended(s, true, err);
    }
    if (status == RKS_OK)
        memcpy(all, records, m->ranks * size);
    pthread_mutex_unlock(&m->mutex);
    return status;
}

static void *run_seat(void *user)
{
    seat *s = user;
    const rks_bootstrap bootstrap = {
        .struct_size = sizeof(bootstrap),
        .name = "local",
        .rank = s->rank,
        .size = s->m->ranks,
        .user = s,
        .allgather = gather_threads,
        .check = check_threads,
        .close = close_seat,
        .local_hub = s->m->transport,
    };
    s->code = s->m->main_fn(&bootstrap, s->m->user);
    atomic_store(&s->ended_ms, rks_now_ms());
    return NULL;
}

static rks_status start_ranks(meeting *m, seat *seats, rks_error *err)
{
    m->here = rks_alloc(m->ranks, sizeof(*m->here), err);
    m->records[0] = rks_alloc(m->ranks, RKS_RECORD_MAX, err);
    m->records[1] = rks_alloc(m->ranks, RKS_RECORD_MAX, err);
    if (m->here == NULL || m->records[0] == NULL || m->records[1] == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_memory_transport_create(NULL, &m->transport, err);
    for (uint32_t rank = 0; rank < m->ranks; rank++) { /* before any of them checks the others */
        seats[rank].m = m;
        seats[rank].rank = rank;
    }
    for (uint32_t rank = 0; status == RKS_OK && rank < m->ranks; rank++) {
        int error = pthread_create(&seats[rank].thread, NULL, run_seat, &seats[rank]);
        if (error != 0)
            status = rks_fail_start(err, error, "the thread of rank %u", rank);
        else
            seats[rank].started = true;
    }
    for (uint32_t rank = 0; status != RKS_OK && rank < m->ranks; rank++)
        if (!seats[rank].started) /* so that no rank waits for it */
            atomic_store(&seats[rank].ended_ms, 1);
    return status;
}

rks_status rks_launch_threads(uint32_t ranks, rks_rank_fn main_fn, void *user, int *exit_code,
                              rks_error *err)
{
    if (ranks == 0 || main_fn == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "ranks: at least one is needed");
    meeting m = {.ranks = ranks, .main_fn = main_fn, .user = user};
    seat *seats = rks_alloc(ranks, sizeof(*seats), err);
    if (seats == NULL)
        return RKS_ERR_MEMORY;
    pthread_mutex_init(&m.mutex, NULL);
    rks_cond_init(&m.cond);
    rks_status status = start_ranks(&m, seats, err);
    int code = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (!seats[rank].started)
            continue;
        pthread_join(seats[rank].thread, NULL);
        if (code == 0)
            code = seats[rank].code;
    }
    rks_memory_transport_free(m.transport);
    rks_free(m.here);
    rks_free(m.records[0]);
    rks_free(m.records[1]);
    pthread_cond_destroy(&m.cond);
    pthread_mutex_destroy(&m.mutex);
    rks_free(seats);
    if (status == RKS_OK && exit_code != NULL)
        *exit_code = code;
    return status;
}
