/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.c: NAME.json, which is written last and has at most 1 MiB. It is JSON: one line for each
 * segment, and one line for the rest:
 *
 *   format        {"major": 1, "minor": 0}; another major is refused
 *   requires      features that a reader must support: "shard_in_main" (main), and
 *                 "shard_in_blocks" (blocks that name the shard) if there are samples
 *   shard         shard id, 32 hexadecimal digits
 *   build         build id
 *   file_size     bytes of NAME.rks
 *   page_size     of LMDB
 *   head          XXH3-128 of the first two pages
 *   main          [file offset, XXH3-128] of the page of LMDB's main database, which names the
 *                 shard
 *   sums          XXH3-128 of NAME.sums
 *   samples       rows of the shard
 *   bytes         column and key bytes
 *   largest       bytes of the largest record: header, payload, key
 *   units         number of units
 *   derived_keys  true: keys are not stored; they are "key name of the unit:row in its file"
 *   unit_size     bytes of input in a unit; missing if the samples came from memory
 *   schema        {"name": "type", ...}
 *   index         names of the columns in the index
 *   segments      [kind, first row, rows, offset in NAME.rks, size, XXH3-64 as 16 digits]; kind
 *                 "column" adds the column's name. Kinds, in this order: lengths (u32), key_hashes
 *                 (u64), locators (block.h) or offsets (u64), column, units (unit_list.c). A
 *                 segment holds 4,194,304 rows, the last of its kind the rest; all units lie in
 *                 one segment
 *   digest        json_text.c
 *
 * Readers ignore other fields. */
#include "shard/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/json_text.h"

enum { UNIT_SIZE_LEAST = 96 };

static const char *const KIND_NAMES[] = {"lengths", "key_hashes", "locators",
                                         "offsets", "column",     "units"};

static rks_status put_segment(const rks_manifest *manifest, size_t i, rks_buffer *json,
                              rks_error *err)
{
    const rks_segment *segment = &manifest->segments[i];
    rks_status status = rks_buffer_print(
        json, err, "%s\n[\"%s\",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",\"%016" PRIx64 "\"",
        i == 0 ? "" : ",", KIND_NAMES[segment->kind], segment->first_row, segment->rows,
        segment->offset, segment->size, segment->check);
    if (status == RKS_OK && segment->kind == RKS_SEGMENT_COLUMN) {
        status = rks_buffer_add(json, ",", 1, err);
        if (status == RKS_OK)
            status =
                rks_json_put_string(json, rks_schema_name(manifest->schema, segment->column), err);
    }
    return status == RKS_OK ? rks_buffer_add(json, "]", 1, err) : status;
}

enum { SHARD_IN_BLOCKS, SHARD_IN_MAIN, FEATURE_COUNT };
static const char *const FEATURES[FEATURE_COUNT + 1] = {"shard_in_blocks", "shard_in_main", NULL};

static rks_status put_main_page(const rks_manifest *manifest, rks_buffer *json, rks_error *err)
{
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(manifest->main, digits);
    return rks_buffer_print(json, err, ",\"main\":[%" PRIu64 ",\"%s\"]", manifest->main_page,
                            digits);
}

static rks_status put_fields(const rks_manifest *manifest, rks_buffer *json, rks_error *err)
{
    char shard[RKS_DIGEST_TEXT], build[RKS_DIGEST_TEXT], head[RKS_DIGEST_TEXT],
        sums[RKS_DIGEST_TEXT];
    rks_digest_format(manifest->shard_id, shard);
    rks_digest_format(manifest->build_id, build);
    rks_digest_format(manifest->head, head);
    rks_digest_format(manifest->sums, sums);
    const char *requires[FEATURE_COUNT + 1] = {NULL};
    size_t count = 0;
    if (manifest->samples > 0)
        requires[count++] = FEATURES[SHARD_IN_BLOCKS];
    requires[count] = FEATURES[SHARD_IN_MAIN];
    rks_status status = rks_json_begin(json, requires, err);
    if (status == RKS_OK)
        status = rks_buffer_print(
            json, err,
            ",\"shard\":\"%s\",\"build\":\"%s\",\"file_size\":%" PRIu64 ",\"page_size\":%" PRIu32
            ",\"head\":\"%s\",\"sums\":\"%s\",\"samples\":%" PRIu64 ",\"bytes\":%" PRIu64
            ",\"largest\":%" PRIu64 ",\"units\":%" PRIu64 ",\"derived_keys\":%s,\"schema\":%s"
            ",\"index\":[",
            shard, build, manifest->file_size, manifest->page_size, head, sums, manifest->samples,
            manifest->bytes, manifest->largest, manifest->unit_count,
            manifest->derived_keys ? "true" : "false", rks_schema_text(manifest->schema));
    for (size_t i = 0; status == RKS_OK && i < manifest->index_count; i++) {
        status = rks_buffer_add(json, ",", i > 0, err);
        if (status == RKS_OK)
            status = rks_json_put_string(
                json, rks_schema_name(manifest->schema, manifest->index[i]), err);
    }
    if (status == RKS_OK)
        status = rks_buffer_print(json, err, "]");
    if (status == RKS_OK && manifest->unit_size > 0)
        status = rks_buffer_print(json, err, ",\"unit_size\":%" PRIu64, manifest->unit_size);
    if (status == RKS_OK)
        status = put_main_page(manifest, json, err);
    return status == RKS_OK ? rks_buffer_print(json, err, ",\"segments\":[") : status;
}

