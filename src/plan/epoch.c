/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.c: makes an epoch: its ids (base.c), shuffled within the layout's bounds, and its batches.
 *
 * Each use of random numbers has its own key, made of seed, epoch, segment, stage and part. So an
 * epoch is the same whichever epochs were made before. */
#include "plan/inside.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "base/memory_usage.h"
#include "plan/mix.h"
#include "plan/packing.h"
#include "plan/share_inside.h"

enum { STAGE_MEMBERS = 1, STAGE_PLACES = 2, STAGE_BINS = 3, STAGE_WINDOWS = 4, STAGE_DRAWS = 5 };

static rks_status grow(uint32_t **items, uint64_t *room, uint64_t count, rks_error *err)
{
    if (count <= *room && *items != NULL)
        return RKS_OK;
    uint32_t *grown = rks_realloc(*items, count, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(grown, count * sizeof(*grown));
    rks_usage_add(RKS_MEMORY_PLAN, (count - *room) * sizeof(*grown));
    *items = grown;
    *room = count;
    return RKS_OK;
}

static rks_status grow_ids(rks_plan *plan, uint64_t count, rks_error *err)
{
    return plan->image.room != NULL ? rks_share_grow_ids(plan, count, err)
                                    : grow(&plan->image.ids, &plan->image.ids_room, count, err);
}

/* Returns true if ids of equal length may also change neighbourhoods. */
static bool is_small(const rks_plan *plan)
{
    enum { SMALL = 800 };
    return plan->in.config.max_tokens == UINT64_MAX && plan->in.batches_like < SMALL;
}

static rks_status shuffle_members(rks_plan *plan, const rks_plan_base *base,
                                  const rks_plan_layout *layout, uint64_t key, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    switch (plan->in.config.strategy) {
    case STRATEGY_BUCKET:
        if (is_small(plan)) /* neighbourhoods may be single batches */
            status = rks_plan_shuffle_equals(plan, base, rks_random_key(key, layout->count), err);
        for (size_t i = 0; i < layout->count && status == RKS_OK; i++) {
            const rks_plan_group *group = &layout->groups[i];
            status = rks_plan_shuffle(rks_random_key(key, i), plan->image.ids + group->first,
                                      group->span, err);
            if (status == RKS_OK)
                status = rks_plan_pause(&done, group->span, err);
        }
        break;
    case STRATEGY_SORTED:
        if (!plan->in.config.no_shuffle)
            status = rks_plan_shuffle_equals(plan, base, key, err);
        break;
    case STRATEGY_RANDOM:
        status = rks_plan_shuffle(rks_random_key(key, 0), plan->image.ids, base->alone, err);
        if (status == RKS_OK) /* rks_plan_fill_look_shuffled does the same with lengths */
            status = rks_plan_shuffle(rks_random_key(key, 1), plan->image.ids + base->alone,
                                      base->count - base->alone, err);
        break;
    case STRATEGY_SEQUENTIAL:
    case STRATEGY_PACK: /* deal.c */
        break;
    }
    return status;
}

static rks_status lay_out(rks_plan *plan, const rks_plan_base *base, uint32_t world,
                          rks_plan_layout *layout, rks_error *err)
{
    if (plan->in.config.strategy == STRATEGY_PACK)
        return rks_pack_lay_out(plan, base, world, layout, err);
    rks_status status = rks_plan_cut(plan, base, layout, err);
    if (status == RKS_OK)
        status = rks_plan_even(plan, base, world, layout, err);
    return status;
}

static uint64_t key_of(const rks_plan *plan, uint64_t epoch, uint64_t segment)
{
    uint64_t key = rks_random_key(plan->in.config.seed, plan->in.config.no_shuffle ? 0 : epoch);
    return rks_random_key(key, segment);
}

/* Counts the batches that the lengths need, longest first. */
static rks_status look_at_sorted(rks_plan *plan, const rks_plan_base *shuffled, rks_error *err)
{
    uint64_t count = shuffled->count - shuffled->alone - plan->in.piece_count;
    uint64_t room = plan->in.count + (plan->in.piece_count > 0 ? shuffled->count : 0);
    uint32_t *order = rks_alloc_raw(room, sizeof(*order), err);
    if (order == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, room * sizeof(*order));
    rks_plan_base base = *shuffled;
    uint64_t least = plan->in.fill_least;
    rks_status status = rks_plan_sort(plan->in.lengths, plan->in.count, order, err);
    if (status == RKS_OK) { /* after the absent, dropped, split and alone ones */
        base.ids = order + (plan->in.count - count) - base.alone;
        if (plan->in.piece_count > 0) {
            rks_plan_merge_pieces(plan, base.ids, count, order + plan->in.count);
            base.ids = order + plan->in.count;
        }
        status = rks_plan_fill_look(plan, &base, false, err);
        plan->in.fill_least = least; /* no epoch is in this order */
    }
    rks_usage_sub(RKS_MEMORY_PLAN, room * sizeof(*order));
    rks_free(order);
    return status;
}

/* Counts the batches of the first epochs, then makes epoch 0 from ids and lengths in memory. */
static rks_status lay_out_filled(rks_plan *plan, rks_error *err)
{
    enum { LOOKS = 4, LOOKS_OF_LARGE = 2, LARGE = 1 << 20, DIRECT_LENGTHS = 1 << 16 };
    uint64_t looks = plan->in.config.no_shuffle ? 1
                     : plan->in.count < LARGE   ? LOOKS
                                                : LOOKS_OF_LARGE;
    rks_plan_base base = {0};
    rks_status status = grow_ids(plan, rks_plan_kept(plan), err);
    plan->in.fill_least = UINT64_MAX;
    if (status == RKS_OK)
        status = rks_plan_base_fill(plan, NULL, &base, err);
    for (uint64_t epoch = looks - 1; epoch > 0 && status == RKS_OK; epoch--)
        status = rks_plan_fill_look_shuffled(
            plan, &base, rks_random_key(key_of(plan, epoch, 0), STAGE_MEMBERS), err);
    if (looks > 1 && status == RKS_OK)
        status = plan->in.longest < DIRECT_LENGTHS ? rks_plan_fill_look_sorted(plan, &base, err)
                                                   : look_at_sorted(plan, &base, err);
    if (status == RKS_OK)
        status = shuffle_members(plan, &base, NULL,
                                 rks_random_key(key_of(plan, 0, 0), STAGE_MEMBERS), err);
    if (status == RKS_OK)
        status = rks_plan_fill_look(plan, &base, true, err);
    if (status == RKS_OK) {
        plan->image.is_shuffled = true;
        plan->image.shuffled = base;
        status = rks_plan_prepare(plan, 0, err);
    }
    plan->image.is_shuffled = false;
    rks_plan_fill_forget(plan);
    plan->in.whole.batches = plan->image.part.batches;
    return status;
}

/* Counts the bins that the first epochs need. Then makes epoch 0. */
static rks_status lay_out_windows(rks_plan *plan, rks_error *err)
{
    enum { LOOKS = 4, LOOKS_OF_LARGE = 2, LARGE = 1 << 20 };
    uint64_t looks = plan->in.config.no_shuffle ? 1
                     : plan->in.count < LARGE   ? LOOKS
                                                : LOOKS_OF_LARGE;
    rks_plan_base base = {.ids = rks_plan_base_sorted(plan),
                          .count = rks_plan_kept(plan),
                          .longest = plan->in.longest};
    uint32_t *merged = NULL;
    if (plan->in.piece_count > 0) {
        merged = rks_alloc_raw(base.count, sizeof(*merged), err);
        if (merged == NULL)
            return RKS_ERR_MEMORY;
        rks_plan_merge_pieces(plan, base.ids, rks_plan_uncut(plan), merged);
        base.ids = merged;
    }
    rks_status status = rks_pack_look(plan, &base, 0, 0, err);
    for (uint64_t epoch = 0; epoch < looks && status == RKS_OK; epoch++)
        status = rks_pack_look(plan, &base, rks_random_key(key_of(plan, epoch, 0), STAGE_WINDOWS),
                               plan->in.config.pack_window, err);
    rks_free(merged);
    if (status != RKS_OK)
        return status;
    /* Adds a reserve, so that hardly any epoch needs larger windows. */
    uint64_t apart = plan->in.window_most > plan->in.window_least
                         ? plan->in.window_most - plan->in.window_least
                         : 0;
    plan->in.window_most += apart;
    plan->in.window_least -= apart < plan->in.window_least ? apart : plan->in.window_least;
    status = rks_plan_prepare(plan, 0, err);
    plan->in.whole.batches = plan->image.part.batches;
    return status;
}

rks_status rks_plan_lay_out(rks_plan *plan, rks_error *err)
{
    const rks_plan_config *config = &plan->in.config;
    if (plan->share != NULL && (config->strategy != STRATEGY_PACK || rks_plan_windows(config)))
        return rks_share_lay_out(plan, err);
    if (rks_plan_fills(config))
        return lay_out_filled(plan, err);
    if (rks_plan_windows(config))
        return lay_out_windows(plan, err);
    rks_plan_base base = {.count = rks_plan_kept(plan), .longest = plan->in.longest};
    if (config->too_long == TOO_LONG_ALONE && config->strategy != STRATEGY_SEQUENTIAL)
        base.alone = plan->in.too_long;
    if (rks_plan_sorts(&plan->in.config) && plan->in.piece_count == 0) {
        base.ids = rks_plan_base_sorted(plan);
    } else if (rks_plan_sorts(&plan->in.config) || config->strategy == STRATEGY_SEQUENTIAL) {
        rks_status status = grow_ids(plan, base.count, err);
        if (status == RKS_OK)
            status = rks_plan_base_fill(plan, NULL, &base, err);
        if (status != RKS_OK)
            return status;
    }
    return lay_out(plan, &base, config->world, &plan->in.whole, err);
}

/* Writes the repeats after the last group's own samples. */
static rks_status repeat_members(rks_plan *plan, rks_error *err)
{
    if (plan->image.layout->count == 0) /* pack repeats bins instead */
        return RKS_OK;
    const rks_plan_group *last = &plan->image.layout->groups[plan->image.layout->count - 1];
    if (last->count <= last->span)
        return RKS_OK;
    rks_status status = grow_ids(plan, (uint64_t)last->first + last->count, err);
    if (status != RKS_OK)
        return status;
    uint32_t *ids = plan->image.ids + last->first;
    for (uint64_t i = last->span; i < last->count; i++)
        ids[i] = ids[i - last->span];
    return RKS_OK;
}

/* Assigns batches to slots. */
static rks_status arrange(rks_plan *plan, uint32_t world, uint64_t key, rks_error *err)
{
    enum strategy strategy = plan->in.config.strategy;
    bool ordered = plan->in.mix != NULL && strategy == STRATEGY_RANDOM; /* its sources are even */
    plan->image.slotted =
        strategy != STRATEGY_SORTED && strategy != STRATEGY_SEQUENTIAL && !(ordered && world == 1);
    if (!plan->image.slotted)
        return RKS_OK;
    rks_status status =
        grow(&plan->image.slots, &plan->image.slots_room, plan->image.layout->batches, err);
    if (status != RKS_OK)
        return status;
    if (ordered)
        return rks_mix_arrange(plan, world, key, err);
    return strategy == STRATEGY_PACK ? rks_pack_arrange(plan, plan->image.layout, world, key, err)
                                     : rks_plan_arrange(plan, world, key, err);
}

/* Makes the epoch, without the ids in `struck`, for `world` ranks. */
static rks_status compute(rks_plan *plan, uint64_t epoch, uint32_t world, uint64_t segment,
                          const uint8_t *struck, rks_error *err)
{
    const rks_plan_config *config = &plan->in.config;
    bool shuffled = config->per_epoch || rks_plan_fills(config); /* before it is laid out */
    bool drawn = plan->in.mix != NULL; /* each epoch has its own lengths */
    bool ordered = drawn && config->strategy == STRATEGY_RANDOM;
    bool anew = shuffled || rks_plan_windows(config) || drawn;
    bool whole = struck == NULL && world == config->world && !anew;
    uint64_t room =
        drawn ? plan->in.mix->rest : rks_plan_kept(plan) + (whole ? plan->in.whole.repeated : 0);
    rks_status status = grow_ids(plan, room, err);
    if (status != RKS_OK)
        return status;

    rks_plan_base base;
    uint64_t key = key_of(plan, epoch, segment);
    uint64_t members = rks_random_key(key, STAGE_MEMBERS);
    if (plan->image.is_shuffled)
        base = plan->image.shuffled;
    else
        status = drawn ? rks_mix_fill(plan, members, &base, err)
                       : rks_plan_base_fill(plan, struck, &base, err);
    if (status != RKS_OK)
        return status;
    if (drawn && plan->in.mix->drawn == NULL) /* no stretch comes after this one */
        rks_mix_end(plan);
    if (shuffled && !ordered && !plan->image.is_shuffled)
        status = shuffle_members(plan, &base, NULL, members, err);
    if (status == RKS_OK && rks_plan_fills(config))
        status = rks_plan_fill(plan, &base, world, struck == NULL && !drawn, err);
    else if (status == RKS_OK && rks_plan_windows(config))
        status = rks_pack_lay_out_windows(plan, &base, world, rks_random_key(key, STAGE_WINDOWS),
                                          struck == NULL && !drawn, &plan->image.part, err);
    else if (status == RKS_OK && !whole)
        status = lay_out(plan, &base, world, &plan->image.part, err);
    plan->image.layout = whole ? &plan->in.whole : &plan->image.part;
    if (status == RKS_OK && !shuffled && !ordered)
        status = shuffle_members(plan, &base, plan->image.layout, members, err);
    if (status == RKS_OK)
        status = repeat_members(plan, err);
    if (status == RKS_OK && config->strategy == STRATEGY_PACK)
        status = rks_pack_deal(plan, whole ? &plan->in.whole : &plan->image.part, world, members,
                               rks_random_key(key, STAGE_BINS), err);
    if (status == RKS_OK)
        status = arrange(plan, world, rks_random_key(key, STAGE_PLACES), err);
    rks_plan_fill_forget(plan);
    return status == RKS_OK && config->longest_first ? rks_plan_longest_first(plan, err) : status;
}

/* Strikes out the samples of steps [first, end) of the layout: in `struck`, or if NULL, in the
 * mix. */
static rks_status strike_steps(rks_plan *plan, uint32_t world, uint64_t first, uint64_t end,
                               uint8_t *struck, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t slot = first * world; slot < end * world && status == RKS_OK; slot++) {
        const uint32_t *ids;
        size_t count;
        rks_plan_at(plan, slot, &ids, &count);
        if (struck == NULL)
            rks_mix_strike(plan->in.mix, ids, count);
        for (size_t i = 0; struck != NULL && i < count; i++)
            struck[ids[i] / 8] |= (uint8_t)(1u << (ids[i] % 8));
        status = rks_plan_pause(&done, count, err);
    }
    return status;
}

