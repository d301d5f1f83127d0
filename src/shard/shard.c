/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.c: reads an open shard by its manifest, a map and the locators in it (shard_open.c opens
 * it).
 *
 * Nothing in the file is trusted. manifest.c has checked that the segments lie inside the file. An
 * offset from a locator is compared with the file's size, and a record's sizes with the bytes after
 * it. Segments of the index are compared with their digests when they are first copied. Locators
 * are not: a wrong one leads to bytes whose check belongs to another row. */
#include "shard/shard_state.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_line.h"
#include "base/error.h"
#include "base/memory.h"
#include "shard/checksum_file.h"

/* ---- what it is --------------------------------------------------------------------------- */

rks_digest rks_shard_id(const rks_shard *shard)
{
    return shard->manifest->shard_id;
}

rks_digest rks_shard_manifest_digest(const rks_shard *shard)
{
    return shard->manifest->digest;
}

rks_digest rks_shard_build_id(const rks_shard *shard)
{
    return shard->manifest->build_id;
}

const char *rks_shard_path(const rks_shard *shard)
{
    return shard->path;
}

uint64_t rks_shard_count(const rks_shard *shard)
{
    return shard->manifest->samples;
}

uint64_t rks_shard_bytes(const rks_shard *shard)
{
    return shard->manifest->bytes;
}

uint64_t rks_shard_file_bytes(const rks_shard *shard)
{
    uint64_t size = shard->manifest->file_size;
    return size + rks_sums_count(size) * RKS_DIGEST_SIZE + shard->manifest->text_size;
}

rks_status rks_shard_check_sums(const rks_shard *shard, uint32_t threads, rks_error *err)
{
    const rks_manifest *manifest = shard->manifest;
    int stem = (int)(strlen(shard->path) - strlen(".rks"));
    char *sums_path = rks_format(err, "%.*s.sums", stem, shard->path);
    if (sums_path == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        rks_sums_check(shard->path, manifest->file_size, sums_path, manifest->sums, threads, err);
    rks_free(sums_path);
    return status;
}

uint64_t rks_shard_largest(const rks_shard *shard)
{
    return shard->manifest->largest;
}

const rks_schema *rks_shard_schema(const rks_shard *shard)
{
    return shard->manifest->schema;
}

const char *rks_shard_unit_name(const rks_shard *shard, size_t unit)
{
    return shard->units.key_names[unit];
}

const rks_unit_summary *rks_shard_units(const rks_shard *shard, size_t *count)
{
    *count = shard->units.count;
    return shard->units.summaries;
}

size_t rks_shard_index_columns(const rks_shard *shard)
{
    return shard->manifest->index_count;
}

const rks_column *rks_shard_index_column(const rks_shard *shard, size_t column)
{
    return column < shard->manifest->index_count
               ? rks_schema_column(shard->manifest->schema, shard->manifest->index[column])
               : NULL;
}

const rks_manifest *rks_shard_manifest(const rks_shard *shard)
{
    return shard->manifest;
}

const rks_unit_list *rks_shard_unit_list(const rks_shard *shard)
{
    return &shard->units;
}

const rks_guarded_map *rks_shard_map(const rks_shard *shard)
{
    return shard->map;
}

uint64_t rks_shard_offset(const rks_shard *shard, uint64_t row)
{
    return rks_shard_locator(shard, row);
}

/* Maps pages anew that could not be read, so that the next read asks the storage again. */
__attribute__((cold)) static void map_anew(const rks_shard *shard, uint64_t first, uint64_t end)
{
    int fd = rks_resident_open_again(shard->resident);
    if (fd < 0)
        return;
    rks_guarded_map_anew(shard->map, fd, first, end);
    close(fd);
    if (atomic_load(&shard->random))
        rks_shard_advise_random(shard);
}

/* ---- the index ---------------------------------------------------------------------------- */

size_t rks_shard_segment_of(const rks_shard *shard, size_t part, uint64_t row)
{
    return rks_shard_segment_at(shard, part, row);
}

bool rks_shard_segment_good(const rks_shard *shard, size_t segment)
{
    return atomic_load(&shard->segment_good[segment]) != 0;
}

rks_status rks_shard_check_segment(const rks_shard *shard, size_t segment, rks_error *err)
{
    const rks_segment *at = &shard->manifest->segments[segment];
    const uint8_t *bytes = shard->map->bytes + at->offset;
    uint64_t found = rks_checksum64(bytes, at->size);
    if (rks_guarded_map_faulted(shard->map, bytes, at->size)) {
        map_anew(shard, at->offset, at->offset + at->size);
        return rks_fail(err, RKS_ERR_IO, EIO,
                        "%s: a page of the index between %" PRIu64 " and %" PRIu64 UNREADABLE,
                        shard->path, at->offset, at->offset + at->size);
    }
    if (found != at->check)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: segment of the index at %" PRIu64 " (%" PRIu64
                        " bytes): wrong checksum",
                        shard->path, at->offset, at->size);
    atomic_store(&shard->segment_good[segment], 1);
    return RKS_OK;
}

static rks_status bad_rows(const rks_shard *shard, uint64_t first, uint64_t count, rks_error *err)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: rows %" PRIu64 " + %" PRIu64 " of %" PRIu64,
                    shard->path, first, count, shard->manifest->samples);
}

