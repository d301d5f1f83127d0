/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_change.c: weights that change at a step: the draws before it, those after it, and going
 * on from states before and after it, with the same ranks or others. */
#include "plans.h"

#include <inttypes.h>
#include <math.h>

enum { SOURCES = 3, COUNT = 360, DRAWS = 900 };

static const uint64_t BOUNDS[SOURCES + 1] = {0, 40, 160, COUNT};
static const uint32_t WORLDS[] = {1, 2, 3, 5};
static const char *const STRATEGIES[] = {"random", "bucket", "sorted", "sequential", "pack"};

static uint32_t lengths[COUNT];

static size_t source_of(uint32_t id)
{
    return id < BOUNDS[1] ? 0 : id < BOUNDS[2] ? 1 : 2;
}

static rks_plan *plan_of(unsigned round, uint32_t world)
{
    static const double weights[SOURCES] = {5, 3, 2};
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = SOURCES;
    mix.bounds = BOUNDS;
    mix.weights = weights;
    mix.samples = DRAWS;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = STRATEGIES[round % 5];
    options.world = world;
    options.seed = round;
    options.mix = &mix;
    if (round % 5 == 4)
        options.capacity = 256;
    else
        options.batch_size = 1 + round % 4;
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
    return plan;
}

static void deliver(rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t end, uint32_t *seen)
{
    for (uint64_t step = first; step < end; step++)
        for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++) {
            const uint32_t *ids;
            size_t count;
            assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
            assert_true(count > 0);
            for (size_t i = 0; i < count; i++)
                seen[ids[i]]++;
        }
}

static void make_lengths(uint64_t seed)
{
    rks_random random = {seed};
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + below(&random, 200);
}

/* The sources' shares of what came after the change, and that the least drawn came first. */
static void check_rest(const uint32_t *before, const uint32_t *all, const double *weights)
{
    uint64_t draws[SOURCES] = {0}, rest = 0;
    uint32_t least[SOURCES] = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    double sum = 0;
    for (uint32_t id = 0; id < COUNT; id++) {
        size_t source = source_of(id);
        draws[source] += all[id] - before[id];
        rest += all[id] - before[id];
        least[source] = all[id] < least[source] ? all[id] : least[source];
    }
    for (size_t i = 0; i < SOURCES; i++)
        sum += weights[i];
    for (size_t i = 0; i < SOURCES; i++)
        assert_true(fabs((double)draws[i] - weights[i] / sum * (double)rest) < 1 + 1e-6);
    for (uint32_t id = 0; id < COUNT; id++)
        assert_true(all[id] == before[id] || all[id] <= least[source_of(id)] + 1);
}

static void what_is_left_is_drawn_anew(void **state)
{
    (void)state;
    static const double weights[] = {1, 0, 4};
    uint64_t seed = test_seed(0);
    make_lengths(seed);
    for (unsigned round = 0; round < 60; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t world = ONE_OF(&random, WORLDS);
        rks_plan *plan = plan_of(round, world), *same = plan_of(round, world);
        uint64_t at = rks_random_below(&random, steps_of(plan, 2));
        assert_ok(rks_plan_change(plan, 2, at, weights, SOURCES, 0, &err), &err);
        uint32_t first[COUNT] = {0}, whole[COUNT] = {0}, other[COUNT] = {0}, sum = 0;
        deliver(plan, 2, 0, at, first);
        deliver(same, 2, 0, at, other);
        assert_memory_equal(first, other, sizeof(first));
        memcpy(whole, first, sizeof(whole));
        deliver(plan, 2, at, steps_of(plan, 2), whole);
        for (size_t i = 0; i < COUNT; i++)
            sum += whole[i];
        assert_int_equal(sum, DRAWS);
        check_rest(first, whole, weights);
        assert_int_equal(report_of(plan, 2).samples, DRAWS);
        /* Epochs before it are as they were, later ones have the new weights. */
        assert_string_equal(report_of(plan, 1).digest, report_of(same, 1).digest);
        uint32_t none[COUNT] = {0}, later[COUNT] = {0};
        deliver(plan, 3, 0, steps_of(plan, 3), later);
        check_rest(none, later, weights);
        rks_plan_free(plan);
        rks_plan_free(same);
    }
}

