/* SPDX-License-Identifier: Apache-2.0
 *
 * stored_range.c: fetches ranges, and keeps them. */
#include "ingest/stored_range.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

/* ---- room ------------------------------------------------------------------------------------ */

static void give_room(rks_stores *stores, uint64_t taken)
{
    pthread_mutex_lock(&stores->mutex);
    stores->left += (int64_t)taken;
    pthread_mutex_unlock(&stores->mutex);
}

/* Takes a kept range whose bytes have come out of the list: the one that was kept last. Called with
 * the mutex. NULL: there is none. */
static rks_stored_range *take_any(rks_stores *stores)
{
    for (rks_stored_range **at = &stores->kept; *at != NULL; at = &(*at)->next) {
        rks_stored_range *one = *at;
        pthread_mutex_lock(&one->mutex);
        bool ended = one->ended;
        pthread_mutex_unlock(&one->mutex);
        if (!ended)
            continue;
        *at = one->next;
        stores->kept_bytes -= one->end - one->first;
        return one;
    }
    return NULL;
}

/* Takes as much of what is left as is wanted, but at least RKS_RANGE_LEAST, also if nothing is
 * left. What is kept makes room. */
static uint64_t take_room(rks_stores *stores, uint64_t wanted)
{
    rks_stored_range *leaves = NULL;
    do {
        rks_range_drop(leaves);
        pthread_mutex_lock(&stores->mutex);
        leaves = stores->left < (int64_t)wanted ? take_any(stores) : NULL;
        if (leaves == NULL) {
            uint64_t left = stores->left > 0 ? (uint64_t)stores->left : 0;
            wanted = left < wanted ? left : wanted;
            wanted = wanted < RKS_RANGE_LEAST ? RKS_RANGE_LEAST : wanted;
            stores->left -= (int64_t)wanted;
        }
        pthread_mutex_unlock(&stores->mutex);
    } while (leaves != NULL);
    return wanted;
}

/* Takes all of it, or nothing. */
static bool take_free_room(rks_stores *stores, uint64_t wanted)
{
    pthread_mutex_lock(&stores->mutex);
    bool fits = stores->left >= (int64_t)wanted;
    stores->left -= fits ? (int64_t)wanted : 0;
    pthread_mutex_unlock(&stores->mutex);
    return fits;
}

/* ---- a range --------------------------------------------------------------------------------- */

/* Makes a range for which `room` was taken. */
static rks_status make_range(rks_stored_root *root, const rks_input_file *file, uint64_t first,
                             uint64_t size, uint64_t room, rks_stored_range **range, rks_error *err)
{
    rks_stored_range *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL) {
        give_room(root->all, room);
        return RKS_ERR_MEMORY;
    }
    made->root = root;
    made->room = room;
    made->first = first;
    made->end = first + size;
    strcpy(made->version, file->version);
    int code = pthread_mutex_init(&made->mutex, NULL);
    if (code == 0 && (code = rks_cond_init(&made->changed)) != 0)
        pthread_mutex_destroy(&made->mutex);
    if (code != 0) {
        give_room(root->all, room);
        rks_free(made);
        return rks_fail_errno(err, code, "%s: preparing to read", file->path);
    }
    made->path = rks_strdup(file->path, err);
    made->bytes = rks_alloc_raw((size_t)size, 1, err);
    if (made->path == NULL || made->bytes == NULL) {
        rks_range_drop(made);
        return RKS_ERR_MEMORY;
    }
    *range = made;
    return RKS_OK;
}

rks_status rks_range_make(rks_stored_root *root, const rks_input_file *file, uint64_t first,
                          uint64_t size, rks_stored_range **range, rks_error *err)
{
    const uint64_t left = file->size - first;
    size = size < left ? size : left;
    uint64_t room = take_room(root->all, 2 * size);
    return make_range(root, file, first, room / 2 < size ? room / 2 : size, room, range, err);
}

/* The request holds no bytes any more, and whoever waits may have them. */
static void end_fetch(rks_stored_range *range)
{
    uint64_t half = range->room / 2;
    range->room -= half;
    give_room(range->root->all, half);
    pthread_mutex_lock(&range->mutex);
    range->ended = true;
    pthread_cond_signal(&range->changed);
    pthread_mutex_unlock(&range->mutex);
}

static rks_status fetch(rks_stored_range *range, rks_error *err)
{
    rks_error why = {0};
    const char *name = range->path + strlen(range->root->url) + 1;
    rks_status status = rks_home_fetch(range->root->home, name, range->first, range->end,
                                       range->bytes, range->version, &why);
    if (status == RKS_ERR_STATE || status == RKS_ERR_CORRUPT)
        return rks_fail(err, RKS_ERR_DATA, why.cause, "%s: changed during the build: %s",
                        range->path, why.text);
    if (status != RKS_OK && err != NULL)
        *err = why;
    return status;
}