static rks_status copy_part(rks_shard *shard, size_t part, size_t item, uint64_t first,
                            uint64_t count, uint8_t *to, rks_error *err)
{
    if (first > shard->manifest->samples || count > shard->manifest->samples - first)
        return bad_rows(shard, first, count, err);
    rks_guarded_map_renew();
    while (count > 0) {
        size_t number = rks_shard_segment_at(shard, part, first);
        if (!rks_shard_segment_good(shard, number)) {
            rks_status status = rks_shard_check_segment(shard, number, err);
            if (status != RKS_OK)
                return status;
        }
        const rks_segment *segment = &shard->manifest->segments[number];
        uint64_t at = first - segment->first_row;
        uint64_t some = segment->rows - at < count ? segment->rows - at : count;
        const uint8_t *from = shard->map->bytes + segment->offset + at * item;
        memcpy(to, from, some * item);
        if (rks_guarded_map_faulted(shard->map, from, some * item)) {
            map_anew(shard, segment->offset, segment->offset + segment->size);
            return rks_fail(err, RKS_ERR_IO, EIO, "%s: the index at %" PRIu64 UNREADABLE,
                            shard->path, segment->offset + at * item);
        }
        to += some * item;
        first += some;
        count -= some;
    }
    return RKS_OK;
}

rks_status rks_shard_copy_lengths(rks_shard *shard, uint64_t first, uint64_t count,
                                  uint32_t *lengths, rks_error *err)
{
    return copy_part(shard, RKS_SHARD_LENGTHS, sizeof(*lengths), first, count, (uint8_t *)lengths,
                     err);
}

rks_status rks_shard_copy_key_hashes(rks_shard *shard, uint64_t first, uint64_t count,
                                     uint64_t *hashes, rks_error *err)
{
    return copy_part(shard, RKS_SHARD_KEY_HASHES, sizeof(*hashes), first, count, (uint8_t *)hashes,
                     err);
}

rks_status rks_shard_copy_column(rks_shard *shard, size_t column, uint64_t first, uint64_t count,
                                 void *values, rks_error *err)
{
    const rks_column *type = rks_shard_index_column(shard, column);
    if (type == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%s: index column %zu of %zu", shard->path,
                        column, shard->manifest->index_count);
    return copy_part(shard, RKS_SHARD_COLUMNS + column, type->item_size, first, count, values, err);
}

/* ---- records ------------------------------------------------------------------------------ */

/* Returns true if the row's place in the index was replaced by zeros. */
static bool place_faulted(const rks_shard *shard, uint64_t row)
{
    const rks_locators *locators = &shard->locators[row / RKS_SEGMENT_ROWS];
    uint64_t at = row % RKS_SEGMENT_ROWS;
    if (locators->bases == NULL)
        return rks_guarded_map_faulted(shard->map, locators->entries + at * 8, 8);
    return rks_guarded_map_faulted(shard->map, locators->entries + at * 4, 4) ||
           rks_guarded_map_faulted(shard->map, locators->bases + at / RKS_LOCATOR_GROUP * 8, 8);
}

