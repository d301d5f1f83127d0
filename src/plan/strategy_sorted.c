/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_sorted.c: full batches, longest first; groups of batches with the same number of
 * samples. Samples of equal length change places. */
#include "plan/strategy.h"
#include "plan/cancellation.h"

static rks_status cut_sorted(const rks_plan_input *in, const rks_plan_base *base,
                             rks_plan_layout *layout, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = base->alone; i < base->count && status == RKS_OK;) {
        uint32_t cap = rks_plan_cap(&in->config, rks_plan_length(in, base->ids[i]));
        uint64_t size = base->count - i < cap ? base->count - i : cap;
        status = rks_plan_layout_batch(layout, i, size, cap, false, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, size, err);
        i += size;
    }
    return status;
}

static bool sorted_is_greedy(const rks_plan_config *config)
{
    return config->cost == COST_TOKENS && config->max_tokens != UINT64_MAX;
}

static rks_status sorted_cut(const rks_plan_input *in, rks_epoch_image *image,
                             const rks_plan_base *base, const rks_epoch_task *task,
                             rks_plan_layout *layout, rks_error *err)
{
    (void)image;
    return rks_plan_cut(in, base, task->world,
                        sorted_is_greedy(&in->config) ? rks_cut_greedy : cut_sorted, layout, err);
}

static rks_status sorted_shuffle(const rks_plan_input *in, rks_epoch_image *image,
                                 const rks_plan_base *base, const rks_plan_layout *layout,
                                 uint64_t key, rks_error *err)
{
    (void)layout;
    return in->config.no_shuffle ? RKS_OK : rks_plan_shuffle_equals(in, image, base, key, err);
}

const rks_strategy rks_strategy_sorted = {
    .name = "sorted",
    .order = RKS_ORDER_BY_LENGTH,
    .is_greedy = sorted_is_greedy,
    .cut = sorted_cut,
    .shuffle = sorted_shuffle,
};
