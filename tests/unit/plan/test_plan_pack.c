/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_pack.c: strategy pack over lengths as they occur: fill, balance, tails, wrong options,
 * failing allocations, and the digests that pin its bits. */
#include "plans.h"

static uint32_t many[60000];

/* A tenth long, the others short: sums of dice, so that no machine rounds them. */
static void fill_many(void)
{
    rks_random random = {17};
    for (size_t i = 0; i < 60000; i++)
        many[i] = below(&random, 10) == 0
                      ? 1000 + below(&random, 3000)
                      : 20 + below(&random, 300) + below(&random, 300) + below(&random, 300);
}

static rks_plan *plan_many(rks_plan_options *options)
{
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(many, 60000, NULL, options, &plan, &err), &err);
    return plan;
}

static void bins_are_full_and_steps_balanced(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.world = 8;
    options.cost = "polynomial";
    options.cost_linear = 1;
    options.cost_quadratic = 1.0 / 49152;
    rks_plan *plan = plan_many(&options);
    rks_plan_report report = report_of(plan, 1);
    assert_true(report.fill > 0.998);
    assert_true(report.balance > 0.999);
    assert_true(report.token_balance > 0.99);
    rks_plan_free(plan);

    options.micro_batches = 8;
    options.mixed = true;
    plan = plan_many(&options);
    report = report_of(plan, 1);
    assert_true(report.balance > 0.99);
    assert_true(report.lost < 0.02);
    rks_plan_free(plan);
}

/* Of the samples that share a bin with sample `id` in two epochs, how many are the same. */
static void mates_of(rks_plan *plan, uint64_t epoch, uint32_t id, bool *mates)
{
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
    for (uint64_t slot = 0; slot < steps * 8; slot++) {
        const uint32_t *ids;
        size_t count, mine = 0;
        assert_ok(rks_plan_batch(plan, epoch, slot / 8, slot % 8, &ids, &count, &err), &err);
        while (mine < count && ids[mine] != id)
            mine++;
        for (size_t i = 0; mine < count && i < count; i++)
            mates[ids[i]] = true;
    }
}

static void bins_differ_between_epochs(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.world = 8;
    rks_plan *plan = plan_many(&options);
    bool *mates = calloc(60000, sizeof(*mates));
    assert_non_null(mates);
    size_t met = 0;
    for (uint64_t epoch = 0; epoch < 10; epoch++)
        mates_of(plan, epoch, 4321, mates);
    for (size_t i = 0; i < 60000; i++)
        met += mates[i];
    assert_true(met > 60);
    free(mates);
    rks_plan_free(plan);
}

/* Lengths of their own, so only windows can bring others together. */
static void windows_bring_other_samples_together(void **state)
{
    (void)state;
    static uint32_t lengths[4000];
    for (uint32_t i = 0; i < 4000; i++)
        lengths[i] = 100 + i;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.world = 8;
    size_t met[2] = {0};
    double fill[2];
    for (int windows = 0; windows < 2; windows++) {
        options.pack_window = windows == 0 ? 0 : 64;
        bool mates[4000] = {false};
        rks_plan *plan = NULL;
        assert_ok(rks_plan_create(lengths, 4000, NULL, &options, &plan, &err), &err);
        for (uint64_t epoch = 0; epoch < 10; epoch++)
            mates_of(plan, epoch, 2345, mates);
        for (size_t i = 0; i < 4000; i++)
            met[windows] += mates[i];
        fill[windows] = report_of(plan, 3).fill;
        rks_plan_free(plan);
    }
    assert_true(met[0] < 10); /* itself, and the same ones each time */
    assert_true(met[1] > 20);
    assert_true(fill[1] > fill[0] - 0.02);
}

static void windows_fill_bins_and_balance_steps(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.world = 8;
    options.pack_window = 128;
    options.cost = "polynomial";
    options.cost_linear = 1;
    options.cost_quadratic = 1.0 / 49152;
    rks_plan *plan = plan_many(&options);
    uint64_t steps = report_of(plan, 0).steps;
    for (uint64_t epoch = 0; epoch < 30; epoch++) {
        rks_plan_report report = report_of(plan, epoch);
        assert_int_equal(report.steps, steps);
        assert_int_equal(report.samples, 60000);
        assert_true(report.fill > 0.996);
        assert_true(report.balance > 0.998);
    }
    rks_plan_free(plan);
}

