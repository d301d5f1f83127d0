/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_samples.c: every sample of a shard against its checksum, its block's and its unit's.
 *
 * One walk in row order. Rows are found by the locators, each by itself, so that a damaged block
 * header costs no sample. The block of a row is the one that begins before it where the row before
 * was a block's last; where that is not known, wherever a sound header of the right row stands.
 *
 * Hostile files: records of a sound shard do not overlap, so no more bytes are looked at than the
 * file has, however many rows point into it. */
#include "manage/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/json.h"

enum { TUPLE_SIZE = 24, INTERRUPT_ROWS = 4096 };

typedef struct sample_walk {
    rks_verify_job *job;
    rks_shard *shard;
    rks_value *values; /* the values of one sample */
    rks_json_parser json;
    uint64_t row;
    uint64_t record_budget; /* bytes that the remaining records may have */
    uint64_t block_budget;
    uint64_t largest;
    bool places_good; /* the segment of this row is undamaged */

    size_t unit; /* index of the current unit */
    uint64_t unit_bytes;
    bool unit_bad; /* a sample of it was reported, so its digest cannot be right */
    rks_digester *digester;

    uint64_t block_end;    /* the row after the block's last one; 0: not known */
    uint64_t block_offset; /* the block's offset, if block_torn */
    bool block_torn;       /* the block's checksum is wrong, and no sample of it was reported yet */
} sample_walk;

/* What the index says about one row. */
typedef struct index_entry {
    uint32_t length;
    uint64_t key_hash;
} index_entry;

static const rks_segment *segment_of(const sample_walk *walk, size_t part)
{
    return &rks_shard_manifest(walk->shard)
                ->segments[rks_shard_segment_of(walk->shard, part, walk->row)];
}

static uint64_t index_offset(const sample_walk *walk, size_t part, size_t item)
{
    const rks_segment *segment = segment_of(walk, part);
    return segment->offset + (walk->row - segment->first_row) * item;
}

/* Checks every segment against its digest. The samples may give a more exact finding later. */
static rks_status check_segments(rks_verify_job *job, const rks_shard *shard, rks_error *err)
{
    size_t count = rks_shard_manifest(shard)->segment_count;
    if (rks_shard_manifest(shard)->unit_count > 0)
        count--; /* the unit list was checked when it was opened */
    for (size_t i = 0; i < count; i++) {
        rks_error what;
        rks_status status = rks_shard_check_segment(shard, i, &what);
        if (status != RKS_OK)
            rks_verify_report(job, rks_shard_path(shard),
                              rks_shard_manifest(shard)->segments[i].offset, NULL, 0, "%s",
                              what.text);
        status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
    }
    return RKS_OK;
}

/* ---- blocks ------------------------------------------------------------------------------- */

static void end_block(sample_walk *walk)
{
    if (walk->block_torn)
        rks_verify_report(walk->job, rks_shard_path(walk->shard), walk->block_offset, NULL, 0,
                          "block at %" PRIu64 ": wrong checksum, though its samples are right",
                          walk->block_offset);
    walk->block_torn = false;
}

static bool block_fits(const sample_walk *walk, const rks_block_info *info)
{
    const rks_unit_list *units = rks_shard_unit_list(walk->shard);
    if (units->count == 0)
        return info->count > 0 &&
               info->count <= rks_shard_manifest(walk->shard)->samples - walk->row;
    uint64_t at = walk->row - units->first_rows[walk->unit];
    return info->unit == units->summaries[walk->unit].unit && info->first_row == at &&
           info->count > 0 && info->count <= units->summaries[walk->unit].samples - at;
}

/* Finds where the block begins whose first record this is. The flag that says so may be damaged. */
static bool block_before(const sample_walk *walk, const rks_record_view *view, uint64_t *start)
{
    const rks_guarded_map *map = rks_shard_map(walk->shard);
    uint64_t offset = (uint64_t)(view->record - map->bytes);
    for (int turn = 0; turn < 2; turn++) {
        uint32_t align = turn == 0 ? view->align : view->align == 64 ? 8 : 64;
        uint64_t before = rks_record_place(RKS_BLOCK_HEADER, align);
        if (offset >= before && rks_block_begins(map->bytes + offset - before)) {
            *start = offset - before;
            return true;
        }
    }
    *start = offset;
    return false;
}

