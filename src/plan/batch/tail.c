/* SPDX-License-Identifier: Apache-2.0
 *
 * tail.c: makes equal steps: the number of batches becomes a multiple of the world.
 *
 *   split   the batches of the last step are dealt over all ranks: smaller, none empty. If they
 *           hold too few samples, earlier steps join in.
 *   repeat  the last group gets more batches, filled with samples that it already has
 *   drop    batches after the last full step are dropped, and a last batch that is not full
 *
 * At first, all groups except the last are full (count = batches * cap). */
#include "plan/strategy.h"

#include <inttypes.h>

#include "base/error.h"

rks_status rks_plan_cannot_split(uint64_t batches, uint32_t world, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%" PRIu64 " batches cannot be split into equal steps for %" PRIu32
                    " ranks: too few samples in them; set tail to repeat or drop",
                    batches, world);
}

rks_status rks_plan_drops_all(uint64_t batches, uint32_t world, rks_error *err)
{
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%" PRIu64 " full batches for %" PRIu32
                    " ranks: tail drop leaves none; make batches smaller",
                    batches, world);
}

static uint64_t count_batches(const rks_plan_layout *layout)
{
    uint64_t batches = 0;
    for (size_t i = 0; i < layout->count; i++)
        batches += layout->groups[i].batches;
    return batches;
}

static bool is_partial(const rks_plan_group *group)
{
    return group->count < (uint64_t)group->batches * group->cap;
}

static bool is_greedy(const rks_plan_config *config)
{
    return config->strategy->is_greedy != NULL && config->strategy->is_greedy(config);
}

/* Returns into how many batches, at most, `count` samples of a group can be dealt, in multiples of
 * `multiple`; 0 if its batches are smaller than `multiple`, which leaves the group as it is. */
static uint64_t multiples_of(const rks_plan_group *group, uint64_t count, uint32_t multiple)
{
    return group->alone || group->cap < multiple ? 0 : (count + multiple - 1) / multiple;
}

/* Makes the last `batches` batches of group `index` a group of their own, after it. */
static rks_status carve(rks_plan_layout *layout, size_t index, uint32_t batches, rks_error *err)
{
    if (layout->groups[index].batches <= batches)
        return RKS_OK;
    rks_plan_group end = layout->groups[layout->count - 1];
    rks_status status = rks_plan_layout_add(layout, &end, err); /* room for one more */
    if (status != RKS_OK)
        return status;
    for (size_t i = layout->count - 1; i > index + 1; i--)
        layout->groups[i] = layout->groups[i - 1];
    rks_plan_group *front = &layout->groups[index];
    rks_plan_group *back = &layout->groups[index + 1];
    *back = *front;
    front->batches -= batches;
    front->count = front->batches * front->cap;
    front->span = front->count;
    back->first = front->first + front->span;
    back->batches = batches;
    back->count -= front->count;
    back->span -= front->span;
    return RKS_OK;
}

/* Returns how many more batches the last `back` batches could make. *from is the group where they
 * begin, *inside how many of them that group has. Neighbourhoods count whole. */
static uint64_t capacity(const rks_plan_input *in, const rks_plan_layout *layout, uint64_t back,
                         uint32_t multiple, size_t *from, uint32_t *inside)
{
    uint64_t more = 0;
    size_t i = layout->count;
    while (back > 0 && i > 0) {
        const rks_plan_group *group = &layout->groups[--i];
        uint32_t batches = group->batches;
        if (back < batches && !in->config.strategy->neighbourhoods)
            batches = (uint32_t)back;
        uint64_t count = group->count - (uint64_t)(group->batches - batches) * group->cap;
        uint64_t multiples = multiples_of(group, count, multiple);
        if (multiples > batches)
            more += multiples - batches;
        *inside = batches;
        back = back < batches ? 0 : back - batches;
    }
    *from = i;
    return more;
}

/* Returns how many more batches a group gets if each of its batches is cut into at most `level`
 * pieces. */
