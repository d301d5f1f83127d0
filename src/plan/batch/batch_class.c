/* SPDX-License-Identifier: Apache-2.0
 *
 * batch_class.c: the class of a batch by its cost; a class is 1/64 wide.
 *
 * A neighbourhood's batches cost about what its longest sample allows, so their lengths need not be
 * read. For a group whose cut did not look for its longest sample, they are. */
#include "plan/cancellation.h"

#include "base/cache_line.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/strategy.h"

/* Returns the class of a cost, which grows with it: one number for each 1/64 of a power of two. */
static uint16_t class_of(rks_u128 cost)
{
    if (cost < RKS_BATCH_CLASS_WIDTH)
        return (uint16_t)cost;
    uint64_t high = (uint64_t)(cost >> 64);
    unsigned top = high != 0 ? 127 - (unsigned)__builtin_clzll(high)
                             : 63 - (unsigned)__builtin_clzll((uint64_t)cost);
    unsigned mantissa =
        (unsigned)(cost >> (top - RKS_BATCH_CLASS_BITS)) & (RKS_BATCH_CLASS_WIDTH - 1);
    return (uint16_t)((top - RKS_BATCH_CLASS_BITS + 1) * RKS_BATCH_CLASS_WIDTH + mantissa);
}

/* Returns the widths of a batch that budget_fill.c keeps, which saves reading lengths; or NULL. */
static const uint32_t *widths_of(const rks_epoch_work *work, const rks_plan_group *group,
                                 uint64_t first, uint64_t end)
{
    uint64_t from = group->first + first, to = group->first + end;
    bool known = work->widths != NULL && work->exact && from >= work->first &&
                 to <= work->first + work->count;
    return known ? work->widths + (from - work->first) : NULL;
}

/* Returns the cost of a batch of `count` samples, if it depends only on the longest length. */
static rks_u128 cost_of_longest(const rks_plan_input *in, uint64_t longest, uint64_t count)
{
    longest = rks_plan_width(&in->config, longest);
    rks_u128 cost = (rks_u128)longest * count;
    if (in->config.cost == COST_POLYNOMIAL) { /* below 2^127: scaled to what classes hold */
        rks_u128 linear = in->config.cost_linear, quadratic = in->config.cost_quadratic;
        return ((linear + quadratic * longest) * cost) >> 30;
    }
    return in->config.cost == COST_QUADRATIC ? cost * longest : cost;
}

static rks_u128 cost_of(const rks_plan_input *in, const rks_epoch_image *image,
                        const rks_epoch_work *work, const rks_plan_group *group, uint64_t first,
                        uint64_t end)
{
    enum cost kind = in->config.cost;
    if (in->config.balance != NULL)
        return rks_plan_balance_of(in, image->ids + group->first + first, end - first);
    uint64_t longest = group->longest;
    const uint32_t *widths = widths_of(work, group, first, end);
    if (widths != NULL) {
        uint64_t sum = 0;
        longest = 0;
        for (uint64_t i = 0; i < end - first; i++) {
            longest = widths[i] > longest ? widths[i] : longest;
            sum += widths[i];
        }
        longest *= in->config.length_multiple;
        if (kind == COST_TOKENS)
            return sum * in->config.length_multiple;
    } else if (longest == 0) { /* the cut did not need it */
        uint64_t sum = 0;
        longest = 0;
        for (uint64_t i = first; i < end; i++) {
            uint32_t length = rks_plan_length(in, image->ids[group->first + i]);
            longest = length > longest ? length : longest;
            if (kind == COST_TOKENS)
                sum += rks_plan_width(&in->config, length);
        }
        if (kind == COST_TOKENS)
            return sum;
    }
    return cost_of_longest(in, longest, end - first);
}

/* Returns true if lengths are read in random order. */
static bool looks_anywhere(const rks_plan_input *in, const rks_epoch_work *work)
{
    return in->config.strategy->order == RKS_ORDER_ANY && in->config.balance == NULL &&
           work->widths == NULL;
}

/* Copies lengths to a table of 16 bits each, if they are read in random order. Half of the memory
 * is in a cache twice as often, and it has huge pages, which a caller's array may lack. *table
 * stays NULL if some lengths do not fit. */
static rks_status make_table(const rks_plan_input *in, const rks_epoch_work *work, uint16_t **table,
                             rks_error *err)
{
    if (!looks_anywhere(in, work) || in->longest > UINT16_MAX || in->piece_count > 0 ||
        in->config.too_long == TOO_LONG_ALONE)
        return RKS_OK;
    *table = rks_alloc_raw(in->count, sizeof(**table), err);
    if (*table == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(*table, in->count * sizeof(**table));
    rks_usage_add(RKS_MEMORY_PLAN, in->count * sizeof(**table));
    for (uint64_t i = 0; i < in->count; i++) /* absent and dropped samples are in no batch */
        (*table)[i] = (uint16_t)rks_plan_length(in, (uint32_t)i);
    return RKS_OK;
}

static void free_table(const rks_plan_input *in, uint16_t *table)
{
    if (table != NULL)
        rks_usage_sub(RKS_MEMORY_PLAN, in->count * sizeof(*table));
    rks_free(table);
}

/* Prefetches the lengths of the batch that begins at `end`. */
static void prefetch_behind(const rks_plan_input *in, const rks_epoch_image *image,
                            const rks_plan_group *group, uint64_t first, uint64_t end,
                            const uint16_t *table)
{
    const uint32_t *ids = image->ids + group->first;
    uint64_t ahead = end + (end - first) < group->count ? end + (end - first) : group->count;
    for (uint64_t i = end; i < ahead; i++)
        if (table != NULL)
            rks_prefetch(&table[ids[i]]);
        else
            rks_prefetch(&in->lengths[ids[i] < in->count ? ids[i] : 0]);
}

/* Returns what cost_of returns, by the table. */
static rks_u128 cost_by_table(const rks_plan_input *in, const rks_epoch_image *image,
                              const rks_plan_group *group, uint64_t first, uint64_t end,
                              const uint16_t *table)
{
    const uint32_t *ids = image->ids + group->first;
    uint64_t longest = 0, sum = 0;
    for (uint64_t i = first; i < end; i++) {
        uint64_t length = table[ids[i]];
        longest = length > longest ? length : longest;
        if (in->config.cost == COST_TOKENS)
            sum += rks_plan_width(&in->config, length);
    }
    return in->config.cost == COST_TOKENS ? sum : cost_of_longest(in, longest, end - first);
}

rks_status rks_plan_classify(const rks_plan_input *in, const rks_epoch_image *image,
                             const rks_epoch_work *work, uint16_t *classes, rks_error *err)
{
    const rks_plan_layout *layout = image->layout;
    uint64_t done = 0;
    uint16_t *table = NULL;
    bool anywhere = looks_anywhere(in, work);
    rks_status status = make_table(in, work, &table, err);
    for (size_t i = 0; i < layout->count && status == RKS_OK; i++) {
        const rks_plan_group *group = &layout->groups[i];
        for (uint32_t j = 0; j < group->batches && status == RKS_OK; j++) {
            uint64_t first, end;
            rks_plan_deal(group, j, &first, &end);
            if (anywhere)
                prefetch_behind(in, image, group, first, end, table);
            classes[group->first_batch + j] =
                class_of(table == NULL ? cost_of(in, image, work, group, first, end)
                                       : cost_by_table(in, image, group, first, end, table));
            status = rks_plan_pause(&done, end - first, err);
        }
    }
    free_table(in, table);
    return status;
}
