/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_list.c: list-DIGITS.units, shards and units that dataset.json and its older generations
 * refer to. Numbers are little-endian. DIGITS are the first 16 of its digest.
 *
 *   offset  size  field
 *        0     4  magic "RKSU"
 *        4     4  version: 2, or 1 if no shard has an origin
 *        8     8  n, shards
 *       16     8  m, units
 *       24        n shards, one after another, by id:
 *          0  16  id
 *         16  16  digest of its manifest
 *         32  16  build id in its manifest
 *         48   8  what to add to its own unit numbers
 *         56   8  samples
 *         64   8  column and key bytes
 *         72   8  bytes of its three files
 *         80   8  bytes of its largest record
 *         88   4  size k of its name
 *         92   4  size h of its origin (version 1: 0)
 *         96   k  name
 *              h  origin, then zeros up to a multiple of 8
 *               m units, by number, as in a shard's unit list (shard/unit_list.c), but with the
 *                 shard's position in this list at 80, and 0 at 92
 */
#include "dataset/dataset_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "dataset/dataset_json.h"
#include "shard/block.h"
#include "shard/manifest.h"

enum { HEAD = 24, ENTRY = 96, VERSION = 2 };
static const uint32_t MAGIC = 0x55534b52; /* "RKSU" */

/* ---- writing --------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const rks_dataset_shard *const *left = a, *const *right = b;
    return rks_dataset_compare_ids((*left)->id, (*right)->id);
}

static void store_digest(uint8_t *at, rks_digest digest)
{
    rks_store_u64(at, digest.low);
    rks_store_u64(at + 8, digest.high);
}

static rks_status put_shard_entry(const rks_dataset_shard *shard, rks_digest build,
                                  rks_buffer *bytes, rks_error *err)
{
    size_t name = strlen(shard->name), origin = strlen(shard->origin);
    size_t size = (size_t)rks_round_up(ENTRY + name + origin, 8);
    rks_status status = rks_buffer_reserve(bytes, size, err);
    if (status != RKS_OK)
        return status;
    uint8_t *at = bytes->data + bytes->size;
    memset(at, 0, size);
    store_digest(at, shard->id);
    store_digest(at + 16, shard->manifest);
    store_digest(at + 32, build);
    rks_store_u64(at + 48, shard->first_unit);
    rks_store_u64(at + 56, shard->samples);
    rks_store_u64(at + 64, shard->bytes);
    rks_store_u64(at + 72, shard->file_bytes);
    rks_store_u64(at + 80, shard->largest);
    rks_store_u32(at + 88, (uint32_t)name);
    rks_store_u32(at + 92, (uint32_t)origin);
    memcpy(at + ENTRY, shard->name, name);
    memcpy(at + ENTRY + name, shard->origin, origin);
    bytes->size += size;
    return RKS_OK;
}

static rks_status put_entries(const rks_dataset *dataset, const bool *chosen,
                              const rks_dataset_shard **sorted, uint32_t *place,
                              rks_dataset_list *list, rks_buffer *bytes, rks_error *err)
{
    uint8_t head[HEAD];
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (chosen[i])
            sorted[list->shards++] = &dataset->shards[i];
    if (list->shards > 0)
        qsort(sorted, list->shards, sizeof(*sorted), by_id);
    for (size_t i = 0; i < dataset->unit_count; i++)
        list->units += chosen[dataset->units[i].shard];
    rks_store_u32(head, MAGIC);
    bool origins = false;
    for (size_t i = 0; i < list->shards; i++)
        origins = origins || sorted[i]->origin[0] != '\0';
    rks_store_u32(head + 4, origins ? VERSION : 1);
    rks_store_u64(head + 8, list->shards);
    rks_store_u64(head + 16, list->units);
    rks_status status = rks_buffer_add(bytes, head, sizeof(head), err);
    for (size_t i = 0; status == RKS_OK && i < list->shards; i++) {
        size_t shard = (size_t)(sorted[i] - dataset->shards);
        place[shard] = (uint32_t)i;
        status = put_shard_entry(sorted[i], rks_dataset_build_of(dataset, shard), bytes, err);
    }
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        if (chosen[unit->shard])
            status = rks_unit_encode(&unit->summary, unit->first_row, place[unit->shard],
                                     unit->key_name, bytes, err);
    }
    return status;
}

void rks_dataset_list_name(rks_digest digest, char name[64])
{
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(digest, digits);
    snprintf(name, 64, "list-%.16s.units", digits);
}

rks_status rks_dataset_list_encode(const rks_dataset *dataset, const bool *chosen,
                                   rks_dataset_list *list, rks_buffer *bytes, rks_error *err)
{
    size_t begin = bytes->size;
    rks_dataset_list made = {0};
    const rks_dataset_shard **sorted = rks_alloc(dataset->shard_count, sizeof(*sorted), err);
    uint32_t *place = rks_alloc(dataset->shard_count, sizeof(*place), err);
    rks_status status = sorted == NULL || place == NULL
                            ? RKS_ERR_MEMORY
                            : put_entries(dataset, chosen, sorted, place, &made, bytes, err);
    rks_free(sorted);
    rks_free(place);
    if (status != RKS_OK)
        return status;
    made.bytes = bytes->size - begin;
    made.digest = rks_checksum128(bytes->data + begin, made.bytes);
    rks_dataset_list_name(made.digest, made.name);
    *list = made;
    return RKS_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static rks_status check_list(const rks_dataset_list *list, const uint8_t *bytes, size_t size,
                             const char *path, rks_error *err)
{
    if (size != list->bytes || size < HEAD ||
        !rks_digest_equal(rks_checksum128(bytes, size), list->digest))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: does not match its digest in dataset.json",
                        path);
    uint32_t version = rks_load_u32(bytes + 4);
    if (rks_load_u32(bytes) != MAGIC || version < 1 || version > VERSION ||
        rks_load_u64(bytes + 8) != list->shards || rks_load_u64(bytes + 16) != list->units ||
        list->shards > size / ENTRY || list->units > size / ENTRY)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: no list of %" PRIu64 " shards and %" PRIu64 " units", path,
                        list->shards, list->units);
    return RKS_OK;
}

/* Returns the entry's bytes; NULL if it is cut short, or a text has an impossible size. Units have
 * no origin. */
