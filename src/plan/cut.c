/* SPDX-License-Identifier: Apache-2.0
 *
 * cut.c: cuts a base of ids into groups of batches, regardless of the number of ranks.
 *
 * A cut depends only on lengths, so it is the same in every epoch, except for greedy cuts of a
 * shuffled base (steps=per_epoch).
 *   bucket      neighbourhoods of like length, shuffled inside. With a budget, each has at least
 *               `mixing` batches; with batch_size alone, as many as cost little padding
 *   sorted      full batches, longest first; groups of batches with the same number of samples
 *   random      full batches of any samples; with a budget, see fill.c
 *   sequential  batches filled in id order */
#include "plan/inside.h"

#include <string.h>

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/mix.h"

rks_status rks_plan_layout_add(rks_plan_layout *layout, const rks_plan_group *group, rks_error *err)
{
    if (layout->count == layout->room) {
        size_t room = layout->room == 0 ? 16 : layout->room + layout->room / 2;
        rks_plan_group *groups = rks_realloc(layout->groups, room, sizeof(*groups), err);
        if (groups == NULL)
            return RKS_ERR_MEMORY;
        rks_usage_add(RKS_MEMORY_PLAN, (room - layout->room) * sizeof(*groups));
        layout->groups = groups;
        layout->room = room;
    }
    layout->groups[layout->count++] = *group;
    return RKS_OK;
}

void rks_plan_layout_free(rks_plan_layout *layout)
{
    rks_usage_sub(RKS_MEMORY_PLAN, layout->room * sizeof(*layout->groups));
    rks_free(layout->groups);
    rks_pack_free(layout->pack);
    memset(layout, 0, sizeof(*layout));
}

rks_status rks_plan_layout_batch(rks_plan_layout *layout, uint64_t first, uint64_t size,
                                 uint32_t cap, bool alone, rks_error *err)
{
    if (layout->count > 0) {
        rks_plan_group *last = &layout->groups[layout->count - 1];
        if (last->alone == alone && last->cap == cap &&
            last->count == (uint64_t)last->batches * cap) {
            last->span += (uint32_t)size;
            last->count = last->span;
            last->batches++;
            return RKS_OK;
        }
    }
    rks_plan_group group = {.first = (uint32_t)first,
                            .span = (uint32_t)size,
                            .count = (uint32_t)size,
                            .batches = 1,
                            .cap = cap,
                            .alone = alone};
    return rks_plan_layout_add(layout, &group, err);
}

rks_status rks_plan_layout_alone(rks_plan_layout *layout, uint64_t samples, rks_error *err)
{
    rks_plan_group group = {.span = (uint32_t)samples,
                            .count = (uint32_t)samples,
                            .batches = (uint32_t)samples,
                            .cap = 1,
                            .alone = true};
    return rks_plan_layout_add(layout, &group, err);
}

