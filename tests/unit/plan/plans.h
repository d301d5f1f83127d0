/* SPDX-License-Identifier: Apache-2.0
 *
 * plans.h: random lengths and options for the tests of the planner, and the laws that each plan
 * keeps. SEED=n in the environment replays a run; the seed is printed. */
#ifndef RKS_TESTS_PLANS_H
#define RKS_TESTS_PLANS_H

#include "support/check.h"
#include "support/seed.h"

#include <stdlib.h>

#include "base/memory.h"
#include "plan/plan.h"
#include "plan/order/random.h"

static rks_error err;

static inline uint32_t below(rks_random *random, uint32_t range)
{
    return (uint32_t)rks_random_below(random, range);
}

#define ONE_OF(random, list) ((list)[below((random), sizeof(list) / sizeof((list)[0]))])

/* Lengths of one of several shapes. Free with free(). */
static inline uint32_t *random_lengths(rks_random *random, uint64_t count)
{
    uint32_t *lengths = calloc(count + 1, sizeof(*lengths));
    assert_non_null(lengths);
    uint32_t shape = below(random, 5);
    for (uint64_t i = 0; i < count; i++) {
        switch (shape) {
        case 0:
            lengths[i] = 1 + below(random, 50);
            break;
        case 1: /* many short ones, few long ones */
            lengths[i] = 1 + below(random, 1u << (1 + below(random, 11)));
            break;
        case 2:
            lengths[i] = 7;
            break;
        case 3:
            lengths[i] = below(random, 3);
            break;
        default: /* above what one counting pass takes */
            lengths[i] = below(random, 4) == 0 ? 60000 + below(random, 20000) : below(random, 900);
            break;
        }
    }
    return lengths;
}

/* Lengths that never change: stored states and digests depend on them. */
static inline void fixed_lengths(uint32_t *lengths, size_t count)
{
    rks_random random = {42};
    for (size_t i = 0; i < count; i++)
        lengths[i] = 1 + below(&random, 1u << (1 + below(&random, 9)));
}

/* The strategy of random options; NULL: any but pack. */
static const char *only_strategy;

static inline const char *random_strategy(rks_random *random)
{
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    return only_strategy != NULL ? only_strategy : ONE_OF(random, strategies);
}

static inline void random_options(rks_random *random, rks_plan_options *options)
{
    static const char *const costs[] = {"padded", "tokens", "quadratic"};
    static const char *const too_longs[] = {"drop", "alone", "truncate"};
    static const char *const tails[] = {"split", "split", "repeat", "drop"};
    static const uint32_t worlds[] = {1, 2, 3, 4, 7, 8};
    static const uint32_t multiples[] = {1, 1, 2, 3, 4, 8};
    rks_plan_options_default(options);
    options->strategy = random_strategy(random);
    options->cost = ONE_OF(random, costs);
    options->too_long = ONE_OF(random, too_longs);
    options->tail = ONE_OF(random, tails);
    options->world = ONE_OF(random, worlds);
    options->seed = rks_random_next(random);
    options->no_shuffle = below(random, 5) == 0;
    options->batch_multiple = ONE_OF(random, multiples);
    if (below(random, 2) == 0)
        options->batch_size = options->batch_multiple * (1 + below(random, 9));
    if (below(random, 3) != 0)
        options->max_tokens = 1 + below(random, 1u << (4 + below(random, 10)));
    if (below(random, 4) == 0)
        options->max_length = 1 + below(random, 2000);
    if (below(random, 4) == 0)
        options->order = "longest_first";
    if (below(random, 3) == 0)
        options->length_multiple = 1 + below(random, 9);
    if (options->max_tokens != 0 && options->max_tokens < options->length_multiple)
        options->length_multiple = 0; /* what divides 8 and max_tokens */
    if (options->max_tokens != 0 && strcmp(options->strategy, "random") == 0)
        options->steps = below(random, 2) == 0 ? "per_epoch" : "constant";
}

/* What a test knows of a plan without asking it. */
typedef struct rks_expected {
    const uint32_t *lengths;
    uint64_t count;
    const rks_plan_options *options;
    uint32_t limit;
    uint64_t multiple; /* widths are rounded up to it */
    bool sums;         /* batches have no padding between samples */
} rks_expected;

