/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_rails.h: which ranks carry what in an all-gather over GPUs; arithmetic alone.
 *
 *   node 0   stream of rank 0 | of rank 1 | ...     cut into R slices, by carriers 0 .. R-1
 *   node 1   stream of rank 4 | of rank 5 | ...     of that node, R being the fewest GPUs of a node
 *
 * Carriers   Of each node the lowest ranks with a GPU of their own, R of them; the others take no
 *            part. Carrier i of a node has slice i of its node's stream.
 * Rails      R communicators, one for the carriers i of all nodes. A carrier receives slice i of
 *            every node, which is what its node lacks with the other carriers' slices. Flat: one
 *            communicator of all carriers, where carrier i receives the slices i alone.
 * Rounds     A member of a communicator sends its slice in rounds of at most `room` bytes, each
 *            after a head of 64. A round is as long as the longest chunk in it. */
#ifndef RKS_EXCHANGE_GPU_RAILS_H
#define RKS_EXCHANGE_GPU_RAILS_H

#include "exchange/exchange.h"

enum { RKS_ROUND_HEAD = 64 };

/* Bytes [offset, offset + size) of the stream of `sender`. */
typedef struct rks_stretch {
    uint32_t sender;
    uint64_t offset;
    uint64_t size;
} rks_stretch;

typedef struct rks_member {
    uint32_t rank;
    uint32_t node;
    uint32_t carrier;     /* i */
    size_t first_stretch; /* its slice */
    size_t stretch_count;
    uint64_t bytes;
} rks_member;

typedef struct rks_rails {
    uint32_t rails; /* R */
    bool flat;
    int64_t mine;        /* this rank's communicator; -1: it carries nothing */
    uint32_t me;         /* its place in that communicator */
    rks_member *members; /* of this rank's communicator, by node, then carrier */
    uint32_t member_count;
    rks_stretch *stretches;
    size_t stretch_count;
    uint32_t root; /* rank of member 0 */
    uint64_t room; /* most payload of a chunk */
    uint64_t rounds;
} rks_rails;

typedef struct rks_rails_input {
    uint32_t ranks, rank;
    const uint32_t *nodes; /* of each rank */
    const uint8_t *gpus;   /* of each rank 17 bytes: 1 and its GPU's UUID, or 0 */
    const uint64_t *sizes; /* of each rank's stream */
    bool flat;
    uint64_t buffer; /* bytes of GPU memory for one round */
    uint64_t chunk;  /* most payload of a chunk; 0: as much as the buffer allows */
    const rks_exchange_segments *segments; /* where streams may be divided; NULL: anywhere */
} rks_rails_input;

enum { RKS_GPU_RECORD = 17 };

/* Finds carriers and slices, the same on all ranks. RKS_ERR_UNSUPPORTED names the lowest rank of a
 * node without a GPU, or the buffer that is too small. Free with rks_rails_free. */
rks_status rks_rails_make(const rks_rails_input *input, rks_rails *rails, rks_error *err);
void rks_rails_free(rks_rails *rails);

/* Returns the bytes of each member's chunk in a round, with its head: a multiple of 16, at most the
 * room and the head. */
uint64_t rks_rails_round(const rks_rails *rails, uint64_t round);
/* Returns the bytes of a member's payload in a round; 0 if it has sent all. */
uint64_t rks_rails_payload(const rks_rails *rails, uint32_t member, uint64_t round);
/* Calls `visit` for each stretch that makes up [offset, offset + size) of a member's slice, in
 * order, until it fails. `at` counts from the offset. */
rks_status rks_rails_each(const rks_rails *rails, uint32_t member, uint64_t offset, uint64_t size,
                          rks_status (*visit)(void *user, const rks_stretch *stretch, uint64_t at,
                                              rks_error *err),
                          void *user, rks_error *err);

#endif
