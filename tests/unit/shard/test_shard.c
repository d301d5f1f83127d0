/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard.c: reading sealed shards, whole, damaged, cut and hostile. */
#include "shard/shard.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "support/check.h"
#include "support/shards.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FLIP_STEP = 13 };
#else
enum { FLIP_STEP = 1 };
#endif

static rks_error err;

/* The whole way of a reader: the record into memory of its own, then all checks on the copy.
 * RKS_OK only with the right bytes in hand. */
static rks_status read_row(rks_shard *shard, uint64_t row, const uint64_t *hashes,
                           const uint32_t *lengths, uint8_t **copy, rks_record_view *view)
{
    rks_status status = rks_shard_locate(shard, row, view, &err);
    if (status != RKS_OK)
        return status;
    *copy = malloc(view->record_size);
    assert_non_null(*copy);
    memcpy(*copy, view->record, view->record_size);
    if (rks_shard_faulted(shard, view->record, view->record_size))
        return rks_shard_read_failed(shard, row, view, &err);
    status = rks_record_parse(*copy, view->record_size, view, &err);
    return status != RKS_OK
               ? status
               : rks_record_check(view, rks_shard_id(shard), row, hashes[row], lengths[row], &err);
}

typedef struct open_shard {
    rks_shard *shard;
    shards_recipe recipe;
    uint64_t *hashes;
    uint32_t *lengths;
    bool index_good;
} open_shard;

static bool begin_reading(open_shard *reading, const char *name, const shards_recipe *recipe)
{
    *reading = (open_shard){.recipe = *recipe};
    char file[64];
    snprintf(file, sizeof(file), "%s.json", name);
    if (rks_shard_open(shards_path(file), &reading->shard, &err) != RKS_OK)
        return false;
    uint64_t count = rks_shard_count(reading->shard);
    reading->hashes = malloc(8 * count + 1);
    reading->lengths = malloc(4 * count + 1);
    reading->index_good =
        rks_shard_copy_lengths(reading->shard, 0, count, reading->lengths, &err) == RKS_OK &&
        rks_shard_copy_key_hashes(reading->shard, 0, count, reading->hashes, &err) == RKS_OK;
    return true;
}

static void end_reading(open_shard *reading)
{
    rks_shard_close(reading->shard);
    free(reading->hashes);
    free(reading->lengths);
}

/* Every sample is right or refused; how many are refused. */
static uint64_t refused_samples(const char *name, const shards_recipe *recipe)
{
    open_shard reading;
    if (!begin_reading(&reading, name, recipe))
        return UINT64_MAX;
    uint64_t refused = reading.index_good ? 0 : UINT64_MAX;
    for (uint64_t row = 0; reading.index_good && row < rks_shard_count(reading.shard); row++) {
        uint8_t *copy = NULL;
        rks_record_view view;
        if (read_row(reading.shard, row, reading.hashes, reading.lengths, &copy, &view) == RKS_OK) {
            char key[RKS_KEY_MAX + 1];
            size_t key_size = shards_key(recipe, row, key);
            assert_true(shards_payload_right(recipe, rks_shard_schema(reading.shard), row,
                                             view.payload, view.payload_size));
            assert_int_equal(view.length, shards_length(recipe->first + row));
            assert_int_equal(reading.hashes[row], rks_key_hash(key, key_size));
            if (!recipe->derived_keys)
                assert_memory_equal(view.key, key, key_size);
        } else {
            refused++;
        }
        free(copy);
    }
    end_reading(&reading);
    return refused;
}

/* ---- whole shards ------------------------------------------------------------------------- */

static void reads_every_sample_and_its_key(void **state)
{
    (void)state;
    for (int derived = 0; derived < 2; derived++) {
        shards_recipe recipe = {
            .samples = 700, .units = 5, .wide_every = 50, .derived_keys = derived != 0};
        const char *name = derived ? "derived" : "stored";
        shards_write(shards_here, name, &recipe);
        assert_int_equal(refused_samples(name, &recipe), 0);
        rks_shard *shard = shards_open(shards_here, name);
        for (uint64_t row = 0; row < 700; row++) {
            char right[RKS_KEY_MAX + 1];
            uint8_t key[RKS_KEY_MAX];
            size_t key_size = 0;
            assert_ok(rks_shard_key(shard, row, key, &key_size, &err), &err);
            assert_int_equal(key_size, shards_key(&recipe, row, right));
            assert_memory_equal(key, right, key_size);
        }
        rks_shard_close(shard);
    }
}

