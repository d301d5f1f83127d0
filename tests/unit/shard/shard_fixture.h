/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_fixture.h: a temporary directory, and short ways to write shards in tests. */
#ifndef RKS_TESTS_SHARD_FIXTURE_H
#define RKS_TESTS_SHARD_FIXTURE_H

#include "support/check.h"
#include "support/folder.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/shard_writer.h"
#include "shard/checksum_file.h"

static rks_error err;
static char test_directory[FOLDER_PATH];

static inline void directory_begin(void)
{
    assert_true(folder_make(test_directory));
}

static inline void directory_end(void)
{
    folder_remove(test_directory);
}

static inline const char *path_of(const char *name)
{
    static char paths[4][160];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", test_directory, name);
    return path;
}

static inline rks_schema *schema_of(const char *text)
{
    rks_schema *schema = NULL;
    assert_ok(rks_schema_parse(text, &schema, &err), &err);
    return schema;
}

static inline rks_value value_of(const void *data, size_t size)
{
    return (rks_value){.data = data, .size = size};
}

/* A sealed shard in memory: manifest, file, units. */
typedef struct sealed {
    rks_manifest *manifest;
    rks_unit_list units;
    char *bytes;
    size_t size;
} sealed;

static inline const rks_segment *segment_of(const sealed *shard, rks_segment_kind kind,
                                            uint64_t row)
{
    for (size_t i = 0; i < shard->manifest->segment_count; i++) {
        const rks_segment *segment = &shard->manifest->segments[i];
        if (segment->kind == kind && row >= segment->first_row &&
            row - segment->first_row < segment->rows)
            return segment;
    }
    fail_msg("no segment of kind %d", (int)kind);
    return NULL;
}

static inline const uint8_t *segment_bytes(const sealed *shard, rks_segment_kind kind, uint64_t row)
{
    return (const uint8_t *)shard->bytes + segment_of(shard, kind, row)->offset;
}

static inline void sealed_load(const char *name, sealed *shard)
{
    char file[64];
    *shard = (sealed){0};
    snprintf(file, sizeof(file), "%s.json", name);
    assert_ok(rks_manifest_load(path_of(file), &shard->manifest, &err), &err);
    snprintf(file, sizeof(file), "%s.rks", name);
    assert_ok(rks_file_load(path_of(file), 1 << 30, &shard->bytes, &shard->size, &err), &err);
    assert_int_equal(shard->size, shard->manifest->file_size);
    for (size_t i = 0; i < shard->manifest->segment_count; i++) {
        const rks_segment *segment = &shard->manifest->segments[i];
        assert_int_equal(rks_checksum64(shard->bytes + segment->offset, segment->size),
                         segment->check);
    }
    if (shard->manifest->unit_count > 0) {
        const rks_segment *segment = segment_of(shard, RKS_SEGMENT_UNITS, 0);
        const rks_unit_totals expected = {segment->rows, shard->manifest->samples,
                                          shard->manifest->bytes};
        assert_ok(rks_unit_list_decode((const uint8_t *)shard->bytes + segment->offset,
                                       segment->size, &expected, file, &shard->units, &err),
                  &err);
    }
}

static inline void sealed_free(sealed *shard)
{
    rks_manifest_free(shard->manifest);
    rks_unit_list_free(&shard->units);
    rks_free(shard->bytes);
    *shard = (sealed){0};
}

/* The record of a row, by its locator, after its check. */
static inline rks_record_view sealed_record(const sealed *shard, uint64_t row)
{
    rks_record_view view;
    const rks_segment *places = segment_of(shard, RKS_SEGMENT_LOCATORS, row);
    uint64_t in_segment = row - places->first_row;
    uint64_t offset =
        rks_locators_get((const uint8_t *)shard->bytes + places->offset, places->rows, in_segment);
    assert_true(offset < shard->size);
    assert_ok(
        rks_record_parse((const uint8_t *)shard->bytes + offset, shard->size - offset, &view, &err),
        &err);
    uint64_t hash =
        rks_load_u64(segment_bytes(shard, RKS_SEGMENT_KEY_HASHES, row) + 8 * in_segment);
    uint32_t length = rks_load_u32(segment_bytes(shard, RKS_SEGMENT_LENGTHS, row) + 4 * in_segment);
    assert_ok(rks_record_check(&view, shard->manifest->shard_id, row, hash, length, &err), &err);
    return view;
}

#endif
