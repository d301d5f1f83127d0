/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_skip.c: steps that are skipped: nothing else moves, states hold them, and a rest has
 * neither what was delivered nor what was skipped, on any number of ranks. */
#include "plans.h"

enum { COUNT = 400, STRATEGIES = 7, DRAWS = 600 };

static const uint64_t BOUNDS[] = {0, 100, COUNT};
static const uint32_t WORLDS[] = {1, 2, 3, 5};
static const char *const NAMES[STRATEGIES] = {"random", "bucket", "sorted", "sequential",
                                              "pack",   "pack",   "random"};

static uint32_t lengths[COUNT];
static bool mixed;

/* Round 5 of 7 has pieces and micro-batches, round 6 a mix. */
static rks_plan *plan_of(unsigned round, uint32_t world, const rks_step_range *skip, size_t skips)
{
    static const double weights[] = {3, 1};
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = 2;
    mix.bounds = BOUNDS;
    mix.weights = weights;
    mix.samples = DRAWS;
    rks_plan_options options;
    rks_plan_options_default(&options);
    unsigned kind = round % STRATEGIES;
    options.strategy = NAMES[kind];
    options.world = world;
    options.seed = round;
    options.skip = skip;
    options.skips = skips;
    options.mix = kind == 6 ? &mix : NULL;
    options.capacity = kind == 4 ? 256 : kind == 5 ? 100 : 0;
    options.too_long = kind == 5 ? "split" : NULL;
    options.micro_batches = kind == 5 ? 2 : 1;
    if (kind < 4)
        options.batch_size = 2 + round % 4;
    else if (kind == 6)
        options.max_tokens = 500;
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
    return plan;
}

static uint64_t next_of(rks_plan *plan, uint64_t epoch, uint64_t step)
{
    uint64_t next;
    assert_ok(rks_plan_next_step(plan, epoch, step, &next, &err), &err);
    return next;
}

/* Adds the items of each sample at a step; of a mix, its draws. */
static void see(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *seen)
{
    for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++) {
        const uint32_t *ids;
        const rks_piece *piece;
        size_t count, pieces;
        assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
        assert_ok(rks_plan_pieces(plan, epoch, step, rank, &piece, &pieces, &err), &err);
        for (size_t i = 0; i < count; i++) {
            bool is_piece = pieces > 0 && piece->place == i;
            seen[ids[i]] += mixed ? 1 : is_piece ? piece->count : lengths[ids[i]];
            piece += is_piece;
            pieces -= is_piece;
        }
    }
}

/* What loaders deliver in [first, end). Returns how many steps that are. */
static uint64_t deliver(rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t end,
                        uint64_t *seen)
{
    uint64_t steps = 0;
    for (uint64_t at = next_of(plan, epoch, first); at < end; at = next_of(plan, epoch, at + 1)) {
        see(plan, epoch, at, seen);
        steps++;
    }
    return steps;
}

static void make_lengths(uint64_t seed)
{
    rks_random random = {seed};
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + below(&random, 200);
}

static rks_step_range random_range(rks_random *random, rks_plan *plan, uint64_t epoch,
                                   unsigned round)
{
    uint64_t micro = round % STRATEGIES == 5 ? 2 : 1, steps = steps_of(plan, epoch) / micro;
    uint64_t first = rks_random_below(random, steps);
    uint64_t more = rks_random_below(random, steps - first < 9 ? steps - first : 9);
    return (rks_step_range){epoch, first * micro, (first + more + 1) * micro - 1};
}

/* After at least one optimizer step, so that other ranks do not plan what these were to do. */
static uint64_t random_stop(rks_random *random, uint64_t step, uint64_t steps, uint64_t micro)
{
    return step + (1 + rks_random_below(random, (steps - step) / micro)) * micro;
}