rks_status rks_manifest_encode(const rks_manifest *manifest, char **text, size_t *size,
                               rks_digest *digest, rks_error *err)
{
    rks_buffer json = {0};
    rks_digest own = {0};
    rks_status status = put_fields(manifest, &json, err);
    for (size_t i = 0; status == RKS_OK && i < manifest->segment_count; i++)
        status = put_segment(manifest, i, &json, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&json, "]", 1, err);
    if (status == RKS_OK)
        status = rks_json_finish(&json, &own, err);
    if (status == RKS_OK && json.size > RKS_MANIFEST_MAX)
        status =
            rks_fail(err, RKS_ERR_DATA, 0,
                     "the manifest would be %zu bytes, at most %d are allowed: schema or shard "
                     "is too large",
                     json.size, RKS_MANIFEST_MAX);
    if (status == RKS_OK) {
        *text = (char *)json.data;
        *size = json.size;
        if (digest != NULL)
            *digest = own;
        json.data = NULL;
    }
    rks_buffer_free(&json);
    return status;
}

static rks_status decode_index(const json_t *root, const char *path, rks_manifest *manifest,
                               rks_error *err)
{
    const json_t *names = NULL;
    rks_status status = rks_json_array(root, "index", path, &names, err);
    if (status != RKS_OK)
        return status;
    size_t count = json_array_size(names);
    if (count > RKS_COLUMNS_MAX)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %zu index columns", path, count);
    manifest->index = rks_alloc(count, sizeof(*manifest->index), err);
    if (manifest->index == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        int column = name == NULL ? -1 : rks_schema_find(manifest->schema, name);
        if (column < 0 ||
            !rks_column_indexable(rks_schema_column(manifest->schema, (uint32_t)column)))
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "%s: index column %zu \"%s\" is not a scalar number of the schema",
                            path, i, name == NULL ? "" : name);
        manifest->index[manifest->index_count++] = (uint32_t)column;
    }
    return RKS_OK;
}

static bool parse_check(const char *text, uint64_t *check)
{
    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *check = strtoull(text, NULL, 16);
    return true;
}

static bool parse_segment(const json_t *item, const rks_manifest *manifest, rks_segment *segment)
{
    const char *kind = json_string_value(json_array_get(item, 0));
    uint64_t *fields[] = {&segment->first_row, &segment->rows, &segment->offset, &segment->size};
    for (size_t i = 0; i < 4; i++) {
        const json_t *number = json_array_get(item, i + 1);
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return false;
        *fields[i] = (uint64_t)json_integer_value(number);
    }
    if (kind == NULL || !parse_check(json_string_value(json_array_get(item, 5)), &segment->check))
        return false;
    size_t at = 0;
    while (at <= RKS_SEGMENT_UNITS && strcmp(KIND_NAMES[at], kind) != 0)
        at++;
    if (at > RKS_SEGMENT_UNITS)
        return false;
    segment->kind = (rks_segment_kind)at;
    segment->column = 0;
    if (segment->kind == RKS_SEGMENT_COLUMN) {
        const char *name = json_string_value(json_array_get(item, 6));
        int column = name == NULL ? -1 : rks_schema_find(manifest->schema, name);
        if (column < 0)
            return false;
        segment->column = (uint32_t)column;
    }
    return segment->offset % 8 == 0 && segment->offset <= manifest->file_size &&
           segment->size <= manifest->file_size - segment->offset;
}