/* Goes on from a state before or after the change, which the state knows if it was made. */
static void states_hold_the_change(void **state)
{
    (void)state;
    static const double weights[] = {2, 7, 1}, others[] = {1, 1, 1};
    uint64_t seed = test_seed(0);
    make_lengths(seed);
    for (unsigned round = 0; round < 120; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t world = ONE_OF(&random, WORLDS), next = ONE_OF(&random, WORLDS);
        rks_plan *plan = plan_of(round, world), *to = plan_of(round, next), *again = NULL;
        uint64_t at = rks_random_below(&random, steps_of(plan, 0)), epoch, step;
        assert_ok(rks_plan_change(plan, 0, at, weights, SOURCES, 0, &err), &err);
        uint64_t steps = steps_of(plan, 0), stop = rks_random_below(&random, steps);
        uint32_t whole[COUNT] = {0}, seen[COUNT] = {0};
        char text[RKS_STATE_MAX];
        deliver(plan, 0, 0, steps, whole);
        deliver(plan, 0, 0, stop, seen);
        assert_ok(rks_plan_state(plan, 0, stop, text, sizeof(text), &err), &err);
        rks_status status = rks_plan_resume(to, text, &epoch, &step, &err);
        if (status == RKS_ERR_DATA) /* too little is left for these ranks */
            goto out;
        assert_ok(status, &err);
        assert_int_equal(step, next == world ? stop : 0);
        if (next == world)
            assert_string_equal(report_of(to, 0).digest, report_of(plan, 0).digest);
        if (stop >= at || next == world) { /* drawn before the stop */
            uint32_t both[COUNT];
            memcpy(both, seen, sizeof(both));
            deliver(to, 0, step, steps_of(to, 0), both);
            assert_memory_equal(both, whole, sizeof(both));
        }
        /* A second change, and a third number of ranks. */
        uint64_t left = steps_of(to, 0) - step, second = step + rks_random_below(&random, left);
        assert_ok(rks_plan_change(to, 0, second, others, SOURCES, 0, &err), &err);
        assert_ok(rks_plan_state(to, 0, second, text, sizeof(text), &err), &err);
        deliver(to, 0, step, second, seen);
        again = plan_of(round, 1);
        status = rks_plan_resume(again, text, &epoch, &step, &err);
        if (status == RKS_ERR_DATA)
            goto out;
        assert_ok(status, &err);
        uint32_t all[COUNT], sum = 0;
        memcpy(all, seen, sizeof(all));
        deliver(again, epoch, step, steps_of(again, epoch), all);
        if (epoch == 0 && second + (next == world ? 0 : stop) >= at) /* no change is to come */
            check_rest(seen, all, others);
        for (size_t i = 0; i < COUNT; i++)
            sum += all[i];
        assert_int_equal(sum, epoch == 0 ? DRAWS : 2 * DRAWS);

    out:
        rks_plan_free(plan);
        rks_plan_free(to);
        rks_plan_free(again);
    }
}

/* Longer samples wait for a change that lets them come. */
static void long_samples_wait(void **state)
{
    (void)state;
    make_lengths(test_seed(0));
    for (unsigned round = 0; round < 10; round++) {
        rks_plan *plan = plan_of(round, 2);
        assert_ok(rks_plan_change(plan, 0, 0, NULL, 0, 100, &err), &err);
        assert_ok(rks_plan_change(plan, 0, 20, NULL, 0, 0, &err), &err);
        uint32_t early[COUNT] = {0}, all[COUNT] = {0}, sum = 0;
        bool comes = false;
        deliver(plan, 0, 0, 20, early);
        deliver(plan, 0, 0, steps_of(plan, 0), all);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(early[i] == 0 || lengths[i] <= 100);
            comes = comes || (lengths[i] > 100 && all[i] > 0);
            sum += all[i];
        }
        assert_true(comes);
        assert_int_equal(sum, DRAWS);
        rks_plan_free(plan);
    }
}

