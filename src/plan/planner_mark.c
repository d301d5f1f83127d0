/* SPDX-License-Identifier: Apache-2.0
 *
 * planner_mark.c: makes plans of a few hundred lengths, which go through each part of the planner.
 * The table may change at will: marks are never stored. */
#include "plan/planner_mark.h"

#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "plan/plan.h"

enum { SAMPLES = 300, EPOCH = 1, LONGEST = 400 };

typedef struct mark_case {
    const char *strategy, *tail, *cost, *too_long, *steps, *order;
    uint32_t batch_size, max_tokens, max_length, capacity, batch_multiple, micro_batches, window;
    bool mix;
} mark_case;

static const mark_case cases[] = {
    {.strategy = "bucket", .max_tokens = 2000},
    {.strategy = "bucket",
     .tail = "repeat",
     .cost = "quadratic",
     .max_tokens = 2000,
     .batch_size = 8,
     .batch_multiple = 4},
    {.strategy = "bucket", .too_long = "split", .max_length = 100, .max_tokens = 1000},
    {.strategy = "bucket", .max_tokens = 2000, .mix = true},
    {.strategy = "sorted",
     .cost = "tokens",
     .too_long = "truncate",
     .max_length = 200,
     .max_tokens = 2000,
     .order = "longest_first"},
    {.strategy = "random", .tail = "drop", .batch_size = 7},
    {.strategy = "random",
     .steps = "per_epoch",
     .too_long = "drop",
     .max_length = 300,
     .max_tokens = 1500,
     .mix = true},
    {.strategy = "sequential", .too_long = "alone", .max_tokens = 390},
    {.strategy = "pack", .capacity = LONGEST, .micro_batches = 2},
    {.strategy = "pack", .capacity = LONGEST, .batch_size = 2, .window = 8},
    {.strategy = "pack", .capacity = LONGEST, .mix = true},
};

static _Atomic uint64_t kept; /* 0: not made yet */

/* Made of integers alone, like all that a plan is made of. */
static void make_lengths(uint32_t lengths[SAMPLES])
{
    uint32_t state = 1;
    for (size_t i = 0; i < SAMPLES; i++) {
        state = state * 1664525u + 1013904223u;
        lengths[i] = 1 + (state >> 8) % ((state >> 4) % 3 == 0 ? LONGEST : LONGEST / 5);
    }
}

static rks_status add_plan(const mark_case *c, const uint32_t *lengths, rks_digester *digester,
                           rks_error *err)
{
    static const double weights[] = {3, 1};
    static const uint64_t bounds[] = {0, SAMPLES / 3, SAMPLES};
    rks_plan_options options;
    rks_plan_mix mix;
    rks_plan *plan = NULL;
    rks_plan_report report = {.struct_size = sizeof(report)};
    rks_plan_options_default(&options);
    rks_plan_mix_default(&mix);
    mix.sources = 2;
    mix.weights = weights;
    mix.bounds = bounds;
    options.strategy = c->strategy;
    options.tail = c->tail;
    options.cost = c->cost;
    options.too_long = c->too_long;
    options.steps = c->steps;
    options.order = c->order;
    options.batch_size = c->batch_size;
    options.max_tokens = c->max_tokens;
    options.max_length = c->max_length;
    options.capacity = c->capacity;
    options.batch_multiple = c->batch_multiple == 0 ? 1 : c->batch_multiple;
    options.micro_batches = c->micro_batches == 0 ? 1 : c->micro_batches;
    options.pack_window = c->window;
    options.mix = c->mix ? &mix : NULL;
    options.world = 3;
    options.seed = 7;
    rks_status status = rks_plan_create(lengths, SAMPLES, NULL, &options, &plan, err);
    if (status == RKS_OK)
        status = rks_plan_report_get(plan, EPOCH, &report, err);
    if (status == RKS_OK)
        rks_digester_update(digester, report.digest, sizeof(report.digest));
    rks_plan_free(plan);
    return status;
}

rks_status rks_planner_mark(uint64_t *mark, rks_error *err)
{
    uint32_t lengths[SAMPLES];
    uint8_t versions[8];
    *mark = atomic_load(&kept);
    if (*mark != 0)
        return RKS_OK;
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    rks_store_u32(versions, RKS_PLAN_VERSION);
    rks_store_u32(versions + 4, RKS_PLAN_VERSION_MIX);
    rks_digester_update(digester, versions, sizeof(versions));
    make_lengths(lengths);
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < sizeof(cases) / sizeof(cases[0]); i++)
        status = add_plan(&cases[i], lengths, digester, err);
    rks_digest made = rks_digester_result(digester);
    rks_digester_free(digester);
    if (status != RKS_OK)
        return status;
    memcpy(mark, &made, sizeof(*mark));
    *mark |= *mark == 0;
    atomic_store(&kept, *mark);
    return RKS_OK;
}
