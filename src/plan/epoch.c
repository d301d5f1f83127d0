/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.c: makes an epoch: its ids (base_order.c), shuffled within the layout's bounds, and its
 * batches.
 *
 * Each use of random numbers has its own key, made of seed, epoch, segment, stage and part. So an
 * epoch is the same whichever epochs were made before. */
#include "plan/strategy.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/mix/mix.h"

enum { STAGE_MEMBERS = 1, STAGE_PLACES = 2, STAGE_BINS = 3, STAGE_WINDOWS = 4, STAGE_DRAWS = 5 };

rks_epoch_keys rks_epoch_keys_of(const rks_plan_input *in, uint64_t epoch, uint64_t segment)
{
    uint64_t key = rks_random_key(in->config.seed, in->config.no_shuffle ? 0 : epoch);
    key = rks_random_key(key, segment);
    return (rks_epoch_keys){.members = rks_random_key(key, STAGE_MEMBERS),
                            .places = rks_random_key(key, STAGE_PLACES),
                            .bins = rks_random_key(key, STAGE_BINS),
                            .windows = rks_random_key(key, STAGE_WINDOWS),
                            .draws = rks_random_key(key, STAGE_DRAWS)};
}

rks_status rks_plan_lay_out_once(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    const rks_strategy *strategy = in->config.strategy;
    const rks_epoch_task task = {.world = in->config.world, .whole = true};
    rks_plan_base base = {.count = rks_plan_kept(in), .longest = in->longest};
    rks_status status = RKS_OK;
    if (in->config.too_long == TOO_LONG_ALONE && strategy->order != RKS_ORDER_BY_ID)
        base.alone = in->too_long;
    if (strategy->order == RKS_ORDER_BY_LENGTH && in->piece_count == 0) {
        base.ids = rks_plan_base_sorted(in);
    } else if (strategy->order != RKS_ORDER_ANY) {
        status = rks_epoch_grow_ids(image, base.count, err);
        if (status == RKS_OK)
            status = rks_plan_base_fill(in, image, NULL, &base, err);
    }
    return status == RKS_OK ? strategy->cut(in, image, &base, &task, &in->whole, err) : status;
}

rks_status rks_plan_lay_out(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    const rks_strategy *strategy = in->config.strategy;
    return strategy->lay_out != NULL ? strategy->lay_out(in, image, err)
                                     : rks_plan_lay_out_once(in, image, err);
}

/* Writes the repeats after the last group's own samples. */
static rks_status repeat_members(rks_epoch_image *image, rks_error *err)
{
    if (image->layout->count == 0) /* pack repeats bins instead */
        return RKS_OK;
    const rks_plan_group *last = &image->layout->groups[image->layout->count - 1];
    if (last->count <= last->span)
        return RKS_OK;
    rks_status status = rks_epoch_grow_ids(image, (uint64_t)last->first + last->count, err);
    if (status != RKS_OK)
        return status;
    uint32_t *ids = image->ids + last->first;
    for (uint64_t i = last->span; i < last->count; i++)
        ids[i] = ids[i - last->span];
    return RKS_OK;
}

/* Fills the base of an epoch: without the ids in `struck`, or what is left of the draws of a mix.
 */
static rks_status fill_base(const rks_plan_input *in, rks_epoch_image *image, const uint8_t *struck,
                            uint64_t room, uint64_t key, rks_plan_base *base, rks_error *err)
{
    rks_status status = rks_epoch_grow_ids(image, room, err);
    if (status != RKS_OK || image->is_shuffled) {
        *base = image->shuffled;
        return status;
    }
    if (in->mix == NULL)
        return rks_plan_base_fill(in, image, struck, base, err);
    status = rks_mix_fill(in, image, key, base, err);
    if (status == RKS_OK && in->mix->drawn == NULL) /* no stretch comes after this one */
        rks_mix_end(in);
    return status;
}

