/* SPDX-License-Identifier: Apache-2.0
 *
 * serving_ranks.c: which rank this one asks on each other node.
 *
 * The ranks of a node map each other's shards, so one of them can serve what all of them own. A
 * rank asks the rank with its own place on the other node, as on the rails of a cluster's network:
 *
 *              node 0      node 1      node 2
 *   place 0   rank 0 ──── rank 2 ──── rank 4
 *   place 1   rank 1 ──── rank 3 ──── rank 5
 *
 * With N nodes of R ranks each rank has N - 1 connections instead of (N - 1) R, and one request
 * reaches what R owners have. If nodes have different numbers of ranks, the ranks of small nodes
 * are spread over the places of large ones. The owner itself is asked if the rank at that place
 * does not serve all of its node's shards: a container's disk or another user's files may be closed
 * to it. */
#include "store/store.h"

bool rks_store_serves_node(const rks_store *store)
{
    uint32_t node = rks_group_node(store->group);
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        if (!rks_store_serves_shard(store, i) && rks_store_first_to_see(store, node, i) >= 0)
            return false;
    return true;
}

void rks_store_choose_rails(rks_store *store, const rks_agreed *agreed, size_t fact)
{
    const rks_group *group = store->group;
    uint32_t own_node = rks_group_node(group);
    uint32_t place = rks_group_place_of(group, rks_group_rank(group)) +
                     own_node * rks_group_node_size(group, own_node);
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        uint32_t node = rks_group_node_of(group, rank);
        uint32_t rail = rks_group_at_place(group, node, place % rks_group_node_size(group, node));
        const uint8_t *serves = rks_agreed_get(agreed, rail, fact, NULL);
        store->asks[rank] = node == own_node || *serves == 0 ? rank : rail;
    }
}
