/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_pieces.c: too_long "split": samples in pieces, each item once. */
#include "plans.h"

#include "base/memory_usage.h"

enum { ROUNDS = 600, SAMPLES_MAX = 200, WORLDS = 4 };

/* Where the items of each sample begin in one row of all. */
typedef struct cover {
    const uint32_t *lengths;
    uint64_t count, items, deliveries;
    uint64_t *starts;
    uint8_t *seen;
} cover;

static void cover_begin(cover *c, const uint32_t *lengths, uint64_t count)
{
    *c = (cover){.lengths = lengths, .count = count};
    c->starts = calloc(count + 1, sizeof(*c->starts));
    assert_non_null(c->starts);
    for (uint64_t i = 0; i < count; i++)
        c->starts[i + 1] = c->starts[i] + lengths[i] + 1; /* an empty sample counts, too */
    c->items = c->starts[count];
    c->seen = calloc(c->items + 1, 1);
    assert_non_null(c->seen);
}

static void cover_end(cover *c)
{
    free(c->starts);
    free(c->seen);
}

/* Takes in a batch. What lies after a sample's items stands for its end. */
static void cover_batch(cover *c, rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                        uint32_t limit)
{
    const uint32_t *ids;
    const rks_piece *piece;
    size_t count, pieces, at = 0;
    assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
    assert_ok(rks_plan_pieces(plan, epoch, step, rank, &piece, &pieces, &err), &err);
    for (size_t i = 0; i < count; i++, c->deliveries++) {
        assert_true(ids[i] < c->count);
        uint32_t start = 0, size = c->lengths[ids[i]];
        if (at < pieces && piece[at].place == i) {
            assert_true(size > limit);
            start = piece[at].start;
            size = piece[at++].count;
            assert_true(start % limit == 0 && size > 0);
            assert_true((uint64_t)start + size <= c->lengths[ids[i]]);
            assert_true(size == limit || start + size == c->lengths[ids[i]]);
        }
        assert_true(size <= limit);
        uint8_t *seen = c->seen + c->starts[ids[i]];
        for (uint32_t k = start; k < start + size; k++)
            seen[k]++;
        if (start + size == c->lengths[ids[i]])
            seen[start + size]++;
    }
    assert_int_equal(at, pieces);
}

static void cover_steps(cover *c, rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t end,
                        uint32_t limit)
{
    for (uint64_t step = first; step < end; step++)
        for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++)
            cover_batch(c, plan, epoch, step, rank, limit);
}

static void assert_once(const cover *c)
{
    for (uint64_t i = 0; i < c->items; i++)
        assert_int_equal(c->seen[i], 1);
}

static void a_sample_above_the_capacity_comes_in_pieces(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {10, 3, 25, 0, 11};
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "pack";
    options.capacity = 10;
    options.too_long = "split";
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, 5, NULL, &options, &plan, &err), &err);
    cover c;
    cover_begin(&c, lengths, 5);
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, 7, &steps, &err), &err);
    assert_int_equal(steps, 5); /* 49 items and an empty sample, which takes room for one */
    cover_steps(&c, plan, 7, 0, steps, 10);
    assert_once(&c);
    rks_plan_report report = report_of(plan, 7);
    assert_int_equal(report.pieces, 5);
    assert_int_equal(report.samples, 8);
    assert_int_equal(report.tokens, 49);
    assert_int_equal(report.largest_batch, 10);
    assert_int_equal(report.dropped + report.truncated + report.repeated, 0);
    cover_end(&c);
    rks_plan_free(plan);
}

static void pieces_of_a_sequential_plan_follow_each_other(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {2, 9, 1};
    static const rks_piece expected[] = {{1, 0, 4}, {2, 4, 4}, {3, 8, 1}};
    const uint32_t *ids;
    const rks_piece *pieces;
    size_t count;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "sequential";
    options.max_length = 4;
    options.too_long = "split";
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, 3, NULL, &options, &plan, &err), &err);
    assert_ok(rks_plan_batch(plan, 0, 0, 0, &ids, &count, &err), &err);
    assert_int_equal(count, 5);
    assert_true(ids[0] == 0 && ids[1] == 1 && ids[2] == 1 && ids[3] == 1 && ids[4] == 2);
    assert_ok(rks_plan_pieces(plan, 0, 0, 0, &pieces, &count, &err), &err);
    assert_int_equal(count, 3);
    assert_memory_equal(pieces, expected, sizeof(expected));
    assert_fails(RKS_ERR_ARGUMENT, rks_plan_pieces(plan, 0, 1, 0, &pieces, &count, &err));
    rks_plan_free(plan);
}

/* ---- as a plan over the lengths of pieces ------------------------------------------------------
 */