/* What a sample costs has nothing to do with its length. */
static void steps_are_balanced_by_costs_of_samples(void **state)
{
    (void)state;
    static uint32_t costs[60000];
    rks_random random = {23};
    for (size_t i = 0; i < 60000; i++)
        costs[i] = below(&random, 4) == 0 ? 100 + below(&random, 900) : below(&random, 20);
    for (int i = 0; i < 4; i++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = i == 3 ? "bucket" : "pack";
        options.max_tokens = i == 3 ? 16384 : 0;
        options.capacity = i == 3 ? 0 : 8192;
        options.micro_batches = i == 1 || i == 2 ? 4 : 1;
        options.mixed = i == 2;
        options.world = 8;
        rks_plan *plan = plan_many(&options);
        options.balance = costs;
        rks_plan *balanced = plan_many(&options);
        rks_plan_report report = report_of(balanced, 1);
        assert_int_equal(report.samples, 60000);
        assert_true(report.balance > (i == 2 ? 0.95 : i == 3 ? 0.98 : 0.99));
        assert_true(report.fill == report_of(plan, 1).fill);
        char text[RKS_STATE_MAX];
        uint64_t epoch, step;
        assert_ok(rks_plan_state(balanced, 1, 4, text, sizeof(text), &err), &err);
        assert_ok(rks_plan_resume(balanced, text, &epoch, &step, &err), &err);
        assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, text, &epoch, &step, &err));
        assert_contains(err.text, "options differ: balance is ");
        rks_plan_free(plan);
        costs[77]++;
        plan = plan_many(&options);
        assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, text, &epoch, &step, &err));
        rks_plan_free(plan);
        rks_plan_free(balanced);
    }
}

static void the_last_step_splits_repeats_or_drops(void **state)
{
    (void)state;
    static uint32_t lengths[40]; /* four a bin: ten bins for four ranks */
    for (size_t i = 0; i < 40; i++)
        lengths[i] = 25;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 100;
    options.world = 4;
    const uint32_t *ids;
    size_t last[4], total = 0;
    rks_plan *plan = NULL;
    options.no_shuffle = true;
    assert_ok(rks_plan_create(lengths, 40, NULL, &options, &plan, &err), &err);
    rks_plan_report report = report_of(plan, 0);
    assert_int_equal(report.steps, 3);
    assert_int_equal(report.bins, 12); /* two bins were split in two */
    for (uint64_t step = 0; step < 3; step++) {
        size_t samples = 0;
        for (uint32_t rank = 0; rank < 4; rank++) {
            assert_ok(rks_plan_batch(plan, 0, step, rank, &ids, &last[rank], &err), &err);
            samples += last[rank];
        }
        assert_true(samples == 16 || samples == 8);
        for (uint32_t rank = 0; rank < 4 && samples == 8; rank++)
            assert_int_equal(last[rank], 2);
        total += samples;
    }
    assert_int_equal(total, 40);
    rks_plan_free(plan);

    options.tail = "repeat";
    assert_ok(rks_plan_create(lengths, 40, NULL, &options, &plan, &err), &err);
    report = report_of(plan, 0);
    assert_true(report.bins == 12 && report.repeated == 8 && report.steps == 3);
    rks_plan_free(plan);
    options.tail = "drop";
    assert_ok(rks_plan_create(lengths, 40, NULL, &options, &plan, &err), &err);
    report = report_of(plan, 0);
    assert_true(report.bins == 8 && report.dropped == 8 && report.steps == 2);
    rks_plan_free(plan);
}

