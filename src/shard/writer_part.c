/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_part.c: the part of a build that a writer finds or begins.
 *
 * The database `index` holds one entry from the start, "build", which names the part's build:
 *
 *   offset  size  field
 *        0     4  magic "RKSP"
 *        4     2  version, 1
 *        6     2  1: keys are derived
 *        8    16  shard id, random
 *       24    16  build id
 *       40     4  size s of the schema's text
 *       44     4  count n of index columns
 *       48   4*n  index columns: their positions in the schema
 *                 s bytes of the schema's canonical text
 *                 XXH3-64 of all that precedes
 *
 * If the build has a unit size, there is an entry "build_unit_size": that size (u64) and its
 * XXH3-64.
 *
 * A finished unit is its record in `units`. Blocks after the last finished unit's come from an
 * interrupted writer; opening drops them, so that rows keep their numbers. */
#include <endian.h>
#include <inttypes.h>

#include "base/error.h"
#include "base/file.h"
#include "base/secret.h"
#include "shard/part_check.h"
#include "shard/writer_state.h"

enum { PART_VERSION = 1 };

/* Encodes the entry "build" from the writer's fields. */
static rks_status encode_part(const rks_shard_writer *writer, rks_buffer *part, rks_error *err)
{
    const char *schema = rks_schema_text(writer->schema);
    uint32_t schema_size = (uint32_t)strlen(schema);
    size_t size = RKS_PART_HEADER + 4 * writer->index_count + schema_size + 8;
    rks_status status = rks_buffer_reserve(part, size, err);
    if (status != RKS_OK)
        return status;
    uint8_t *at = part->data;
    rks_store_u32(at, RKS_PART_MAGIC);
    rks_store_u16(at + 4, PART_VERSION);
    rks_store_u16(at + 6, writer->derived_keys);
    rks_store_u64(at + 8, writer->shard_id.low);
    rks_store_u64(at + 16, writer->shard_id.high);
    rks_store_u64(at + 24, writer->build_id.low);
    rks_store_u64(at + 32, writer->build_id.high);
    rks_store_u32(at + 40, schema_size);
    rks_store_u32(at + 44, (uint32_t)writer->index_count);
    for (size_t i = 0; i < writer->index_count; i++)
        rks_store_u32(at + RKS_PART_HEADER + 4 * i, writer->index[i]);
    memcpy(at + RKS_PART_HEADER + 4 * writer->index_count, schema, schema_size);
    rks_store_u64(at + size - 8, rks_checksum64(at, size - 8));
    part->size = size;
    return RKS_OK;
}

typedef struct part_visit {
    rks_shard_writer *writer;
    bool found;
} part_visit;

static rks_status visit_part(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    part_visit *visit = user;
    rks_shard_writer *writer = visit->writer;
    rks_buffer expected = {0};
    *stop = true;
    if (entry->key_size != strlen(RKS_PART_KEY) ||
        memcmp(entry->key, RKS_PART_KEY, entry->key_size) != 0)
        return RKS_OK;
    const uint8_t *part = entry->value;
    if (!rks_part_record_whole(part, entry->size))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: is not a part of a build, or is damaged",
                        writer->data_path);
    if (rks_load_u16(part + 4) != PART_VERSION)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "%s: part of version %u; this build has %d",
                        writer->data_path, (unsigned)rks_load_u16(part + 4), PART_VERSION);
    writer->shard_id = (rks_digest){rks_load_u64(part + 8), rks_load_u64(part + 16)};
    rks_status status = encode_part(writer, &expected, err);
    if (status == RKS_OK &&
        (entry->size != expected.size || memcmp(part, expected.data, expected.size) != 0))
        status = rks_fail(err, RKS_ERR_STATE, 0,
                          "%s: belongs to another build (other input, schema or options); remove "
                          "it to build again",
                          writer->data_path);
    rks_buffer_free(&expected);
    visit->found = status == RKS_OK;
    return status;
}

