/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_wire.c: requests and replies as bytes. */
#include <stdlib.h>

#include "base/bytes.h"
#include "fetch/wire.h"
#include "support/check.h"

static rks_error err;

/* Two groups, three rows: pins the format. */
static const uint8_t GOLDEN[] = {
    2, 0, 0, 0, 3, 0, 0, 0,                         /* groups, rows */
    5, 0, 0, 0,                                     /* shard */
    1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, /* its id */
    2, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0,             /* rows */
    6, 0, 0, 0,                                     /* shard */
    3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, /* its id */
    1, 0, 0, 0, 0, 1, 0, 0,                         /* rows */
};

static void request_has_its_golden_bytes(void **state)
{
    (void)state;
    uint8_t rows[8], row[4], body[sizeof(GOLDEN)];
    rks_store_u32(rows, 7);
    rks_store_u32(rows + 4, 9);
    rks_store_u32(row, 256);
    rks_fetch_group first = {{1, 2}, 5, 2, rows}, second = {{3, 4}, 6, 1, row};
    assert_int_equal(rks_fetch_request_size(2, 3), sizeof(GOLDEN));
    uint8_t *at = rks_fetch_put_request(body, 2, 3);
    at = rks_fetch_put_group(at, &first);
    at = rks_fetch_put_group(at, &second);
    assert_ptr_equal(at, body + sizeof(body));
    assert_memory_equal(body, GOLDEN, sizeof(GOLDEN));
}

static void request_is_read_as_it_was_written(void **state)
{
    (void)state;
    uint32_t groups = 0, rows = 0;
    rks_fetch_group group;
    assert_ok(rks_fetch_request_check(GOLDEN, sizeof(GOLDEN), &groups, &rows, &err), &err);
    assert_int_equal(groups, 2);
    assert_int_equal(rows, 3);
    const uint8_t *at = rks_fetch_get_group(GOLDEN + RKS_FETCH_REQUEST_HEAD, &group);
    assert_int_equal(group.shard, 5);
    assert_int_equal(group.shard_id.high, 2);
    assert_int_equal(group.count, 2);
    assert_int_equal(rks_load_u32(group.rows + 4), 9);
    at = rks_fetch_get_group(at, &group);
    assert_int_equal(group.shard, 6);
    assert_ptr_equal(at, GOLDEN + sizeof(GOLDEN));
}

static void request_that_is_cut_or_longer_is_refused(void **state)
{
    (void)state;
    uint32_t groups, rows;
    for (size_t size = 0; size < sizeof(GOLDEN); size++) {
        uint8_t *exact = malloc(size + 1);
        memcpy(exact, GOLDEN, size);
        assert_fails(RKS_ERR_ARGUMENT, rks_fetch_request_check(exact, size, &groups, &rows, &err));
        free(exact);
    }
    uint8_t longer[sizeof(GOLDEN) + 4] = {0};
    memcpy(longer, GOLDEN, sizeof(GOLDEN));
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_fetch_request_check(longer, sizeof(longer), &groups, &rows, &err));
}

static void request_with_any_changed_count_is_refused(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 4, 28, 60};
    for (size_t i = 0; i < 4; i++) {
        for (unsigned bit = 0; bit < 32; bit++) {
            uint32_t groups, rows;
            uint8_t damaged[sizeof(GOLDEN)];
            memcpy(damaged, GOLDEN, sizeof(GOLDEN));
            damaged[counts[i] + bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_fails(RKS_ERR_ARGUMENT,
                         rks_fetch_request_check(damaged, sizeof(damaged), &groups, &rows, &err));
        }
    }
}

static void put_reply(uint8_t *reply, uint32_t served, uint32_t first, uint32_t second)
{
    memset(reply, 0, 64);
    rks_store_u32(reply, served);
    rks_store_u32(reply + 8, first);
    rks_store_u32(reply + 12, second);
}

