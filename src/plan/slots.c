/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c: assigns batches to slots. Batches are sorted into classes of like cost (1/64 wide) and
 * shuffled in their class. Each run of `world` batches becomes a step, and then the steps are
 * shuffled. So the ranks of a step wait for each other as little as possible.
 *
 * A neighbourhood's batches cost about what its longest sample allows, so their lengths need not be
 * read. The lengths of batches of random plans, and of single long samples, are read. */
#include "plan/inside.h"

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/mix.h"

enum { CLASS_BITS = 6, CLASS_WIDTH = 1 << CLASS_BITS, CLASSES = 96 * CLASS_WIDTH };

/* Returns the class of a cost, which grows with it: one number for each 1/64 of a power of two. */
static uint16_t class_of(rks_u128 cost)
{
    if (cost < CLASS_WIDTH)
        return (uint16_t)cost;
    uint64_t high = (uint64_t)(cost >> 64);
    unsigned top = high != 0 ? 127 - (unsigned)__builtin_clzll(high)
                             : 63 - (unsigned)__builtin_clzll((uint64_t)cost);
    unsigned mantissa = (unsigned)(cost >> (top - CLASS_BITS)) & (CLASS_WIDTH - 1);
    return (uint16_t)((top - CLASS_BITS + 1) * CLASS_WIDTH + mantissa);
}

/* Returns the lengths of a batch in units that fill.c keeps, which saves reading them; or NULL. */
static const uint32_t *units_of(const rks_epoch_image *image, const rks_plan_group *group,
                                uint64_t first, uint64_t end)
{
    uint64_t from = group->first + first, to = group->first + end;
    bool known = image->units != NULL && image->units_exact && from >= image->units_first &&
                 to <= image->units_first + image->units_count;
    return known ? image->units + (from - image->units_first) : NULL;
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
                        const rks_plan_group *group, uint64_t first, uint64_t end)
{
    enum cost kind = in->config.cost;
    if (in->config.balance != NULL)
        return rks_plan_balance_of(in, image->ids + group->first + first, end - first);
    uint64_t longest = group->longest;
    const uint32_t *units = units_of(image, group, first, end);
    if (units != NULL) {
        uint64_t sum = 0;
        longest = 0;
        for (uint64_t i = 0; i < end - first; i++) {
            longest = units[i] > longest ? units[i] : longest;
            sum += units[i];
        }
        longest *= in->config.length_multiple;
        if (kind == COST_TOKENS)
            return sum * in->config.length_multiple;
    } else if (group->alone || in->config.strategy == STRATEGY_RANDOM) {
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

/* Sorts batches into plan->image.slots, the costliest class first. counts[c] becomes the end of
 * class c. */
static rks_status sort_by_class(rks_epoch_image *image, const uint16_t *classes, uint32_t *counts,
                                rks_error *err)
{
    uint64_t batches = image->layout->batches;
    rks_status status = RKS_OK;
    for (uint64_t i = 0, end; i < batches && status == RKS_OK;) {
        status = rks_plan_stretch(i, batches, &end, err);
        for (; i < end; i++)
            counts[classes[i]]++;
    }
    uint32_t next = 0;
    for (size_t class = CLASSES; class-- > 0;) {
        uint32_t count = counts[class];
        counts[class] = next;
        next += count;
    }
    for (uint64_t i = 0, end; i < batches && status == RKS_OK;) {
        status = rks_plan_stretch(i, batches, &end, err);
        for (; i < end; i++)
            image->slots[counts[classes[i]]++] = (uint32_t)i;
    }
    return status;
}

rks_status rks_plan_shuffle_steps(rks_epoch_image *image, uint64_t row, uint64_t key,
                                  rks_error *err)
{
    rks_random random = {key};
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = image->layout->batches / row; i > 1 && status == RKS_OK; i--) {
        uint32_t *a = image->slots + (i - 1) * row;
        uint32_t *b = image->slots + rks_random_below(&random, i) * row;
        for (uint64_t slot = 0; slot < row; slot++) {
            uint32_t batch = a[slot];
            a[slot] = b[slot];
            b[slot] = batch;
        }
        status = rks_plan_pause(&done, row, err);
    }
    return status;
}

/* Returns true if lengths are read in random order. */
static bool looks_anywhere(const rks_plan_input *in, const rks_epoch_image *image)
{
    return in->config.strategy == STRATEGY_RANDOM && in->config.balance == NULL &&
           image->units == NULL;
}

/* Copies lengths to a table of 16 bits each, if they are read in random order. Half of the memory
 * is in a cache twice as often, and it has huge pages, which a caller's array may lack. *table
 * stays NULL if some lengths do not fit. */
static rks_status make_table(const rks_plan_input *in, const rks_epoch_image *image,
                             uint16_t **table, rks_error *err)
{
    if (!looks_anywhere(in, image) || in->longest > UINT16_MAX || in->piece_count > 0 ||
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
            __builtin_prefetch(&table[ids[i]]);
        else
            __builtin_prefetch(&in->lengths[ids[i] < in->count ? ids[i] : 0]);
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
                             uint16_t *classes, rks_error *err)
{
    const rks_plan_layout *layout = image->layout;
    uint64_t done = 0;
    uint16_t *table = NULL;
    bool anywhere = looks_anywhere(in, image);
    rks_status status = make_table(in, image, &table, err);
    for (size_t i = 0; i < layout->count && status == RKS_OK; i++) {
        const rks_plan_group *group = &layout->groups[i];
        for (uint32_t j = 0; j < group->batches && status == RKS_OK; j++) {
            uint64_t first, end;
            rks_plan_deal(group, j, &first, &end);
            if (anywhere)
                prefetch_behind(in, image, group, first, end, table);
            classes[group->first_batch + j] =
                class_of(table == NULL ? cost_of(in, image, group, first, end)
                                       : cost_by_table(in, image, group, first, end, table));
            status = rks_plan_pause(&done, end - first, err);
        }
    }
    free_table(in, table);
    return status;
}

rks_status rks_plan_arrange(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                            uint64_t key, rks_error *err)
{
    const rks_plan_layout *layout = image->layout;
    rks_status status = RKS_ERR_MEMORY;
    uint32_t *counts = NULL;
    uint16_t *classes = rks_alloc_raw(layout->batches, sizeof(*classes), err);
    if (classes == NULL)
        goto out;
    counts = rks_alloc(CLASSES, sizeof(*counts), err);
    if (counts == NULL)
        goto out;

    status = rks_plan_classify(in, image, classes, err);
    if (status == RKS_OK)
        status = sort_by_class(image, classes, counts, err);
    uint32_t first = 0;
    for (size_t class = CLASSES; class-- > 0 && status == RKS_OK;) {
        status = rks_plan_shuffle(rks_random_key(key, class), image->slots + first,
                                  counts[class] - first, err);
        first = counts[class];
    }
    if (status == RKS_OK)
        status = rks_plan_shuffle_steps(image, world, rks_random_key(key, CLASSES), err);
    if (status == RKS_OK && in->mix != NULL)
        status = rks_mix_even(in, image, world, err);

out:
    rks_free(counts);
    rks_free(classes);
    return status;
}