static void refused(const rks_plan_options *options, rks_status expected, const char *text)
{
    rks_plan *plan = NULL;
    assert_fails(expected, rks_plan_create(many, 1000, NULL, options, &plan, &err));
    assert_null(plan);
    assert_contains(err.text, text);
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    rks_plan_options normal, options;
    rks_plan_options_default(&normal);
    normal.strategy = "pack";
    refused(&normal, RKS_ERR_ARGUMENT, "strategy=pack needs a capacity");
    normal.capacity = 4096;
    options = normal;
    options.max_tokens = 5;
    refused(&options, RKS_ERR_ARGUMENT, "max_tokens cannot be used with strategy=pack");
    options = normal;
    options.batch_multiple = options.batch_size = 2;
    refused(&options, RKS_ERR_ARGUMENT, "batch_multiple cannot be used with strategy=pack");
    options = normal;
    options.too_long = "alone";
    refused(&options, RKS_ERR_ARGUMENT, "too_long=alone cannot be used with strategy=pack");
    options = normal;
    options.length_multiple = 3;
    refused(&options, RKS_ERR_ARGUMENT, "capacity 4096 is not a multiple of length_multiple 3");
    options = normal;
    options.capacity = UINT32_MAX;
    refused(&options, RKS_ERR_ARGUMENT, "capacity 4294967295 is above 16777216");
    options = normal;
    options.micro_batches = 1 << 20;
    refused(&options, RKS_ERR_ARGUMENT, "micro_batches 1048576 is above 65536");
    options = normal;
    options.capacity = 1000;
    refused(&options, RKS_ERR_DATA, "above capacity 1000");
    options = normal;
    options.strategy = "bucket";
    refused(&options, RKS_ERR_ARGUMENT, "capacity needs strategy=pack");
    options.capacity = 0;
    options.pack_window = 128;
    refused(&options, RKS_ERR_ARGUMENT, "pack_window needs strategy=pack");
    options = normal;
    options.cost = "polynomial";
    refused(&options, RKS_ERR_ARGUMENT, "cost: 0 per token and 0 per token squared");
    options.cost_linear = -1;
    refused(&options, RKS_ERR_ARGUMENT, "cost: -1 per token");
    options.cost_linear = 0.0 / 1 + 1e308 * 10;
    refused(&options, RKS_ERR_ARGUMENT, "cost: inf per token");
    options.cost = "tokens";
    refused(&options, RKS_ERR_ARGUMENT, "need cost=polynomial");
    options = normal;
    options.world = 1 << 20;
    options.micro_batches = 1 << 16;
    options.batch_size = 1 << 24;
    options.tail = "repeat";
    refused(&options, RKS_ERR_UNSUPPORTED, "2^32 bins or more");
    rks_plan *plan = NULL;
    const uint32_t *bounds;
    size_t bins;
    assert_ok(rks_plan_create(many, 1000, NULL, NULL, &plan, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_plan_bins(plan, 0, 0, 0, &bounds, &bins, &err));
    rks_plan_free(plan);
}

/* The ratio of the factors is what counts, on every machine. */
static void costs_of_one_ratio_make_one_plan(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.world = 8;
    options.cost = "polynomial";
    options.cost_linear = 3e-9;
    options.cost_quadratic = 1.5e-9;
    char text[RKS_STATE_MAX];
    uint64_t epoch, step;
    rks_plan *one = plan_many(&options);
    options.cost_linear *= 1 << 20;
    options.cost_quadratic *= 1 << 20;
    rks_plan *other = plan_many(&options);
    assert_string_equal(report_of(one, 2).digest, report_of(other, 2).digest);
    assert_ok(rks_plan_state(one, 2, 1, text, sizeof(text), &err), &err);
    assert_ok(rks_plan_resume(other, text, &epoch, &step, &err), &err);
    rks_plan_free(other);
    options.cost_linear *= 2;
    other = plan_many(&options);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(other, text, &epoch, &step, &err));
    assert_contains(err.text, "options differ: cost_quadratic");
    rks_plan_free(one);
    rks_plan_free(other);
}

static void a_polynomial_cost_balances_padded_batches(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.max_tokens = 8192;
    options.world = 8;
    options.cost = "polynomial";
    options.cost_quadratic = 1;
    rks_plan *plan = plan_many(&options);
    rks_plan_report report = report_of(plan, 1);
    assert_true(report.balance > 0.98);
    assert_true(report.token_balance < report.balance);
    assert_true(report.bins == 0 && report.largest_batch <= 8192);
    rks_plan_free(plan);
}

