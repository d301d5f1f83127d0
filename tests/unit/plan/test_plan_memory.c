/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_memory.c: the formula of plan_memory.h against what the kernel says that a plan took;
 * and that what does not fit is refused before it is taken. `test_plan_memory N`: of N samples. */
#include "plans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/available_memory.h"
#include "plan/plan_memory.h"
#include "plan/plan_state.h"
#include "support/peak.h"

static uint32_t count = 500000; /* of samples */

static void a_plan_takes_what_the_formula_says(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        uint64_t max_tokens;
        uint32_t batch_size, capacity, window, lengths;
        const char *too_long;
        uint32_t draws; /* of a mix, times the samples; 0: no mix */
    } cases[] = {
        {"bucket", 20000, 0, 0, 0, 900, NULL, 0}, {"random", 0, 64, 0, 0, 900, NULL, 0},
        {"sorted", 0, 64, 0, 0, 900, NULL, 0},    {"sequential", 0, 64, 0, 0, 900, NULL, 0},
        {"bucket", 0, 1, 0, 0, 900, NULL, 0},     {"pack", 0, 0, 2048, 0, 900, NULL, 0},
        {"pack", 0, 0, 2048, 32, 900, NULL, 0},   {"pack", 0, 0, 1024, 0, 900, NULL, 0},
        {"pack", 0, 0, 64, 0, 300, "split", 0},   {"bucket", 256, 0, 0, 0, 900, "split", 0},
        {"bucket", 20000, 0, 0, 0, 900, NULL, 2}, {"random", 0, 64, 0, 0, 900, NULL, 3},
    };
    static const char *const names[] = {"all"};
    const uint64_t bounds[] = {0, count};
    uint32_t *lengths = malloc(count * sizeof(*lengths));
    assert_non_null(lengths);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_random random = {i};
        rks_plan_options options;
        rks_plan_options_default(&options);
        rks_plan_mix mix;
        rks_plan_mix_default(&mix);
        mix.sources = 1;
        mix.names = names;
        mix.bounds = bounds;
        options.strategy = cases[i].strategy;
        options.max_tokens = cases[i].max_tokens;
        options.batch_size = cases[i].batch_size;
        options.capacity = cases[i].capacity;
        options.pack_window = cases[i].window;
        options.world = 8;
        if (cases[i].too_long != NULL)
            options.too_long = cases[i].too_long;
        mix.samples = (uint64_t)cases[i].draws * count;
        if (cases[i].draws > 0)
            options.mix = &mix;
        for (size_t k = 0; k < count; k++)
            lengths[k] = 1 + below(&random, cases[i].lengths);
        rks_plan *plan = NULL;
        uint64_t before = peak_reset();
        assert_ok(rks_plan_create(lengths, count, NULL, &options, &plan, &err), &err);
        for (uint64_t epoch = 0; epoch < 2; epoch++)
            assert_ok(rks_plan_prepare(plan, epoch, &err), &err);
        double took = (double)(peak_high() - before);
        double said = (double)rks_plan_memory(&plan->in);
        print_message("%-10s took %.1f MB, formula %.1f MB, %.2f\n", cases[i].strategy, took / 1e6,
                      said / 1e6, took / said);
        assert_true(took > 0.6 * said && took < 1.4 * said);
        rks_plan_free(plan);
    }
    free(lengths);
}

/* What the machine has left, as a test wants it; 0: what it has. */
static uint64_t pretended;

uint64_t __real_rks_memory_obtainable(const char *root);
uint64_t __wrap_rks_memory_obtainable(const char *root);

uint64_t __wrap_rks_memory_obtainable(const char *root)
{
    return pretended != 0 ? pretended : __real_rks_memory_obtainable(root);
}

/* Checks that no plan is made with so much memory, that the error says so, and that nothing of
 * its size was allocated: the peak stays. */
static void check_refused(const uint32_t *lengths, size_t samples, const rks_plan_options *options,
                          uint64_t has, const char *begins, const char *ends)
{
    rks_plan *plan = NULL;
    char text[256];
    uint64_t before = peak_reset();
    pretended = has;
    rks_status status = rks_plan_create(lengths, samples, NULL, options, &plan, &err);
    pretended = 0;
    assert_int_equal(status, RKS_ERR_MEMORY);
    snprintf(text, sizeof(text),
             "%s GiB of memory, and this machine, or the control group of the process, has %.1f "
             "GiB left; %s",
             begins, (double)has / (1 << 30), ends);
    assert_string_equal(err.text, text);
    assert_true(peak_high() < before + (UINT64_C(16) << 20));
}

static void what_does_not_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    enum { MOST = UINT32_MAX / 2, SAMPLES = 10 };
    const uint32_t lengths[SAMPLES] = {MOST, 5, MOST, 1, 1, 1, 1, 1, 1, 1};
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.too_long = "split";
    options.capacity = 2;
    options.length_multiple = 1;
    check_refused(lengths, 3, &options, UINT64_C(50) << 30,
                  "plan: 3 samples and 2147483651 pieces of them needs 56.0",
                  "make capacity (2) larger");
    static const uint64_t bounds[] = {0, 1, SAMPLES};
    static const double weights[] = {1e9, 1}; /* each of the rare source's samples occurs */
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = 2;
    mix.bounds = bounds;
    mix.weights = weights;
    rks_plan_options_default(&options);
    options.strategy = "random";
    options.mix = &mix;
    mix.samples = 1000000000;
    check_refused(lengths, SAMPLES, &options, UINT64_C(1) << 30,
                  "plan: an epoch of 1000000000 draws of 10 samples needs 3.8",
                  "give samples, the draws of an epoch");
}

/* Below RKS_MEMORY_LARGE nothing is looked at. */
static void what_is_small_is_not_looked_at(void **state)
{
    (void)state;
    uint32_t *lengths = malloc(count * sizeof(*lengths));
    assert_non_null(lengths);
    for (size_t i = 0; i < count; i++)
        lengths[i] = 7;
    rks_plan *plan = NULL;
    rks_plan_options options;
    rks_plan_options_default(&options);
    pretended = 1;
    assert_ok(rks_plan_create(lengths, count, NULL, &options, &plan, &err), &err);
    assert_ok(rks_plan_prepare(plan, 0, &err), &err);
    pretended = 0;
    assert_true(rks_plan_memory(&plan->in) < RKS_MEMORY_LARGE);
    rks_plan_free(plan);
    free(lengths);
}

int main(int words, char **given)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_takes_what_the_formula_says),
        cmocka_unit_test(what_does_not_fit_is_refused_with_both_numbers),
        cmocka_unit_test(what_is_small_is_not_looked_at),
    };
    if (words > 1)
        count = (uint32_t)strtoul(given[1], NULL, 10);
    return cmocka_run_group_tests_name("plan_memory", tests, NULL, NULL);
}