rks_status rks_range_fetch(rks_stored_range *range, rks_error *err)
{
    rks_status status = fetch(range, err);
    end_fetch(range);
    return status;
}

static void *range_main(void *user)
{
    rks_stored_range *range = user;
    rks_interrupt_from(&range->stop);
    range->status = fetch(range, &range->err);
    end_fetch(range);
    return NULL;
}

bool rks_range_start(rks_stored_range *range)
{
    range->threaded = rks_thread_start(&range->thread, range_main, range) == 0;
    return range->threaded;
}

rks_status rks_range_wait(rks_stored_range *range, rks_error *err)
{
    rks_status status = RKS_OK;
    pthread_mutex_lock(&range->mutex);
    while (status == RKS_OK && range->threaded && !range->ended) {
        rks_cond_wait_ms(&range->changed, &range->mutex, RKS_WAIT_SLICE_MS);
        pthread_mutex_unlock(&range->mutex);
        status = rks_check_interrupt(err);
        pthread_mutex_lock(&range->mutex);
    }
    pthread_mutex_unlock(&range->mutex);
    if (status == RKS_OK && range->status != RKS_OK && err != NULL)
        *err = range->err;
    return status == RKS_OK ? range->status : status;
}

void rks_range_drop(rks_stored_range *range)
{
    if (range == NULL)
        return;
    range->stop = true;
    if (range->threaded)
        pthread_join(range->thread, NULL);
    give_room(range->root->all, range->room);
    pthread_cond_destroy(&range->changed);
    pthread_mutex_destroy(&range->mutex);
    rks_free(range->bytes);
    rks_free(range->path);
    rks_free(range);
}

/* ---- kept ranges ----------------------------------------------------------------------------- */

void rks_range_keep(rks_stored_range *range)
{
    if (range == NULL)
        return;
    rks_stores *stores = range->root->all;
    uint64_t size = range->end - range->first;
    pthread_mutex_lock(&stores->mutex);
    bool fits = stores->kept_bytes + size <= stores->input_bytes / 2;
    if (fits) {
        stores->kept_bytes += size;
        range->next = stores->kept;
        stores->kept = range;
    }
    pthread_mutex_unlock(&stores->mutex);
    if (!fits)
        rks_range_drop(range);
}

/* Called with the mutex. Returns where the list names it, or NULL. */
static rks_stored_range **find_kept(const rks_stored_root *root, const rks_input_file *file,
                                    uint64_t first)
{
    for (rks_stored_range **at = &root->all->kept; *at != NULL; at = &(*at)->next)
        if ((*at)->first == first && (*at)->root == root && strcmp((*at)->path, file->path) == 0)
            return at;
    return NULL;
}

rks_stored_range *rks_range_take(const rks_stored_root *root, const rks_input_file *file,
                                 uint64_t first)
{
    rks_stores *stores = root->all;
    pthread_mutex_lock(&stores->mutex);
    rks_stored_range **at = find_kept(root, file, first), *taken = at == NULL ? NULL : *at;
    if (taken != NULL) {
        *at = taken->next;
        taken->next = NULL;
        stores->kept_bytes -= taken->end - taken->first;
    }
    pthread_mutex_unlock(&stores->mutex);
    return taken;
}

bool rks_range_is_kept(const rks_stored_root *root, const rks_input_file *file, uint64_t first)
{
    pthread_mutex_lock(&root->all->mutex);
    bool is_kept = find_kept(root, file, first) != NULL;
    pthread_mutex_unlock(&root->all->mutex);
    return is_kept;
}

void rks_range_ahead(rks_stored_root *root, const rks_input_file *file, uint64_t first,
                     uint64_t end)
{
    rks_stores *stores = root->all;
    rks_stored_range *range = NULL;
    rks_error ignored;
    end = end < file->size ? end : file->size;
    pthread_mutex_lock(&stores->mutex);
    for (rks_stored_range **at; (at = find_kept(root, file, first)) != NULL;)
        first = (*at)->end;
    pthread_mutex_unlock(&stores->mutex);
    if (first >= end || !take_free_room(stores, 2 * (end - first)))
        return;
    if (make_range(root, file, first, end - first, 2 * (end - first), &range, &ignored) != RKS_OK)
        return;
    if (rks_range_start(range))
        rks_range_keep(range);
    else
        rks_range_drop(range);
}

void rks_range_drop_kept(rks_stores *stores)
{
    for (rks_stored_range *one = stores->kept, *next; one != NULL; one = next) {
        next = one->next;
        one->stop = true; /* of all, before any is waited for */
    }
    for (rks_stored_range *one = stores->kept, *next; one != NULL; one = next) {
        next = one->next;
        rks_range_drop(one);
    }
    stores->kept = NULL;
    stores->kept_bytes = 0;
}
