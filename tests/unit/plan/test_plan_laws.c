/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_laws.c: what each plan keeps, over random lengths and options. */
#include "plans.h"
#include "plan/strategy.h"
#include "strategy_shuffled.h"

enum { ROUNDS = 1500, SAMPLES_MAX = 400 };

/* A refusal must have its reason: too few samples for the world, or no batch that can be split. */
static void check_refusal(rks_status status, const rks_expected *expected)
{
    assert_int_equal(status, RKS_ERR_DATA);
    const rks_plan_options *options = expected->options;
    uint64_t kept = kept_of(expected);
    if (option_is(options->tail, "repeat"))
        assert_true(kept == 0);
    else if (option_is(options->tail, "split") && kept >= 2 * options->world)
        /* only where batches of one sample cannot be helped */
        assert_true(options->max_tokens != 0 || options->batch_size == 1 ||
                    option_is(options->too_long, "alone"));
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The largest of `count` numbers that are `stride` apart. */
static uint64_t largest_of(const uint64_t *numbers, uint64_t count, uint64_t stride)
{
    uint64_t largest = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = numbers[i * stride] > largest ? numbers[i * stride] : largest;
    return largest;
}

/* Compares what the report says of batches' padded tokens with a walk over all batches. */
static void check_spread(rks_plan *plan, const rks_expected *expected, uint64_t epoch,
                         const rks_plan_report *report)
{
    uint64_t world = rks_plan_world(plan), count = report->batches, sum = 0;
    uint64_t *padded = calloc(count, sizeof(*padded));
    assert_non_null(padded);
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t *ids;
        size_t size;
        assert_ok(rks_plan_batch(plan, epoch, i / world, (uint32_t)(i % world), &ids, &size, &err),
                  &err);
        padded[i] = items_of(expected, ids, size);
        sum += padded[i];
    }
    assert_int_equal(report->padded_tokens, sum);
    uint64_t largest = largest_of(padded, count, 1), of_ranks = UINT64_MAX, of_steps = UINT64_MAX;
    uint64_t at = report->largest_batch_step * world + report->largest_batch_rank;
    assert_int_equal(report->largest_batch, largest);
    assert_true(report->largest_batch_rank < world && at < count && padded[at] == largest);
    assert_true(at == 0 || largest_of(padded, at, 1) < largest || largest == 0); /* the first */
    for (uint64_t rank = 0; rank < world; rank++) {
        uint64_t of_rank = largest_of(padded + rank, count / world, world);
        of_ranks = of_rank < of_ranks ? of_rank : of_ranks;
    }
    for (uint64_t step = 0; step < count / world; step++) {
        uint64_t of_step = largest_of(padded + step * world, world, 1);
        of_steps = of_step < of_steps ? of_step : of_steps;
    }
    assert_int_equal(report->least_largest_of_ranks, of_ranks);
    assert_int_equal(report->least_largest_of_steps, of_steps);
    qsort(padded, count, sizeof(*padded), by_size);
    assert_int_equal(report->smallest_batch, padded[0]);
    assert_int_equal(report->median_batch, padded[(count + 1) / 2 - 1]);
    assert_int_equal(report->p95_batch, padded[(count * 19 + 19) / 20 - 1]);
    free(padded);
}

static void check_epoch(rks_plan *plan, const rks_expected *expected, uint64_t epoch)
{
    const rks_plan_options *options = expected->options;
    uint32_t *seen = calloc(expected->count, sizeof(*seen));
    assert_non_null(seen);
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
    assert_true(steps > 0);
    check_steps(plan, expected, epoch, 0, steps, seen);

    deliveries came = check_deliveries(expected, seen);
    rks_plan_report report = report_of(plan, epoch);
    assert_int_equal(report.samples, came.all);
    assert_int_equal(report.repeated, came.repeated);
    assert_int_equal(report.dropped, came.missing);
    assert_int_equal(report.steps, steps);
    assert_int_equal(report.batches, steps * options->world);
    assert_true(report.tokens <= report.padded_tokens);
    assert_true(report.balance > 0 && report.balance <= 1.0000001);
    check_spread(plan, expected, epoch, &report);
    free(seen);
}

