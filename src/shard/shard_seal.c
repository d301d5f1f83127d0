/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_seal.c: makes the index of a shard from its blocks. The rows that this writer has put are
 * in its log (row_log.h); it walks the other blocks.
 *
 * For each 4,194,304 rows, one read transaction walks their blocks, then one write transaction puts
 * their segments into the database `index` under the keys "kind/number" ("column.3/number" for
 * column 3 of the schema; numbers have 8 hexadecimal digits). Values are padded with zeros to more
 * than a page, so that each lies in one stretch. Their places are read after the last commit. */
#include "shard/writer_state.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

/* The position of a walk over all samples. */
typedef struct walk_place {
    uint64_t block;  /* number of the next block to read */
    uint32_t record; /* its records that are done */
    size_t unit;     /* position in the unit list */
    uint64_t row;    /* in the shard */
    uint64_t row_in_unit;
} walk_place;

typedef struct walker {
    rks_shard_writer *writer;
    walk_place at;
    uint64_t end_row; /* of this segment */
    int column;       /* -1: lengths, keys and places; else an index column */
    uint64_t largest;
    /* of this segment */
    uint8_t *lengths;
    uint8_t *key_hashes;
    uint64_t *offsets;
    uint8_t *values;
    uint32_t item_size;
    rks_value *columns; /* of one sample */
} walker;

static rks_status malformed(const walker *walk, const rks_lmdb_entry *entry, rks_error *err)
{
    bool known = entry->offset != UINT64_MAX;
    char place[24];
    snprintf(place, sizeof(place), "%" PRIu64, entry->offset);
    return rks_fail(err, RKS_ERR_CORRUPT, 0,
                    "%s: the block%s%s does not hold row %" PRIu64 "; build again",
                    walk->writer->data_path, known ? " at " : "", known ? place : "", walk->at.row);
}

static uint64_t hash_of_key(const walker *walk, const rks_record_view *view)
{
    const rks_unit_list *units = &walk->writer->units;
    if (!walk->writer->derived_keys)
        return rks_key_hash(view->key, view->key_size);
    char key[RKS_KEY_MAX + 1];
    const char *name = units->key_names[walk->at.unit];
    uint64_t first = units->summaries[walk->at.unit].first_source_row;
    return rks_key_hash(key, rks_key_derive(name, strlen(name), first + view->source_row, key));
}

static rks_status index_record(walker *walk, uint64_t index, uint64_t offset,
                               const rks_record_view *view, rks_error *err)
{
    if (walk->column < 0) {
        rks_store_u32(walk->lengths + 4 * index, view->length);
        rks_store_u64(walk->key_hashes + 8 * index, hash_of_key(walk, view));
        walk->offsets[index] = offset;
        if (view->record_size > walk->largest)
            walk->largest = view->record_size;
        return RKS_OK;
    }
    rks_status status = rks_record_decode(walk->writer->schema, view->payload, view->payload_size,
                                          walk->columns, err);
    if (status == RKS_OK)
        memcpy(walk->values + walk->item_size * index, walk->columns[walk->column].data,
               walk->item_size);
    return status;
}

/* Checks that the block's header fits the walk's position. */
static rks_status open_block(walker *walk, const rks_lmdb_entry *entry, rks_block_info *info,
                             rks_error *err)
{
    rks_shard_writer *writer = walk->writer;
    uint64_t number = 0;
    if (entry->key_size == sizeof(number))
        memcpy(&number, entry->key, sizeof(number));
    if (entry->key_size != sizeof(number) || be64toh(number) != walk->at.block ||
        entry->offset == UINT64_MAX)
        return malformed(walk, entry, err);
    bool resumed = walk->at.block < writer->resumed_blocks && walk->column < 0;
    rks_status status = resumed ? rks_block_check(entry->value, entry->size, writer->data_path,
                                                  entry->offset, info, err)
                                : rks_block_open(entry->value, entry->size, writer->data_path,
                                                 entry->offset, info, err);
    if (status == RKS_OK)
        status = rks_block_check_shard(info, writer->shard_id, writer->data_path, err);
    if (status != RKS_OK)
        return status;
    while (walk->at.unit < writer->units.count &&
           walk->at.row_in_unit == writer->units.summaries[walk->at.unit].samples) {
        walk->at.unit++;
        walk->at.row_in_unit = 0;
    }
    if (walk->at.unit == writer->units.count ||
        writer->units.summaries[walk->at.unit].unit != info->unit ||
        info->first_row + walk->at.record != walk->at.row_in_unit ||
        info->count < walk->at.record ||
        info->count - walk->at.record >
            writer->units.summaries[walk->at.unit].samples - walk->at.row_in_unit)
        return malformed(walk, entry, err);
    return RKS_OK;
}

