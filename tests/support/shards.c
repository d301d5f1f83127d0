/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.c: small sealed shards and datasets with known contents. */
#include "support/shards.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/memory.h"
#include "shard/lmdb_env.h"
#include "shard/manifest.h"
#include "shard/shard_check.h"
#include "shard/checksum_file.h"
#include "support/check.h"
#include "support/folder.h"

const char SHARDS_SCHEMA[] = "data:bytes,id:int64,wide:float32[*]?";

enum { WIDE_ITEMS = 1250, DATA_MOST = 1 << 20 };

static shards_recipe complete(const shards_recipe *recipe)
{
    shards_recipe whole = *recipe;
    whole.samples = whole.samples == 0 ? 100 : whole.samples;
    whole.units = whole.units == 0 ? 3 : whole.units;
    whole.size_most = whole.size_most == 0 ? 200 : whole.size_most;
    whole.block_size = whole.block_size == 0 ? 64 << 10 : whole.block_size;
    return whole;
}

static char *join(const char *directory, const char *name, const char *ending)
{
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s%s", directory, name, ending) > 0);
    return path;
}

/* ---- directories and files ---------------------------------------------------------------- */

char *shards_directory(void)
{
    char *directory = malloc(FOLDER_PATH);
    assert_non_null(directory);
    assert_true(folder_make(directory));
    return directory;
}

void shards_directory_remove(char *directory)
{
    if (directory == NULL)
        return;
    assert_int_equal(folder_remove(directory), 0);
    free(directory);
}

char *shards_here;

int shards_begin(void **state)
{
    (void)state;
    shards_here = shards_directory();
    return 0;
}

int shards_end(void **state)
{
    (void)state;
    rks_memory_fail_at(0);
    shards_directory_remove(shards_here);
    shards_here = NULL;
    assert_int_equal(rks_memory_in_use(), 0);
    return 0;
}

char *shards_path(const char *file)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", shards_here, file);
    return path;
}

uint8_t *shards_load(const char *directory, const char *file, size_t *size)
{
    char *path = join(directory, file, "");
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    uint8_t *bytes = malloc((size_t)info.st_size + 1);
    assert_non_null(bytes);
    assert_int_equal(read(fd, bytes, (size_t)info.st_size), info.st_size);
    close(fd);
    free(path);
    if (size != NULL)
        *size = (size_t)info.st_size;
    return bytes;
}

void shards_same(const char *one, const char *other, const char *name)
{
    static const char *const endings[] = {"rks", "sums", "json"};
    for (size_t i = 0; i < 3; i++) {
        size_t one_size = 0, other_size = 0;
        char file[256];
        snprintf(file, sizeof(file), "%s.%s", name, endings[i]);
        uint8_t *of_one = shards_load(one, file, &one_size);
        uint8_t *of_other = shards_load(other, file, &other_size);
        assert_int_equal(one_size, other_size);
        assert_memory_equal(of_one, of_other, one_size);
        free(of_one);
        free(of_other);
    }
}

void shards_flip(const char *directory, const char *file, size_t at, uint8_t bits)
{
    char *path = join(directory, file, "");
    uint8_t byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
    free(path);
}

void shards_store(const char *directory, const char *file, const void *bytes, size_t size)
{
    char *path = join(directory, file, "");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    free(path);
}

/* ---- contents ----------------------------------------------------------------------------- */

uint32_t shards_length(uint64_t number)
{
    return (uint32_t)(number * 7 % 1000 + 1);
}

size_t shards_data_size(const shards_recipe *recipe, uint64_t number)
{
    return (size_t)(number * 2654435761U % complete(recipe).size_most);
}

uint8_t shards_data_byte(uint64_t number, size_t at)
{
    return (uint8_t)(number * 31 + at * 7 + (at >> 8));
}

static bool is_wide(const shards_recipe *recipe, uint64_t number)
{
    return recipe->wide_every != 0 && number % recipe->wide_every == 0;
}

/* First row of a unit of the shard, counted from 0. */
static uint64_t unit_begin(const shards_recipe *whole, uint64_t unit)
{
    return whole->samples * unit / whole->units;
}

static uint64_t unit_of(const shards_recipe *whole, uint64_t row)
{
    uint64_t unit = 0;
    while (unit + 1 < whole->units && unit_begin(whole, unit + 1) <= row)
        unit++;
    return unit;
}

size_t shards_key(const shards_recipe *recipe, uint64_t row, char *key)
{
    shards_recipe whole = complete(recipe);
    uint64_t unit = unit_of(&whole, row);
    int size;
    if (whole.derived_keys)
        size = snprintf(key, RKS_KEY_MAX, "part %" PRIu64 ":%" PRIu64, whole.first_unit + unit,
                        10 + 2 * (row - unit_begin(&whole, unit)));
    else
        size = snprintf(key, RKS_KEY_MAX, "sample %" PRIu64, whole.first + row);
    return (size_t)size;
}