static void every_random_plan_keeps_the_laws(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    unsigned plans = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 1 + below(&random, SAMPLES_MAX);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        random_options(&random, &options);
        rks_expected expected = expect_of(lengths, count, &options);
        rks_plan *plan = NULL;
        rks_status status = rks_plan_create(lengths, count, NULL, &options, &plan, &err);
        if (status != RKS_OK) {
            check_refusal(status, &expected);
            free(lengths);
            continue;
        }
        plans++;
        bool per_epoch = option_is(options.steps, "per_epoch");
        uint64_t steps0, steps1;
        assert_ok(rks_plan_steps(plan, 0, &steps0, &err), &err);
        uint64_t epoch = rks_random_next(&random);
        if (!per_epoch) {
            assert_ok(rks_plan_steps(plan, epoch, &steps1, &err), &err);
            assert_int_equal(steps0, steps1);
        }
        check_epoch(plan, &expected, 0);
        status = rks_plan_steps(plan, epoch, &steps1, &err);
        if (status == RKS_OK)
            check_epoch(plan, &expected, epoch);
        else
            assert_true(per_epoch);
        if (options.no_shuffle)
            assert_string_equal(report_of(plan, 0).digest, report_of(plan, epoch).digest);
        rks_plan_free(plan);
        free(lengths);
    }
    assert_true(plans > ROUNDS / 2);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

static void a_plan_is_the_same_whatever_was_asked_before(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 150; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 20 + below(&random, SAMPLES_MAX);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        random_options(&random, &options);
        options.steps = "constant";
        options.tail = "repeat";
        options.too_long = "truncate";
        uint32_t *order = calloc(count, sizeof(*order));
        assert_non_null(order);
        assert_ok(rks_plan_sort(lengths, count, order, &err), &err);
        rks_plan *a, *b;
        assert_ok(rks_plan_create(lengths, count, NULL, &options, &a, &err), &err);
        assert_ok(rks_plan_create_sorted(lengths, count, order, NULL, &options, &b, &err), &err);
        rks_plan_report first = report_of(a, 5);
        for (unsigned i = 0; i < 6; i++) {
            const uint32_t *ids;
            size_t size;
            uint64_t step = rks_random_below(&random, first.steps);
            assert_ok(
                rks_plan_batch(b, below(&random, 3), step, options.world - 1, &ids, &size, &err),
                &err);
        }
        assert_string_equal(report_of(b, 5).digest, first.digest);
        assert_string_equal(report_of(a, 5).digest, first.digest);
        rks_plan_free(a);
        rks_plan_free(b);
        free(order);
        free(lengths);
    }
}

static void sorting_is_stable_and_longest_first(void **state)
{
    (void)state;
    uint64_t seed = test_seed(0);
    static const uint32_t highest[] = {1, 300, 65536, 1u << 20, UINT32_MAX};
    for (size_t h = 0; h < sizeof(highest) / sizeof(highest[0]); h++) {
        rks_random random = {rks_random_key(seed, h)};
        enum { COUNT = 3000 };
        static uint32_t lengths[COUNT], order[COUNT];
        for (size_t i = 0; i < COUNT; i++)
            lengths[i] =
                i > 0 && below(&random, 2) == 0 ? lengths[i - 1] : below(&random, highest[h]);
        assert_ok(rks_plan_sort(lengths, COUNT, order, &err), &err);
        for (size_t i = 1; i < COUNT; i++) {
            uint32_t a = lengths[order[i - 1]], b = lengths[order[i]];
            assert_true(a > b || (a == b && order[i - 1] < order[i]));
        }
    }
}

static rks_plan *plan_of(const uint32_t *lengths, uint64_t count, rks_plan_options *options)
{
    rks_plan *plan = NULL;
    assert_ok(rks_plan_create(lengths, count, NULL, options, &plan, &err), &err);
    return plan;
}

