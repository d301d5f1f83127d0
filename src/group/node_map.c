/* SPDX-License-Identifier: Apache-2.0
 *
 * node_map.c: which ranks share a node, and their places on it. */
#include "base/memory.h"
#include "group/group_state.h"

rks_status rks_nodes_sort(rks_group *group, rks_error *err)
{
    uint32_t found = 0;
    group->by_node = rks_alloc(group->size, sizeof(*group->by_node), err);
    group->node_begin = rks_alloc((size_t)group->nodes + 1, sizeof(*group->node_begin), err);
    if (group->by_node == NULL || group->node_begin == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < group->size; rank++)
        group->node_begin[group->node_of[rank] + 1]++;
    for (uint32_t node = 0; node < group->nodes; node++)
        group->node_begin[node + 1] += group->node_begin[node];
    for (uint32_t node = 0; node < group->nodes; node++)
        for (uint32_t rank = group->leaders[node]; found < group->node_begin[node + 1]; rank++)
            if (group->node_of[rank] == node)
                group->by_node[found++] = rank;
    return RKS_OK;
}

uint32_t rks_group_node(const rks_group *group)
{
    return group->node_of[group->rank];
}

uint32_t rks_group_nodes(const rks_group *group)
{
    return group->nodes;
}

uint32_t rks_group_node_of(const rks_group *group, uint32_t rank)
{
    return group->node_of[rank];
}

uint32_t rks_group_node_size(const rks_group *group, uint32_t node)
{
    return group->node_begin[node + 1] - group->node_begin[node];
}

uint32_t rks_group_place_of(const rks_group *group, uint32_t rank)
{
    uint32_t at = group->node_begin[group->node_of[rank]];
    while (group->by_node[at] != rank)
        at++;
    return at - group->node_begin[group->node_of[rank]];
}

uint32_t rks_group_at_place(const rks_group *group, uint32_t node, uint32_t place)
{
    return group->by_node[group->node_begin[node] + place];
}

uint32_t rks_group_leader(const rks_group *group, uint32_t node)
{
    return group->leaders[node];
}

bool rks_group_is_leader(const rks_group *group)
{
    return group->leaders[group->node_of[group->rank]] == group->rank;
}
