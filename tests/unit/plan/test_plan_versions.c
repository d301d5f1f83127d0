/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_versions.c: states of earlier planner versions resume bit for bit, or fail with both
 * versions in the message. */
#include "plans.h"
#include "states_version_1.h"
#include "states_version_2.h"

#define DATASET "00112233445566778899aabbccddeeff"

static uint32_t lengths[4000];

static rks_plan *plan_of(const stored_state *stored, uint32_t world)
{
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = stored->strategy;
    options.tail = stored->tail;
    options.cost = stored->cost;
    options.too_long = stored->too_long;
    options.steps = stored->steps;
    options.batch_size = stored->batch_size;
    options.max_tokens = stored->max_tokens;
    options.max_length = stored->max_length;
    options.batch_multiple = stored->batch_multiple;
    options.world = world;
    options.capacity = stored->capacity;
    options.length_multiple = stored->length_multiple;
    options.micro_batches = stored->micro_batches;
    options.mixed = stored->mixed;
    options.cost_linear = stored->cost_linear;
    options.cost_quadratic = stored->cost_quadratic;
    options.seed = 11;
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, 4000, DATASET, &options, &plan, &err), &err);
    return plan;
}

static void states_of_version_1_resume_bit_for_bit_or_name_both_versions(void **state)
{
    (void)state;
    fixed_lengths(lengths, 4000);
    size_t resumed = 0;
    for (size_t i = 0; i < sizeof(stored_states) / sizeof(stored_states[0]); i++) {
        const stored_state *stored = &stored_states[i];
        uint64_t epoch = 99, step = 99;
        rks_plan *plan = plan_of(stored, stored->world);
        rks_status status = rks_plan_resume(plan, stored->text, &epoch, &step, &err);
        if (status == RKS_OK) {
            assert_int_equal(epoch, 2);
            assert_int_equal(step, stored->step);
            assert_string_equal(report_of(plan, 2).digest, stored->whole);
            resumed++;
        } else {
            char text[64];
            assert_int_equal(status, RKS_ERR_STATE);
            snprintf(text, sizeof(text), "planner differs: 1 in the state, %d in this plan",
                     RKS_PLAN_VERSION);
            assert_contains(err.text, text);
        }
        rks_plan_free(plan);

        plan = plan_of(stored, stored->other);
        assert_int_equal(rks_plan_resume(plan, stored->text, &epoch, &step, &err), status);
        if (status == RKS_OK) {
            assert_int_equal(epoch, 2);
            assert_int_equal(step, 0);
            assert_string_equal(report_of(plan, 2).digest, stored->rest);
        }
        rks_plan_free(plan);
    }
    assert_int_equal(resumed, 15); /* version 2 changed bucket without a budget, random with one */
}

static void a_state_of_version_1_says_that_lengths_were_not_rounded(void **state)
{
    (void)state;
    stored_state rounded = stored_states[0];
    uint64_t epoch = 0, step = 0;
    rounded.length_multiple = 8;
    rks_plan *plan = plan_of(&rounded, rounded.world);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, rounded.text, &epoch, &step, &err));
    assert_contains(err.text, "planner version 1, which did not round lengths up");
    assert_contains(err.text, "plan with length_multiple=1");
    rks_plan_free(plan);
}

/* also as other ranks and in later states; a plan that resumes none is of the newest version */
static void mixes_of_version_2_resume_bit_for_bit(void **state)
{
    (void)state;
    size_t others = 0;
    fixed_lengths(lengths, V2_SAMPLES);
    for (size_t i = 0; i < V2_CASES; i++) {
        const v2_state *stored = &v2_states[i];
        for (uint32_t world = 2; world <= 3; world++) {
            const char *digest = world == 2 ? stored->whole : stored->rest;
            uint64_t epoch = 99, step = 99;
            char text[RKS_STATE_MAX];
            rks_plan *plan = NULL, *later = NULL;
            assert_ok(v2_plan(&v2_cases[i], lengths, world, &plan, &err), &err);
            others += world == 2 && !v2_cases[i].remixed &&
                      strcmp(report_of(plan, V2_EPOCH).digest, digest) != 0;
            assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
            assert_contains(text, "\"planner\": 3");
            assert_ok(rks_plan_resume(plan, stored->text, &epoch, &step, &err), &err);
            assert_int_equal(epoch, V2_EPOCH);
            assert_int_equal(step, world == 2 ? V2_STEP : 0);
            assert_string_equal(report_of(plan, V2_EPOCH).digest, digest);
            assert_ok(rks_plan_state(plan, V2_EPOCH, 1, text, sizeof(text), &err), &err);
            assert_contains(text, "\"planner\": 2");
            assert_ok(v2_plan(&v2_cases[i], lengths, world, &later, &err), &err);
            assert_ok(rks_plan_resume(later, text, &epoch, &step, &err), &err);
            assert_string_equal(report_of(later, V2_EPOCH).digest, digest);
            assert_string_equal(report_of(later, V2_EPOCH + 1).digest,
                                report_of(plan, V2_EPOCH + 1).digest);
            rks_plan_free(plan);
            rks_plan_free(later);
        }
    }
    assert_true(others > 0);
}

