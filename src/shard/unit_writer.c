/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_writer.c: writes the samples of one unit into blocks.
 *
 * A record holds its row in the shard, and a derived key the row in its file. Both are known only
 * when the units before have ended. Until then a record's check field holds the hash of its
 * payload. rks_unit_writer_place() turns it into the check (block.c), block by block. If the unit
 * already has its place, this happens while the block is still in the processor's cache. */
#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"
#include "shard/unit_digest.h"
#include "shard/writer_state.h"

/* A block that waits until the unit has its place. */
typedef struct kept_block {
    uint8_t *bytes;
    size_t size;
    uint32_t count;
    uint64_t first_row; /* in the unit */
} kept_block;

struct rks_unit_writer {
    rks_shard_writer *shard; /* until placed, only fields that opening set are read */
    bool placed;
    uint64_t first_row; /* in the shard, once placed */
    rks_unit_summary summary;
    char *key_name;
    size_t key_name_size;
    rks_unit_digest digest;

    kept_block block; /* the one being filled; bytes is NULL if none */
    kept_block *kept;
    size_t kept_count, kept_room;
    uint64_t kept_bytes;
};

/* ---- the begin ---- */

static rks_status check_name(const rks_shard_writer *shard, uint64_t unit, const char *key_name,
                             rks_error *err)
{
    if (unit > INT64_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 " is out of range", unit);
    if (shard->derived_keys && (key_name == NULL || key_name[0] == '\0'))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %" PRIu64 ": derived keys need its name",
                        unit);
    if (shard->derived_keys && !rks_key_name_fits(key_name))
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "unit %" PRIu64 ": its name, \"%s\", is too long for keys of %d bytes",
                        unit, key_name, RKS_KEY_MAX);
    return RKS_OK;
}

rks_status rks_unit_writer_create(rks_shard_writer *shard, uint64_t unit, const char *key_name,
                                  rks_unit_writer **writer, rks_error *err)
{
    rks_status status = check_name(shard, unit, key_name, err);
    if (status != RKS_OK)
        return status;
    rks_unit_writer *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->shard = shard;
    made->summary.unit = unit;
    status = rks_unit_digest_begin(&made->digest, err);
    if (status == RKS_OK && shard->derived_keys) {
        made->key_name = rks_strdup(key_name, err);
        made->key_name_size = strlen(key_name);
    }
    if (status != RKS_OK || (shard->derived_keys && made->key_name == NULL)) {
        rks_unit_writer_free(made);
        return RKS_ERR_MEMORY;
    }
    *writer = made;
    return RKS_OK;
}

void rks_unit_writer_free(rks_unit_writer *unit)
{
    if (unit == NULL)
        return;
    rks_committer_drop(unit->shard->committer, unit->block.bytes);
    for (size_t i = 0; i < unit->kept_count; i++)
        rks_committer_drop(unit->shard->committer, unit->kept[i].bytes);
    rks_unit_digest_free(&unit->digest);
    rks_free(unit->kept);
    rks_free(unit->key_name);
    rks_free(unit);
}

uint64_t rks_unit_writer_kept(const rks_unit_writer *unit)
{
    return unit->kept_bytes;
}

/* ---- blocks with a place ---- */

static uint64_t hash_of_key(const rks_unit_writer *unit, const rks_record_view *view)
{
    char key[RKS_KEY_MAX + 1];
    if (!unit->shard->derived_keys)
        return rks_key_hash(view->key, view->key_size);
    return rks_key_hash(key,
                        rks_key_derive(unit->key_name, unit->key_name_size,
                                       unit->summary.first_source_row + view->source_row, key));
}

/* Turns the hashes of payloads into the records' checks, and logs the rows. */
static rks_status check_records(rks_unit_writer *unit, const kept_block *block, rks_error *err)
{
    uint64_t row = unit->first_row + block->first_row;
    size_t at = RKS_BLOCK_HEADER, asked = 0;
    rks_row_log *log = &unit->shard->log;
    rks_status status = rks_row_log_reserve(log, block->count, err);
    for (uint32_t i = 0; status == RKS_OK && i < block->count; i++, row++) {
        rks_record_view view;
        rks_block_look_ahead(block->bytes, block->size, at, &asked);
        status = rks_block_next(block->bytes, block->size, &at, &view, err);
        if (status != RKS_OK)
            return status;
        size_t place = (size_t)(view.record - block->bytes);
        uint8_t *check = block->bytes + place + RKS_RECORD_CHECK_AT;
        uint64_t payload_hash = rks_load_u64(check), key_hash = hash_of_key(unit, &view);
        rks_store_u64(check, rks_record_digest(payload_hash, unit->shard->shard_id, row, key_hash,
                                               view.length, (uint32_t)view.payload_size));
        rks_unit_digest_add(&unit->digest, payload_hash, key_hash, view.length,
                            (uint32_t)view.payload_size);
        rks_row_log_add(
            log, (rks_logged_row){key_hash, view.length, (uint32_t)(place / RKS_RECORD_STEP)},
            view.record_size);
    }
    return status;
}