static void sorted_goes_downward_and_pads_the_same_in_every_epoch(void **state)
{
    (void)state;
    rks_random random = {test_seed(0)};
    enum { COUNT = 5000 };
    static uint32_t lengths[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + below(&random, 500);
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "sorted";
    options.max_tokens = 2000;
    options.world = 4;
    rks_plan *plan = plan_of(lengths, COUNT, &options);
    rks_plan_report a = report_of(plan, 0);
    rks_plan_report b = report_of(plan, 1);
    assert_int_equal(a.padded_tokens, b.padded_tokens);
    assert_string_not_equal(a.digest, b.digest);
    uint32_t last = UINT32_MAX;
    for (uint64_t step = 0; step < a.steps; step++) {
        for (uint32_t rank = 0; rank < 4; rank++) {
            const uint32_t *ids;
            size_t count;
            assert_ok(rks_plan_batch(plan, 1, step, rank, &ids, &count, &err), &err);
            for (size_t i = 0; i < count; i++) {
                assert_true(lengths[ids[i]] <= last);
                last = lengths[ids[i]];
            }
        }
    }
    rks_plan_free(plan);
}

/* Longest first in each batch, or bin, and the same samples there as without. */
static void longest_first_sorts_within_batches(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential", "pack"};
    rks_random random = {91};
    uint32_t *list = random_lengths(&random, 500);
    for (int i = 0; i < 15; i++) {
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = strategies[i % 5];
        options.batch_size = i < 5 ? 7 : 3;
        options.capacity = i % 5 == 4 ? 1 << 17 : 0;
        options.world = 1 + (uint32_t)i % 3;
        options.tail = i < 10 ? "split" : "repeat";
        rks_plan *plain = NULL, *sorted = NULL;
        assert_ok(rks_plan_create(list, 500, NULL, &options, &plain, &err), &err);
        options.order = "longest_first";
        assert_ok(rks_plan_create(list, 500, NULL, &options, &sorted, &err), &err);
        uint64_t steps;
        assert_ok(rks_plan_steps(sorted, 2, &steps, &err), &err);
        for (uint64_t slot = 0; slot < steps * options.world; slot++) {
            const uint32_t *ids, *others, *bounds = NULL;
            uint64_t place = slot / options.world;
            uint32_t rank = (uint32_t)(slot % options.world);
            size_t count, other_count, bins = 1;
            uint64_t sum = 0;
            assert_ok(rks_plan_batch(sorted, 2, place, rank, &ids, &count, &err), &err);
            assert_ok(rks_plan_batch(plain, 2, place, rank, &others, &other_count, &err), &err);
            assert_int_equal(count, other_count);
            if (i % 5 == 4)
                assert_ok(rks_plan_bins(sorted, 2, place, rank, &bounds, &bins, &err), &err);
            for (size_t bin = 0; bin < bins; bin++) {
                size_t end = bounds == NULL ? count : bounds[bin + 1] - bounds[0];
                for (size_t at = bounds == NULL ? 1 : bounds[bin] - bounds[0] + 1; at < end; at++)
                    assert_true(list[ids[at - 1]] >= list[ids[at]]);
            }
            for (size_t at = 0; at < count; at++)
                sum += (uint64_t)ids[at] * ids[at] - (uint64_t)others[at] * others[at];
            assert_int_equal(sum, 0);
        }
        char text[RKS_STATE_MAX];
        uint64_t epoch, step;
        assert_ok(rks_plan_state(sorted, 2, 1, text, sizeof(text), &err), &err);
        assert_ok(rks_plan_resume(sorted, text, &epoch, &step, &err), &err);
        assert_fails(RKS_ERR_STATE, rks_plan_resume(plain, text, &epoch, &step, &err));
        assert_contains(err.text, "order is longest_first in the state, not given in this plan");
        rks_plan_free(plain);
        rks_plan_free(sorted);
    }
    free(list);
}

static void sequential_keeps_the_order_of_ids(void **state)
{
    (void)state;
    rks_random random = {test_seed(0)};
    enum { COUNT = 1001 };
    static uint32_t lengths[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + below(&random, 90);
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "sequential";
    options.max_tokens = 300;
    options.world = 3;
    rks_plan *plan = plan_of(lengths, COUNT, &options);
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, 4, &steps, &err), &err);
    uint32_t next = 0;
    for (uint64_t step = 0; step < steps; step++) {
        for (uint32_t rank = 0; rank < 3; rank++) {
            const uint32_t *ids;
            size_t count;
            assert_ok(rks_plan_batch(plan, 4, step, rank, &ids, &count, &err), &err);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(ids[i], next++);
        }
    }
    assert_int_equal(next, COUNT);
    rks_plan_free(plan);
}

/* Sizes of all batches, in (step, rank) order. */
static size_t sizes_of(rks_plan *plan, size_t *sizes, size_t room)
{
    rks_plan_report report = report_of(plan, 0);
    assert_true(report.batches <= room);
    for (uint64_t i = 0; i < report.batches; i++) {
        const uint32_t *ids;
        assert_ok(rks_plan_batch(plan, 0, i / rks_plan_world(plan),
                                 (uint32_t)(i % rks_plan_world(plan)), &ids, &sizes[i], &err),
                  &err);
    }
    return report.batches;
}

