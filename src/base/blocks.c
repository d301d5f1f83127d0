/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.c: keeps blocks of memory for the next batch.
 *
 * An allocator returns large memory to the system as soon as it is free, and the next batch pays
 * for its pages again: a fault and a page of zeros for each 4 KiB, which costs more than receiving
 * or filling them. So a pool keeps a few blocks. A kept block serves any request that fits and
 * fills at least a quarter of it, so batches of many sizes share a few blocks, which stay in the
 * processor's cache.
 *
 * The newest blocks lie in places of their own, each of which one atomic exchange takes or fills.
 * If batches come and go steadily, the mutex and the list behind it are seldom needed. */
#include "base/blocks.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"

enum {
    KEPT_FROM = 32 << 10,   /* the allocator keeps smaller ones itself */
    KEPT_BYTES = 64 << 20,  /* of all kept blocks, unless the list's newest is larger alone */
    CLASSES_A_DOUBLING = 8, /* so at most 1/8 of a new block is unused */
    PLACES = 4,             /* places for the newest blocks */
    PLACE_BYTES = 1 << 20,  /* largest block of a place; a larger one goes into the list */
    LIST_BYTES = KEPT_BYTES - PLACES * PLACE_BYTES,
};

struct rks_blocks {
    atomic_int references;
    _Atomic(rks_block *) newest[PLACES]; /* the first is the newest */
    pthread_mutex_t mutex;
    rks_block *kept;   /* guarded by mutex: other free blocks, the newest first */
    size_t kept_bytes; /* guarded by mutex */
    atomic_int_least64_t memory, peak;
};

rks_status rks_blocks_create(rks_blocks **pool, rks_error *err)
{
    rks_blocks *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    atomic_init(&made->references, 1);
    pthread_mutex_init(&made->mutex, NULL);
    *pool = made;
    return RKS_OK;
}

void rks_blocks_hold(rks_blocks *pool)
{
    atomic_fetch_add(&pool->references, 1);
}

void rks_blocks_count(rks_blocks *pool, int64_t bytes)
{
    int64_t now = atomic_fetch_add_explicit(&pool->memory, bytes, memory_order_relaxed) + bytes;
    int64_t peak = atomic_load_explicit(&pool->peak, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak(&pool->peak, &peak, now))
        ;
    if (bytes > 0)
        rks_usage_add(RKS_MEMORY_BATCHES, (uint64_t)bytes);
    else
        rks_usage_sub(RKS_MEMORY_BATCHES, (uint64_t)-bytes);
}

static void free_list(rks_blocks *pool, rks_block *block)
{
    while (block != NULL) {
        rks_block *next = block->next;
        rks_blocks_count(pool, -(int64_t)block->bytes);
        rks_free(block);
        block = next;
    }
}

void rks_blocks_release(rks_blocks *pool)
{
    if (pool == NULL || atomic_fetch_sub(&pool->references, 1) != 1)
        return;
    free_list(pool, pool->kept);
    for (int i = 0; i < PLACES; i++)
        free_list(pool, atomic_load(&pool->newest[i]));
    pthread_mutex_destroy(&pool->mutex);
    rks_free(pool);
}

uint64_t rks_blocks_memory(const rks_blocks *pool)
{
    return (uint64_t)atomic_load(&pool->memory);
}

uint64_t rks_blocks_peak(const rks_blocks *pool)
{
    return (uint64_t)atomic_load(&pool->peak);
}

uint64_t rks_blocks_kept(rks_blocks *pool)
{
    pthread_mutex_lock(&pool->mutex);
    uint64_t bytes = pool->kept_bytes;
    pthread_mutex_unlock(&pool->mutex);
    rks_block *newest[PLACES]; /* taken out, so that no other thread frees them meanwhile */
    for (int i = 0; i < PLACES; i++) {
        newest[i] = atomic_exchange(&pool->newest[i], NULL);
        bytes += newest[i] == NULL ? 0 : newest[i]->bytes;
    }
    for (int i = PLACES; i-- > 0;)
        rks_blocks_give(pool, newest[i]);
    return bytes;
}

