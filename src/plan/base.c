/* SPDX-License-Identifier: Apache-2.0
 *
 * base.c: finds the ids that an epoch plans, in the strategy's order: sorted by length, or by id.
 * Leaves out ids that are struck out, absent or dropped. */
#include "plan/inside.h"

#include <string.h>

static bool is_struck(const uint8_t *struck, uint32_t id)
{
    return struck != NULL && (struck[id / 8] >> (id % 8) & 1) != 0;
}

const uint32_t *rks_plan_base_sorted(const rks_plan *plan)
{
    return plan->in.order + (plan->in.count - rks_plan_uncut(plan));
}

/* Appends the ids that are too long, those that are not, or all. */
static rks_status fill_by_id(const rks_plan *plan, const uint8_t *struck, bool take_short,
                             bool take_long, uint64_t *at, rks_error *err)
{
    uint32_t limit = plan->in.config.limit;
    for (uint64_t i = 0, end; i < plan->in.count;) {
        rks_status status = rks_plan_stretch(i, plan->in.count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t id = (uint32_t)i;
            bool take = plan->in.lengths[id] > limit ? take_long : take_short;
            take = take && plan->in.lengths[id] != RKS_LENGTH_ABSENT;
            if (take && !is_struck(struck, id))
                plan->image.ids[(*at)++] = id;
        }
    }
    return RKS_OK;
}

/* Appends the pieces of cut sample number `cut`. */
static void fill_pieces(const rks_plan *plan, const uint8_t *struck, size_t cut, uint64_t *at)
{
    uint32_t first, count = rks_plan_pieces_of(plan, cut, &first);
    for (uint32_t i = 0; i < count; i++)
        if (!is_struck(struck, first + i))
            plan->image.ids[(*at)++] = first + i;
}

/* Fills the base by id if samples are split. Pieces take the places of their samples. */
static rks_status fill_split(const rks_plan *plan, const uint8_t *struck, uint64_t *at,
                             rks_error *err)
{
    size_t cut = 0;
    for (uint64_t i = 0, end; i < plan->in.count;) {
        rks_status status = rks_plan_stretch(i, plan->in.count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t id = (uint32_t)i, length = plan->in.lengths[id];
            if (length == RKS_LENGTH_ABSENT)
                continue;
            if (length > plan->in.config.limit)
                fill_pieces(plan, struck, cut++, at);
            else if (!is_struck(struck, id))
                plan->image.ids[(*at)++] = id;
        }
    }
    return RKS_OK;
}

/* Fills the base from the sorted order merged with the pieces. */
static rks_status fill_sorted_split(rks_plan *plan, const uint8_t *struck, rks_plan_base *base,
                                    rks_error *err)
{
    uint64_t count = rks_plan_kept(plan);
    rks_plan_merge_pieces(plan, rks_plan_base_sorted(plan), rks_plan_uncut(plan), plan->image.ids);
    for (uint64_t i = 0, end; i < count;) {
        rks_status status = rks_plan_stretch(i, count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++)
            if (!is_struck(struck, plan->image.ids[i]))
                plan->image.ids[base->count++] = plan->image.ids[i];
    }
    return RKS_OK;
}

/* Fills the base from the sorted order. */
static rks_status fill_sorted(rks_plan *plan, const uint8_t *struck, rks_plan_base *base,
                              rks_error *err)
{
    const uint32_t *order = rks_plan_base_sorted(plan);
    uint64_t alone = plan->in.config.too_long == TOO_LONG_ALONE ? plan->in.too_long : 0;
    uint64_t count = rks_plan_kept(plan);
    for (uint64_t i = 0, end; i < count;) {
        rks_status status = rks_plan_stretch(i, count, &end, err);
        if (status != RKS_OK)
            return status;
        if (struck == NULL) {
            memcpy(plan->image.ids + i, order + i, (end - i) * sizeof(*order));
            base->count = i = end;
        }
        for (; i < end; i++) {
            if (is_struck(struck, order[i]))
                continue;
            base->alone += i < alone;
            plan->image.ids[base->count++] = order[i];
        }
    }
    if (struck == NULL)
        base->alone = alone;
    return RKS_OK;
}

rks_status rks_plan_base_fill(rks_plan *plan, const uint8_t *struck, rks_plan_base *base,
                              rks_error *err)
{
    enum too_long too_long = plan->in.config.too_long;
    bool drops = too_long == TOO_LONG_DROP;
    *base = (rks_plan_base){.ids = plan->image.ids, .longest = plan->in.longest};
    if (rks_plan_sorts(&plan->in.config))
        return plan->in.piece_count == 0 ? fill_sorted(plan, struck, base, err)
                                         : fill_sorted_split(plan, struck, base, err);
    if (plan->in.piece_count > 0)
        return fill_split(plan, struck, &base->count, err);
    if (plan->in.config.strategy != STRATEGY_RANDOM || too_long != TOO_LONG_ALONE)
        return fill_by_id(plan, struck, true, !drops, &base->count, err);
    rks_status status = fill_by_id(plan, struck, false, true, &base->count, err);
    base->alone = base->count;
    return status == RKS_OK ? fill_by_id(plan, struck, true, false, &base->count, err) : status;
}