/* The plan of the same pieces as samples: where they stand is where the planner looks at them. */
typedef struct expanded {
    uint32_t *lengths;
    uint32_t *ids; /* the sample that each is of */
    rks_piece *pieces;
    uint32_t *costs; /* their parts of what their samples cost */
    uint64_t count;
} expanded;

static void add(expanded *e, uint32_t length, uint32_t id, uint32_t start)
{
    e->lengths[e->count] = length;
    e->ids[e->count] = id;
    e->pieces[e->count++] = (rks_piece){.start = start, .count = length};
}

static void add_pieces(expanded *e, const uint32_t *lengths, uint32_t id, uint32_t limit)
{
    for (uint32_t start = 0; start < lengths[id]; start += limit)
        add(e, lengths[id] - start < limit ? lengths[id] - start : limit, id, start);
}

/* A cost of each sample, and of each piece its part by its items: together they are the whole. */
static void add_costs(expanded *e, const uint32_t *lengths, uint64_t count, const uint32_t *costs)
{
    uint64_t sum = 0, parts = 0;
    e->costs = calloc(e->count + 1, sizeof(*e->costs));
    assert_non_null(e->costs);
    for (uint64_t i = 0; i < e->count; i++) {
        uint64_t start = e->pieces[i].start, end = start + e->pieces[i].count, id = e->ids[i];
        if (e->lengths[i] == RKS_LENGTH_ABSENT)
            continue;
        e->costs[i] =
            end == 0 ? costs[id]
                     : (uint32_t)(costs[id] * end / lengths[id] - costs[id] * start / lengths[id]);
        parts += e->costs[i];
    }
    for (uint64_t i = 0; i < count; i++)
        sum += costs[i];
    assert_int_equal(sum, parts);
}

/* `behind`: pieces stand after all samples, and a cut one's own place is empty. */
static void expand(expanded *e, const uint32_t *lengths, uint32_t count, uint32_t limit,
                   bool behind)
{
    uint64_t room = count;
    for (uint32_t i = 0; i < count; i++)
        room += lengths[i] / limit + 1;
    *e = (expanded){.lengths = calloc(room, sizeof(*e->lengths)),
                    .ids = calloc(room, sizeof(*e->ids)),
                    .pieces = calloc(room, sizeof(*e->pieces))};
    assert_true(e->lengths != NULL && e->ids != NULL && e->pieces != NULL);
    for (uint32_t i = 0; i < count; i++) {
        if (lengths[i] <= limit)
            add(e, lengths[i], i, 0);
        else if (behind)
            add(e, RKS_LENGTH_ABSENT, i, 0);
        else
            add_pieces(e, lengths, i, limit);
    }
    for (uint32_t i = 0; behind && i < count; i++)
        if (lengths[i] > limit)
            add_pieces(e, lengths, i, limit);
}

static void compare_batch(rks_plan *plan, rks_plan *other, const expanded *e,
                          const uint32_t *lengths, uint64_t step, uint32_t rank)
{
    const uint32_t *ids, *expected;
    const rks_piece *piece;
    size_t count, expected_count, pieces, at = 0;
    assert_ok(rks_plan_batch(plan, 2, step, rank, &ids, &count, &err), &err);
    assert_ok(rks_plan_pieces(plan, 2, step, rank, &piece, &pieces, &err), &err);
    assert_ok(rks_plan_batch(other, 2, step, rank, &expected, &expected_count, &err), &err);
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ids[i], e->ids[expected[i]]);
        if (e->pieces[expected[i]].count == lengths[ids[i]])
            continue;
        assert_true(at < pieces && piece[at].place == i);
        assert_int_equal(piece[at].start, e->pieces[expected[i]].start);
        assert_int_equal(piece[at++].count, e->pieces[expected[i]].count);
    }
    assert_int_equal(at, pieces);
}

static void compare_reports(rks_plan *plan, rks_plan *other)
{
    rks_plan_report one = report_of(plan, 2), two = report_of(other, 2);
    assert_int_equal(one.samples, two.samples);
    assert_int_equal(one.repeated, two.repeated);
    assert_int_equal(one.tokens, two.tokens);
    assert_int_equal(one.padded_tokens, two.padded_tokens);
    assert_int_equal(one.largest_batch, two.largest_batch);
    assert_int_equal(one.bins, two.bins);
    assert_true(one.balance == two.balance && one.fill == two.fill);
    assert_int_equal(two.pieces, 0);
}

