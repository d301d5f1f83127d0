/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_absent.c: samples that are not there (a partial store) are in no batch. */
#include "plans.h"

enum { COUNT = 997 };

static uint32_t lengths[COUNT];
static uint64_t absent;

/* Runs of absent samples, at both ends too. */
static void fill_lengths(void)
{
    for (uint32_t i = 0; i < COUNT; i++) {
        bool there = i >= 20 && i < COUNT - 5 && i / 50 % 4 != 2;
        lengths[i] = there ? i * 37 % 200 : RKS_LENGTH_ABSENT;
        absent += !there;
    }
}

static void count_rest(rks_plan *plan, uint64_t epoch, uint64_t from, uint32_t *seen)
{
    uint64_t steps = 0;
    assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
    for (uint64_t step = from; step < steps; step++)
        for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++) {
            const uint32_t *ids = NULL;
            size_t count = 0;
            assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
            assert_true(count > 0);
            for (size_t i = 0; i < count; i++)
                seen[ids[i]]++;
        }
}

static void each_sample_that_is_there_comes_once(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    static const char *const too_longs[] = {"error", "drop", "alone", "truncate"};
    for (size_t i = 0; i < 4 * 4 * 3; i++) {
        rks_plan_options options;
        rks_plan *plan = NULL;
        rks_plan_report report = {.struct_size = sizeof(report)};
        uint32_t seen[COUNT] = {0};
        uint64_t too_long = 0;
        rks_plan_options_default(&options);
        options.strategy = strategies[i % 4];
        options.too_long = too_longs[i / 4 % 4];
        options.world = 3;
        options.max_tokens = i / 16 == 1 ? 1000 : 0;
        options.max_length = i / 16 == 2 && i / 4 % 4 != 0 ? 150 : 0;
        options.steps = i % 4 == 2 && i / 16 == 1 ? "per_epoch" : "constant";
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
        count_rest(plan, 1, 0, seen);
        for (uint32_t id = 0; id < COUNT; id++) {
            bool dropped = options.max_length != 0 && lengths[id] != RKS_LENGTH_ABSENT &&
                           lengths[id] > 150 && strcmp(options.too_long, "drop") == 0;
            too_long += dropped;
            assert_int_equal(seen[id], lengths[id] != RKS_LENGTH_ABSENT && !dropped);
        }
        assert_ok(rks_plan_report_get(plan, 1, &report, &err), &err);
        assert_int_equal(report.dropped, absent + too_long);
        assert_int_equal(report.samples, COUNT - absent - too_long);
        rks_plan_free(plan);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void what_is_left_of_an_epoch_leaves_them_out_too(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    for (size_t i = 0; i < 4; i++) {
        rks_plan_options options;
        rks_plan *first = NULL, *second = NULL;
        uint32_t seen[COUNT] = {0};
        char text[RKS_STATE_MAX];
        uint64_t epoch = 0, step = 0;
        rks_plan_options_default(&options);
        options.strategy = strategies[i];
        options.batch_size = 10;
        options.world = 4;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &first, &err), &err);
        options.world = 3;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &second, &err), &err);
        assert_ok(rks_plan_state(first, 2, 5, text, sizeof(text), &err), &err);
        assert_ok(rks_plan_resume(second, text, &epoch, &step, &err), &err);
        for (uint64_t at = 0; at < 5; at++)
            for (uint32_t rank = 0; rank < 4; rank++) {
                const uint32_t *ids = NULL;
                size_t count = 0;
                assert_ok(rks_plan_batch(first, 2, at, rank, &ids, &count, &err), &err);
                for (size_t k = 0; k < count; k++)
                    seen[ids[k]]++;
            }
        count_rest(second, epoch, step, seen);
        for (uint32_t id = 0; id < COUNT; id++)
            assert_int_equal(seen[id], lengths[id] != RKS_LENGTH_ABSENT);
        rks_plan_free(first);
        rks_plan_free(second);
    }
}

static void a_plan_over_nothing_that_is_there_is_refused(void **state)
{
    (void)state;
    static const uint32_t none[3] = {RKS_LENGTH_ABSENT, RKS_LENGTH_ABSENT, RKS_LENGTH_ABSENT};
    rks_plan *plan = NULL;
    assert_fails(RKS_ERR_DATA, rks_plan_create(none, 3, NULL, NULL, &plan, &err));
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_that_is_there_comes_once),
        cmocka_unit_test(what_is_left_of_an_epoch_leaves_them_out_too),
        cmocka_unit_test(a_plan_over_nothing_that_is_there_is_refused),
    };
    fill_lengths();
    return cmocka_run_group_tests_name("plan absent", tests, NULL, NULL);
}