static uint64_t more_at(const rks_plan_group *group, uint64_t level, uint32_t multiple)
{
    uint64_t multiples = multiples_of(group, group->count, multiple);
    uint64_t most = level * group->batches < multiples ? level * group->batches : multiples;
    return most < group->batches ? 0 : most - group->batches;
}

/* Adds `extra` batches to the groups from `from` on, which have room for them, so that batches are
 * cut into as few pieces as possible. */
static void spread(rks_plan_layout *layout, size_t from, uint64_t extra, uint32_t multiple)
{
    uint64_t low = 2;
    uint64_t high = extra + 1; /* enough, since there is room */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t more = 0;
        for (size_t i = from; i < layout->count; i++)
            more += more_at(&layout->groups[i], middle, multiple);
        if (more >= extra)
            high = middle;
        else
            low = middle + 1;
    }
    for (size_t i = layout->count; i > from && extra > 0; i--) {
        uint64_t more = more_at(&layout->groups[i - 1], low, multiple);
        more = more < extra ? more : extra;
        layout->groups[i - 1].batches += (uint32_t)more;
        extra -= more;
    }
}

/* Splits the groups from `from` on into groups of one batch each. */
static rks_status single_out(rks_plan_layout *layout, size_t from, rks_error *err)
{
    for (size_t i = from; i < layout->count; i++) {
        while (layout->groups[i].batches > 1) {
            rks_status status = carve(layout, i, layout->groups[i].batches - 1, err);
            if (status != RKS_OK)
                return status;
            i++;
        }
    }
    return RKS_OK;
}

static rks_status split_tail(const rks_plan_input *in, uint32_t world, rks_plan_layout *layout,
                             rks_error *err)
{
    const rks_plan_config *config = &in->config;
    uint64_t batches = count_batches(layout);
    uint64_t rest = batches % world;
    uint64_t extra = rest == 0 ? 0 : world - rest;
    uint64_t first_back = rest == 0 ? world : rest;
    if (extra == 0 && !is_partial(&layout->groups[layout->count - 1]))
        return RKS_OK;
    /* Tries whole multiples first, then single samples. */
    for (uint32_t multiple = config->multiple;; multiple = 1) {
        for (uint64_t back = first_back;; back = 2 * back + world) {
            back = back < batches ? back : batches;
            size_t from;
            uint32_t inside = 0;
            if (capacity(in, layout, back, multiple, &from, &inside) >= extra) {
                rks_status status = RKS_OK;
                if (!config->strategy->neighbourhoods) {
                    bool whole = layout->groups[from].batches == inside;
                    status = carve(layout, from, inside, err);
                    from += whole ? 0 : 1;
                }
                if (status == RKS_OK && is_greedy(config))
                    status = single_out(layout, from, err);
                if (status == RKS_OK && extra > 0)
                    spread(layout, from, extra, multiple);
                return status;
            }
            if (back == batches)
                break;
        }
        if (multiple == 1)
            break;
    }
    return rks_plan_cannot_split(batches, world, err);
}

/* Joins a last batch that is not full to the batch before it, from which it can then be filled. */
static rks_status join_crumb(const rks_plan_config *config, rks_plan_layout *layout, rks_error *err)
{
    if (layout->count < 2)
        return RKS_OK;
    const rks_plan_group *last = &layout->groups[layout->count - 1];
    const rks_plan_group *before = last - 1;
    if (last->alone || before->alone || last->count >= last->cap)
        return RKS_OK;
    if (!config->strategy->neighbourhoods) {
        rks_status status = carve(layout, layout->count - 2, 1, err);
        if (status != RKS_OK)
            return status;
    }
    rks_plan_group *joined = &layout->groups[layout->count - 2];
    joined->span += joined[1].span;
    joined->count += joined[1].count;
    joined->batches = (joined->count + joined->cap - 1) / joined->cap;
    layout->count--;
    return RKS_OK;
}

