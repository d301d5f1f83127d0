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
    rks_epoch_work work = {0};
    const rks_epoch_task task = {.world = in->config.world, .whole = true, .work = &work};
    const uint64_t kept = rks_plan_kept(in);
    rks_plan_base base = {.count = kept, .longest = in->longest, .whole = kept};
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
    if (status == RKS_OK)
        status = strategy->cut(in, image, &base, &task, &in->whole, err);
    rks_plan_fill_forget(&work);
    return status;
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

enum shuffle_time { SHUFFLE_NEVER, SHUFFLE_BASE, SHUFFLE_CUT };

static enum shuffle_time shuffle_time(const rks_plan_input *in, const rks_epoch_work *work,
                                      bool anew)
{
    const rks_strategy *strategy = in->config.strategy;
    bool any = strategy->order == RKS_ORDER_ANY;
    /* The draws of a mix are in an order in which the sources are even; and a base may be shuffled
     * already. */
    if (strategy->shuffle == NULL || work->is_shuffled || (in->mix != NULL && any))
        return SHUFFLE_NEVER;
    return anew && any ? SHUFFLE_BASE : SHUFFLE_CUT;
}

/* An epoch while it is made. */
typedef struct making {
    const rks_plan_input *in;
    const rks_epoch_progress *progress;
    rks_epoch_work *work;
    rks_epoch_image *image;
    rks_mix_draws *draws; /* of a mix */
    uint64_t epoch;
} making;

/* Fills the base of an epoch: without the ids in `struck`, or what is left of the draws of a mix.
 */
static rks_status fill_base(const making *m, const uint8_t *struck, uint64_t room, uint64_t key,
                            rks_plan_base *base, rks_error *err)
{
    const rks_plan_input *in = m->in;
    rks_status status = rks_epoch_grow_ids(m->image, room, err);
    if (status != RKS_OK || m->work->is_shuffled) {
        *base = m->work->shuffled;
        return status;
    }
    if (in->mix == NULL)
        return rks_plan_base_fill(in, m->image, struck, base, err);
    status = rks_mix_fill(in, m->draws, m->image, key, base, err);
    if (status == RKS_OK && m->draws->drawn == NULL) /* no stretch comes after this one */
        rks_mix_draws_forget(in, m->draws);
    return status;
}

/* Fills the base, without the ids in `struck`, shuffles it and cuts it. */
static rks_status order_and_cut(const making *m, const rks_epoch_task *task, const uint8_t *struck,
                                rks_error *err)
{
    const rks_plan_input *in = m->in;
    rks_epoch_image *image = m->image;
    const rks_strategy *strategy = in->config.strategy;
    uint64_t key = task->keys.members;
    bool anew = strategy->cuts_anew != NULL && strategy->cuts_anew(&in->config);
    bool whole = task->whole && task->world == in->config.world && !anew;
    enum shuffle_time when = shuffle_time(in, task->work, anew);
    uint64_t room =
        in->mix != NULL ? m->draws->rest : rks_plan_kept(in) + (whole ? in->whole.repeated : 0);
    rks_plan_base base;
    rks_status status = fill_base(m, struck, room, key, &base, err);
    if (status == RKS_OK && when == SHUFFLE_BASE)
        status = strategy->shuffle(in, image, &base, NULL, key, err);
    if (status == RKS_OK)
        status = cut_epoch(in, image, &base, task, whole, err);
    if (status == RKS_OK && when == SHUFFLE_CUT)
        status = strategy->shuffle(in, image, &base, image->layout, key, err);
    return status == RKS_OK ? repeat_members(image, err) : status;
}