/* Strikes out what segment `index` of the resumed epoch delivered, and what it was to skip. */
static rks_status strike(rks_plan *plan, size_t index, uint8_t *struck, rks_error *err)
{
    const rks_plan_segment *segment = &plan->done[index];
    uint64_t steps = plan->image.layout->batches / segment->world, first, end;
    uint64_t past = rks_plan_unskipped(plan, plan->resumed_epoch, index, segment->steps);
    plan->image.rest_over =
        past >= steps && segment->steps <= steps && index + 1 == plan->done_count;
    if (past >= steps)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: segments: step %" PRIu64 " of %" PRIu64 " on %" PRIu32
                        " ranks leaves nothing",
                        segment->steps, steps, segment->world);
    rks_status status = strike_steps(plan, segment->world, 0, segment->steps, struck, err);
    for (uint64_t at = segment->steps;
         status == RKS_OK &&
         rks_plan_next_skip(plan, plan->resumed_epoch, index, at, steps, &first, &end);
         at = end)
        status = strike_steps(plan, segment->world, first, end, struck, err);
    return status;
}

static rks_status compute_rest(rks_plan *plan, uint8_t *struck, rks_error *err)
{
    uint64_t epoch = plan->resumed_epoch;
    uint32_t world = plan->in.config.world;
    rks_status status = RKS_OK;
    plan->image.rest_over = false;
    for (size_t i = 0; i < plan->done_count && status == RKS_OK; i++) {
        status = compute(plan, epoch, plan->done[i].world, i, i == 0 ? NULL : struck, err);
        if (status == RKS_ERR_DATA)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: segments: epoch %" PRIu64 " has no plan for %" PRIu32 " ranks",
                            epoch, plan->done[i].world);
        if (status == RKS_OK)
            status = strike(plan, i, struck, err);
    }
    if (status != RKS_OK)
        return status;
    status = compute(plan, epoch, world, plan->done_count, struck, err);
    if (status == RKS_ERR_DATA)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "what is left of epoch %" PRIu64 " does not make equal steps for %" PRIu32
                        " ranks without empty batches: %" PRIu64
                        " samples; go on with fewer ranks, or with epoch %" PRIu64,
                        epoch, world, plan->image.part.base, epoch + 1);
    return status;
}

