/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_assign.c: makes one epoch of strategy "pack": which bins form which batch, and which ids are
 * in which bin.
 *
 * Ids are shuffled within runs of equal size and dealt into the bins in order. So a bin has other
 * samples of the same sizes in each epoch. Bins of one group are alike, so an array of group
 * numbers holds the order of bins. */
#include "plan/pack/packing.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/order/order.h"
#include "plan/batch/layout.h"
#include "plan/mix/mix.h"

/* A rank while the bins of a step are dealt. */
typedef struct hand {
    rks_u128 cost;
    uint32_t rank;
    uint64_t bins, most; /* bins that it has, and its full number of bins */
} hand;

typedef struct dealing {
    const rks_plan_input *in;
    rks_epoch_image *image;
    const rks_pack *pack;
    uint32_t world;
    uint32_t *next;         /* of each run: where its next sample is */
    const uint16_t **kinds; /* where the words of each kind begin */
    uint64_t samples;       /* samples of all bins */
    uint32_t *groups;       /* group of each bin, in the order of batches */
    uint32_t *step;         /* the same for one step, before it is arranged */
    hand *hands;            /* a heap: the rank that takes the next bin is first */
    rks_u128 *costs;        /* cost of a bin of each group, if a step has several ranks and bins */
    /* If samples have costs, each bin is a group of its own, costliest first. */
    rks_pack_bin *bins;
} dealing;

static rks_u128 group_cost(const dealing *d, uint32_t group)
{
    return d->bins == NULL ? d->costs[group] : d->bins[group].cost;
}

static bool takes_before(const hand *a, const hand *b)
{
    bool one = a->bins < a->most, other = b->bins < b->most;
    if (one != other)
        return one;
    return a->cost != b->cost ? a->cost < b->cost : a->rank < b->rank;
}

static void sink(hand *hands, uint32_t count)
{
    for (uint64_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && takes_before(&hands[child + 1], &hands[child]))
            child++;
        if (!takes_before(&hands[child], &hands[at]))
            return;
        hand kept = hands[at];
        hands[at] = hands[child];
        hands[child] = kept;
    }
}

