/* SPDX-License-Identifier: Apache-2.0
 *
 * block.c: blocks of consecutive samples of one unit. Numbers are little-endian.
 *
 * A block is one value of the database `blocks`:
 *
 *   offset  size  field
 *        0     4  magic "RKSB"
 *        4     2  version, 2
 *        6     2  codec, 0: none
 *        8     4  flags, 0
 *       12     4  count of records
 *       16     8  unit
 *       24     8  row, in the unit, of the first record
 *       32     8  size n of what follows the header
 *       40     8  high half of the shard id
 *       48     8  XXH3-64 of what follows the header
 *       56     8  XXH3-64 of bytes 0 to 55
 *       64     n  records, then zeros
 *
 * A value lies 16 bytes into a page. So records, which start at multiples of 8 in the block, do so
 * in the file, too. A record is one sample:
 *
 *   offset  size  field
 *        0     4  size p of the payload, never 0
 *        4     4  length
 *        8     8  check: XXH3-64 of {XXH3-64 of the payload (8), shard id (16), row in the
 *                 shard (8), XXH3-64 of the key (8), length (4), payload size (4)}
 *       16     2  size k of the key; 0 if derived
 *       18     2  flags; bit 0: the payload starts at a multiple of 64 in the file
 *       20     4  source row, counted from the unit's first
 *       24     p  payload (record.c)
 *     24+p     k  key
 *                 zeros up to a multiple of 8
 *
 * Zero words of 8 bytes between two records align the next payload. Since p is never 0, four zero
 * bytes never start a record. */
#include "shard/block.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"

static const uint32_t BLOCK_MAGIC = 0x42534b52; /* "RKSB" */
enum { BLOCK_VERSION = 2, CODEC_NONE = 0 };

uint64_t rks_key_hash(const void *key, size_t key_size)
{
    return rks_checksum64(key, key_size);
}

uint64_t rks_record_digest(uint64_t payload_hash, rks_digest shard_id, uint64_t row,
                           uint64_t key_hash, uint32_t length, uint32_t size)
{
    uint8_t covered[48];
    rks_store_u64(covered, payload_hash);
    rks_store_u64(covered + 8, shard_id.low);
    rks_store_u64(covered + 16, shard_id.high);
    rks_store_u64(covered + 24, row);
    rks_store_u64(covered + 32, key_hash);
    rks_store_u32(covered + 40, length);
    rks_store_u32(covered + 44, size);
    return rks_checksum64(covered, sizeof(covered));
}

void rks_record_header_put(uint8_t *record, uint32_t payload_size, uint32_t length, uint64_t check,
                           uint16_t key_size, uint32_t align, uint32_t source_row)
{
    rks_store_u32(record, payload_size);
    rks_store_u32(record + 4, length);
    rks_store_u64(record + 8, check);
    rks_store_u16(record + 16, key_size);
    rks_store_u16(record + 18, align == 64 ? RKS_RECORD_ALIGNED : 0);
    rks_store_u32(record + 20, source_row);
}

rks_status rks_record_parse(const uint8_t *bytes, size_t size, rks_record_view *view,
                            rks_error *err)
{
    if (size < RKS_RECORD_HEADER)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "record: %zu bytes, no header", size);
    uint32_t payload_size = rks_load_u32(bytes);
    uint16_t key_size = rks_load_u16(bytes + 16);
    uint16_t flags = rks_load_u16(bytes + 18);
    size_t room = size - RKS_RECORD_HEADER;
    if (payload_size == 0 || payload_size > room || key_size > room - payload_size)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "record: payload of %" PRIu32 " and key of %u bytes do not fit in %zu",
                        payload_size, (unsigned)key_size, room);
    if (key_size > RKS_KEY_MAX || (flags & ~RKS_RECORD_FLAGS_KNOWN) != 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "record: key of %u bytes, flags %#x",
                        (unsigned)key_size, (unsigned)flags);
    *view = (rks_record_view){
        .record = bytes,
        .record_size = (size_t)RKS_RECORD_HEADER + payload_size + key_size,
        .payload = bytes + RKS_RECORD_HEADER,
        .payload_size = payload_size,
        .key = bytes + RKS_RECORD_HEADER + payload_size,
        .key_size = key_size,
        .length = rks_load_u32(bytes + 4),
        .source_row = rks_load_u32(bytes + 20),
        .align = (flags & RKS_RECORD_ALIGNED) != 0 ? 64 : 8,
    };
    return RKS_OK;
}

