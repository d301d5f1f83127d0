/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify.c: whatever is wrong with a dataset is found, and where. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/sums.h"
#include "support/check.h"
#include "support/shards.h"

/* Outside records; in them, and in the small files, every byte is flipped. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FLIP_STEP = 997, SMALL_STEP = 7 };
#else
enum { FLIP_STEP = 5, SMALL_STEP = 1 };
#endif

enum { MIB = 1 << 20 };

static rks_error err;

/* What one verify said; the first findings in full. */
enum { KEPT = 64 };
typedef struct kept_finding {
    char file[64]; /* without the directory */
    uint64_t offset;
    char key[64];
    size_t key_size;
    char what[256];
    bool leftover;
} kept_finding;
static kept_finding kept[KEPT];
static uint64_t kept_count;
static uint64_t samples;

static void keep(void *user, const rks_finding *finding)
{
    (void)user;
    assert_non_null(finding->file);
    assert_true(finding->what[0] != '\0');
    if (kept_count < KEPT) {
        kept_finding *to = &kept[kept_count];
        const char *slash = strrchr(finding->file, '/');
        snprintf(to->file, sizeof(to->file), "%s", slash == NULL ? finding->file : slash + 1);
        snprintf(to->what, sizeof(to->what), "%s", finding->what);
        to->offset = finding->offset;
        to->leftover = finding->leftover;
        to->key_size = finding->key_size < sizeof(to->key) ? finding->key_size : sizeof(to->key);
        if (to->key_size > 0)
            memcpy(to->key, finding->key, to->key_size);
    }
    kept_count++;
}

static uint64_t verify(const char *path, rks_verify_level level)
{
    uint64_t findings = 0;
    kept_count = 0;
    assert_ok(rks_verify(path, level, keep, NULL, &samples, &findings, &err), &err);
    assert_int_equal(findings, kept_count);
    return findings;
}

static bool kept_has(const char *file, const char *what)
{
    for (uint64_t i = 0; i < kept_count && i < KEPT; i++)
        if (strcmp(kept[i].file, file) == 0 && strstr(kept[i].what, what) != NULL)
            return true;
    for (uint64_t i = 0; i < kept_count && i < KEPT; i++)
        print_error("%s at %llu: %s\n", kept[i].file, (unsigned long long)kept[i].offset,
                    kept[i].what);
    return false;
}

static void write_dataset(shards_recipe *recipes)
{
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 2; i++)
        shards_write(shards_here, names[i], &recipes[i]);
    shards_commit(shards_here, names, 2);
}

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

/* ---- flips -------------------------------------------------------------------------------- */

typedef struct place {
    uint64_t offset;
    uint64_t size;
    char key[RKS_KEY_MAX + 1];
    size_t key_size;
} place;

/* Where each record of a.rks lies. */
static place *record_places(const shards_recipe *recipe)
{
    place *places = calloc(recipe->samples, sizeof(*places));
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    rks_shard *shard = shards_open(shards_here, "a");
    rks_record_view first;
    size_t at = 0;
    assert_ok(rks_shard_locate(shard, 0, &first, &err), &err);
    while (memcmp(bytes + at, first.record, first.record_size) != 0)
        at += 8;
    for (uint64_t row = 0; row < recipe->samples; row++) {
        rks_record_view view;
        assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
        places[row].offset = (uint64_t)((int64_t)at + (view.record - first.record));
        places[row].size = view.record_size;
        places[row].key_size = shards_key(recipe, row, places[row].key);
    }
    rks_shard_close(shard);
    free(bytes);
    return places;
}

/* Was the record named: by its offset, and by its key where that can still be known? */
static bool named(const place *record, uint64_t at)
{
    uint64_t in_record = at - record->offset;
    bool key_known = (in_record >= 4 && in_record < 16) ||
                     (in_record >= 24 && in_record < record->size - record->key_size);
    for (uint64_t i = 0; i < kept_count && i < KEPT; i++)
        if (kept[i].offset == record->offset &&
            (!key_known || (kept[i].key_size == record->key_size &&
                            memcmp(kept[i].key, record->key, record->key_size) == 0)))
            return true;
    return false;
}

