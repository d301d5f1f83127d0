/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_fill.c: random batches that are filled up to a budget, in one number of steps for all
 * epochs; and neighbourhoods of batch_size alone, which cost little padding. */
#include "plans.h"

static rks_plan *plan_for(const uint32_t *lengths, uint64_t count, const rks_plan_options *options)
{
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, count, NULL, options, &plan, &err), &err);
    return plan;
}

/* 20,000 texts of 1 to 300 tokens, one of 16,134. */
static uint32_t *texts(void)
{
    static uint32_t lengths[20000];
    rks_random random = {7};
    for (size_t i = 0; i < 20000; i++)
        lengths[i] = 1 + below(&random, 1u << (1 + below(&random, 8)));
    lengths[777] = 16134;
    return lengths;
}

static void one_long_sample_leaves_other_batches_full(void **state)
{
    (void)state;
    static const char *const costs[] = {"padded", "tokens", "quadratic"};
    for (size_t i = 0; i < 3; i++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = "random";
        options.cost = costs[i];
        options.max_tokens = 16384;
        options.world = 4;
        rks_plan *plan = plan_for(texts(), 20000, &options), *drops;
        uint64_t steps;
        assert_ok(rks_plan_steps(plan, 0, &steps, &err), &err);
        for (uint64_t epoch = 0; epoch < 12; epoch++) {
            rks_plan_report report = report_of(plan, epoch);
            assert_int_equal(report.steps, steps);
            assert_int_equal(report.samples, 20000);
            assert_true(report.largest_batch <= options.max_tokens);
            double mean = (double)report.padded_tokens / (double)report.batches;
            assert_true(mean > 0.85 * (double)options.max_tokens);
            assert_true(report.median_batch > options.max_tokens * 9 / 10);
        }
        options.tail = "drop";
        drops = plan_for(texts(), 20000, &options);
        for (uint64_t epoch = 0; epoch < 12; epoch++) {
            rks_plan_report report = report_of(drops, epoch);
            assert_true(report.steps <= steps && report.steps + 3 >= steps);
            assert_true(report.dropped < 1000);
        }
        rks_plan_free(drops);
        rks_plan_free(plan);
    }
}

/* The count is fixed, whatever an epoch's order would need. */
static void every_epoch_has_the_same_steps(void **state)
{
    (void)state;
    static const char *const tails[] = {"split", "repeat", "drop"};
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 60; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 40 + below(&random, 600);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = "random";
        options.too_long = ONE_OF(&random, ((const char *[]){"drop", "alone", "truncate"}));
        options.tail = ONE_OF(&random, tails);
        options.cost = below(&random, 2) == 0 ? "padded" : "tokens";
        options.max_tokens = 16 + below(&random, 4000);
        options.batch_multiple = 1 + below(&random, 3);
        options.length_multiple = 1 + below(&random, 8);
        options.world = 1 + below(&random, 5);
        options.seed = rks_random_next(&random);
        rks_expected expected = expect_of(lengths, count, &options);
        rks_plan *plan = NULL;
        if (rks_plan_create(lengths, count, NULL, &options, &plan, &err) == RKS_OK) {
            uint64_t steps;
            uint32_t *seen = calloc(count, sizeof(*seen));
            assert_non_null(seen);
            assert_ok(rks_plan_steps(plan, 0, &steps, &err), &err);
            for (uint64_t epoch = 0; epoch < 30; epoch++) {
                assert_int_equal(report_of(plan, epoch).steps, steps);
                check_steps(plan, &expected, epoch, 0, steps, seen);
            }
            if (strcmp(options.tail, "split") == 0)
                for (uint64_t i = 0; i < count; i++)
                    assert_true(seen[i] == 30 || seen[i] == 0);
            free(seen);
            rks_plan_free(plan);
        }
        free(lengths);
    }
}

static int longest_first(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left > right ? -1 : left < right;
}

