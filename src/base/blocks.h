/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.h: a pool of memory for batches and arrays, which reuses large blocks. Any thread may call
 * it. */
#ifndef RKS_BASE_BLOCKS_H
#define RKS_BASE_BLOCKS_H

#include "rankstore/base.h"

enum { RKS_BLOCK_ALIGN = 64 };

/* One block. `data` is aligned to 64 bytes and lies in the same allocation. */
typedef struct rks_block {
    struct rks_block *next; /* for the block's owner to use */
    uint8_t *data;
    size_t size;  /* of data, as requested */
    size_t bytes; /* of the whole allocation */
} rks_block;

/* A pool is reference-counted: hold it for as long as you have blocks of it. rks_blocks_create
 * gives the caller the first reference. */
typedef struct rks_blocks rks_blocks;
rks_status rks_blocks_create(rks_blocks **pool, rks_error *err);
void rks_blocks_hold(rks_blocks *pool);
void rks_blocks_release(rks_blocks *pool); /* the last release frees the pool; NULL is accepted */

/* Takes a block of at least `size` bytes; its contents are undefined. Returns NULL with
 * RKS_ERR_MEMORY in *err if memory is short. Return it with rks_blocks_give. */
rks_block *rks_blocks_take(rks_blocks *pool, size_t size, rks_error *err);
/* Returns a block to its pool, which keeps up to 64 MiB of large blocks. NULL is accepted. */
void rks_blocks_give(rks_blocks *pool, rks_block *block);

/* Adds memory that lies outside the blocks to the pool's count; negative when it is freed. */
void rks_blocks_count(rks_blocks *pool, int64_t bytes);
/* In bytes: all blocks, used or kept, plus what rks_blocks_count added (now, and the peak), and the
 * kept blocks alone. */
uint64_t rks_blocks_memory(const rks_blocks *pool);
uint64_t rks_blocks_peak(const rks_blocks *pool);
uint64_t rks_blocks_kept(rks_blocks *pool);

#endif
