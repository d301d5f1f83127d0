/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.c: ways to cut a base into batches that strategies share. */
#include "base/cache_line.h"
#include "plan/cancellation.h"
#include "plan/strategy.h"

rks_status rks_cut_uniform(const rks_plan_input *in, const rks_plan_base *base,
                           rks_plan_layout *layout, rks_error *err)
{
    uint64_t count = base->count - base->alone;
    if (count == 0)
        return RKS_OK;
    uint32_t cap = rks_plan_cap(&in->config, base->longest);
    rks_plan_group group = {.first = (uint32_t)base->alone,
                            .span = (uint32_t)count,
                            .count = (uint32_t)count,
                            .batches = (uint32_t)((count + cap - 1) / cap),
                            .cap = cap};
    return rks_plan_layout_add(layout, &group, err);
}

static bool is_alone(const rks_plan_input *in, uint32_t id)
{
    return in->config.too_long == TOO_LONG_ALONE && in->lengths[id] > in->config.limit;
}

/* Prefetches a length that is needed soon. */
static inline void prefetch_length(const rks_plan_input *in, uint32_t id)
{
    rks_prefetch(&in->lengths[id < in->count ? id : 0]);
}

/* Returns how many samples the batch that begins at position `first` has. */
static uint64_t greedy_size(const rks_plan_input *in, const rks_plan_base *base, uint64_t first)
{
    enum { AHEAD = 32 };
    const rks_plan_config *config = &in->config;
    uint64_t longest = 0;
    uint64_t sum = 0;
    uint64_t size = 0;
    while (first + size < base->count && size < config->batch_size) {
        uint32_t id = base->ids[first + size];
        if (base->count - first - size > AHEAD)
            prefetch_length(in, base->ids[first + size + AHEAD]);
        if (is_alone(in, id))
            break;
        uint64_t length = rks_plan_size(config, rks_plan_length(in, id));
        longest = length > longest ? length : longest;
        sum += length;
        uint64_t cost = config->cost == COST_TOKENS ? sum : longest * (size + 1);
        if (cost > config->max_tokens)
            break;
        size++;
    }
    return size < config->multiple ? size : size - size % config->multiple;
}

rks_status rks_cut_greedy(const rks_plan_input *in, const rks_plan_base *base,
                          rks_plan_layout *layout, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = base->alone; i < base->count && status == RKS_OK;) {
        bool alone = is_alone(in, base->ids[i]);
        uint64_t size = alone ? 1 : greedy_size(in, base, i);
        status = rks_plan_layout_batch(layout, i, size, (uint32_t)size, alone, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, size, err);
        i += size;
    }
    return status;
}

rks_status rks_plan_cut(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                        rks_cut_fn cut, rks_plan_layout *layout, rks_error *err)
{
    rks_status status = RKS_OK;
    layout->count = 0;
    layout->base = base->count;
    if (base->alone > 0)
        status = rks_plan_layout_alone(layout, base->alone, err);
    if (status == RKS_OK)
        status = cut(in, base, layout, err);
    return status == RKS_OK ? rks_plan_even(in, base, world, layout, err) : status;
}