bool shards_payload_right(const shards_recipe *recipe, const rks_schema *schema, uint64_t row,
                          const uint8_t *payload, size_t size)
{
    uint64_t number = recipe->first + row;
    rks_value values[3];
    int64_t id = 0;
    if (rks_record_decode(schema, payload, size, values, NULL) != RKS_OK ||
        values[0].size != shards_data_size(recipe, number) || values[1].size != sizeof(id))
        return false;
    for (size_t at = 0; at < values[0].size; at++)
        if (((const uint8_t *)values[0].data)[at] != shards_data_byte(number, at))
            return false;
    memcpy(&id, values[1].data, sizeof(id));
    if (id != (int64_t)number || (values[2].data != NULL) != is_wide(recipe, number))
        return false;
    for (size_t i = 0; values[2].data != NULL && i < WIDE_ITEMS; i++) {
        float item;
        memcpy(&item, (const uint8_t *)values[2].data + 4 * i, sizeof(item));
        if (item != (float)(number + i))
            return false;
    }
    return values[2].data == NULL || values[2].size == 4 * WIDE_ITEMS;
}

/* ---- writing ------------------------------------------------------------------------------ */

static void add_sample(rks_shard_writer *writer, const shards_recipe *whole, uint64_t row,
                       uint64_t row_in_unit)
{
    static uint8_t data[DATA_MOST];
    float wide[WIDE_ITEMS];
    char key[RKS_KEY_MAX + 1];
    rks_error err;
    uint64_t number = whole->first + row;
    int64_t id = (int64_t)number;
    size_t size = shards_data_size(whole, number);
    assert_true(size <= sizeof(data));
    for (size_t at = 0; at < size; at++)
        data[at] = shards_data_byte(number, at);
    for (size_t i = 0; i < WIDE_ITEMS; i++)
        wide[i] = (float)(number + i);
    rks_value values[3] = {{.data = data, .size = size}, {.data = &id, .size = sizeof(id)}};
    if (is_wide(whole, number))
        values[2] = (rks_value){.data = wide, .size = sizeof(wide)};
    size_t key_size = shards_key(whole, row, key);
    assert_ok(rks_shard_writer_add(writer, values, whole->derived_keys ? NULL : key,
                                   whole->derived_keys ? 0 : key_size, shards_length(number),
                                   (uint32_t)(2 * row_in_unit), &err),
              &err);
}

void shards_write(const char *directory, const char *name, const shards_recipe *recipe)
{
    static const char *const index[] = {"id"};
    shards_recipe whole = complete(recipe);
    rks_error err;
    rks_schema *schema = NULL;
    rks_shard_writer *writer = NULL;
    assert_ok(rks_schema_parse(SHARDS_SCHEMA, &schema, &err), &err);
    rks_shard_options options = {.schema = schema,
                                 .build_id = {1, 2},
                                 .block_size = whole.block_size,
                                 .index = index,
                                 .index_count = whole.index ? 1 : 0,
                                 .derived_keys = whole.derived_keys};
    assert_ok(rks_shard_writer_open(directory, name, &options, &writer, &err), &err);
    for (uint64_t unit = 0; unit < whole.units; unit++) {
        char key_name[32];
        uint64_t begin = unit_begin(&whole, unit);
        uint64_t end = unit_begin(&whole, unit + 1);
        snprintf(key_name, sizeof(key_name), "part %" PRIu64, whole.first_unit + unit);
        assert_ok(rks_shard_writer_begin(writer, whole.first_unit + unit, key_name, 10, &err),
                  &err);
        for (uint64_t row = begin; row < end; row++)
            add_sample(writer, &whole, row, row - begin);
        assert_ok(rks_shard_writer_end(writer, 2 * (end - begin), end - begin, 0, &err), &err);
    }
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
}

rks_shard *shards_open(const char *directory, const char *name)
{
    rks_error err;
    rks_shard *shard = NULL;
    char *path = join(directory, name, ".json");
    assert_ok(rks_shard_open(path, &shard, &err), &err);
    free(path);
    return shard;
}

static int by_unit(const void *a, const void *b)
{
    uint64_t left = ((const rks_dataset_unit *)a)->summary.unit;
    uint64_t right = ((const rks_dataset_unit *)b)->summary.unit;
    return (left > right) - (left < right);
}