static rks_status cut_uniform(const rks_plan_input *in, const rks_plan_base *base,
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

static bool is_alone(const rks_plan_input *in, uint32_t id)
{
    return in->config.too_long == TOO_LONG_ALONE && in->lengths[id] > in->config.limit;
}

/* Prefetches a length that is needed soon. */
static inline void prefetch_length(const rks_plan_input *in, uint32_t id)
{
    __builtin_prefetch(&in->lengths[id < in->count ? id : 0]);
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

static rks_status cut_greedy(const rks_plan_input *in, const rks_plan_base *base,
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

/* Returns the first position from `first` on with a length below `low`. The base is sorted. */
static uint64_t find_below(const rks_plan_input *in, const rks_plan_base *base, uint64_t first,
                           uint32_t low)
{
    uint64_t end = base->count;
    while (first < end) {
        uint64_t middle = first + (end - first) / 2;
        if (rks_plan_length(in, base->ids[middle]) < low)
            end = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* Returns the least batches of a neighbourhood. More batches mix better, fewer waste less on
 * padding. */
static uint64_t mixing_of(const rks_plan_input *in, const rks_plan_base *base)
{
    uint64_t all = in->mix == NULL ? rks_plan_kept(in) : in->mix->whole;
    uint64_t batches = in->batches_like;
    if (base->count < all) /* both factors are below 2^32 */
        batches = (batches < UINT32_MAX ? batches : UINT32_MAX) * base->count / all;
    if (batches < 200) /* small sets: less padding comes first */
        return batches < 100 ? 2 : 3;
    batches /= 200;
    return batches < 4 ? 4 : batches > 64 ? 64 : batches;
}

/* Cuts neighbourhoods of batches of one size. Each takes at most 1 / LITTLE more room than if its
 * batches were cut from the sorted order. */
static rks_status cut_bucket_by_count(const rks_plan_input *in, const rks_plan_base *base,
                                      rks_plan_layout *layout, rks_error *err)
{
    enum { LITTLE = 250 };
    uint64_t cap = rks_plan_cap(&in->config, 1), done = 0;
    rks_status status = RKS_OK;
    for (uint64_t i = base->alone; i < base->count && status == RKS_OK;) {
        uint64_t longest = rks_plan_length(in, base->ids[i]), lost = 0, end = i;
        uint64_t batches = 0;
        do {
            batches++;
            end = base->count - end < cap ? base->count : end + cap;
            if (end < base->count)
                lost += longest - rks_plan_length(in, base->ids[end]);
        } while (end < base->count && lost * LITTLE <= longest * (batches + 1));
        rks_plan_group group = {.first = (uint32_t)i,
                                .span = (uint32_t)(end - i),
                                .count = (uint32_t)(end - i),
                                .batches = (uint32_t)batches,
                                .cap = (uint32_t)cap,
                                .longest = (uint32_t)longest};
        status = rks_plan_layout_add(layout, &group, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, end - i, err);
        i = end;
    }
    return status;
}

static rks_status cut_bucket(const rks_plan_input *in, const rks_plan_base *base,
                             rks_plan_layout *layout, rks_error *err)
{
    if (in->config.max_tokens == UINT64_MAX)
        return cut_bucket_by_count(in, base, layout, err);
    uint64_t mixing = mixing_of(in, base);
    uint32_t percent = mixing < 8 ? 5 : 3;
    for (uint64_t i = base->alone; i < base->count;) {
        uint32_t longest = rks_plan_length(in, base->ids[i]);
        uint64_t cap = rks_plan_cap(&in->config, longest);
        uint64_t left = base->count - i;
        uint64_t batches = mixing;
        if (mixing * cap < left) {
            uint32_t low = longest - (uint32_t)((uint64_t)longest * percent / 100);
            uint64_t end = find_below(in, base, i + mixing * cap, low);
            batches = (end - i) / cap;
        }
        /* Avoids a small rest: less than half a neighbourhood joins this one. */
        uint64_t count = batches * cap;
        if (count >= left || left - count < mixing * cap / 2) {
            count = left;
            batches = (left + cap - 1) / cap;
        }
        rks_plan_group group = {.first = (uint32_t)i,
                                .span = (uint32_t)count,
                                .count = (uint32_t)count,
                                .batches = (uint32_t)batches,
                                .cap = (uint32_t)cap,
                                .longest = longest};
        rks_status status = rks_plan_layout_add(layout, &group, err);
        if (status != RKS_OK)
            return status;
        i += count;
    }
    return RKS_OK;
}

rks_status rks_plan_cut(const rks_plan_input *in, const rks_plan_base *base,
                        rks_plan_layout *layout, rks_error *err)
{
    const rks_plan_config *config = &in->config;
    layout->count = 0;
    layout->base = base->count;
    if (base->alone > 0) {
        rks_status status = rks_plan_layout_alone(layout, base->alone, err);
        if (status != RKS_OK)
            return status;
    }
    switch (config->strategy) {
    case STRATEGY_BUCKET:
        return cut_bucket(in, base, layout, err);
    case STRATEGY_SORTED:
        if (config->cost == COST_TOKENS && config->max_tokens != UINT64_MAX)
            return cut_greedy(in, base, layout, err);
        return cut_sorted(in, base, layout, err);
    case STRATEGY_RANDOM:
        if (config->max_tokens != UINT64_MAX || config->alone_in_order)
            return cut_greedy(in, base, layout, err);
        return cut_uniform(in, base, layout, err);
    case STRATEGY_SEQUENTIAL:
    case STRATEGY_PACK: /* pack.c */
        break;
    }
    if (config->max_tokens == UINT64_MAX && config->too_long != TOO_LONG_ALONE)
        return cut_uniform(in, base, layout, err);
    return cut_greedy(in, base, layout, err);
}
