/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_entry.c: the line of a shard and of a unit in dataset.json; their members are described
 * in dataset_json.c. */
#include "dataset/dataset_entry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "shard/json_text.h"

/* ---- writing ---- */

rks_status rks_dataset_put_shard(const rks_dataset_shard *shard, bool builds, bool first,
                                 rks_buffer *json, rks_error *err)
{
    char id[RKS_DIGEST_TEXT], manifest[RKS_DIGEST_TEXT];
    rks_digest_format(shard->id, id);
    rks_digest_format(shard->manifest, manifest);
    rks_status status = rks_buffer_print(json, err, "%s\n{\"name\":", first ? "" : ",");
    if (status == RKS_OK)
        status = rks_json_put_string(json, shard->name, err);
    if (status == RKS_OK)
        status = rks_buffer_print(
            json, err,
            ",\"id\":\"%s\",\"manifest\":\"%s\",\"samples\":%" PRIu64 ",\"bytes\":%" PRIu64
            ",\"file_bytes\":%" PRIu64 ",\"largest\":%" PRIu64,
            id, manifest, shard->samples, shard->bytes, shard->file_bytes, shard->largest);
    if (status == RKS_OK && shard->origin[0] != '\0') {
        status = rks_buffer_print(json, err, ",\"origin\":");
        if (status == RKS_OK)
            status = rks_json_put_string(json, shard->origin, err);
    }
    if (status == RKS_OK && builds) {
        char build[RKS_DIGEST_TEXT];
        rks_digest_format(shard->build, build);
        status = rks_buffer_print(json, err, ",\"build\":\"%s\",\"first_unit\":%" PRIu64, build,
                                  shard->first_unit);
    }
    return status == RKS_OK ? rks_buffer_add(json, "}", 1, err) : status;
}

static rks_status put_key_name(const char *name, rks_buffer *json, rks_error *err)
{
    if (name == NULL)
        return RKS_OK;
    rks_status status;
    if (rks_utf8_valid(name, strlen(name), NULL)) {
        status = rks_buffer_print(json, err, ",\"key_name\":");
        return status == RKS_OK ? rks_json_put_string(json, name, err) : status;
    }
    status = rks_buffer_print(json, err, ",\"key_name_hex\":\"");
    for (const char *at = name; status == RKS_OK && *at != '\0'; at++)
        status = rks_buffer_print(json, err, "%02x", (unsigned)(uint8_t)*at);
    return status == RKS_OK ? rks_buffer_add(json, "\"", 1, err) : status;
}

rks_status rks_dataset_put_unit(const rks_dataset_unit *unit, uint32_t shard, bool named,
                                bool first, rks_buffer *json, rks_error *err)
{
    const rks_unit_summary *summary = &unit->summary;
    char digest[RKS_DIGEST_TEXT];
    rks_digest_format(summary->digest, digest);
    rks_status status = rks_buffer_print(
        json, err,
        "%s\n{\"unit\":%" PRIu64 ",\"shard\":%" PRIu32 ",\"first_row\":%" PRIu64
        ",\"samples\":%" PRIu64 ",\"seen\":%" PRIu64 ",\"filtered\":%" PRIu64 ",\"bad\":%" PRIu64
        ",\"bytes\":%" PRIu64 ",\"first_source_row\":%" PRIu64 ",\"digest\":\"%s\"",
        first ? "" : ",", summary->unit, shard, unit->first_row, summary->samples, summary->seen,
        summary->filtered, summary->bad, summary->bytes, summary->first_source_row, digest);
    if (status == RKS_OK && named)
        status = put_key_name(unit->key_name, json, err);
    return status == RKS_OK ? rks_buffer_add(json, "}", 1, err) : status;
}

/* ---- reading ---- */

rks_status rks_dataset_decode_shard(const json_t *item, const char *path, rks_dataset_shard *shard,
                                    rks_error *err)
{
    const char *name = NULL;
    rks_status status = rks_json_string(item, "name", path, &name, err);
    if (status != RKS_OK)
        return status;
    if (strlen(name) >= sizeof(shard->name))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: a shard's name has %zu bytes", path,
                        strlen(name));
    memcpy(shard->name, name, strlen(name) + 1);
    status = rks_json_digest(item, "id", path, &shard->id, err);
    if (status == RKS_OK)
        status = rks_json_digest(item, "manifest", path, &shard->manifest, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "samples", path, &shard->samples, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "bytes", path, &shard->bytes, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "file_bytes", path, &shard->file_bytes, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "largest", path, &shard->largest, err);
    const char *origin = json_string_value(json_object_get(item, "origin"));
    if (origin != NULL)
        rks_dataset_origin_take(origin, strlen(origin), shard->origin);
    if (status == RKS_OK && json_object_get(item, "build") != NULL)
        status = rks_json_digest(item, "build", path, &shard->build, err);
    if (status == RKS_OK && json_object_get(item, "first_unit") != NULL)
        status = rks_json_u64(item, "first_unit", path, &shard->first_unit, err);
    return status;
}