/* Cuts the base for an epoch that has a layout of its own, or takes that of whole epochs. */
static rks_status cut_epoch(const rks_plan_input *in, rks_epoch_image *image,
                            const rks_plan_base *base, const rks_epoch_task *task, bool whole,
                            rks_error *err)
{
    rks_status status =
        whole ? RKS_OK : in->config.strategy->cut(in, image, base, task, &image->part, err);
    image->layout = whole ? &in->whole : &image->part;
    image->samples = image->layout->samples;
    image->repeated = image->layout->repeated;
    return status;
}

/* Makes the epoch, without the ids in `struck`, for `world` ranks. */
static rks_status compute(const rks_plan_input *in, rks_epoch_image *image, uint64_t epoch,
                          uint32_t world, uint64_t segment, const uint8_t *struck, rks_error *err)
{
    const rks_strategy *strategy = in->config.strategy;
    const rks_epoch_task task = {.world = world,
                                 .whole = struck == NULL && in->mix == NULL,
                                 .keys = rks_epoch_keys_of(in, epoch, segment)};
    bool anew = strategy->cuts_anew != NULL && strategy->cuts_anew(&in->config);
    bool whole = task.whole && world == in->config.world && !anew;
    /* The draws of a mix are in an order in which the sources are even; and a base may be shuffled
     * already. */
    bool keeps = image->is_shuffled || (in->mix != NULL && strategy->order == RKS_ORDER_ANY);
    bool shuffles = strategy->shuffle != NULL && !keeps;
    bool shuffles_first = anew && strategy->order == RKS_ORDER_ANY;
    uint64_t room =
        in->mix != NULL ? in->mix->rest : rks_plan_kept(in) + (whole ? in->whole.repeated : 0);
    rks_plan_base base;
    rks_status status = fill_base(in, image, struck, room, task.keys.members, &base, err);
    if (status == RKS_OK && shuffles && shuffles_first)
        status = strategy->shuffle(in, image, &base, NULL, task.keys.members, err);
    if (status == RKS_OK)
        status = cut_epoch(in, image, &base, &task, whole, err);
    if (status == RKS_OK && shuffles && !shuffles_first)
        status = strategy->shuffle(in, image, &base, image->layout, task.keys.members, err);
    if (status == RKS_OK)
        status = repeat_members(image, err);
    image->slotted = false;
    if (status == RKS_OK && strategy->place != NULL)
        status = strategy->place(in, image, &task, err);
    rks_plan_fill_forget(image);
    return status == RKS_OK && in->config.longest_first ? rks_plan_longest_first(in, image, err)
                                                        : status;
}

/* Strikes out the samples of steps [first, end) of the layout: in `struck`, or if NULL, in the
 * mix. */
static rks_status strike_steps(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                               uint64_t first, uint64_t end, uint8_t *struck, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t slot = first * world; slot < end * world && status == RKS_OK; slot++) {
        const uint32_t *ids;
        size_t count;
        rks_plan_at(in, image, slot, &ids, &count);
        if (struck == NULL)
            rks_mix_strike(in->mix, ids, count);
        for (size_t i = 0; struck != NULL && i < count; i++)
            struck[ids[i] / 8] |= (uint8_t)(1u << (ids[i] % 8));
        status = rks_plan_pause(&done, count, err);
    }
    return status;
}

/* Strikes out what segment `index` of the resumed epoch delivered, and what it was to skip. */
static rks_status strike(const rks_plan_input *in, rks_epoch_image *image,
                         const rks_epoch_progress *progress, size_t index, uint8_t *struck,
                         rks_error *err)
{
    const rks_plan_segment *segment = &progress->done[index];
    uint64_t steps = image->layout->batches / segment->world, first, end;
    uint64_t past = rks_plan_unskipped(progress, progress->resumed_epoch, index, segment->steps);
    image->rest_over =
        past >= steps && segment->steps <= steps && index + 1 == progress->done_count;
    if (past >= steps)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: segments: step %" PRIu64 " of %" PRIu64 " on %" PRIu32
                        " ranks leaves nothing",
                        segment->steps, steps, segment->world);
    rks_status status = strike_steps(in, image, segment->world, 0, segment->steps, struck, err);
    for (uint64_t at = segment->steps;
         status == RKS_OK &&
         rks_plan_next_skip(progress, progress->resumed_epoch, index, at, steps, &first, &end);
         at = end)
        status = strike_steps(in, image, segment->world, first, end, struck, err);
    return status;
}

