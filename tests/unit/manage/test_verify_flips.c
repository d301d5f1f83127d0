/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verify_flips.c: a flipped byte is found, and where. */
#include "unit/manage/findings.h"

#include <stdlib.h>

#include "shard/manifest.h"

/* Outside records; in them, and in the small files, every byte is flipped. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FLIP_STEP = 997, SMALL_STEP = 7 };
#else
enum { FLIP_STEP = 5, SMALL_STEP = 1 };
#endif

enum { MIB = 1 << 20 };

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        VERIFY_TEST(every_flipped_byte_of_every_file_is_found),
        VERIFY_TEST(a_flip_is_found_in_its_own_mebibyte),
        VERIFY_TEST(a_fast_look_finds_what_lies_in_samples_and_index),
    };
    return cmocka_run_group_tests_name("verify_flips", tests, NULL, NULL);
}