static bool parse_hex(const char *text, char *bytes, size_t room)
{
    size_t size = strlen(text);
    if (size % 2 != 0 || size / 2 >= room || strspn(text, "0123456789abcdef") != size)
        return false;
    for (size_t i = 0; i < size / 2; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], '\0'};
        bytes[i] = (char)strtoul(digits, NULL, 16);
    }
    bytes[size / 2] = '\0';
    return true;
}

static rks_status decode_key_name(const json_t *item, const char *path, rks_dataset_unit *unit,
                                  rks_error *err)
{
    char bytes[RKS_KEY_MAX + 1];
    const char *name = json_string_value(json_object_get(item, "key_name"));
    const char *hex = json_string_value(json_object_get(item, "key_name_hex"));
    if (name == NULL && hex != NULL) {
        if (!parse_hex(hex, bytes, sizeof(bytes)))
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: a unit's key_name_hex is malformed",
                            path);
        name = bytes;
    }
    if (name == NULL)
        return RKS_OK;
    unit->key_name = rks_strdup(name, err);
    return unit->key_name == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_dataset_decode_unit(const json_t *item, const char *path, rks_dataset_unit *unit,
                                   rks_error *err)
{
    uint64_t shard = 0;
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"unit", &unit->summary.unit},
                   {"shard", &shard},
                   {"first_row", &unit->first_row},
                   {"samples", &unit->summary.samples},
                   {"seen", &unit->summary.seen},
                   {"filtered", &unit->summary.filtered},
                   {"bad", &unit->summary.bad},
                   {"bytes", &unit->summary.bytes},
                   {"first_source_row", &unit->summary.first_source_row}};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        status = rks_json_u64(item, numbers[i].name, path, numbers[i].value, err);
    if (status == RKS_OK)
        status = rks_json_digest(item, "digest", path, &unit->summary.digest, err);
    if (status != RKS_OK)
        return status;
    unit->shard =
        shard > UINT32_MAX ? UINT32_MAX : (uint32_t)shard; /* rks_dataset_check refuses it */
    return decode_key_name(item, path, unit, err);
}

/* ---- index files ----------------------------------------------------------------------------- */

rks_status rks_dataset_put_index_files(const rks_dataset *dataset, rks_buffer *json, rks_error *err)
{
    rks_status status = RKS_OK;
    if (dataset->index_file_count == 0)
        return RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->index_file_count; i++) {
        const rks_index_file *file = &dataset->index_files[i];
        char digest[RKS_DIGEST_TEXT];
        rks_digest_format(file->digest, digest);
        status = rks_buffer_print(
            json, err,
            "%s\n{\"name\":\"%s\",\"digest\":\"%s\",\"bytes\":%" PRIu64 ",\"samples\":%" PRIu64 "}",
            i == 0 ? ",\"index_files\":[" : ",", file->name, digest, file->bytes, file->samples);
    }
    return status == RKS_OK ? rks_buffer_add(json, "]", 1, err) : status;
}

static rks_status decode_index_file(const json_t *item, const char *path, rks_index_file *file,
                                    rks_error *err)
{
    const char *name = NULL;
    rks_status status = rks_json_string(item, "name", path, &name, err);
    if (status == RKS_OK)
        status = rks_json_digest(item, "digest", path, &file->digest, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "bytes", path, &file->bytes, err);
    if (status == RKS_OK)
        status = rks_json_u64(item, "samples", path, &file->samples, err);
    if (status != RKS_OK)
        return status;
    rks_index_file_name(file->digest, file->name);
    return strcmp(name, file->name) == 0
               ? RKS_OK
               : rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: \"%.80s\" is not the name of an index file",
                          path, name);
}

rks_status rks_dataset_decode_index_files(const json_t *root, const char *path,
                                          rks_dataset *dataset, rks_error *err)
{
    const json_t *items = NULL;
    if (json_object_get(root, "index_files") == NULL)
        return RKS_OK;
    rks_status status = rks_json_array(root, "index_files", path, &items, err);
    if (status == RKS_OK && json_array_size(items) > RKS_INDEX_FILES_MAX)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %zu index files; at most %d are", path,
                          json_array_size(items), RKS_INDEX_FILES_MAX);
    for (size_t i = 0; status == RKS_OK && i < json_array_size(items); i++) {
        status = decode_index_file(json_array_get(items, i), path, &dataset->index_files[i], err);
        dataset->index_file_count += status == RKS_OK;
    }
    return status;
}
