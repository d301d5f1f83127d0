/* SPDX-License-Identifier: Apache-2.0
 *
 * What another rank reports of its parts may be any bytes: they are taken as what they are, or
 * refused. */
#include <stdlib.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "builder/reported_parts.h"
#include "dataset/dataset_json.h"
#include "support/check.h"
#include "support/seed.h"

static rks_error err;

enum { UNITS = 3 };

static void report_part(rks_buffer *report, const char *name)
{
    rks_dataset_shard shard = {.samples = UNITS * 10, .bytes = UNITS * 100};
    uint8_t number[8];
    memset(shard.name, 'x', sizeof(shard.name)); /* without an end, unless the name brings one */
    memcpy(shard.name, name,
           strlen(name) < sizeof(shard.name) ? strlen(name) + 1 : sizeof(shard.name));
    assert_ok(rks_buffer_add(report, &shard, sizeof(shard), &err), &err);
    rks_store_u64(number, UNITS);
    assert_ok(rks_buffer_add(report, number, 8, &err), &err);
    for (uint64_t i = 0; i < UNITS; i++) {
        rks_unit_summary unit = {.unit = i, .samples = 10, .bytes = 100};
        assert_ok(rks_buffer_add(report, &unit, sizeof(unit), &err), &err);
        rks_store_u32(number, 5);
        assert_ok(rks_buffer_add(report, number, 4, &err), &err);
        assert_ok(rks_buffer_add(report, "a.txt", 5, &err), &err);
    }
}

static rks_status take(const uint8_t *bytes, size_t size, rks_dataset **dataset)
{
    *dataset = rks_alloc(1, sizeof(**dataset), &err);
    (*dataset)->derived_keys = true;
    return rks_reported_parts_take(*dataset, bytes, size, &err);
}

/* From memory of its own, so that a byte read after it is found under AddressSanitizer. */
static rks_status take_copy(const uint8_t *bytes, size_t size, rks_dataset **dataset)
{
    uint8_t *copy = malloc(size);
    memcpy(copy, bytes, size);
    rks_status status = take(copy, size, dataset);
    free(copy);
    return status;
}

static void parts_are_taken_as_they_are_reported(void **state)
{
    (void)state;
    rks_buffer report = {0};
    rks_dataset *dataset = NULL;
    report_part(&report, "part-1");
    report_part(&report, "part-2");
    assert_ok(take_copy(report.data, report.size, &dataset), &err);
    assert_int_equal(dataset->shard_count, 2);
    assert_int_equal(dataset->unit_count, 2 * UNITS);
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        assert_int_equal(unit->shard, i / UNITS);
        assert_int_equal(unit->first_row, i % UNITS * 10);
        assert_string_equal(unit->key_name, "a.txt");
    }
    assert_string_equal(dataset->shards[1].name, "part-2");
    rks_dataset_free(dataset);
    rks_buffer_free(&report);
}

static void a_part_must_have_the_name_of_a_file(void **state)
{
    (void)state;
    char endless[200];
    memset(endless, 'x', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    const char *const names[] = {endless, "", "..", "../part-1", "a/b", "a\nb", "\xff"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        rks_buffer report = {0};
        rks_dataset *dataset = NULL;
        report_part(&report, names[i]);
        assert_fails(RKS_ERR_PEER, take_copy(report.data, report.size, &dataset));
        assert_contains(err.text, "without a good name");
        rks_dataset_free(dataset);
        rks_buffer_free(&report);
    }
}

static void what_is_cut_short_is_refused(void **state)
{
    (void)state;
    rks_buffer report = {0};
    report_part(&report, "part-1");
    size_t part = report.size;
    report_part(&report, "part-2");
    for (size_t size = 1; size < report.size; size++) {
        rks_dataset *dataset = NULL;
        rks_status status = take_copy(report.data, size, &dataset);
        assert_int_equal(status, size == part ? RKS_OK : RKS_ERR_PEER);
        rks_dataset_free(dataset);
    }
    rks_buffer_free(&report);
}

static void any_bytes_are_taken_or_refused(void **state)
{
    (void)state;
    rks_buffer report = {0};
    int refused = 0, turns = 3000;
    report_part(&report, "part-1");
    report_part(&report, "part-2");
    srand((unsigned)test_seed(1));
    for (int turn = 0; turn < turns; turn++) {
        rks_dataset *dataset = NULL;
        uint8_t *bytes = malloc(report.size);
        memcpy(bytes, report.data, report.size);
        for (int i = 0; i < 3; i++)
            bytes[(size_t)rand() % report.size] = (uint8_t)(rand() % 2 == 0 ? 0xff : rand());
        rks_status status = take_copy(bytes, report.size, &dataset);
        assert_true(status == RKS_OK || status == RKS_ERR_PEER);
        for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++)
            assert_true(rks_dataset_name_good(dataset->shards[i].name));
        refused += status != RKS_OK;
        rks_dataset_free(dataset);
        free(bytes);
    }
    assert_true(refused > 0 && refused < turns);
    rks_buffer_free(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_taken_as_they_are_reported),
        cmocka_unit_test(a_part_must_have_the_name_of_a_file),
        cmocka_unit_test(what_is_cut_short_is_refused),
        cmocka_unit_test(any_bytes_are_taken_or_refused),
    };
    int failed = cmocka_run_group_tests_name("reported parts", tests, NULL, NULL);
    if (rks_memory_in_use() != 0) {
        print_error("%ld allocations are left\n", rks_memory_in_use());
        failed++;
    }
    return failed;
}
