/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_shuffled.h: a strategy that only tests have: batches are filled in the order of ids, as
 * sequential does, and the steps are shuffled. It shows all that a new strategy takes. */
#include "plan/strategy.h"

#ifndef STRATEGY_SHUFFLED_H
#define STRATEGY_SHUFFLED_H

static bool shuffled_is_greedy(const rks_plan_config *config)
{
    return config->max_tokens != UINT64_MAX || config->too_long == TOO_LONG_ALONE;
}

static rks_status shuffled_cut(const rks_plan_input *in, rks_epoch_image *image,
                               const rks_plan_base *base, const rks_epoch_task *task,
                               rks_plan_layout *layout, rks_error *why)
{
    (void)image;
    return rks_plan_cut(in, base, task->world,
                        shuffled_is_greedy(&in->config) ? rks_cut_greedy : rks_cut_uniform, layout,
                        why);
}

static const rks_strategy strategy_shuffled = {
    .name = "shuffled",
    .order = RKS_ORDER_BY_ID,
    .is_greedy = shuffled_is_greedy,
    .cut = shuffled_cut,
    .place = rks_place_by_cost,
};

#endif
