/* SPDX-License-Identifier: Apache-2.0
 *
 * arriving.c: a list of needs, and what is called when the last of them has ended. A record's size
 * stands in its header: if that comes first, a second list asks for the rest. */
#include "fetch/arriving.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

struct row_need;

typedef struct need_group {
    atomic_size_t left; /* needs that have not ended, and one while they are made */
    pthread_mutex_t mutex;
    rks_error error; /* the first; guarded by mutex */
    rks_arriving_asker asker;
    size_t count;
    struct row_need *needs; /* `count` of them, behind this */
} need_group;

typedef struct row_need {
    rks_need need;
    rks_shard *map;
    uint64_t row;
} row_need;

static void end_need(need_group *group)
{
    if (atomic_fetch_sub(&group->left, 1) != 1)
        return;
    const rks_arriving_asker asker = group->asker;
    const rks_error error = group->error;
    pthread_mutex_destroy(&group->mutex);
    rks_free(group);
    asker.come(asker.user, &error);
}

/* Checks a record that was read alone. */
static uint64_t check_alone(const rks_need *need, const uint8_t *bytes, uint64_t size)
{
    const row_need *of = (const row_need *)need;
    return rks_shard_check_record(of->map, of->row, bytes, size);
}

static void need_ends(rks_need *need, bool alone, const rks_error *err)
{
    need_group *group = need->user;
    if (alone)
        rks_shard_note_record(((row_need *)need)->map, ((row_need *)need)->row, need->doubts);
    if (err->status != RKS_OK) {
        pthread_mutex_lock(&group->mutex);
        if (group->error.status == RKS_OK)
            group->error = *err;
        pthread_mutex_unlock(&group->mutex);
    }
    end_need(group);
}

bool rks_arriving_is_elsewhere(const rks_arriving *arriving, uint32_t shard, const rks_shard *map,
                               uint64_t row)
{
    uint64_t first, end;
    return arriving->shards[shard].beside && rks_shard_lacks(map, row, &first, &end);
}

/* Returns true if the row lacks bytes; then *need wants them. */
static bool lacks(const rks_arriving *arriving, const rks_arriving_row *row, rks_need *need)
{
    const rks_arriving_shard *shard = &arriving->shards[row->shard];
    const rks_shard *map = arriving->maps[row->shard];
    if (shard->set == NULL || map == NULL ||
        !rks_shard_lacks(map, row->row, &need->first, &need->end))
        return false;
    need->shard = shard->number;
    return true;
}

static size_t count_lacking(const rks_arriving *arriving, const rks_arriving_row *rows,
                            size_t count)
{
    rks_need need = {0};
    size_t lacked = 0;
    for (size_t i = 0; arriving->here && i < count; i++)
        lacked += lacks(arriving, &rows[i], &need);
    return lacked;
}

bool rks_arriving_lacks(const rks_arriving *arriving, const rks_arriving_row *rows, size_t count)
{
    return count_lacking(arriving, rows, count) > 0;
}

rks_status rks_arriving_want(const rks_arriving *arriving, const rks_arriving_row *rows,
                             size_t count, const rks_arriving_asker *asker, bool *lacking,
                             rks_error *err)
{
    const size_t lacked = count_lacking(arriving, rows, count);
    *lacking = false;
    if (lacked == 0)
        return RKS_OK;
    need_group *group = rks_alloc(1, sizeof(*group) + lacked * sizeof(row_need), err);
    if (group == NULL)
        return RKS_ERR_MEMORY;
    group->needs = (row_need *)(group + 1);
    pthread_mutex_init(&group->mutex, NULL);
    atomic_init(&group->left, 1);
    group->asker = *asker;
    *lacking = true;
    for (size_t i = 0; i < count && group->count < lacked; i++) {
        rks_need need = {
            .check = check_alone, .here = need_ends, .user = group, .asker = asker->rank};
        if (!lacks(arriving, &rows[i], &need)) /* it may have come by now */
            continue;
        row_need *made = &group->needs[group->count++];
        *made = (row_need){need, arriving->maps[rows[i].shard], rows[i].row};
        atomic_fetch_add(&group->left, 1);
        rks_arrivals_need(arriving->shards[rows[i].shard].set, &made->need);
    }
    end_need(group);
    return RKS_OK;
}

/* ---- waiting -----------------------------------------------------------------------------------
 */

/* Shared by the thread that waits and the arrivals: an interrupted thread leaves first. */
typedef struct waiter {
    atomic_int owners;
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool over; /* guarded by mutex, as the error */
    rks_error error;
} waiter;

static void release_waiter(waiter *w)
{
    if (atomic_fetch_sub(&w->owners, 1) != 1)
        return;
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->mutex);
    rks_free(w);
}

static void wake_waiter(void *user, const rks_error *err)
{
    waiter *w = user;
    pthread_mutex_lock(&w->mutex);
    w->over = true;
    w->error = *err;
    pthread_cond_signal(&w->ended);
    pthread_mutex_unlock(&w->mutex);
    release_waiter(w);
}

rks_status rks_arriving_must_stop(const rks_arriving *arriving, rks_error *err)
{
    return arriving == NULL || arriving->must_stop == NULL
               ? RKS_OK
               : arriving->must_stop(arriving->user, err);
}

static rks_status wait_once(const rks_arriving *arriving, waiter *w, rks_error *err)
{
    rks_status status = RKS_OK;
    pthread_mutex_lock(&w->mutex);
    while (status == RKS_OK && !w->over) {
        rks_cond_wait_ms(&w->ended, &w->mutex, RKS_WAIT_SLICE_MS);
        pthread_mutex_unlock(&w->mutex);
        status = rks_check_interrupt(err);
        if (status == RKS_OK)
            status = rks_arriving_must_stop(arriving, err);
        pthread_mutex_lock(&w->mutex);
    }
    if (status == RKS_OK && w->error.status != RKS_OK) {
        status = (rks_status)w->error.status;
        if (err != NULL)
            *err = w->error;
    }
    pthread_mutex_unlock(&w->mutex);
    return status;
}

rks_status rks_arriving_wait(const rks_arriving *arriving, const rks_arriving_row *rows,
                             size_t count, bool *waited, rks_error *err)
{
    bool lacking = arriving->here;
    rks_status status = RKS_OK;
    *waited = false;
    while (status == RKS_OK && lacking) {
        waiter *w = rks_alloc(1, sizeof(*w), err);
        if (w == NULL)
            return RKS_ERR_MEMORY;
        pthread_mutex_init(&w->mutex, NULL);
        rks_cond_init(&w->ended);
        atomic_init(&w->owners, 2);
        const rks_arriving_asker asker = {arriving->rank, wake_waiter, w};
        status = rks_arriving_want(arriving, rows, count, &asker, &lacking, err);
        *waited = *waited || lacking;
        if (status == RKS_OK && lacking)
            status = wait_once(arriving, w, err);
        else
            release_waiter(w); /* nobody will wake it */
        release_waiter(w);
    }
    return status;
}