/* Begins a block. `sure`: the row is the first of one; else it may be. */
static void begin_block(sample_walk *walk, const rks_record_view *view, bool sure)
{
    const rks_guarded_map *map = rks_shard_map(walk->shard);
    rks_block_info info = {0};
    rks_error what = {0};
    uint64_t start = 0;
    uint64_t size = 0;
    walk->block_end = 0;
    bool good = block_before(walk, view, &start);
    if (good) {
        uint64_t left = map->size - start - RKS_BLOCK_HEADER;
        size = rks_load_u64(map->bytes + start + 32);
        size = RKS_BLOCK_HEADER + (size > left ? left : size);
        good = rks_block_open(map->bytes + start, size, rks_shard_path(walk->shard), start, &info,
                              &what) == RKS_OK &&
               block_fits(walk, &info);
    }
    if (!good) {
        if (sure)
            rks_verify_report(walk->job, rks_shard_path(walk->shard), start, NULL, 0,
                              "no sound block header before row %" PRIu64 "%s%s", walk->row,
                              what.text[0] == '\0' ? "" : ": ", what.text);
        return;
    }
    walk->block_end = walk->row + info.count;
    walk->block_offset = start;
    walk->block_torn = size > walk->block_budget ||
                       rks_block_check(map->bytes + start, size, rks_shard_path(walk->shard), start,
                                       &info, NULL) != RKS_OK ||
                       rks_guarded_map_faulted(map, map->bytes + start, size);
    walk->block_budget -= size < walk->block_budget ? size : walk->block_budget;
}

/* ---- samples ------------------------------------------------------------------------------ */

/* Writes the record's key to `key`. Returns false if it has none. */
static bool key_of(const sample_walk *walk, const rks_record_view *view, uint8_t *key,
                   size_t *key_size)
{
    const rks_shard *shard = walk->shard;
    const rks_unit_list *units = rks_shard_unit_list(shard);
    if (!rks_shard_manifest(shard)->derived_keys) {
        memcpy(key, view->key, view->key_size);
        *key_size = view->key_size;
        return view->key_size > 0;
    }
    *key_size = 0;
    if (units->count == 0 || units->key_names[walk->unit] == NULL || view->key_size != 0)
        return false;
    *key_size = rks_key_derive(units->key_names[walk->unit], strlen(units->key_names[walk->unit]),
                               units->summaries[walk->unit].first_source_row + view->source_row,
                               (char *)key);
    return true;
}

static void report_sample(sample_walk *walk, uint64_t offset, const uint8_t *key, size_t key_size,
                          const char *what)
{
    walk->unit_bad = true;
    walk->block_torn = false; /* the sample is the reason */
    walk->job->sample_id = rks_verify_sample_id(walk->job, walk->row);
    rks_verify_report(walk->job, rks_shard_path(walk->shard), offset, key, key_size, "%s", what);
    walk->job->sample_id = -1;
}

/* Reports a wrong checksum. If the record agrees with itself, the index is damaged. */
static void diagnose(sample_walk *walk, const rks_record_view *view, const index_entry *index,
                     uint64_t payload_hash, const uint8_t *key, size_t key_size)
{
    char what[256];
    rks_digest id = rks_shard_manifest(walk->shard)->shard_id;
    uint64_t check = rks_load_u64(view->record + 8);
    uint32_t size = (uint32_t)view->payload_size;
    uint64_t key_hash = rks_key_hash(key, key_size);
    uint64_t offset = (uint64_t)(view->record - rks_shard_map(walk->shard)->bytes);
    if (key_size > 0 &&
        rks_record_digest(payload_hash, id, walk->row, key_hash, view->length, size) == check) {
        bool length_bad = index->length != view->length;
        snprintf(what, sizeof(what), "row %" PRIu64 ": the index has another %s than the sample",
                 walk->row, length_bad ? "length" : "key hash");
        offset = length_bad ? index_offset(walk, RKS_SHARD_LENGTHS, 4)
                            : index_offset(walk, RKS_SHARD_KEY_HASHES, 8);
    } else if (!walk->places_good) {
        snprintf(what, sizeof(what),
                 "row %" PRIu64 ": its place in the index leads to another record, at %" PRIu64,
                 walk->row, offset);
        offset = rks_shard_place(walk->shard, walk->row);
    } else {
        rks_error err = {0};
        rks_record_check(view, id, walk->row, index->key_hash, index->length, &err);
        snprintf(what, sizeof(what), "%.255s",
                 err.text[0] != '\0' ? err.text : "its derived key is not the key of the index");
    }
    report_sample(walk, offset, key, key_size, what);
}

