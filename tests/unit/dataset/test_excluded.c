/* SPDX-License-Identifier: Apache-2.0
 *
 * test_excluded.c: the list of samples that do not count. */
#include "support/check.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/excluded_samples.h"

static rks_error err;

static void runs_are_sorted_and_joined(void **state)
{
    (void)state;
    rks_excluded_run runs[] = {{9, 1}, {3, 2}, {5, 1}, {0, 1}, {20, 0}, {10, 4}};
    uint64_t count = 6;
    assert_ok(rks_excluded_settle(runs, &count, &err), &err);
    assert_int_equal(count, 3);
    const rks_excluded_run expected[] = {{0, 1}, {3, 3}, {9, 5}};
    assert_memory_equal(runs, expected, sizeof(expected));
    count = 0;
    assert_ok(rks_excluded_settle(NULL, &count, &err), &err);
}

static void a_position_is_excluded_once(void **state)
{
    (void)state;
    rks_excluded_run runs[] = {{3, 4}, {6, 1}};
    uint64_t count = 2;
    assert_fails(rks_excluded_settle(runs, &count, &err), RKS_ERR_DATA);
    assert_contains(err.text, "sample 6 is excluded twice");
}

static rks_excluded_run three[] = {{0, 1}, {3, 3}, {9, 5}};

static rks_excluded make(rks_buffer *bytes)
{
    rks_excluded excluded = {.runs = three, .run_count = 3, .bytes = 77, .duplicates = 2};
    assert_ok(rks_excluded_encode(&excluded, bytes, &err), &err);
    excluded.runs = NULL;
    return excluded;
}

static void the_list_has_these_bytes(void **state)
{
    (void)state;
    rks_buffer bytes = {0};
    rks_excluded excluded = make(&bytes);
    static const uint8_t golden[] = "RKSX\1\0\0\0\3\0\0\0\0\0\0\0"
                                    "\0\0\0\0\1\0\0\0"
                                    "\3\0\0\0\3\0\0\0"
                                    "\x09\0\0\0\5\0\0";
    assert_int_equal(bytes.size, sizeof(golden));
    assert_memory_equal(bytes.data, golden, sizeof(golden));
    assert_int_equal(bytes.size, rks_excluded_size(3));
    assert_int_equal(excluded.samples, 9);
    assert_string_equal(excluded.name, "excluded-4de4cd75528ed185.runs");
    assert_ok(rks_excluded_decode(&excluded, bytes.data, bytes.size, 14, "list", &err), &err);
    assert_memory_equal(excluded.runs, three, sizeof(three));
    rks_free(excluded.runs);
    rks_buffer_free(&bytes);
}

/* The digest says what a stranger wants it to. */
static void expect_refused(rks_excluded excluded, const rks_buffer *bytes, size_t size,
                           uint64_t stored, const char *why)
{
    excluded.digest = rks_checksum128(bytes->data, size);
    assert_fails(rks_excluded_decode(&excluded, bytes->data, size, stored, "list", &err),
                 RKS_ERR_CORRUPT);
    assert_contains(err.text, why);
    assert_null(excluded.runs);
}

static void hostile_lists_are_refused(void **state)
{
    (void)state;
    rks_buffer bytes = {0};
    rks_excluded excluded = make(&bytes);
    expect_refused(excluded, &bytes, bytes.size - 1, 14, "39 bytes, a list of 3 runs has 40");
    expect_refused(excluded, &bytes, bytes.size, 13, "its runs are not 9 of 13 samples");
    excluded.run_count = UINT64_MAX / 8;
    expect_refused(excluded, &bytes, bytes.size, 14, "a list of 2305843009213693951 runs");
    excluded.run_count = 3;
    excluded.samples = 8;
    expect_refused(excluded, &bytes, bytes.size, 14, "its runs are not 8 of 14 samples");
    excluded.samples = 9;
    const struct {
        size_t at;
        uint32_t value;
        const char *why;
    } changes[] = {
        {0, 1, "not a list of excluded samples"},
        {4, 2, "not a list of excluded samples"},
        {8, 2, "not a list of excluded samples"},
        {20, 3, "its runs are not"},          /* 0..2, next to 3 */
        {20, 0, "its runs are not"},          /* empty */
        {24, 0, "its runs are not"},          /* not ascending */
        {36, UINT32_MAX, "its runs are not"}, /* beyond the end */
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        uint32_t before = rks_load_u32(bytes.data + changes[i].at);
        rks_store_u32(bytes.data + changes[i].at, changes[i].value);
        expect_refused(excluded, &bytes, bytes.size, 14, changes[i].why);
        rks_store_u32(bytes.data + changes[i].at, before);
    }
    bytes.data[17] ^= 1;
    assert_fails(rks_excluded_decode(&excluded, bytes.data, bytes.size, 14, "list", &err),
                 RKS_ERR_CORRUPT);
    assert_contains(err.text, "list: does not match its digest");
    rks_buffer_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_sorted_and_joined),
        cmocka_unit_test(a_position_is_excluded_once),
        cmocka_unit_test(the_list_has_these_bytes),
        cmocka_unit_test(hostile_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