/* What the newest version makes of the same mixes. Where one changes, states of mixes that were
 * saved before cannot be resumed: raise RKS_PLAN_VERSION_MIX with it, and keep the order of this
 * version. */
static void digests_of_mixes_are_those_of_this_version(void **state)
{
    (void)state;
    static const char *const golden[] = {
        "bf7de9027102916b6594781e5bd19494", "4afc48a81d28198e1912329d1a401b3f",
        "2e13a778519b6e6d83f4bea4171a2ccc", "4b0f874eda67f76eba2f69f54c2f658e",
        "864218d565ded02ddc09252d0861fa4c", "169e3195e904fea7de5a8416539ed5ba",
        "c15a7db92acaa0439ed320cb2dc9af1d", "8f80e4ecaa9490d086793ebdc60a56bc",
        "6f87f9e5f33116e8edb80fb5f5c54889", "e01485f9a67944beabf72643108e0f15",
        "40e9318d9c9f3d82eded0bbdefef51ed", "e18d5b4298441f13736d11772647412b",
        "587f5c1d40fa263b01d80bf4d75d6546", "e2445005378cd997e9e4e2daa3c5d935",
    };
    assert_int_equal(RKS_PLAN_VERSION_MIX, 3);
    assert_int_equal(sizeof(golden) / sizeof(golden[0]), V2_CASES);
    fixed_lengths(lengths, V2_SAMPLES);
    for (size_t i = 0; i < V2_CASES; i++) {
        rks_plan *plan = NULL;
        assert_ok(v2_plan(&v2_cases[i], lengths, 2, &plan, &err), &err);
        if (v2_cases[i].remixed)
            assert_ok(v2_remix(plan, &err), &err);
        assert_string_equal(report_of(plan, V2_EPOCH).digest, golden[i]);
        rks_plan_free(plan);
    }
}

/* a resume that fails leaves the plan's version as it was */
static void a_state_that_is_refused_changes_no_version(void **state)
{
    (void)state;
    uint64_t epoch, step;
    char text[RKS_STATE_MAX], wrong[RKS_STATE_MAX];
    rks_plan *plan = NULL;
    fixed_lengths(lengths, V2_SAMPLES);
    assert_ok(v2_plan(&v2_cases[0], lengths, 2, &plan, &err), &err);
    rks_plan_report before = report_of(plan, V2_EPOCH);
    snprintf(wrong, sizeof(wrong), "%s", v2_states[0].text);
    memcpy(strstr(wrong, "[[2, 7]]"), "[[2,-7]]", 8); /* steps are whole numbers */
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, wrong, &epoch, &step, &err));
    snprintf(wrong, sizeof(wrong), "%s", v2_states[0].text);
    memcpy(strstr(wrong, "\"planner\": 2"), "\"planner\": 4", 12);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, wrong, &epoch, &step, &err));
    assert_contains(err.text, "planner differs: 4 in the state, 3 in this plan");
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    assert_contains(text, "\"planner\": 3");
    assert_string_equal(report_of(plan, V2_EPOCH).digest, before.digest);
    rks_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_of_version_1_resume_bit_for_bit_or_name_both_versions),
        cmocka_unit_test(a_state_of_version_1_says_that_lengths_were_not_rounded),
        cmocka_unit_test(mixes_of_version_2_resume_bit_for_bit),
        cmocka_unit_test(digests_of_mixes_are_those_of_this_version),
        cmocka_unit_test(a_state_that_is_refused_changes_no_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
