/* SPDX-License-Identifier: Apache-2.0
 *
 * mix_base.c: the base of an epoch with a mix: each id as often as it is drawn, sorted by length
 * here, or in the order of draws (sequence.c). */
#include "plan/mix/mix.h"
#include "base/cache_line.h"
#include "plan/cancellation.h"
#include "plan/strategy.h"

/* Fills the base with the multiset in the order of lengths. */
static rks_status fill_sorted(const rks_plan_input *in, const rks_mix_draws *draws,
                              rks_epoch_image *image, rks_plan_base *base, rks_error *err)
{
    enum { AHEAD = 32, COPIES = 4 }; /* the next samples overwrite surplus copies */
    const uint32_t *left = draws->left;
    uint64_t room = draws->rest;
    bool alone = in->config.too_long == TOO_LONG_ALONE;
    uint64_t at = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t id = in->order[i];
            if (i + AHEAD < in->count) /* counts are anywhere in memory */
                rks_prefetch(&left[in->order[i + AHEAD]]);
            uint32_t times = left[id], copied = 0;
            if (room - at >= COPIES) /* `times` is random, so no branch asks for it */
                for (; copied < COPIES; copied++)
                    image->ids[at + copied] = id;
            for (; copied < times; copied++)
                image->ids[at + copied] = id;
            at += times;
            base->alone += alone && in->lengths[id] > in->config.limit ? times : 0;
        }
    }
    base->count = at;
    return RKS_OK;
}

rks_status rks_mix_fill(const rks_plan_input *in, const rks_mix_draws *draws,
                        rks_epoch_image *image, uint64_t key, rks_plan_base *base, rks_error *err)
{
    *base = (rks_plan_base){.ids = image->ids, .longest = in->longest, .whole = draws->whole};
    if (rks_plan_sorts(&in->config))
        return in->cut_count == 0 ? fill_sorted(in, draws, image, base, err)
                                  : rks_mix_fill_sorted_pieces(in, draws, image, base, err);
    base->count = draws->rest;
    return rks_mix_sequence(in, draws, image, key, err);
}