static const uint8_t *next_entry(const uint8_t **at, const uint8_t *end, size_t name_max,
                                 size_t origin_max)
{
    const uint8_t *entry = *at;
    size_t left = (size_t)(end - entry);
    uint32_t name = left < ENTRY ? 0 : rks_load_u32(entry + 88);
    uint32_t origin = left < ENTRY || origin_max == 0 ? 0 : rks_load_u32(entry + 92);
    size_t size = (size_t)rks_round_up(ENTRY + (uint64_t)name + origin, 8);
    if (left < ENTRY || name > name_max || origin > origin_max || size > left ||
        memchr(entry + ENTRY, '\0', name + origin) != NULL)
        return NULL;
    *at += size;
    return entry;
}

static rks_digest load_digest(const uint8_t *at)
{
    return (rks_digest){rks_load_u64(at), rks_load_u64(at + 8)};
}

static void decode_shard_entry(const uint8_t *entry, uint32_t number, rks_dataset_shard *shard)
{
    *shard = (rks_dataset_shard){
        .id = load_digest(entry),
        .manifest = load_digest(entry + 16),
        .build = load_digest(entry + 32),
        .first_unit = rks_load_u64(entry + 48),
        .samples = rks_load_u64(entry + 56),
        .bytes = rks_load_u64(entry + 64),
        .file_bytes = rks_load_u64(entry + 72),
        .largest = rks_load_u64(entry + 80),
        .list = number,
    };
    uint32_t name = rks_load_u32(entry + 88);
    memcpy(shard->name, entry + ENTRY, name);
    rks_dataset_origin_take((const char *)entry + ENTRY + name, rks_load_u32(entry + 92),
                            shard->origin);
}

static rks_status decode_unit_entry(const uint8_t *entry, size_t first_shard, uint64_t shards,
                                    rks_dataset_unit *unit, rks_error *err)
{
    uint64_t shard = rks_load_u64(entry + 80);
    uint32_t name = rks_load_u32(entry + 88);
    *unit = (rks_dataset_unit){
        /* rks_dataset_check refuses it */
        .shard = shard < shards ? (uint32_t)(first_shard + shard) : UINT32_MAX,
    };
    unit->first_row = rks_unit_load(entry, &unit->summary);
    if (name == 0)
        return RKS_OK;
    unit->key_name = rks_format(err, "%.*s", (int)name, (const char *)entry + ENTRY);
    return unit->key_name == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* Returns true if its numbers are below 2^63, like unsigned numbers of JSON files. */
static bool unit_fits(const rks_dataset_unit *unit)
{
    const rks_unit_summary *s = &unit->summary;
    return (s->unit | s->samples | s->seen | s->filtered | s->bad | s->bytes | s->first_source_row |
            unit->first_row) <= INT64_MAX;
}

rks_status rks_dataset_list_decode(const rks_dataset_list *list, const void *bytes, size_t size,
                                   uint32_t number, const char *path, rks_dataset *dataset,
                                   rks_error *err)
{
    rks_status status = check_list(list, bytes, size, path, err);
    if (status != RKS_OK)
        return status;
    size_t first = dataset->shard_count;
    const uint8_t *at = (const uint8_t *)bytes + HEAD, *end = (const uint8_t *)bytes + size, *entry;
    rks_dataset_shard *shards =
        rks_realloc(dataset->shards, first + list->shards, sizeof(*shards), err);
    if (shards != NULL)
        dataset->shards = shards;
    rks_dataset_unit *units =
        rks_realloc(dataset->units, dataset->unit_count + list->units, sizeof(*units), err);
    if (units != NULL)
        dataset->units = units;
    if (shards == NULL || units == NULL)
        return RKS_ERR_MEMORY;
    bool good = true;
    for (uint64_t i = 0; good && i < list->shards; i++) {
        good = (entry = next_entry(&at, end, sizeof(shards->name) - 1,
                                   sizeof(shards->origin) - 1)) != NULL;
        if (good)
            decode_shard_entry(entry, number, &shards[dataset->shard_count++]);
    }
    for (uint64_t i = 0; status == RKS_OK && good && i < list->units; i++) {
        good = (entry = next_entry(&at, end, RKS_KEY_MAX, 0)) != NULL;
        if (!good)
            break;
        rks_dataset_unit *unit = &units[dataset->unit_count++];
        status = decode_unit_entry(entry, first, list->shards, unit, err);
        good = unit_fits(unit);
    }
    if (status == RKS_OK && (!good || at != end))
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: an entry is malformed", path);
    return status;
}

static rks_status load_from_directory(void *user, const char *name, size_t most, char **bytes,
                                      size_t *size, rks_error *err)
{
    char *path = rks_format(err, "%s/%s", (const char *)user, name);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_file_load(path, most, bytes, size, err);
    rks_free(path);
    return status;
}

rks_list_source rks_lists_in(const char *directory)
{
    return (rks_list_source){
        .place = directory, .load = load_from_directory, .user = (void *)(uintptr_t)directory};
}

rks_status rks_dataset_list_load(const rks_list_source *from, const rks_dataset_list *list,
                                 uint32_t number, rks_dataset *dataset, rks_error *err)
{
    char *bytes = NULL, *path = rks_format(err, "%s/%s", from->place, list->name);
    size_t size = 0;
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        list->bytes > RKS_DATASET_MAX
            ? rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %" PRIu64 " bytes, at most %zu expected", path,
                       list->bytes, RKS_DATASET_MAX)
            : from->load(from->user, list->name, (size_t)list->bytes, &bytes, &size, err);
    if (status == RKS_OK)
        status = rks_dataset_list_decode(list, bytes, size, number, path, dataset, err);
    else if (status == RKS_ERR_NOT_FOUND)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: missing: dataset.json refers to it", path);
    rks_free(bytes);
    rks_free(path);
    return status;
}