static rks_status compute_rest(const rks_plan_input *in, rks_epoch_image *image,
                               const rks_epoch_progress *progress, uint8_t *struck, rks_error *err)
{
    uint64_t epoch = progress->resumed_epoch;
    uint32_t world = in->config.world;
    rks_status status = RKS_OK;
    image->rest_over = false;
    for (size_t i = 0; i < progress->done_count && status == RKS_OK; i++) {
        status = compute(in, image, epoch, progress->done[i].world, i, i == 0 ? NULL : struck, err);
        if (status == RKS_ERR_DATA)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: segments: epoch %" PRIu64 " has no plan for %" PRIu32 " ranks",
                            epoch, progress->done[i].world);
        if (status == RKS_OK)
            status = strike(in, image, progress, i, struck, err);
    }
    if (status != RKS_OK)
        return status;
    status = compute(in, image, epoch, world, progress->done_count, struck, err);
    if (status == RKS_ERR_DATA)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "what is left of epoch %" PRIu64 " does not make equal steps for %" PRIu32
                        " ranks without empty batches: %" PRIu64
                        " samples; go on with fewer ranks, or with epoch %" PRIu64,
                        epoch, world, image->part.base, epoch + 1);
    return status;
}

/* Strikes out what segment `segment` was to skip after its end, which is the end of the current
 * stretch. The stretch's steps end at `past`. Steps count from the segment's first step,
 * `begun`. */
static rks_status strike_skips(const rks_plan_input *in, rks_epoch_image *image,
                               const rks_epoch_progress *progress, uint32_t world, size_t segment,
                               uint64_t begun, uint64_t past, rks_error *err)
{
    rks_mix *mix = in->mix;
    uint64_t first, end, at = mix->end - begun, epoch = progress->resumed_epoch;
    uint64_t change = rks_mix_next_change(mix, epoch, mix->end);
    past = change < past ? change : past;
    rks_status status = RKS_OK;
    while (status == RKS_OK &&
           rks_plan_next_skip(progress, epoch, segment, at, UINT64_MAX, &first, &end)) {
        if (begun + end > past)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: skip: steps %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                            " come after a change of weights; go on with %" PRIu32
                            " ranks until that",
                            first, end - 1, epoch, world);
        status = strike_steps(in, image, world, begun + first - mix->begin,
                              begun + end - mix->begin, NULL, err);
        at = end;
    }
    return status;
}

static rks_status no_plan(const rks_plan_input *in, const rks_epoch_progress *progress,
                          rks_status status, uint64_t epoch, uint32_t world, bool is_done,
                          rks_error *err)
{
    if (status != RKS_ERR_DATA || progress->done_count == 0 || progress->resumed_epoch != epoch)
        return status;
    if (is_done)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: segments: epoch %" PRIu64 " has no plan for %" PRIu32 " ranks",
                        epoch, world);
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "what is left of epoch %" PRIu64 " does not make equal steps for %" PRIu32
                    " ranks without empty batches: %" PRIu64
                    " samples; go on with fewer ranks, or with epoch %" PRIu64,
                    epoch, world, in->mix->rest, epoch + 1);
}

/* Plans the stretches of an epoch up to that of step `number`. Each is planned for the draws that
 * remain after those before, with the world and the weights of its time. */