static void nothing_else_moves(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    make_lengths(seed);
    mixed = false;
    for (unsigned round = 0; round < 10 * STRATEGIES; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t world = ONE_OF(&random, WORLDS);
        rks_plan *same = plan_of(round, world, NULL, 0);
        rks_step_range skip[3];
        bool out[4096] = {false};
        for (size_t i = 0; i < 3; i++) {
            skip[i] = random_range(&random, same, 1, round);
            for (uint64_t step = skip[i].first; step <= skip[i].last; step++)
                out[step] = true;
        }
        rks_plan *plan = plan_of(round, world, skip, 3);
        uint64_t steps = steps_of(plan, 1), missing = 0, counted, past = 0;
        assert_int_equal(steps, steps_of(same, 1));
        uint64_t all[COUNT] = {0}, whole[COUNT] = {0}, left[COUNT] = {0}, tokens = 0;
        for (uint64_t step = 0; step < steps; step++) {
            assert_ok(rks_plan_skipped(plan, 1, step, &counted, &err),
                      &err); /* within a range, too */
            assert_int_equal(counted, missing);
            missing += out[step];
            assert_int_equal(next_of(plan, 1, step) == step, !out[step]);
            past = out[step] ? past : step + 1;
            see(same, 1, step, out[step] ? left : whole);
        }
        assert_int_equal(next_of(plan, 1, past), steps);
        assert_int_equal(deliver(plan, 1, 0, steps, all), steps - missing);
        assert_memory_equal(all, whole, sizeof(all));
        assert_ok(rks_plan_skipped(plan, 1, UINT64_MAX, &counted, &err), &err);
        assert_int_equal(counted, missing);
        rks_plan_report report = {.struct_size = sizeof(report)};
        rks_status status = rks_plan_report_get(plan, 1, &report, &err);
        if (missing == steps) {
            assert_int_equal(status, RKS_ERR_DATA);
        } else {
            assert_ok(status, &err);
            for (size_t i = 0; i < COUNT; i++)
                tokens += all[i];
            assert_int_equal(report.tokens, tokens);
            assert_int_equal(report.steps, steps - missing);
            assert_int_equal(report.skipped, missing);
            assert_false(out[report.largest_batch_step]);
        }
        assert_string_equal(report_of(plan, 0).digest, report_of(same, 0).digest);
        rks_plan_free(plan);
        rks_plan_free(same);
    }
}

/* Delivered, skipped, and what other ranks deliver then: each item of each sample once. The skip
 * may be made before or after the stop, and the range may lie on either side of it. */