static void reply_places_must_ascend_and_lie_inside(void **state)
{
    (void)state;
    static const uint32_t bad[][2] = {{2, 2}, {3, 2}, {1, 3}, {0, 3}, {2, 8}, {2, 0xffffffff}};
    uint8_t reply[64];
    size_t served = 0;
    put_reply(reply, 2, 2, 5);
    assert_ok(rks_fetch_reply_check(reply, 64, 2, &served, &err), &err);
    assert_int_equal(served, 2);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put_reply(reply, 2, bad[i][0], bad[i][1]);
        assert_fails(RKS_ERR_CORRUPT, rks_fetch_reply_check(reply, 64, 2, &served, &err));
    }
}

static void reply_has_one_flag(void **state)
{
    (void)state;
    uint8_t reply[64];
    size_t served = 0;
    put_reply(reply, 1, 2, 0);
    assert_ok(rks_fetch_reply_check(reply, 64, 2, &served, &err), &err);
    assert_false(rks_fetch_reply_waited(reply));
    reply[4] = RKS_FETCH_WAITED;
    assert_ok(rks_fetch_reply_check(reply, 64, 2, &served, &err), &err);
    assert_true(rks_fetch_reply_waited(reply));
    reply[4] = 2;
    assert_fails(RKS_ERR_CORRUPT, rks_fetch_reply_check(reply, 64, 2, &served, &err));
}

static void reply_serves_at_least_one_and_at_most_what_was_asked(void **state)
{
    (void)state;
    uint8_t reply[64];
    size_t served = 0;
    put_reply(reply, 1, 2, 0);
    assert_ok(rks_fetch_reply_check(reply, 64, 2, &served, &err), &err);
    assert_int_equal(served, 1);
    for (uint32_t count = 0; count < 5; count += 3) {
        put_reply(reply, count, 2, 5);
        assert_fails(RKS_ERR_CORRUPT, rks_fetch_reply_check(reply, 64, 2, &served, &err));
    }
    put_reply(reply, 2, 2, 5);
    for (size_t size = 0; size <= 40; size++)
        assert_fails(RKS_ERR_CORRUPT, rks_fetch_reply_check(reply, size, 2, &served, &err));
}

static void reply_record_that_is_cut_is_refused(void **state)
{
    (void)state;
    rks_record_view view;
    uint8_t reply[64];
    put_reply(reply, 1, 2, 0);
    rks_store_u32(reply + 16, 100); /* a payload of 100 bytes in 48 */
    assert_fails(RKS_ERR_CORRUPT, rks_fetch_reply_record(reply, 64, 1, 0, &view, &err));
}

static void records_are_placed_so_that_payloads_are_aligned(void **state)
{
    (void)state;
    static const uint8_t bytes[64];
    for (size_t end = 0; end < 300; end++) {
        rks_record_view view = {.record = bytes, .payload = bytes + 24, .align = 64};
        size_t place = rks_fetch_record_place(end, &view);
        assert_true(place >= end && place < end + 64 && (place + 24) % 64 == 0);
        view.align = 8;
        place = rks_fetch_record_place(end, &view);
        assert_true(place >= end && place < end + 8 && place % 8 == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_has_its_golden_bytes),
        cmocka_unit_test(request_is_read_as_it_was_written),
        cmocka_unit_test(request_that_is_cut_or_longer_is_refused),
        cmocka_unit_test(request_with_any_changed_count_is_refused),
        cmocka_unit_test(reply_places_must_ascend_and_lie_inside),
        cmocka_unit_test(reply_has_one_flag),
        cmocka_unit_test(reply_serves_at_least_one_and_at_most_what_was_asked),
        cmocka_unit_test(reply_record_that_is_cut_is_refused),
        cmocka_unit_test(records_are_placed_so_that_payloads_are_aligned),
    };
    return cmocka_run_group_tests_name("fetch_wire", tests, NULL, NULL);
}
