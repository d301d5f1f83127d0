/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_pack_laws.c: what each plan of strategy pack keeps, over random lengths and options. */
#include "plans.h"

enum { ROUNDS = 800, SAMPLES_MAX = 300 };

static void random_pack_options(rks_random *random, rks_plan_options *options)
{
    static const char *const costs[] = {"padded", "tokens", "quadratic", "polynomial"};
    static const char *const too_longs[] = {"drop", "truncate"};
    static const char *const tails[] = {"split", "split", "repeat", "drop"};
    static const uint32_t worlds[] = {1, 2, 3, 4, 7, 8};
    static const uint32_t small[] = {1, 1, 1, 2, 3, 5};
    rks_plan_options_default(options);
    options->strategy = "pack";
    options->cost = ONE_OF(random, costs);
    if (option_is(options->cost, "polynomial")) {
        options->cost_linear = below(random, 4);
        options->cost_quadratic = 0.001 * (1 + below(random, 9));
    }
    options->too_long = ONE_OF(random, too_longs);
    options->tail = ONE_OF(random, tails);
    options->world = ONE_OF(random, worlds);
    options->batch_size = ONE_OF(random, small);
    options->micro_batches = ONE_OF(random, small);
    options->mixed = below(random, 3) == 0;
    options->length_multiple = ONE_OF(random, small);
    options->capacity = 1 + below(random, 1u << (3 + below(random, 10)));
    options->capacity += options->length_multiple - 1;
    options->capacity -= options->capacity % options->length_multiple;
    options->seed = rks_random_next(random);
    options->no_shuffle = below(random, 5) == 0;
    if (below(random, 4) == 0)
        options->max_length = 1 + below(random, 500);
    if (below(random, 3) == 0)
        options->pack_window = 1 + below(random, 1u << below(random, 8));
}

static rks_expected expect_pack(const uint32_t *lengths, uint64_t count,
                                const rks_plan_options *options)
{
    rks_expected expected = {lengths, count, options, options->capacity, options->length_multiple,
                             true};
    if (options->max_length != 0 && options->max_length < expected.limit)
        expected.limit = options->max_length;
    return expected;
}

/* Room that sample `id` takes in a bin. */
static uint32_t size_of(const rks_expected *expected, uint32_t id)
{
    uint32_t length = expected->lengths[id], multiple = expected->options->length_multiple;
    length = length > expected->limit ? expected->limit : length == 0 ? 1 : length;
    return (length + multiple - 1) / multiple * multiple;
}

static double cost_of(const rks_expected *expected, uint32_t id)
{
    const rks_plan_options *options = expected->options;
    double size = size_of(expected, id);
    if (options->balance != NULL)
        return options->balance[id];
    return option_is(options->cost, "quadratic") ? size * size
           : option_is(options->cost, "polynomial")
               ? options->cost_linear * size + options->cost_quadratic * size * size
               : size;
}

/* What a walk over an epoch finds. */
typedef struct found {
    uint32_t *seen;
    uint64_t bins, steps, delivered, tokens, padded;
    double balance, token_balance, mean, most;
} found;

static void check_bins(rks_plan *plan, const rks_expected *expected, uint64_t epoch, uint64_t step,
                       uint32_t rank, found *f, double *cost, double *tokens)
{
    const uint32_t *ids, *bounds;
    size_t count, bins;
    assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
    assert_ok(rks_plan_bins(plan, epoch, step, rank, &bounds, &bins, &err), &err);
    assert_in_range(bins, 1, expected->options->batch_size);
    assert_int_equal(bounds[bins] - bounds[0], count);
    f->bins += bins;
    for (size_t bin = 0; bin < bins; bin++) {
        uint64_t room = 0;
        assert_true(bounds[bin] < bounds[bin + 1]);
        for (uint32_t i = bounds[bin] - bounds[0]; i < bounds[bin + 1] - bounds[0]; i++) {
            assert_true(ids[i] < expected->count);
            uint32_t length = expected->lengths[ids[i]];
            assert_true(length <= expected->limit ||
                        option_is(expected->options->too_long, "truncate"));
            length = length < expected->limit ? length : expected->limit;
            room += size_of(expected, ids[i]);
            f->padded += length == 0 ? 0 : size_of(expected, ids[i]);
            f->tokens += length;
            *tokens += length;
            *cost += cost_of(expected, ids[i]);
            f->seen[ids[i]]++;
            f->delivered++;
        }
        assert_true(room <= expected->options->capacity);
    }
}