static void a_rest_has_no_skipped_samples(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    make_lengths(seed);
    unsigned moved = 0;
    for (unsigned round = 0; round < 30 * STRATEGIES; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t world = ONE_OF(&random, WORLDS), next = ONE_OF(&random, WORLDS);
        rks_plan *plan = plan_of(round, world, NULL, 0), *to = plan_of(round, next, NULL, 0);
        rks_plan *last = plan_of(round, 1, NULL, 0);
        rks_step_range one = random_range(&random, plan, 0, round);
        assert_ok(rks_plan_skip(plan, 0, one.first, one.last, &err), &err);
        uint64_t micro = round % STRATEGIES == 5 ? 2 : 1, steps = steps_of(plan, 0);
        uint64_t stop = random_stop(&random, 0, steps, micro);
        uint64_t draws = 0, epoch, step;
        mixed = round % STRATEGIES == 6;
        uint64_t seen[COUNT] = {0}, left[COUNT] = {0};
        char text[RKS_STATE_MAX];
        deliver(plan, 0, 0, stop, seen);
        for (uint64_t at = one.first; at <= one.last; at++)
            see(plan, 0, at, left);
        assert_ok(rks_plan_state(plan, 0, stop, text, sizeof(text), &err), &err);
        rks_status status = rks_plan_resume(to, text, &epoch, &step, &err);
        if (status == RKS_ERR_DATA) /* too little is left for these ranks */
            goto out;
        assert_ok(status, &err);
        if (epoch == 0 && steps_of(to, 0) > step) { /* and more of what is left */
            rks_step_range more = random_range(&random, to, 0, round);
            assert_ok(rks_plan_skip(to, 0, more.first, more.last, &err), &err);
            uint64_t second = random_stop(&random, step, steps_of(to, 0), micro);
            deliver(to, 0, step, second, seen);
            for (uint64_t at = more.first; at <= more.last; at++)
                if (at >= step && (next != world || next_of(plan, 0, at) == at))
                    see(to, 0, at, left);
            assert_ok(rks_plan_state(to, 0, second, text, sizeof(text), &err), &err);
            status = rks_plan_resume(last, text, &epoch, &step, &err);
            if (status == RKS_ERR_DATA)
                goto out;
            assert_ok(status, &err);
            if (epoch == 0)
                deliver(last, 0, step, steps_of(last, 0), seen);
            moved += next != world && epoch == 0;
        }
        for (size_t i = 0; i < COUNT; i++) {
            if (!mixed)
                assert_int_equal(seen[i] + left[i], lengths[i]);
            draws += seen[i] + left[i];
        }
        if (mixed)
            assert_int_equal(draws, DRAWS);

    out:
        rks_plan_free(plan);
        rks_plan_free(to);
        rks_plan_free(last);
    }
    assert_true(moved > 20);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    char text[RKS_STATE_MAX], wrong[RKS_STATE_MAX];
    uint64_t epoch, step;
    make_lengths(3);
    rks_plan *plan = plan_of(5, 1, NULL, 0), *other = plan_of(5, 1, NULL, 0);
    uint64_t steps = steps_of(plan, 2);
    assert_int_equal(rks_plan_skip(plan, 2, 4, 2, &err), RKS_ERR_ARGUMENT);
    assert_int_equal(rks_plan_skip(plan, 2, 0, steps, &err), RKS_ERR_ARGUMENT);
    snprintf(wrong, sizeof(wrong), "skip: steps 0 to %u of epoch 2, which has steps 0 to %u",
             (unsigned)steps, (unsigned)steps - 1);
    assert_string_equal(err.text, wrong);
    assert_int_equal(rks_plan_skip(plan, 2, 1, 3, &err), RKS_ERR_ARGUMENT);
    assert_string_equal(err.text,
                        "skip: steps 1 to 3 of epoch 2 are not whole optimizer steps of 2 "
                        "batches each");
    assert_int_equal(rks_plan_skip(plan, 2, 2, 4, &err), RKS_ERR_ARGUMENT);

    /* Without skips a state is as it was; with them, what does not know them refuses it. */
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    assert_non_null(strstr(text, "{\"format\": 1,"));
    assert_null(strstr(text, "skip"));
    assert_ok(rks_plan_skip(plan, 2, 2, 5, &err), &err);
    assert_ok(rks_plan_skip(plan, 2, 6, 7, &err), &err); /* one range with the first */
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    assert_non_null(strstr(text, "{\"format\": 2,"));
    char *entry = strstr(text, "\"skip\": [[2, 0, 2, 8]]");
    assert_non_null(entry);
    static const char *const entries[] = {"[[2, 0, 8, 2]]", "[[2, 0, 1, 3]]", "[[2, 0, 2   ]]",
                                          "[[2,-1, 2, 8]]", "[            ]"};
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        memcpy(entry + strlen("\"skip\": "), entries[i], strlen(entries[i]));
        assert_int_equal(rks_plan_resume(other, text, &epoch, &step, &err), RKS_ERR_STATE);
        assert_string_equal(err.text,
                            i == 4 ? "state: skip: not a list of 1 to 256"
                                   : "state: skip: entry 0 is not [epoch, segment, first, end] of "
                                     "whole optimizer steps");
        assert_int_equal(next_of(other, 2, 2), 2);
    }
    rks_plan_free(plan);
    rks_plan_free(other);

    /* Room. */
    plan = plan_of(3, 1, NULL, 0);
    for (uint64_t i = 0; i < RKS_PLAN_SKIPS_MAX; i++)
        assert_ok(rks_plan_skip(plan, i, 2, 2, &err), &err);
    assert_int_equal(rks_plan_skip(plan, 999, 2, 2, &err), RKS_ERR_STATE);
    assert_string_equal(err.text,
                        "skip: states have room for 256 ranges of steps, and for 6144 bytes of "
                        "these and of changes of weights; 257 ranges take more");
    assert_int_equal(next_of(plan, 999, 2), 2);
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    rks_plan_free(plan);
    plan = plan_of(6, 1, NULL, 0); /* beside changes */
    for (uint64_t i = 0; i < RKS_PLAN_CHANGES_MAX; i++)
        assert_ok(rks_plan_change(plan, i, 1, (double[]){1, 3}, 2, 0, &err), &err);
    rks_status status = RKS_OK;
    for (uint64_t i = 0; i < RKS_PLAN_SKIPS_MAX && status == RKS_OK; i++)
        status = rks_plan_skip(plan, i, 2, 2, &err);
    assert_int_equal(status, RKS_ERR_STATE);
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    rks_plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_else_moves),
        cmocka_unit_test(a_rest_has_no_skipped_samples),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
