/* SPDX-License-Identifier: Apache-2.0
 *
 * best_fit.c: best-fit decreasing over a histogram. Each sample, largest first, goes into the bin
 * with the least room that is enough.
 *
 * Bins with the same contents are one group, and samples of one size fill a whole group at once:
 * floor(room / size) in each bin, since a bin that has just taken one is still the best for the
 * next. So the work grows with the number of different bins. The bins are those that best-fit
 * decreasing makes sample by sample. */
#include "plan/pack/packing.h"

#include <string.h>

#include "base/memory.h"
#include "plan/cancellation.h"

rks_status rks_pack_shelf_make(rks_pack_shelf *shelf, uint32_t capacity, rks_error *err)
{
    uint64_t rooms = (uint64_t)capacity + 1;
    shelf->heads = rks_alloc_raw(rooms, sizeof(*shelf->heads), err);
    if (shelf->heads == NULL)
        return RKS_ERR_MEMORY;
    memset(shelf->heads, 0xff, rooms * sizeof(*shelf->heads));
    return rks_bits_make(&shelf->rooms, rooms, err);
}

void rks_pack_shelf_free(rks_pack_shelf *shelf)
{
    rks_free(shelf->heads);
    rks_free(shelf->rooms.levels[0]);
}

void rks_pack_shelf_clear(rks_pack_shelf *shelf, const rks_pack *pack, size_t first)
{
    for (size_t i = first; i < pack->group_count; i++) {
        uint32_t room = pack->groups[i].room;
        if (shelf->heads[room] != RKS_PACK_NONE)
            rks_bits_clear(&shelf->rooms, room);
        shelf->heads[room] = RKS_PACK_NONE;
    }
}

static void put(rks_pack_shelf *s, rks_pack *pack, uint32_t group)
{
    uint32_t room = pack->groups[group].room;
    pack->groups[group].next = s->heads[room];
    s->heads[room] = group;
    rks_bits_set(&s->rooms, room);
}

/* Removes the first group of `room` from the shelf. */
static void take(rks_pack_shelf *s, const rks_pack *pack, uint32_t room)
{
    s->heads[room] = pack->groups[s->heads[room]].next;
    if (s->heads[room] == RKS_PACK_NONE)
        rks_bits_clear(&s->rooms, room);
}

/* Adds a group of `bins` bins, with the contents of `base` and `each` samples of `run`. */
static rks_status open_group(rks_pack_shelf *s, rks_pack *pack, const rks_pack_group *base,
                             uint32_t run, uint32_t bins, uint32_t each, rks_error *err)
{
    rks_pack_group group = *base;
    group.bins = bins;
    group.samples += each;
    group.room -= each * pack->runs[run].size;
    rks_status status = rks_pack_add_pattern(pack, base->pattern, run, each, &group.pattern, err);
    if (status == RKS_OK)
        status = rks_pack_add_group(pack, &group, err);
    if (status == RKS_OK)
        put(s, pack, (uint32_t)pack->group_count - 1);
    return status;
}

/* Fills bins with the contents of `base` with `left` samples: full bins, then one with the rest. */
static rks_status open_groups(rks_pack_shelf *s, rks_pack *pack, const rks_pack_group *base,
                              uint32_t run, uint32_t left, rks_error *err)
{
    uint32_t each = base->room / pack->runs[run].size;
    rks_status status = RKS_OK;
    if (left >= each)
        status = open_group(s, pack, base, run, left / each, each, err);
    if (status == RKS_OK && left % each != 0)
        status = open_group(s, pack, base, run, 1, left % each, err);
    return status;
}

/* Adds `each` samples, as many as fit, to all bins of the first group of `room`. */
static rks_status fill_group(rks_pack_shelf *s, rks_pack *pack, uint32_t room, uint32_t run,
                             uint32_t each, rks_error *err)
{
    uint32_t group = s->heads[room];
    take(s, pack, room);
    rks_pack_group *filled = &pack->groups[group];
    filled->samples += each;
    filled->room -= each * pack->runs[run].size;
    rks_status status =
        rks_pack_add_pattern(pack, filled->pattern, run, each, &filled->pattern, err);
    if (status == RKS_OK)
        put(s, pack, group);
    return status;
}

rks_status rks_pack_fit_run(rks_pack_shelf *s, rks_pack *pack, uint32_t run, uint32_t left,
                            uint32_t capacity, rks_error *err)
{
    uint32_t size = pack->runs[run].size;
    rks_status status = RKS_OK;
    while (left > 0 && status == RKS_OK) {
        uint32_t room = rks_bits_find(&s->rooms, size);
        if (room == RKS_BITS_NONE) {
            rks_pack_group empty = {.pattern = RKS_PACK_NONE, .room = capacity};
            return open_groups(s, pack, &empty, run, left, err);
        }
        rks_pack_group *best = &pack->groups[s->heads[room]];
        uint32_t each = room / size, bins = left / each;
        if (bins >= best->bins) {
            left -= best->bins * each;
            status = fill_group(s, pack, room, run, each, err);
            continue;
        }
        rks_pack_group base = *best; /* a copy: adding groups may move the array */
        best->bins -= bins + (left % each != 0 ? 1 : 0);
        if (best->bins == 0)
            take(s, pack, room);
        status = open_groups(s, pack, &base, run, left, err);
        left = 0;
    }
    return status;
}

rks_status rks_pack_fit(rks_pack *pack, uint32_t capacity, rks_error *err)
{
    rks_pack_shelf s = {0};
    uint64_t done = 0;
    rks_status status = rks_pack_shelf_make(&s, capacity, err);
    for (size_t run = 0; run < pack->run_count && status == RKS_OK; run++) {
        uint32_t samples = pack->runs[run + 1].first - pack->runs[run].first;
        status = rks_pack_fit_run(&s, pack, (uint32_t)run, samples, capacity, err);
        if (status == RKS_OK) /* a run may meet as many groups as there are samples */
            status = rks_plan_pause(&done, 64, err);
    }
    rks_pack_shelf_free(&s);
    return status;
}
