/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_mix_pieces.c: a mix of samples that are cut into pieces: every item of a sample comes
 * once in each of its draws, also if weights or ranks change on the way. */
#include "plans.h"

#include "base/memory_usage.h"
#include "rankstore/mix.h"

enum { SOURCES = 3, COUNT = 150, LIMIT = 40, LONGEST = 200, DRAWS = 400 };

static const uint64_t BOUNDS[SOURCES + 1] = {0, 20, 70, COUNT};
static const double WEIGHTS[SOURCES] = {5, 3, 2};
static const uint32_t WORLDS[] = {1, 2, 3, 5};
static const char *const STRATEGIES[] = {"random", "bucket", "sorted", "sequential", "pack"};

static uint32_t lengths[COUNT];

/* How often each item of each sample came, and the end of each, for empty ones. */
typedef uint16_t items[COUNT][LONGEST + 1];

static void make_lengths(uint64_t seed)
{
    rks_random random = {seed};
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = below(&random, 3) == 0 ? below(&random, LONGEST + 1) : below(&random, LIMIT);
}

typedef struct kind {
    rks_plan_mix mix;
    rks_plan_options options;
    uint32_t counts[COUNT];
    double odds[COUNT];
} kind;

/* By `round`: a strategy, and weights of sources or samples. */
static void make_kind(kind *k, unsigned round, const char *too_long)
{
    rks_random random = {round};
    for (size_t i = 0; i < COUNT; i++) {
        k->counts[i] = below(&random, 4);
        k->odds[i] = below(&random, 9);
    }
    rks_plan_mix_default(&k->mix);
    k->mix.sources = SOURCES;
    k->mix.bounds = BOUNDS;
    k->mix.samples = DRAWS;
    switch (round / 5 % 4) {
    case 0:
    case 1:
        k->mix.weights = WEIGHTS;
        k->mix.tokens = round / 5 % 4 == 1;
        break;
    case 2:
        k->mix.counts = k->counts;
        k->mix.samples = 0;
        break;
    default:
        k->mix.odds = k->odds;
        break;
    }
    rks_plan_options *options = &k->options;
    rks_plan_options_default(options);
    options->strategy = STRATEGIES[round % 5];
    options->too_long = too_long;
    options->seed = round;
    options->mix = &k->mix;
    if (round % 5 == 4) {
        options->capacity = LIMIT;
        options->pack_window = round / 5 % 3 == 2 ? 5 : 0;
    } else if (round % 2 == 0) {
        options->max_tokens = 4 * LIMIT;
        options->max_length = LIMIT;
    } else {
        options->max_length = LIMIT;
        options->batch_size = 1 + round % 4;
    }
    if (round % 7 == 0)
        options->order = "longest_first";
}

static rks_plan *plan_of(kind *k, uint32_t world)
{
    rks_plan *plan = NULL;
    k->options.world = world;
    assert_ok(rks_plan_create(lengths, COUNT, NULL, &k->options, &plan, &err), &err);
    return plan;
}

static void deliver(rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t end, items seen)
{
    const uint32_t *ids;
    const rks_piece *piece;
    size_t count, pieces;
    for (uint64_t step = first; step < end; step++)
        for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++) {
            assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
            assert_ok(rks_plan_pieces(plan, epoch, step, rank, &piece, &pieces, &err), &err);
            assert_true(count > 0);
            size_t at = 0;
            for (size_t i = 0; i < count; i++) {
                uint32_t id = ids[i], start = 0, size = lengths[id];
                if (at < pieces && piece[at].place == i) {
                    start = piece[at].start;
                    size = piece[at++].count;
                }
                assert_true(size <= LIMIT && start + size <= lengths[id]);
                for (uint32_t k = start; k < start + size + (start + size == lengths[id]); k++)
                    seen[id][k]++;
            }
            assert_int_equal(at, pieces);
        }
}

/* All items of a sample came as often as its end did; returns the draws of all. */
static uint64_t check_whole(items seen)
{
    uint64_t draws = 0;
    for (size_t id = 0; id < COUNT; id++) {
        for (uint32_t k = 0; k < lengths[id]; k++)
            assert_int_equal(seen[id][k], seen[id][lengths[id]]);
        draws += seen[id][lengths[id]];
    }
    return draws;
}