/* Strikes out what segment `segment` was to skip after its end, which is the end of the current
 * stretch. The stretch's steps end at `past`. Steps count from the segment's first step,
 * `begun`. */
static rks_status strike_skips(rks_plan *plan, uint32_t world, size_t segment, uint64_t begun,
                               uint64_t past, rks_error *err)
{
    rks_mix *mix = plan->in.mix;
    uint64_t first, end, at = mix->end - begun, epoch = plan->resumed_epoch;
    uint64_t change = rks_mix_next_change(mix, epoch, mix->end);
    past = change < past ? change : past;
    rks_status status = RKS_OK;
    while (status == RKS_OK &&
           rks_plan_next_skip(plan, epoch, segment, at, UINT64_MAX, &first, &end)) {
        if (begun + end > past)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: skip: steps %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                            " come after a change of weights; go on with %" PRIu32
                            " ranks until that",
                            first, end - 1, epoch, world);
        status = strike_steps(plan, world, begun + first - mix->begin, begun + end - mix->begin,
                              NULL, err);
        at = end;
    }
    return status;
}

static rks_status no_plan(rks_plan *plan, rks_status status, uint64_t epoch, uint32_t world,
                          bool is_done, rks_error *err)
{
    if (status != RKS_ERR_DATA || plan->done_count == 0 || plan->resumed_epoch != epoch)
        return status;
    if (is_done)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: segments: epoch %" PRIu64 " has no plan for %" PRIu32 " ranks",
                        epoch, world);
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "what is left of epoch %" PRIu64 " does not make equal steps for %" PRIu32
                    " ranks without empty batches: %" PRIu64
                    " samples; go on with fewer ranks, or with epoch %" PRIu64,
                    epoch, world, plan->in.mix->rest, epoch + 1);
}