static rks_status compute_stretches(const rks_plan_input *in, rks_epoch_image *image,
                                    const rks_epoch_progress *progress, uint64_t epoch,
                                    uint64_t number, rks_error *err)
{
    rks_mix *mix = in->mix;
    size_t segments = progress->resumed_epoch == epoch ? progress->done_count : 0, segment = 0;
    uint64_t begun = 0; /* where the current segment begins */
    uint64_t segment_end = segments == 0 ? UINT64_MAX : progress->done[0].steps;
    mix->begin = 0;
    for (uint64_t stretch = 0;; stretch++) {
        uint32_t world = segment < segments ? progress->done[segment].world : in->config.world;
        uint64_t change = rks_mix_next_change(mix, epoch, mix->begin);
        mix->end = change < segment_end ? change : segment_end;
        rks_status status = compute(in, image, epoch, world, stretch, NULL, err);
        if (status != RKS_OK)
            return no_plan(in, progress, status, epoch, world, segment < segments, err);
        uint64_t there = mix->begin + image->layout->batches / world;
        mix->is_last = mix->end >= there;
        if (segment == segments && (mix->is_last || number < mix->end)) {
            mix->end = mix->is_last ? there : mix->end;
            return RKS_OK;
        }
        bool ends = segment < segments && mix->end == segment_end;
        uint64_t past = ends
                            ? begun + rks_plan_unskipped(progress, epoch, segment, mix->end - begun)
                            : mix->end;
        image->rest_over = past >= there && mix->end <= there && segment + 1 == segments && ends;
        if (past >= there)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: segments: step %" PRIu64 " of %" PRIu64 " on %" PRIu32
                            " ranks leaves nothing",
                            mix->end, there, world);
        status = strike_steps(in, image, world, 0, mix->end - mix->begin, NULL, err);
        if (status == RKS_OK && ends)
            status = strike_skips(in, image, progress, world, segment, begun, there, err);
        if (status == RKS_OK && mix->end == change)
            status = rks_mix_choose(in, rks_mix_force_at(mix, epoch, change), rks_mix_unbegun(in),
                                    rks_epoch_keys_of(in, epoch, stretch + 1).draws, false, err);
        if (status != RKS_OK)
            return status;
        mix->begin = mix->end;
        if (mix->end == segment_end) {
            segment++;
            begun = segment_end;
            segment_end =
                segment < segments ? segment_end + progress->done[segment].steps : UINT64_MAX;
        }
    }
}

/* Makes an epoch of a plan with a mix, or the rest of it. */
static rks_status compute_drawn(const rks_plan_input *in, rks_epoch_image *image,
                                const rks_epoch_progress *progress, uint64_t epoch, uint64_t step,
                                rks_error *err)
{
    rks_mix *mix = in->mix;
    uint64_t key = rks_epoch_keys_of(in, epoch, 0).draws;
    bool resumed = progress->done_count > 0 && progress->resumed_epoch == epoch;
    image->rest_over = false;
    bool once = !resumed && rks_mix_next_change(mix, epoch, 0) == UINT64_MAX;
    rks_status status =
        rks_mix_choose(in, rks_mix_force_at(mix, epoch, 0), mix->draws, key, once, err);
    mix->whole = mix->rest;
    if (status == RKS_OK && !once)
        status = rks_mix_begin_rest(in, err);
    return status == RKS_OK ? compute_stretches(in, image, progress, epoch,
                                                rks_mix_number(progress, epoch, step), err)
                            : status;
}

rks_status rks_epoch_make(const rks_plan_input *in, const rks_epoch_progress *progress,
                          uint64_t epoch, uint64_t step, rks_epoch_image *image, rks_error *err)
{
    uint64_t begun = rks_trace_begin();
    rks_status status;
    if (in->mix != NULL) {
        status = compute_drawn(in, image, progress, epoch, step, err);
        rks_mix_end(in);
    } else if (progress->done_count > 0 && progress->resumed_epoch == epoch) {
        uint8_t *struck = rks_alloc((in->count + in->piece_count) / 8 + 1, 1, err);
        if (struck == NULL)
            return RKS_ERR_MEMORY;
        status = compute_rest(in, image, progress, struck, err);
        rks_free(struck);
    } else {
        status = compute(in, image, epoch, in->config.world, 0, NULL, err);
    }
    if (status == RKS_OK)
        status = rks_plan_show_pieces(in, image, err);
    image->ready = status == RKS_OK;
    image->epoch = epoch;
    rks_trace_end(begun, RKS_TRACE_PLAN, -1, in->count, 0);
    return status;
}

rks_status rks_epoch_make_first(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    static const rks_epoch_progress nothing_done = {0};
    return rks_epoch_make(in, &nothing_done, 0, 0, image, err);
}