static uint64_t segment_size(const rks_manifest *manifest, const rks_segment *segment)
{
    switch (segment->kind) {
    case RKS_SEGMENT_LENGTHS:
        return 4 * segment->rows;
    case RKS_SEGMENT_LOCATORS:
        return rks_locators_size(segment->rows);
    case RKS_SEGMENT_COLUMN:
        return rks_schema_column(manifest->schema, segment->column)->item_size * segment->rows;
    case RKS_SEGMENT_KEY_HASHES:
    case RKS_SEGMENT_OFFSETS:
    case RKS_SEGMENT_UNITS:
        break;
    }
    return 8 * segment->rows;
}

/* Returns true if the segments from *at on are of this kind and cover all samples; moves *at past
 * them. */
static bool covers(const rks_manifest *manifest, rks_segment_kind kind, uint32_t column, size_t *at)
{
    for (uint64_t row = 0; row < manifest->samples; ++*at) {
        if (*at == manifest->segment_count)
            return false;
        const rks_segment *segment = &manifest->segments[*at];
        uint64_t left = manifest->samples - row;
        bool offsets = kind == RKS_SEGMENT_LOCATORS && segment->kind == RKS_SEGMENT_OFFSETS;
        if ((segment->kind != kind && !offsets) || segment->column != column ||
            segment->first_row != row ||
            segment->rows != (left < RKS_SEGMENT_ROWS ? left : RKS_SEGMENT_ROWS) ||
            segment->size != segment_size(manifest, segment))
            return false;
        row += segment->rows;
    }
    return true;
}

static bool segments_complete(const rks_manifest *manifest)
{
    size_t at = 0;
    bool good = covers(manifest, RKS_SEGMENT_LENGTHS, 0, &at) &&
                covers(manifest, RKS_SEGMENT_KEY_HASHES, 0, &at) &&
                covers(manifest, RKS_SEGMENT_LOCATORS, 0, &at);
    for (size_t i = 0; good && i < manifest->index_count; i++)
        good = covers(manifest, RKS_SEGMENT_COLUMN, manifest->index[i], &at);
    if (good && manifest->unit_count > 0) {
        const rks_segment *units = &manifest->segments[at];
        good = at < manifest->segment_count && units->kind == RKS_SEGMENT_UNITS &&
               units->first_row == 0 && units->rows == manifest->unit_count &&
               units->size / UNIT_SIZE_LEAST >= manifest->unit_count;
        at++;
    }
    return good && at == manifest->segment_count;
}

static rks_status decode_segments(const json_t *root, const char *path, rks_manifest *manifest,
                                  rks_error *err)
{
    const json_t *items = NULL;
    rks_status status = rks_json_array(root, "segments", path, &items, err);
    if (status != RKS_OK)
        return status;
    size_t count = json_array_size(items);
    manifest->segments = rks_alloc(count, sizeof(*manifest->segments), err);
    if (manifest->segments == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (!parse_segment(json_array_get(items, i), manifest, &manifest->segments[i]))
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: segment %zu is malformed", path, i);
        manifest->segment_count++;
    }
    if (!segments_complete(manifest))
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: its segments do not cover %" PRIu64 " samples and %" PRIu64 " units",
                        path, manifest->samples, manifest->unit_count);
    return RKS_OK;
}

static rks_status decode_numbers(const json_t *root, const char *path, rks_manifest *manifest,
                                 rks_error *err)
{
    uint64_t page = 0;
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"file_size", &manifest->file_size}, {"page_size", &page},
                   {"samples", &manifest->samples},     {"bytes", &manifest->bytes},
                   {"largest", &manifest->largest},     {"units", &manifest->unit_count}};
    const struct {
        const char *name;
        rks_digest *value;
    } digests[] = {{"shard", &manifest->shard_id},
                   {"build", &manifest->build_id},
                   {"head", &manifest->head},
                   {"sums", &manifest->sums}};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        status = rks_json_u64(root, numbers[i].name, path, numbers[i].value, err);
    for (size_t i = 0; status == RKS_OK && i < sizeof(digests) / sizeof(digests[0]); i++)
        status = rks_json_digest(root, digests[i].name, path, digests[i].value, err);
    if (status == RKS_OK)
        status = rks_json_bool(root, "derived_keys", path, &manifest->derived_keys, err);
    if (status == RKS_OK && json_object_get(root, "unit_size") != NULL)
        status = rks_json_u64(root, "unit_size", path, &manifest->unit_size, err);
    if (status != RKS_OK)
        return status;
    bool page_good = page >= 512 && page <= 65536 && (page & (page - 1)) == 0;
    if (!page_good || manifest->file_size < 2 * page ||
        manifest->samples > manifest->file_size / RKS_RECORD_HEADER ||
        manifest->largest > manifest->file_size || manifest->unit_count > manifest->file_size)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: %" PRIu64 " samples and %" PRIu64 " units in %" PRIu64
                        " bytes with pages of %" PRIu64 " are impossible",
                        path, manifest->samples, manifest->unit_count, manifest->file_size, page);
    manifest->page_size = (uint32_t)page;
    return RKS_OK;
}