rks_status rks_record_check(const rks_record_view *view, rks_digest shard_id, uint64_t row,
                            uint64_t key_hash, uint32_t length, rks_error *err)
{
    uint64_t found = rks_load_u64(view->record + 8);
    uint64_t right = rks_record_digest(rks_checksum64(view->payload, view->payload_size), shard_id,
                                       row, key_hash, length, (uint32_t)view->payload_size);
    bool key_right = view->key_size == 0 || rks_key_hash(view->key, view->key_size) == key_hash;
    if (found == right && view->length == length && key_right)
        return RKS_OK;
    if (!key_right)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "row %" PRIu64 ": not the key of the index", row);
    if (view->length != length)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "row %" PRIu64 ": length %" PRIu32 ", the index has %" PRIu32, row,
                        view->length, length);
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "row %" PRIu64 ": wrong checksum", row);
}

bool rks_key_name_fits(const char *name)
{
    return strnlen(name, RKS_KEY_MAX) <= RKS_KEY_MAX - 21; /* ":" and at most 20 digits */
}

size_t rks_key_derive(const char *name, size_t name_size, uint64_t row, char key[RKS_KEY_MAX + 1])
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + row % 10);
        row /= 10;
    } while (row > 0);
    memcpy(key, name, name_size);
    size_t size = name_size;
    key[size++] = ':';
    while (count > 0)
        key[size++] = digits[--count];
    key[size] = '\0';
    return size;
}

void rks_block_finish(uint8_t *block, size_t size, const rks_block_info *info)
{
    rks_store_u32(block, BLOCK_MAGIC);
    rks_store_u16(block + 4, BLOCK_VERSION);
    rks_store_u16(block + 6, CODEC_NONE);
    rks_store_u32(block + 8, 0);
    rks_store_u32(block + 12, info->count);
    rks_store_u64(block + 16, info->unit);
    rks_store_u64(block + 24, info->first_row);
    rks_store_u64(block + 32, size - RKS_BLOCK_HEADER);
    rks_store_u64(block + 40, info->shard);
    rks_store_u64(block + 48, rks_checksum64(block + RKS_BLOCK_HEADER, size - RKS_BLOCK_HEADER));
    rks_store_u64(block + 56, rks_checksum64(block, 56));
}

bool rks_block_begins(const uint8_t *block)
{
    return rks_load_u32(block) == BLOCK_MAGIC;
}

rks_status rks_block_open(const uint8_t *block, size_t size, const char *path, uint64_t offset,
                          rks_block_info *info, rks_error *err)
{
    if (size < RKS_BLOCK_HEADER || rks_load_u32(block) != BLOCK_MAGIC)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: no block at %" PRIu64, path, offset);
    if (rks_load_u64(block + 56) != rks_checksum64(block, 56))
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: block at %" PRIu64 ": wrong checksum of its header", path, offset);
    unsigned version = rks_load_u16(block + 4);
    unsigned codec = rks_load_u16(block + 6);
    uint32_t flags = rks_load_u32(block + 8);
    if (version != BLOCK_VERSION)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%s: block at %" PRIu64 ": block version %u; this version "
                        "reads %d: build again",
                        path, offset, version, BLOCK_VERSION);
    if (codec != CODEC_NONE || flags != 0)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%s: block at %" PRIu64 " has codec %u, flags %#" PRIx32
                        "; this version reads codec %d, flags 0",
                        path, offset, codec, flags, CODEC_NONE);
    uint32_t count = rks_load_u32(block + 12);
    if (rks_load_u64(block + 32) != size - RKS_BLOCK_HEADER ||
        count > (size - RKS_BLOCK_HEADER) / RKS_RECORD_HEADER)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: block at %" PRIu64 ": %" PRIu32 " records in %" PRIu64
                        " bytes do not fit its %zu bytes",
                        path, offset, count, rks_load_u64(block + 32), size);
    *info = (rks_block_info){.unit = rks_load_u64(block + 16),
                             .first_row = rks_load_u64(block + 24),
                             .count = count,
                             .shard = rks_load_u64(block + 40)};
    return RKS_OK;
}