static void walk(rks_plan *plan, const rks_expected *expected, uint64_t epoch, uint64_t first,
                 found *f)
{
    uint32_t world = rks_plan_world(plan), micros = expected->options->micro_batches;
    double cost[8] = {0}, tokens[8] = {0};
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
    assert_true(steps > 0 && steps % micros == 0);
    for (uint64_t step = first; step < steps; step++) {
        for (uint32_t rank = 0; rank < world; rank++)
            check_bins(plan, expected, epoch, step, rank, f, &cost[rank], &tokens[rank]);
        if ((step + 1) % micros != 0)
            continue;
        double sum = 0, most = 0, token_sum = 0, token_most = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            sum += cost[rank];
            most = cost[rank] > most ? cost[rank] : most;
            token_sum += tokens[rank];
            token_most = tokens[rank] > token_most ? tokens[rank] : token_most;
            cost[rank] = tokens[rank] = 0;
        }
        f->steps++;
        f->balance += sum / world / most;
        f->token_balance += token_most > 0 ? token_sum / world / token_most : 1;
        f->mean += sum / world;
        f->most += most;
    }
}

static int longest_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x > y ? -1 : x < y;
}

/* Bins of best-fit decreasing, sample by sample. */
static uint64_t best_fit(const rks_expected *expected, uint32_t capacity)
{
    uint32_t *sizes = calloc(expected->count + 1, sizeof(*sizes));
    uint32_t *room = calloc(expected->count + 1, sizeof(*room));
    assert_true(sizes != NULL && room != NULL);
    uint64_t count = 0, bins = 0;
    for (uint32_t i = 0; i < expected->count; i++)
        if (expected->lengths[i] <= expected->limit ||
            !option_is(expected->options->too_long, "drop"))
            sizes[count++] = size_of(expected, i);
    qsort(sizes, count, sizeof(*sizes), longest_first);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t best = bins;
        for (uint64_t bin = 0; bin < bins; bin++)
            if (room[bin] >= sizes[i] && (best == bins || room[bin] < room[best]))
                best = bin;
        if (best == bins)
            room[bins++] = capacity;
        room[best] -= sizes[i];
    }
    free(sizes);
    free(room);
    return bins;
}

static void assert_near(double a, double b)
{
    assert_true(a - b < 1e-6 && b - a < 1e-6);
}

static void check_report(const rks_plan_report *report, const found *f, uint32_t capacity)
{
    assert_int_equal(report->bins, f->bins);
    assert_int_equal(report->samples, f->delivered);
    assert_int_equal(report->tokens, f->tokens);
    assert_int_equal(report->padded_tokens, f->padded);
    assert_near(report->fill, (double)f->tokens / ((double)f->bins * capacity));
    assert_near(report->balance, f->balance / (double)f->steps);
    assert_near(report->token_balance, f->token_balance / (double)f->steps);
    assert_near(report->lost, 1 - f->mean / f->most);
}

static void check_epoch(rks_plan *plan, const rks_expected *expected, uint64_t epoch)
{
    const rks_plan_options *options = expected->options;
    found f = {.seen = calloc(expected->count, sizeof(*f.seen))};
    assert_non_null(f.seen);
    walk(plan, expected, epoch, 0, &f);
    deliveries came = check_deliveries(expected, f.seen);
    uint64_t full = options->world * options->micro_batches * options->batch_size;
    uint64_t bins = best_fit(expected, options->capacity);
    if (options->pack_window > 0 && !option_is(options->tail, "drop"))
        assert_true(f.steps >= (bins + full - 1) / full);
    else if (options->pack_window > 0)
        assert_true(f.steps > 0);
    else if (option_is(options->tail, "drop"))
        assert_int_equal(f.steps, bins / full);
    else
        assert_int_equal(f.steps, (bins + full - 1) / full);
    if (option_is(options->tail, "repeat"))
        assert_int_equal(f.bins, f.steps * full);
    rks_plan_report report = report_of(plan, epoch);
    assert_int_equal(report.repeated, came.repeated);
    assert_int_equal(report.dropped, came.missing);
    check_report(&report, &f, options->capacity);
    free(f.seen);
}