static void random_split_options(rks_random *random, rks_plan_options *options, uint32_t *limit)
{
    random_options(random, options);
    if (below(random, 2) == 0) {
        options->strategy = "pack";
        options->steps = "constant";
        options->batch_multiple = 1;
        options->max_tokens = 0;
        options->length_multiple = 1 + below(random, 3);
        options->capacity = options->length_multiple * (1 + below(random, 400));
        options->pack_window = below(random, 3) == 0 ? 1 + below(random, 20) : 0;
    }
    options->too_long = "split";
    rks_expected expected = expect_of(NULL, 0, options);
    if (options->capacity != 0 && options->capacity < expected.limit)
        expected.limit = options->capacity;
    *limit = expected.limit;
}

static void a_plan_of_pieces_is_as_one_of_samples_that_are_as_long(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    unsigned compared = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t count = 1 + below(&random, SAMPLES_MAX), limit;
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        random_split_options(&random, &options, &limit);
        bool sorts =
            !option_is(options.strategy, "random") && !option_is(options.strategy, "sequential");
        bool exact = sorts || option_is(options.strategy, "sequential") ||
                     options.max_tokens == 0 || option_is(options.steps, "per_epoch");
        for (uint32_t i = 0; limit < 30 && i < count; i++)
            lengths[i] %= 2000; /* not all too many pieces */
        expanded e;
        expand(&e, lengths, count, limit, sorts);
        uint32_t *costs = calloc(count, sizeof(*costs));
        assert_non_null(costs);
        for (uint32_t i = 0; i < count; i++)
            costs[i] = below(&random, 2) == 0 ? below(&random, 50) : UINT32_MAX - below(&random, 9);
        add_costs(&e, lengths, count, costs);
        bool balances = round % 3 == 0;
        options.balance = balances ? costs : NULL;
        rks_plan *plan = NULL, *other = NULL;
        rks_status one = rks_plan_create(lengths, count, NULL, &options, &plan, &err);
        options.too_long = "drop";
        options.balance = balances ? e.costs : NULL;
        rks_status two = rks_plan_create(e.lengths, e.count, NULL, &options, &other, &err);
        assert_true(one == two || !exact);
        uint64_t steps = 0, others = 0;
        if (one == RKS_OK && exact && rks_plan_steps(plan, 2, &steps, &err) == RKS_OK) {
            assert_ok(rks_plan_steps(other, 2, &others, &err), &err);
            assert_int_equal(steps, others);
            for (uint64_t step = 0; step < steps; step++)
                for (uint32_t rank = 0; rank < options.world; rank++)
                    compare_batch(plan, other, &e, lengths, step, rank);
            compare_reports(plan, other);
            compared += steps > 0;
        } else if (one == RKS_OK && !exact && !option_is(options.tail, "drop") &&
                   !option_is(options.tail, "repeat")) {
            cover c;
            cover_begin(&c, lengths, count);
            assert_ok(rks_plan_steps(plan, 2, &steps, &err), &err);
            cover_steps(&c, plan, 2, 0, steps, limit);
            assert_once(&c);
            cover_end(&c);
        }
        rks_plan_free(plan);
        rks_plan_free(other);
        free(e.lengths);
        free(e.ids);
        free(e.pieces);
        free(e.costs);
        free(costs);
        free(lengths);
    }
    assert_true(compared > ROUNDS / 3);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

/* ---- states ------------------------------------------------------------------------------------
 */

static void each_piece_comes_once_also_if_the_world_changes(void **state)
{
    (void)state;
    static const uint32_t worlds[WORLDS] = {1, 2, 3, 8};
    static const char *const strategies[] = {"pack", "bucket", "sorted", "random", "sequential"};
    uint64_t seed = test_seed(0);
    unsigned changes = 0;
    for (unsigned round = 0; round < 60; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint32_t count = 80 + below(&random, 60), limit = 20 + below(&random, 80);
        uint32_t *lengths = calloc(count, sizeof(*lengths));
        assert_non_null(lengths);
        for (uint32_t i = 0; i < count; i++)
            lengths[i] = below(&random, 6) == 0 ? below(&random, 700) : 1 + below(&random, 60);
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = strategies[round % 5];
        options.too_long = "split";
        options.seed = round;
        if (round % 5 == 0)
            options.capacity = limit;
        else
            options.max_tokens = limit;
        cover c;
        cover_begin(&c, lengths, count);
        char text[RKS_STATE_MAX] = "";
        uint64_t epoch = 3, step = 0, steps;
        for (unsigned part = 0; epoch == 3 && part < 4; part++) {
            rks_plan *plan = NULL; /* stays so if it cannot be made */
            options.world = worlds[(round + part * (1 + round % 3)) % WORLDS];
            rks_status status = rks_plan_create(lengths, count, NULL, &options, &plan, &err);
            if (status == RKS_OK && part > 0)
                status = rks_plan_resume(plan, text, &epoch, &step, &err);
            if (status == RKS_ERR_DATA) {
                /* nothing can even out batches of one piece: one rank takes what is left */
                rks_plan_free(plan);
                plan = NULL;
                options.world = 1;
                assert_ok(rks_plan_create(lengths, count, NULL, &options, &plan, &err), &err);
                if (part > 0)
                    assert_ok(rks_plan_resume(plan, text, &epoch, &step, &err), &err);
            } else {
                assert_ok(status, &err);
                changes += part > 0 && epoch == 3;
            }
            assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
            uint64_t end = part == 3 ? steps : step + (steps - step) / 2;
            cover_steps(&c, plan, 3, step, epoch == 3 ? end : step, limit);
            assert_ok(rks_plan_state(plan, epoch, end, text, sizeof(text), &err), &err);
            rks_plan_free(plan);
        }
        assert_once(&c);
        cover_end(&c);
        free(lengths);
    }
    assert_true(changes > 60);
}

