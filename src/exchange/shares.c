/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.c: what each rank of a node takes of the streams that the node wants; arithmetic alone.
 *
 * Senders come in order of rank, from the node's receiver on around, so that nodes begin with
 * different senders. A cut falls on a boundary of the stream that it lies in, at or behind an even
 * share. */
#include "exchange/exchange_internal.h"

#include <inttypes.h>

#include "base/error.h"

/* The streams that a node shares, laid end to end. */
typedef struct shared {
    const rks_exchange_plan *plan;
    uint64_t total;
    uint32_t takers; /* ranks of the node */
} shared;

/* Where cut number `i` falls in the stream of `sender`, which begins at `before`. */
static uint64_t cut_in(const shared *s, uint32_t i, uint32_t sender, uint64_t before)
{
    const rks_exchange_job *job = s->plan->job;
    uint64_t at = s->total / s->takers * i + s->total % s->takers * i / s->takers;
    if (at <= before)
        return 0;
    if (at - before >= s->plan->sizes[sender])
        return s->plan->sizes[sender];
    return job->boundary == NULL ? at - before : job->boundary(job->user, sender, at - before);
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

/* This rank's place among the ranks of the node; they are counted. */
static uint32_t count_takers(const rks_exchange_plan *plan, uint32_t node, uint32_t *takers)
{
    uint32_t place = 0;
    for (uint32_t rank = 0; rank < plan->size; rank++) {
        if (rks_group_node_of(plan->group, rank) != node)
            continue;
        if (rank == plan->rank)
            place = *takers;
        ++*takers;
    }
    return place;
}

/* This rank is `sender`: what each rank of the node takes of its stream. */
static void give(rks_exchange_plan *plan, const shared *s, uint32_t node, uint64_t before)
{
    uint32_t i = 0;
    for (uint32_t rank = 0; rank < plan->size; rank++)
        if (rks_group_node_of(plan->group, rank) == node)
            plan->given[rank] = part_of(s, i++, plan->rank, before);
}

rks_status rks_exchange_share(rks_exchange_plan *plan, uint32_t receiver, const uint8_t *wants,
                              rks_error *err)
{
    uint32_t node = rks_group_node_of(plan->group, receiver);
    bool own = node == rks_group_node(plan->group);
    shared s = {.plan = plan};
    uint32_t place = count_takers(plan, node, &s.takers);
    for (uint32_t sender = 0; sender < plan->size; sender++)
        if (is_shared(plan, node, wants, sender) &&
            __builtin_add_overflow(s.total, plan->sizes[sender], &s.total))
            return rks_fail(err, RKS_ERR_CORRUPT, 0,
                            "exchange: node %" PRIu32 " wants 2^64 bytes and more", node);
    uint64_t before = 0;
    for (uint32_t step = 1; step < plan->size; step++) {
        uint32_t sender = (uint32_t)(((uint64_t)receiver + step) % plan->size);
        if (!is_shared(plan, node, wants, sender))
            continue;
        if (own) {
            plan->node_wanted[sender] = true;
            plan->parts[sender] = part_of(&s, place, sender, before);
        }
        if (sender == plan->rank)
            give(plan, &s, node, before);
        before += plan->sizes[sender];
    }
    return RKS_OK;
}