uint64_t rks_shard_place(const rks_shard *shard, uint64_t row)
{
    const rks_locators *locators = &shard->locators[row / RKS_SEGMENT_ROWS];
    uint64_t entry = row % RKS_SEGMENT_ROWS * (locators->bases == NULL ? 8 : 4);
    return (uint64_t)(locators->entries + entry - shard->map->bytes);
}

static void place_anew(const rks_shard *shard, uint64_t row)
{
    const rks_segment *segment =
        &shard->manifest->segments[rks_shard_segment_at(shard, RKS_SHARD_LOCATORS, row)];
    map_anew(shard, segment->offset, segment->offset + segment->size);
}

/* Says why a record cannot be read. Kept out of the fast path. */
__attribute__((cold)) static rks_status unreadable(const rks_shard *shard, uint64_t row,
                                                   uint64_t offset, rks_error *err)
{
    uint64_t size = shard->map->size;
    if (place_faulted(shard, row)) {
        place_anew(shard, row);
        return rks_fail(err, RKS_ERR_IO, EIO,
                        "%s: row %" PRIu64 ": its place in the index, at %" PRIu64 "," UNREADABLE,
                        shard->path, row, rks_shard_place(shard, row));
    }
    if (offset >= size || offset % 8 != 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: row %" PRIu64 ": the index (at %" PRIu64 ") places it at %" PRIu64
                        " of %" PRIu64 " bytes",
                        shard->path, row, rks_shard_place(shard, row), offset, size);
    uint64_t left = size - offset;
    if (rks_guarded_map_faulted(shard->map, shard->map->bytes + offset,
                                left < RKS_RECORD_HEADER ? left : RKS_RECORD_HEADER)) {
        map_anew(shard, offset, offset + RKS_RECORD_HEADER);
        return rks_fail(err, RKS_ERR_IO, EIO, "%s: row %" PRIu64 " at %" PRIu64 UNREADABLE,
                        shard->path, row, offset);
    }
    return rks_fail(err, RKS_ERR_CORRUPT, 0,
                    "%s: row %" PRIu64 " at %" PRIu64 ": no record, or one that does not fit",
                    shard->path, row, offset);
}

uint64_t rks_shard_check_record(rks_shard *shard, uint64_t row, const uint8_t *bytes, uint64_t size)
{
    rks_record_view view;
    uint32_t length = 0;
    uint64_t hash = 0;
    bool right =
        rks_record_parse(bytes, (size_t)size, &view, NULL) == RKS_OK &&
        rks_shard_copy_lengths(shard, row, 1, &length, NULL) == RKS_OK &&
        rks_shard_copy_key_hashes(shard, row, 1, &hash, NULL) == RKS_OK &&
        rks_record_check(&view, shard->manifest->shard_id, row, hash, length, NULL) == RKS_OK;
    return right ? view.record_size : 0;
}

/* A number of a count of doubts that is never 0. It comes again after 65,535 failed syncs. */
static uint16_t number_doubts(uint32_t doubts)
{
    return (uint16_t)(doubts % UINT16_MAX + 1);
}

void rks_shard_note_record(const rks_shard *shard, uint64_t row, uint32_t doubts)
{
    atomic_store(&shard->rows_here[row], number_doubts(doubts));
}

static bool is_row_here(const rks_shard *shard, uint64_t row)
{
    const uint16_t number = atomic_load(&shard->rows_here[row]);
    return number != 0 && number == number_doubts(rks_pieces_doubts(shard->pieces));
}

/* The index came with the head, without marks: after a doubt it is believed where its pieces are
 * here. */
