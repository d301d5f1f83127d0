/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_tail.c: makes equal steps of bins. A step takes batch_size bins for each of its batches. The
 * last step takes the bins that remain, which are the cheapest.
 *
 *   split   the last step's bins are dealt evenly over its batches. If there are fewer bins than
 *           batches, bins are split, the costliest of them first
 *   repeat  bins of the step before are repeated (of the same step if it is the only one)
 *   drop    the last step is dropped unless it is full */
#include "plan/pack/packing.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"

/* A part of a bin that becomes a bin of its own. */
typedef struct piece {
    rks_u128 cost;
    uint32_t first, end; /* samples, in the list of all samples of split bins */
} piece;

/* Orders the heap: the piece to split next is first. */
static bool goes_before(const piece *a, const piece *b)
{
    bool one = a->end - a->first > 1, other = b->end - b->first > 1;
    if (one != other)
        return one;
    return a->cost != b->cost ? a->cost > b->cost : a->first < b->first;
}

static void swap_pieces(piece *a, piece *b)
{
    piece kept = *a;
    *a = *b;
    *b = kept;
}

static void rise(piece *heap, size_t at)
{
    for (; at > 0 && goes_before(&heap[at], &heap[(at - 1) / 2]); at = (at - 1) / 2)
        swap_pieces(&heap[at], &heap[(at - 1) / 2]);
}

static void sink(piece *heap, size_t count)
{
    for (size_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && goes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!goes_before(&heap[child], &heap[at]))
            return;
        swap_pieces(&heap[child], &heap[at]);
    }
}

/* Cuts the first piece of the heap in two pieces of about the same cost, and appends the second
 * one. */
static void cut_first(const rks_plan_config *config, const rks_pack *pack, const uint32_t *runs,
                      piece *heap, size_t *count)
{
    piece whole = heap[0];
    rks_u128 cost = 0;
    uint32_t at = whole.first;
    do
        cost += rks_pack_cost(config, pack->runs[runs[at++]].size);
    while (at + 1 < whole.end && 2 * cost < whole.cost);
    heap[0] = (piece){cost, whole.first, at};
    sink(heap, *count);
    heap[*count] = (piece){whole.cost - cost, at, whole.end};
    rise(heap, (*count)++);
}

/* Returns the samples of the last `bins` bins. */
static uint64_t samples_of(const rks_pack *pack, uint64_t bins)
{
    uint64_t samples = 0;
    for (size_t i = pack->group_count; i > 0 && bins > 0; i--) {
        const rks_pack_group *group = &pack->groups[i - 1];
        uint64_t taken = group->bins < bins ? group->bins : bins;
        samples += taken * group->samples;
        bins -= taken;
    }
    return samples;
}

/* Removes the last `bins` bins. Writes the run of each sample to `runs`, and a piece for each bin
 * to `heap`. */
static void pop_bins(rks_pack *pack, uint64_t bins, uint32_t *runs, piece *heap)
{
    uint32_t at = 0;
    size_t pieces = 0;
    while (bins > 0) {
        rks_pack_group *group = &pack->groups[pack->group_count - 1];
        for (; group->bins > 0 && bins > 0; group->bins--, bins--, pack->bins--) {
            uint32_t first = at;
            for (uint32_t p = group->pattern; p != RKS_PACK_NONE; p = pack->patterns[p].before)
                for (uint32_t i = 0; i < pack->patterns[p].count; i++)
                    runs[at++] = pack->patterns[p].run;
            heap[pieces] = (piece){group->cost, first, at};
            rise(heap, pieces++);
        }
        if (group->bins == 0)
            pack->group_count--;
    }
}

/* Makes a bin of each piece, after all others. */
static rks_status add_pieces(const rks_plan_config *config, rks_pack *pack, const uint32_t *runs,
                             const piece *pieces, size_t count, rks_error *err)
{
    size_t before = pack->group_count;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < count && status == RKS_OK; i++) {
        rks_pack_group group = {.pattern = RKS_PACK_NONE,
                                .bins = 1,
                                .samples = pieces[i].end - pieces[i].first,
                                .room = config->capacity};
        for (uint32_t at = pieces[i].first; at < pieces[i].end && status == RKS_OK;) {
            uint32_t end = at;
            while (end < pieces[i].end && runs[end] == runs[at])
                end++;
            group.room -= (end - at) * pack->runs[runs[at]].size;
            status =
                rks_pack_add_pattern(pack, group.pattern, runs[at], end - at, &group.pattern, err);
            at = end;
        }
        if (status == RKS_OK)
            status = rks_pack_add_group(pack, &group, err);
    }
    pack->bins += count;
    if (status == RKS_OK)
        rks_pack_sort(config, pack, before);
    return status;
}

/* Splits the last `bins` bins into `pieces` bins. They have at least that many samples. */
static rks_status split_last(const rks_plan_config *config, rks_pack *pack, uint64_t bins,
                             uint64_t pieces, rks_error *err)
{
    rks_status status = RKS_ERR_MEMORY;
    size_t count = bins;
    piece *heap = NULL;
    uint32_t *runs = rks_alloc_raw(samples_of(pack, bins), sizeof(*runs), err);
    if (runs == NULL)
        goto out;
    heap = rks_alloc_raw(pieces, sizeof(*heap), err);
    if (heap == NULL)
        goto out;
    pop_bins(pack, bins, runs, heap);
    while (count < pieces)
        cut_first(config, pack, runs, heap, &count);
    status = add_pieces(config, pack, runs, heap, count, err);

out:
    rks_free(heap);
    rks_free(runs);
    return status;
}

