/* SPDX-License-Identifier: Apache-2.0
 *
 * arenas.c: see arenas.h. There are few arenas, so they are kept in lists. */
#include "collate/arenas.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/blocks.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"

enum { LEAST_BYTES = 64 << 10 };

struct rks_arena {
    struct rks_arena *next;
    uint8_t *memory;
    size_t bytes;
    void (*done)(void *user);
    void *user;
};

struct rks_arenas {
    atomic_int references;
    pthread_mutex_t mutex;
    pthread_cond_t idle;    /* signalled when no thread is between enter and leave */
    struct rks_arena *free; /* the arena returned last comes first; this and all below: guarded by
                             * mutex */
    size_t held;            /* bytes of all arenas */
    size_t used, most_used; /* bytes that batches need, rounded as arenas are: now, and at most so
                             * far */
    size_t wanted;          /* bytes that the last batch without an arena would have needed; 0:
                             * already reported */
    unsigned entered;
    bool ended;
};

rks_status rks_arenas_create(rks_arenas **arenas, rks_error *err)
{
    rks_arenas *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&made->references, 1);
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->idle, NULL);
    *arenas = made;
    return RKS_OK;
}

void rks_arenas_hold(rks_arenas *arenas)
{
    atomic_fetch_add(&arenas->references, 1);
}

void rks_arenas_release(rks_arenas *arenas)
{
    if (arenas == NULL || atomic_fetch_sub(&arenas->references, 1) != 1)
        return;
    pthread_cond_destroy(&arenas->idle);
    pthread_mutex_destroy(&arenas->mutex);
    rks_free(arenas);
}

/* ---- which arenas there are ------------------------------------------------------------------ */

/* Returns arenas to the caller. The mutex must not be held. */
static void end_all(struct rks_arena *arena)
{
    while (arena != NULL) {
        struct rks_arena *next = arena->next;
        rks_usage_sub(RKS_MEMORY_PINNED, arena->bytes);
        arena->done(arena->user);
        rks_free(arena);
        arena = next;
    }
}

/* Removes free arenas beyond what batches needed at once, those unused for longest first. The mutex
 * must be held. */
static struct rks_arena *drop_surplus(rks_arenas *arenas)
{
    struct rks_arena *dropped = NULL;
    while (arenas->held > arenas->most_used && arenas->free != NULL) {
        struct rks_arena **last = &arenas->free;
        while ((*last)->next != NULL)
            last = &(*last)->next;
        arenas->held -= (*last)->bytes;
        (*last)->next = dropped;
        dropped = *last;
        *last = NULL;
    }
    return dropped;
}

static size_t free_bytes(const rks_arenas *arenas)
{
    size_t sum = 0;
    for (const struct rks_arena *arena = arenas->free; arena != NULL; arena = arena->next)
        sum += arena->bytes;
    return sum;
}

size_t rks_arenas_wanted(rks_arenas *arenas)
{
    pthread_mutex_lock(&arenas->mutex);
    size_t wanted = arenas->wanted, in_use = arenas->held - free_bytes(arenas);
    arenas->wanted = 0;
    if (arenas->ended || in_use >= arenas->most_used || wanted > arenas->most_used - in_use)
        wanted = 0;
    pthread_mutex_unlock(&arenas->mutex);
    return wanted;
}

