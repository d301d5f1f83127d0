/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_inside.h: the inside of the nccl exchange, for its two files. */
#ifndef RKS_EXCHANGE_NCCL_INSIDE_H
#define RKS_EXCHANGE_NCCL_INSIDE_H

#include "exchange/communicator.h"
#include "exchange/exchange_internal.h"
#include "exchange/rails.h"

enum {
    NCCL_SLOTS = 2,
    NCCL_SLOT_BYTES = 16 << 20,
    NCCL_ROUND_MS = 60 * 1000, /* default; making a communicator may take ten times as long */
};

/* What stands behind the name: "nccl:rails=off,timeout=60,slot=16777216". */
typedef struct nccl_options {
    bool flat;
    uint32_t timeout_ms;
    uint64_t slot;
} nccl_options;

typedef struct nccl_slot {
    uint64_t gpu;
    uint8_t *up;
    uint8_t *down;
    rks_gpu_event uploaded, gathered, downloaded;
} nccl_slot;

typedef struct nccl_state {
    rks_exchange_plan *plan;
    nccl_options options;
    rks_gpu *gpu;
    bool entered;
    rks_rails rails;
    rks_communicator *communicator;
    rks_gpu_stream up, net, down;
    nccl_slot slots[NCCL_SLOTS];
    uint64_t slot_bytes;
    uint64_t pinned_bytes;
    uint64_t free_before; /* of the GPU, before anything was made on it */
    uint64_t looked_ms;
    uint64_t stop_ms;  /* since when an error is known; 0: none is */
    bool left_behind;  /* NCCL did not come back: its memory is not touched any more */
    rks_status status; /* of this rank's own source or sink, or an interrupt */
    rks_error err;
} nccl_state;

/* nccl_meet.c */

/* RKS_ERR_ARGUMENT names the option. */
rks_status rks_nccl_read_options(const char *text, nccl_options *options, rks_error *err);
/* COLLECTIVE. Opens this rank's GPU, where it has one, and finds out who carries what. */
rks_status rks_nccl_meet(nccl_state *state, rks_error *err);
/* COLLECTIVE. The first member of each communicator draws its id; *id is that of this rank's. */
rks_status rks_nccl_hand_round_ids(nccl_state *state, uint8_t id[RKS_COMMUNICATOR_ID],
                                   rks_error *err);
/* An error of this rank's source or sink, or an interrupt: the first one counts. */
void rks_nccl_note_own(nccl_state *state, rks_status status, const rks_error *err);

#endif