static void says_what_the_manifest_says(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 300, .units = 4, .index = true, .first = 1000};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    uint64_t files = 0;
    const char *const endings[] = {"a.rks", "a.sums", "a.json"};
    for (int i = 0; i < 3; i++) {
        struct stat info;
        assert_int_equal(stat(shards_path(endings[i]), &info), 0);
        files += (uint64_t)info.st_size;
    }
    assert_string_equal(rks_shard_path(shard), shards_path("a.rks"));
    assert_int_equal(rks_shard_count(shard), 300);
    assert_int_equal(rks_shard_file_bytes(shard), files);
    assert_int_equal(rks_shard_build_id(shard).low, 1);
    assert_false(rks_shard_derived_keys(shard));
    assert_int_equal(rks_schema_columns(rks_shard_schema(shard)), 3);
    size_t units = 0;
    const rks_unit_summary *summaries = rks_shard_units(shard, &units);
    assert_int_equal(units, 4);
    uint64_t bytes = 0;
    for (size_t i = 0; i < units; i++)
        bytes += summaries[i].bytes;
    assert_int_equal(bytes, rks_shard_bytes(shard));
    assert_int_equal(rks_shard_index_columns(shard), 1);
    assert_string_equal(rks_shard_index_column(shard, 0)->name, "id");
    assert_null(rks_shard_index_column(shard, 1));
    int64_t ids[300];
    assert_ok(rks_shard_copy_column(shard, 0, 0, 300, ids, &err), &err);
    for (int i = 0; i < 300; i++)
        assert_int_equal(ids[i], 1000 + i);
    uint64_t largest = 0;
    for (uint64_t row = 0; row < 300; row++) {
        rks_record_view view;
        assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
        largest = view.record_size > largest ? view.record_size : largest;
        rks_shard_touch(shard, &view);
    }
    assert_int_equal(largest, rks_shard_largest(shard));
    rks_shard_close(shard);
    rks_shard_close(NULL);
}

static void copies_any_range_of_the_index(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 100};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    uint32_t lengths[100];
    uint64_t hashes[100];
    for (uint64_t first = 0; first <= 100; first += 9) {
        assert_ok(rks_shard_copy_lengths(shard, first, 100 - first, lengths, &err), &err);
        for (uint64_t i = 0; i < 100 - first; i++)
            assert_int_equal(lengths[i], shards_length(first + i));
    }
    assert_ok(rks_shard_copy_lengths(shard, 100, 0, lengths, &err), &err);
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_copy_lengths(shard, 1, 100, lengths, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_copy_key_hashes(shard, 101, 0, hashes, &err));
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_shard_copy_key_hashes(shard, 5, UINT64_MAX - 2, hashes, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_copy_column(shard, 0, 0, 1, hashes, &err));
    rks_record_view view;
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate(shard, 100, &view, &err));
    assert_contains(err.text, "a.rks");
    rks_shard_close(shard);
}

static void a_batch_is_located_as_its_rows_are(void **state)
{
    (void)state;
    enum { COUNT = 150 };
    shards_recipe recipe = {.samples = 1000};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    uint64_t rows[COUNT];
    rks_record_view views[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        rows[i] = i * 7919 % 1000;
    assert_ok(rks_shard_locate_many(shard, rows, COUNT, views, &err), &err);
    for (size_t i = 0; i < COUNT; i++) {
        rks_record_view one;
        assert_ok(rks_shard_locate(shard, rows[i], &one, &err), &err);
        assert_ptr_equal(one.record, views[i].record);
        assert_int_equal(one.record_size, views[i].record_size);
    }
    assert_ok(rks_shard_locate_many(shard, rows, 0, views, &err), &err);
    rows[100] = 1000;
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate_many(shard, rows, COUNT, views, &err));
    rks_shard_close(shard);
}

static void wide_columns_are_aligned_in_the_map(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 60, .wide_every = 2};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    for (uint64_t row = 0; row < 60; row += 2) {
        rks_record_view view;
        rks_value values[3];
        assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
        assert_ok(rks_record_decode(rks_shard_schema(shard), view.payload, view.payload_size,
                                    values, &err),
                  &err);
        assert_int_equal(view.align, 64);
        assert_int_equal((uintptr_t)values[2].data % 64, 0);
    }
    rks_shard_close(shard);
}

