/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h: the blocks of a shard and the records in them. block.c draws both. shard.h declares the
 * functions that read one record (rks_record_parse, rks_record_check, rks_key_hash). */
#ifndef RKS_SHARD_BLOCK_H
#define RKS_SHARD_BLOCK_H

#include "base/bytes.h"
#include "base/cache_line.h"
#include "base/checksum.h"
#include "shard/shard.h"

enum {
    RKS_BLOCK_HEADER = 64,
    RKS_RECORD_HEADER = 24,
    RKS_RECORD_CHECK_AT = 8,
    RKS_VALUE_IN_PAGE = 16,     /* a value above LMDB's in-page limit starts here in its page */
    RKS_RECORD_STEP = 8,        /* records start at multiples of it */
    RKS_LOCATOR_GROUP = 64,     /* rows that share a locator's base */
    RKS_SEGMENT_ROWS = 1 << 22, /* rows of one segment of the index */
    RKS_RECORD_ALIGNED = 1,     /* flag: the payload starts at a multiple of 64 in the file */
    RKS_RECORD_FLAGS_KNOWN = 1,
};

/* Payload and key of any record stay below this, so that all sizes in a block fit 32 bits. */
#define RKS_PAYLOAD_LIMIT UINT64_C(0xfff00000)

typedef struct rks_block_info {
    uint64_t unit;
    uint64_t first_row; /* in the unit */
    uint32_t count;     /* records */
    uint64_t shard;     /* high half of the shard's id */
} rks_block_info;

/* Returns where the record that follows byte `at` of a block starts, so that its payload is aligned
 * to `align` (8 or 64) in the file. Skipped bytes are zero. */
static inline uint64_t rks_record_place(uint64_t at, uint32_t align)
{
    const uint64_t before = RKS_VALUE_IN_PAGE + RKS_RECORD_HEADER;
    return rks_round_up(at + before, align) - before;
}

/* Returns a record's check, from the payload's hash and the other fields that it covers. */
uint64_t rks_record_digest(uint64_t payload_hash, rks_digest shard_id, uint64_t row,
                           uint64_t key_hash, uint32_t length, uint32_t size);
/* Writes a record's header. The caller puts payload and key after it. */
void rks_record_header_put(uint8_t *record, uint32_t payload_size, uint32_t length, uint64_t check,
                           uint16_t key_size, uint32_t align, uint32_t source_row);
/* Writes the derived key "name:row" and returns its size, at most RKS_KEY_MAX if
 * rks_key_name_fits(name). */
size_t rks_key_derive(const char *name, size_t name_size, uint64_t row, char key[RKS_KEY_MAX + 1]);
bool rks_key_name_fits(const char *name);

/* Fills the header of a block of `size` bytes; records and padding must be in place. */
void rks_block_finish(uint8_t *block, size_t size, const rks_block_info *info);
/* Returns true if these 4 bytes are a block's magic. */
bool rks_block_begins(const uint8_t *block);
/* Checks a block's header: its own hash, version and sizes. The block lies at `offset` of `path`
 * (both for messages); `size` is the size of its whole value. */
rks_status rks_block_open(const uint8_t *block, size_t size, const char *path, uint64_t offset,
                          rks_block_info *info, rks_error *err);
/* Does the same, and checks the hash of all that follows the header, and that there are `count`
 * records. */
rks_status rks_block_check(const uint8_t *block, size_t size, const char *path, uint64_t offset,
                           rks_block_info *info, rks_error *err);
/* Fails with RKS_ERR_CORRUPT: the data of `path` belongs to the shard whose id has the high half
 * `found`. */
rks_status rks_fail_other_shard(const char *path, uint64_t found, rks_digest shard_id,
                                rks_error *err);
/* Returns RKS_ERR_CORRUPT if the block names another shard ("data belongs to shard X"). */
rks_status rks_block_check_shard(const rks_block_info *info, rks_digest shard_id, const char *path,
                                 rks_error *err);
/* Parses the next record at or after *at and moves *at past it. Start with RKS_BLOCK_HEADER; call
 * it `count` times. */
rks_status rks_block_next(const uint8_t *block, size_t size, size_t *at, rks_record_view *view,
                          rks_error *err);

/* Returns the bytes of the locators of `rows` rows: ceil(rows / 64) bases (u64, a file offset),
 * then one delta a row (u32, in units of 8 bytes). */
static inline uint64_t rks_locators_size(uint64_t rows)
{
    return (rows + RKS_LOCATOR_GROUP - 1) / RKS_LOCATOR_GROUP * 8 + rows * 4;
}

/* Returns the file offset of row `row` of the segment, row < rows. A hostile segment may give any
 * number: check it against the file. */
static inline uint64_t rks_locators_get(const uint8_t *segment, uint64_t rows, uint64_t row)
{
    uint64_t bases = (rows + RKS_LOCATOR_GROUP - 1) / RKS_LOCATOR_GROUP;
    uint64_t base = rks_load_u64(segment + row / RKS_LOCATOR_GROUP * 8);
    return base + UINT64_C(8) * rks_load_u32(segment + bases * 8 + row * 4);
}

/* Writes locators from plain offsets. Returns false if a group spans 32 GiB or more: such a segment
 * stores plain offsets (u64). */
bool rks_locators_put(uint8_t *segment, const uint64_t *offsets, uint64_t rows);

/* Prefetches a block's bytes; call it before each rks_block_next. A record's place follows from the
 * one before it, so the processor alone prefetches too little. *asked starts as 0. */
static inline void rks_block_look_ahead(const uint8_t *block, size_t size, size_t at, size_t *asked)
{
    const size_t far = 4096, line = 64;
    size_t end = size - at < far ? size : at + far;
    for (*asked = *asked < at ? at : *asked; *asked < end; *asked += line)
        rks_prefetch(block + *asked);
}

#endif
