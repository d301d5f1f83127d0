/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_weights.c: weights of samples, weights that count tokens, and mixes that are refused.
 */
#include "plans.h"

#include <float.h>
#include <math.h>

static const char *const NAMES[] = {"web", "code", "math"};

static void samples_have_counts_or_odds(void **state)
{
    (void)state;
    enum { COUNT = 300, EPOCHS = 400 };
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    uint64_t bounds[] = {0, COUNT};
    uint32_t lengths[COUNT], counts[COUNT], seen[COUNT];
    double odds[COUNT], sum = 0, all[COUNT] = {0};
    rks_random random = {test_seed(0)};
    for (size_t i = 0; i < COUNT; i++) {
        lengths[i] = 1 + below(&random, 90);
        counts[i] = below(&random, 5);
        odds[i] = below(&random, 4) == 0 ? 0 : below(&random, 1000) / 7.0;
        sum += odds[i];
    }
    for (size_t round = 0; round < 4; round++) {
        rks_plan_mix mix;
        rks_plan_mix_default(&mix);
        mix.sources = 1;
        mix.bounds = bounds;
        mix.counts = counts;
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = strategies[round];
        options.world = 3;
        options.batch_size = 5;
        options.seed = rks_random_next(&random);
        options.mix = &mix;
        rks_expected expected = expect_of(lengths, COUNT, &options);
        rks_plan *plan = NULL;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
        memset(seen, 0, sizeof(seen));
        check_steps(plan, &expected, 1, 0, steps_of(plan, 1), seen);
        assert_memory_equal(seen, counts, sizeof(counts));
        rks_plan_free(plan);

        mix.counts = NULL;
        mix.odds = odds;
        mix.samples = 700;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
        for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
            uint64_t draws = 0;
            memset(seen, 0, sizeof(seen));
            check_steps(plan, &expected, epoch, 0, steps_of(plan, epoch), seen);
            for (size_t i = 0; i < COUNT; i++) {
                double times = 700 * odds[i] / sum;
                assert_true(seen[i] >= floor(times - 1e-5) && seen[i] <= ceil(times + 1e-5));
                draws += seen[i];
                all[i] += seen[i];
            }
            assert_int_equal(draws, 700);
        }
        rks_plan_free(plan);
    }
    for (size_t i = 0; i < COUNT; i++) /* six deviations of so many coins */
        assert_true(fabs(all[i] - 4 * EPOCHS * 700 * odds[i] / sum) < 6 * sqrt(4 * EPOCHS) / 2 + 1);
}

/* Samples of no source have no draws, whatever their counts and odds are. */
static void samples_of_no_source_are_not_drawn(void **state)
{
    (void)state;
    enum { COUNT = 6 };
    const uint32_t lengths[COUNT] = {3, 1, 4, 1, 5, 9}, counts[COUNT] = {1, 2, 3, 1, 2, 3};
    const uint16_t source_of[COUNT] = {0, 1, UINT16_MAX, 0, 2, 1}; /* 2 sources */
    const double odds[COUNT] = {1, 2, 3, 1, 2, 3};
    for (int kind = 0; kind < 2; kind++) {
        rks_plan_mix mix;
        rks_plan_mix_default(&mix);
        mix.sources = 2;
        mix.source_of = source_of;
        mix.counts = kind == 0 ? counts : NULL;
        mix.odds = kind == 0 ? NULL : odds;
        mix.samples = kind == 0 ? 0 : 7;
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.batch_size = 2;
        options.mix = &mix;
        rks_plan *plan = NULL;
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
        rks_plan_source list[2] = {{.struct_size = sizeof(list[0])}};
        size_t sources = 0;
        assert_int_equal(report_of(plan, 0).samples, 7);
        assert_ok(rks_plan_sources(plan, 0, list, 2, &sources, &err), &err);
        assert_int_equal(list[0].draws + list[1].draws, 7);
        assert_int_equal(list[0].samples + list[1].samples, 4);
        rks_plan_free(plan);
    }
}