static void a_shard_without_samples_is_a_shard(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    rks_shard_writer *writer = NULL;
    assert_ok(rks_schema_parse(SHARDS_SCHEMA, &schema, &err), &err);
    rks_shard_options options = {.schema = schema};
    assert_ok(rks_shard_writer_open(shards_here, "none", &options, &writer, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
    rks_shard *shard = shards_open(shards_here, "none");
    assert_int_equal(rks_shard_count(shard), 0);
    rks_record_view view;
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate(shard, 0, &view, &err));
    assert_ok(rks_shard_copy_lengths(shard, 0, 0, NULL, &err), &err);
    rks_shard_close(shard);
}

/* ---- damage ------------------------------------------------------------------------------- */

static void no_flipped_byte_is_ever_handed_out(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 12, .units = 2, .size_most = 40, .index = true};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    free(shards_load(shards_here, "a.rks", &size));
    uint64_t refused = 0;
    for (size_t at = 0; at < size; at += FLIP_STEP) {
        shards_flip(shards_here, "a.rks", at, 0x40);
        refused += refused_samples("a", &recipe) != 0;
        shards_flip(shards_here, "a.rks", at, 0x40);
    }
    assert_true(refused > 500 / FLIP_STEP);
}

static void no_flipped_byte_of_the_manifest_opens(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 12};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.json", &size);
    rks_shard *shard = NULL;
    for (size_t at = 0; at < size; at += FLIP_STEP) {
        shards_flip(shards_here, "a.json", at, 0x01);
        assert_int_not_equal(rks_shard_open(shards_path("a.json"), &shard, &err), RKS_OK);
        assert_contains(err.text, "a.json");
        shards_flip(shards_here, "a.json", at, 0x01);
    }
    for (size_t cut = 0; cut < size; cut += 7) {
        shards_store(shards_here, "a.json", bytes, cut);
        assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
    }
    free(bytes);
}

static void a_file_of_another_size_is_refused(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 12};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    rks_shard *shard = NULL;
    for (size_t cut = 0; cut < size; cut += 512) {
        assert_int_equal(truncate(shards_path("a.rks"), (off_t)cut), 0);
        shards_store(shards_here, "a.rks", bytes, cut);
        assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
        assert_contains(err.text, "a.rks");
    }
    shards_store(shards_here, "a.rks", bytes, size);
    assert_int_equal(truncate(shards_path("a.rks"), (off_t)size + 1), 0);
    assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
    assert_int_equal(unlink(shards_path("a.rks")), 0);
    assert_fails(RKS_ERR_NOT_FOUND, rks_shard_open(shards_path("a.json"), &shard, &err));
    free(bytes);
}

static void only_regular_files_are_opened(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 12};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = NULL;
    char real[256];
    const char *const files[] = {"a.json", "a.rks"};
    for (int i = 0; i < 2; i++) {
        snprintf(real, sizeof(real), "%s", shards_path("moved"));
        assert_int_equal(rename(shards_path(files[i]), real), 0);
        assert_int_equal(symlink(real, shards_path(files[i])), 0);
        assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
        assert_int_equal(unlink(shards_path(files[i])), 0);
        assert_int_equal(mkfifo(shards_path(files[i]), 0600), 0);
        assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
        assert_int_equal(unlink(shards_path(files[i])), 0);
        assert_int_equal(mkdir(shards_path(files[i]), 0700), 0);
        assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
        assert_int_equal(rmdir(shards_path(files[i])), 0);
        assert_int_equal(rename(real, shards_path(files[i])), 0);
    }
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_open(shards_path("a.rks"), &shard, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_open(shards_path(".json"), &shard, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_open("", &shard, &err));
    assert_fails(RKS_ERR_NOT_FOUND, rks_shard_open(shards_path("b.json"), &shard, &err));
    assert_contains(err.text, "not sealed");
    assert_null(shard);
}

/* Writes the manifest anew over a file that was changed, so that only bounds stand in the way. */
static void seal_again(const uint8_t *bytes, size_t size)
{
    rks_manifest *manifest = NULL;
    char *text = NULL;
    size_t text_size = 0;
    shards_store(shards_here, "a.rks", bytes, size);
    assert_ok(rks_manifest_load(shards_path("a.json"), &manifest, &err), &err);
    for (size_t i = 0; i < manifest->segment_count; i++)
        manifest->segments[i].check =
            rks_checksum64(bytes + manifest->segments[i].offset, manifest->segments[i].size);
    manifest->head = rks_checksum128(bytes, 2 * (size_t)manifest->page_size);
    assert_ok(rks_manifest_encode(manifest, &text, &text_size, NULL, &err), &err);
    shards_store(shards_here, "a.json", text, text_size);
    rks_free(text);
    rks_manifest_free(manifest);
}