/* A refusal must have its reason: fewer samples than batches, or no full step to keep. */
static void check_refusal(rks_status status, const rks_expected *expected)
{
    const rks_plan_options *options = expected->options;
    uint64_t slots = options->world * options->micro_batches;
    uint64_t kept = kept_of(expected), bins = best_fit(expected, options->capacity);
    assert_int_equal(status, RKS_ERR_DATA);
    if (option_is(options->tail, "repeat"))
        assert_int_equal(kept, 0);
    else if (option_is(options->tail, "drop"))
        assert_true(kept < slots || bins < slots * options->batch_size);
    else
        assert_true(kept == 0 || kept < (bins + slots * options->batch_size - 1) /
                                            (slots * options->batch_size) * slots);
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
        random_pack_options(&random, &options);
        uint32_t costs[SAMPLES_MAX];
        for (uint64_t i = 0; i < count; i++)
            costs[i] = 1 + (uint32_t)(rks_random_next(&random) >> 33);
        if (round % 3 == 0)
            options.balance = costs;
        rks_expected expected = expect_pack(lengths, count, &options);
        rks_plan *plan = NULL;
        rks_status status = rks_plan_create(lengths, count, NULL, &options, &plan, &err);
        if (status == RKS_OK) {
            plans++;
            uint64_t epoch = rks_random_next(&random);
            check_epoch(plan, &expected, 0);
            check_epoch(plan, &expected, epoch);
            for (uint64_t i = 1; options.pack_window > 0 && i < 12; i++)
                check_epoch(plan, &expected, i);
            rks_plan_report one = report_of(plan, 0), other = report_of(plan, epoch);
            assert_int_equal(one.steps, other.steps);
            if (options.no_shuffle)
                assert_string_equal(one.digest, other.digest);
        } else {
            check_refusal(status, &expected);
        }
        rks_plan_free(plan);
        free(lengths);
    }
    assert_true(plans > ROUNDS / 3);
    assert_int_equal(rks_memory_in_use(), 0);
    assert_int_equal(counted_memory(), 0);
}

/* Does `first` steps of epoch 3 on `from`, goes on with `to`. */
static void cross(rks_plan *from, uint64_t first, rks_plan *to, const rks_expected *expected)
{
    char text[RKS_STATE_MAX];
    uint64_t epoch = 0, step = 0, steps, micros = expected->options->micro_batches;
    uint32_t *seen = calloc(expected->count, sizeof(*seen));
    found f = {.seen = seen};
    assert_non_null(seen);
    assert_ok(rks_plan_state(from, 3, first, text, sizeof(text), &err), &err);
    first -= first % micros;
    assert_ok(rks_plan_steps(from, 3, &steps, &err), &err);
    for (uint64_t i = 0; i < first; i++)
        for (uint32_t rank = 0; rank < rks_plan_world(from); rank++) {
            double cost = 0, tokens = 0;
            check_bins(from, expected, 3, i, rank, &f, &cost, &tokens);
        }
    uint64_t left = expected->count - count_seen(seen, expected->count, 1);
    bool same = rks_plan_world(from) == rks_plan_world(to);
    rks_status status = rks_plan_resume(to, text, &epoch, &step, &err);
    if (status == RKS_ERR_DATA) {
        /* Fewer samples than batches; or bins of one sample, which nothing can even out. */
        uint64_t slots = rks_plan_world(to) * micros;
        assert_true(left < slots || (left + slots - 1) / slots * slots > left);
    } else if (first == steps && !same) {
        assert_ok(status, &err);
        assert_true(epoch == 4 && step == 0 && left == 0);
    } else {
        assert_ok(status, &err);
        assert_int_equal(epoch, 3);
        assert_int_equal(step, same ? first : 0);
        walk(to, expected, 3, step, &f);
        assert_int_equal(count_seen(seen, expected->count, 1), expected->count);
    }
    free(seen);
}

static void resumes_at_every_step_on_every_world(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {1, 2, 3, 8};
    uint64_t seed = test_seed(0);
    for (unsigned round = 0; round < 12; round++) {
        rks_random random = {rks_random_key(seed, round)};
        uint64_t count = 60 + below(&random, 100);
        uint32_t *lengths = random_lengths(&random, count);
        rks_plan_options options;
        random_pack_options(&random, &options);
        options.capacity *= 4;
        options.tail = "split";
        options.too_long = "truncate";
        rks_expected expected = expect_pack(lengths, count, &options);
        for (size_t a = 0; a < 4; a++) {
            for (size_t b = 0; b < 4; b++) {
                rks_plan *from = NULL, *to = NULL;
                uint64_t steps;
                options.world = worlds[a];
                rks_status one = rks_plan_create(lengths, count, NULL, &options, &from, &err);
                options.world = worlds[b];
                rks_status other = rks_plan_create(lengths, count, NULL, &options, &to, &err);
                if (one == RKS_OK && other == RKS_OK) {
                    assert_ok(rks_plan_steps(from, 3, &steps, &err), &err);
                    for (uint64_t step = 0; step <= steps; step++)
                        cross(from, step, to, &expected);
                }
                rks_plan_free(from);
                rks_plan_free(to);
            }
        }
        free(lengths);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_random_plan_keeps_the_laws),
        cmocka_unit_test(resumes_at_every_step_on_every_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
