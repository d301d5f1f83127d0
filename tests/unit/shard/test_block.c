/* SPDX-License-Identifier: Apache-2.0
 *
 * test_block.c: blocks, records and locators. */
#include "support/check.h"

#include <stdlib.h>

#include "base/memory.h"
#include "shard/block.h"

static rks_error err;

static const rks_digest SHARD = {0x1122334455667788, 0x99aabbccddeeff00};
enum { GOOD_SIZE = 64 + 24 + 5 + 3 + 24 + 2 + 6 + 16 };

/* A block of unit 7, rows 5 and 6: payloads "hello" and "xy", keys "key" and none, 16 zeros. */
static void good_block(uint8_t block[GOOD_SIZE])
{
    memset(block, 0, GOOD_SIZE);
    uint64_t key_hash = rks_key_hash("key", 3);
    uint64_t check = rks_record_digest(rks_checksum64("hello", 5), SHARD, 100, key_hash, 9, 5);
    rks_record_header_put(block + 64, 5, 9, check, 3, 8, 11);
    memcpy(block + 88, "hellokey", 8);
    check = rks_record_digest(rks_checksum64("xy", 2), SHARD, 101, rks_key_hash("u:12", 4), 1, 2);
    rks_record_header_put(block + 96, 2, 1, check, 0, 8, 12);
    memcpy(block + 120, "xy", 2);
    rks_block_finish(block, GOOD_SIZE, &(rks_block_info){7, 5, 2, UINT64_C(0x0102030405060708)});
}

static void a_block_has_these_bytes(void **state)
{
    (void)state;
    uint8_t block[GOOD_SIZE];
    good_block(block);
    static const uint8_t golden[] = {
        'R', 'K', 'S', 'B', 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, /* magic .. count */
        7,   0,   0,   0,   0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, /* unit, first row */
        80,  0,   0,   0,   0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, /* size, shard */
    };
    assert_memory_equal(block, golden, sizeof(golden));
    static const uint8_t record[] = {5, 0, 0, 0, 9, 0, 0, 0};
    assert_memory_equal(block + 64, record, sizeof(record));
    static const uint8_t behind[] = {3,   0,   0,   0,   11,  0,   0,   0,
                                     'h', 'e', 'l', 'l', 'o', 'k', 'e', 'y'};
    assert_memory_equal(block + 80, behind, sizeof(behind));
    assert_int_equal(rks_load_u64(block + 48), UINT64_C(0xbbf085e97bf539ba));
    assert_int_equal(rks_load_u64(block + 56), rks_checksum64(block, 56));
    assert_int_equal(rks_load_u64(block + 72), UINT64_C(0x779cd6707ee89f73));
}

static void a_block_of_another_shard_is_recognised(void **state)
{
    (void)state;
    const rks_digest own = {.low = 9, .high = UINT64_C(0x0102030405060708)}, other = {.high = 5};
    uint8_t block[GOOD_SIZE];
    rks_block_info info;
    good_block(block);
    assert_ok(rks_block_check(block, GOOD_SIZE, "file", 0, &info, &err), &err);
    assert_ok(rks_block_check_shard(&info, own, "file", &err), &err);
    assert_fails(RKS_ERR_CORRUPT, rks_block_check_shard(&info, other, "file", &err));
    assert_contains(err.text, "data belongs to shard 0102030405060708");
}