static void hostile_locators_stay_inside_the_file(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 200};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    rks_manifest *manifest = NULL;
    assert_ok(rks_manifest_load(shards_path("a.json"), &manifest, &err), &err);
    size_t at = 0;
    while (manifest->segments[at].kind != RKS_SEGMENT_LOCATORS)
        at++;
    uint8_t *locators = bytes + manifest->segments[at].offset;
    uint8_t *right = malloc(manifest->segments[at].size);
    memcpy(right, locators, manifest->segments[at].size);
    const uint64_t bases[] = {UINT64_MAX, UINT64_MAX - 7, 0,        1,         (uint64_t)INT64_MAX,
                              size,       size - 1,       size - 8, size - 24, size - 32};
    const uint32_t deltas[] = {0, 1, 3, UINT32_MAX, UINT32_MAX / 8, 1000};
    for (size_t b = 0; b < sizeof(bases) / sizeof(bases[0]); b++) {
        for (size_t d = 0; d < sizeof(deltas) / sizeof(deltas[0]); d++) {
            rks_store_u64(locators, bases[b]);
            for (size_t row = 0; row < 64; row++)
                rks_store_u32(locators + 4 * 8 + 4 * row, deltas[d]);
            seal_again(bytes, size);
            assert_true(refused_samples("a", &recipe) >= 63);
            memcpy(locators, right, manifest->segments[at].size);
        }
    }
    seal_again(bytes, size);
    assert_int_equal(refused_samples("a", &recipe), 0);
    free(right);
    free(bytes);
    rks_manifest_free(manifest);
}

static void hostile_record_headers_stay_inside_the_file(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 50, .derived_keys = true};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    rks_shard *shard = shards_open(shards_here, "a");
    rks_record_view view;
    assert_ok(rks_shard_locate(shard, 30, &view, &err), &err);
    rks_record_view first;
    assert_ok(rks_shard_locate(shard, 0, &first, &err), &err);
    size_t first_at = 0;
    while (memcmp(bytes + first_at, first.record, first.record_size) != 0)
        first_at += 8;
    size_t record = first_at + (size_t)(view.record - first.record);
    rks_shard_close(shard);
    const uint32_t sizes[] = {0, 1, UINT32_MAX, UINT32_MAX - 23, (uint32_t)size, 0x80000000};
    const uint16_t keys[] = {0, 1, 511, 512, UINT16_MAX};
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            uint8_t right[24];
            memcpy(right, bytes + record, sizeof(right));
            rks_store_u32(bytes + record, sizes[s]);
            rks_store_u16(bytes + record + 16, keys[k]);
            shards_store(shards_here, "a.rks", bytes, size);
            assert_int_equal(refused_samples("a", &recipe), 1);
            shard = shards_open(shards_here, "a");
            uint8_t key[RKS_KEY_MAX];
            size_t key_size = 0;
            (void)rks_shard_key(shard, 30, key, &key_size, &err);
            rks_shard_close(shard);
            memcpy(bytes + record, right, sizeof(right));
        }
    }
    free(bytes);
}

/* ---- a file that goes away under the reader ------------------------------------------------ */

static void a_file_that_is_cut_while_open_gives_errors(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 2000};
    shards_write(shards_here, "a", &recipe);
    open_shard reading;
    assert_true(begin_reading(&reading, "a", &recipe));
    size_t size = 0;
    free(shards_load(shards_here, "a.rks", &size));
    assert_int_equal(truncate(shards_path("a.rks"), (off_t)(size / 3)), 0);
    uint64_t failed = 0;
    for (uint64_t row = 0; row < 2000; row++) {
        uint8_t *copy = NULL;
        rks_record_view view = {0};
        rks_status status =
            read_row(reading.shard, row, reading.hashes, reading.lengths, &copy, &view);
        if (status != RKS_OK) {
            assert_fails(RKS_ERR_IO, status);
            assert_contains(err.text, "a.rks");
            failed++;
        }
        free(copy);
    }
    assert_true(failed > 1000);
    uint32_t length = 0;
    rks_shard *again = NULL;
    assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &again, &err));
    (void)rks_shard_copy_lengths(reading.shard, 1999, 1, &length, &err);
    end_reading(&reading);

    assert_int_equal(truncate(shards_path("a.rks"), 0), 0);
}

