/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: figures, bounds and digest of an epoch.
 *
 * The digest is XXH3-128 of the batches, step by step and in it rank by rank: step (8 bytes), rank
 * (4), number of ids (4), ids (4 each), little-endian. */
#include "plan/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/usage.h"
#include "base/memory.h"

/* The cost that ranks of a step should have alike; for figures only, so floating point will do. */
static double cost_for_balance(const rks_plan *plan, uint64_t longest, uint64_t sum, uint64_t count)
{
    switch (plan->config.cost) {
    case COST_TOKENS:
        return (double)sum;
    case COST_QUADRATIC:
        return (double)longest * (double)longest * (double)count;
    case COST_PADDED:
        break;
    }
    return (double)(longest * count);
}

static double report_batch(const rks_plan *plan, const uint32_t *ids, size_t count,
                           rks_plan_report *report, uint64_t *padded)
{
    uint64_t longest = 0;
    uint64_t sum = 0;
    uint32_t clamp = plan->config.clamp;
    for (size_t i = 0; i < count; i++) {
        uint32_t length = plan->lengths[ids[i]];
        if (length > clamp) {
            length = clamp;
            report->truncated++;
        }
        longest = length > longest ? length : longest;
        sum += length;
    }
    *padded = longest * count;
    report->tokens += sum;
    report->padded_tokens += *padded;
    return cost_for_balance(plan, longest, sum, count);
}

/* `padded`: of the batch of each step and rank, filled here. */
static rks_status report_epoch(const rks_plan *plan, rks_digester *digester,
                               rks_plan_report *report, uint64_t *padded, rks_error *err)
{
    uint32_t world = plan->config.world;
    uint64_t done = 0;
    double balance = 0;
    for (uint64_t step = 0; step < report->steps; step++) {
        double sum = 0;
        double most = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            const uint32_t *ids;
            size_t count;
            rks_plan_at(plan, step * world + rank, &ids, &count);
            double cost = report_batch(plan, ids, count, report, &padded[step * world + rank]);
            sum += cost;
            most = cost > most ? cost : most;

            uint8_t head[16];
            rks_store_u64(head, step);
            rks_store_u32(head + 8, rank);
            rks_store_u32(head + 12, (uint32_t)count);
            rks_digester_update(digester, head, sizeof(head));
            rks_digester_update(digester, ids, count * sizeof(*ids));
            rks_status status = rks_plan_pause(&done, count, err);
            if (status != RKS_OK)
                return status;
        }
        balance += most > 0 ? sum / world / most : 1;
    }
    report->balance = balance / (double)report->steps;
    return RKS_OK;
}

rks_status rks_plan_report_get(rks_plan *plan, uint64_t epoch, rks_plan_report *report,
                               rks_error *err)
{
    size_t size = report->struct_size;
    if (size < sizeof(report->struct_size))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "rks_plan_report: set struct_size first");
    rks_status status = rks_plan_prepare(plan, epoch, err);
    if (status != RKS_OK)
        return status;
    const rks_plan_layout *layout = plan->layout;
    rks_digester *digester = rks_digester_create(err);
    uint64_t *padded = rks_alloc_raw(layout->batches, sizeof(*padded), err);
    if (digester == NULL || padded == NULL) {
        rks_digester_free(digester);
        rks_free(padded);
        return RKS_ERR_MEMORY;
    }
    rks_usage_add(RKS_MEMORY_PLAN, layout->batches * sizeof(*padded));
    rks_plan_report made = {.struct_size = size};
    made.batches = layout->batches;
    made.steps = layout->batches / plan->config.world;
    made.samples = layout->samples;
    made.repeated = layout->repeated;
    made.dropped = layout->base - (layout->samples - layout->repeated);
    made.dropped += plan->count - rks_plan_kept(plan);
    status = report_epoch(plan, digester, &made, padded, err);
    if (status == RKS_OK)
        rks_plan_spread(padded, made.steps, plan->config.world, &made);
    rks_usage_sub(RKS_MEMORY_PLAN, layout->batches * sizeof(*padded));
    rks_free(padded);
    made.efficiency =
        made.padded_tokens == 0 ? 1 : (double)made.tokens / (double)made.padded_tokens;
    made.tokens_per_step = (double)made.tokens / (double)made.steps;
    rks_digest_format(rks_digester_result(digester), made.digest);
    rks_digester_free(digester);
    if (status != RKS_OK)
        return status;
    memcpy(report, &made, size < sizeof(made) ? size : sizeof(made));
    return RKS_OK;
}

static int compare_bounds(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

rks_status rks_plan_bounds(rks_plan *plan, uint64_t epoch, uint32_t **bounds, size_t *count,
                           rks_error *err)
{
    rks_status status = rks_plan_prepare(plan, epoch, err);
    if (status != RKS_OK)
        return status;
    const rks_plan_layout *layout = plan->layout;
    size_t filled = 0, kept = 0;
    uint32_t *list = NULL;
    if (plan->config.strategy == STRATEGY_BUCKET) {
        list = rks_alloc(layout->count, sizeof(*list), err);
        if (list == NULL)
            return RKS_ERR_MEMORY;
        for (size_t i = 0; i < layout->count; i++)
            if (!layout->groups[i].alone)
                list[filled++] = layout->groups[i].longest;
        qsort(list, filled, sizeof(*list), compare_bounds);
        for (size_t i = 0; i < filled; i++)
            if (kept == 0 || list[kept - 1] != list[i])
                list[kept++] = list[i];
    }
    if (kept == 0) {
        rks_free(list);
        list = NULL;
    }
    *bounds = list;
    *count = kept;
    return RKS_OK;
}