/* Plans the stretches of an epoch up to that of step `number`. Each is planned for the draws that
 * remain after those before, with the world and the weights of its time. */
static rks_status compute_stretches(rks_plan *plan, uint64_t epoch, uint64_t number, rks_error *err)
{
    rks_mix *mix = plan->in.mix;
    size_t segments = plan->resumed_epoch == epoch ? plan->done_count : 0, segment = 0;
    uint64_t begun = 0; /* where the current segment begins */
    uint64_t segment_end = segments == 0 ? UINT64_MAX : plan->done[0].steps;
    mix->begin = 0;
    for (uint64_t stretch = 0;; stretch++) {
        uint32_t world = segment < segments ? plan->done[segment].world : plan->in.config.world;
        uint64_t change = rks_mix_next_change(mix, epoch, mix->begin);
        mix->end = change < segment_end ? change : segment_end;
        rks_status status = compute(plan, epoch, world, stretch, NULL, err);
        if (status != RKS_OK)
            return no_plan(plan, status, epoch, world, segment < segments, err);
        uint64_t there = mix->begin + plan->image.layout->batches / world;
        mix->is_last = mix->end >= there;
        if (segment == segments && (mix->is_last || number < mix->end)) {
            mix->end = mix->is_last ? there : mix->end;
            return RKS_OK;
        }
        bool ends = segment < segments && mix->end == segment_end;
        uint64_t past =
            ends ? begun + rks_plan_unskipped(plan, epoch, segment, mix->end - begun) : mix->end;
        plan->image.rest_over =
            past >= there && mix->end <= there && segment + 1 == segments && ends;
        if (past >= there)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: segments: step %" PRIu64 " of %" PRIu64 " on %" PRIu32
                            " ranks leaves nothing",
                            mix->end, there, world);
        status = strike_steps(plan, world, 0, mix->end - mix->begin, NULL, err);
        if (status == RKS_OK && ends)
            status = strike_skips(plan, world, segment, begun, there, err);
        if (status == RKS_OK && mix->end == change)
            status = rks_mix_choose(
                plan, rks_mix_force_at(mix, epoch, change), rks_mix_unbegun(plan),
                rks_random_key(key_of(plan, epoch, stretch + 1), STAGE_DRAWS), false, err);
        if (status != RKS_OK)
            return status;
        mix->begin = mix->end;
        if (mix->end == segment_end) {
            segment++;
            begun = segment_end;
            segment_end = segment < segments ? segment_end + plan->done[segment].steps : UINT64_MAX;
        }
    }
}

