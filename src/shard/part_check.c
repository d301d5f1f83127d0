/* SPDX-License-Identifier: Apache-2.0
 *
 * part_check.c: reads the contents of an unsealed part without LMDB. The databases come in the
 * order of their names, so the places of all blocks are kept until the unit list shows which of
 * them count. */
#include "shard/part_check.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/lmdb_check.h"
#include "shard/manifest.h"
#include "shard/writer_state.h"

/* A unit's record is a header and a key; the part's record holds index columns and a schema. */
static const size_t UNIT_RECORD_MOST = 4096, PART_RECORD_MOST = (size_t)16 << 20;

bool rks_part_record_whole(const uint8_t *bytes, size_t size)
{
    return size >= RKS_PART_HEADER + 8 && rks_load_u32(bytes) == RKS_PART_MAGIC &&
           rks_load_u64(bytes + size - 8) == rks_checksum64(bytes, size - 8);
}

typedef struct block_place {
    uint64_t offset;
    size_t size;
} block_place;

typedef struct part_check {
    int fd;
    const char *path;
    block_place *blocks;
    size_t block_count;
    size_t block_room;
    rks_unit_list units;
    uint64_t *unit_ends; /* the block after each unit's last */
    bool has_record;
    rks_digest shard_id; /* from the part's record */
    bool has_owner;
    rks_digest owner;        /* from the main database: a seal began */
    rks_part_record *record; /* result of rks_part_look; else NULL */
} part_check;

/* Refuses a part that an earlier version began: its first block shows that. Damage is for
 * check_part_unit to find. */
static rks_status check_version(const part_check *check, const rks_lmdb_found *found,
                                rks_error *err)
{
    uint8_t header[RKS_BLOCK_HEADER];
    rks_block_info info;
    rks_error why;
    if (found->size < sizeof(header) || rks_file_read_at(check->fd, check->path, found->offset,
                                                         header, sizeof(header), NULL) != RKS_OK)
        return RKS_OK;
    rks_status status =
        rks_block_open(header, found->size, check->path, found->offset, &info, &why);
    if (status != RKS_ERR_UNSUPPORTED)
        return RKS_OK;
    return rks_fail(err, status, 0, "%s; remove this unfinished part", why.text);
}

static rks_status check_block_entry(part_check *check, const rks_lmdb_found *found, rks_error *err)
{
    uint64_t number = 0;
    memcpy(&number, found->key, sizeof(number));
    if (found->key_size != sizeof(number) || be64toh(number) != check->block_count)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: block %zu is missing", check->path,
                        check->block_count);
    rks_status status = number == 0 ? check_version(check, found, err) : RKS_OK;
    if (status != RKS_OK)
        return status;
    if (check->block_count == check->block_room) {
        size_t room = check->block_room == 0 ? 64 : 2 * check->block_room;
        block_place *blocks = rks_realloc(check->blocks, room, sizeof(*blocks), err);
        if (blocks == NULL)
            return RKS_ERR_MEMORY;
        check->blocks = blocks;
        check->block_room = room;
    }
    check->blocks[check->block_count++] = (block_place){found->offset, found->size};
    return RKS_OK;
}

/* Loads the value of an entry into new memory. */
static rks_status load_value(const part_check *check, const rks_lmdb_found *found, size_t most,
                             uint8_t **value, rks_error *err)
{
    if (found->size > most)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %zu bytes in database \"%s\" at %" PRIu64,
                        check->path, found->size, found->db, found->offset);
    uint8_t *bytes = rks_alloc_raw(found->size, 1, err);
    if (bytes == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        rks_file_read_at(check->fd, check->path, found->offset, bytes, found->size, err);
    if (status == RKS_OK)
        *value = bytes;
    else
        rks_free(bytes);
    return status;
}

