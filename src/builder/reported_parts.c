/* SPDX-License-Identifier: Apache-2.0
 *
 * reported_parts.c: a part travels as
 *
 *   rks_dataset_shard
 *   u64 units in it
 *   then for each unit, in file order: rks_unit_summary, u32 size of its key name, the name
 *
 * in this machine's own layout: the ranks have agreed on the library's version before. */
#include "builder/reported_parts.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"

static rks_status put_unit(rks_buffer *bytes, const rks_unit_summary *unit, const char *name,
                           rks_error *err)
{
    uint8_t size[4];
    rks_store_u32(size, (uint32_t)strlen(name));
    rks_status status = rks_buffer_add(bytes, unit, sizeof(*unit), err);
    if (status == RKS_OK)
        status = rks_buffer_add(bytes, size, sizeof(size), err);
    if (status == RKS_OK)
        status = rks_buffer_add(bytes, name, strlen(name), err);
    return status;
}

void rks_part_name(const rks_shard *shard, char name[128])
{
    const char *path = rks_shard_path(shard), *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    snprintf(name, 128, "%.*s", (int)(strlen(file) - strlen(".rks")), file);
}

rks_status rks_reported_parts_put(rks_buffer *bytes, const rks_shard *shard, rks_error *err)
{
    size_t count = 0;
    const rks_unit_summary *units = rks_shard_units(shard, &count);
    const char *path = rks_shard_path(shard), *slash = strrchr(path, '/');
    rks_dataset_shard described = {
        .id = rks_shard_id(shard),
        .manifest = rks_shard_manifest_digest(shard),
        .samples = rks_shard_count(shard),
        .bytes = rks_shard_bytes(shard),
        .file_bytes = rks_shard_file_bytes(shard),
        .largest = rks_shard_largest(shard),
    };
    rks_part_name(shard, described.name);
    uint64_t unit_count = count;
    char directory[PATH_MAX] = ".";
    if (slash != NULL)
        snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    rks_dataset_origin_here(directory, described.origin);
    rks_status status = rks_buffer_add(bytes, &described, sizeof(described), err);
    if (status == RKS_OK)
        status = rks_buffer_add(bytes, &unit_count, sizeof(unit_count), err);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        const char *unit_name = rks_shard_unit_name(shard, i);
        status = put_unit(bytes, &units[i], unit_name == NULL ? "" : unit_name, err);
    }
    return status;
}

/* Takes `size` bytes from the front of *at; NULL if there are fewer. */
static const uint8_t *cut(const uint8_t **at, const uint8_t *end, size_t size)
{
    if ((size_t)(end - *at) < size)
        return NULL;
    const uint8_t *front = *at;
    *at += size;
    return front;
}

static rks_status decode_unit(rks_dataset *dataset, const uint8_t **at, const uint8_t *end,
                              uint64_t *row, rks_error *err)
{
    rks_dataset_unit *units =
        rks_realloc(dataset->units, dataset->unit_count + 1, sizeof(*units), err);
    if (units == NULL)
        return RKS_ERR_MEMORY;
    dataset->units = units;
    rks_dataset_unit *unit = &units[dataset->unit_count];
    *unit = (rks_dataset_unit){.shard = (uint32_t)dataset->shard_count, .first_row = *row};
    const uint8_t *summary = cut(at, end, sizeof(unit->summary));
    const uint8_t *size = summary == NULL ? NULL : cut(at, end, 4);
    const uint8_t *name = size == NULL ? NULL : cut(at, end, rks_load_u32(size));
    if (name == NULL)
        return rks_fail(err, RKS_ERR_PEER, 0, "a rank's list of units is cut short");
    memcpy(&unit->summary, summary, sizeof(unit->summary));
    if (dataset->derived_keys) {
        char *copy = rks_format(err, "%.*s", (int)rks_load_u32(size), (const char *)name);
        if (copy == NULL)
            return RKS_ERR_MEMORY;
        unit->key_name = copy;
    }
    *row += unit->summary.samples;
    dataset->unit_count++;
    return RKS_OK;
}

static rks_status decode_part(rks_dataset *dataset, const uint8_t **at, const uint8_t *end,
                              rks_error *err)
{
    rks_dataset_shard *shards =
        rks_realloc(dataset->shards, dataset->shard_count + 1, sizeof(*shards), err);
    if (shards == NULL)
        return RKS_ERR_MEMORY;
    dataset->shards = shards;
    const uint8_t *described = cut(at, end, sizeof(*shards));
    const uint8_t *count = described == NULL ? NULL : cut(at, end, sizeof(uint64_t));
    if (count == NULL)
        return rks_fail(err, RKS_ERR_PEER, 0, "a rank's list of parts is cut short");
    rks_dataset_shard *shard = &shards[dataset->shard_count];
    memcpy(shard, described, sizeof(*shard));
    shard->origin[RKS_ORIGIN_MAX] = '\0';
    if (memchr(shard->name, '\0', sizeof(shard->name)) == NULL ||
        !rks_dataset_name_good(shard->name))
        return rks_fail(err, RKS_ERR_PEER, 0, "a rank's list of parts has one without a good name");
    rks_status status = RKS_OK;
    uint64_t row = 0;
    for (uint64_t i = 0; status == RKS_OK && i < rks_load_u64(count); i++)
        status = decode_unit(dataset, at, end, &row, err);
    dataset->shard_count++;
    return status;
}

rks_status rks_reported_parts_take(rks_dataset *dataset, const uint8_t *bytes, size_t size,
                                   rks_error *err)
{
    rks_status status = RKS_OK;
    const uint8_t *at = bytes, *end = size == 0 ? bytes : bytes + size;
    while (status == RKS_OK && at < end)
        status = decode_part(dataset, &at, end, err);
    return status;
}