/* Weights of tokens: sources have their shares of tokens, if not to the token. */
static void weights_may_count_tokens(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    uint64_t bounds[] = {0, 1000, COUNT};
    double weights[] = {0.25, 0.75};
    uint32_t *lengths = calloc(COUNT, sizeof(*lengths));
    assert_non_null(lengths);
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = i < 1000 ? 400 + (uint32_t)(i % 200) : 20 + (uint32_t)(i % 30);
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = 2;
    mix.bounds = bounds;
    mix.weights = weights;
    mix.tokens = true;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.mix = &mix;
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
    rks_plan_source list[2] = {{.struct_size = sizeof(list[0])}};
    size_t count;
    assert_ok(rks_plan_sources(plan, 0, list, 2, &count, &err), &err);
    double share = (double)list[0].tokens / (double)(list[0].tokens + list[1].tokens);
    assert_true(fabs(share - 0.25) < 0.001);
    assert_true(list[0].distinct == 1000 && list[1].distinct == 2000);
    rks_plan_free(plan);
    free(lengths);
}

static void check_refused(const char *text, rks_plan_mix *mix)
{
    static uint32_t lengths[100];
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.mix = mix;
    rks_plan *plan = NULL;
    assert_int_equal(rks_plan_create(lengths, 100, NULL, &options, &plan, &err), RKS_ERR_ARGUMENT);
    assert_string_equal(err.text, text);
}

static void wrong_mixes_are_refused(void **state)
{
    (void)state;
    uint64_t bounds[] = {0, 40, 40, 100};
    double weights[] = {1, 0, 1}, odds[100] = {0};
    uint32_t counts[100] = {0};
    rks_plan_mix mix, good;
    rks_plan_mix_default(&mix);
    mix.sources = 3;
    mix.names = NAMES;
    mix.bounds = bounds;
    mix.weights = weights;
    good = mix;
    weights[0] = -0.5;
    check_refused("mix: \"web\" has the weight -0.5; weights are finite numbers from 0", &mix);
    weights[0] = DBL_MAX; /* finite: it leaves nothing of the others */
    check_refused(
        "mix: the weight 1 of \"math\" is too small beside 1.79769e+308; give it 0, or at "
        "least 6.38669e+293",
        &mix);
    weights[0] = INFINITY;
    check_refused("mix: \"web\" has the weight inf; weights are finite numbers from 0", &mix);
    weights[0] = 0;
    weights[2] = 0;
    check_refused("mix: all weights are 0; one must be above", &mix);
    weights[1] = 1;
    check_refused(
        "mix: \"code\" has the weight 1 and no samples to draw; give it 0, or leave it out", &mix);
    weights[1] = 0;
    weights[0] = 1;
    weights[2] = 1e-15;
    check_refused("mix: the weight 1e-15 of \"math\" is too small beside 1; give it 0, or at least "
                  "3.55271e-15",
                  &mix);
    weights[2] = 1e-9;
    check_refused("mix: an epoch in which every sample occurs has more than 2^32 - 1 draws; set "
                  "samples",
                  &mix);
    weights[2] = 1;
    mix.tokens = true;
    check_refused(
        "mix: \"web\" has samples of length 0 only, so it cannot have a share of tokens; let "
        "weights count samples",
        &mix);
    mix = good;
    mix.sources = 0;
    check_refused("mix: 0 sources; from 1 to 65535", &mix);
    mix = good;
    mix.samples = UINT64_C(1) << 32;
    check_refused("mix: samples 4294967296; an epoch has at most 2^32 - 1 draws", &mix);
    mix = good;
    mix.counts = counts;
    check_refused("mix: give at most one of weights, counts and odds", &mix);
    mix.weights = NULL;
    check_refused("weights: all samples that can be drawn have the weight 0", &mix);
    mix.samples = 9;
    check_refused("mix: give samples or counts, not both: samples is the sum of counts", &mix);
    mix.counts = NULL;
    mix.odds = odds;
    check_refused("weights: all samples that can be drawn have the weight 0", &mix);
    odds[3] = NAN;
    check_refused("weights: sample 3 has the weight nan; weights are finite numbers from 0", &mix);
    mix.samples = 0;
    check_refused("mix: odds need samples, the number of draws of an epoch", &mix);
    mix = good;
    bounds[3] = 99;
    check_refused("mix: bounds are from 0 to 99; the plan has 100 samples", &mix);
    mix.bounds = NULL;
    check_refused("mix: give bounds or source_of", &mix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_have_counts_or_odds),
        cmocka_unit_test(samples_of_no_source_are_not_drawn),
        cmocka_unit_test(weights_may_count_tokens),
        cmocka_unit_test(wrong_mixes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