static inline rks_expected expect_of(const uint32_t *lengths, uint64_t count,
                                     const rks_plan_options *options)
{
    uint64_t max_tokens = options->max_tokens;
    bool tokens = strcmp(options->cost, "tokens") == 0;
    rks_expected expected = {
        lengths, count, options, UINT32_MAX, options->length_multiple, tokens && max_tokens != 0};
    for (expected.multiple = tokens ? 1 : 8; options->length_multiple == 0;) {
        if (max_tokens % expected.multiple == 0)
            break;
        expected.multiple /= 2;
    }
    if (options->length_multiple != 0)
        expected.multiple = options->length_multiple;
    max_tokens -= max_tokens % expected.multiple;
    if (options->max_length != 0)
        expected.limit = options->max_length;
    if (max_tokens != 0 && max_tokens < expected.limit)
        expected.limit = (uint32_t)max_tokens;
    return expected;
}

/* Items that samples of these lengths take in an array, one by one or as wide as the longest. */
static inline uint64_t items_of(const rks_expected *expected, const uint32_t *ids, size_t count)
{
    bool truncates = strcmp(expected->options->too_long, "truncate") == 0;
    uint64_t widest = 0, sum = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t length = expected->lengths[ids[i]];
        length = truncates && length > expected->limit ? expected->limit : length;
        length = (length + expected->multiple - 1) / expected->multiple * expected->multiple;
        widest = length > widest ? length : widest;
        sum += length;
    }
    return expected->sums ? sum : widest * count;
}

static inline bool option_is(const char *value, const char *name)
{
    return strcmp(value, name) == 0;
}

static inline uint64_t kept_of(const rks_expected *expected)
{
    uint64_t kept = 0;
    for (uint64_t i = 0; i < expected->count; i++)
        kept += expected->lengths[i] <= expected->limit ||
                !option_is(expected->options->too_long, "drop");
    return kept;
}

/* A batch keeps the budgets, unless it is a sample that is too long and alone. */
static inline void check_batch(const rks_expected *expected, const uint32_t *ids, size_t count)
{
    const rks_plan_options *options = expected->options;
    uint32_t batch_size = options->batch_size;
    if (batch_size == 0 && options->max_tokens == 0)
        batch_size = 64;
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        assert_true(ids[i] < expected->count);
        uint32_t length = expected->lengths[ids[i]];
        if (length > expected->limit) {
            assert_false(option_is(options->too_long, "drop"));
            if (option_is(options->too_long, "alone")) {
                assert_int_equal(count, 1);
                return;
            }
        }
    }
    assert_true(batch_size == 0 || count <= batch_size);
    if (options->max_tokens != 0)
        assert_true(items_of(expected, ids, count) <= options->max_tokens);
}

/* Checks every batch of steps [first, end) and counts deliveries in `seen`. */
static inline void check_steps(rks_plan *plan, const rks_expected *expected, uint64_t epoch,
                               uint64_t first, uint64_t end, uint32_t *seen)
{
    for (uint64_t step = first; step < end; step++) {
        for (uint32_t rank = 0; rank < rks_plan_world(plan); rank++) {
            const uint32_t *ids;
            size_t count;
            assert_ok(rks_plan_batch(plan, epoch, step, rank, &ids, &count, &err), &err);
            check_batch(expected, ids, count);
            for (size_t i = 0; i < count; i++)
                seen[ids[i]]++;
        }
    }
}

/* How often an epoch's samples came. */
typedef struct deliveries {
    uint64_t all, repeated, missing;
} deliveries;

/* Of a whole epoch: all that are kept came, none of them twice, as far as the option `tail` says
 * so. */
static inline deliveries check_deliveries(const rks_expected *expected, const uint32_t *seen)
{
    deliveries found = {0};
    for (uint64_t i = 0; i < expected->count; i++) {
        found.all += seen[i];
        found.repeated += seen[i] > 1 ? seen[i] - 1 : 0;
        found.missing += seen[i] == 0;
    }
    if (!option_is(expected->options->tail, "drop"))
        assert_int_equal(found.missing, expected->count - kept_of(expected));
    if (!option_is(expected->options->tail, "repeat"))
        assert_int_equal(found.repeated, 0);
    return found;
}

/* How many of `count` samples came; none came more than `most` times. */
static inline uint64_t count_seen(const uint32_t *seen, uint64_t count, uint32_t most)
{
    uint64_t samples = 0;
    for (uint64_t i = 0; i < count; i++) {
        assert_true(seen[i] <= most);
        samples += seen[i] != 0;
    }
    return samples;
}

static inline uint64_t steps_of(rks_plan *plan, uint64_t epoch)
{
    uint64_t steps;
    assert_ok(rks_plan_steps(plan, epoch, &steps, &err), &err);
    return steps;
}

static inline rks_plan_report report_of(rks_plan *plan, uint64_t epoch)
{
    rks_plan_report report = {.struct_size = sizeof(report)};
    assert_ok(rks_plan_report_get(plan, epoch, &report, &err), &err);
    return report;
}

#endif
