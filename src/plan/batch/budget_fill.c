/* SPDX-License-Identifier: Apache-2.0
 *
 * budget_fill.c: strategy "random" with a budget and constant steps. Cuts a shuffled base into
 * batches that are filled up to the budget. Each epoch has the same number of batches.
 *
 *   plan   fixes that number: the most that the first epochs and the sorted order need, in equal
 *          steps
 *   epoch  needs fewer: batches are filled up to a smaller budget, and the largest are cut in two
 *          needs more:  windows of the base are sorted until it does not; if all of it is
 *                       sorted, the number is enough
 *
 * With tail "drop" the number is the least that these epochs have, and batches above it are
 * dropped. Lengths are read as widths, in multiples of length_multiple. */
#include "plan/batch/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/cache_line.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/order/order.h"

enum { WINDOW_FIRST = 64, SEARCHES = 3, NEAR = 256, AHEAD = 32 };

/* A base that is cut into batches. */
typedef struct filling {
    const rks_plan_input *in;
    const rks_plan_base *base;
    uint32_t *widths; /* of each sample after those that are alone, in multiples of
                       * length_multiple */
    uint64_t count;   /* number of `widths` */
    uint64_t budget;  /* in such multiples, too */
    uint32_t *sizes;  /* sizes of the first `room` batches, if kept */
    uint64_t room;
    uint64_t cut_by, made; /* budget of the last cut, and its batches */
    bool has_empty;        /* a length is 0 */
} filling;

static rks_status gather_widths(filling *f, rks_error *err)
{
    const uint32_t *ids = f->base->ids + f->base->alone;
    uint32_t multiple = f->in->config.length_multiple;
    bool shifts = (multiple & (multiple - 1)) == 0; /* a division costs as much as the rest */
    int shift = shifts ? __builtin_ctz(multiple) : 0;
    rks_status status = RKS_OK;
    for (uint64_t i = 0, end; i < f->count && status == RKS_OK;) {
        status = rks_plan_stretch(i, f->count, &end, err);
        for (; i < end; i++) {
            uint32_t next = i + AHEAD < f->count ? ids[i + AHEAD] : 0; /* lengths are scattered */
            rks_prefetch(&f->in->lengths[next < f->in->count ? next : 0]);
            uint32_t length = rks_plan_length(f->in, ids[i]), rest = length == 0 ? 0 : length - 1;
            f->has_empty |= length == 0;
            f->widths[i] = 1 + (shifts ? rest >> shift : rest / multiple);
        }
    }
    return status;
}

