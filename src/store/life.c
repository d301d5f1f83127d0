/* SPDX-License-Identifier: Apache-2.0
 *
 * life.c: a store's end. A rank that has closed goes on serving until all have closed. Words go
 * along the group's control tree, whose connections are there and watched: no rank hears from all
 * others, and a pair of ranks that cannot reach each other delays nobody.
 *
 *   CLOSED      up, once this rank and all below it have closed
 *   ALL_CLOSED  down, from rank 0 */
#include <string.h>

#include "base/clock.h"
#include "store/store.h"

enum { LIFE_CLOSED = 1, LIFE_ALL_CLOSED = 2 };

static void say_life(const rks_store *store, uint32_t to, uint8_t note)
{
    rks_engine_note(rks_group_engine(store->group), to, rks_store_service(store, RKS_SERVICE_STORE),
                    &note, 1, NULL);
}

/* The others first: who knows it may end the store at once. */
static void take_all_closed(rks_store *store)
{
    uint32_t count = 0;
    const uint32_t *children = rks_group_children(store->group, &count);
    for (uint32_t i = 0; i < count; i++)
        say_life(store, children[i], LIFE_ALL_CLOSED);
    pthread_mutex_lock(&store->mutex);
    store->all_closed = true;
    pthread_cond_broadcast(&store->cond);
    pthread_mutex_unlock(&store->mutex);
}

/* This rank, or a child with all below it. It may be said again, in case that a word was lost: then
 * so is what followed from it. */
static void count_closed(rks_store *store, uint32_t from)
{
    uint32_t children = 0;
    int64_t parent = rks_group_parent(store->group);
    rks_group_children(store->group, &children);
    pthread_mutex_lock(&store->mutex);
    store->closed += !store->closed_by[from];
    store->closed_by[from] = true;
    bool whole = store->closed == children + 1, all = store->all_closed;
    pthread_mutex_unlock(&store->mutex);
    if (all && from != rks_group_rank(store->group))
        say_life(store, from, LIFE_ALL_CLOSED);
    else if (whole && !all && parent >= 0)
        say_life(store, (uint32_t)parent, LIFE_CLOSED);
    else if (whole && !all)
        take_all_closed(store);
}

static bool is_child(const rks_store *store, uint32_t rank)
{
    uint32_t count = 0;
    const uint32_t *children = rks_group_children(store->group, &count);
    for (uint32_t i = 0; i < count; i++)
        if (children[i] == rank)
            return true;
    return false;
}

static void on_life(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    rks_store *store = user;
    if (size != 1)
        return;
    if (body[0] == LIFE_CLOSED && is_child(store, from))
        count_closed(store, from);
    else if (body[0] == LIFE_ALL_CLOSED && rks_group_parent(store->group) == (int64_t)from)
        take_all_closed(store);
}

void rks_store_serve_life(rks_store *store)
{
    rks_engine_serve(rks_group_engine(store->group), rks_store_service(store, RKS_SERVICE_STORE),
                     NULL, on_life, store);
}

int rks_store_leave(rks_store *store, uint32_t timeout_ms)
{
    if (rks_group_size(store->group) == 1)
        return 1;
    count_closed(store, rks_group_rank(store->group));
    uint64_t until = rks_now_ms() + timeout_ms;
    pthread_mutex_lock(&store->mutex);
    while (!store->all_closed && rks_now_ms() < until && !rks_group_failed(store->group) &&
           rks_check_interrupt(NULL) == RKS_OK)
        rks_cond_wait_ms(&store->cond, &store->mutex, RKS_WAIT_SLICE_MS);
    bool all = store->all_closed;
    pthread_mutex_unlock(&store->mutex);
    return all;
}
