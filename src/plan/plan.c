/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: returns the steps and batches of a plan, and makes the epoch that they are of current. */
#include "plan/plan_state.h"

#include <inttypes.h>

#include "base/error.h"
#include "plan/mix/mix.h"
#include "plan/order/order.h"
#include "plan/strategy.h"
#include "plan/cache/epoch_cache_area.h"

uint32_t rks_plan_world(const rks_plan *plan)
{
    return plan->in.config.world;
}

bool rks_plan_is_computed(const rks_plan *plan, uint64_t epoch, uint64_t step)
{
    if (!plan->image.ready || plan->image.epoch != epoch)
        return false;
    if (plan->in.mix == NULL)
        return true;
    uint64_t number = rks_mix_number(&plan->progress, epoch, step);
    return number >= plan->image.begin && (number < plan->image.end || plan->image.is_last);
}

rks_status rks_plan_prepare(rks_plan *plan, uint64_t epoch, rks_error *err)
{
    return rks_plan_prepare_step(plan, epoch, 0, err);
}

rks_status rks_plan_prepare_step(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err)
{
    bool shown = false;
    rks_status status = plan->cache == NULL ? RKS_OK : rks_cache_check(plan, err);
    if (status != RKS_OK || rks_plan_is_computed(plan, epoch, step))
        return status;
    plan->image.ready = false;
    if (plan->cache != NULL)
        status = rks_cache_show(plan, epoch, &shown, err);
    return status != RKS_OK || shown
               ? status
               : rks_epoch_make(&plan->in, &plan->progress, epoch, step, &plan->image, err);
}

/* Counts the steps of an epoch with a mix, which are known when its last stretch is planned. */
static rks_status count_drawn_steps(rks_plan *plan, uint64_t epoch, uint64_t *steps, rks_error *err)
{
    if (!plan->steps_known || plan->steps_epoch != epoch) {
        rks_status status = rks_plan_prepare_step(plan, epoch, UINT32_MAX, err);
        if (status != RKS_OK)
            return status;
        plan->steps = plan->image.end - rks_mix_number(&plan->progress, epoch, 0);
        plan->steps_epoch = epoch;
        plan->steps_known = true;
    }
    *steps = plan->steps;
    return RKS_OK;
}

rks_status rks_plan_steps(rks_plan *plan, uint64_t epoch, uint64_t *steps, rks_error *err)
{
    if (plan->in.mix != NULL)
        return count_drawn_steps(plan, epoch, steps, err);
    if (plan->progress.done_count > 0 && plan->progress.resumed_epoch == epoch) {
        *steps = plan->progress.rest_steps;
        return RKS_OK;
    }
    const rks_plan_layout *layout = &plan->in.whole;
    if (plan->in.config.per_epoch) {
        rks_status status = rks_plan_prepare(plan, epoch, err);
        if (status != RKS_OK)
            return status;
        layout = plan->image.layout;
    }
    *steps = layout->batches / plan->in.config.world;
    return RKS_OK;
}

/* Finds the slot of a batch, and makes its epoch current. */
static rks_status find_slot(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                            uint64_t *slot, rks_error *err)
{
    uint32_t world = plan->in.config.world;
    if (rank >= world)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "rank %" PRIu32 " of a plan for %" PRIu32 " ranks", rank, world);
    rks_status status = rks_plan_prepare_step(plan, epoch, step, err);
    if (status != RKS_OK)
        return status;
    uint64_t before = plan->in.mix == NULL ? 0 : rks_mix_number(&plan->progress, epoch, 0);
    uint64_t first = plan->in.mix == NULL ? 0 : plan->image.begin;
    uint64_t steps = first + plan->image.layout->batches / world - before;
    if (step >= steps)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "step %" PRIu64 ": epoch %" PRIu64 " has %" PRIu64 " steps", step, epoch,
                        steps);
    *slot = (before + step - first) * world + rank;
    return RKS_OK;
}

rks_status rks_plan_planned(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                            rks_step_batch *batch, rks_error *err)
{
    uint64_t slot = 0;
    *batch = (rks_step_batch){.count = 0};
    rks_status status = find_slot(plan, epoch, step, rank, &slot, err);
    if (status != RKS_OK)
        return status;
    rks_plan_at(&plan->in, &plan->image, slot, &batch->ids, &batch->count);
    rks_plan_pieces_at(&plan->image, batch->ids, batch->count, &batch->pieces, &batch->piece_count);
    if (plan->in.config.strategy->packs)
        rks_plan_bins_at(&plan->in, &plan->image, slot, &batch->bounds, &batch->bins);
    return RKS_OK;
}

static rks_status find_batch(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                             rks_step_batch *batch, rks_error *err)
{
    return plan->absences == NULL || rank >= plan->in.config.world
               ? rks_plan_planned(plan, epoch, step, rank, batch, err)
               : rks_plan_deliver(plan, epoch, step, rank, batch, err);
}

rks_status rks_plan_batch(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                          const uint32_t **sample_ids, size_t *count, rks_error *err)
{
    rks_step_batch batch;
    rks_status status = find_batch(plan, epoch, step, rank, &batch, err);
    if (status != RKS_OK)
        return status;
    *sample_ids = batch.ids;
    *count = batch.count;
    return RKS_OK;
}

rks_status rks_plan_pieces(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                           const rks_piece **pieces, size_t *count, rks_error *err)
{
    rks_step_batch batch;
    rks_status status = find_batch(plan, epoch, step, rank, &batch, err);
    if (status != RKS_OK)
        return status;
    *pieces = batch.pieces;
    *count = batch.piece_count;
    return RKS_OK;
}

rks_status rks_plan_bins(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                         const uint32_t **bounds, size_t *bins, rks_error *err)
{
    if (!plan->in.config.strategy->packs)
        return rks_fail(err, RKS_ERR_STATE, 0, "bins: the plan's strategy is not pack");
    rks_step_batch batch;
    rks_status status = find_batch(plan, epoch, step, rank, &batch, err);
    if (status != RKS_OK)
        return status;
    *bounds = batch.bounds;
    *bins = batch.bins;
    return RKS_OK;
}
