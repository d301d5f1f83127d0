/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify.c: whatever is wrong with a dataset is found, and where. */
#include "unit/manage/findings.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/checksum_file.h"

/* ---- whole -------------------------------------------------------------------------------- */

static void nothing_is_found_in_a_whole_dataset(void **state)
{
    (void)state;
    shards_recipe recipes[] = {
        {.samples = 1500, .units = 4, .wide_every = 10, .index = true},
        {.first = 1500, .samples = 900, .units = 2, .first_unit = 4, .index = true},
    };
    write_dataset(recipes);
    for (int level = RKS_VERIFY_FAST; level <= RKS_VERIFY_DEEP; level++) {
        assert_int_equal(verify(shards_here, (rks_verify_level)level), 0);
        assert_int_equal(samples, 2400);
    }
    assert_int_equal(verify(shards_path("dataset.json"), RKS_VERIFY_FULL), 0);
    assert_int_equal(samples, 2400);
    const char *const files[] = {"a.json", "a.rks", "a.sums"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(verify(shards_path(files[i]), RKS_VERIFY_FULL), 0);
        assert_int_equal(samples, 1500);
    }
    assert_ok(rks_verify(shards_here, RKS_VERIFY_FAST, NULL, NULL, NULL, NULL, NULL), &err);
}

static void derived_keys_are_verified(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 500, .units = 5, .derived_keys = true};
    shards_dataset(&recipe);
    assert_int_equal(verify(shards_here, RKS_VERIFY_DEEP), 0);
    assert_int_equal(samples, 500);
}

static void what_is_no_dataset_is_an_error(void **state)
{
    (void)state;
    uint64_t count = 0;
    assert_fails(RKS_ERR_NOT_FOUND,
                 rks_verify(shards_here, RKS_VERIFY_FAST, keep, NULL, &count, &count, &err));
    assert_fails(RKS_ERR_NOT_FOUND, rks_verify(shards_path("nothing"), RKS_VERIFY_FAST, keep, NULL,
                                               &count, &count, &err));
    shards_store(shards_here, "text", "text", 4);
    assert_fails(RKS_ERR_ARGUMENT, rks_verify(shards_path("text"), RKS_VERIFY_FAST, keep, NULL,
                                              &count, &count, &err));
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_verify("", RKS_VERIFY_FAST, keep, NULL, &count, &count, &err));
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_verify(shards_here, (rks_verify_level)3, keep, NULL, &count, &count, &err));
    shards_recipe recipe = {0};
    shards_write(shards_here, "a", &recipe);
    assert_fails(RKS_ERR_NOT_FOUND,
                 rks_verify(shards_here, RKS_VERIFY_FAST, keep, NULL, &count, &count, &err));
    assert_contains(err.text, "not finished");
}

/* ---- files -------------------------------------------------------------------------------- */

static void every_truncation_and_addition_is_found(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 30};
    shards_dataset(&recipe);
    static const char *const files[] = {"a.rks", "a.json", "a.sums", "dataset.json"};
    for (size_t f = 0; f < 4; f++) {
        size_t size = 0;
        uint8_t *bytes = shards_load(shards_here, files[f], &size);
        for (size_t cut = 0; cut < size; cut += f == 0 ? 512 : 5) {
            shards_store(shards_here, files[f], bytes, cut);
            assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
            assert_true(kept_has(files[f], ""));
        }
        shards_store(shards_here, files[f], bytes, size);
        bytes[size] = f == 0 ? 0 : '\n';
        shards_store(shards_here, files[f], bytes, size + 1);
        assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
        assert_true(kept_has(files[f], ""));
        if (f != 1 && f != 3)
            assert_true(verify(shards_here, RKS_VERIFY_FAST) > 0);
        shards_store(shards_here, files[f], bytes, size);
        assert_int_equal(verify(shards_here, RKS_VERIFY_FULL), 0);
        free(bytes);
    }
}

