/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_state.h: the inside of the nccl exchange, for its files. */
#ifndef RKS_EXCHANGE_NCCL_STATE_H
#define RKS_EXCHANGE_NCCL_STATE_H

#include <sys/types.h>

#include "exchange/communicator.h"
#include "exchange/exchange_backend.h"
#include "exchange/gpu_rails.h"

enum {
    NCCL_BUFFERS = 2,
    NCCL_BUFFER_BYTES = 16 << 20,
    NCCL_ROUND_MS = 60 * 1000,   /* default */
    NCCL_MAKE_MS = 120 * 1000,   /* most time to make a communicator */
    NCCL_END_MS = 5 * 1000,      /* most time to end one in order when its group is closed */
    NCCL_MOST_BYTES = 128 << 20, /* GPU memory that an exchange should use at most, without NCCL's
                                  * code */
};

/* What happens to GPU and pinned memory after an exchange that succeeded. */
typedef enum nccl_memory { NCCL_FREES, NCCL_KEEPS } nccl_memory;

/* The options after the name: "nccl:rails=off,timeout=60,slot=16777216,memory=keep". */
typedef struct nccl_options {
    bool flat;
    uint32_t timeout_ms;
    uint64_t buffer;
    nccl_memory memory;
} nccl_options;

typedef struct nccl_buffer {
    uint64_t gpu;
    uint8_t *up;
    uint8_t *down;
    rks_gpu_event uploaded, gathered, downloaded;
} nccl_buffer;

/* What a rank holds on a GPU. It may be kept for the group's next exchange. */
typedef struct nccl_resources {
    struct nccl_resources *next; /* the next one in the list of those kept */
    rks_group *group;
    pid_t pid;
    uint64_t serial; /* number of the exchange that kept it, equal on all ranks; 0: it is new */
    bool flat;       /* that exchange had one communicator of all GPUs */
    rks_gpu *gpu;
    bool entered;
    rks_communicator *communicator;
    rks_gpu_stream up, net, down;
    nccl_buffer buffers[NCCL_BUFFERS];
    uint64_t chunk_room, round_room; /* bytes in a buffer */
    uint64_t buffer_bytes, pinned_bytes, nccl_bytes;
    bool left_behind; /* NCCL did not return: its memory must not be touched */
} nccl_resources;

typedef struct nccl_state {
    rks_exchange_plan *plan;
    nccl_options options;
    nccl_resources *held;
    bool reuses; /* all ranks have kept this from the same exchange, with the same rails */
    rks_rails rails;
    uint64_t *chunk_sizes; /* of each member, in a round */
    uint64_t free_before;  /* of the GPU, before the exchange used it */
    uint64_t looked_ms;
    uint64_t stop_ms;  /* since when an error is known; 0: none */
    rks_status status; /* an error of this rank's own source or sink, or an interrupt */
    rks_error err;
} nccl_state;

/* nccl_resources.c */

/* Returns what this process kept for the group, or a new one; NULL if memory is short. */
nccl_resources *rks_nccl_take(rks_group *group, rks_error *err);
/* Makes two buffers for rounds of `round` bytes, with chunks of `chunk`; buffers that are large
 * enough stay. Within the GPU's context. */
rks_status rks_nccl_make_buffers(nccl_resources *held, uint64_t chunk, uint64_t round,
                                 rks_error *err);
/* Fails with RKS_ERR_UNSUPPORTED if this process had to leave work of an earlier exchange on a
 * GPU. */
rks_status rks_nccl_refuse_lost(rks_error *err);
/* Ends the communicator: in order, with `patience`, or by abort if that is NULL. Then frees buffers
 * and streams. The GPU stays open. */
void rks_nccl_drop(nccl_resources *held, const rks_nccl_patience *patience);
/* Keeps it for the group's next exchange, and frees it when the group is closed. */
void rks_nccl_keep(nccl_resources *held, bool flat);
/* Does what rks_nccl_drop does, and frees the rest. */
void rks_nccl_release(nccl_resources *held, const rks_nccl_patience *patience);

/* nccl_setup.c */

/* Reads the options. RKS_ERR_ARGUMENT names the option that is wrong. */
rks_status rks_nccl_read_options(const char *text, nccl_options *options, rks_error *err);
/* Prints a line if buffers and NCCL's memory together are above NCCL_MOST_BYTES, with a guess why.
 */
void rks_nccl_judge_memory(const rks_gpu *gpu, uint64_t bytes);
/* COLLECTIVE. Opens this rank's GPU, if it has one, and finds out which ranks carry what. Enters
 * the GPUs of those ranks; no other rank makes a context. */
rks_status rks_nccl_meet(nccl_state *state, rks_error *err);
/* COLLECTIVE. The first member of each communicator draws its id; *id becomes that of this
 * rank's. */
rks_status rks_nccl_hand_round_ids(nccl_state *state, uint8_t id[RKS_COMMUNICATOR_ID],
                                   rks_error *err);
/* Records an error of this rank's source or sink, or an interrupt. The first one counts. */
void rks_nccl_note_own(nccl_state *state, rks_status status, const rks_error *err);

#endif