/* Makes an epoch of a plan with a mix, or the rest of it. */
static rks_status compute_drawn(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err)
{
    rks_mix *mix = plan->in.mix;
    uint64_t key = rks_random_key(key_of(plan, epoch, 0), STAGE_DRAWS);
    bool resumed = plan->done_count > 0 && plan->resumed_epoch == epoch;
    plan->image.rest_over = false;
    bool once = !resumed && rks_mix_next_change(mix, epoch, 0) == UINT64_MAX;
    rks_status status =
        rks_mix_choose(plan, rks_mix_force_at(mix, epoch, 0), mix->draws, key, once, err);
    mix->whole = mix->rest;
    if (status == RKS_OK && !once)
        status = rks_mix_begin_rest(plan, err);
    return status == RKS_OK ? compute_stretches(plan, epoch, rks_mix_number(plan, epoch, step), err)
                            : status;
}

bool rks_plan_is_at_hand(const rks_plan *plan, uint64_t epoch, uint64_t step)
{
    if (!plan->image.ready || plan->image.epoch != epoch)
        return false;
    if (plan->in.mix == NULL)
        return true;
    uint64_t number = rks_mix_number(plan, epoch, step);
    return number >= plan->in.mix->begin && (number < plan->in.mix->end || plan->in.mix->is_last);
}