/* Tokens / padded tokens of batches cut from the sorted lengths. */
static double sort_and_cut(const uint32_t *lengths, size_t count, size_t batch_size)
{
    uint64_t tokens = 0, padded = 0;
    uint32_t *sorted = malloc(count * sizeof(*sorted));
    assert_non_null(sorted);
    memcpy(sorted, lengths, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), longest_first);
    for (size_t i = 0; i < count; i++) {
        size_t size = count - i / batch_size * batch_size;
        size = size < batch_size ? size : batch_size;
        tokens += sorted[i];
        padded += i % batch_size == 0 ? sorted[i] * size : 0;
    }
    free(sorted);
    return (double)tokens / (double)padded;
}

static void bucket_is_nearly_as_even_as_sort_and_cut(void **state)
{
    (void)state;
    static const size_t counts[] = {1000, 3000, 10000, 100000};
    static const uint32_t sizes[] = {16, 32, 64};
    for (size_t i = 0; i < 4; i++) {
        uint32_t *lengths = calloc(counts[i], sizeof(*lengths));
        assert_non_null(lengths);
        rks_random random = {i};
        for (size_t j = 0; j < counts[i]; j++) /* clips of 1 to 16 s, most of them in the middle */
            lengths[j] = 100 + below(&random, 500) + below(&random, 500) + below(&random, 500);
        for (size_t j = 0; j < 3; j++) {
            rks_plan_options options;
            rks_plan_options_default(&options);
            options.batch_size = sizes[j];
            options.world = 2;
            rks_plan *plan = plan_for(lengths, counts[i], &options);
            rks_plan_report first = report_of(plan, 0), second = report_of(plan, 1);
            double best = sort_and_cut(lengths, counts[i], sizes[j]);
            assert_true(first.efficiency >= best - 0.005 && second.efficiency >= best - 0.005);
            assert_string_not_equal(first.digest, second.digest);
            rks_plan_free(plan);
        }
        free(lengths);
    }
}

static void assert_same_epoch(rks_plan *plan, rks_plan *other)
{
    uint64_t steps = 0;
    assert_ok(rks_plan_steps(plan, 1, &steps, &err), &err);
    for (uint64_t slot = 0; slot < steps * rks_plan_world(plan); slot++) {
        uint64_t step = slot / rks_plan_world(plan);
        uint32_t rank = (uint32_t)(slot % rks_plan_world(plan));
        const uint32_t *ids, *same;
        size_t count, of_same;
        assert_ok(rks_plan_batch(plan, 1, step, rank, &ids, &count, &err), &err);
        assert_ok(rks_plan_batch(other, 1, step, rank, &same, &of_same, &err), &err);
        assert_int_equal(count, of_same);
        assert_memory_equal(ids, same, count * sizeof(*ids));
    }
}

/* Random batches are put in order by cost, through a copy of lengths in 16 bits where these fit:
 * lengths that are 64 times as long, and do not, make the same order of near batches. */
static void long_lengths_make_the_same_order(void **state)
{
    (void)state;
    enum { COUNT = 30000, TIMES = 64 };
    static const char *const costs[] = {"padded", "tokens", "quadratic"};
    static const uint64_t bounds[] = {0, COUNT};
    static uint32_t lengths[COUNT], longer[COUNT];
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = 1;
    mix.bounds = bounds;
    for (size_t i = 0; i < 3; i++) {
        rks_random random = {i};
        for (size_t j = 0; j < COUNT; j++) {
            lengths[j] = 8 * (16 + below(&random, 1u << (5 + below(&random, 6)))); /* as padded */
            longer[j] = TIMES * lengths[j];
        }
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = "random";
        options.cost = costs[i];
        options.batch_size = 16;
        options.world = 4;
        options.mix = &mix;
        rks_plan *plan = plan_for(lengths, COUNT, &options);
        rks_plan *other = plan_for(longer, COUNT, &options);
        assert_same_epoch(plan, other);
        rks_plan_free(plan);
        rks_plan_free(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_long_sample_leaves_other_batches_full),
        cmocka_unit_test(every_epoch_has_the_same_steps),
        cmocka_unit_test(bucket_is_nearly_as_even_as_sort_and_cut),
        cmocka_unit_test(long_lengths_make_the_same_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