static void zeroed_and_moved_pages_are_found(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 2000};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    uint8_t page[4096];
    for (size_t at = 0; at + 4096 <= size; at += 4096) {
        memcpy(page, bytes + at, 4096);
        for (size_t other = 0; other < 2; other++) {
            if (other == 0)
                memset(bytes + at, 0, 4096);
            else
                memcpy(bytes + at, bytes + (at + 4096 * 9) % (size / 4096 * 4096), 4096);
            if (memcmp(bytes + at, page, 4096) != 0) {
                shards_store(shards_here, "a.rks", bytes, size);
                assert_true(verify(shards_path("a.rks"), RKS_VERIFY_FULL) > 0);
            }
            memcpy(bytes + at, page, 4096);
        }
    }
    free(bytes);
}

static void missing_and_unlisted_files_are_named(void **state)
{
    (void)state;
    shards_recipe recipes[] = {{.samples = 50}, {.first = 50, .samples = 40, .first_unit = 3}};
    write_dataset(recipes);
    static const char *const files[] = {"b.rks", "b.json", "b.sums"};
    for (int f = 0; f < 3; f++) {
        char away[256];
        snprintf(away, sizeof(away), "%s", shards_path("away"));
        assert_int_equal(rename(shards_path(files[f]), away), 0);
        assert_true(verify(shards_here, RKS_VERIFY_FAST) > 0);
        assert_true(kept_has(files[f], f == 0 ? "missing" : "no such file"));
        assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
        assert_true(kept_has(files[f], ""));
        assert_int_equal(rename(away, shards_path(files[f])), 0);
    }
    shards_recipe other = {.first = 500, .samples = 10};
    shards_write(shards_here, "c", &other);
    rks_verify_counts counts = {.struct_size = sizeof(counts)};
    kept_count = 0;
    assert_ok(rks_verify_with(shards_here, NULL, keep, NULL, &counts, &err), &err);
    assert_int_equal(counts.findings, 0);
    assert_int_equal(counts.leftovers, 1);
    assert_int_equal(counts.samples, 90);
    assert_true(kept_count == 1 && kept[0].leftover && kept_has("c.rks", "not listed"));

    shards_flip(shards_here, "b.rks", 4096 + 100, 0x80); /* and real damage stays damage */
    kept_count = 0;
    rks_verify_options full = {.struct_size = sizeof(full), .level = RKS_VERIFY_FULL};
    assert_ok(rks_verify_with(shards_here, &full, keep, NULL, &counts, &err), &err);
    assert_int_equal(counts.leftovers, 1);
    assert_true(counts.findings > 0 && kept_count == counts.findings + 1);
    assert_true(kept_has("b.rks", "") && !kept[0].leftover);
}

static void a_shard_of_another_build_in_its_place_is_found(void **state)
{
    (void)state;
    shards_recipe recipes[] = {{.samples = 50}, {.first = 50, .samples = 40, .first_unit = 3}};
    write_dataset(recipes);
    static const char *const files[] = {"b.rks", "b.json", "b.sums"};
    for (int f = 0; f < 3; f++)
        assert_int_equal(unlink(shards_path(files[f])), 0);
    shards_write(shards_here, "b", &recipes[1]); /* the same samples under another shard id */
    assert_true(verify(shards_here, RKS_VERIFY_FAST) > 0);
    assert_true(kept_has("b.json", "shard id"));
}

/* dataset.json is sound by itself, and so is the shard: they do not belong together. */
static void a_dataset_that_tells_of_other_units_is_found(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 50, .units = 4};
    shards_dataset(&recipe);
    size_t size = 0;
    rks_dataset *dataset = NULL;
    char *text = (char *)shards_load(shards_here, "dataset.json", &size);
    assert_ok(rks_dataset_decode(text, size, "dataset.json", &dataset, &err), &err);
    dataset->units[2].summary.digest.low ^= 1;
    dataset->id = rks_dataset_fold(dataset->units, dataset->unit_count, dataset->schema);
    assert_ok(rks_dataset_commit(shards_here, dataset, &err), &err);
    assert_int_equal(verify(shards_here, RKS_VERIFY_FAST), 1);
    assert_true(kept_has("a.json", "unit 2"));
    dataset->units[2].summary.digest.low ^= 1;
    dataset->shards[0].bytes++;
    dataset->units[0].summary.bytes++;
    dataset->id = rks_dataset_fold(dataset->units, dataset->unit_count, dataset->schema);
    assert_ok(rks_dataset_commit(shards_here, dataset, &err), &err);
    assert_true(verify(shards_here, RKS_VERIFY_FAST) > 0);
    assert_true(kept_has("a.json", "byte count"));
    rks_dataset_free(dataset);
    free(text);
}