static void wrong_changes_are_refused(void **state)
{
    (void)state;
    double weights[] = {1, 2, 3};
    make_lengths(5);
    rks_plan *plan = plan_of(0, 2), *fresh = plan_of(0, 2), *bare = NULL;
    char text[RKS_STATE_MAX];
    uint64_t epoch, step;
    assert_int_equal(rks_plan_change(plan, 0, 3, weights, 2, 0, &err), RKS_ERR_ARGUMENT);
    assert_string_equal(err.text, "change: 2 weights for 3 sources");
    weights[1] = -1;
    assert_int_equal(rks_plan_change(plan, 0, 3, weights, 3, 0, &err), RKS_ERR_ARGUMENT);
    assert_string_equal(err.text,
                        "change: \"1\" has the weight -1; weights are finite numbers from 0");
    weights[1] = 2;
    lengths[0] = 1; /* of all sources there are samples of 200 at most */
    assert_int_equal(rks_plan_change(plan, 0, 3, (double[]){0, 1, 0}, 3, 0, &err), RKS_OK);
    rks_plan_options options;
    rks_plan_options_default(&options);
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &bare, &err), &err);
    assert_int_equal(rks_plan_change(bare, 0, 0, weights, 3, 0, &err), RKS_ERR_STATE);
    assert_string_equal(err.text, "change: the plan has no weights of sources");

    /* A state without the change that the plan was made with. */
    assert_ok(rks_plan_state(fresh, 0, 5, text, sizeof(text), &err), &err);
    assert_int_equal(rks_plan_resume(plan, text, &epoch, &step, &err), RKS_ERR_STATE);
    assert_string_equal(err.text,
                        "state: changes differ: it has not the plan's change at step 3 of epoch 0; "
                        "make that change after the state is resumed");
    /* Room. */
    rks_plan_report before = report_of(fresh, 4);
    for (uint64_t i = 0; i < RKS_PLAN_CHANGES_MAX; i++)
        assert_ok(rks_plan_change(fresh, 0, i, weights, 3, 0, &err), &err);
    assert_int_equal(rks_plan_change(fresh, 4, 0, weights, 3, 0, &err), RKS_ERR_STATE);
    assert_string_equal(err.text,
                        "change at step 0 of epoch 4: states have room for 64 changes and 6144 "
                        "bytes; 65 of 3 sources take 4732; change less often, or make a new plan "
                        "for the next epoch");
    assert_ok(rks_plan_change(fresh, 0, 7, weights, 3, 0, &err), &err); /* in place of another */
    assert_ok(rks_plan_state(fresh, 0, 5, text, sizeof(text), &err), &err);
    assert_true(before.samples == DRAWS);
    rks_plan_free(plan);
    rks_plan_free(fresh);
    rks_plan_free(bare);
}

/* A plan of bins in two micro-batches. `counts` NULL: its sources have weights. */
static rks_plan *plan_of_micro_batches(const uint32_t *counts)
{
    rks_plan_mix mix;
    rks_plan_mix_default(&mix);
    mix.sources = SOURCES;
    mix.bounds = BOUNDS;
    mix.counts = counts;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 256;
    options.micro_batches = 2;
    options.mix = &mix;
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &options, &plan, &err), &err);
    return plan;
}