/* Takes rows from the writer's log, and adds their number to *done. */
static void copy_logged(walker *walk, uint64_t offset, const rks_block_info *info, uint32_t *done)
{
    const rks_row_log *log = &walk->writer->log;
    while (*done < info->count && walk->at.row < walk->end_row) {
        const rks_logged_row *row = rks_row_log_at(log, walk->at.row);
        if (row == NULL)
            return;
        uint64_t index = walk->at.row % RKS_SEGMENT_ROWS;
        rks_store_u32(walk->lengths + 4 * index, row->length);
        rks_store_u64(walk->key_hashes + 8 * index, row->key_hash);
        walk->offsets[index] = offset + (uint64_t)row->place * RKS_RECORD_STEP;
        walk->at.row++;
        walk->at.row_in_unit++;
        walk->at.record++;
        (*done)++;
    }
}

static rks_status visit_block(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    walker *walk = user;
    rks_block_info info;
    rks_status status = open_block(walk, entry, &info, err);
    size_t at = RKS_BLOCK_HEADER, asked = 0;
    uint32_t done = 0;
    if (status == RKS_OK && walk->column < 0 && rks_row_log_at(&walk->writer->log, walk->at.row)) {
        done = walk->at.record; /* a block's rows are all logged or none */
        copy_logged(walk, entry->offset, &info, &done);
    }
    while (status == RKS_OK && done < info.count && walk->at.row < walk->end_row) {
        rks_record_view view;
        rks_block_look_ahead(entry->value, entry->size, at, &asked);
        status = rks_block_next(entry->value, entry->size, &at, &view, err);
        if (status != RKS_OK || done++ < walk->at.record)
            continue;
        uint64_t index = walk->at.row % RKS_SEGMENT_ROWS;
        status = index_record(walk, index, entry->offset + (uint64_t)(view.record - entry->value),
                              &view, err);
        walk->at.row++;
        walk->at.row_in_unit++;
        walk->at.record++;
    }
    if (status == RKS_OK && walk->at.record == info.count) {
        walk->at.block++;
        walk->at.record = 0;
    }
    *stop = walk->at.row == walk->end_row;
    return status == RKS_OK ? rks_check_interrupt(err) : status;
}

static void segment_key(const rks_segment *segment, char key[64])
{
    static const char *const names[] = {"lengths", "key_hashes", "locators",
                                        "offsets", "column",     "units"};
    unsigned number = (unsigned)(segment->first_row / RKS_SEGMENT_ROWS);
    if (segment->kind == RKS_SEGMENT_COLUMN)
        snprintf(key, 64, "column.%" PRIu32 "/%08x", segment->column, number);
    else
        snprintf(key, 64, "%s/%08x", names[segment->kind], number);
}

/* Puts one segment. `segment` gives kind, column and rows; `bytes` has room for at least a page and
 * 8 bytes. */
