/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.c: strategy "pack": from a sorted base to bins in steps. Bins are in the order of their
 * cost, so the bins of a step have like cost on all ranks. */
#include "plan/pack/packing.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"

/* Makes room for one more item in an array of `count` items. */
static rks_status make_room_for_more(void **things, size_t count, size_t *room, size_t size,
                                     rks_error *err)
{
    if (count < *room)
        return RKS_OK;
    size_t more = *room == 0 ? 64 : *room + *room / 2;
    void *grown = rks_realloc(*things, more, size, err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, (more - *room) * size);
    *things = grown;
    *room = more;
    return RKS_OK;
}

rks_status rks_pack_add_pattern(rks_pack *pack, uint32_t before, uint32_t run, uint32_t count,
                                uint32_t *pattern, rks_error *err)
{
    void *list = pack->patterns;
    rks_status status = make_room_for_more(&list, pack->pattern_count, &pack->pattern_room,
                                           sizeof(*pack->patterns), err);
    pack->patterns = list;
    if (status != RKS_OK)
        return status;
    *pattern = (uint32_t)pack->pattern_count++; /* each holds at least a sample, so they are below
                                                 * 2^32 */
    pack->patterns[*pattern] = (rks_pack_pattern){before, run, count};
    return RKS_OK;
}

rks_status rks_pack_add_group(rks_pack *pack, const rks_pack_group *group, rks_error *err)
{
    void *list = pack->groups;
    rks_status status =
        make_room_for_more(&list, pack->group_count, &pack->group_room, sizeof(*pack->groups), err);
    pack->groups = list;
    if (status == RKS_OK)
        pack->groups[pack->group_count++] = *group;
    return status;
}

void rks_pack_free(rks_pack *pack)
{
    if (pack == NULL)
        return;
    rks_pack_free_making(pack);
    rks_usage_sub(RKS_MEMORY_PLAN, pack->word_count * sizeof(*pack->words));
    rks_free(pack->words);
    rks_free(pack);
}

/* Returns the first position from `first` on whose sample is smaller than that at `first`. */
static uint64_t run_end(const rks_plan_input *in, const rks_plan_base *base, uint64_t first)
{
    uint32_t size = rks_pack_size(in, base->ids[first]);
    uint64_t low = first + 1, high = base->count, step = 1;
    while (low < high && rks_pack_size(in, base->ids[low]) == size) {
        uint64_t next = low + step < high ? low + step : high - 1;
        if (rks_pack_size(in, base->ids[next]) != size) {
            high = next;
            low++;
            break;
        }
        low = next + 1;
        step *= 2;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (rks_pack_size(in, base->ids[middle]) == size)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static rks_status add_run(rks_pack *pack, uint32_t size, uint64_t first, rks_error *err)
{
    void *list = pack->runs;
    rks_status status =
        make_room_for_more(&list, pack->run_count, &pack->run_room, sizeof(*pack->runs), err);
    pack->runs = list;
    if (status == RKS_OK)
        pack->runs[pack->run_count] = (rks_pack_run){size, (uint32_t)first};
    return status;
}

static rks_status find_runs(const rks_plan_input *in, const rks_plan_base *base, rks_pack *pack,
                            rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = 0; i < base->count && status == RKS_OK;) {
        status = add_run(pack, rks_pack_size(in, base->ids[i]), i, err);
        pack->run_count += status == RKS_OK;
        uint64_t end = run_end(in, base, i);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, end - i, err);
        i = end;
    }
    return status == RKS_OK ? add_run(pack, 0, base->count, err) : status;
}

static int by_cost(const void *a, const void *b)
{
    const rks_pack_group *left = a, *right = b;
    if (left->cost != right->cost)
        return left->cost > right->cost ? -1 : 1;
    return left->pattern < right->pattern ? -1 : left->pattern > right->pattern;
}

rks_u128 rks_pack_bin_cost(const rks_plan_config *config, const rks_pack *pack, uint32_t pattern)
{
    rks_u128 cost = 0;
    for (uint32_t at = pattern; at != RKS_PACK_NONE; at = pack->patterns[at].before)
        cost += rks_pack_cost(config, pack->runs[pack->patterns[at].run].size) *
                pack->patterns[at].count;
    return cost;
}

void rks_pack_sort(const rks_plan_config *config, rks_pack *pack, size_t first)
{
    for (size_t i = first; i < pack->group_count; i++)
        pack->groups[i].cost = rks_pack_bin_cost(config, pack, pack->groups[i].pattern);
    qsort(pack->groups + first, pack->group_count - first, sizeof(*pack->groups), by_cost);
}

/* Removes groups that have given all of their bins to others, and counts bins. */
static void compact(rks_pack *pack)
{
    size_t kept = 0;
    for (size_t i = 0; i < pack->group_count; i++) {
        if (pack->groups[i].bins == 0)
            continue;
        pack->bins += pack->groups[i].bins;
        pack->groups[kept++] = pack->groups[i];
    }
    pack->group_count = kept;
}

void rks_pack_settle(const rks_plan_config *config, rks_pack *pack)
{
    compact(pack);
    rks_pack_sort(config, pack, 0);
}

rks_status rks_pack_begin(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                          rks_pack **pack, rks_error *err)
{
    const rks_plan_config *config = &in->config;
    if (base->count == 0)
        return rks_fail(err, RKS_ERR_DATA, 0, "no samples to plan");
    if (base->count < (uint64_t)world * config->micro_batches && config->tail != TAIL_REPEAT)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "%" PRIu64 " samples for %" PRIu32 " ranks with micro_batches %" PRIu32
                        ": no batch may be empty; use fewer ranks, or tail=repeat",
                        base->count, world, config->micro_batches);
    rks_pack *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = find_runs(in, base, made, err);
    if (status != RKS_OK)
        rks_pack_free(made);
    else
        *pack = made;
    return status;
}

rks_status rks_pack_keep(rks_plan_layout *layout, const rks_plan_base *base, rks_pack *pack,
                         rks_error *err)
{
    rks_pack_free(layout->pack);
    layout->pack = pack;
    layout->count = 0;
    layout->base = base->count;
    layout->batches = pack->steps * pack->slots;
    return rks_pack_make_kinds(pack, err);
}

rks_status rks_pack_lay_out(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                            rks_plan_layout *layout, rks_error *err)
{
    rks_pack *pack = NULL;
    rks_pack_free(layout->pack);
    layout->pack = NULL;
    layout->base = base->count; /* for errors */
    rks_status status = rks_pack_begin(in, base, world, &pack, err);
    if (status == RKS_OK)
        status = rks_pack_fit(pack, in->config.capacity, err);
    if (status == RKS_OK) {
        rks_pack_settle(&in->config, pack);
        status = rks_pack_even(in, world, 0, pack, err);
    }
    if (status == RKS_OK)
        return rks_pack_keep(layout, base, pack, err);
    rks_pack_free(pack);
    return status;
}