static void check_flip(const char *file, size_t at, const place *places, uint64_t records)
{
    bool found = false;
    for (uint64_t i = 0; i < kept_count && i < KEPT; i++)
        found = found || (strcmp(kept[i].file, file) == 0 && kept[i].offset / MIB == at / MIB);
    if (!found)
        print_error("byte %zu of %s: not found\n", at, file);
    assert_true(found);
    if (strcmp(file, "a.rks") != 0)
        return;
    for (uint64_t i = 0; i < records; i++) {
        if (at < places[i].offset || at >= places[i].offset + places[i].size)
            continue;
        /* The source row of a stored key: only the block's checksum covers it, and that cannot
         * tell in which record it was. */
        bool source_row = at >= places[i].offset + 20 && at < places[i].offset + 24;
        if (!source_row && !named(&places[i], at))
            print_error("byte %zu in record %zu: not named\n", at, (size_t)i);
        assert_true(source_row || named(&places[i], at));
    }
}

static void every_flipped_byte_of_every_file_is_found(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 12, .units = 2, .size_most = 40, .index = true};
    shards_dataset(&recipe);
    place *places = record_places(&recipe);
    static const char *const files[] = {"a.rks", "a.json", "a.sums", "dataset.json"};
    for (size_t f = 0; f < 4; f++) {
        size_t size = 0;
        free(shards_load(shards_here, files[f], &size));
        for (size_t at = 0; at < size; at++) {
            bool in_records = at >= places[0].offset && at < places[11].offset + places[11].size;
            if (at % (f == 0 && !in_records ? FLIP_STEP : SMALL_STEP) != 0)
                continue;
            shards_flip(shards_here, files[f], at, 0x10);
            verify(shards_here, RKS_VERIFY_FULL);
            check_flip(files[f], at, places, recipe.samples);
            shards_flip(shards_here, files[f], at, 0x10);
        }
    }
    assert_int_equal(verify(shards_here, RKS_VERIFY_FULL), 0);
    free(places);
}

static void a_flip_is_found_in_its_own_mebibyte(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 4000, .size_most = 2000, .block_size = 1 << 20};
    shards_write(shards_here, "a", &recipe);
    size_t size = 0;
    free(shards_load(shards_here, "a.rks", &size));
    assert_true(size > 3 * MIB);
    for (size_t at = 5000; at < size; at += size / 23) {
        shards_flip(shards_here, "a.rks", at, 0x80);
        verify(shards_path("a.rks"), RKS_VERIFY_FULL);
        check_flip("a.rks", at, NULL, 0);
        shards_flip(shards_here, "a.rks", at, 0x80);
    }
}

static void a_fast_look_finds_what_lies_in_samples_and_index(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 300, .units = 3, .index = true};
    shards_write(shards_here, "a", &recipe);
    place *places = record_places(&recipe);
    for (uint64_t row = 0; row < 300; row += 17) {
        for (uint64_t at = 0; at < places[row].size; at += 3) {
            shards_flip(shards_here, "a.rks", places[row].offset + at, 0x04);
            assert_true(verify(shards_path("a.json"), RKS_VERIFY_FAST) > 0);
            shards_flip(shards_here, "a.rks", places[row].offset + at, 0x04);
        }
    }
    rks_manifest *manifest = NULL;
    assert_ok(rks_manifest_load(shards_path("a.json"), &manifest, &err), &err);
    for (size_t i = 0; i < manifest->segment_count; i++) {
        for (uint64_t at = 0; at < manifest->segments[i].size; at += 61) {
            uint64_t offset = manifest->segments[i].offset + at;
            shards_flip(shards_here, "a.rks", offset, 0x04);
            assert_true(verify(shards_path("a.json"), RKS_VERIFY_FAST) > 0);
            shards_flip(shards_here, "a.rks", offset, 0x04);
        }
    }
    rks_manifest_free(manifest);
    free(places);
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

static void links_fifos_and_folders_are_findings(void **state)
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
        assert_true(verify(shards_here, RKS_VERIFY_FULL) > 0);
        assert_true(kept_has(files[f], "symbolic link"));
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

