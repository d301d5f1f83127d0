/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_list.c: the units of a shard, in file order. Numbers are little-endian.
 *
 * A unit's record is the value of its entry in the database `units`. The segment "units" holds
 * these records, one after the other:
 *
 *   offset  size  field
 *        0     8  unit
 *        8     8  row, in the shard, of its first sample
 *       16     8  samples
 *       24     8  source rows seen
 *       32     8  of them filtered
 *       40     8  of them bad
 *       48     8  column and key bytes of its samples
 *       56     8  row, in its file, of its first source row
 *       64    16  digest: XXH3-128 over {XXH3-64 of the payload (8), XXH3-64 of the key (8),
 *                 length (4), payload size (4)} of each sample, in row order
 *       80     8  number of the block after its last
 *       88     4  size k of the key name; 0 if none
 *       92     4  in `units`: low half of the XXH3-64 of the record with this field 0, or 1
 *                 if that is 0; in the segment: 0
 *       96     k  key name, which derived keys start with
 *                 zeros up to a multiple of 8 */
#include "shard/manifest.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "shard/block.h"

enum { UNIT_HEADER = 96, CHECK_AT = 92 };

rks_status rks_unit_list_add(rks_unit_list *list, const rks_unit_summary *summary,
                             uint64_t first_row, const char *key_name, rks_error *err)
{
    char *name = NULL;
    if (key_name != NULL) {
        name = rks_strdup(key_name, err);
        if (name == NULL)
            return RKS_ERR_MEMORY;
    }
    if ((list->count & (list->count - 1)) == 0) { /* 0 or a power of two: full */
        size_t room = list->count == 0 ? 1 : 2 * list->count;
        rks_unit_summary *summaries =
            rks_realloc(list->summaries, room, sizeof(*list->summaries), err);
        if (summaries != NULL)
            list->summaries = summaries;
        uint64_t *rows = rks_realloc(list->first_rows, room, sizeof(*list->first_rows), err);
        if (rows != NULL)
            list->first_rows = rows;
        char **names = rks_realloc(list->key_names, room, sizeof(*list->key_names), err);
        if (names != NULL)
            list->key_names = names;
        if (summaries == NULL || rows == NULL || names == NULL) {
            rks_free(name);
            return RKS_ERR_MEMORY;
        }
    }
    list->summaries[list->count] = *summary;
    list->first_rows[list->count] = first_row;
    list->key_names[list->count] = name;
    list->count++;
    return RKS_OK;
}

void rks_unit_list_free(rks_unit_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        rks_free(list->key_names[i]);
    rks_free(list->summaries);
    rks_free(list->first_rows);
    rks_free(list->key_names);
    *list = (rks_unit_list){0};
}

static uint32_t unit_check(const uint8_t *bytes, size_t size)
{
    uint8_t copy[UNIT_HEADER + RKS_KEY_MAX + 8];
    memcpy(copy, bytes, size);
    rks_store_u32(copy + CHECK_AT, 0);
    uint32_t check = (uint32_t)rks_checksum64(copy, size);
    return check == 0 ? 1 : check;
}

void rks_unit_stamp(uint8_t *bytes, size_t size)
{
    rks_store_u32(bytes + CHECK_AT, unit_check(bytes, size));
}

rks_status rks_unit_encode(const rks_unit_summary *summary, uint64_t first_row, uint64_t end_block,
                           const char *key_name, rks_buffer *bytes, rks_error *err)
{
    size_t name_size = key_name == NULL ? 0 : strlen(key_name);
    size_t size = (size_t)rks_round_up(UNIT_HEADER + name_size, 8);
    rks_status status = rks_buffer_reserve(bytes, size, err);
    if (status != RKS_OK)
        return status;
    uint8_t *at = bytes->data + bytes->size;
    memset(at, 0, size);
    rks_store_u64(at, summary->unit);
    rks_store_u64(at + 8, first_row);
    rks_store_u64(at + 16, summary->samples);
    rks_store_u64(at + 24, summary->seen);
    rks_store_u64(at + 32, summary->filtered);
    rks_store_u64(at + 40, summary->bad);
    rks_store_u64(at + 48, summary->bytes);
    rks_store_u64(at + 56, summary->first_source_row);
    rks_store_u64(at + 64, summary->digest.low);
    rks_store_u64(at + 72, summary->digest.high);
    rks_store_u64(at + 80, end_block);
    rks_store_u32(at + 88, (uint32_t)name_size);
    if (name_size > 0)
        memcpy(at + UNIT_HEADER, key_name, name_size);
    bytes->size += size;
    return RKS_OK;
}

