/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_interrupt.c: planning many samples is ended by an interrupt, at whichever of the places
 * that ask; and what was interrupted can be asked for again. */
#include "plans.h"

#include "plan/plan_state.h"
#include "plan/plan.h"

/* In short stretches few samples have as many places as millions. Asked at least STRETCHES times in
 * each pass. */
enum { STRETCHES = 2, SHORT = 1 << 14, FEW = 5 * SHORT / 2, MANY = 5 << 19 };

static uint32_t *lengths;
static size_t count;
static unsigned asked, stop_at; /* stop_at 0: never */

static int count_and_stop(void *user)
{
    (void)user;
    asked++;
    return asked == stop_at;
}

static void set_stop(unsigned at)
{
    asked = 0;
    stop_at = at;
}

static void fill_lengths(size_t samples, uint32_t range)
{
    rks_random random = {7};
    count = samples;
    lengths = calloc(count, sizeof(*lengths));
    assert_non_null(lengths);
    for (size_t i = 0; i < count; i++)
        lengths[i] = 1 + below(&random, range);
}

/* All that can be asked of a plan: epoch 1, its report, and going on with what is left of it on
 * other ranks. */
static rks_status ask(rks_plan *plan, const char *state, rks_plan_report *report)
{
    uint64_t epoch = 0, step = 0;
    rks_status status = rks_plan_report_get(plan, 1, report, &err);
    if (status == RKS_OK)
        status = rks_plan_resume(plan, state, &epoch, &step, &err);
    return status == RKS_OK ? rks_plan_report_get(plan, epoch, report, &err) : status;
}

static void save_state(rks_plan_options *options, char *state)
{
    rks_plan *plan = NULL;
    uint32_t world = options->world;
    options->world = world + 1;
    assert_ok(rks_plan_create(lengths, count, NULL, options, &plan, &err), &err);
    assert_ok(rks_plan_state(plan, 1, 5, state, RKS_STATE_MAX, &err), &err);
    rks_plan_free(plan);
    options->world = world;
}

/* `every`: of the places that ask while a plan is made, each so-manieth is tried. */
static void check_each_place(rks_plan_options *options, unsigned passes, unsigned every)
{
    char state[RKS_STATE_MAX];
    rks_plan *plan = NULL;
    rks_plan_report whole = {.struct_size = sizeof(whole)}, again = whole;
    rks_set_interrupt(NULL, NULL);
    save_state(options, state);
    rks_set_interrupt(count_and_stop, NULL);
    set_stop(0);
    assert_ok(rks_plan_create(lengths, count, NULL, options, &plan, &err), &err);
    unsigned of_create = asked;
    set_stop(0);
    assert_ok(ask(plan, state, &whole), &err);
    unsigned of_ask = asked;
    assert_true(of_create + of_ask >= passes * STRETCHES);
    rks_plan_free(plan);

    for (unsigned at = 1; at <= of_create; at += every) {
        plan = NULL;
        set_stop(at);
        assert_fails(RKS_ERR_CANCELLED,
                     rks_plan_create(lengths, count, NULL, options, &plan, &err));
        assert_null(plan);
        assert_int_equal(asked, at);
        assert_int_equal(rks_memory_in_use(), 0);
    }
    for (unsigned at = 1; at <= of_ask; at += every == 1 ? 1 + of_ask / 8 : of_ask - 1) {
        set_stop(0);
        assert_ok(rks_plan_create(lengths, count, NULL, options, &plan, &err), &err);
        set_stop(at);
        assert_fails(RKS_ERR_CANCELLED, ask(plan, state, &again));
        assert_int_equal(asked, at);
        set_stop(0);
        assert_ok(ask(plan, state, &again), &err);
        assert_string_equal(again.digest, whole.digest);
        rks_plan_free(plan);
    }
    rks_set_interrupt(NULL, NULL);
}

static void each_strategy_can_be_interrupted(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential", "pack"};
    static const unsigned passes[] = {15, 15, 18, 10, 15};
    for (size_t i = 0; i < 5; i++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = strategies[i];
        if (strcmp(strategies[i], "pack") == 0)
            options.capacity = 40000;
        else
            options.max_tokens = 40000;
        options.world = 3;
        fill_lengths(FEW, 2000);
        check_each_place(&options, passes[i], 1);
        free(lengths);
    }
}

static void sorting_long_lengths_can_be_interrupted(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.batch_size = 64;
    options.world = 2;
    fill_lengths(FEW, 1u << 23);
    check_each_place(&options, 19, 1);
    free(lengths);
}

static void millions_of_samples_can_be_interrupted(void **state)
{
    (void)state;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.max_tokens = 40000;
    options.world = 3;
    fill_lengths(MANY, 2000);
    check_each_place(&options, 15, 17);
    free(lengths);
}

static int set_short_stretches(void **state)
{
    (void)state;
    rks_plan_stretch_set(SHORT);
    return 0;
}

static int set_usual_stretches(void **state)
{
    (void)state;
    rks_plan_stretch_set(0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_strategy_can_be_interrupted, set_short_stretches,
                                        set_usual_stretches),
        cmocka_unit_test_setup_teardown(sorting_long_lengths_can_be_interrupted,
                                        set_short_stretches, set_usual_stretches),
        cmocka_unit_test(millions_of_samples_can_be_interrupted),
    };
    return cmocka_run_group_tests_name("plan interrupt", tests, NULL, NULL);
}