/* Makes a filling with room for the widths, which are not known yet. */
static rks_status make_widths(filling *f, const rks_plan_input *in, rks_epoch_work *work,
                              const rks_plan_base *base, rks_error *err)
{
    *f = (filling){.in = in, .base = base, .count = base->count - base->alone};
    f->budget = in->config.max_tokens / in->config.length_multiple;
    if (work->widths != NULL) {
        f->widths = work->widths;
        f->has_empty = !work->exact;
        work->widths = NULL;
        return RKS_OK;
    }
    f->widths = rks_alloc_raw(f->count + 1, sizeof(*f->widths), err);
    if (f->widths == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(f->widths, f->count * sizeof(*f->widths));
    rks_usage_add(RKS_MEMORY_PLAN, f->count * sizeof(*f->widths));
    return RKS_OK;
}

static rks_status begin(filling *f, const rks_plan_input *in, rks_epoch_work *work,
                        const rks_plan_base *base, rks_error *err)
{
    bool is_known = work->widths != NULL;
    rks_status status = make_widths(f, in, work, base, err);
    return status == RKS_OK && !is_known ? gather_widths(f, err) : status;
}

static void end(filling *f)
{
    if (f->widths != NULL)
        rks_usage_sub(RKS_MEMORY_PLAN, f->count * sizeof(*f->widths));
    rks_free(f->widths);
    rks_free(f->sizes);
}

/* Ends a filling, but its widths stay known. */
static void end_and_keep(filling *f, rks_epoch_work *work)
{
    work->widths = f->widths;
    work->first = f->base->alone;
    work->count = f->count;
    work->exact = !f->has_empty;
    f->widths = NULL;
    end(f);
}

void rks_plan_fill_forget(rks_epoch_work *work)
{
    filling f = {.widths = work->widths, .count = work->count};
    work->widths = NULL;
    end(&f);
}

/* Cuts batches that are filled up to `budget`. Keeps their sizes as far as there is room. A single
 * sample may exceed a budget smaller than the plan's. */
static rks_status cut(filling *f, uint64_t budget, uint64_t *batches, rks_error *err)
{
    const rks_plan_config *config = &f->in->config;
    bool sums = config->cost == COST_TOKENS;
    uint64_t made = 0, done = 0;
    for (uint64_t i = 0; i < f->count; made++) {
        uint64_t longest = 0, sum = 0, size = 0;
        for (; i + size < f->count && size < config->batch_size; size++) {
            uint64_t width = f->widths[i + size];
            longest = width > longest ? width : longest;
            sum += width;
            if (size > 0 && (sums ? sum : longest * (size + 1)) > budget)
                break;
        }
        size -= size < config->multiple ? 0 : size % config->multiple;
        if (made < f->room)
            f->sizes[made] = (uint32_t)size;
        i += size;
        rks_status status = rks_plan_pause(&done, size, err);
        if (status != RKS_OK)
            return status;
    }
    *batches = made;
    f->cut_by = budget;
    f->made = made;
    return RKS_OK;
}

static int longest_first(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left > right ? -1 : left < right;
}

/* Sorts windows of the base, which is `ids`, by length, then by id. */
static rks_status sort_windows(filling *f, uint32_t *ids, uint64_t window, rks_error *err)
{
    ids += f->base->alone;
    uint64_t done = 0;
    rks_status status = RKS_OK;
    uint64_t *keys = rks_alloc_raw(window < f->count ? window : f->count, sizeof(*keys), err);
    if (keys == NULL)
        return RKS_ERR_MEMORY;
    for (uint64_t first = 0; first < f->count && status == RKS_OK; first += window) {
        uint64_t size = f->count - first < window ? f->count - first : window;
        for (uint64_t i = 0; i < size; i++)
            keys[i] = (uint64_t)f->widths[first + i] << 32 | ids[first + i];
        qsort(keys, size, sizeof(*keys), longest_first);
        for (uint64_t i = 0; i < size; i++) {
            ids[first + i] = (uint32_t)keys[i];
            f->widths[first + i] = (uint32_t)(keys[i] >> 32);
        }
        status = rks_plan_pause(&done, size, err);
    }
    rks_free(keys);
    return status;
}

/* Searches for the smallest budget that makes at most `most` batches; the plan's own makes `made`.
 * Stops early, since the missing batches are cut from the largest. */
static rks_status find_budget(filling *f, uint64_t most, uint64_t made, uint64_t *budget,
                              rks_error *err)
{
    uint64_t low = f->budget / 2, high = f->budget, batches = 0;
    rks_status status = RKS_OK;
    for (int i = 0; i < SEARCHES && most - made > most / NEAR && status == RKS_OK; i++) {
        uint64_t next = (uint64_t)((rks_u128)high * made / most); /* if they are in proportion */
        if (next <= low)
            next = low + (high - low) / 2;
        if (next <= low || next >= high)
            break;
        status = cut(f, next, &batches, err);
        if (batches <= most) {
            high = next;
            made = batches;
        } else {
            low = next;
        }
    }
    *budget = high;
    return status;
}

/* Returns how many of the batches hold `size` samples or more. */
static uint64_t count_from(const uint32_t *sizes, uint64_t batches, uint64_t size)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < batches; i++)
        count += sizes[i] >= size;
    return count;
}