/* A plan of bins in micro-batches, or of counts, does not take changes that it cannot make. */
static void wrong_changes_in_states_are_refused(void **state)
{
    (void)state;
    static const uint32_t counts[COUNT] = {3, 2, 1, 2, 3};
    char text[RKS_STATE_MAX];
    uint64_t epoch, step;
    make_lengths(6);
    for (int kind = 0; kind < 2; kind++) {
        rks_plan *plan = plan_of_micro_batches(kind == 0 ? counts : NULL);
        assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
        assert_int_equal(text[strlen(text) - 1], '}');
        strcpy(text + strlen(text) - 1, ", \"changes\": [[0, 1, 4294967295, []]]}");
        assert_int_equal(rks_plan_resume(plan, text, &epoch, &step, &err), RKS_ERR_STATE);
        assert_string_equal(err.text, kind == 0
                                          ? "state: changes: the plan has no weights of sources"
                                          : "state: changes: a step within an optimizer step");
        rks_plan_free(plan);
    }
}

/* The error says why the place cannot be that of a change. */
static void a_place_that_cannot_be_is_refused(void **state)
{
    static const double weights[SOURCES] = {1, 1, 3};
    (void)state;
    make_lengths(6);
    rks_plan *plan = plan_of_micro_batches(NULL);
    assert_ok(rks_plan_change(plan, 0, 2, weights, SOURCES, 0, &err), &err);
    assert_int_equal(rks_plan_change(plan, 0, 3, weights, SOURCES, 0, &err), RKS_ERR_ARGUMENT);
    assert_string_equal(err.text, "change at step 3 of epoch 0: an optimizer step has 2 "
                                  "micro-batches; change at a multiple of that");
    uint64_t has = 0;
    char text[160];
    assert_ok(rks_plan_steps(plan, 1, &has, &err), &err);
    assert_ok(rks_plan_change(plan, 1, has, weights, SOURCES, 0, &err), &err);
    assert_int_equal(rks_plan_change(plan, 1, has + 2, weights, SOURCES, 0, &err),
                     RKS_ERR_ARGUMENT);
    snprintf(text, sizeof(text),
             "change at step %" PRIu64 " of epoch 1: it has %" PRIu64
             " steps; for the epochs after it, give epoch 2, step 0",
             has + 2, has);
    assert_string_equal(err.text, text);
    const uint64_t epochs[] = {UINT64_C(1) << 63, 0}, steps[] = {0, UINT64_C(1) << 32};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rks_plan_change(plan, epochs[i], steps[i], weights, SOURCES, 0, &err),
                         RKS_ERR_ARGUMENT);
        assert_non_null(strstr(err.text, "steps are below 2^32, and epochs below 2^63"));
    }
    rks_plan_free(plan);
}

/* Without weights of its own a change has those before it, also if these change later. */
static void weights_before_a_change_stay_those_before_it(void **state)
{
    (void)state;
    static const double other[SOURCES] = {1, 1, 8};
    make_lengths(test_seed(0));
    for (unsigned round = 0; round < 5; round++) {
        char text[RKS_STATE_MAX];
        uint64_t epoch = 0, step = 0;
        uint32_t world = WORLDS[round % 4];
        rks_plan *late = plan_of(round, world), *given = plan_of(round, world), *again;
        assert_ok(rks_plan_change(late, 0, 8, NULL, 0, 120, &err), &err);
        assert_ok(rks_plan_change(late, 0, 4, other, SOURCES, 0, &err), &err);
        assert_ok(rks_plan_change(given, 0, 4, other, SOURCES, 0, &err), &err);
        assert_ok(rks_plan_change(given, 0, 8, other, SOURCES, 120, &err), &err);
        assert_string_equal(report_of(late, 0).digest, report_of(given, 0).digest);
        /* A state is gone on with by a plan that has the change without weights. */
        assert_ok(rks_plan_state(late, 0, 6, text, sizeof(text), &err), &err);
        again = plan_of(round, world);
        assert_ok(rks_plan_change(again, 0, 8, NULL, 0, 120, &err), &err);
        assert_ok(rks_plan_resume(again, text, &epoch, &step, &err), &err);
        assert_int_equal(step, 6);
        assert_string_equal(report_of(late, 0).digest, report_of(again, 0).digest);
        rks_plan_free(late);
        rks_plan_free(given);
        rks_plan_free(again);
    }
}