static int ascending(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static void bins_of(const dealing *d, uint64_t batch, uint64_t *first, uint64_t *end)
{
    rks_pack_bins_of(d->pack, d->in->config.batch_size, batch, first, end);
}

/* Deals the bins of a step over ranks, costliest first, each to the rank with the least cost so
 * far. A rank deals its bins to its micro-batches in turn. */
static void arrange_step(dealing *d, uint64_t step, uint64_t begin, uint64_t end)
{
    const rks_plan_config *config = &d->in->config;
    uint64_t batch = step * d->pack->slots, first, last;
    memcpy(d->step, d->groups + begin, (end - begin) * sizeof(*d->step));
    if (config->mixed)
        qsort(d->step, end - begin, sizeof(*d->step), ascending);
    for (uint32_t rank = 0; rank < d->world; rank++) {
        d->hands[rank] = (hand){.rank = rank};
        for (uint32_t micro = 0; micro < config->micro_batches; micro++) {
            bins_of(d, batch + (uint64_t)micro * d->world + rank, &first, &last);
            d->hands[rank].most += last - first;
        }
    }
    for (uint64_t i = 0; i < end - begin; i++) {
        hand *next = &d->hands[0];
        uint64_t micro = next->bins % config->micro_batches;
        bins_of(d, batch + micro * d->world + next->rank, &first, &last);
        d->groups[first + next->bins / config->micro_batches] = d->step[i];
        next->bins++;
        next->cost += group_cost(d, d->step[i]);
        sink(d->hands, d->world);
    }
}

/* Returns the samples of a bin of a kind. Sets *at to the kind's patterns. */
static uint32_t begin_kind(const dealing *d, uint32_t kind, const uint16_t **at)
{
    *at = d->kinds[kind];
    rks_pack_number(at); /* bins */
    return rks_pack_number(at);
}

static rks_status find_costs(dealing *d, rks_error *err)
{
    const rks_plan_input *in = d->in;
    const rks_epoch_image *image = d->image;
    const rks_pack *pack = d->pack;
    d->costs = rks_alloc(pack->kind_count, sizeof(*d->costs), err);
    if (d->costs == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t i = 0; i < pack->kind_count; i++) {
        const uint16_t *at;
        uint32_t run = (uint32_t)pack->run_count;
        for (uint32_t left = begin_kind(d, i, &at), count; left > 0; left -= count) {
            count = rks_pack_next_pattern(&at, &run);
            uint32_t size = rks_pack_size(in, image->ids[d->next[run]]);
            d->costs[i] += rks_pack_cost(&in->config, size) * count;
        }
    }
    return RKS_OK;
}

static rks_status arrange_steps(dealing *d, rks_error *err)
{
    const rks_plan_config *config = &d->in->config;
    const rks_pack *pack = d->pack;
    if ((config->batch_size == 1 && config->micro_batches == 1) || d->world == 1)
        return RKS_OK;
    uint64_t most = pack->slots * config->batch_size, done = 0;
    most = most < pack->bins ? most : pack->bins;
    d->step = rks_alloc_raw(most, sizeof(*d->step), err);
    d->hands = rks_alloc_raw(d->world, sizeof(*d->hands), err);
    if (d->step == NULL || d->hands == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = d->bins == NULL ? find_costs(d, err) : RKS_OK;
    for (uint64_t step = 0; step < pack->steps && status == RKS_OK; step++) {
        uint64_t begin, end, last;
        bins_of(d, step * pack->slots, &begin, &last);
        bins_of(d, (step + 1) * pack->slots - 1, &last, &end);
        if (end <= pack->bins) /* a step with repeats stays as it is */
            arrange_step(d, step, begin, end);
        status = rks_plan_pause(&done, end - begin, err);
    }
    return status;
}

/* Shuffles the ids of each run, and finds where the runs begin. */
static rks_status shuffle_runs(dealing *d, uint64_t key, const uint16_t **at, rks_error *err)
{
    uint32_t first = 0;
    uint64_t done = 0;
    rks_status status = RKS_OK;
    for (size_t run = 0; run < d->pack->run_count && status == RKS_OK; run++) {
        uint32_t count = rks_pack_number(at);
        d->next[run] = first;
        status = rks_plan_shuffle(rks_random_key(key, run), d->image->ids + first, count, err);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, count, err);
        first += count;
    }
    return status;
}

/* Lists the group of each bin, in the order of groups. */
static void list_bins(dealing *d, const uint16_t *at)
{
    const rks_pack *pack = d->pack;
    uint64_t bin = 0;
    for (uint32_t i = 0; i < pack->kind_count; i++) {
        d->kinds[i] = at;
        uint32_t run = 0, bins = rks_pack_number(&at), samples = rks_pack_number(&at);
        d->samples += (uint64_t)bins * samples;
        for (uint32_t j = 0; j < bins; j++)
            d->groups[bin++] = i;
        while (samples > 0)
            samples -= rks_pack_next_pattern(&at, &run);
    }
}

/* Reads the pack's words. */
static rks_status begin_deal(dealing *d, uint64_t members, rks_error *err)
{
    const rks_pack *pack = d->pack;
    const uint16_t *at = pack->words;
    d->next = rks_alloc_raw(pack->run_count, sizeof(*d->next), err);
    d->groups = rks_alloc_raw(pack->bins, sizeof(*d->groups), err);
    d->kinds = rks_alloc_raw(pack->kind_count, sizeof(*d->kinds), err);
    if (d->next == NULL || d->groups == NULL || d->kinds == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = shuffle_runs(d, members, &at, err);
    if (status == RKS_OK)
        list_bins(d, at);
    return status;
}

static rks_status order_bins(dealing *d, uint64_t key, rks_error *err)
{
    const rks_pack *pack = d->pack;
    uint64_t full = (pack->steps - pack->shared) * pack->slots;
    if (d->in->config.mixed) {
        rks_status status = rks_plan_shuffle(key, d->groups, full * d->in->config.batch_size, err);
        if (status != RKS_OK)
            return status;
    }
    return arrange_steps(d, err);
}

/* Returns the bin that repeated bin `index` repeats. */
static uint64_t repeated_bin(const dealing *d, uint64_t index)
{
    uint64_t full = d->pack->slots * d->in->config.batch_size;
    return d->pack->steps > 1 ? (d->pack->steps - 2) * full + index : index % d->pack->bins;
}

/* Makes room for the ids of all bins, and for where each bin begins. */
static rks_status make_room_for_deal(dealing *d, uint32_t **dealt, rks_error *err)
{
    rks_epoch_image *image = d->image;
    const rks_pack *pack = d->pack;
    uint64_t bins = pack->bins + pack->repeated;
    const uint16_t *at;
    image->repeated = 0;
    for (uint64_t i = 0; i < pack->repeated; i++)
        image->repeated += begin_kind(d, d->groups[repeated_bin(d, i)], &at);
    image->samples = d->samples + image->repeated;
    if (image->samples > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "plan: 2^32 samples or more, repeats included");
    if (bins + 1 > image->starts_room) {
        uint32_t *grown = rks_realloc(image->starts, bins + 1, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        rks_usage_add(RKS_MEMORY_PLAN, (bins + 1 - image->starts_room) * sizeof(*grown));
        image->starts = grown;
        image->starts_room = bins + 1;
    }
    *dealt = rks_alloc_raw(image->samples, sizeof(**dealt), err);
    if (*dealt == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(*dealt, image->samples * sizeof(**dealt));
    rks_usage_add(RKS_MEMORY_PLAN, image->samples * sizeof(**dealt));
    return RKS_OK;
}

static rks_status deal_ids(const dealing *d, uint32_t *dealt, rks_error *err)
{
    const rks_pack *pack = d->pack;
    const uint32_t *ids = d->image->ids;
    uint32_t *starts = d->image->starts, *next = d->next;
    uint32_t at = 0;
    uint64_t done = 0;
    for (uint64_t bin = 0; bin < pack->bins; bin++) {
        const uint16_t *words;
        uint32_t run = (uint32_t)pack->run_count;
        uint32_t end = at + begin_kind(d, d->groups[bin], &words);
        starts[bin] = at;
        while (at < end) {
            uint32_t count = rks_pack_next_pattern(&words, &run);
            const uint32_t *from = ids + next[run];
            next[run] += count;
            for (uint32_t i = 0; i < count; i++)
                dealt[at++] = from[i];
        }
        rks_status status = rks_plan_pause(&done, end - starts[bin], err);
        if (status != RKS_OK)
            return status;
    }
    starts[pack->bins] = at;
    for (uint64_t i = 0; i < pack->repeated; i++) {
        uint64_t bin = repeated_bin(d, i);
        uint32_t samples = starts[bin + 1] - starts[bin];
        memcpy(dealt + at, dealt + starts[bin], samples * sizeof(*dealt));
        at += samples;
        starts[pack->bins + i + 1] = at;
    }
    return RKS_OK;
}

/* Replaces the plan's ids by `ids`, which the memory usage counts already. */
static void keep_ids(rks_epoch_image *image, uint32_t *ids, uint64_t count)
{
    if (image->room != NULL)
        image->room->leave(image);
    rks_usage_sub(RKS_MEMORY_PLAN, image->ids_room * sizeof(*image->ids));
    rks_free(image->ids);
    image->ids = ids;
    image->ids_room = count;
}

static rks_status deal(dealing *d, rks_error *err)
{
    rks_epoch_image *image = d->image;
    uint32_t *dealt = NULL;
    rks_status status = make_room_for_deal(d, &dealt, err);
    if (status != RKS_OK)
        return status;
    status = deal_ids(d, dealt, err);
    if (status != RKS_OK) {
        rks_usage_sub(RKS_MEMORY_PLAN, image->samples * sizeof(*dealt));
        rks_free(dealt);
        return status;
    }
    keep_ids(image, dealt, image->samples);
    return RKS_OK;
}

static int costliest_first(const void *a, const void *b)
{
    const rks_pack_bin *left = a, *right = b;
    if (left->cost != right->cost)
        return left->cost > right->cost ? -1 : 1;
    return left->first < right->first ? -1 : left->first > right->first;
}

/* Lists the dealt bins, sorted by the costs of their samples. */
static rks_status list_dealt(dealing *d, rks_error *err)
{
    const rks_plan_input *in = d->in;
    const rks_epoch_image *image = d->image;
    d->bins = rks_alloc_raw(d->pack->bins, sizeof(*d->bins), err);
    if (d->bins == NULL)
        return RKS_ERR_MEMORY;
    for (uint64_t i = 0; i < d->pack->bins; i++) {
        uint32_t first = image->starts[i], samples = image->starts[i + 1] - first;
        d->bins[i] =
            (rks_pack_bin){rks_plan_balance_of(in, image->ids + first, samples), first, samples};
        d->groups[i] = (uint32_t)i;
    }
    qsort(d->bins, d->pack->bins, sizeof(*d->bins), costliest_first);
    return RKS_OK;
}

/* Orders bins by the costs of their samples, now that it is known which samples share a bin. */
static rks_status deal_again(dealing *d, uint64_t key, rks_error *err)
{
    rks_epoch_image *image = d->image;
    const rks_pack *pack = d->pack;
    rks_status status = list_dealt(d, err);
    if (status == RKS_OK)
        status = order_bins(d, key, err);
    if (status != RKS_OK)
        return status;
    image->samples -= image->repeated;
    image->repeated = 0;
    for (uint64_t i = 0; i < pack->repeated; i++)
        image->repeated += d->bins[d->groups[repeated_bin(d, i)]].samples;
    image->samples += image->repeated;
    if (image->samples > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "plan: 2^32 samples or more, repeats included");
    uint32_t *dealt = rks_alloc_raw(image->samples, sizeof(*dealt), err), at = 0;
    if (dealt == NULL)
        return RKS_ERR_MEMORY;
    for (uint64_t i = 0; i < pack->bins + pack->repeated; i++) {
        uint64_t bin = i < pack->bins ? i : repeated_bin(d, i - pack->bins);
        const rks_pack_bin *one = &d->bins[d->groups[bin]];
        memcpy(dealt + at, image->ids + one->first, one->samples * sizeof(*dealt));
        image->starts[i] = at;
        at += one->samples;
    }
    image->starts[pack->bins + pack->repeated] = at;
    rks_usage_add(RKS_MEMORY_PLAN, image->samples * sizeof(*dealt));
    keep_ids(image, dealt, image->samples);
    return RKS_OK;
}

rks_status rks_pack_deal(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                         uint64_t members, uint64_t bins, rks_error *err)
{
    dealing d = {.in = in, .image = image, .pack = image->layout->pack, .world = world};
    rks_status status = begin_deal(&d, members, err);
    if (status == RKS_OK && in->config.balance == NULL)
        status = order_bins(&d, bins, err);
    if (status == RKS_OK)
        status = deal(&d, err);
    if (status == RKS_OK && in->config.balance != NULL)
        status = deal_again(&d, bins, err);
    rks_free(d.bins);
    rks_free(d.next);
    rks_free(d.kinds);
    rks_free(d.groups);
    rks_free(d.step);
    rks_free(d.hands);
    rks_free(d.costs);
    return status;
}

/* Shuffles the ranks within each step, with all of their micro-batches. So no rank has the
 * costliest bin of each step. */
static rks_status shuffle_ranks(rks_epoch_image *image, const rks_pack *pack, uint32_t world,
                                uint64_t key, rks_error *err)
{
    rks_random random = {key};
    uint64_t done = 0;
    rks_status status = RKS_OK;
    for (uint64_t step = 0; step < pack->steps && status == RKS_OK; step++) {
        uint32_t *slots = image->slots + step * pack->slots;
        for (uint32_t rank = world; rank > 1; rank--) {
            uint64_t other = rks_random_below(&random, rank);
            for (uint64_t micro = 0; micro < pack->slots; micro += world) {
                uint32_t batch = slots[micro + rank - 1];
                slots[micro + rank - 1] = slots[micro + other];
                slots[micro + other] = batch;
            }
        }
        status = rks_plan_pause(&done, pack->slots, err);
    }
    return status;
}

rks_status rks_pack_arrange(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                            uint64_t key, rks_error *err)
{
    const rks_plan_layout *layout = image->layout;
    for (uint64_t i = 0; i < layout->batches; i++)
        image->slots[i] = (uint32_t)i;
    rks_status status = shuffle_ranks(image, layout->pack, world, rks_random_key(key, 0), err);
    if (status == RKS_OK)
        status = rks_plan_shuffle_steps(image, layout->pack->slots, rks_random_key(key, 1), err);
    if (status == RKS_OK && in->mix != NULL)
        status = rks_mix_interleave(in, image, layout->pack->slots, err);
    return status;
}