/* Passes a block to the committer, with the unit's record if the unit ends. `block` may have no
 * bytes. */
static rks_status put_block(rks_unit_writer *unit, kept_block *block, const rks_buffer *record,
                            rks_error *err)
{
    rks_shard_writer *shard = unit->shard;
    uint8_t *bytes = block->bytes;
    uint64_t number = shard->next_block;
    if (bytes != NULL) {
        rks_block_info info = {.unit = unit->summary.unit,
                               .first_row = block->first_row,
                               .count = block->count,
                               .shard = shard->shard_id.high};
        rks_block_finish(bytes, block->size, &info);
        shard->next_block++;
        block->bytes = NULL;
    }
    rks_status status = rks_committer_put(shard->committer, number, bytes, block->size,
                                          shard->units.count, record, err);
    shard->broken = shard->broken || status != RKS_OK;
    return status;
}

static rks_status put_checked(rks_unit_writer *unit, kept_block *block, rks_error *err)
{
    rks_status status = check_records(unit, block, err);
    if (status == RKS_OK)
        return put_block(unit, block, NULL, err);
    unit->shard->broken = true; /* the shard already has the unit's earlier blocks */
    return status;
}

static rks_status keep_block(rks_unit_writer *unit, rks_error *err)
{
    if (unit->kept_count == unit->kept_room) {
        size_t room = unit->kept_room == 0 ? 16 : 2 * unit->kept_room;
        kept_block *grown = rks_realloc(unit->kept, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        unit->kept = grown;
        unit->kept_room = room;
    }
    unit->kept[unit->kept_count++] = unit->block;
    unit->kept_bytes += unit->block.size;
    unit->block.bytes = NULL;
    return RKS_OK;
}

/* Pads the block that was being filled. */
static void pad_block(rks_unit_writer *unit)
{
    size_t least = rks_lmdb_page_size(unit->shard->env) + 8;
    if (unit->block.size < least) { /* so that LMDB stores it in overflow pages */
        memset(unit->block.bytes + unit->block.size, 0, least - unit->block.size);
        unit->block.size = least;
    }
}

static rks_status flush_block(rks_unit_writer *unit, rks_error *err)
{
    pad_block(unit);
    if (!unit->placed)
        return keep_block(unit, err);
    return put_checked(unit, &unit->block, err);
}

static rks_status check_turn(const rks_shard_writer *shard, uint64_t unit, rks_error *err)
{
    rks_status status = rks_shard_writer_usable(shard, false, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; i < shard->units.count; i++)
        if (shard->units.summaries[i].unit == unit)
            return rks_fail(err, RKS_ERR_STATE, 0, "%s: unit %" PRIu64 " is already in the shard",
                            shard->data_path, unit);
    return RKS_OK;
}

rks_status rks_unit_writer_place(rks_unit_writer *unit, uint64_t first_source_row, rks_error *err)
{
    rks_shard_writer *shard = unit->shard;
    rks_status status = check_turn(shard, unit->summary.unit, err);
    if (status != RKS_OK)
        return status;
    shard->in_unit = true;
    unit->placed = true;
    unit->first_row = shard->rows;
    unit->summary.first_source_row = first_source_row;
    for (size_t i = 0; status == RKS_OK && i < unit->kept_count; i++)
        status = put_checked(unit, &unit->kept[i], err);
    unit->kept_bytes = 0;
    return status;
}

/* ---- samples ---- */

/* Finds room for a record at the block's end, or in a new block. */
static rks_status place_record(rks_unit_writer *unit, uint64_t size, uint32_t align,
                               uint64_t *begin, rks_error *err)
{
    kept_block *block = &unit->block;
    const uint64_t limit = unit->shard->block_limit;
    *begin = block->bytes == NULL ? 0 : rks_record_place(block->size, align);
    if (block->bytes != NULL && *begin + size > limit) {
        rks_status status = flush_block(unit, err);
        if (status != RKS_OK)
            return status;
    }
    if (block->bytes == NULL) {
        *begin = rks_record_place(RKS_BLOCK_HEADER, align);
        uint64_t room = rks_round_up(*begin + size, 8);
        room = room < limit ? limit : room;
        rks_status status =
            rks_committer_buffer(unit->shard->committer, (size_t)room, &block->bytes, err);
        if (status != RKS_OK)
            return status;
        block->size = RKS_BLOCK_HEADER;
        block->count = 0;
        block->first_row = unit->summary.samples;
    }
    return RKS_OK;
}

static rks_status check_new_key(const rks_shard_writer *shard, const void *key, size_t key_size,
                                rks_error *err)
{
    char shown[RKS_SHOWN_ROOM];
    if (shard->derived_keys && key != NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "a key is given, but this shard derives its keys");
    if (!shard->derived_keys && key == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "no key is given, but this shard stores its keys");
    if (!shard->derived_keys && (key_size == 0 || key_size > RKS_KEY_MAX))
        return rks_fail(err, RKS_ERR_DATA, 0, "key \"%s\" of %zu bytes: must have 1 to %d",
                        rks_text_shown(key, key_size, shown), key_size, RKS_KEY_MAX);
    return RKS_OK;
}

static rks_status too_large(const rks_unit_writer *unit, const void *key, size_t key_size,
                            uint32_t source_row, uint64_t size, rks_error *err)
{
    char derived[RKS_KEY_MAX + 1], shown[RKS_SHOWN_ROOM];
    if (unit->shard->derived_keys) {
        key_size = rks_key_derive(unit->key_name, unit->key_name_size,
                                  unit->summary.first_source_row + source_row, derived);
        key = derived;
    }
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "sample \"%s\": %" PRIu64 " bytes, at most %" PRIu64
                    " are allowed (max_sample)",
                    rks_text_shown(key, key_size, shown), size, unit->shard->max_sample);
}

