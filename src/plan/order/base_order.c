/* SPDX-License-Identifier: Apache-2.0
 *
 * base_order.c: finds the ids that an epoch plans, in the strategy's order: sorted by length, or by
 * id. Leaves out ids that are struck out, absent or dropped. */
#include "plan/cancellation.h"

#include <string.h>

#include "plan/mix/mix.h"
#include "plan/strategy.h"

static bool is_struck(const uint8_t *struck, uint32_t id)
{
    return struck != NULL && (struck[id / 8] >> (id % 8) & 1) != 0;
}

/* Appends the ids that are too long, those that are not, or all. */
static rks_status fill_by_id(const rks_plan_input *in, const rks_epoch_image *image,
                             const uint8_t *struck, bool with_short, bool with_long, uint64_t *at,
                             rks_error *err)
{
    uint32_t limit = in->config.limit;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t id = (uint32_t)i;
            bool take = in->lengths[id] > limit ? with_long : with_short;
            take = take && in->lengths[id] != RKS_LENGTH_ABSENT;
            if (take && !is_struck(struck, id))
                image->ids[(*at)++] = id;
        }
    }
    return RKS_OK;
}

/* Appends the pieces of cut sample number `cut`. */
static void fill_pieces(const rks_plan_input *in, const rks_epoch_image *image,
                        const uint8_t *struck, size_t cut, uint64_t *at)
{
    uint32_t first, count = rks_plan_pieces_of(in, cut, &first);
    for (uint32_t i = 0; i < count; i++)
        if (!is_struck(struck, first + i))
            image->ids[(*at)++] = first + i;
}

/* Fills the base by id if samples are split. Pieces take the places of their samples. */
static rks_status fill_split(const rks_plan_input *in, const rks_epoch_image *image,
                             const uint8_t *struck, uint64_t *at, rks_error *err)
{
    size_t cut = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t id = (uint32_t)i, length = in->lengths[id];
            if (length == RKS_LENGTH_ABSENT)
                continue;
            if (length > in->config.limit)
                fill_pieces(in, image, struck, cut++, at);
            else if (!is_struck(struck, id))
                image->ids[(*at)++] = id;
        }
    }
    return RKS_OK;
}

/* Fills the base from the sorted order merged with the pieces. */
static rks_status fill_sorted_split(const rks_plan_input *in, rks_epoch_image *image,
                                    const uint8_t *struck, rks_plan_base *base, rks_error *err)
{
    uint64_t count = rks_plan_kept(in);
    rks_plan_merge_pieces(in, rks_plan_base_sorted(in), rks_plan_uncut(in), image->ids);
    for (uint64_t i = 0, end; i < count;) {
        rks_status status = rks_plan_stretch(i, count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++)
            if (!is_struck(struck, image->ids[i]))
                image->ids[base->count++] = image->ids[i];
    }
    return RKS_OK;
}

/* Fills the base from the sorted order. */
static rks_status fill_sorted(const rks_plan_input *in, rks_epoch_image *image,
                              const uint8_t *struck, rks_plan_base *base, rks_error *err)
{
    const uint32_t *order = rks_plan_base_sorted(in);
    uint64_t alone = in->config.too_long == TOO_LONG_ALONE ? in->too_long : 0;
    uint64_t count = rks_plan_kept(in);
    for (uint64_t i = 0, end; i < count;) {
        rks_status status = rks_plan_stretch(i, count, &end, err);
        if (status != RKS_OK)
            return status;
        if (struck == NULL) {
            memcpy(image->ids + i, order + i, (end - i) * sizeof(*order));
            base->count = i = end;
        }
        for (; i < end; i++) {
            if (is_struck(struck, order[i]))
                continue;
            base->alone += i < alone;
            image->ids[base->count++] = order[i];
        }
    }
    if (struck == NULL)
        base->alone = alone;
    return RKS_OK;
}

rks_status rks_plan_base_fill(const rks_plan_input *in, rks_epoch_image *image,
                              const uint8_t *struck, rks_plan_base *base, rks_error *err)
{
    enum too_long too_long = in->config.too_long;
    bool drops = too_long == TOO_LONG_DROP;
    *base = (rks_plan_base){.ids = image->ids, .longest = in->longest, .whole = rks_plan_kept(in)};
    if (rks_plan_sorts(&in->config))
        return in->piece_count == 0 ? fill_sorted(in, image, struck, base, err)
                                    : fill_sorted_split(in, image, struck, base, err);
    if (in->piece_count > 0)
        return fill_split(in, image, struck, &base->count, err);
    if (in->config.strategy->order != RKS_ORDER_ANY || too_long != TOO_LONG_ALONE)
        return fill_by_id(in, image, struck, true, !drops, &base->count, err);
    rks_status status = fill_by_id(in, image, struck, false, true, &base->count, err);
    base->alone = base->count;
    return status == RKS_OK ? fill_by_id(in, image, struck, true, false, &base->count, err)
                            : status;
}