static rks_status put_segment(rks_shard_writer *writer, rks_manifest *manifest, rks_segment segment,
                              uint8_t *bytes, uint64_t size, rks_error *err)
{
    char key[64];
    uint64_t least = rks_lmdb_page_size(writer->env) + 8;
    segment.size = size;
    segment.check = rks_checksum64(bytes, (size_t)size);
    segment_key(&segment, key);
    if (size < least) {
        memset(bytes + size, 0, (size_t)(least - size));
        size = least;
    }
    rks_status status =
        rks_lmdb_put_text(writer->env, RKS_LMDB_INDEX, key, bytes, (size_t)size, err);
    if (status != RKS_OK)
        return status;
    rks_segment *grown = rks_realloc(manifest->segments, manifest->segment_count + 1,
                                     sizeof(*manifest->segments), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    manifest->segments = grown;
    manifest->segments[manifest->segment_count++] = segment;
    return RKS_OK;
}

static void *segment_room(const rks_shard_writer *writer, uint64_t size, rks_error *err)
{
    uint64_t least = rks_lmdb_page_size(writer->env) + 8;
    return rks_alloc_raw((size_t)(size < least ? least : size), 1, err);
}

static rks_status put_places(walker *walk, rks_manifest *manifest, rks_segment segment,
                             rks_error *err)
{
    uint8_t *locators = segment_room(walk->writer, rks_locators_size(segment.rows), err);
    if (locators == NULL)
        return RKS_ERR_MEMORY;
    rks_status status;
    if (rks_locators_put(locators, walk->offsets, segment.rows)) {
        segment.kind = RKS_SEGMENT_LOCATORS;
        status = put_segment(walk->writer, manifest, segment, locators,
                             rks_locators_size(segment.rows), err);
    } else {
        segment.kind = RKS_SEGMENT_OFFSETS;
        status = put_segment(walk->writer, manifest, segment, (uint8_t *)walk->offsets,
                             8 * segment.rows, err);
    }
    rks_free(locators);
    return status;
}

static rks_status put_walked(walker *walk, rks_manifest *manifest, uint64_t first_row,
                             uint64_t rows, rks_error *err)
{
    rks_segment segment = {.first_row = first_row, .rows = rows};
    rks_status status;
    if (walk->column >= 0) {
        segment.kind = RKS_SEGMENT_COLUMN;
        segment.column = (uint32_t)walk->column;
        status =
            put_segment(walk->writer, manifest, segment, walk->values, walk->item_size * rows, err);
    } else {
        segment.kind = RKS_SEGMENT_LENGTHS;
        status = put_segment(walk->writer, manifest, segment, walk->lengths, 4 * rows, err);
        segment.kind = RKS_SEGMENT_KEY_HASHES;
        if (status == RKS_OK)
            status = put_segment(walk->writer, manifest, segment, walk->key_hashes, 8 * rows, err);
        if (status == RKS_OK)
            status = put_places(walk, manifest, segment, err);
    }
    return status == RKS_OK ? rks_lmdb_commit(walk->writer->env, err) : status;
}

static rks_status make_room_for_rows(walker *walk, uint64_t rows, rks_error *err)
{
    bool good;
    if (walk->column >= 0) {
        walk->item_size =
            rks_schema_column(walk->writer->schema, (uint32_t)walk->column)->item_size;
        walk->values = segment_room(walk->writer, walk->item_size * rows, err);
        walk->columns =
            rks_alloc(rks_schema_columns(walk->writer->schema), sizeof(*walk->columns), err);
        good = walk->values != NULL && walk->columns != NULL;
    } else {
        walk->lengths = segment_room(walk->writer, 4 * rows, err);
        walk->key_hashes = segment_room(walk->writer, 8 * rows, err);
        walk->offsets = segment_room(walk->writer, 8 * rows, err);
        good = walk->lengths != NULL && walk->key_hashes != NULL && walk->offsets != NULL;
    }
    return good ? RKS_OK : RKS_ERR_MEMORY;
}

/* Walks all samples once: for lengths, keys and places, or for one index column. */
static rks_status index_pass(rks_shard_writer *writer, rks_manifest *manifest, int column,
                             rks_error *err)
{
    walker walk = {.writer = writer, .column = column};
    uint64_t total = writer->rows;
    rks_status status =
        make_room_for_rows(&walk, total < RKS_SEGMENT_ROWS ? total : RKS_SEGMENT_ROWS, err);
    for (uint64_t first = 0; status == RKS_OK && first < total; first = walk.at.row) {
        walk.end_row = total - first < RKS_SEGMENT_ROWS ? total : first + RKS_SEGMENT_ROWS;
        uint64_t from = htobe64(walk.at.block);
        status = rks_lmdb_walk(writer->env, RKS_LMDB_BLOCKS, &from, sizeof(from), visit_block,
                               &walk, err);
        if (status == RKS_OK && walk.at.row != walk.end_row)
            status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                              "%s: its blocks end at row %" PRIu64 " of %" PRIu64 "; build again",
                              writer->data_path, walk.at.row, total);
        if (status == RKS_OK)
            status = put_walked(&walk, manifest, first, walk.end_row - first, err);
    }
    if (column < 0)
        manifest->largest = walk.largest > writer->log.largest ? walk.largest : writer->log.largest;
    rks_free(walk.lengths);
    rks_free(walk.key_hashes);
    rks_free(walk.offsets);
    rks_free(walk.values);
    rks_free(walk.columns);
    return status;
}