static rks_status check_unit_entry(part_check *check, const rks_lmdb_found *found, rks_error *err)
{
    rks_unit_stored stored = {0};
    size_t at = check->units.count;
    uint64_t position = 0, before = at == 0 ? 0 : check->unit_ends[at - 1];
    uint8_t *value = NULL;
    rks_status status = load_value(check, found, UNIT_RECORD_MOST, &value, err);
    if (status != RKS_OK)
        return status;
    status = rks_unit_decode(value, found->size, true, check->path, &check->units, &stored, err);
    rks_free(value);
    if (status != RKS_OK)
        return status;
    memcpy(&position, found->key, sizeof(position));
    if (found->key_size != sizeof(position) || be64toh(position) != at ||
        stored.size != found->size || stored.end_block < before ||
        stored.end_block > check->block_count)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: entry %zu of its units is out of order",
                        check->path, at);
    uint64_t *ends = rks_realloc(check->unit_ends, at + 1, sizeof(*ends), err);
    if (ends == NULL)
        return RKS_ERR_MEMORY;
    check->unit_ends = ends;
    ends[at] = stored.end_block;
    return RKS_OK;
}

static bool is_key(const rks_lmdb_found *found, const char *key)
{
    return found->key_size == strlen(key) && memcmp(found->key, key, found->key_size) == 0;
}

/* Copies the fields of a record whose checksum matched. */
static rks_status note_record(part_check *check, const uint8_t *part, size_t size, rks_error *err)
{
    uint64_t schema = rks_load_u32(part + 40), before = RKS_PART_HEADER;
    before += 4 * (uint64_t)rks_load_u32(part + 44);
    if (before + schema + 8 != size)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: its record of a build is malformed",
                        check->path);
    check->record->build_id = (rks_digest){rks_load_u64(part + 24), rks_load_u64(part + 32)};
    rks_free(check->record->schema);
    check->record->schema =
        rks_format(err, "%.*s", (int)schema, (const char *)part + (size_t)before);
    return check->record->schema == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

static rks_status check_unit_size(part_check *check, const rks_lmdb_found *found, rks_error *err)
{
    uint8_t *value = NULL;
    rks_status status = load_value(check, found, RKS_PART_UNIT_SIZE, &value, err);
    if (status != RKS_OK)
        return status;
    if (found->size != RKS_PART_UNIT_SIZE || rks_load_u64(value + 8) != rks_checksum64(value, 8))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: its unit size is damaged", check->path);
    else if (check->record != NULL)
        check->record->unit_size = rks_load_u64(value);
    rks_free(value);
    return status;
}

static rks_status check_record(part_check *check, const rks_lmdb_found *found, rks_error *err)
{
    uint8_t *value = NULL;
    if (is_key(found, RKS_PART_UNIT_SIZE_KEY))
        return check_unit_size(check, found, err);
    if (!is_key(found, RKS_PART_KEY))
        return RKS_OK; /* an interrupted seal left it: the writer deletes it */
    rks_status status = load_value(check, found, PART_RECORD_MOST, &value, err);
    if (status != RKS_OK)
        return status;
    if (!rks_part_record_whole(value, found->size))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: is not a part of a build, or is damaged",
                          check->path);
    else
        check->shard_id = (rks_digest){rks_load_u64(value + 8), rks_load_u64(value + 16)};
    if (status == RKS_OK && check->record != NULL)
        status = note_record(check, value, found->size, err);
    check->has_record = true;
    rks_free(value);
    return status;
}

static rks_status check_owner(part_check *check, const rks_lmdb_found *found, rks_error *err)
{
    uint8_t id[RKS_DIGEST_SIZE];
    if (!is_key(found, RKS_MAIN_SHARD_KEY) || found->size != sizeof(id))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: an unknown entry of the main database",
                        check->path);
    check->has_owner = true;
    rks_status status =
        rks_file_read_at(check->fd, check->path, found->offset, id, sizeof(id), err);
    check->owner = (rks_digest){rks_load_u64(id), rks_load_u64(id + 8)};
    return status;
}

static rks_status check_found(void *user, const rks_lmdb_found *found, rks_error *err)
{
    part_check *check = user;
    if (strcmp(found->db, "blocks") == 0)
        return check_block_entry(check, found, err);
    if (strcmp(found->db, "units") == 0)
        return check_unit_entry(check, found, err);
    if (strcmp(found->db, "index") == 0)
        return check_record(check, found, err);
    if (found->db[0] == '\0')
        return check_owner(check, found, err);
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: an unknown database", check->path);
}

