/* SPDX-License-Identifier: Apache-2.0
 *
 * skip_steps.c: the calls that skip steps of a plan, and count those that are skipped. */
#include "plan/plan_state.h"

#include <inttypes.h>

#include "base/error.h"

rks_status rks_plan_next_step(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *next,
                              rks_error *err)
{
    uint64_t steps, segment = rks_plan_segment_of(&plan->progress, epoch);
    bool left_out = true;
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    for (; status == RKS_OK && left_out; step += left_out) {
        left_out = false;
        step = rks_plan_unskipped(&plan->progress, epoch, segment, step);
        if (plan->absences != NULL && step < steps)
            status = rks_plan_left_out(plan, epoch, step, &left_out, err);
    }
    if (status != RKS_OK)
        return status;
    *next = step < steps ? step : steps;
    return RKS_OK;
}

rks_status rks_plan_skipped_by_user(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *count,
                                    rks_error *err)
{
    uint64_t steps, first, end = 0, segment = rks_plan_segment_of(&plan->progress, epoch);
    *count = 0;
    if (plan->progress.skip_count == 0)
        return RKS_OK;
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    step = status == RKS_OK && step > steps ? steps : step;
    while (status == RKS_OK &&
           rks_plan_next_skip(&plan->progress, epoch, segment, end, step, &first, &end))
        *count += end - first;
    return status;
}

/* Steps that the user skips may be left out, too. */
rks_status rks_plan_skipped(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *count,
                            rks_error *err)
{
    uint64_t steps, left_out, both, first, end = 0;
    uint64_t segment = rks_plan_segment_of(&plan->progress, epoch);
    rks_status status = rks_plan_skipped_by_user(plan, epoch, step, count, err);
    if (status != RKS_OK || plan->absences == NULL)
        return status;
    status = rks_plan_steps(plan, epoch, &steps, err);
    step = status == RKS_OK && step > steps ? steps : step;
    if (status == RKS_OK)
        status = rks_plan_count_left_out(plan, epoch, 0, step, &left_out, err);
    if (status != RKS_OK)
        return status;
    *count += left_out;
    while (rks_plan_next_skip(&plan->progress, epoch, segment, end, step, &first, &end)) {
        status = rks_plan_count_left_out(plan, epoch, first, end, &both, err);
        if (status != RKS_OK)
            return status;
        *count -= both;
    }
    return RKS_OK;
}

bool rks_plan_has_absent(const rks_plan *plan)
{
    return plan->absences != NULL;
}

void rks_plan_absent(const rks_plan *plan, const rks_absent_run **runs, size_t *count)
{
    *runs = NULL;
    *count = 0;
    if (plan->absences != NULL)
        *count = rks_plan_absences_runs(plan->absences, runs);
}

void rks_plan_lengths(const rks_plan *plan, const uint32_t **lengths, uint64_t *count)
{
    *lengths = plan->in.lengths;
    *count = plan->in.count;
}

rks_status rks_plan_skip(rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t last,
                         rks_error *err)
{
    uint64_t steps = 0;
    uint32_t micro = plan->in.config.micro_batches;
    if (epoch > INT64_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "skip: epoch %" PRIu64 " is above 2^63 - 1",
                        epoch);
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    if (status != RKS_OK)
        return status;
    if (first > last || last >= steps)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "skip: steps %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                        ", which has steps 0 to %" PRIu64,
                        first, last, epoch, steps == 0 ? 0 : steps - 1);
    if (first % micro != 0 || (last + 1) % micro != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "skip: steps %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                        " are not whole optimizer steps of %" PRIu32 " batches each",
                        first, last, epoch, micro);
    const rks_plan_skip_range range = {epoch, rks_plan_segment_of(&plan->progress, epoch), first,
                                       last + 1};
    return rks_plan_add_skips(&plan->in, &plan->progress, &range, 1, err);
}

rks_status rks_plan_skip_all(rks_plan *plan, const rks_step_range *list, size_t count,
                             rks_error *err)
{
    rks_status status = RKS_OK;
    if (list == NULL && count > 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "skip is NULL, with %zu ranges", count);
    for (size_t i = 0; i < count && status == RKS_OK; i++)
        status = rks_plan_skip(plan, list[i].epoch, list[i].first, list[i].last, err);
    return status;
}