static void every_record_is_found_and_passes_its_check(void **state)
{
    (void)state;
    uint8_t block[GOOD_SIZE];
    rks_block_info info;
    rks_record_view view;
    size_t at = RKS_BLOCK_HEADER;
    good_block(block);
    assert_ok(rks_block_check(block, GOOD_SIZE, "file", 0, &info, &err), &err);
    assert_int_equal(info.unit, 7);
    assert_int_equal(info.first_row, 5);
    assert_int_equal(info.count, 2);
    assert_ok(rks_block_next(block, GOOD_SIZE, &at, &view, &err), &err);
    assert_int_equal(view.payload_size, 5);
    assert_memory_equal(view.key, "key", 3);
    assert_int_equal(view.key_size, 3);
    assert_int_equal(view.length, 9);
    assert_int_equal(view.source_row, 11);
    assert_int_equal(view.align, 8);
    assert_int_equal(view.record_size, 32);
    assert_ok(rks_record_check(&view, SHARD, 100, rks_key_hash("key", 3), 9, &err), &err);
    assert_ok(rks_block_next(block, GOOD_SIZE, &at, &view, &err), &err);
    assert_int_equal(view.key_size, 0);
    assert_ok(rks_record_check(&view, SHARD, 101, rks_key_hash("u:12", 4), 1, &err), &err);
    assert_fails(RKS_ERR_CORRUPT, rks_block_next(block, GOOD_SIZE, &at, &view, &err));
}

static void a_sample_in_another_place_fails_its_check(void **state)
{
    (void)state;
    uint8_t block[GOOD_SIZE];
    rks_record_view view;
    size_t at = RKS_BLOCK_HEADER;
    uint64_t hash = rks_key_hash("key", 3);
    rks_digest other = {SHARD.low, SHARD.high + 1};
    good_block(block);
    assert_ok(rks_block_next(block, GOOD_SIZE, &at, &view, &err), &err);
    assert_fails(RKS_ERR_CORRUPT, rks_record_check(&view, other, 100, hash, 9, &err));
    assert_fails(RKS_ERR_CORRUPT, rks_record_check(&view, SHARD, 101, hash, 9, &err));
    assert_fails(RKS_ERR_CORRUPT, rks_record_check(&view, SHARD, 100, hash + 1, 9, &err));
    assert_contains(err.text, "key");
    assert_fails(RKS_ERR_CORRUPT, rks_record_check(&view, SHARD, 100, hash, 8, &err));
    assert_contains(err.text, "length 9");
}

static void every_flipped_bit_of_a_record_fails_its_check(void **state)
{
    (void)state;
    uint8_t block[GOOD_SIZE];
    good_block(block);
    /* all but the flags, the source row (the index has neither), and what is after the key */
    for (size_t bit = 8 * 64; bit < 8 * 96; bit++) {
        if (bit / 8 >= 64 + 18 && bit / 8 < 64 + 24)
            continue;
        rks_record_view view;
        good_block(block);
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        if (rks_record_parse(block + 64, GOOD_SIZE - 64, &view, &err) == RKS_OK)
            assert_fails(RKS_ERR_CORRUPT,
                         rks_record_check(&view, SHARD, 100, rks_key_hash("key", 3), 9, &err));
    }
}

static void every_truncation_of_a_block_is_refused(void **state)
{
    (void)state;
    uint8_t block[GOOD_SIZE];
    good_block(block);
    for (size_t size = 0; size < GOOD_SIZE; size++) {
        rks_block_info info;
        uint8_t *exact = malloc(size + 1);
        memcpy(exact, block, size);
        assert_fails(RKS_ERR_CORRUPT, rks_block_check(exact, size, "file", 4112, &info, &err));
        assert_contains(err.text, "4112");
        free(exact);
    }
}

static void every_flipped_bit_of_a_block_is_refused(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * GOOD_SIZE; bit++) {
        uint8_t block[GOOD_SIZE];
        rks_block_info info;
        good_block(block);
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_fails(RKS_ERR_CORRUPT, rks_block_check(block, GOOD_SIZE, "file", 4112, &info, &err));
    }
}

static void another_version_or_codec_is_named(void **state)
{
    (void)state;
    const struct {
        size_t at;
        uint8_t value;
        const char *text;
    } each[] = {{4, 9, "block version 9; this version reads 2: build again"},
                {4, 1, "block version 1; this version reads 2: build again"},
                {6, 9, "has codec 9, flags 0; this version reads codec 0"},
                {8, 9, "has codec 0, flags 0x9; this version reads codec 0"}};
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        uint8_t block[GOOD_SIZE];
        rks_block_info info;
        good_block(block);
        block[each[i].at] = each[i].value;
        rks_store_u64(block + 56, rks_checksum64(block, 56));
        assert_fails(RKS_ERR_UNSUPPORTED,
                     rks_block_check(block, GOOD_SIZE, "file", 4112, &info, &err));
        assert_contains(err.text, each[i].text);
    }
}