/* Checks the checksums of unit `u`'s blocks, and that they hold its rows in order. */
static rks_status check_part_unit(const part_check *check, size_t u, rks_buffer *buffer,
                                  rks_error *err)
{
    const rks_unit_summary *unit = &check->units.summaries[u];
    uint64_t rows = 0;
    rks_status status = RKS_OK;
    for (uint64_t i = u == 0 ? 0 : check->unit_ends[u - 1]; i < check->unit_ends[u]; i++) {
        const block_place *place = &check->blocks[i];
        rks_block_info info;
        buffer->size = 0;
        status = rks_buffer_reserve(buffer, place->size, err);
        if (status == RKS_OK)
            status = rks_file_read_at(check->fd, check->path, place->offset, buffer->data,
                                      place->size, err);
        if (status == RKS_OK)
            status =
                rks_block_check(buffer->data, place->size, check->path, place->offset, &info, err);
        if (status == RKS_OK)
            status = rks_block_check_shard(&info, check->shard_id, check->path, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
        if (status != RKS_OK)
            return status;
        if (info.unit != unit->unit || info.first_row != rows)
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "%s: block at %" PRIu64 " is not of unit %" PRIu64 ", row %" PRIu64,
                            check->path, place->offset, unit->unit, rows);
        rows += info.count;
    }
    if (rows != unit->samples)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: the blocks of unit %" PRIu64 " hold %" PRIu64
                        " samples, its record says %" PRIu64,
                        check->path, unit->unit, rows, unit->samples);
    return RKS_OK;
}

static rks_status check_contents(const part_check *check, rks_error *err)
{
    rks_buffer buffer = {0};
    rks_status status = RKS_OK;
    if (!check->has_record && check->block_count + check->units.count > 0)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: has blocks but no build", check->path);
    else if (check->has_owner && !rks_digest_equal(check->owner, check->shard_id))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: its main database names another shard",
                          check->path);
    for (size_t u = 0; status == RKS_OK && u < check->units.count; u++)
        status = check_part_unit(check, u, &buffer, err);
    rks_buffer_free(&buffer);
    return status;
}

/* Opens the file; reads its pages, record and unit list. */
static rks_status begin_check(part_check *check, rks_error *err)
{
    rks_status status = rks_file_open(check->path, &check->fd, NULL, err);
    return status == RKS_OK ? rks_lmdb_check(check->fd, check->path, check_found, check, err)
                            : status;
}

static void end_check(part_check *check)
{
    if (check->fd >= 0)
        close(check->fd);
    rks_unit_list_free(&check->units);
    rks_free(check->unit_ends);
    rks_free(check->blocks);
}

rks_status rks_part_check(const char *path, rks_error *err)
{
    part_check check = {.fd = -1, .path = path};
    rks_status status = begin_check(&check, err);
    if (status == RKS_OK)
        status = check_contents(&check, err);
    end_check(&check);
    return status;
}

rks_status rks_part_look(const char *path, rks_part_record *record, rks_error *err)
{
    rks_part_record found = {0};
    part_check check = {.fd = -1, .path = path, .record = &found};
    rks_status status = begin_check(&check, err);
    if (status == RKS_OK && found.schema == NULL)
        status = rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: holds nothing yet", path);
    found.units = check.units.count;
    end_check(&check);
    if (status == RKS_OK)
        *record = found;
    else
        rks_free(found.schema);
    return status;
}

rks_status rks_part_discard_damaged(const char *path, rks_error *err)
{
    struct stat info;
    rks_error why;
    if (stat(path, &info) == 0 && info.st_size == 0)
        return RKS_OK; /* killed before its first write: LMDB starts afresh */
    rks_status status = rks_part_check(path, &why);
    if (status == RKS_OK || status == RKS_ERR_NOT_FOUND)
        return RKS_OK;
    if (status != RKS_ERR_CORRUPT) {
        if (err != NULL)
            *err = why;
        return status;
    }
    rks_log("%s: this unfinished part is damaged; its units are built again", why.text);
    if (unlink(path) != 0)
        return rks_fail_errno(err, errno, "%s: removing a damaged part", path);
    return RKS_OK;
}