/* ---- how a dataset is laid out --------------------------------------------------------------- */

static bool same_lists(const rks_dataset *dataset, const rks_dataset_summary *before)
{
    bool same = before != NULL && dataset->list_count == before->list_count;
    for (size_t i = 0; same && i < dataset->list_count; i++)
        same = rks_digest_equal(dataset->lists[i].digest, before->lists[i].digest);
    return same;
}

static rks_status write_list(const char *directory, const rks_dataset *dataset, const bool *chosen,
                             rks_dataset_layout *layout, rks_error *err)
{
    rks_buffer bytes = {0};
    rks_dataset_list *list = &layout->lists[layout->list_count];
    rks_status status = rks_dataset_list_encode(dataset, chosen, list, &bytes, err);
    if (status == RKS_OK && bytes.size > RKS_DATASET_MAX)
        status = rks_fail(err, RKS_ERR_DATA, 0, "%s would be %zu bytes, at most %zu are allowed",
                          list->name, bytes.size, RKS_DATASET_MAX);
    char *path = status == RKS_OK ? rks_format(err, "%s/%s", directory, list->name) : NULL;
    if (status == RKS_OK)
        status =
            path == NULL ? RKS_ERR_MEMORY : rks_file_replace(path, bytes.data, bytes.size, err);
    layout->list_count += status == RKS_OK;
    rks_free(path);
    rks_buffer_free(&bytes);
    return status;
}

rks_status rks_dataset_lay_out(const char *directory, const rks_dataset *dataset,
                               const rks_dataset_summary *before, rks_dataset_layout *layout,
                               rks_error *err)
{
    bool goes_on = same_lists(dataset, before);
    uint64_t entries = 0;
    *layout = (rks_dataset_layout){.list_count = goes_on ? dataset->list_count : 0};
    memcpy(layout->lists, dataset->lists, sizeof(layout->lists));
    bool *inside = layout->inside = rks_alloc(dataset->shard_count, sizeof(*inside), err);
    if (inside == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        inside[i] = !goes_on || dataset->shards[i].list == 0;
        entries += inside[i];
    }
    for (size_t i = 0; i < dataset->unit_count; i++)
        entries += inside[dataset->units[i].shard];
    if (dataset->generation <= 1 || entries <= RKS_DATASET_INLINE)
        return RKS_OK;
    size_t kept = layout->list_count;
    while (kept > 0 &&
           (layout->lists[kept - 1].shards + layout->lists[kept - 1].units < 2 * entries ||
            kept == RKS_DATASET_LISTS_MAX)) {
        kept--;
        entries += layout->lists[kept].shards + layout->lists[kept].units;
    }
    for (size_t i = 0; i < dataset->shard_count; i++)
        inside[i] = inside[i] || dataset->shards[i].list > kept;
    layout->list_count = kept;
    rks_status status = write_list(directory, dataset, inside, layout, err);
    memset(inside, false, dataset->shard_count);
    return status;
}

void rks_dataset_layout_free(rks_dataset_layout *layout)
{
    rks_free(layout->inside);
    layout->inside = NULL;
}