/* Rounds `bytes` up to a size class. */
static size_t round_to_class(size_t bytes)
{
    if (bytes < KEPT_FROM || bytes > KEPT_BYTES)
        return bytes;
    size_t step = (size_t)1 << (63 - __builtin_clzll(bytes));
    return (size_t)rks_round_up(bytes, step / CLASSES_A_DOUBLING);
}

static bool fits(const rks_block *block, size_t bytes)
{
    return block->bytes >= bytes && block->bytes / 4 < bytes;
}

/* Puts a block into the list; a full list drops its oldest. */
static void keep(rks_blocks *pool, rks_block *block);

/* Takes one of the newest blocks; NULL if none of them fits. */
static rks_block *pop_newest(rks_blocks *pool, size_t bytes)
{
    for (int i = 0; i < PLACES; i++) {
        rks_block *block = atomic_exchange(&pool->newest[i], NULL);
        if (block != NULL && fits(block, bytes))
            return block;
        if (block != NULL)
            keep(pool, block); /* the sizes have changed */
    }
    return NULL;
}

/* Takes the newest kept block that fits; NULL if there is none. Newest first, since it may still
 * lie in a cache: that is worth more than a tighter fit, and its unused part is not touched. */
static rks_block *pop_kept(rks_blocks *pool, size_t bytes)
{
    rks_block **at = &pool->kept, *found;
    pthread_mutex_lock(&pool->mutex);
    while (*at != NULL && !fits(*at, bytes))
        at = &(*at)->next;
    found = *at;
    if (found != NULL) {
        *at = found->next;
        pool->kept_bytes -= found->bytes;
    }
    pthread_mutex_unlock(&pool->mutex);
    return found;
}

rks_block *rks_blocks_take(rks_blocks *pool, size_t size, rks_error *err)
{
    size_t bytes;
    if (__builtin_add_overflow(size, sizeof(rks_block) + RKS_BLOCK_ALIGN, &bytes)) {
        rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: samples of %zu bytes", size);
        return NULL;
    }
    bytes = round_to_class(bytes);
    rks_block *block = bytes < KEPT_FROM ? NULL : pop_newest(pool, bytes);
    if (block == NULL && bytes >= KEPT_FROM)
        block = pop_kept(pool, bytes);
    if (block == NULL) {
        block = rks_alloc_raw(bytes, 1, err);
        if (block == NULL)
            return NULL;
        block->bytes = bytes;
        rks_blocks_count(pool, (int64_t)bytes);
    }
    block->next = NULL;
    block->data = (uint8_t *)rks_round_up((uint64_t)(uintptr_t)(block + 1), RKS_BLOCK_ALIGN);
    block->size = size;
    return block;
}

/* Drops the oldest blocks, which lie at the end of a full list, so that sizes that are no longer
 * requested do not stay. Returns the dropped blocks. */
static rks_block *drop_oldest(rks_blocks *pool)
{
    size_t sum = 0;
    rks_block **at = &pool->kept;
    while (*at != NULL && (sum == 0 || (sum <= LIST_BYTES && (*at)->bytes <= LIST_BYTES - sum))) {
        sum += (*at)->bytes;
        at = &(*at)->next;
    }
    rks_block *dropped = *at;
    *at = NULL;
    pool->kept_bytes = sum;
    return dropped;
}

static void keep(rks_blocks *pool, rks_block *block)
{
    pthread_mutex_lock(&pool->mutex);
    block->next = pool->kept;
    pool->kept = block;
    pool->kept_bytes += block->bytes;
    rks_block *dropped = pool->kept_bytes > LIST_BYTES ? drop_oldest(pool) : NULL;
    pthread_mutex_unlock(&pool->mutex);
    free_list(pool, dropped);
}

void rks_blocks_give(rks_blocks *pool, rks_block *block)
{
    if (block == NULL)
        return;
    block->next = NULL;
    if (block->bytes < KEPT_FROM || block->bytes > KEPT_BYTES) {
        free_list(pool, block);
        return;
    }
    for (int i = 0; block != NULL && block->bytes <= PLACE_BYTES && i < PLACES; i++)
        block = atomic_exchange(&pool->newest[i], block); /* moves the older block on */
    if (block != NULL)
        keep(pool, block);
}