uint64_t rks_unit_load(const uint8_t *bytes, rks_unit_summary *summary)
{
    *summary = (rks_unit_summary){
        .unit = rks_load_u64(bytes),
        .samples = rks_load_u64(bytes + 16),
        .seen = rks_load_u64(bytes + 24),
        .filtered = rks_load_u64(bytes + 32),
        .bad = rks_load_u64(bytes + 40),
        .bytes = rks_load_u64(bytes + 48),
        .first_source_row = rks_load_u64(bytes + 56),
        .digest = {rks_load_u64(bytes + 64), rks_load_u64(bytes + 72)},
    };
    return rks_load_u64(bytes + 8);
}

rks_status rks_unit_decode(const uint8_t *bytes, size_t size, bool stamped, const char *path,
                           rks_unit_list *list, rks_unit_stored *stored, rks_error *err)
{
    uint32_t name_size = size < UNIT_HEADER ? 0 : rks_load_u32(bytes + 88);
    size_t whole = (size_t)rks_round_up(UNIT_HEADER + (uint64_t)name_size, 8);
    if (size < UNIT_HEADER || whole > size || name_size > RKS_KEY_MAX)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: entry %zu of the unit list is cut short",
                        path, list->count);
    rks_unit_summary summary;
    uint64_t first_row = rks_unit_load(bytes, &summary), expected = 0, end;
    if (list->count > 0)
        expected = list->first_rows[list->count - 1] + list->summaries[list->count - 1].samples;
    char name[RKS_KEY_MAX + 1];
    memcpy(name, bytes + UNIT_HEADER, name_size);
    name[name_size] = '\0';
    if (first_row != expected || __builtin_add_overflow(first_row, summary.samples, &end) ||
        end > INT64_MAX || summary.unit > INT64_MAX || summary.bytes > INT64_MAX ||
        strlen(name) != name_size || !rks_key_name_fits(name) ||
        rks_load_u32(bytes + CHECK_AT) != (stamped ? unit_check(bytes, whole) : 0))
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: entry %zu of the unit list (unit %" PRIu64 ", rows %" PRIu64
                        " + %" PRIu64 ") is malformed",
                        path, list->count, summary.unit, first_row, summary.samples);
    rks_status status =
        rks_unit_list_add(list, &summary, first_row, name_size == 0 ? NULL : name, err);
    if (status != RKS_OK)
        return status;
    *stored = (rks_unit_stored){whole, rks_load_u64(bytes + 80)};
    return RKS_OK;
}

rks_status rks_unit_list_decode(const uint8_t *bytes, size_t size, const rks_unit_totals *expected,
                                const char *path, rks_unit_list *list, rks_error *err)
{
    rks_unit_list units = {0};
    rks_status status = RKS_OK;
    uint64_t rows = 0, sum = 0;
    size_t at = 0;
    for (size_t i = 0; i < expected->count && status == RKS_OK; i++) {
        rks_unit_stored stored = {0};
        status = rks_unit_decode(bytes + at, size - at, false, path, &units, &stored, err);
        if (status != RKS_OK)
            break;
        at += stored.size;
        rows += units.summaries[i].samples;
        if (__builtin_add_overflow(sum, units.summaries[i].bytes, &sum))
            sum = UINT64_MAX;
    }
    if (status == RKS_OK && (at != size || rows != expected->samples || sum != expected->bytes))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                          "%s: the unit list holds %" PRIu64 " samples and %" PRIu64
                          " bytes, the manifest says %" PRIu64 " and %" PRIu64,
                          path, rows, sum, expected->samples, expected->bytes);
    if (status == RKS_OK) {
        *list = units;
        units = (rks_unit_list){0};
    }
    rks_unit_list_free(&units);
    return status;
}