/* Shards always name themselves. Earlier versions wrote ones that do not. */
static rks_status check_required(const json_t *root, const char *path, const rks_manifest *manifest,
                                 rks_error *err)
{
    const char *lacks = NULL;
    if (manifest->samples > 0 && !rks_json_requires(root, FEATURES[SHARD_IN_BLOCKS]))
        lacks = FEATURES[SHARD_IN_BLOCKS];
    else if (!rks_json_requires(root, FEATURES[SHARD_IN_MAIN]))
        lacks = FEATURES[SHARD_IN_MAIN];
    if (lacks == NULL)
        return RKS_OK;
    return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                    "%s: an earlier version's shard, %d.%d without \"%s\"; this version reads "
                    "%d.%d with it: build again",
                    path, RKS_FORMAT_MAJOR, RKS_FORMAT_MINOR, lacks, RKS_FORMAT_MAJOR,
                    RKS_FORMAT_MINOR);
}

static rks_status decode_main_page(const json_t *root, const char *path, rks_manifest *manifest,
                                   rks_error *err)
{
    const json_t *pair = NULL;
    rks_status status = rks_json_array(root, "main", path, &pair, err);
    if (status != RKS_OK)
        return status;
    const json_t *offset = json_array_get(pair, 0);
    const char *digits = json_string_value(json_array_get(pair, 1));
    uint64_t at = json_is_integer(offset) && json_integer_value(offset) > 0
                      ? (uint64_t)json_integer_value(offset)
                      : 0;
    if (at % manifest->page_size != 0 || at < 2 * (uint64_t)manifest->page_size ||
        at > manifest->file_size - manifest->page_size || digits == NULL ||
        !rks_digest_parse(digits, &manifest->main))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: \"main\" is malformed", path);
    manifest->main_page = at;
    return RKS_OK;
}

rks_status rks_manifest_decode(const char *text, size_t size, const char *path,
                               rks_manifest **manifest, rks_error *err)
{
    json_t *root = NULL;
    rks_manifest *decoded = rks_alloc(1, sizeof(*decoded), err);
    if (decoded == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    if (size > RKS_MANIFEST_MAX)
        status = rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %zu bytes, at most %d expected", path, size,
                          RKS_MANIFEST_MAX);
    if (status == RKS_OK)
        status = rks_json_open(text, size, path, FEATURES, &root, &decoded->digest, err);
    if (status == RKS_OK)
        status = decode_numbers(root, path, decoded, err);
    if (status == RKS_OK)
        status = check_required(root, path, decoded, err);
    if (status == RKS_OK)
        status = decode_main_page(root, path, decoded, err);
    if (status == RKS_OK)
        status = rks_json_schema(root, path, &decoded->schema, err);
    if (status == RKS_OK)
        status = decode_index(root, path, decoded, err);
    if (status == RKS_OK)
        status = decode_segments(root, path, decoded, err);
    if (status == RKS_OK) {
        decoded->text_size = size;
        *manifest = decoded;
        decoded = NULL;
    }
    json_decref(root);
    rks_manifest_free(decoded);
    return status;
}

rks_status rks_manifest_load(const char *path, rks_manifest **manifest, rks_error *err)
{
    char *text = NULL;
    size_t size = 0;
    rks_status status = rks_file_load(path, RKS_MANIFEST_MAX, &text, &size, err);
    if (status == RKS_ERR_NOT_FOUND)
        return rks_fail(err, status, 0, "%s: no such file: this shard is not sealed", path);
    if (status == RKS_OK)
        status = rks_manifest_decode(text, size, path, manifest, err);
    rks_free(text);
    return status;
}

void rks_manifest_free(rks_manifest *manifest)
{
    if (manifest == NULL)
        return;
    rks_schema_free(manifest->schema);
    rks_free(manifest->index);
    rks_free(manifest->segments);
    rks_free(manifest);
}