/* Epochs of another world have other numbers of steps: the state's place holds. */
static void a_change_counted_from_the_beginning_keeps_its_place(void **state)
{
    (void)state;
    static const double weights[SOURCES] = {0, 1, 0}, others[SOURCES] = {1, 0, 0};
    char text[RKS_STATE_MAX];
    uint64_t epoch = 0, step = 0;
    make_lengths(test_seed(0));
    rks_plan *plan = plan_of(0, 2), *next = plan_of(0, 3), *wrong = plan_of(0, 3);
    uint64_t there = steps_of(plan, 0) + steps_of(plan, 1);
    assert_int_equal(rks_plan_change_after(plan, there + 3, weights, 2, 0, &err), RKS_ERR_ARGUMENT);
    assert_ok(rks_plan_change_after(plan, there + 3, weights, SOURCES, 0, &err), &err);
    assert_ok(rks_plan_change_after(next, there + 3, weights, SOURCES, 0, &err), &err);
    assert_ok(rks_plan_change_after(wrong, there + 3, others, SOURCES, 0, &err), &err);
    assert_ok(rks_plan_state(plan, 2, 3, text, sizeof(text), &err), &err);
    assert_non_null(strstr(text, "[2, 3, "));
    assert_ok(rks_plan_resume(next, text, &epoch, &step, &err), &err);
    assert_true(epoch == 2 && step == 0);
    uint32_t seen[COUNT] = {0};
    deliver(next, 2, 0, steps_of(next, 2), seen);
    for (uint32_t id = 0; id < COUNT; id++)
        assert_true(seen[id] == 0 || source_of(id) == 1);
    assert_int_equal(rks_plan_change_after(next, 1, weights, SOURCES, 0, &err), RKS_ERR_STATE);
    assert_non_null(strstr(err.text, "name the epoch and its step"));
    assert_int_equal(rks_plan_resume(wrong, text, &epoch, &step, &err), RKS_ERR_STATE);
    rks_plan_free(plan);
    rks_plan_free(next);
    rks_plan_free(wrong);
}

/* The place of a plan's last change, from its state. */
static void place_of_last(rks_plan *plan, uint64_t *epoch, uint64_t *step)
{
    char text[RKS_STATE_MAX];
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    const char *list = strstr(text, "\"changes\": [["), *at = list, *next;
    assert_non_null(list);
    while ((next = strstr(at + 1, "]], [")) != NULL)
        at = next + 3;
    at = at == list ? strstr(list, "[[") + 1 : at;
    assert_int_equal(sscanf(at, " [%" SCNu64 ", %" SCNu64, epoch, step), 2);
}

/* a change that is counted over many epochs is where walking over them finds it */
static void a_change_far_away_is_counted(void **state)
{
    static const double weights[SOURCES] = {1, 1, 3}, others[SOURCES] = {2, 1, 1};
    (void)state;
    make_lengths(8);
    for (unsigned round = 0; round < 20; round++) {
        if (round % 5 == 4) /* pack, whose epochs differ */
            continue;
        rks_plan *plan = plan_of(round, WORLDS[round % 4]);
        uint64_t there, left = 1000 + 77 * round, epoch = 0, found, step;
        if (round % 3 > 0) /* in and after an epoch that is on the way */
            assert_ok(rks_plan_change(plan, 3, round % 3 == 1 ? 5 : 0, others, SOURCES, 0, &err),
                      &err);
        for (;; epoch++, left -= there) {
            assert_ok(rks_plan_steps(plan, epoch, &there, &err), &err);
            if (left < there)
                break;
        }
        assert_ok(rks_plan_change_after(plan, 1000 + 77 * round, weights, SOURCES, 0, &err), &err);
        char place[64], text[RKS_STATE_MAX];
        snprintf(place, sizeof(place), "[%" PRIu64 ", %" PRIu64 ", ", epoch, left);
        assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
        assert_non_null(strstr(text, place));
        assert_ok(rks_plan_last_change(plan, &found, &step, &err), &err);
        assert_true(found == epoch && step == left);
        assert_ok(rks_plan_steps(plan, epoch + 1, &there, &err), &err);
        assert_ok(rks_plan_change_after(plan, UINT64_C(1000000000), others, SOURCES, 0, &err),
                  &err);
        place_of_last(plan, &found, &step);
        assert_true(found > epoch);
        uint64_t last_epoch, last_step;
        assert_ok(rks_plan_last_change(plan, &last_epoch, &last_step, &err), &err);
        assert_true(last_epoch == found && last_step == step);
        assert_true(found <= 1000000000 / there + 1 && step < there);
        rks_plan_free(plan);
    }
}