/* Makes the epoch, without the ids in `struck`, for `world` ranks. */
static rks_status compute(const making *m, uint32_t world, uint64_t segment, const uint8_t *struck,
                          rks_error *err)
{
    const rks_plan_input *in = m->in;
    const rks_strategy *strategy = in->config.strategy;
    const rks_epoch_task task = {.world = world,
                                 .whole = struck == NULL && in->mix == NULL,
                                 .keys = rks_epoch_keys_of(in, m->epoch, segment),
                                 .work = m->work};
    rks_status status = order_and_cut(m, &task, struck, err);
    m->image->slotted = false;
    if (status == RKS_OK && strategy->place != NULL)
        status = strategy->place(in, m->image, &task, err);
    rks_plan_fill_forget(m->work);
    return status == RKS_OK && in->config.longest_first ? rks_plan_longest_first(in, m->image, err)
                                                        : status;
}

/* Returns true if other worlds did steps of the epoch. */
static bool is_resumed(const making *m)
{
    return m->progress->done_count > 0 && m->progress->resumed_epoch == m->epoch;
}

/* Returns the error of a resumed epoch that could not be planned for `world`, which `is_done` with
 * its steps or is to do the rest. */
static rks_status no_plan(const making *m, rks_status status, uint32_t world, bool is_done,
                          rks_error *err)
{
    if (status != RKS_ERR_DATA || !is_resumed(m))
        return status;
    if (is_done)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: segments: epoch %" PRIu64 " has no plan for %" PRIu32 " ranks",
                        m->epoch, world);
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "what is left of epoch %" PRIu64 " does not make equal steps for %" PRIu32
                    " ranks without empty batches: %" PRIu64
                    " samples; go on with fewer ranks, or with epoch %" PRIu64,
                    m->epoch, world, m->in->mix != NULL ? m->draws->rest : m->image->part.base,
                    m->epoch + 1);
}

static rks_status leaves_nothing(uint64_t step, uint64_t steps, uint32_t world, rks_error *err)
{
    return rks_fail(err, RKS_ERR_STATE, 0,
                    "state: segments: step %" PRIu64 " of %" PRIu64 " on %" PRIu32
                    " ranks leaves nothing",
                    step, steps, world);
}

/* Marks the samples of steps [first, end) of the layout as done: in `struck`, or in the mix if that
 * is NULL. */
static rks_status strike_steps(const making *m, uint32_t world, uint64_t first, uint64_t end,
                               uint8_t *struck, rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t slot = first * world; slot < end * world && status == RKS_OK; slot++) {
        const uint32_t *ids;
        size_t count;
        rks_plan_at(m->in, m->image, slot, &ids, &count);
        if (struck == NULL)
            rks_mix_strike(m->draws, ids, count);
        for (size_t i = 0; struck != NULL && i < count; i++)
            struck[ids[i] / 8] |= (uint8_t)(1u << (ids[i] % 8));
        status = rks_plan_pause(&done, count, err);
    }
    return status;
}

/* Marks the samples that segment `index` of the resumed epoch delivered or skipped as done. */
static rks_status strike(const making *m, size_t index, uint8_t *struck, rks_error *err)
{
    const rks_epoch_progress *progress = m->progress;
    const rks_plan_segment *segment = &progress->done[index];
    uint64_t steps = m->image->layout->batches / segment->world, first, end;
    uint64_t past = rks_plan_unskipped(progress, m->epoch, index, segment->steps);
    m->image->rest_over =
        past >= steps && segment->steps <= steps && index + 1 == progress->done_count;
    if (past >= steps)
        return leaves_nothing(segment->steps, steps, segment->world, err);
    rks_status status = strike_steps(m, segment->world, 0, segment->steps, struck, err);
    for (uint64_t at = segment->steps;
         status == RKS_OK && rks_plan_next_skip(progress, m->epoch, index, at, steps, &first, &end);
         at = end)
        status = strike_steps(m, segment->world, first, end, struck, err);
    return status;
}

