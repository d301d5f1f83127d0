/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard_damage.c: reading shards that are damaged, cut, hostile, or go away meanwhile. */
#include "unit/shard/opened_shard.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/guarded_map.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/manifest.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FLIP_STEP = 13 };
#else
enum { FLIP_STEP = 1 };
#endif

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
        assert_int_equal(symlink("/dev/null", shards_path(files[i])), 0);
        assert_fails(RKS_ERR_CORRUPT, rks_shard_open(shards_path("a.json"), &shard, &err));
        assert_int_equal(unlink(shards_path(files[i])), 0);
        assert_int_equal(symlink(real, shards_path(files[i])), 0);
        assert_ok(rks_shard_open(shards_path("a.json"), &shard, &err), &err);
        rks_shard_close(shard);
        shard = NULL;
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
            shards_seal_again(bytes, size, 0);
            assert_true(refused_samples("a", &recipe) >= 63);
            memcpy(locators, right, manifest->segments[at].size);
        }
    }
    shards_seal_again(bytes, size, 0);
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

/* Storage that failed for a while: the same file, the same map. */
static void a_file_that_is_whole_again_is_read_again(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 2000};
    shards_write(shards_here, "a", &recipe);
    open_shard reading;
    assert_true(begin_reading(&reading, "a", &recipe));
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    for (int time = 0; time < 2; time++) {
        uint32_t length = 0;
        assert_int_equal(truncate(shards_path("a.rks"), 0), 0);
        for (uint64_t row = 0; row < 2000; row++) {
            uint8_t *copy = NULL;
            rks_record_view view = {0};
            assert_fails(RKS_ERR_IO, read_row(reading.shard, row, reading.hashes, reading.lengths,
                                              &copy, &view));
            free(copy);
        }
        assert_fails(RKS_ERR_IO, rks_shard_copy_lengths(reading.shard, 1999, 1, &length, &err));
        shards_store(shards_here, "a.rks", bytes, size);
        rks_guarded_map_renew();
        for (uint64_t row = 0; row < 2000; row++) {
            uint8_t *copy = NULL, key[RKS_KEY_MAX];
            size_t key_size = 0;
            rks_record_view view = {0};
            assert_ok(read_row(reading.shard, row, reading.hashes, reading.lengths, &copy, &view),
                      &err);
            free(copy);
            assert_ok(rks_shard_key(reading.shard, row, key, &key_size, &err), &err);
        }
        assert_ok(rks_shard_copy_lengths(reading.shard, 1999, 1, &length, &err), &err);
        assert_int_equal(length, reading.lengths[1999]);
    }
    free(bytes);
    end_reading(&reading);
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
    uint8_t key[RKS_KEY_MAX];
    size_t key_size = 0;
    assert_fails(RKS_ERR_IO, rks_shard_copy_lengths(shard, 0, 2000, (uint32_t *)hashes, &err));
    assert_fails(RKS_ERR_IO, rks_shard_copy_key_hashes(shard, 0, 2000, hashes, &err));
    assert_fails(RKS_ERR_IO, rks_shard_locate(shard, 1000, &view, &err));
    assert_contains(err.text, "row 1000");
    uint64_t row = 7;
    assert_fails(RKS_ERR_IO, rks_shard_locate_many(shard, &row, 1, &view, &err));
    assert_fails(RKS_ERR_IO, rks_shard_key(shard, 7, key, &key_size, &err));
    rks_shard_close(shard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARD_TEST(no_flipped_byte_is_ever_handed_out),
        SHARD_TEST(no_flipped_byte_of_the_manifest_opens),
        SHARD_TEST(a_file_of_another_size_is_refused),
        SHARD_TEST(only_regular_files_are_opened),
        SHARD_TEST(hostile_locators_stay_inside_the_file),
        SHARD_TEST(hostile_record_headers_stay_inside_the_file),
        SHARD_TEST(a_file_that_is_cut_while_open_gives_errors),
        SHARD_TEST(a_file_that_is_whole_again_is_read_again),
        SHARD_TEST(an_index_that_is_cut_while_open_gives_errors),
    };
    return cmocka_run_group_tests_name("shard_damage", tests, NULL, NULL);
}