/* Returns false with an error if a column of JSON holds something else. */
static bool check_json(sample_walk *walk, rks_error *what)
{
    const rks_schema *schema = rks_shard_manifest(walk->shard)->schema;
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++) {
        const rks_value *value = &walk->values[i];
        rks_error why;
        rks_json root;
        if (rks_schema_column(schema, i)->kind != RKS_KIND_JSON || value->data == NULL)
            continue;
        if (rks_json_read(&walk->json, value->data, (size_t)value->size, (size_t)value->size, &root,
                          &why) == RKS_OK)
            continue;
        rks_fail(what, RKS_ERR_CORRUPT, 0, "column \"%s\": %s", rks_schema_name(schema, i),
                 why.text);
        return false;
    }
    return true;
}

static void check_contents(sample_walk *walk, const rks_record_view *view, uint64_t payload_hash,
                           uint64_t key_hash, const uint8_t *key, size_t key_size)
{
    const rks_schema *schema = rks_shard_manifest(walk->shard)->schema;
    uint8_t tuple[TUPLE_SIZE];
    rks_error what;
    if (rks_record_decode(schema, view->payload, view->payload_size, walk->values, &what) !=
            RKS_OK ||
        !check_json(walk, &what)) {
        report_sample(walk, (uint64_t)(view->record - rks_shard_map(walk->shard)->bytes), key,
                      key_size, what.text);
        return;
    }
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++)
        walk->unit_bytes += walk->values[i].size;
    walk->unit_bytes += view->key_size;
    rks_store_u64(tuple, payload_hash);
    rks_store_u64(tuple + 8, key_hash);
    rks_store_u32(tuple + 16, view->length);
    rks_store_u32(tuple + 20, (uint32_t)view->payload_size);
    rks_digester_update(walk->digester, tuple, sizeof(tuple));
}

/* Reports a record of which a page did not come. If its key lies there, zeros were read. */
static void report_unread(sample_walk *walk, const rks_record_view *view, const uint8_t *key,
                          size_t key_size)
{
    rks_error what;
    bool key_came = !rks_shard_faulted(walk->shard, view->record, RKS_RECORD_HEADER) &&
                    !rks_shard_faulted(walk->shard, view->key, view->key_size);
    rks_shard_read_failed(walk->shard, walk->row, view, &what);
    report_sample(walk, (uint64_t)(view->record - rks_shard_map(walk->shard)->bytes), key,
                  key_came ? key_size : 0, what.text);
}

static void check_row(sample_walk *walk)
{
    rks_shard *shard = walk->shard;
    rks_record_view view = {0};
    rks_error what;
    uint8_t key[RKS_KEY_MAX + 1];
    size_t key_size = 0;
    size_t places = rks_shard_segment_of(shard, RKS_SHARD_LOCATORS, walk->row);
    bool boundary = walk->row == 0 || walk->row == walk->block_end;
    walk->places_good = rks_shard_segment_good(shard, places);
    if (boundary)
        end_block(walk);
    if (rks_shard_locate(shard, walk->row, &view, &what) != RKS_OK) {
        uint64_t offset = rks_shard_offset(shard, walk->row);
        bool place = !walk->places_good || offset >= rks_shard_map(shard)->size;
        report_sample(walk, place ? rks_shard_place(shard, walk->row) : offset, NULL, 0, what.text);
        if (boundary)
            walk->block_end = 0; /* the next block cannot be found from here */
        return;
    }
    if (boundary || walk->block_end == 0)
        begin_block(walk, &view, boundary);
    uint64_t offset = (uint64_t)(view.record - rks_shard_map(shard)->bytes);
    if (view.record_size > walk->record_budget) {
        walk->record_budget = 0;
        report_sample(walk, offset, NULL, 0, "samples overlap: more bytes than the file has");
        return;
    }
    walk->record_budget -= view.record_size;
    if (view.record_size > walk->largest)
        walk->largest = view.record_size;

    const uint8_t *bytes = rks_shard_map(shard)->bytes;
    index_entry index = {rks_load_u32(bytes + index_offset(walk, RKS_SHARD_LENGTHS, 4)),
                         rks_load_u64(bytes + index_offset(walk, RKS_SHARD_KEY_HASHES, 8))};
    bool has_key = key_of(walk, &view, key, &key_size);
    bool no_names =
        rks_shard_manifest(shard)->derived_keys && rks_shard_unit_list(shard)->count == 0;
    uint64_t payload_hash = rks_checksum64(view.payload, view.payload_size);
    uint64_t key_hash = has_key ? rks_key_hash(key, key_size) : index.key_hash;
    uint64_t check = rks_record_digest(payload_hash, rks_shard_manifest(shard)->shard_id, walk->row,
                                       index.key_hash, index.length, (uint32_t)view.payload_size);
    walk->job->samples++;
    if (rks_shard_faulted(shard, view.record, view.record_size)) {
        report_unread(walk, &view, key, key_size);
    } else if (check != rks_load_u64(view.record + 8) || key_hash != index.key_hash ||
               view.length != index.length || (!has_key && !no_names)) {
        diagnose(walk, &view, &index, payload_hash, key, key_size);
    } else {
        check_contents(walk, &view, payload_hash, key_hash, key, key_size);
    }
}