static void the_last_step_is_dealt_evenly(void **state)
{
    (void)state;
    static uint32_t lengths[1000];
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "sequential";
    options.batch_size = 64;
    options.world = 3;
    size_t sizes[32];
    rks_plan *plan = plan_of(lengths, 1000, &options);
    assert_int_equal(sizes_of(plan, sizes, 32), 18);
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(sizes[i], 64);
    assert_int_equal(sizes[15], 14);
    assert_int_equal(sizes[16], 13);
    assert_int_equal(sizes[17], 13);
    rks_plan_free(plan);

    options.tail = "repeat"; /* full batches; the last step begins again with its own samples */
    plan = plan_of(lengths, 1000, &options);
    assert_int_equal(sizes_of(plan, sizes, 32), 18);
    for (size_t i = 0; i < 18; i++)
        assert_int_equal(sizes[i], 64);
    assert_int_equal(report_of(plan, 0).repeated, 18 * 64 - 1000);
    rks_plan_free(plan);

    options.tail = "drop";
    plan = plan_of(lengths, 1000, &options);
    assert_int_equal(sizes_of(plan, sizes, 32), 15);
    assert_int_equal(report_of(plan, 0).dropped, 1000 - 15 * 64);
    rks_plan_free(plan);
}

static void batches_are_multiples_where_they_can_be(void **state)
{
    (void)state;
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 80; round++) {
        rks_random random = {rks_random_key(seed, round)};
        enum { COUNT = 2000 };
        static uint32_t lengths[COUNT];
        for (size_t i = 0; i < COUNT; i++)
            lengths[i] = 1 + below(&random, 100);
        rks_plan_options options;
        rks_plan_options_default(&options);
        options.strategy = only_strategy != NULL ? only_strategy : strategies[round % 4];
        options.batch_multiple = 1 + below(&random, 9);
        /* At least twice the multiple in each batch, so that splitting can keep it. */
        options.max_tokens = 200 * options.batch_multiple + below(&random, 1000);
        options.world = 1 + below(&random, 8);
        rks_plan *plan = plan_of(lengths, COUNT, &options);
        static size_t sizes[COUNT];
        size_t batches = sizes_of(plan, sizes, COUNT);
        size_t odd = 0;
        for (size_t i = 0; i < batches; i++)
            odd += sizes[i] % options.batch_multiple != 0;
        assert_in_range(odd, 0, 1);
        rks_plan_free(plan);
    }
}

static void good_plans_waste_little(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    uint32_t *lengths = calloc(COUNT, sizeof(*lengths));
    assert_non_null(lengths);
    rks_random random = {1};
    for (size_t i = 0; i < COUNT; i++) /* many short, few long: 8 to 8192, about log-normal */
    {
        uint32_t scale = 0;
        for (unsigned j = 0; j < 10; j++)
            scale += below(&random, 2);
        lengths[i] = (8u << scale) + below(&random, 8u << scale);
        lengths[i] = lengths[i] > 8192 ? 8192 : lengths[i];
    }
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.max_tokens = 16384;
    options.world = 8;
    rks_plan *plan = plan_of(lengths, COUNT, &options);
    rks_plan_report report = report_of(plan, 3);
    assert_true(report.efficiency >= 0.98);
    assert_true(report.balance >= 0.98);
    rks_plan_free(plan);
    plan = plan_of(lengths, 10000, &options);
    report = report_of(plan, 3);
    assert_true(report.efficiency >= 0.96);
    assert_true(report.balance >= 0.96);
    rks_plan_free(plan);
    free(lengths);
}

static void every_pair_meets_somewhere_near(void **state)
{
    (void)state;
    /* Bucket mixes: over 20 epochs a sample has many more companions than one batch holds. */
    enum { COUNT = 20000 };
    static uint32_t lengths[COUNT];
    static bool met[COUNT];
    rks_random random = {9};
    for (size_t i = 0; i < COUNT; i++)
        lengths[i] = 1 + below(&random, 500);
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.batch_size = 16;
    options.world = 2;
    rks_plan *plan = plan_of(lengths, COUNT, &options);
    memset(met, 0, sizeof(met));
    size_t companions = 0;
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        uint64_t steps;
        assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
        for (uint64_t slot = 0; slot < 2 * steps; slot++) {
            const uint32_t *ids;
            size_t count, mine = 0;
            assert_ok(rks_plan_batch(plan, epoch, slot / 2, slot % 2, &ids, &count, &err), &err);
            while (mine < count && ids[mine] != 777)
                mine++;
            for (size_t i = 0; mine < count && i < count; i++) {
                companions += !met[ids[i]];
                met[ids[i]] = true;
            }
        }
    }
    assert_true(companions > 100);
    rks_plan_free(plan);
}