static rks_status repeat_tail(const rks_plan_input *in, uint32_t world, rks_plan_layout *layout,
                              rks_error *err)
{
    const rks_plan_config *config = &in->config;
    rks_status status = join_crumb(config, layout, err);
    if (status != RKS_OK)
        return status;
    rks_plan_group *last = &layout->groups[layout->count - 1];
    uint64_t rest = count_batches(layout) % world;
    uint64_t extra = rest == 0 ? 0 : world - rest;
    if (extra == 0 && !is_partial(last))
        return RKS_OK;
    if (!config->strategy->neighbourhoods) {
        /* Only the last step repeats samples, from a full batch at least. */
        uint64_t back = is_greedy(config) ? 1 : rest == 0 ? world : rest;
        if (back == 1 && is_partial(last))
            back = 2;
        size_t before = layout->count - 1;
        if (back < last->batches)
            status = carve(layout, before, (uint32_t)back, err);
        if (status != RKS_OK)
            return status;
        last = &layout->groups[layout->count - 1];
    }
    uint64_t batches = last->batches + extra;
    uint64_t each = last->cap;
    bool one_step = batches <= world && (layout->count == 1 || last[-1].alone);
    if (one_step && (!is_greedy(config) || last->batches == 1)) {
        /* Less than a full step in all: repeats as few samples as possible. */
        uint64_t multiple = last->cap >= config->multiple ? config->multiple : 1;
        each = (last->count + batches - 1) / batches;
        each = (each + multiple - 1) / multiple * multiple;
        each = each < last->cap ? each : last->cap;
    }
    if (last->first + batches * each > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "plan: 2^32 samples or more, repeats included");
    last->batches = (uint32_t)batches;
    last->count = (uint32_t)(batches * each);
    return RKS_OK;
}

static rks_status drop_tail(uint32_t world, rks_plan_layout *layout, rks_error *err)
{
    rks_plan_group *last = &layout->groups[layout->count - 1];
    uint64_t batches = count_batches(layout);
    if (is_partial(last)) {
        batches -= last->batches - last->count / last->cap;
        last->batches = last->count / last->cap;
        last->count = last->batches * last->cap;
    }
    if (batches < world)
        return rks_plan_drops_all(batches, world, err);
    uint64_t rest = batches % world;
    for (size_t i = layout->count; i > 0 && rest > 0; i--) {
        rks_plan_group *group = &layout->groups[i - 1];
        uint32_t cut = group->batches < rest ? group->batches : (uint32_t)rest;
        group->batches -= cut;
        group->count = group->batches * group->cap;
        rest -= cut;
    }
    return RKS_OK;
}

/* Numbers the batches, and fixes how each group is dealt. */
static void finish(const rks_plan_config *config, rks_plan_layout *layout)
{
    layout->batches = 0;
    layout->samples = 0;
    layout->repeated = 0;
    for (size_t i = 0; i < layout->count; i++) {
        rks_plan_group *group = &layout->groups[i];
        uint32_t multiple = config->multiple;
        group->first_batch = (uint32_t)layout->batches;
        bool fits = !group->alone && group->cap >= multiple &&
                    ((uint64_t)group->count + multiple - 1) / multiple >= group->batches;
        group->multiple = fits ? multiple : 1;
        layout->batches += group->batches;
        layout->samples += group->count;
        if (group->count > group->span)
            layout->repeated += group->count - group->span;
    }
}

rks_status rks_plan_even(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                         rks_plan_layout *layout, rks_error *err)
{
    if (base->count == 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "no samples to plan");
    if (base->count < world && in->config.tail != TAIL_REPEAT)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%" PRIu64 " samples for %" PRIu32
                        " ranks: no batch may be empty; use fewer ranks, or tail=repeat",
                        base->count, world);
    rks_status status = RKS_OK;
    switch (in->config.tail) {
    case TAIL_SPLIT:
        status = split_tail(in, world, layout, err);
        break;
    case TAIL_REPEAT:
        status = repeat_tail(in, world, layout, err);
        break;
    case TAIL_DROP:
        status = drop_tail(world, layout, err);
        break;
    }
    if (status == RKS_OK)
        finish(&in->config, layout);
    return status;
}