static void add_shard(rks_dataset *dataset, rks_shard *shard, const char *name)
{
    uint32_t at = (uint32_t)dataset->shard_count++;
    rks_dataset_shard *entry = &dataset->shards[at];
    entry->id = rks_shard_id(shard);
    entry->manifest = rks_shard_manifest_digest(shard);
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->samples = rks_shard_count(shard);
    entry->bytes = rks_shard_bytes(shard);
    entry->file_bytes = rks_shard_file_bytes(shard);
    entry->largest = rks_shard_largest(shard);
    dataset->count += entry->samples;
    dataset->build_id = rks_shard_build_id(shard);
    dataset->derived_keys = rks_shard_manifest(shard)->derived_keys;
    size_t count = 0;
    uint64_t row = 0;
    const rks_unit_summary *units = rks_shard_units(shard, &count);
    for (size_t i = 0; i < count; i++) {
        char key_name[32];
        snprintf(key_name, sizeof(key_name), "part %" PRIu64, units[i].unit);
        rks_dataset_unit unit = {.summary = units[i], .shard = at, .first_row = row};
        if (dataset->derived_keys)
            unit.key_name = strdup(key_name);
        dataset->units[dataset->unit_count++] = unit;
        row += units[i].samples;
    }
}

void shards_commit(const char *directory, const char *const *names, size_t count)
{
    enum { UNITS_MOST = 1000 }; /* of shards with more than one */
    rks_error err;
    rks_dataset dataset = {0};
    char *index[] = {(char *)(uintptr_t)"id"};
    dataset.shards = calloc(count, sizeof(*dataset.shards));
    dataset.units = calloc(UNITS_MOST + count, sizeof(*dataset.units));
    assert_true(count > 0 && dataset.shards != NULL && dataset.units != NULL);
    for (size_t i = 0; i < count; i++) {
        rks_shard *shard = shards_open(directory, names[i]);
        add_shard(&dataset, shard, names[i]);
        dataset.index_count = rks_shard_index_columns(shard);
        rks_shard_close(shard);
    }
    qsort(dataset.units, dataset.unit_count, sizeof(*dataset.units), by_unit);
    assert_ok(rks_schema_parse(SHARDS_SCHEMA, &dataset.schema, &err), &err);
    dataset.index = index;
    dataset.id = rks_dataset_fold(dataset.units, dataset.unit_count, dataset.schema);
    assert_ok(rks_dataset_commit(directory, &dataset, &err), &err);
    for (size_t i = 0; i < dataset.unit_count; i++)
        free((void *)(uintptr_t)dataset.units[i].key_name);
    rks_schema_free(dataset.schema);
    free(dataset.units);
    free(dataset.shards);
}

void shards_dataset(const shards_recipe *recipe)
{
    static const char *const names[] = {"a"};
    shards_write(shards_here, "a", recipe);
    shards_commit(shards_here, names, 1);
}

/* Makes a page as LMDB's main database is, with one entry. */
static void put_main_page(uint8_t *page, size_t size, rks_digest shard_id)
{
    enum { LEAF = 2, HEADER = 16, POINTER = 2, NODE_HEADER = 8 };
    uint8_t *entry = page + HEADER + POINTER;
    size_t key = strlen(RKS_MAIN_SHARD_KEY);
    memset(page, 0, size);
    rks_store_u16(page + 10, LEAF);
    rks_store_u16(page + 12, HEADER + POINTER);
    rks_store_u16(page + HEADER, HEADER + POINTER);
    rks_store_u16(entry, RKS_DIGEST_SIZE);
    rks_store_u16(entry + 6, (uint16_t)key);
    memcpy(entry + NODE_HEADER, RKS_MAIN_SHARD_KEY, key);
    rks_store_u64(entry + NODE_HEADER + key, shard_id.low);
    rks_store_u64(entry + NODE_HEADER + key + 8, shard_id.high);
}

void shards_seal_again(const uint8_t *from, size_t size, uint32_t page_size)
{
    rks_error err;
    rks_manifest *manifest = NULL;
    char *text = NULL;
    char sums[256];
    size_t text_size = 0;
    uint8_t *bytes = calloc(1, size + 2 * (size_t)page_size);
    assert_non_null(bytes);
    memcpy(bytes, from, size);
    assert_ok(rks_manifest_load(shards_path("a.json"), &manifest, &err), &err);
    if (page_size > 0) {
        manifest->page_size = page_size;
        manifest->main_page = rks_round_up(size, page_size);
        put_main_page(bytes + manifest->main_page, page_size, manifest->shard_id);
        size = (size_t)manifest->main_page + page_size;
    }
    manifest->file_size = size;
    shards_store(shards_here, "a.rks", bytes, size);
    for (size_t i = 0; i < manifest->segment_count; i++)
        manifest->segments[i].check =
            rks_checksum64(bytes + manifest->segments[i].offset, manifest->segments[i].size);
    manifest->head = rks_checksum128(bytes, 2 * (size_t)manifest->page_size);
    manifest->main = rks_checksum128(bytes + manifest->main_page, manifest->page_size);
    snprintf(sums, sizeof(sums), "%s", shards_path("a.sums"));
    assert_ok(rks_sums_write(shards_path("a.rks"), size, sums, 2, &manifest->sums, &err), &err);
    assert_ok(rks_manifest_encode(manifest, &text, &text_size, NULL, &err), &err);
    shards_store(shards_here, "a.json", text, text_size);
    rks_free(text);
    rks_manifest_free(manifest);
    free(bytes);
}
