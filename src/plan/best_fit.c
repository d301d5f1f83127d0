/* SPDX-License-Identifier: Apache-2.0
 *
 * best_fit.c: best-fit decreasing over a histogram. Each sample, largest first, goes into the bin
 * with the least room that is enough. Bins that hold the same are one group, and samples of one
 * size fill a whole group at once: floor(room / size) in each bin, since a bin that has just taken
 * one is still the best for the next. So the work grows with the number of different bins, and the
 * bins are those that best-fit decreasing makes sample by sample. */
#include "plan/packing.h"

#include <string.h>

#include "base/memory.h"

enum { LEVELS = 4 }; /* 64^4 is above the largest capacity */

/* The groups that have bins, by the room of these. */
typedef struct shelf {
    uint32_t *heads;          /* by room: the first group, or RKS_PACK_NONE */
    uint64_t *levels[LEVELS]; /* bit r of level 0: there is one; of level n: a word of n - 1 has */
    uint64_t words[LEVELS];
    uint64_t *memory;
} shelf;

static rks_status make_shelf(shelf *made, uint32_t capacity, rks_error *err)
{
    uint64_t words = 0, bits = (uint64_t)capacity + 1;
    for (int level = 0; level < LEVELS; level++) {
        bits = (bits + 63) / 64;
        made->words[level] = bits;
        words += bits;
    }
    made->memory = rks_alloc(words, sizeof(*made->memory), err);
    made->heads = rks_alloc_raw((uint64_t)capacity + 1, sizeof(*made->heads), err);
    if (made->memory == NULL || made->heads == NULL)
        return RKS_ERR_MEMORY;
    memset(made->heads, 0xff, ((uint64_t)capacity + 1) * sizeof(*made->heads));
    words = 0;
    for (int level = 0; level < LEVELS; level++) {
        made->levels[level] = made->memory + words;
        words += made->words[level];
    }
    return RKS_OK;
}

static void put(shelf *s, rks_pack *pack, uint32_t group)
{
    uint32_t room = pack->groups[group].room;
    pack->groups[group].next = s->heads[room];
    s->heads[room] = group;
    for (int level = 0; level < LEVELS; level++) {
        s->levels[level][room / 64] |= UINT64_C(1) << room % 64;
        room /= 64;
    }
}

/* Takes the first group of `room` off. */
static void take(shelf *s, const rks_pack *pack, uint32_t room)
{
    s->heads[room] = pack->groups[s->heads[room]].next;
    if (s->heads[room] != RKS_PACK_NONE)
        return;
    for (int level = 0; level < LEVELS; level++) {
        uint64_t *word = &s->levels[level][room / 64];
        *word &= ~(UINT64_C(1) << room % 64);
        if (*word != 0)
            return;
        room /= 64;
    }
}

/* The least room from `size` on that a group has; RKS_PACK_NONE: none has. */
static uint32_t find_room(const shelf *s, uint32_t size)
{
    uint64_t at = size;
    for (int level = 0; level < LEVELS && at / 64 < s->words[level]; level++) {
        uint64_t word = s->levels[level][at / 64] & (~UINT64_C(0) << at % 64);
        if (word != 0) {
            at = at / 64 * 64 + (uint64_t)__builtin_ctzll(word);
            while (level-- > 0)
                at = at * 64 + (uint64_t)__builtin_ctzll(s->levels[level][at]);
            return (uint32_t)at;
        }
        at = at / 64 + 1;
    }
    return RKS_PACK_NONE;
}

/* `bins` bins that hold what `base` says and `each` samples of `run`. */
static rks_status open_group(shelf *s, rks_pack *pack, const rks_pack_group *base, uint32_t run,
                             uint32_t bins, uint32_t each, rks_error *err)
{
    rks_pack_group group = *base;
    group.bins = bins;
    group.samples += each;
    group.room -= each * pack->runs[run].size;
    rks_status status =
        rks_pack_add_pattern(pack, base->pattern, run, each, &group.pattern, err);
    if (status == RKS_OK)
        status = rks_pack_add_group(pack, &group, err);
    if (status == RKS_OK)
        put(s, pack, (uint32_t)pack->group_count - 1);
    return status;
}

/* Fills bins that hold what `base` says with `left` samples: full ones, then one with the rest. */
static rks_status open_groups(shelf *s, rks_pack *pack, const rks_pack_group *base, uint32_t run,
                              uint32_t left, rks_error *err)
{
    uint32_t each = base->room / pack->runs[run].size;
    rks_status status = RKS_OK;
    if (left >= each)
        status = open_group(s, pack, base, run, left / each, each, err);
    if (status == RKS_OK && left % each != 0)
        status = open_group(s, pack, base, run, 1, left % each, err);
    return status;
}

/* All bins of the first group of `room` take as many samples as they can. */
static rks_status fill_group(shelf *s, rks_pack *pack, uint32_t room, uint32_t run, uint32_t each,
                             rks_error *err)
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

static rks_status fit_run(shelf *s, rks_pack *pack, uint32_t run, uint32_t capacity, rks_error *err)
{
    uint32_t size = pack->runs[run].size;
    uint32_t left = pack->runs[run + 1].first - pack->runs[run].first;
    rks_status status = RKS_OK;
    while (left > 0 && status == RKS_OK) {
        uint32_t room = find_room(s, size);
        if (room == RKS_PACK_NONE) {
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
        rks_pack_group base = *best; /* the group may move while others are added */
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
    shelf s = {0};
    uint64_t done = 0;
    rks_status status = make_shelf(&s, capacity, err);
    for (size_t run = 0; run < pack->run_count && status == RKS_OK; run++) {
        status = fit_run(&s, pack, (uint32_t)run, capacity, err);
        if (status == RKS_OK) /* a run may meet as many groups as there are samples */
            status = rks_plan_pause(&done, 64, err);
    }
    rks_free(s.heads);
    rks_free(s.memory);
    return status;
}