static rks_status compute_rest(const making *m, uint8_t *struck, rks_error *err)
{
    const rks_epoch_progress *progress = m->progress;
    uint32_t world = m->in->config.world;
    m->image->rest_over = false;
    for (size_t i = 0; i < progress->done_count; i++) {
        uint32_t before = progress->done[i].world;
        rks_status status = compute(m, before, i, i == 0 ? NULL : struck, err);
        if (status != RKS_OK)
            return no_plan(m, status, before, true, err);
        status = strike(m, i, struck, err);
        if (status != RKS_OK)
            return status;
    }
    rks_status status = compute(m, world, progress->done_count, struck, err);
    return no_plan(m, status, world, false, err);
}

/* Steps of an epoch with a mix that one world does with one choice of weights. They count from the
 * first step of the epoch. */
typedef struct stretch {
    uint64_t number;
    size_t segments;      /* of earlier worlds */
    size_t segment;       /* the stretch is in it */
    uint64_t begun;       /* where the segment begins */
    uint64_t segment_end; /* UINT64_MAX: it is the last */
    uint32_t world;
    uint64_t change;  /* the next change of weights */
    uint64_t planned; /* the end of the steps that are planned */
} stretch;

/* Marks the samples that the stretch's segment was to skip after its end as done; the stretch ends
 * where its segment does. */
static rks_status strike_skips(const making *m, const stretch *s, rks_error *err)
{
    const rks_epoch_image *image = m->image;
    uint64_t first, end, at = image->end - s->begun;
    uint64_t change = rks_mix_next_change(&m->progress->schedule, m->epoch, image->end);
    uint64_t past = change < s->planned ? change : s->planned;
    rks_status status = RKS_OK;
    while (status == RKS_OK &&
           rks_plan_next_skip(m->progress, m->epoch, s->segment, at, UINT64_MAX, &first, &end)) {
        if (s->begun + end > past)
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "state: skip: steps %" PRIu64 " to %" PRIu64 " of epoch %" PRIu64
                            " come after a change of weights; go on with %" PRIu32
                            " ranks until that",
                            first, end - 1, m->epoch, s->world);
        status = strike_steps(m, s->world, s->begun + first - image->begin,
                              s->begun + end - image->begin, NULL, err);
        at = end;
    }
    return status;
}

/* Plans the stretch that begins at image->begin for the draws that remain after those before, with
 * the world and the weights of its time. */
static rks_status compute_stretch(const making *m, stretch *s, rks_error *err)
{
    rks_epoch_image *image = m->image;
    bool is_done = s->segment < s->segments;
    s->world = is_done ? m->progress->done[s->segment].world : m->in->config.world;
    s->change = rks_mix_next_change(&m->progress->schedule, m->epoch, image->begin);
    image->end = s->change < s->segment_end ? s->change : s->segment_end;
    rks_status status = compute(m, s->world, s->number, NULL, err);
    if (status != RKS_OK)
        return no_plan(m, status, s->world, is_done, err);
    s->planned = image->begin + image->layout->batches / s->world;
    image->is_last = image->end >= s->planned;
    return RKS_OK;
}

/* Strikes out what the stretch delivered, and draws anew if the weights change at its end. */
static rks_status end_stretch(const making *m, const stretch *s, rks_error *err)
{
    const rks_mix *mix = m->in->mix;
    rks_epoch_image *image = m->image;
    bool ends = s->segment < s->segments && image->end == s->segment_end;
    uint64_t past = image->end;
    if (ends)
        past = s->begun + rks_plan_unskipped(m->progress, m->epoch, s->segment, past - s->begun);
    image->rest_over =
        past >= s->planned && image->end <= s->planned && s->segment + 1 == s->segments && ends;
    if (past >= s->planned)
        return leaves_nothing(image->end, s->planned, s->world, err);
    rks_status status = strike_steps(m, s->world, 0, image->end - image->begin, NULL, err);
    if (status == RKS_OK && ends)
        status = strike_skips(m, s, err);
    if (status == RKS_OK && image->end == s->change)
        status = rks_mix_choose(
            m->in, m->draws, rks_mix_force_at(mix, &m->progress->schedule, m->epoch, s->change),
            rks_mix_unbegun(m->in, m->draws),
            rks_epoch_keys_of(m->in, m->epoch, s->number + 1).draws, false, err);
    return status;
}