rks_status rks_block_check_shard(const rks_block_info *info, rks_digest shard_id, const char *path,
                                 rks_error *err)
{
    return info->shard == shard_id.high ? RKS_OK
                                        : rks_fail_other_shard(path, info->shard, shard_id, err);
}

rks_status rks_fail_other_shard(const char *path, uint64_t found, rks_digest shard_id,
                                rks_error *err)
{
    return rks_fail(err, RKS_ERR_CORRUPT, 0,
                    "%s: data belongs to shard %016" PRIx64 "..., not to %016" PRIx64
                    "...: another shard's file has this name; put the right one in its place",
                    path, found, shard_id.high);
}

rks_status rks_block_next(const uint8_t *block, size_t size, size_t *at, rks_record_view *view,
                          rks_error *err)
{
    size_t here = *at;
    while (size - here >= RKS_RECORD_HEADER && rks_load_u64(block + here) == 0)
        here += 8;
    rks_status status = rks_record_parse(block + here, size - here, view, err);
    if (status != RKS_OK)
        return status;
    if (rks_record_place(here, view->align) != here)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "record at byte %zu of its block: not aligned",
                        here);
    size_t next = (size_t)rks_round_up(here + view->record_size, 8);
    *at = next < size ? next : size;
    return RKS_OK;
}

rks_status rks_block_check(const uint8_t *block, size_t size, const char *path, uint64_t offset,
                           rks_block_info *info, rks_error *err)
{
    rks_block_info found;
    rks_status status = rks_block_open(block, size, path, offset, &found, err);
    if (status != RKS_OK)
        return status;
    if (rks_checksum64(block + RKS_BLOCK_HEADER, size - RKS_BLOCK_HEADER) !=
        rks_load_u64(block + 48))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: block at %" PRIu64 ": wrong checksum", path,
                        offset);
    size_t at = RKS_BLOCK_HEADER;
    for (uint32_t i = 0; i < found.count; i++) {
        rks_record_view view;
        if (rks_block_next(block, size, &at, &view, NULL) != RKS_OK)
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "%s: block at %" PRIu64 ": record %" PRIu32 " of %" PRIu32
                            " is malformed",
                            path, offset, i, found.count);
    }
    *info = found;
    return RKS_OK;
}

bool rks_locators_put(uint8_t *segment, const uint64_t *offsets, uint64_t rows)
{
    uint64_t bases = (rows + RKS_LOCATOR_GROUP - 1) / RKS_LOCATOR_GROUP;
    uint8_t *deltas = segment + bases * 8;
    for (uint64_t first = 0; first < rows; first += RKS_LOCATOR_GROUP) {
        uint64_t end = rows - first < RKS_LOCATOR_GROUP ? rows : first + RKS_LOCATOR_GROUP;
        uint64_t base = UINT64_MAX; /* not always the first row's: a resumed shard reuses pages */
        for (uint64_t row = first; row < end; row++)
            base = offsets[row] < base ? offsets[row] : base;
        rks_store_u64(segment + first / RKS_LOCATOR_GROUP * 8, base);
        for (uint64_t row = first; row < end; row++) {
            uint64_t delta = (offsets[row] - base) / 8;
            if (delta > UINT32_MAX)
                return false;
            rks_store_u32(deltas + row * 4, (uint32_t)delta);
        }
    }
    return true;
}