/* The draws are those of a plan that cuts nothing into pieces. */
static void each_draw_brings_every_item_once(void **state)
{
    (void)state;
    static items seen;
    make_lengths(test_seed(0));
    for (unsigned round = 0; round < 60; round++) {
        kind k, other;
        make_kind(&k, round, "split");
        make_kind(&other, round, "truncate");
        if (k.mix.tokens) /* truncated samples have fewer */
            other.mix.weights = k.mix.weights = NULL;
        rks_plan *plan = plan_of(&k, WORLDS[round % 4]), *whole = plan_of(&other, 1);
        uint32_t drawn[COUNT] = {0};
        uint64_t steps = steps_of(whole, 1), tokens = 0, draws = 0, pieces = 0, distinct = 0;
        const uint32_t *ids;
        size_t count;
        for (uint64_t step = 0; step < steps; step++) {
            assert_ok(rks_plan_batch(whole, 1, step, 0, &ids, &count, &err), &err);
            for (size_t i = 0; i < count; i++)
                drawn[ids[i]]++;
        }
        memset(seen, 0, sizeof(seen));
        deliver(plan, 1, 0, steps_of(plan, 1), seen);
        check_whole(seen);
        for (size_t id = 0; id < COUNT; id++) {
            uint32_t parts = lengths[id] <= LIMIT ? 1 : (lengths[id] + LIMIT - 1) / LIMIT;
            assert_int_equal(seen[id][lengths[id]], drawn[id]);
            tokens += (uint64_t)drawn[id] * lengths[id];
            draws += (uint64_t)drawn[id] * parts;
            pieces += parts > 1 ? (uint64_t)drawn[id] * parts : 0;
            distinct += drawn[id] > 0 ? parts : 0;
        }
        rks_plan_report report = report_of(plan, 1);
        assert_int_equal(report.samples, draws);
        assert_int_equal(report.pieces, pieces);
        assert_int_equal(report.tokens, tokens);
        assert_int_equal(report.repeated, draws - distinct);
        assert_int_equal(report.dropped, 0);
        rks_plan_free(plan);
        rks_plan_free(whole);
    }
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void sources_count_draws_and_not_pieces(void **state)
{
    (void)state;
    make_lengths(test_seed(0));
    for (unsigned round = 0; round < 10; round++) {
        kind k, other;
        make_kind(&k, round, "split");
        make_kind(&other, round, "split");
        other.options.max_length = 0; /* nothing is cut */
        other.options.max_tokens = 0;
        other.options.capacity = round % 5 == 4 ? LONGEST : 0;
        rks_plan *plan = plan_of(&k, 2), *uncut = plan_of(&other, 2);
        rks_plan_source list[SOURCES] = {{.struct_size = sizeof(*list)}};
        rks_plan_source expected[SOURCES] = {{.struct_size = sizeof(*expected)}};
        size_t count;
        assert_ok(rks_plan_sources(plan, 0, list, SOURCES, &count, &err), &err);
        assert_ok(rks_plan_sources(uncut, 0, expected, SOURCES, &count, &err), &err);
        for (size_t i = 0; i < SOURCES; i++) {
            assert_int_equal(list[i].draws, expected[i].draws);
            assert_int_equal(list[i].tokens, expected[i].tokens);
            assert_int_equal(list[i].samples, expected[i].samples);
            assert_int_equal(list[i].distinct, expected[i].distinct);
            assert_true(list[i].deviation >= 0 && list[i].deviation <= 1);
        }
        rks_plan_free(plan);
        rks_plan_free(uncut);
    }
}

/* Through changes of weights and of ranks, in the middle of draws. */
static void a_draw_that_was_begun_is_ended_after_a_change(void **state)
{
    (void)state;
    static const double others[SOURCES] = {1, 0, 4};
    static items seen;
    unsigned changed = 0, left_open = 0;
    uint64_t seed = test_seed(0);
    make_lengths(seed);
    for (unsigned round = 0; round < 80; round++) {
        rks_random random = {rks_random_key(seed, round)};
        kind k;
        make_kind(&k, round, "split");
        bool changes = k.mix.weights != NULL;
        uint32_t world = ONE_OF(&random, WORLDS), next = ONE_OF(&random, WORLDS);
        rks_plan *plan = plan_of(&k, world), *to = plan_of(&k, next);
        uint64_t steps = steps_of(plan, 0), at = 1 + rks_random_below(&random, steps - 1);
        if (changes)
            assert_ok(
                rks_plan_change(plan, 0, at, others, SOURCES, round % 3 == 0 ? LIMIT : 0, &err),
                &err);
        rks_status status = rks_plan_steps(plan, 0, &steps, &err);
        if (status == RKS_ERR_DATA) { /* too little is left behind the change for these ranks */
            rks_plan_free(plan);
            rks_plan_free(to);
            continue;
        }
        assert_ok(status, &err);
        memset(seen, 0, sizeof(seen));
        deliver(plan, 0, 0, at < steps ? at : steps, seen);
        for (size_t id = 0; id < COUNT; id++)
            left_open += seen[id][0] != seen[id][lengths[id]];
        memset(seen, 0, sizeof(seen));
        uint64_t stop = rks_random_below(&random, steps), epoch, step;
        char text[RKS_STATE_MAX];
        deliver(plan, 0, 0, stop, seen);
        assert_ok(rks_plan_state(plan, 0, stop, text, sizeof(text), &err), &err);
        status = rks_plan_resume(to, text, &epoch, &step, &err);
        if (status == RKS_OK && epoch == 0) {
            deliver(to, 0, step, steps_of(to, 0), seen);
            changed += world != next;
        } else { /* too little is left for these ranks */
            assert_true(status == RKS_ERR_DATA || epoch == 1);
            deliver(plan, 0, stop, steps, seen);
        }
        uint64_t draws = check_whole(seen);
        if (k.mix.counts == NULL)
            assert_int_equal(draws, DRAWS);
        for (size_t id = 0; id < COUNT && k.mix.counts != NULL; id++)
            assert_int_equal(seen[id][0], k.counts[id]);
        rks_plan_free(plan);
        rks_plan_free(to);
    }
    assert_true(changed > 20 && left_open > 100);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void more_draws_of_pieces_than_ids_are_refused(void **state)
{
    (void)state;
    static const uint32_t one_length[] = {1u << 20};
    static const uint64_t bounds[] = {0, 1};
    rks_plan_mix mix;
    rks_plan_options options;
    rks_plan *plan = NULL;
    rks_plan_mix_default(&mix);
    mix.sources = 1;
    mix.bounds = bounds;
    mix.samples = 1u << 13;
    rks_plan_options_default(&options);
    options.max_length = 2;
    options.too_long = "split";
    options.mix = &mix;
    assert_fails(RKS_ERR_UNSUPPORTED, rks_plan_create(one_length, 1, NULL, &options, &plan, &err));
    assert_string_equal(
        err.text, "mix: 8192 draws are 4294967296 samples and pieces of max_length 2; an epoch "
                  "has at most 2^32 - 1: set samples lower, or max_length higher");
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    make_lengths(5);
    for (unsigned round = 0; round < 20; round++) {
        kind k;
        make_kind(&k, round, "split");
        k.options.world = 2;
        rks_status status = RKS_ERR_MEMORY;
        for (unsigned nth = 1; status == RKS_ERR_MEMORY; nth++) {
            rks_plan *plan = NULL;
            rks_memory_fail_at(nth);
            status = rks_plan_create(lengths, COUNT, NULL, &k.options, &plan, &err);
            if (status == RKS_OK) {
                rks_plan_report report = {.struct_size = sizeof(report)};
                status = rks_plan_report_get(plan, 1, &report, &err);
            }
            rks_plan_free(plan);
            rks_memory_fail_at(0);
            assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
            assert_int_equal(rks_memory_in_use(), 0);
            assert_int_equal(counted_memory(), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_draw_brings_every_item_once),
        cmocka_unit_test(sources_count_draws_and_not_pieces),
        cmocka_unit_test(a_draw_that_was_begun_is_ended_after_a_change),
        cmocka_unit_test(more_draws_of_pieces_than_ids_are_refused),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("plan_mix_pieces", tests, NULL, NULL);
}
