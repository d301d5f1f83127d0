/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c: a layout: groups of batches are added, and freed. */
#include "plan/batch/layout.h"

#include <string.h>

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/pack/packing.h"

rks_status rks_plan_layout_add(rks_plan_layout *layout, const rks_plan_group *group, rks_error *err)
{
    if (layout->count == layout->room) {
        size_t room = layout->room == 0 ? 16 : layout->room + layout->room / 2;
        rks_plan_group *groups = rks_realloc(layout->groups, room, sizeof(*groups), err);
        if (groups == NULL)
            return RKS_ERR_MEMORY;
        rks_usage_add(RKS_MEMORY_PLAN, (room - layout->room) * sizeof(*groups));
        layout->groups = groups;
        layout->room = room;
    }
    layout->groups[layout->count++] = *group;
    return RKS_OK;
}

void rks_plan_layout_free(rks_plan_layout *layout)
{
    rks_usage_sub(RKS_MEMORY_PLAN, layout->room * sizeof(*layout->groups));
    rks_free(layout->groups);
    rks_pack_free(layout->pack);
    memset(layout, 0, sizeof(*layout));
}

rks_status rks_plan_layout_batch(rks_plan_layout *layout, uint64_t first, uint64_t size,
                                 uint32_t cap, bool alone, rks_error *err)
{
    if (layout->count > 0) {
        rks_plan_group *last = &layout->groups[layout->count - 1];
        if (last->alone == alone && last->cap == cap &&
            last->count == (uint64_t)last->batches * cap) {
            last->span += (uint32_t)size;
            last->count = last->span;
            last->batches++;
            return RKS_OK;
        }
    }
    rks_plan_group group = {.first = (uint32_t)first,
                            .span = (uint32_t)size,
                            .count = (uint32_t)size,
                            .batches = 1,
                            .cap = cap,
                            .alone = alone};
    return rks_plan_layout_add(layout, &group, err);
}

rks_status rks_plan_layout_alone(rks_plan_layout *layout, uint64_t samples, rks_error *err)
{
    rks_plan_group group = {.span = (uint32_t)samples,
                            .count = (uint32_t)samples,
                            .batches = (uint32_t)samples,
                            .cap = 1,
                            .alone = true};
    return rks_plan_layout_add(layout, &group, err);
}