/* ---- units -------------------------------------------------------------------------------- */

static void begin_unit(sample_walk *walk)
{
    rks_digester_reset(walk->digester);
    walk->unit_bytes = 0;
    walk->unit_bad = false;
    if (walk->block_end > walk->row)
        walk->block_end = 0;
}

static void end_unit(sample_walk *walk)
{
    const rks_unit_summary *summary = &rks_shard_unit_list(walk->shard)->summaries[walk->unit];
    if (walk->unit_bad || (rks_digest_equal(rks_digester_result(walk->digester), summary->digest) &&
                           walk->unit_bytes == summary->bytes))
        return;
    const rks_manifest *manifest = rks_shard_manifest(walk->shard);
    rks_verify_report(walk->job, rks_shard_path(walk->shard),
                      manifest->segments[manifest->segment_count - 1].offset, NULL, 0,
                      "unit %" PRIu64 ": its samples differ from the unit list", summary->unit);
}

/* Moves to the unit of walk->row, past units without rows. */
static void step_units(sample_walk *walk)
{
    const rks_unit_list *units = rks_shard_unit_list(walk->shard);
    while (walk->unit < units->count &&
           walk->row == units->first_rows[walk->unit] + units->summaries[walk->unit].samples) {
        end_unit(walk);
        walk->unit++;
        begin_unit(walk);
    }
}

rks_status rks_verify_samples(rks_verify_job *job, rks_shard *shard, rks_error *err)
{
    const rks_manifest *manifest = rks_shard_manifest(shard);
    sample_walk walk = {.job = job,
                        .shard = shard,
                        .record_budget = manifest->file_size,
                        .block_budget = manifest->file_size};
    uint64_t before = job->findings;
    rks_status status = check_segments(job, shard, err);
    if (status != RKS_OK)
        return status;
    status = RKS_ERR_MEMORY;
    walk.values = rks_alloc(rks_schema_columns(manifest->schema), sizeof(*walk.values), err);
    if (walk.values == NULL)
        goto out;
    walk.digester = rks_digester_create(err);
    if (walk.digester == NULL)
        goto out;
    status = RKS_OK;
    for (; walk.row < manifest->samples && status == RKS_OK && walk.record_budget > 0; walk.row++) {
        step_units(&walk);
        check_row(&walk);
        if (walk.row % INTERRUPT_ROWS == 0)
            status = rks_check_interrupt(err);
    }
    if (status != RKS_OK || walk.record_budget == 0)
        goto out;
    end_block(&walk);
    step_units(&walk);
    if (walk.largest != manifest->largest && job->findings == before)
        rks_verify_report(job, rks_shard_path(shard), 0, NULL, 0,
                          "the largest record has %" PRIu64 " bytes, the manifest says %" PRIu64,
                          walk.largest, manifest->largest);
out:
    rks_digester_free(walk.digester);
    rks_json_parser_free(&walk.json);
    rks_free(walk.values);
    return status;
}