static void an_index_that_is_cut_while_open_gives_errors(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 2000, .derived_keys = true};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    assert_int_equal(truncate(shards_path("a.rks"), 0), 0);
    static uint64_t hashes[2000];
    rks_record_view view;
    const char *name = NULL;
    uint64_t file_row = 0;
    uint8_t key[RKS_KEY_MAX];
    size_t key_size = 0;
    assert_fails(RKS_ERR_IO, rks_shard_copy_lengths(shard, 0, 2000, (uint32_t *)hashes, &err));
    assert_fails(RKS_ERR_IO, rks_shard_copy_key_hashes(shard, 0, 2000, hashes, &err));
    assert_fails(RKS_ERR_IO, rks_shard_locate(shard, 1000, &view, &err));
    assert_contains(err.text, "row 1000");
    uint64_t row = 7;
    assert_fails(RKS_ERR_IO, rks_shard_locate_many(shard, &row, 1, &view, &err));
    assert_fails(RKS_ERR_IO, rks_shard_derived_key(shard, 7, &name, &file_row, &err));
    assert_fails(RKS_ERR_IO, rks_shard_key(shard, 7, key, &key_size, &err));
    rks_shard_close(shard);
}

/* ---- threads, forks, memory --------------------------------------------------------------- */

static void *read_some(void *argument)
{
    open_shard *reading = argument;
    uintptr_t wrong = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t row = i * 7919 % 1000;
        rks_record_view view;
        uint32_t length = 0;
        if (rks_shard_locate(reading->shard, row, &view, NULL) != RKS_OK ||
            rks_record_check(&view, rks_shard_id(reading->shard), row, reading->hashes[row],
                             reading->lengths[row], NULL) != RKS_OK ||
            rks_shard_copy_lengths(reading->shard, row, 1, &length, NULL) != RKS_OK ||
            length != reading->lengths[row])
            wrong++;
    }
    return (void *)wrong;
}

static void four_threads_read_one_shard(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 1000};
    shards_write(shards_here, "a", &recipe);
    open_shard reading;
    assert_true(begin_reading(&reading, "a", &recipe));
    rks_shard *fresh = shards_open(shards_here, "a"); /* its segments are not yet compared */
    rks_shard_close(reading.shard);
    reading.shard = fresh;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_some, &reading), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    end_reading(&reading);
}

static void a_forked_child_reads_on(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 1000};
    shards_write(shards_here, "a", &recipe);
    open_shard reading;
    assert_true(begin_reading(&reading, "a", &recipe));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(100);
        bool good = read_some(&reading) == NULL && refused_samples("a", &recipe) == 0;
        _exit(good ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_null(read_some(&reading));
    end_reading(&reading);
}

static void opening_survives_each_failing_allocation(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 30, .derived_keys = true};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = NULL;
    long nth = 1;
    for (;; nth++) {
        rks_memory_fail_at(nth);
        rks_status status = rks_shard_open(shards_path("a.json"), &shard, &err);
        rks_memory_fail_at(0);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
        assert_null(shard);
        assert_int_equal(rks_memory_in_use(), 0);
    }
    assert_true(nth > 5);
    rks_shard_close(shard);
}

static void opening_allocates_nothing_for_a_sample(void **state)
{
    (void)state;
    long used[2];
    for (uint64_t i = 0; i < 2; i++) {
        shards_recipe recipe = {.samples = i == 0 ? 10 : 5000, .size_most = 20};
        shards_write(shards_here, i == 0 ? "few" : "many", &recipe);
        rks_shard *shard = shards_open(shards_here, i == 0 ? "few" : "many");
        used[i] = rks_memory_in_use();
        rks_shard_close(shard);
    }
    assert_int_equal(used[0], used[1]);
}

#define SHARD_TEST(name) cmocka_unit_test_setup_teardown(name, shards_begin, shards_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARD_TEST(reads_every_sample_and_its_key),
        SHARD_TEST(says_what_the_manifest_says),
        SHARD_TEST(copies_any_range_of_the_index),
        SHARD_TEST(a_batch_is_located_as_its_rows_are),
        SHARD_TEST(wide_columns_are_aligned_in_the_map),
        SHARD_TEST(a_shard_without_samples_is_a_shard),
        SHARD_TEST(no_flipped_byte_is_ever_handed_out),
        SHARD_TEST(no_flipped_byte_of_the_manifest_opens),
        SHARD_TEST(a_file_of_another_size_is_refused),
        SHARD_TEST(only_regular_files_are_opened),
        SHARD_TEST(hostile_locators_stay_inside_the_file),
        SHARD_TEST(hostile_record_headers_stay_inside_the_file),
        SHARD_TEST(a_file_that_is_cut_while_open_gives_errors),
        SHARD_TEST(an_index_that_is_cut_while_open_gives_errors),
        SHARD_TEST(four_threads_read_one_shard),
        SHARD_TEST(a_forked_child_reads_on),
        SHARD_TEST(opening_survives_each_failing_allocation),
        SHARD_TEST(opening_allocates_nothing_for_a_sample),
    };
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