static void a_state_inside_an_optimizer_step_is_refused(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.micro_batches = 4;
    options.world = 2;
    rks_plan *plan = plan_many(&options);
    char text[RKS_STATE_MAX];
    uint64_t epoch = 0, step = 0;
    assert_ok(rks_plan_state(plan, 0, 11, text, sizeof(text), &err), &err);
    assert_ok(rks_plan_resume(plan, text, &epoch, &step, &err), &err);
    assert_int_equal(step, 8);
    char *at = strstr(text, "[[2, 8]]");
    assert_non_null(at);
    at[5] = '9';
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, text, &epoch, &step, &err));
    assert_contains(err.text, "a step within an optimizer step");
    rks_plan_free(plan);
}

/* Digests of epoch 1. Where one changes, plans made before cannot be resumed: raise
 * RKS_PLAN_VERSION with it. */
static void digests_are_those_of_this_version(void **state)
{
    (void)state;
    static const struct {
        const char *tail, *cost;
        uint32_t capacity, batch_size, multiple, micros, mixed, world, window, own;
        const char *digest;
    } golden[] = {
        {"split", "tokens", 8192, 1, 1, 1, 0, 8, 0, 0, "69bd60d43f743d175ce53703da8ce9ca"},
        {"split", "quadratic", 8192, 4, 1, 1, 0, 3, 0, 0, "ed9fcaee936afb6e488553a7895b1a26"},
        {"repeat", "polynomial", 4096, 2, 16, 1, 0, 8, 0, 0, "ced44bfb6ee911f92ab74c86506c98c3"},
        {"drop", "polynomial", 16384, 1, 1, 4, 1, 4, 0, 0, "43fe812a759b68b8a3f21dcf0662dcf4"},
        {"split", "quadratic", 8192, 1, 1, 1, 0, 8, 128, 0, "7c3c507f20e3db7bc264d4ed5a2d99c4"},
        {"repeat", "tokens", 8192, 1, 1, 4, 1, 8, 0, 1, "89335e2c63ab1edbcdaf45f1105fddf8"},
    };
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = "pack";
        options.tail = golden[i].tail;
        options.cost = golden[i].cost;
        if (option_is(options.cost, "polynomial")) {
            options.cost_linear = 1;
            options.cost_quadratic = 1.0 / 49152;
        }
        options.capacity = golden[i].capacity;
        options.batch_size = golden[i].batch_size;
        options.length_multiple = golden[i].multiple;
        options.micro_batches = golden[i].micros;
        options.mixed = golden[i].mixed;
        options.world = golden[i].world;
        options.pack_window = golden[i].window;
        options.balance = golden[i].own ? many : NULL;
        options.seed = 11;
        rks_plan *plan = plan_many(&options);
        assert_string_equal(report_of(plan, 1).digest, golden[i].digest);
        rks_plan_free(plan);
    }
}

static rks_status use_all(const rks_plan_options *options)
{
    rks_plan *a = NULL, *b = NULL;
    rks_plan_options other = *options;
    other.world = 2;
    char text[RKS_STATE_MAX];
    uint64_t epoch, step;
    rks_plan_report report = {.struct_size = sizeof(report)};
    rks_status status = rks_plan_create(many, 3000, NULL, options, &a, &err);
    if (status == RKS_OK)
        status = rks_plan_report_get(a, 1, &report, &err);
    if (status == RKS_OK)
        status = rks_plan_state(a, 1, 4, text, sizeof(text), &err);
    if (status == RKS_OK)
        status = rks_plan_create(many, 3000, NULL, &other, &b, &err);
    if (status == RKS_OK)
        status = rks_plan_resume(b, text, &epoch, &step, &err);
    if (status == RKS_OK)
        status = rks_plan_report_get(b, 1, &report, &err);
    if (status == RKS_OK)
        status = rks_plan_report_get(b, 2, &report, &err);
    rks_plan_free(a);
    rks_plan_free(b);
    return status;
}