rks_status rks_unit_writer_add(rks_unit_writer *unit, const rks_value *values, const void *key,
                               size_t key_size, uint32_t length, uint32_t source_row,
                               rks_error *err)
{
    const rks_shard_writer *shard = unit->shard;
    uint64_t size = 0, plain = 0, begin = 0;
    uint32_t align = 0;
    rks_status status = check_new_key(shard, key, key_size, err);
    if (status == RKS_OK)
        status = rks_record_measure(shard->schema, values, &size, &align, &plain, err);
    if (status != RKS_OK)
        return status;
    if (size > shard->max_sample)
        return too_large(unit, key, key_size, source_row, size, err);
    size_t stored = shard->derived_keys ? 0 : key_size;
    status = place_record(unit, RKS_RECORD_HEADER + size + stored, align, &begin, err);
    if (status != RKS_OK)
        return status;

    kept_block *block = &unit->block;
    uint8_t *record = block->bytes + begin, *payload = record + RKS_RECORD_HEADER;
    uint8_t *end = payload + size + stored;
    memset(block->bytes + block->size, 0, begin - block->size);
    rks_record_write(shard->schema, values, payload);
    if (stored > 0)
        memcpy(payload + size, key, stored);
    block->size = (size_t)rks_round_up((uint64_t)(end - block->bytes), 8);
    memset(end, 0, block->size - (size_t)(end - block->bytes));
    rks_record_header_put(record, (uint32_t)size, length, rks_checksum64(payload, (size_t)size),
                          (uint16_t)stored, align, source_row);
    block->count++;
    unit->summary.samples++;
    unit->summary.bytes += plain + stored;
    return RKS_OK;
}

/* ---- the end ---- */

static rks_status put_last(rks_unit_writer *unit, rks_error *err)
{
    rks_shard_writer *shard = unit->shard;
    rks_buffer record = {0};
    rks_status status = RKS_OK;
    if (unit->block.bytes != NULL) {
        pad_block(unit);
        status = check_records(unit, &unit->block, err);
    }
    unit->summary.digest = rks_unit_digest_end(&unit->digest);
    if (status == RKS_OK)
        status = rks_unit_encode(&unit->summary, shard->rows,
                                 shard->next_block + (unit->block.bytes != NULL ? 1 : 0),
                                 unit->key_name, &record, err);
    if (status == RKS_OK) {
        rks_unit_stamp(record.data, record.size);
        status = put_block(unit, &unit->block, &record, err);
    }
    rks_buffer_free(&record);
    return status;
}

rks_status rks_unit_writer_end(rks_unit_writer *unit, uint64_t seen, uint64_t filtered,
                               uint64_t bad, rks_error *err)
{
    rks_shard_writer *shard = unit->shard;
    rks_status status = rks_shard_writer_usable(shard, true, err);
    if (status == RKS_OK && !unit->placed)
        status = rks_fail(err, RKS_ERR_STATE, 0, "%s: unit %" PRIu64 " has no place yet",
                          shard->data_path, unit->summary.unit);
    if (status != RKS_OK)
        return status;
    unit->summary.seen = seen;
    unit->summary.filtered = filtered;
    unit->summary.bad = bad;
    status = put_last(unit, err);
    if (status == RKS_OK)
        status = rks_unit_list_add(&shard->units, &unit->summary, shard->rows, unit->key_name, err);
    if (status == RKS_OK) {
        shard->rows += unit->summary.samples;
        shard->in_unit = false;
    }
    shard->broken = shard->broken || status != RKS_OK;
    return status;
}
