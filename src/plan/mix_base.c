/* SPDX-License-Identifier: Apache-2.0
 *
 * mix_base.c: the base of an epoch with a mix: each id as often as it is drawn, sorted by length
 * here, or in the order of draws (sequence.c). */
#include "plan/mix.h"

/* Fills the base with the multiset in the order of lengths. */
static rks_status fill_sorted(rks_plan *plan, rks_plan_base *base, rks_error *err)
{
    enum { AHEAD = 32, COPIES = 4 }; /* the next samples overwrite surplus copies */
    const uint32_t *left = plan->in.mix->left;
    uint64_t room = plan->in.mix->rest;
    bool alone = plan->in.config.too_long == TOO_LONG_ALONE;
    uint64_t at = 0;
    for (uint64_t i = 0, end; i < plan->in.count;) {
        rks_status status = rks_plan_stretch(i, plan->in.count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t id = plan->in.order[i];
            if (i + AHEAD < plan->in.count) /* counts are anywhere in memory */
                __builtin_prefetch(&left[plan->in.order[i + AHEAD]]);
            uint32_t times = left[id], copied = 0;
            if (room - at >= COPIES) /* `times` is random, so no branch asks for it */
                for (; copied < COPIES; copied++)
                    plan->image.ids[at + copied] = id;
            for (; copied < times; copied++)
                plan->image.ids[at + copied] = id;
            at += times;
            base->alone += alone && plan->in.lengths[id] > plan->in.config.limit ? times : 0;
        }
    }
    base->count = at;
    return RKS_OK;
}

rks_status rks_mix_fill(rks_plan *plan, uint64_t key, rks_plan_base *base, rks_error *err)
{
    *base = (rks_plan_base){.ids = plan->image.ids, .longest = plan->in.longest};
    if (rks_plan_sorts(&plan->in.config))
        return plan->in.cut_count == 0 ? fill_sorted(plan, base, err)
                                       : rks_mix_fill_sorted_pieces(plan, base, err);
    base->count = plan->in.mix->rest;
    return rks_mix_sequence(plan, key, err);
}