rks_status rks_plan_prepare(rks_plan *plan, uint64_t epoch, rks_error *err)
{
    return rks_plan_prepare_step(plan, epoch, 0, err);
}

rks_status rks_plan_prepare_step(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err)
{
    bool shown = false;
    rks_status status = plan->share == NULL ? RKS_OK : rks_share_check(plan, err);
    if (status != RKS_OK || rks_plan_is_at_hand(plan, epoch, step))
        return status;
    plan->image.ready = false;
    if (plan->share != NULL)
        status = rks_share_show(plan, epoch, &shown, err);
    return status != RKS_OK || shown ? status : rks_plan_make(plan, epoch, step, err);
}

rks_status rks_plan_make(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err)
{
    uint64_t begun = rks_trace_begin();
    rks_status status;
    if (plan->in.mix != NULL) {
        status = compute_drawn(plan, epoch, step, err);
        rks_mix_end(plan);
    } else if (plan->done_count > 0 && plan->resumed_epoch == epoch) {
        uint8_t *struck = rks_alloc((plan->in.count + plan->in.piece_count) / 8 + 1, 1, err);
        if (struck == NULL)
            return RKS_ERR_MEMORY;
        status = compute_rest(plan, struck, err);
        rks_free(struck);
    } else {
        status = compute(plan, epoch, plan->in.config.world, 0, NULL, err);
    }
    if (status == RKS_OK)
        status = rks_plan_show_pieces(plan, err);
    plan->image.ready = status == RKS_OK;
    plan->image.epoch = epoch;
    rks_trace_end(begun, RKS_TRACE_PLAN, -1, plan->in.count, 0);
    return status;
}

void rks_plan_bins_at(const rks_plan *plan, uint64_t slot, const uint32_t **bounds, size_t *bins)
{
    uint64_t first, end;
    rks_pack_bins_of(plan->image.layout->pack, plan->in.config.batch_size, plan->image.slots[slot],
                     &first, &end);
    *bounds = plan->image.starts + first;
    *bins = end - first;
}

void rks_plan_batch_at(const rks_plan *plan, uint64_t batch, const uint32_t **ids, size_t *count)
{
    uint64_t first, end;
    if (plan->image.layout->pack != NULL) {
        rks_pack_bins_of(plan->image.layout->pack, plan->in.config.batch_size, batch, &first, &end);
        *ids = plan->image.ids + plan->image.starts[first];
        *count = plan->image.starts[end] - plan->image.starts[first];
        return;
    }
    const rks_plan_group *groups = plan->image.layout->groups;
    size_t low = 0; /* the last group that begins at or before the batch */
    size_t high = plan->image.layout->count - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (groups[middle].first_batch <= batch)
            low = middle;
        else
            high = middle - 1;
    }
    rks_plan_deal(&groups[low], (uint32_t)(batch - groups[low].first_batch), &first, &end);
    *ids = plan->image.ids + groups[low].first + first;
    *count = end - first;
}

void rks_plan_at(const rks_plan *plan, uint64_t slot, const uint32_t **ids, size_t *count)
{
    rks_plan_batch_at(plan, plan->image.slotted ? plan->image.slots[slot] : slot, ids, count);
}