__attribute__((cold)) static bool lacks_place(const rks_shard *shard, uint64_t row, uint64_t *first,
                                              uint64_t *end)
{
    const rks_locators *locators = &shard->locators[row / RKS_SEGMENT_ROWS];
    *first = rks_shard_place(shard, row);
    *end = *first + (locators->bases == NULL ? 8 : 4);
    if (!rks_pieces_have(shard->pieces, *first, *end))
        return true;
    if (locators->bases == NULL)
        return false;
    *first = (uint64_t)(locators->bases - shard->map->bytes) +
             row % RKS_SEGMENT_ROWS / RKS_LOCATOR_GROUP * 8;
    *end = *first + 8;
    return !rks_pieces_have(shard->pieces, *first, *end);
}

bool rks_shard_arrives(const rks_shard *shard)
{
    return atomic_load_explicit(&shard->arriving, memory_order_relaxed);
}

bool rks_shard_lacks(const rks_shard *shard, uint64_t row, uint64_t *first, uint64_t *end)
{
    rks_record_view view;
    if (!atomic_load_explicit(&shard->arriving, memory_order_relaxed) ||
        row >= shard->manifest->samples)
        return false;
    if (rks_pieces_doubts(shard->pieces) > 0 && lacks_place(shard, row, first, end))
        return true;
    const uint64_t offset = rks_shard_locator(shard, row), size = shard->map->size;
    if (offset % 8 != 0 || offset >= size || size - offset < RKS_RECORD_HEADER)
        return false; /* locating it says what is wrong */
    if (is_row_here(shard, row))
        return false;
    *first = offset;
    *end = offset + RKS_RECORD_HEADER;
    if (!rks_pieces_have(shard->pieces, *first, *end)) {
        uint64_t from = 0;
        rks_shard_extent(shard, row, &from, end);
        return true;
    }
    if (rks_record_parse(shard->map->bytes + offset, size - offset, &view, NULL) != RKS_OK)
        return false;
    *end = offset + view.record_size;
    return !rks_pieces_have(shard->pieces, *first, *end);
}

__attribute__((cold)) static rks_status fail_lacking(const rks_shard *shard, uint64_t row,
                                                     rks_error *err)
{
    return rks_fail(err, RKS_ERR_STATE, 0, "%s: row %" PRIu64 " has not come from home yet",
                    shard->path, row);
}

static inline rks_status locate(const rks_shard *shard, uint64_t row, uint64_t offset,
                                rks_record_view *view, rks_error *err)
{
    uint64_t size = shard->map->size, first, end;
    rks_record_view found;
    if (rks_shard_arrives(shard)) {
        if (rks_shard_lacks(shard, row, &first, &end))
            return fail_lacking(shard, row, err);
        offset = rks_shard_locator(shard, row); /* it may have come since the caller looked */
    }
    if (offset >= size || offset % 8 != 0 ||
        rks_record_parse(shard->map->bytes + offset, size - offset, &found, NULL) != RKS_OK ||
        found.record_size > shard->manifest->largest ||
        (atomic_load_explicit(&shard->map->faults, memory_order_relaxed) != 0 &&
         place_faulted(shard, row)))
        return unreadable(shard, row, offset, err);
    *view = found;
    return RKS_OK;
}

rks_status rks_shard_locate(const rks_shard *shard, uint64_t row, rks_record_view *view,
                            rks_error *err)
{
    if (row >= shard->manifest->samples)
        return bad_rows(shard, row, 1, err);
    return locate(shard, row, rks_shard_locator(shard, row), view, err);
}

/* Walks over the rows three times, so that the processor waits for many cache lines at once: each
 * walk prefetches what the next one needs. */
