/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_memory.c: the formula of plan_memory.h against what the kernel says that a plan took;
 * and that what does not fit is refused before it is taken. */
#include "plans.h"

#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "plan/plan_memory.h"
#include "plan/plan_state.h"

enum { COUNT = 500000 };

static uint64_t status_figure(const char *name)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoull(line + strlen(name), NULL, 10);
    fclose(file);
    return kib << 10;
}

/* The peak begins anew. */
static uint64_t begin(void)
{
    malloc_trim(0);
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    assert_true(fd >= 0 && write(fd, "5", 1) == 1);
    close(fd);
    return status_figure("VmRSS:");
}

static void a_plan_takes_what_the_formula_says(void **state)
{
    (void)state;
    static const struct {
        const char *strategy;
        uint64_t max_tokens;
        uint32_t batch_size, capacity, window, lengths;
        const char *too_long;
        uint64_t samples;
    } cases[] = {
        {"bucket", 20000, 0, 0, 0, 900, NULL, 0},
        {"random", 0, 64, 0, 0, 900, NULL, 0},
        {"sorted", 0, 64, 0, 0, 900, NULL, 0},
        {"sequential", 0, 64, 0, 0, 900, NULL, 0},
        {"bucket", 0, 1, 0, 0, 900, NULL, 0},
        {"pack", 0, 0, 2048, 0, 900, NULL, 0},
        {"pack", 0, 0, 2048, 32, 900, NULL, 0},
        {"pack", 0, 0, 1024, 0, 900, NULL, 0},
        {"pack", 0, 0, 64, 0, 300, "split", 0},
        {"bucket", 256, 0, 0, 0, 900, "split", 0},
        {"bucket", 20000, 0, 0, 0, 900, NULL, 2 * COUNT},
        {"random", 0, 64, 0, 0, 900, NULL, 3 * COUNT},
    };
    static const char *const names[] = {"all"};
    static const uint64_t bounds[] = {0, COUNT};
    uint32_t *lengths = malloc(COUNT * sizeof(*lengths));
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
        mix.samples = cases[i].samples;
        if (cases[i].samples > 0)
            options.mix = &mix;
        for (size_t k = 0; k < COUNT; k++)
            lengths[k] = 1 + below(&random, cases[i].lengths);
        rks_plan *plan = NULL;
        uint64_t before = begin();
        assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
        for (uint64_t epoch = 0; epoch < 2; epoch++)
            assert_ok(rks_plan_prepare(plan, epoch, &err), &err);
        double took = (double)(status_figure("VmHWM:") - before);
        double said = (double)rks_plan_memory(&plan->in);
        print_message("%-10s took %.1f MB, formula %.1f MB, %.2f\n", cases[i].strategy, took / 1e6,
                      said / 1e6, took / said);
        assert_true(took > 0.6 * said && took < 1.4 * said);
        rks_plan_free(plan);
    }
    free(lengths);
}

/* Only what no machine of this size has: the plan must not be begun. */
static void what_does_not_fit_is_refused_with_both_numbers(void **state)
{
    (void)state;
    enum { MOST = UINT32_MAX / 2 };
    uint64_t left = rks_memory_obtainable(""), pieces = 2000000000;
    if (left > 26 * pieces)
        skip(); /* a machine with more than 52 GB */
    const uint32_t lengths[] = {MOST, 5, MOST};
    rks_plan *plan = NULL;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.too_long = "split";
    options.capacity = 2;
    options.length_multiple = 1;
    assert_int_equal(rks_plan_create(lengths, 3, NULL, &options, &plan, &err), RKS_ERR_MEMORY);
    assert_contains(err.text, "plan: 3 samples and 2147483651 pieces of them needs ");
    assert_contains(err.text,
                    " GiB of memory, and this machine, or the control group of the process, "
                    "has ");
    assert_contains(err.text, " GiB left; make capacity (2) larger");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_takes_what_the_formula_says),
        cmocka_unit_test(what_does_not_fit_is_refused_with_both_numbers),
    };
    return cmocka_run_group_tests_name("plan_memory", tests, NULL, NULL);
}