static void begin_segment(const making *m, size_t segment, uint64_t begun, stretch *s)
{
    s->segment = segment;
    s->begun = begun;
    s->segment_end = segment < s->segments ? begun + m->progress->done[segment].steps : UINT64_MAX;
}

/* Plans the stretches of an epoch up to that of step `number`. */
static rks_status compute_stretches(const making *m, uint64_t number, rks_error *err)
{
    rks_epoch_image *image = m->image;
    stretch s = {.segments = is_resumed(m) ? m->progress->done_count : 0};
    begin_segment(m, 0, 0, &s);
    image->begin = 0;
    for (;; s.number++) {
        rks_status status = compute_stretch(m, &s, err);
        if (status != RKS_OK)
            return status;
        if (s.segment == s.segments && (image->is_last || number < image->end)) {
            image->end = image->is_last ? s.planned : image->end;
            return RKS_OK;
        }
        status = end_stretch(m, &s, err);
        if (status != RKS_OK)
            return status;
        image->begin = image->end;
        if (image->end == s.segment_end)
            begin_segment(m, s.segment + 1, s.segment_end, &s);
    }
}

/* Makes an epoch of a plan with a mix, or the rest of it. */
static rks_status compute_drawn(const making *m, uint64_t step, rks_error *err)
{
    const rks_plan_input *in = m->in;
    const rks_mix *mix = in->mix;
    uint64_t key = rks_epoch_keys_of(in, m->epoch, 0).draws;
    m->image->rest_over = false;
    bool once =
        !is_resumed(m) && rks_mix_next_change(&m->progress->schedule, m->epoch, 0) == UINT64_MAX;
    rks_mix_draws *draws = m->draws;
    rks_status status = rks_mix_draws_begin(in, m->image, draws, err);
    if (status == RKS_OK)
        status =
            rks_mix_choose(in, draws, rks_mix_force_at(mix, &m->progress->schedule, m->epoch, 0),
                           mix->draws, key, once, err);
    draws->whole = draws->rest;
    if (status == RKS_OK && !once)
        status = rks_mix_begin_rest(in, draws, err);
    return status == RKS_OK ? compute_stretches(m, rks_mix_number(m->progress, m->epoch, step), err)
                            : status;
}

static rks_status make_epoch(const making *m, uint64_t step, rks_error *err)
{
    const rks_plan_input *in = m->in;
    uint64_t begun = rks_trace_begin();
    rks_status status;
    if (in->mix != NULL) {
        status = compute_drawn(m, step, err);
        rks_mix_draws_end(in, m->draws);
    } else if (is_resumed(m)) {
        uint8_t *struck = rks_alloc((in->count + in->piece_count) / 8 + 1, 1, err);
        if (struck == NULL)
            return RKS_ERR_MEMORY;
        status = compute_rest(m, struck, err);
        rks_free(struck);
    } else {
        status = compute(m, in->config.world, 0, NULL, err);
    }
    if (status == RKS_OK)
        status = rks_plan_show_pieces(in, m->image, err);
    m->image->ready = status == RKS_OK;
    m->image->epoch = m->epoch;
    rks_trace_end(begun, RKS_TRACE_PLAN, -1, in->count, 0);
    return status;
}

rks_status rks_epoch_make(const rks_plan_input *in, const rks_epoch_progress *progress,
                          uint64_t epoch, uint64_t step, rks_epoch_image *image, rks_error *err)
{
    rks_epoch_work work = {0};
    rks_mix_draws draws = {0};
    const making m = {in, progress, &work, image, &draws, epoch};
    return make_epoch(&m, step, err);
}

rks_status rks_epoch_make_first(rks_plan_input *in, rks_epoch_work *work, rks_epoch_image *image,
                                rks_error *err)
{
    static const rks_epoch_progress nothing_done = {0};
    const making m = {in, &nothing_done, work, image, NULL, 0};
    return make_epoch(&m, 0, err);
}