rks_status rks_arenas_add(rks_arenas *arenas, void *memory, size_t bytes, void (*done)(void *user),
                          void *user, rks_error *err)
{
    if (memory == NULL || done == NULL || bytes < LEAST_BYTES)
        return rks_fail(
            err, RKS_ERR_ARGUMENT, 0,
            "arenas: an arena of %zu bytes; it has memory, %d bytes or more, and `done`", bytes,
            LEAST_BYTES);
    struct rks_arena *arena = rks_alloc(1, sizeof(*arena), err), *dropped = arena;
    if (arena == NULL)
        return RKS_ERR_MEMORY;
    *arena = (struct rks_arena){.memory = memory, .bytes = bytes, .done = done, .user = user};
    rks_usage_add(RKS_MEMORY_PINNED, bytes);
    pthread_mutex_lock(&arenas->mutex);
    if (!arenas->ended) {
        arena->next = arenas->free;
        arenas->free = arena;
        arenas->held += bytes;
        dropped = drop_surplus(arenas);
    }
    pthread_mutex_unlock(&arenas->mutex);
    end_all(dropped);
    return RKS_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Rounds up to a power of two. Returns 0 if none is large enough. */
static size_t round_up(size_t bytes)
{
    if (bytes <= LEAST_BYTES)
        return LEAST_BYTES;
    return bytes > (SIZE_MAX >> 1) + 1 ? 0 : (size_t)1 << (64 - __builtin_clzll(bytes - 1));
}

/* Takes the smallest free arena that holds `rounded` bytes and is not four times as large; a larger
 * one is kept for larger batches. The mutex must be held. */
static struct rks_arena *pop_free(rks_arenas *arenas, size_t rounded)
{
    struct rks_arena **best = NULL;
    for (struct rks_arena **at = &arenas->free; *at != NULL; at = &(*at)->next)
        if ((*at)->bytes >= rounded && (*at)->bytes / 4 < rounded &&
            (best == NULL || (*at)->bytes < (*best)->bytes))
            best = at;
    if (best == NULL)
        return NULL;
    struct rks_arena *arena = *best;
    *best = arena->next;
    arena->next = NULL;
    return arena;
}

rks_lent rks_arenas_take(rks_arenas *arenas, size_t size)
{
    rks_lent lent = {0};
    size_t bytes, rounded = 0;
    if (!__builtin_add_overflow(size, RKS_BLOCK_ALIGN, &bytes))
        rounded = round_up(bytes);
    pthread_mutex_lock(&arenas->mutex);
    if (!arenas->ended && rounded != 0 && rounded <= SIZE_MAX - arenas->used) {
        lent.counted = rounded;
        arenas->used += rounded;
        if (arenas->used > arenas->most_used)
            arenas->most_used = arenas->used;
        lent.arena = pop_free(arenas, rounded);
        if (lent.arena == NULL)
            arenas->wanted = rounded;
    }
    pthread_mutex_unlock(&arenas->mutex);
    if (lent.arena != NULL)
        lent.data =
            (uint8_t *)rks_round_up((uint64_t)(uintptr_t)lent.arena->memory, RKS_BLOCK_ALIGN);
    return lent;
}

void rks_arenas_give(rks_arenas *arenas, const rks_lent *lent)
{
    struct rks_arena *arena = lent->arena, *dropped = NULL;
    pthread_mutex_lock(&arenas->mutex);
    arenas->used -= lent->counted;
    if (arena != NULL && arenas->ended) {
        arenas->held -= arena->bytes;
        dropped = arena;
    } else if (arena != NULL) {
        arena->next = arenas->free;
        arenas->free = arena;
        dropped = drop_surplus(arenas);
    }
    pthread_mutex_unlock(&arenas->mutex);
    end_all(dropped);
}

/* ---- the end --------------------------------------------------------------------------------- */

void rks_arenas_enter(rks_arenas *arenas)
{
    if (arenas == NULL)
        return;
    pthread_mutex_lock(&arenas->mutex);
    arenas->entered++;
    pthread_mutex_unlock(&arenas->mutex);
}

void rks_arenas_leave(rks_arenas *arenas)
{
    if (arenas == NULL)
        return;
    pthread_mutex_lock(&arenas->mutex);
    if (--arenas->entered == 0)
        pthread_cond_broadcast(&arenas->idle);
    pthread_mutex_unlock(&arenas->mutex);
}

void rks_arenas_end(rks_arenas *arenas)
{
    if (arenas == NULL)
        return;
    pthread_mutex_lock(&arenas->mutex);
    arenas->ended = true;
    struct rks_arena *free_ones = arenas->free;
    arenas->held -= free_bytes(arenas);
    arenas->free = NULL;
    while (arenas->entered > 0)
        pthread_cond_wait(&arenas->idle, &arenas->mutex);
    pthread_mutex_unlock(&arenas->mutex);
    end_all(free_ones);
}

void rks_arenas_free(rks_arenas *arenas)
{
    rks_arenas_end(arenas);
    rks_arenas_release(arenas);
}
