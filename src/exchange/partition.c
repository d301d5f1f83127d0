/* SPDX-License-Identifier: Apache-2.0
 *
 * partition.c: which part of the streams that a node wants each of its ranks receives; arithmetic
 * alone.
 *
 * Senders are ordered by local rank, then by node, starting at the receiver's node and wrapping
 * around. If all streams have the same size, a rank receives from the ranks with its own local rank
 * on other nodes. It fetches samples from the same ranks later, and they receive from it, so there
 * are few connections. A cut falls on a boundary of its stream, at or after an even share. */
#include "exchange/exchange_backend.h"

#include <inttypes.h>

#include "base/error.h"

/* The streams that a node shares, placed end to end. */
typedef struct shared {
    const rks_exchange_plan *plan;
    uint64_t total;
    uint32_t takers; /* ranks of the node, which share them */
} shared;

/* Returns where cut number `i` falls in the stream of `sender`, which begins at `before`. */
static uint64_t cut_in(const shared *s, uint32_t i, uint32_t sender, uint64_t before)
{
    const rks_exchange_job *job = s->plan->job;
    uint64_t at = s->total / s->takers * i + s->total % s->takers * i / s->takers;
    if (at <= before)
        return 0;
    if (at - before >= s->plan->sizes[sender])
        return s->plan->sizes[sender];
    return job->segments == NULL ? at - before
                                 : rks_exchange_boundary(job->segments, sender, at - before);
}

static rks_exchange_part part_of(const shared *s, uint32_t i, uint32_t sender, uint64_t before)
{
    rks_exchange_part part = {cut_in(s, i, sender, before), cut_in(s, i + 1, sender, before)};
    return part;
}

static bool is_shared(const rks_exchange_plan *plan, uint32_t node, const uint8_t *wants,
                      uint32_t sender)
{
    return rks_group_node_of(plan->group, sender) != node && plan->sizes[sender] > 0 &&
           (wants[sender / 8] >> (sender % 8) & 1) != 0;
}

/* If this rank is `sender`: sets what each rank of the node receives of its stream. */
static void give(rks_exchange_plan *plan, const shared *s, uint32_t node, uint64_t before)
{
    for (uint32_t i = 0; i < s->takers; i++)
        plan->given[rks_group_at_place(plan->group, node, i)] = part_of(s, i, plan->rank, before);
}

/* Divides the stream of one sender, which begins at `before`. */
static void cut_stream(rks_exchange_plan *plan, const shared *s, uint32_t node, uint32_t sender,
                       uint64_t before)
{
    if (node == rks_group_node(plan->group)) {
        plan->node_wanted[sender] = true;
        plan->parts[sender] =
            part_of(s, rks_group_place_of(plan->group, plan->rank), sender, before);
    }
    if (sender == plan->rank)
        give(plan, s, node, before);
}

rks_status rks_exchange_share(rks_exchange_plan *plan, uint32_t receiver, const uint8_t *wants,
                              rks_error *err)
{
    const rks_group *group = plan->group;
    uint32_t node = rks_group_node_of(group, receiver), nodes = rks_group_nodes(group), left = 0;
    shared s = {.plan = plan, .takers = rks_group_node_size(group, node)};
    for (uint32_t sender = 0; sender < plan->size; sender++) {
        if (!is_shared(plan, node, wants, sender))
            continue;
        left++;
        if (__builtin_add_overflow(s.total, plan->sizes[sender], &s.total))
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "exchange: node %" PRIu32 " wants 2^64 bytes and more", node);
    }
    uint64_t before = 0;
    for (uint32_t place = 0; left > 0; place++) {
        for (uint32_t step = 1; step < nodes; step++) {
            uint32_t from = (node + step) % nodes;
            if (place >= rks_group_node_size(group, from))
                continue;
            uint32_t sender = rks_group_at_place(group, from, place);
            if (!is_shared(plan, node, wants, sender))
                continue;
            cut_stream(plan, &s, node, sender, before);
            before += plan->sizes[sender];
            left--;
        }
    }
    return RKS_OK;
}