/* Puts the shard's id beside the list of databases, in a page that the manifest's digest covers. */
static rks_status put_owner(rks_shard_writer *writer, rks_error *err)
{
    uint8_t id[RKS_DIGEST_SIZE];
    rks_store_u64(id, writer->shard_id.low);
    rks_store_u64(id + 8, writer->shard_id.high);
    return rks_lmdb_put_text(writer->env, RKS_LMDB_MAIN, RKS_MAIN_SHARD_KEY, id, sizeof(id), err);
}

static rks_status put_units(rks_shard_writer *writer, rks_manifest *manifest, rks_error *err)
{
    const rks_unit_list *units = &writer->units;
    if (units->count == 0)
        return RKS_OK;
    rks_buffer bytes = {0};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < units->count; i++)
        status = rks_unit_encode(&units->summaries[i], units->first_rows[i], 0, units->key_names[i],
                                 &bytes, err);
    if (status == RKS_OK) /* room for the padding */
        status = rks_buffer_reserve(&bytes, rks_lmdb_page_size(writer->env) + 8, err);
    rks_segment segment = {.kind = RKS_SEGMENT_UNITS, .rows = units->count};
    if (status == RKS_OK)
        status = put_segment(writer, manifest, segment, bytes.data, bytes.size, err);
    rks_buffer_free(&bytes);
    return status;
}

typedef struct segment_visit {
    const char *path;
    const char *key;
    rks_segment *segment;
} segment_visit;

static rks_status visit_segment(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    const segment_visit *visit = user;
    if (entry->key_size != strlen(visit->key) ||
        memcmp(entry->key, visit->key, entry->key_size) != 0 || entry->offset == UINT64_MAX ||
        entry->size < visit->segment->size)
        return rks_fail(err, RKS_ERR_IO, 0, "%s: segment %s is not where it was written",
                        visit->path, visit->key);
    visit->segment->offset = entry->offset;
    *stop = true;
    return RKS_OK;
}

static int rank_of(rks_segment_kind kind)
{
    return kind == RKS_SEGMENT_LENGTHS      ? 0
           : kind == RKS_SEGMENT_KEY_HASHES ? 1
           : kind == RKS_SEGMENT_LOCATORS   ? 2
           : kind == RKS_SEGMENT_OFFSETS    ? 2
                                            : 3;
}

/* Sorts the segments by kind, as the manifest needs them. Within a kind they are in order
 * already. */
static rks_status order_segments(rks_manifest *manifest, rks_error *err)
{
    rks_segment *ordered = rks_alloc(manifest->segment_count, sizeof(*ordered), err);
    if (ordered == NULL)
        return RKS_ERR_MEMORY;
    size_t count = 0;
    for (int rank = 0; rank <= 3; rank++)
        for (size_t i = 0; i < manifest->segment_count; i++)
            if (rank_of(manifest->segments[i].kind) == rank)
                ordered[count++] = manifest->segments[i];
    rks_free(manifest->segments);
    manifest->segments = ordered;
    return RKS_OK;
}

rks_status rks_seal_index(rks_shard_writer *writer, rks_manifest *manifest, rks_error *err)
{
    rks_status status = index_pass(writer, manifest, -1, err);
    for (size_t i = 0; status == RKS_OK && i < writer->index_count; i++)
        status = index_pass(writer, manifest, (int)writer->index[i], err);
    if (status == RKS_OK)
        status = put_units(writer, manifest, err);
    if (status == RKS_OK)
        status = put_owner(writer, err);
    if (status == RKS_OK)
        status = rks_lmdb_commit(writer->env, err);
    if (status == RKS_OK)
        status = rks_lmdb_main_page(writer->env, &manifest->main_page, err);
    if (status == RKS_OK)
        status = order_segments(manifest, err);
    if (status == RKS_OK)
        status = rks_lmdb_fill_file(writer->env, err);
    for (size_t i = 0; status == RKS_OK && i < manifest->segment_count; i++) {
        char key[64];
        segment_key(&manifest->segments[i], key);
        segment_visit visit = {writer->data_path, key, &manifest->segments[i]};
        status = rks_lmdb_walk(writer->env, RKS_LMDB_INDEX, key, strlen(key), visit_segment, &visit,
                               err);
    }
    return status;
}
