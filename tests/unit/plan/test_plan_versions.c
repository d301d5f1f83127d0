/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_versions.c: plans and states stay as they are, bit for bit. States of other planner
 * versions are refused with both versions in the message. */
#include "plan/planner_mark.h"
#include "plans.h"
#include "saved_mixes.h"
#include "saved_states.h"

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

/* Where a text or a digest changes, states that were saved before cannot be resumed: raise
 * RKS_PLAN_VERSION with it. */
static void plans_and_states_are_those_of_this_version(void **state)
{
    (void)state;
    assert_int_equal(RKS_PLAN_VERSION, 2);
    fixed_lengths(lengths, 4000);
    for (size_t i = 0; i < sizeof(stored_states) / sizeof(stored_states[0]); i++) {
        const stored_state *stored = &stored_states[i];
        uint64_t epoch = 99, step = 99;
        char text[RKS_STATE_MAX];
        rks_plan *plan = plan_of(stored, stored->world);
        assert_ok(rks_plan_state(plan, 2, stored->step, text, sizeof(text), &err), &err);
        assert_string_equal(text, stored->text);
        assert_ok(rks_plan_resume(plan, text, &epoch, &step, &err), &err);
        assert_int_equal(epoch, 2);
        assert_int_equal(step, stored->step);
        assert_string_equal(report_of(plan, 2).digest, stored->whole);
        rks_plan_free(plan);

        plan = plan_of(stored, stored->other);
        assert_ok(rks_plan_resume(plan, text, &epoch, &step, &err), &err);
        assert_int_equal(epoch, 2);
        assert_int_equal(step, 0);
        assert_string_equal(report_of(plan, 2).digest, stored->rest);
        rks_plan_free(plan);
    }
}

/* The same for mixes and RKS_PLAN_VERSION_MIX. A state has the plan's remixes in it. */
static void mixes_are_those_of_this_version(void **state)
{
    (void)state;
    assert_int_equal(RKS_PLAN_VERSION_MIX, 3);
    fixed_lengths(lengths, MIX_SAMPLES);
    for (size_t i = 0; i < MIX_CASES; i++) {
        const mix_state *stored = &mix_states[i];
        uint64_t epoch = 99, step = 99;
        char text[RKS_STATE_MAX];
        rks_plan *plan = NULL;
        assert_ok(mix_plan(&mix_cases[i], lengths, 2, &plan, &err), &err);
        if (mix_cases[i].remixed)
            assert_ok(mix_remix(plan, &err), &err);
        assert_ok(rks_plan_state(plan, MIX_EPOCH, MIX_STEP, text, sizeof(text), &err), &err);
        assert_string_equal(text, stored->text);
        assert_string_equal(report_of(plan, MIX_EPOCH).digest, stored->whole);
        rks_plan_free(plan);
        for (uint32_t world = 2; world <= 3; world++) {
            assert_ok(mix_plan(&mix_cases[i], lengths, world, &plan, &err), &err);
            assert_ok(rks_plan_resume(plan, text, &epoch, &step, &err), &err);
            assert_int_equal(epoch, MIX_EPOCH);
            assert_int_equal(step, world == 2 ? MIX_STEP : 0);
            assert_string_equal(report_of(plan, MIX_EPOCH).digest,
                                world == 2 ? stored->whole : stored->rest);
            rks_plan_free(plan);
        }
    }
}

/* States that earlier planners saved of the first plan and of the first mix above. */
static const char of_version_1[] =
    "{\"format\": 1, \"planner\": 1, \"dataset\": \"00112233445566778899aabbccddeeff\", "
    "\"samples\": 4000, \"lengths\": \"ae26ff0baf66b00c\", \"options\": \"7a38188c8d6329e7\", "
    "\"seed\": \"11\", \"epoch\": 2, \"segments\": [[4, 4]], \"given\": \"max_tokens=5000\"}";
static const char mix_of_version_2[] =
    "{\"format\": 1, \"planner\": 2, \"dataset\": null, \"samples\": 4000, \"lengths\": "
    "\"ae26ff0baf66b00c\", \"options\": \"1c79bf0958cab19c\", \"seed\": \"11\", \"epoch\": 2, "
    "\"segments\": [[2, 7]], \"mix\": \"fd9ccfef65f878ce\", \"given\": \"strategy=random "
    "batch_size=3\"}";

/* Fails, names `there` and `here`, and changes nothing. */
static void expect_refused(rks_plan *plan, const char *text, int there, int here)
{
    uint64_t epoch = 99, step = 99;
    char before[RKS_STATE_MAX], after[RKS_STATE_MAX], versions[128];
    assert_ok(rks_plan_state(plan, 2, 0, before, sizeof(before), &err), &err);
    rks_plan_report report = report_of(plan, 2);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(plan, text, &epoch, &step, &err));
    snprintf(versions, sizeof(versions),
             "state: planner differs: %d in the state, %d in this version; start the epoch anew",
             there, here);
    assert_contains(err.text, versions);
    assert_int_equal(epoch, 99);
    assert_int_equal(step, 99);
    assert_ok(rks_plan_state(plan, 2, 0, after, sizeof(after), &err), &err);
    assert_string_equal(before, after);
    assert_string_equal(report_of(plan, 2).digest, report.digest);
}

static void states_of_other_versions_are_refused_with_both_versions(void **state)
{
    (void)state;
    char later[RKS_STATE_MAX];
    rks_plan *plan = NULL;
    fixed_lengths(lengths, 4000);
    for (uint32_t world = 3; world <= 4; world++) {
        plan = plan_of(&stored_states[0], world);
        expect_refused(plan, of_version_1, 1, 2);
        snprintf(later, sizeof(later), "%s", stored_states[0].text);
        memcpy(strstr(later, "\"planner\": 2"), "\"planner\": 4", 12);
        expect_refused(plan, later, 4, 2);
        rks_plan_free(plan);
    }
    for (uint32_t world = 2; world <= 3; world++) {
        assert_ok(mix_plan(&mix_cases[0], lengths, world, &plan, &err), &err);
        expect_refused(plan, mix_of_version_2, 2, 3);
        rks_plan_free(plan);
    }
}

static void the_mark_of_a_build_is_always_the_same(void **state)
{
    (void)state;
    uint64_t first = 0, again = 0;
    assert_ok(rks_planner_mark(&first, &err), &err);
    assert_ok(rks_planner_mark(&again, &err), &err);
    assert_true(first != 0 && first == again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_and_states_are_those_of_this_version),
        cmocka_unit_test(mixes_are_those_of_this_version),
        cmocka_unit_test(states_of_other_versions_are_refused_with_both_versions),
        cmocka_unit_test(the_mark_of_a_build_is_always_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