/* Cuts the `extra` largest batches in two, or as many of them as hold 2 * multiple samples. */
static rks_status cut_largest(filling *f, uint64_t *batches, uint64_t extra, uint32_t multiple,
                              rks_error *err)
{
    uint64_t low = 2 * (uint64_t)multiple, high = UINT32_MAX, at = 0;
    uint64_t found = count_from(f->sizes, *batches, low);
    extra = extra < found ? extra : found;
    while (low < high) { /* the largest size that enough batches have */
        uint64_t middle = high - (high - low) / 2;
        if (count_from(f->sizes, *batches, middle) >= extra)
            low = middle;
        else
            high = middle - 1;
    }
    uint32_t *sizes = rks_alloc_raw(*batches + extra, sizeof(*sizes), err);
    if (sizes == NULL)
        return RKS_ERR_MEMORY;
    for (uint64_t i = 0; i < *batches; i++) {
        uint32_t size = f->sizes[i];
        if (extra > 0 && size >= low) {
            uint32_t half = size / 2 - size / 2 % multiple;
            sizes[at++] = size - half;
            size = half;
            extra--;
        }
        sizes[at++] = size;
    }
    rks_free(f->sizes);
    f->sizes = sizes;
    *batches = at;
    return RKS_OK;
}

/* Makes groups of the batches: those that are alone, then at most `batches` of the others. */
static rks_status lay_out(const filling *f, uint64_t batches, rks_plan_layout *layout,
                          rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t at = f->base->alone;
    layout->count = 0;
    layout->base = f->base->count;
    if (at > 0)
        status = rks_plan_layout_alone(layout, at, err);
    for (uint64_t i = 0; i < batches && status == RKS_OK; i++) {
        status = rks_plan_layout_batch(layout, at, f->sizes[i], f->sizes[i], false, err);
        at += f->sizes[i];
    }
    return status;
}

/* Returns how many batches an epoch of `count` samples must have, if it needs `needed`; 0 if there
 * is no such number. */
static uint64_t target_of(const rks_plan_input *in, uint64_t needed, uint64_t count, uint32_t world)
{
    if (in->config.tail == TAIL_DROP)
        return needed - needed % world;
    uint64_t target = (needed + world - 1) / world * world;
    if (target > count)
        target = count - count % world;
    return target < needed ? 0 : target;
}

/* Cuts the base, which is `ids`, into *batches batches, `target` in all with those that are alone,
 * and keeps their sizes. */
static rks_status fit(filling *f, uint32_t *ids, uint64_t target, uint64_t *batches, rks_error *err)
{
    uint64_t wanted = target - f->base->alone, budget = f->budget;
    bool drops = f->in->config.tail == TAIL_DROP;
    f->sizes = rks_alloc_raw(wanted + 1, sizeof(*f->sizes), err); /* others are dropped */
    if (f->sizes == NULL)
        return RKS_ERR_MEMORY;
    f->room = wanted;
    rks_status status = cut(f, budget, batches, err);
    for (uint64_t window = WINDOW_FIRST; status == RKS_OK && *batches > wanted && !drops;) {
        status = sort_windows(f, ids, window, err);
        if (status == RKS_OK)
            status = cut(f, budget, batches, err);
        if (window >= f->count)
            break;
        window *= 4;
    }
    if (status == RKS_OK && *batches < wanted)
        status = find_budget(f, wanted, *batches, &budget, err);
    if (status == RKS_OK && budget != f->cut_by)
        status = cut(f, budget, batches, err);
    *batches = f->made;
    uint32_t multiple = f->in->config.multiple;
    while (status == RKS_OK && *batches < wanted) {
        uint64_t before = *batches;
        status = cut_largest(f, batches, wanted - before, multiple, err);
        if (*batches == before && multiple == 1)
            break;
        multiple = *batches == before ? 1 : multiple;
    }
    return status;
}