static void a_state_of_whole_samples_is_no_state_of_pieces(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {2, 9, 1};
    char text[RKS_STATE_MAX];
    uint64_t epoch, step;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.max_length = 4;
    options.too_long = "truncate";
    rks_plan *plan = NULL, *other = NULL;
    assert_ok(rks_plan_create(lengths, 3, NULL, &options, &plan, &err), &err);
    options.too_long = "split";
    assert_ok(rks_plan_create(lengths, 3, NULL, &options, &other, &err), &err);
    assert_ok(rks_plan_state(plan, 0, 0, text, sizeof(text), &err), &err);
    assert_fails(RKS_ERR_STATE, rks_plan_resume(other, text, &epoch, &step, &err));
    assert_non_null(strstr(err.text, "too_long is truncate in the state, split in this plan"));
    rks_plan_free(plan);
    rks_plan_free(other);
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void samples_that_are_not_cut_cost_nothing(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    uint32_t *lengths = calloc(MANY, sizeof(*lengths));
    assert_non_null(lengths);
    for (uint32_t i = 0; i < MANY; i++)
        lengths[i] = 1 + i % 50;
    lengths[77] = 1000;
    uint64_t used[2];
    const uint32_t *ids;
    size_t count;
    for (int split = 0; split < 2; split++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = "pack";
        options.capacity = 100;
        options.too_long = split ? "split" : "truncate";
        rks_plan *plan = NULL;
        assert_ok(rks_plan_create(lengths, MANY, NULL, &options, &plan, &err), &err);
        assert_ok(rks_plan_batch(plan, 0, 0, 0, &ids, &count, &err), &err);
        used[split] = counted_memory();
        rks_plan_free(plan);
    }
    assert_true(used[1] < used[0] + 4 * MANY / 100);
    free(lengths);
    assert_int_equal(counted_memory(), 0);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {10, 3, 250, 0, 11, 4, 8};
    static const char *const strategies[] = {"pack", "sorted", "random"};
    rks_plan_options options;
    for (int i = 0; i < 3; i++) {
        rks_plan_options_default(&options);
        options.strategy = strategies[i];
        options.too_long = "split";
        options.capacity = i == 0 ? 10 : 0;
        options.max_tokens = i == 0 ? 0 : 10;
        rks_status status = RKS_ERR_MEMORY;
        for (int nth = 1; status != RKS_OK; nth++) {
            rks_plan *plan = NULL;
            const uint32_t *ids;
            size_t count;
            rks_memory_fail_at(nth);
            status = rks_plan_create(lengths, 7, NULL, &options, &plan, &err);
            if (status == RKS_OK)
                status = rks_plan_batch(plan, 1, 0, 0, &ids, &count, &err);
            rks_memory_fail_at(0);
            assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
            rks_plan_free(plan);
            assert_int_equal(rks_memory_in_use(), 0);
            assert_int_equal(counted_memory(), 0);
        }
    }
}

static void more_pieces_than_ids_are_refused(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {UINT32_MAX - 1, 1, 1};
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.max_length = 1;
    options.too_long = "split";
    rks_plan *plan = NULL;
    assert_fails(RKS_ERR_UNSUPPORTED, rks_plan_create(lengths, 3, NULL, &options, &plan, &err));
    assert_non_null(strstr(err.text, "too_long=split makes 2^32 samples and pieces or more of "
                                     "max_length 1; make that larger"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sample_above_the_capacity_comes_in_pieces),
        cmocka_unit_test(pieces_of_a_sequential_plan_follow_each_other),
        cmocka_unit_test(a_plan_of_pieces_is_as_one_of_samples_that_are_as_long),
        cmocka_unit_test(each_piece_comes_once_also_if_the_world_changes),
        cmocka_unit_test(a_state_of_whole_samples_is_no_state_of_pieces),
        cmocka_unit_test(samples_that_are_not_cut_cost_nothing),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(more_pieces_than_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
