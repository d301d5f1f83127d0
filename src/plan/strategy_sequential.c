/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_sequential.c: batches that are filled in the order of ids. */
#include "plan/strategy.h"

static bool sequential_is_greedy(const rks_plan_config *config)
{
    return config->max_tokens != UINT64_MAX || config->too_long == TOO_LONG_ALONE;
}

static rks_status sequential_cut(const rks_plan_input *in, rks_epoch_image *image,
                                 const rks_plan_base *base, const rks_epoch_task *task,
                                 rks_plan_layout *layout, rks_error *err)
{
    (void)image;
    return rks_plan_cut(in, base, task->world,
                        sequential_is_greedy(&in->config) ? rks_cut_greedy : rks_cut_uniform,
                        layout, err);
}

const rks_strategy rks_strategy_sequential = {
    .name = "sequential",
    .order = RKS_ORDER_BY_ID,
    .is_greedy = sequential_is_greedy,
    .cut = sequential_cut,
};
