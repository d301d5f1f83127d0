/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.h: memory of batches and arrays, which is used again. Any number of threads. */
#ifndef RKS_BASE_BLOCKS_H
#define RKS_BASE_BLOCKS_H

#include "rankstore/base.h"

enum { RKS_BLOCK_ALIGN = 64 };

/* `data` is aligned to 64 bytes and lies in the same allocation. */
typedef struct rks_block {
    struct rks_block *next; /* for whoever has the block */
    uint8_t *data;
    size_t size;  /* of data, as asked for */
    size_t bytes; /* of the allocation */
} rks_block;

/* Who has blocks of a pool holds it, or knows of somebody who does. */
typedef struct rks_blocks rks_blocks;
rks_status rks_blocks_create(rks_blocks **pool, rks_error *err);
void rks_blocks_hold(rks_blocks *pool);
void rks_blocks_release(rks_blocks *pool); /* the last one frees it; NULL is accepted */

/* A block that holds whatever was in it before; NULL is RKS_ERR_MEMORY. */
rks_block *rks_blocks_take(rks_blocks *pool, size_t size, rks_error *err);
/* NULL is accepted. The pool keeps up to 64 MiB of large blocks. */
void rks_blocks_give(rks_blocks *pool, rks_block *block);

/* Counts memory beside the blocks; negative when it is freed. */
void rks_blocks_count(rks_blocks *pool, int64_t bytes);
/* Blocks that are in use or kept, and what was counted beside: now, and the most so far. */
uint64_t rks_blocks_memory(const rks_blocks *pool);
uint64_t rks_blocks_peak(const rks_blocks *pool);
uint64_t rks_blocks_kept(rks_blocks *pool);

#endif