/* where epochs differ in steps, and too many are on the way, the error says what to name instead */
static void a_change_too_far_away_is_refused(void **state)
{
    static const double weights[SOURCES] = {1, 1, 3};
    (void)state;
    make_lengths(9);
    rks_plan *plan = plan_of(4, 2); /* pack */
    assert_ok(rks_plan_change_after(plan, 200, weights, SOURCES, 0, &err), &err);
    assert_int_equal(rks_plan_change_after(plan, UINT64_C(1000000000), weights, SOURCES, 0, &err),
                     RKS_ERR_ARGUMENT);
    assert_non_null(strstr(err.text, "change after 1000000000 steps: about "));
    assert_non_null(strstr(err.text, "each had to be planned; name the epoch and its step"));
    assert_int_equal(rks_plan_change_after(plan, UINT64_MAX, weights, SOURCES, 0, &err),
                     RKS_ERR_ARGUMENT);
    rks_plan_free(plan);
}

/* up to a change, an epoch is the one that has none: its draws are listed in another way there */
static void an_epoch_without_a_change_begins_alike(void **state)
{
    (void)state;
    enum { EPOCH = 1 };
    static const double weights[SOURCES] = {1, 1, 8};
    for (unsigned round = 0; round < 40; round++) {
        make_lengths(round);
        lengths[round] = RKS_LENGTH_ABSENT;
        rks_plan *plan = plan_of(round, 2), *changed = plan_of(round, 2);
        uint64_t steps = 0;
        assert_ok(rks_plan_steps(plan, EPOCH, &steps, &err), &err);
        assert_true(steps > 1);
        assert_ok(rks_plan_change(changed, EPOCH, steps - 1, weights, SOURCES, 0, &err), &err);
        for (uint64_t slot = 0; slot < 2 * (steps - 1); slot++) {
            const uint32_t *ids, *same;
            size_t count, of_same;
            assert_ok(rks_plan_batch(plan, EPOCH, slot / 2, slot % 2, &ids, &count, &err), &err);
            assert_ok(rks_plan_batch(changed, EPOCH, slot / 2, slot % 2, &same, &of_same, &err),
                      &err);
            assert_int_equal(count, of_same);
            assert_memory_equal(ids, same, count * sizeof(*ids));
        }
        rks_plan_free(plan);
        rks_plan_free(changed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_is_drawn_anew),
        cmocka_unit_test(an_epoch_without_a_change_begins_alike),
        cmocka_unit_test(states_hold_the_change),
        cmocka_unit_test(long_samples_wait),
        cmocka_unit_test(weights_before_a_change_stay_those_before_it),
        cmocka_unit_test(a_change_counted_from_the_beginning_keeps_its_place),
        cmocka_unit_test(a_change_far_away_is_counted),
        cmocka_unit_test(a_place_that_cannot_be_is_refused),
        cmocka_unit_test(a_change_too_far_away_is_refused),
        cmocka_unit_test(wrong_changes_are_refused),
        cmocka_unit_test(wrong_changes_in_states_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