rks_status rks_plan_fill(const rks_plan_input *in, rks_epoch_image *image,
                         const rks_plan_base *base, const rks_epoch_task *task,
                         rks_plan_layout *layout, rks_error *err)
{
    uint32_t world = task->world;
    bool drops = in->config.tail == TAIL_DROP;
    filling f;
    uint64_t batches = 0, needed = drops ? in->fill_least : in->fill_most;
    rks_status status = begin(&f, in, task->work, base, err);
    if (status == RKS_OK && !task->whole) {
        status = cut(&f, f.budget, &needed, err);
        needed += base->alone;
    }
    uint64_t target = status == RKS_OK ? target_of(in, needed, base->count, world) : 0;
    if (target == 0 && in->config.tail == TAIL_REPEAT)
        target = base->count; /* one sample a batch, and some of them twice */
    if (status == RKS_OK && target == 0)
        status = drops ? rks_plan_drops_all(needed, world, err)
                       : rks_plan_cannot_split(needed, world, err);
    if (status == RKS_OK && target < base->alone) /* tail drop */
        target = base->alone;
    if (status == RKS_OK)
        status = fit(&f, image->ids, target, &batches, err);
    if (status == RKS_OK && batches < target - base->alone)
        status = rks_plan_cannot_split(batches, world, err);
    if (status == RKS_OK)
        status = lay_out(&f, target - base->alone, layout, err);
    if (status == RKS_OK)
        status = rks_plan_even(in, base, world, layout, err);
    if (status == RKS_OK)
        end_and_keep(&f, task->work);
    else
        end(&f);
    return status;
}

/* Counts the samples and pieces of each length, from 0 to in->longest, that are not alone. */
static rks_status count_lengths(const rks_plan_input *in, uint32_t *counts, rks_error *err)
{
    const rks_plan_config *config = &in->config;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++)
            if (in->lengths[i] <= in->longest)
                counts[in->lengths[i]]++;
    }
    if (config->too_long == TOO_LONG_TRUNCATE)
        counts[in->longest] += (uint32_t)in->too_long;
    for (size_t cut = 0; cut < in->cut_count; cut++) {
        uint32_t length = in->lengths[in->cuts[cut].id];
        counts[config->limit] += length / config->limit;
        if (length % config->limit != 0)
            counts[length % config->limit]++;
    }
    return RKS_OK;
}

rks_status rks_plan_fill_look_sorted(rks_plan_input *in, rks_epoch_work *work,
                                     const rks_plan_base *base, rks_error *err)
{
    filling f;
    uint64_t at = 0, batches = 0;
    uint32_t *counts = rks_alloc((uint64_t)in->longest + 1, sizeof(*counts), err);
    if (counts == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = make_widths(&f, in, work, base, err);
    if (status == RKS_OK)
        status = count_lengths(in, counts, err);
    for (uint32_t length = in->longest + 1; length-- > 0 && status == RKS_OK;) {
        uint32_t rest = length == 0 ? 0 : length - 1;
        for (uint32_t i = 0; i < counts[length]; i++)
            f.widths[at++] = 1 + rest / in->config.length_multiple;
    }
    if (status == RKS_OK)
        status = cut(&f, f.budget, &batches, err);
    batches += base->alone;
    in->fill_most = batches > in->fill_most ? batches : in->fill_most;
    end(&f);
    rks_free(counts);
    return status;
}

/* Updates the plan's counts with the batches that the epoch of `f` needs. */
static rks_status note_need(rks_plan_input *in, filling *f, rks_error *err)
{
    uint64_t batches = 0;
    rks_status status = cut(f, f->budget, &batches, err);
    batches += f->base->alone;
    in->fill_most = batches > in->fill_most ? batches : in->fill_most;
    in->fill_least = batches < in->fill_least ? batches : in->fill_least;
    return status;
}

rks_status rks_plan_fill_look_shuffled(rks_plan_input *in, rks_epoch_work *work,
                                       const rks_plan_base *base, uint64_t members, rks_error *err)
{
    filling f;
    rks_status status = begin(&f, in, work, base, err);
    if (status == RKS_OK)
        status = rks_plan_shuffle(rks_random_key(members, 1), f.widths, f.count, err);
    if (status == RKS_OK)
        status = note_need(in, &f, err);
    end(&f);
    return status;
}

rks_status rks_plan_fill_look(rks_plan_input *in, rks_epoch_work *work, const rks_plan_base *base,
                              bool keeps, rks_error *err)
{
    filling f;
    rks_status status = begin(&f, in, work, base, err);
    if (status == RKS_OK)
        status = note_need(in, &f, err);
    if (keeps && status == RKS_OK)
        end_and_keep(&f, work);
    else
        end(&f);
    return status;
}
