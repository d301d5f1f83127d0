/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.c: memory that replies are received into and local samples are copied to.
 *
 * An allocator gives large memory back to the system as soon as it is free, and the next batch pays
 * for its pages again: a fault and a page of zeros for each 4 KiB, more than receiving them costs.
 * So a fetcher keeps a few blocks. Their sizes are rounded up to a few classes, so that a block
 * serves the next batch too, which is of about the same size. */
#include "fetch/fetcher.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "fetch/wire.h"

enum {
    KEPT_FROM = 32 << 10,   /* smaller ones the allocator keeps itself */
    KEPT_BYTES = 16 << 20,  /* of all that are kept */
    CLASSES_A_DOUBLING = 8, /* so at most 1/8 of a block is not used */
};

/* The bytes to allocate for `bytes` of use. */
static size_t round_to_class(size_t bytes)
{
    if (bytes < KEPT_FROM || bytes > KEPT_BYTES)
        return bytes;
    size_t step = (size_t)1 << (63 - __builtin_clzll(bytes));
    return (size_t)rks_round_up(bytes, step / CLASSES_A_DOUBLING);
}

/* A kept block of just this size; NULL: there is none. */
static rks_batch_block *take_kept(rks_fetcher *fetcher, size_t bytes)
{
    rks_batch_block *found = NULL;
    pthread_mutex_lock(&fetcher->kept_mutex);
    for (rks_batch_block **at = &fetcher->kept; *at != NULL; at = &(*at)->next) {
        if ((*at)->bytes != bytes)
            continue;
        found = *at;
        *at = found->next;
        fetcher->kept_bytes -= bytes;
        break;
    }
    pthread_mutex_unlock(&fetcher->kept_mutex);
    if (found != NULL)
        rks_fetcher_count_memory(fetcher, -(int64_t)bytes);
    return found;
}

rks_batch_block *rks_batch_block_create(rks_fetcher *fetcher, size_t size, rks_error *err)
{
    size_t bytes;
    if (__builtin_add_overflow(size, sizeof(rks_batch_block) + RKS_FETCH_ALIGN, &bytes)) {
        rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: samples of %zu bytes", size);
        return NULL;
    }
    bytes = round_to_class(bytes);
    rks_batch_block *block = bytes < KEPT_FROM ? NULL : take_kept(fetcher, bytes);
    if (block == NULL)
        block = rks_alloc_raw(bytes, 1, err);
    if (block == NULL)
        return NULL;
    block->next = NULL;
    block->data = (uint8_t *)rks_round_up((uint64_t)(uintptr_t)(block + 1), RKS_FETCH_ALIGN);
    block->size = size;
    block->bytes = bytes;
    return block;
}

/* Of a full store the oldest go, which lie at the end: sizes that are not asked for any more do not
 * stay. They are few. */
static rks_batch_block *drop_oldest(rks_fetcher *fetcher)
{
    size_t sum = 0;
    rks_batch_block **at = &fetcher->kept;
    while (*at != NULL && (*at)->bytes <= KEPT_BYTES - sum) {
        sum += (*at)->bytes;
        at = &(*at)->next;
    }
    rks_batch_block *dropped = *at;
    *at = NULL;
    fetcher->kept_bytes = sum;
    return dropped;
}

static void free_list(rks_fetcher *fetcher, rks_batch_block *block)
{
    while (block != NULL) {
        rks_batch_block *next = block->next;
        rks_fetcher_count_memory(fetcher, -(int64_t)block->bytes);
        rks_free(block);
        block = next;
    }
}

void rks_batch_block_free(rks_fetcher *fetcher, rks_batch_block *block)
{
    rks_batch_block *dropped = NULL;
    if (block == NULL)
        return;
    if (block->bytes < KEPT_FROM || block->bytes > KEPT_BYTES) {
        rks_free(block);
        return;
    }
    rks_fetcher_count_memory(fetcher, (int64_t)block->bytes);
    pthread_mutex_lock(&fetcher->kept_mutex);
    block->next = fetcher->kept;
    fetcher->kept = block;
    fetcher->kept_bytes += block->bytes;
    if (fetcher->kept_bytes > KEPT_BYTES)
        dropped = drop_oldest(fetcher);
    pthread_mutex_unlock(&fetcher->kept_mutex);
    free_list(fetcher, dropped);
}

void rks_batch_blocks_free_kept(rks_fetcher *fetcher)
{
    free_list(fetcher, fetcher->kept);
    fetcher->kept = NULL;
}