static void each_failing_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = "pack";
        options.capacity = 8192;
        options.world = 3;
        options.balance = i == 4 ? many : NULL;
        options.pack_window = i == 3 ? 16 : 0;
        options.micro_batches = i == 0 ? 1 : 2;
        options.mixed = i == 1;
        options.tail = i == 2 ? "repeat" : "split";
        rks_status status = RKS_ERR_MEMORY;
        for (long nth = 1; status != RKS_OK; nth++) {
            assert_true(nth < 1000);
            rks_memory_fail_at(nth);
            status = use_all(&options);
            rks_memory_fail_at(0);
            assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
            assert_int_equal(rks_memory_in_use(), 0);
            assert_int_equal(counted_memory(), 0);
        }
    }
}

/* Each sample lies in one bin, and no bin is above the capacity. */
static void check_bins_of(const uint32_t *lengths, uint64_t count, uint32_t capacity)
{
    rks_plan_options options;
    rks_plan *plan;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = capacity;
    options.world = 2;
    uint8_t *seen = calloc(count, 1);
    uint64_t all = 0;
    assert_ok(rks_plan_create(lengths, count, NULL, &options, &plan, &err), &err);
    for (uint64_t slot = 0; slot < 2 * steps_of(plan, 1); slot++) {
        const uint32_t *ids;
        size_t samples;
        uint64_t sum = 0;
        assert_ok(rks_plan_batch(plan, 1, slot / 2, slot % 2, &ids, &samples, &err), &err);
        for (size_t i = 0; i < samples; i++) {
            assert_int_equal(seen[ids[i]]++, 0);
            sum += lengths[ids[i]];
        }
        assert_in_range(sum, 1, capacity);
        all += samples;
    }
    assert_int_equal(all, count);
    rks_plan_free(plan);
    free(seen);
}

/* runs, bins and samples of a bin above 2^16, and runs that are far apart in a bin */
static void counts_may_be_large(void **state)
{
    enum { COUNT = 200000 };
    (void)state;
    uint32_t *lengths = malloc(COUNT * sizeof(*lengths));
    for (uint32_t i = 0; i < COUNT; i++)
        lengths[i] = 1;
    check_bins_of(lengths, COUNT, 2);
    check_bins_of(lengths, COUNT, 100000);
    check_bins_of(lengths, COUNT, 70001);
    for (uint32_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + i % 20000;
    check_bins_of(lengths, COUNT, 20001);
    lengths[7] = 60000;
    check_bins_of(lengths, COUNT, 60000);
    free(lengths);
}

/* 20,000 samples of which hardly two bins are alike */
static void a_small_plan_takes_12_bytes_a_sample(void **state)
{
    enum { COUNT = 20000 };
    static uint32_t lengths[COUNT];
    (void)state;
    rks_random random = {23};
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t power = below(&random, 7);
        lengths[i] = ((32 + below(&random, 32)) << power) + below(&random, 1u << power);
    }
    rks_plan_options options;
    rks_plan *plan;
    const uint32_t *ids;
    size_t count;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 8192;
    options.world = 8;
    uint64_t before = counted_memory();
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
    assert_ok(rks_plan_batch(plan, 1, 0, 0, &ids, &count, &err), &err);
    assert_in_range(counted_memory() - before, 8 * COUNT, 12 * COUNT);
    rks_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_those_of_this_version),
        cmocka_unit_test(bins_are_full_and_steps_balanced),
        cmocka_unit_test(bins_differ_between_epochs),
        cmocka_unit_test(windows_bring_other_samples_together),
        cmocka_unit_test(windows_fill_bins_and_balance_steps),
        cmocka_unit_test(steps_are_balanced_by_costs_of_samples),
        cmocka_unit_test(the_last_step_splits_repeats_or_drops),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(costs_of_one_ratio_make_one_plan),
        cmocka_unit_test(a_polynomial_cost_balances_padded_batches),
        cmocka_unit_test(a_state_inside_an_optimizer_step_is_refused),
        cmocka_unit_test(counts_may_be_large),
        cmocka_unit_test(a_small_plan_takes_12_bytes_a_sample),
        cmocka_unit_test(each_failing_allocation_is_an_error_and_leaks_nothing),
    };
    fill_many();
    return cmocka_run_group_tests_name("plan pack", tests, NULL, NULL);
}