static void hostile_record_sizes_are_refused(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 6, 1000, UINT32_MAX - 24, UINT32_MAX};
    uint8_t record[32] = {0};
    rks_record_view view;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rks_record_header_put(record, sizes[i], 1, 0, 3, 8, 0);
        assert_fails(RKS_ERR_CORRUPT, rks_record_parse(record, sizeof(record), &view, &err));
    }
    rks_record_header_put(record, 5, 1, 0, 3, 8, 0);
    assert_ok(rks_record_parse(record, sizeof(record), &view, &err), &err);
    for (size_t size = 0; size < sizeof(record); size++)
        assert_fails(RKS_ERR_CORRUPT, rks_record_parse(record, size, &view, &err));
    record[18] = 2; /* a flag of the future */
    assert_fails(RKS_ERR_CORRUPT, rks_record_parse(record, sizeof(record), &view, &err));
}

static void payloads_lie_where_their_alignment_asks(void **state)
{
    (void)state;
    for (uint64_t at = 64; at < 400; at += 8) {
        uint64_t narrow = rks_record_place(at, 8), wide = rks_record_place(at, 64);
        assert_int_equal(narrow, at);
        assert_true(wide >= at && wide < at + 64);
        assert_int_equal((16 + wide + 24) % 64, 0);
    }
}

static void locators_give_every_offset_back(void **state)
{
    (void)state;
    enum { ROWS = 1000 };
    uint64_t offsets[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        offsets[i] = (i < 500 ? 5000000000 : 16) + 8 * (i * 7919 % ROWS); /* in no order */
    uint8_t *segment = malloc(rks_locators_size(ROWS));
    assert_int_equal(rks_locators_size(ROWS), 16 * 8 + ROWS * 4);
    assert_true(rks_locators_put(segment, offsets, ROWS));
    for (size_t i = 0; i < ROWS; i++)
        assert_int_equal(rks_locators_get(segment, ROWS, i), offsets[i]);
    offsets[70] = offsets[69] + (UINT64_C(8) << 32) + 8;
    assert_false(rks_locators_put(segment, offsets, ROWS));
    free(segment);
}

static void derived_keys_are_name_and_row(void **state)
{
    (void)state;
    char key[RKS_KEY_MAX + 1], name[RKS_KEY_MAX + 2];
    assert_int_equal(rks_key_derive("a/b.txt", 7, 0, key), 9);
    assert_string_equal(key, "a/b.txt:0");
    assert_int_equal(rks_key_derive("x", 1, UINT64_MAX, key), 22);
    assert_string_equal(key, "x:18446744073709551615");
    memset(name, 'n', sizeof(name));
    name[490] = '\0';
    assert_true(rks_key_name_fits(name));
    assert_int_equal(rks_key_derive(name, 490, UINT64_MAX, key), RKS_KEY_MAX);
    name[490] = 'n';
    name[491] = '\0';
    assert_false(rks_key_name_fits(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_has_these_bytes),
        cmocka_unit_test(a_block_of_another_shard_is_recognised),
        cmocka_unit_test(every_record_is_found_and_passes_its_check),
        cmocka_unit_test(a_sample_in_another_place_fails_its_check),
        cmocka_unit_test(every_flipped_bit_of_a_record_fails_its_check),
        cmocka_unit_test(every_truncation_of_a_block_is_refused),
        cmocka_unit_test(every_flipped_bit_of_a_block_is_refused),
        cmocka_unit_test(another_version_or_codec_is_named),
        cmocka_unit_test(hostile_record_sizes_are_refused),
        cmocka_unit_test(payloads_lie_where_their_alignment_asks),
        cmocka_unit_test(locators_give_every_offset_back),
        cmocka_unit_test(derived_keys_are_name_and_row),
    };
    return cmocka_run_group_tests_name("block", tests, NULL, NULL);
}