/* Sums and manifest anew over a file that was changed. `page_size` 0: as it was. */
static void seal_pages(const uint8_t *bytes, size_t size, uint32_t page_size)
{
    rks_manifest *manifest = NULL;
    char *text = NULL;
    char sums[256];
    size_t text_size = 0;
    shards_store(shards_here, "a.rks", bytes, size);
    assert_ok(rks_manifest_load(shards_path("a.json"), &manifest, &err), &err);
    for (size_t i = 0; i < manifest->segment_count; i++)
        manifest->segments[i].check =
            rks_checksum64(bytes + manifest->segments[i].offset, manifest->segments[i].size);
    manifest->page_size = page_size > 0 ? page_size : manifest->page_size;
    manifest->head = rks_checksum128(bytes, 2 * (size_t)manifest->page_size);
    snprintf(sums, sizeof(sums), "%s", shards_path("a.sums"));
    assert_ok(rks_sums_write(shards_path("a.rks"), size, sums, &manifest->sums, &err), &err);
    assert_ok(rks_manifest_encode(manifest, &text, &text_size, NULL, &err), &err);
    shards_store(shards_here, "a.json", text, text_size);
    rks_free(text);
    rks_manifest_free(manifest);
}

static void seal_again(const uint8_t *bytes, size_t size)
{
    seal_pages(bytes, size, 0);
}

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
        seal_pages(bytes, size, sizes[i]);
        assert_int_equal(verify(shards_path("a.rks"), RKS_VERIFY_FULL), 0);
        verify(shards_path("a.rks"), RKS_VERIFY_DEEP); /* finds it or not, in a child of its own */
        rks_store_u32(bytes + PAD, 4096);
        rks_store_u32(bytes + 4096 + PAD, 4096);
    }
    seal_pages(bytes, size, 4096);
    assert_int_equal(verify(shards_path("a.rks"), RKS_VERIFY_DEEP), 0);
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
    seal_again(bytes, size);
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
        for (int i = 0; i < 6; i++) { /* in page headers and the words behind them */
            seed = seed * 6364136223846793005U + 1442695040888963407U;
            size_t at = (size_t)(seed >> 33) % (size / 4096) * 4096 + (seed >> 20) % 48;
            bytes[at] ^= (uint8_t)(seed >> 50);
        }
        seal_again(bytes, size);
        found += verify(shards_path("a.rks"), RKS_VERIFY_DEEP) > 0;
        memcpy(bytes, right, size);
    }
    assert_true(found > 10);
    seal_again(right, size);
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

#define VERIFY_TEST(name) cmocka_unit_test_setup_teardown(name, shards_begin, shards_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERIFY_TEST(nothing_is_found_in_a_whole_dataset),
        VERIFY_TEST(derived_keys_are_verified),
        VERIFY_TEST(what_is_no_dataset_is_an_error),
        VERIFY_TEST(every_flipped_byte_of_every_file_is_found),
        VERIFY_TEST(a_flip_is_found_in_its_own_mebibyte),
        VERIFY_TEST(a_fast_look_finds_what_lies_in_samples_and_index),
        VERIFY_TEST(every_truncation_and_addition_is_found),
        VERIFY_TEST(zeroed_and_moved_pages_are_found),
        VERIFY_TEST(missing_and_unlisted_files_are_named),
        VERIFY_TEST(a_shard_of_another_build_in_its_place_is_found),
        VERIFY_TEST(a_dataset_that_tells_of_other_units_is_found),
        VERIFY_TEST(links_fifos_and_folders_are_findings),
        VERIFY_TEST(a_crafted_file_costs_no_more_than_its_size),
        VERIFY_TEST(lmdb_pages_that_lead_astray_end_no_process_but_the_child),
        VERIFY_TEST(pages_of_another_size_are_read_or_refused),
        VERIFY_TEST(an_interrupt_ends_it),
        VERIFY_TEST(it_survives_each_failing_allocation),
        VERIFY_TEST(it_writes_nothing),
    };
    return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}