static rks_status put_unit_size(rks_shard_writer *writer, rks_error *err)
{
    uint8_t bytes[RKS_PART_UNIT_SIZE];
    rks_store_u64(bytes, writer->unit_size);
    rks_store_u64(bytes + 8, rks_checksum64(bytes, 8));
    return rks_lmdb_put_text(writer->env, RKS_LMDB_INDEX, RKS_PART_UNIT_SIZE_KEY, bytes,
                             sizeof(bytes), err);
}

static rks_status begin_part(rks_shard_writer *writer, rks_error *err)
{
    if (rks_lmdb_count(writer->env, RKS_LMDB_BLOCKS) > 0 ||
        rks_lmdb_count(writer->env, RKS_LMDB_UNITS) > 0)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: has blocks but no build", writer->data_path);
    rks_buffer part = {0};
    rks_status status = RKS_OK;
    if (rks_digest_equal(writer->shard_id, (rks_digest){0})) {
        uint8_t id[16];
        status = rks_random(id, sizeof(id), err);
        writer->shard_id = (rks_digest){rks_load_u64(id), rks_load_u64(id + 8)};
    }
    if (status == RKS_OK)
        status = encode_part(writer, &part, err);
    if (status == RKS_OK)
        status =
            rks_lmdb_put_text(writer->env, RKS_LMDB_INDEX, RKS_PART_KEY, part.data, part.size, err);
    if (status == RKS_OK && writer->unit_size > 0)
        status = put_unit_size(writer, err);
    if (status == RKS_OK)
        status = rks_lmdb_commit(writer->env, err);
    if (status == RKS_OK)
        status = rks_file_sync_directory_of(writer->data_path, err);
    rks_buffer_free(&part);
    return status;
}

static rks_status visit_unit(void *user, const rks_lmdb_entry *entry, bool *stop, rks_error *err)
{
    (void)stop;
    rks_shard_writer *writer = user;
    rks_unit_stored stored = {0};
    uint64_t position = 0;
    if (entry->key_size == sizeof(position))
        memcpy(&position, entry->key, sizeof(position));
    rks_status status = rks_unit_decode(entry->value, entry->size, true, writer->data_path,
                                        &writer->units, &stored, err);
    if (status != RKS_OK)
        return status;
    if (entry->key_size != 8 || be64toh(position) != writer->units.count - 1 ||
        stored.size != entry->size || stored.end_block < writer->next_block)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: entry %zu of its units is out of order",
                        writer->data_path, writer->units.count - 1);
    writer->next_block = stored.end_block;
    return RKS_OK;
}

rks_status rks_writer_resume(rks_shard_writer *writer, rks_error *err)
{
    part_visit visit = {writer, false};
    rks_status status = rks_lmdb_walk(writer->env, RKS_LMDB_INDEX, RKS_PART_KEY,
                                      strlen(RKS_PART_KEY), visit_part, &visit, err);
    if (status != RKS_OK || !visit.found)
        return status == RKS_OK ? begin_part(writer, err) : status;
    status = rks_lmdb_delete_from(writer->env, RKS_LMDB_INDEX, RKS_SEGMENT_KEYS_FROM,
                                  strlen(RKS_SEGMENT_KEYS_FROM), err);
    if (status == RKS_OK)
        status = rks_lmdb_walk(writer->env, RKS_LMDB_UNITS, NULL, 0, visit_unit, writer, err);
    uint64_t tail = htobe64(writer->next_block);
    if (status == RKS_OK)
        status = rks_lmdb_delete_from(writer->env, RKS_LMDB_BLOCKS, &tail, sizeof(tail), err);
    if (status == RKS_OK && rks_lmdb_count(writer->env, RKS_LMDB_BLOCKS) != writer->next_block)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0,
                          "%s: %" PRIu64 " blocks, its units have %" PRIu64, writer->data_path,
                          rks_lmdb_count(writer->env, RKS_LMDB_BLOCKS), writer->next_block);
    size_t count = writer->units.count;
    if (count > 0)
        writer->rows =
            writer->units.first_rows[count - 1] + writer->units.summaries[count - 1].samples;
    writer->resumed_blocks = writer->next_block;
    writer->log.first = writer->rows;
    return status;
}
