/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.c: the control tree, as drawn in group_state.h. */
#include "base/memory.h"
#include "group/group_state.h"

rks_status rks_tree_plant(rks_group *group, rks_error *err)
{
    uint32_t rank = group->rank, node = group->node_of[rank];
    group->children = rks_alloc(group->size, sizeof(*group->children), err);
    group->below = rks_alloc(group->size, sizeof(*group->below), err);
    if (group->children == NULL || group->below == NULL)
        return RKS_ERR_MEMORY;
    group->parent = rank == 0                      ? -1
                    : rank == group->leaders[node] ? 0
                                                   : (int64_t)group->leaders[node];
    if (rank != group->leaders[node])
        return RKS_OK;
    for (uint32_t other = 0; other < group->size; other++) {
        bool leads = group->leaders[group->node_of[other]] == other;
        if (other == rank || (leads ? rank != 0 : group->node_of[other] != node))
            continue;
        for (uint32_t each = 0; each < group->size; each++)
            group->below[group->child_count] +=
                leads ? group->node_of[each] == group->node_of[other] : each == other;
        group->children[group->child_count++] = other;
    }
    return RKS_OK;
}

int64_t rks_group_parent(const rks_group *group)
{
    return group->parent;
}

const uint32_t *rks_group_children(const rks_group *group, uint32_t *count)
{
    *count = group->child_count;
    return group->children;
}
