/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_limits.c: what bounds the batches of a plan, told from its options. */
#include "plans.h"

static rks_plan_options defaults(void)
{
    rks_plan_options options;
    rks_plan_options_default(&options);
    return options;
}

static void limits_follow_from_the_options(void **state)
{
    (void)state;
    static const struct {
        const char *strategy, *cost, *too_long;
        uint32_t batch_size, max_length, capacity, length_multiple;
        uint64_t max_tokens;
        rks_plan_limits expected;
    } cases[] = {
        {NULL, NULL, NULL, 0, 0, 0, 1, 0, {.length_multiple = 1}},
        {NULL, NULL, NULL, 8, 0, 0, 0, 0, {.length_multiple = 8}},
        {NULL, NULL, NULL, 0, 0, 0, 0, 100, {.budget = 100, .length_multiple = 4, .longest = 100}},
        {NULL, NULL, NULL, 0, 0, 0, 8, 100, {.budget = 100, .length_multiple = 8, .longest = 96}},
        {NULL,
         NULL,
         "drop",
         0,
         50,
         0,
         8,
         100,
         {.budget = 100, .length_multiple = 8, .longest = 50}},
        {"random",
         "tokens",
         "truncate",
         0,
         0,
         0,
         0,
         77,
         {.budget = 77, .sums = true, .length_multiple = 1, .cut = 77}},
        {"random", "tokens", "truncate", 5, 9, 0, 0, 0, {.length_multiple = 1, .cut = 9}},
        {"sorted", NULL, "alone", 0, 9, 0, 1, 64, {.budget = 64, .length_multiple = 1}},
        {"sorted",
         "quadratic",
         "split",
         0,
         9,
         0,
         1,
         64,
         {.budget = 64, .length_multiple = 1, .longest = 9, .piece = 9}},
        {"pack",
         NULL,
         NULL,
         0,
         0,
         32,
         0,
         0,
         {.budget = 32, .sums = true, .length_multiple = 1, .longest = 32, .row = 32}},
        {"pack",
         NULL,
         "truncate",
         1 << 24,
         20,
         1 << 24,
         8,
         0,
         {.budget = UINT64_C(1) << 48,
          .sums = true,
          .length_multiple = 8,
          .cut = 20,
          .row = 1 << 24}},
        {"bucket",
         NULL,
         NULL,
         0,
         0,
         0,
         1,
         UINT64_C(1) << 40,
         {.budget = UINT64_C(1) << 40, .length_multiple = 1}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_plan_options options = defaults();
        rks_plan_limits expected = cases[i].expected, found;
        options.strategy = cases[i].strategy;
        options.cost = cases[i].cost;
        options.too_long = cases[i].too_long;
        options.batch_size = cases[i].batch_size;
        options.max_length = cases[i].max_length;
        options.capacity = cases[i].capacity;
        options.length_multiple = cases[i].length_multiple;
        options.max_tokens = cases[i].max_tokens;
        found.struct_size = sizeof(found);
        assert_ok(rks_plan_limits_get(&options, &found, &err), &err);
        assert_int_equal(found.budget, expected.budget);
        assert_int_equal(found.sums, expected.sums);
        assert_int_equal(found.length_multiple, expected.length_multiple);
        assert_int_equal(found.cut, expected.cut);
        assert_int_equal(found.longest, expected.longest);
        assert_int_equal(found.piece, expected.piece);
        assert_int_equal(found.row, expected.row);
    }
}

/* The largest batch of a plan keeps to its budget, and its report knows the same multiple and
 * cut. */
static void a_plan_keeps_to_its_limits(void **state)
{
    (void)state;
    static const char *const too_longs[] = {"drop", "truncate", "split"};
    static uint32_t lengths[4000];
    for (size_t i = 0; i < 4000; i++)
        lengths[i] = (uint32_t)(i * 7919 % 900);
    for (size_t i = 0; i < 6; i++) {
        rks_plan_options options = defaults();
        rks_plan_limits limits = {.struct_size = sizeof(limits)};
        rks_plan_report report = {.struct_size = sizeof(report)};
        rks_plan *plan = NULL;
        options.length_multiple = 0;
        options.too_long = too_longs[i % 3];
        options.strategy = i < 3 ? "bucket" : "pack";
        options.max_tokens = i < 3 ? 1000 : 0;
        options.capacity = i < 3 ? 0 : 500;
        options.batch_size = i < 3 ? 0 : 3;
        options.max_length = 300;
        assert_ok(rks_plan_limits_get(&options, &limits, &err), &err);
        assert_ok(rks_plan_create(lengths, 4000, NULL, &options, &plan, &err), &err);
        assert_ok(rks_plan_report_get(plan, 0, &report, &err), &err);
        assert_true(limits.budget > 0 && report.largest_batch <= limits.budget);
        assert_int_equal(report.length_multiple, limits.length_multiple);
        assert_int_equal(report.cut, limits.cut);
        assert_int_equal(limits.cut + limits.longest, 300);
        rks_plan_free(plan);
    }
}

static void limits_of_wrong_options_are_refused(void **state)
{
    (void)state;
    rks_plan_options options = defaults();
    rks_plan_limits limits = {.struct_size = sizeof(limits)}, before = limits;
    options.strategy = "buckets";
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_limits_get(&options, &limits, &err));
    assert_contains(err.text, "did you mean \"bucket\"?");
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_limits_get(NULL, NULL, &err));
    assert_memory_equal(&limits, &before, sizeof(limits));
    limits.struct_size = 4;
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_limits_get(NULL, &limits, &err));
    memset(&limits, 0xa5, sizeof(limits));
    limits.struct_size = offsetof(rks_plan_limits, row);
    assert_ok(rks_plan_limits_get(NULL, &limits, &err), &err);
    assert_int_equal(limits.length_multiple, 1);
    assert_int_equal(limits.row, 0xa5a5a5a5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_follow_from_the_options),
        cmocka_unit_test(a_plan_keeps_to_its_limits),
        cmocka_unit_test(limits_of_wrong_options_are_refused),
    };
    return cmocka_run_group_tests_name("plan_limits", tests, NULL, NULL);
}
