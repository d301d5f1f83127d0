/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_bucket.c: neighbourhoods of like length, shuffled inside. With a budget, each has at
 * least `mixing` batches; with batch_size alone, as many as cost little padding. */
#include "plan/strategy.h"
#include "plan/cancellation.h"

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
    uint64_t batches = in->batches_like;
    if (base->count < base->whole) /* both factors are below 2^32 */
        batches = (batches < UINT32_MAX ? batches : UINT32_MAX) * base->count / base->whole;
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

static rks_status bucket_cut(const rks_plan_input *in, rks_epoch_image *image,
                             const rks_plan_base *base, const rks_epoch_task *task,
                             rks_plan_layout *layout, rks_error *err)
{
    (void)image;
    return rks_plan_cut(in, base, task->world, cut_bucket, layout, err);
}

/* Returns true if ids of equal length may also change neighbourhoods. */
static bool is_small(const rks_plan_input *in)
{
    enum { SMALL = 800 };
    return in->config.max_tokens == UINT64_MAX && in->batches_like < SMALL;
}

static rks_status bucket_shuffle(const rks_plan_input *in, rks_epoch_image *image,
                                 const rks_plan_base *base, const rks_plan_layout *layout,
                                 uint64_t key, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    if (is_small(in)) /* neighbourhoods may be single batches */
        status = rks_plan_shuffle_equals(in, image, base, rks_random_key(key, layout->count), err);
    for (size_t i = 0; i < layout->count && status == RKS_OK; i++) {
        const rks_plan_group *group = &layout->groups[i];
        status =
            rks_plan_shuffle(rks_random_key(key, i), image->ids + group->first, group->span, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, group->span, err);
    }
    return status;
}

const rks_strategy rks_strategy_bucket = {
    .name = "bucket",
    .order = RKS_ORDER_BY_LENGTH,
    .neighbourhoods = true,
    .cut = bucket_cut,
    .shuffle = bucket_shuffle,
    .place = rks_place_by_cost,
};