/* Splits bins for a last step that has `rest` bins, fewer than batches. */
static rks_status split_tail(const rks_plan_input *in, uint32_t world, rks_pack *pack,
                             uint64_t full, uint64_t rest, rks_error *err)
{
    if (samples_of(pack, rest) >= pack->slots)
        return split_last(&in->config, pack, rest, pack->slots, err);
    if (in->config.batch_size > 1 && pack->steps > 1) {
        pack->shared = 2; /* enough bins for all of their batches */
        return RKS_OK;
    }
    for (uint64_t back = 1, before = pack->steps - 1; before > 0; back *= 2) {
        back = back < before ? back : before;
        uint64_t taken = rest + back * full;
        if (samples_of(pack, taken) >= back * full + pack->slots)
            return split_last(&in->config, pack, taken, back * full + pack->slots, err);
        if (back == before)
            break;
    }
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%" PRIu64 " bins cannot be split into equal steps for %" PRIu32
                    " ranks: too few samples in them; set tail to repeat or drop",
                    pack->bins, world);
}

/* Drops the last bins. */
static void drop_last(rks_pack *pack, uint64_t bins)
{
    pack->bins -= bins;
    while (bins > 0) {
        rks_pack_group *group = &pack->groups[pack->group_count - 1];
        uint32_t taken = group->bins < bins ? group->bins : (uint32_t)bins;
        group->bins -= taken;
        bins -= taken;
        if (group->bins == 0)
            pack->group_count--;
    }
}

/* Splits bins, cheapest first, until there are `least`. If there are too few samples for that,
 * deals the bins of more steps at the end over their batches. */
static rks_status reach(const rks_plan_input *in, uint32_t world, rks_pack *pack, uint64_t least,
                        rks_error *err)
{
    const rks_plan_config *config = &in->config;
    uint64_t full = pack->slots * config->batch_size;
    if (samples_of(pack, pack->bins) >= least) {
        uint64_t missing = least - pack->bins, taken = missing < pack->bins ? missing : pack->bins;
        while (samples_of(pack, taken) < taken + missing)
            taken = 2 * taken < pack->bins ? 2 * taken : pack->bins;
        return split_last(config, pack, taken, taken + missing, err);
    }
    for (uint64_t shared = 2; config->tail == TAIL_SPLIT && shared <= pack->steps; shared++) {
        uint64_t before = (pack->steps - shared) * full;
        if (pack->bins < before + shared * pack->slots)
            continue;
        pack->shared = shared;
        return RKS_OK;
    }
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%" PRIu64 " bins cannot be split into %" PRIu64 " equal steps for %" PRIu32
                    " ranks: too few samples in them; set pack_window to 0",
                    pack->bins, pack->steps, world);
}

/* Makes exactly pack->steps steps. There are not too many bins for them, unless some are
 * dropped. */
static rks_status even_to_steps(const rks_plan_input *in, uint32_t world, rks_pack *pack,
                                rks_error *err)
{
    uint64_t full = pack->slots * in->config.batch_size, before = (pack->steps - 1) * full;
    uint64_t least = before + pack->slots;
    if (in->config.tail != TAIL_SPLIT)
        least = in->config.tail == TAIL_DROP ? before + full : before + 1;
    rks_status status = RKS_OK;
    if (pack->bins < least)
        status = reach(in, world, pack, least, err);
    if (status != RKS_OK)
        return status;
    if (in->config.tail == TAIL_REPEAT)
        pack->repeated = pack->steps * full - pack->bins;
    if (in->config.tail == TAIL_DROP)
        drop_last(pack, pack->bins - pack->steps * full);
    return RKS_OK;
}

/* Makes as few steps as the bins need. */
static rks_status even_to_bins(const rks_plan_input *in, uint32_t world, rks_pack *pack,
                               rks_error *err)
{
    const rks_plan_config *config = &in->config;
    uint64_t full = pack->slots * config->batch_size, rest = pack->bins % full;
    pack->steps = (pack->bins + full - 1) / full;
    rks_status status = RKS_OK;
    switch (config->tail) {
    case TAIL_SPLIT:
        if (rest != 0 && rest < pack->slots)
            status = split_tail(in, world, pack, full, rest, err);
        break;
    case TAIL_REPEAT:
        pack->repeated = rest == 0 ? 0 : full - rest;
        break;
    case TAIL_DROP:
        pack->steps = pack->bins / full;
        if (pack->steps == 0)
            return rks_fail(err, RKS_ERR_DATA, 0,
                            "%" PRIu64 " bins make no full step of %" PRIu64 " for %" PRIu32
                            " ranks: tail drop leaves none; use fewer ranks",
                            pack->bins, full, world);
        drop_last(pack, rest);
        break;
    }
    return status;
}

rks_status rks_pack_even(const rks_plan_input *in, uint32_t world, uint64_t steps, rks_pack *pack,
                         rks_error *err)
{
    pack->slots = (uint64_t)world * in->config.micro_batches;
    pack->steps = steps;
    pack->shared = 1;
    rks_status status =
        steps == 0 ? even_to_bins(in, world, pack, err) : even_to_steps(in, world, pack, err);
    if (status == RKS_OK && pack->bins + pack->repeated > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "plan: 2^32 bins or more, repeats included");
    return status;
}