static void links_are_followed_and_fifos_and_folders_are_findings(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 20};
    shards_dataset(&recipe);
    static const char *const files[] = {"a.rks", "a.json", "a.sums", "dataset.json"};
    for (int f = 0; f < 4; f++) {
        char away[256];
        snprintf(away, sizeof(away), "%s", shards_path("away"));
        assert_int_equal(rename(shards_path(files[f]), away), 0);
        assert_int_equal(symlink(away, shards_path(files[f])), 0);
        assert_int_equal(verify(shards_here, RKS_VERIFY_FULL), 0);
        assert_int_equal(verify(shards_here, RKS_VERIFY_FAST), 0);
        assert_int_equal(unlink(shards_path(files[f])), 0);
        assert_int_equal(symlink("nowhere", shards_path(files[f])), 0);
        assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
        assert_true(kept_has(files[f], "a symbolic link that leads nowhere"));
        assert_int_equal(unlink(shards_path(files[f])), 0);
        assert_int_equal(mkfifo(shards_path(files[f]), 0600), 0);
        assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
        assert_true(kept_has(files[f], "not a regular file"));
        assert_int_equal(unlink(shards_path(files[f])), 0);
        assert_int_equal(mkdir(shards_path(files[f]), 0700), 0);
        assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
        assert_int_equal(rmdir(shards_path(files[f])), 0);
        assert_int_equal(rename(away, shards_path(files[f])), 0);
    }
    assert_int_equal(verify(shards_here, RKS_VERIFY_FULL), 0);
}

/* ---- files that agree with themselves ------------------------------------------------------ */

/* As a machine with larger or smaller pages would have written it: LMDB has their size in its first
 * two, which lie one page apart. */
static void pages_of_another_size_are_read_or_refused(void **state)
{
    (void)state;
    enum { PAD = 40 };
    const uint32_t sizes[] = {512, 2048, 16384, 65536};
    shards_recipe recipe = {.samples = 300, .size_most = 3000};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_true(size > 2 * (size_t)sizes[i]);
        assert_int_equal(rks_load_u32(bytes + PAD), 4096);
        rks_store_u32(bytes + PAD, sizes[i]);
        rks_store_u32(bytes + 4096 + PAD, sizes[i]);
        shards_seal_again(bytes, size, sizes[i]);
        assert_int_equal(verify(shards_path("a.rks"), RKS_VERIFY_FULL), 0);
        verify(shards_path("a.rks"), RKS_VERIFY_DEEP); /* finds it or not, in a child of its own */
        rks_store_u32(bytes + PAD, 4096);
        rks_store_u32(bytes + 4096 + PAD, 4096);
    }
    shards_seal_again(bytes, size, 4096);
    assert_int_equal(verify(shards_path("a.rks"), RKS_VERIFY_FULL), 0);
    free(bytes);
}

static void a_crafted_file_costs_no_more_than_its_size(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 3000, .size_most = 3000};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    rks_manifest *manifest = NULL;
    assert_ok(rks_manifest_load(shards_path("a.json"), &manifest, &err), &err);
    size_t at = 0;
    while (manifest->segments[at].kind != RKS_SEGMENT_LOCATORS)
        at++;
    uint8_t *locators = bytes + manifest->segments[at].offset;
    memset(locators + 8 * 47, 0, 4 * 3000); /* 64 rows lead to one place */
    shards_seal_again(bytes, size, 0);
    assert_true(verify(shards_path("a.rks"), RKS_VERIFY_FULL) > 2900);
    assert_true(kept_has("a.rks", "not the key of the index"));
    rks_manifest_free(manifest);
    free(bytes);
}