/* The place of the first bound that `length` is not above. */
static size_t bound_of(const uint32_t *bounds, size_t count, uint32_t length)
{
    size_t at = 0;
    while (at < count && bounds[at] < length)
        at++;
    return at;
}

static void batches_lie_between_bounds(void **state)
{
    (void)state;
    rks_random random = {test_seed(0)};
    size_t most = 0;
    for (int round = 0; round < 200; round++) {
        uint64_t lengths_count = 50 + below(&random, 3000), steps;
        uint32_t *lengths = random_lengths(&random, lengths_count), *bounds = NULL;
        size_t count = 0;
        rks_plan_options options;
        random_options(&random, &options);
        bool bucket = option_is(options.strategy, "bucket");
        rks_expected expected = expect_of(lengths, lengths_count, &options);
        rks_plan *plan = NULL;
        if (rks_plan_create(lengths, lengths_count, NULL, &options, &plan, &err) != RKS_OK ||
            rks_plan_steps(plan, 1, &steps, &err) != RKS_OK) {
            rks_plan_free(plan);
            free(lengths);
            continue;
        }
        assert_ok(rks_plan_bounds(plan, 1, &bounds, &count, &err), &err);
        assert_true(bucket || count == 0);
        assert_true((bounds != NULL) == (count > 0));
        for (size_t i = 1; i < count; i++)
            assert_true(bounds[i - 1] < bounds[i]);
        for (uint64_t slot = 0; bucket && slot < steps * options.world; slot++) {
            const uint32_t *ids;
            size_t size;
            uint32_t low = UINT32_MAX, high = 0;
            assert_ok(rks_plan_batch(plan, 1, slot / options.world,
                                     (uint32_t)(slot % options.world), &ids, &size, &err),
                      &err);
            bool alone = option_is(options.too_long, "alone") && lengths[ids[0]] > expected.limit;
            for (size_t i = 0; i < size; i++) {
                uint32_t length = lengths[ids[i]];
                length = length < expected.limit ? length : expected.limit;
                low = length < low ? length : low;
                high = length > high ? length : high;
            }
            size_t at = bound_of(bounds, count, high);
            assert_true(alone || (at < count && (at == 0 || low >= bounds[at - 1])));
        }
        most = count > most ? count : most;
        rks_release(bounds);
        rks_plan_free(plan);
        free(lengths);
    }
    assert_true(most > 5);
}

static void an_added_strategy_is_named_in_errors(void **state)
{
    (void)state;
    const uint32_t lengths[] = {1, 2, 3};
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = "sequentiel";
    rks_plan *plan = NULL;
    assert_int_equal(rks_plan_create(lengths, 3, NULL, &options, &plan, &err), RKS_ERR_ARGUMENT);
    assert_contains(err.text, "did you mean \"sequential\"? (one of bucket, sorted, random, "
                              "sequential, pack, shuffled)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_random_plan_keeps_the_laws),
        cmocka_unit_test(a_plan_is_the_same_whatever_was_asked_before),
        cmocka_unit_test(sorting_is_stable_and_longest_first),
        cmocka_unit_test(sorted_goes_downward_and_pads_the_same_in_every_epoch),
        cmocka_unit_test(longest_first_sorts_within_batches),
        cmocka_unit_test(sequential_keeps_the_order_of_ids),
        cmocka_unit_test(the_last_step_is_dealt_evenly),
        cmocka_unit_test(batches_are_multiples_where_they_can_be),
        cmocka_unit_test(good_plans_waste_little),
        cmocka_unit_test(every_pair_meets_somewhere_near),
        cmocka_unit_test(batches_lie_between_bounds),
    };
    const struct CMUnitTest laws[] = {
        cmocka_unit_test(every_random_plan_keeps_the_laws),
        cmocka_unit_test(a_plan_is_the_same_whatever_was_asked_before),
        cmocka_unit_test(batches_are_multiples_where_they_can_be),
        cmocka_unit_test(an_added_strategy_is_named_in_errors),
    };
    int failed = cmocka_run_group_tests_name("plan laws", tests, NULL, NULL);
    rks_strategy_add(&strategy_shuffled);
    only_strategy = strategy_shuffled.name;
    failed += cmocka_run_group_tests_name("plan laws of an added strategy", laws, NULL, NULL);
    rks_strategy_add(NULL);
    return failed;
}