rks_status rks_shard_locate_many(const rks_shard *shard, const uint64_t *rows, size_t count,
                                 rks_record_view *views, rks_error *err)
{
    enum { AT_ONCE = 64 };
    rks_guarded_map_renew();
    for (size_t done = 0; done < count; done += AT_ONCE) {
        size_t some = count - done < AT_ONCE ? count - done : AT_ONCE;
        uint64_t offsets[AT_ONCE];
        for (size_t i = 0; i < some; i++) {
            uint64_t row = rows[done + i];
            if (row >= shard->manifest->samples)
                return bad_rows(shard, row, 1, err);
            const rks_locators *locators = &shard->locators[row / RKS_SEGMENT_ROWS];
            uint64_t at = row % RKS_SEGMENT_ROWS;
            rks_prefetch(locators->entries + at * (locators->bases == NULL ? 8 : 4));
            if (locators->bases != NULL)
                rks_prefetch(locators->bases + at / RKS_LOCATOR_GROUP * 8);
        }
        for (size_t i = 0; i < some; i++) {
            offsets[i] = rks_shard_locator(shard, rows[done + i]);
            if (offsets[i] < shard->map->size) {
                rks_prefetch(shard->map->bytes + offsets[i]);
                rks_prefetch(shard->map->bytes + offsets[i] + 64);
            }
        }
        for (size_t i = 0; i < some; i++) {
            rks_status status = locate(shard, rows[done + i], offsets[i], &views[done + i], err);
            if (status != RKS_OK)
                return status;
        }
    }
    return RKS_OK;
}

bool rks_shard_faulted(const rks_shard *shard, const void *at, size_t size)
{
    return rks_guarded_map_faulted(shard->map, at, size);
}

rks_status rks_shard_read_failed(const rks_shard *shard, uint64_t row, const rks_record_view *view,
                                 rks_error *err)
{
    uint64_t first = (uint64_t)(view->record - shard->map->bytes);
    map_anew(shard, first, first + view->record_size);
    return rks_fail(err, RKS_ERR_IO, EIO,
                    "%s: row %" PRIu64 ": a page between %" PRIu64 " and %" PRIu64 UNREADABLE,
                    shard->path, row, first, first + view->record_size);
}

/* ---- keys --------------------------------------------------------------------------------- */

/* Returns the unit that holds the row; there is at least one unit. */
static size_t unit_of(const rks_unit_list *units, uint64_t row)
{
    size_t low = 0;
    size_t high = units->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (units->first_rows[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Reads ahead, since keys are often read in the order of the file. */
static void ask_for(const rks_shard *shard, uint64_t row)
{
    uint64_t first = 0, end = 0;
    if (rks_shard_extent(shard, row, &first, &end) && !rks_shard_in_memory(shard, first, end))
        (void)rks_shard_follow(shard, first, end);
}

/* Derives the key of a record whose source row is known; reads nothing more from the map. */
static rks_status derive(const rks_shard *shard, uint64_t row, uint32_t source_row,
                         const char **name, uint64_t *file_row, rks_error *err)
{
    if (shard->units.count == 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: row %" PRIu64 " is in no unit", shard->path,
                        row);
    size_t unit = unit_of(&shard->units, row);
    uint64_t first = shard->units.summaries[unit].first_source_row;
    if (shard->units.key_names[unit] == NULL || first > UINT64_MAX - source_row)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: row %" PRIu64 ": no key is stored, and its unit has no name to derive "
                        "one from",
                        shard->path, row);
    *name = shard->units.key_names[unit];
    *file_row = first + source_row;
    return RKS_OK;
}

rks_status rks_shard_key(const rks_shard *shard, uint64_t row, uint8_t *key, size_t *key_size,
                         rks_error *err)
{
    rks_record_view view = {0};
    rks_guarded_map_renew();
    ask_for(shard, row);
    rks_status status = rks_shard_locate(shard, row, &view, err);
    if (status != RKS_OK)
        return status;
    uint8_t copy[RKS_KEY_MAX + 1];
    size_t size = view.key_size;
    memcpy(copy, view.key, size);
    if (rks_shard_faulted(shard, view.record, view.record_size))
        return rks_shard_read_failed(shard, row, &view, err);
    if (shard->manifest->derived_keys) {
        const char *name = NULL;
        uint64_t file_row = 0;
        status = derive(shard, row, view.source_row, &name, &file_row, err);
        if (status != RKS_OK)
            return status;
        size = rks_key_derive(name, strlen(name), file_row, (char *)copy);
    }
    if (size == 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: row %" PRIu64 " has no key", shard->path,
                        row);
    memcpy(key, copy, size);
    *key_size = size;
    return RKS_OK;
}