static void lmdb_pages_that_lead_astray_end_no_process_but_the_child(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 30, .size_most = 60};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    uint8_t *right = shards_load(shards_here, "a.rks", NULL);
    uint64_t found = 0;
    uint64_t seed = 1;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 6; i++) { /* in page headers and the words after them */
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            size_t at = (size_t)(seed >> 33) % (size / 4096) * 4096 + (seed >> 20) % 48;
            bytes[at] ^= (uint8_t)(seed >> 50);
        }
        shards_seal_again(bytes, size, 0);
        found += verify(shards_path("a.rks"), RKS_VERIFY_DEEP) > 0;
        memcpy(bytes, right, size);
    }
    assert_true(found > 10);
    shards_seal_again(right, size, 0);
    assert_int_equal(verify(shards_path("a.rks"), RKS_VERIFY_DEEP), 0);
    free(right);
    free(bytes);
}

/* ---- the caller --------------------------------------------------------------------------- */

static int stop_now(void *user)
{
    (void)user;
    return 1;
}

static void an_interrupt_ends_it(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 20};
    shards_write(shards_here, "a", &recipe);
    rks_set_interrupt(stop_now, NULL);
    rks_status status =
        rks_verify(shards_path("a.rks"), RKS_VERIFY_FULL, keep, NULL, NULL, NULL, &err);
    rks_set_interrupt(NULL, NULL);
    assert_fails(RKS_ERR_CANCELLED, status);
}

static void it_survives_each_failing_allocation(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 20};
    shards_dataset(&recipe);
    long nth = 1;
    for (;; nth++) {
        uint64_t findings = 0;
        rks_memory_fail_at(nth);
        rks_status status =
            rks_verify(shards_here, RKS_VERIFY_DEEP, keep, NULL, NULL, &findings, &err);
        rks_memory_fail_at(0);
        assert_int_equal(rks_memory_in_use(), 0);
        if (status == RKS_OK) {
            assert_int_equal(findings, 0);
            break;
        }
        assert_fails(RKS_ERR_MEMORY, status);
    }
    assert_true(nth > 20);
}

static void it_writes_nothing(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 20};
    shards_dataset(&recipe);
    static const char *const files[] = {"a.rks", "a.json", "a.sums", "dataset.json"};
    struct stat before[5];
    struct stat after;
    for (int i = 0; i < 5; i++)
        assert_int_equal(stat(i < 4 ? shards_path(files[i]) : shards_here, &before[i]), 0);
    assert_int_equal(verify(shards_here, RKS_VERIFY_DEEP), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(stat(i < 4 ? shards_path(files[i]) : shards_here, &after), 0);
        assert_memory_equal(&before[i].st_mtim, &after.st_mtim, sizeof(after.st_mtim));
        assert_int_equal(before[i].st_size, after.st_size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERIFY_TEST(nothing_is_found_in_a_whole_dataset),
        VERIFY_TEST(derived_keys_are_verified),
        VERIFY_TEST(what_is_no_dataset_is_an_error),
        VERIFY_TEST(every_truncation_and_addition_is_found),
        VERIFY_TEST(zeroed_and_moved_pages_are_found),
        VERIFY_TEST(missing_and_unlisted_files_are_named),
        VERIFY_TEST(a_shard_of_another_build_in_its_place_is_found),
        VERIFY_TEST(a_dataset_that_tells_of_other_units_is_found),
        VERIFY_TEST(links_are_followed_and_fifos_and_folders_are_findings),
        VERIFY_TEST(a_crafted_file_costs_no_more_than_its_size),
        VERIFY_TEST(lmdb_pages_that_lead_astray_end_no_process_but_the_child),
        VERIFY_TEST(pages_of_another_size_are_read_or_refused),
        VERIFY_TEST(an_interrupt_ends_it),
        VERIFY_TEST(it_survives_each_failing_allocation),
        VERIFY_TEST(it_writes_nothing),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
