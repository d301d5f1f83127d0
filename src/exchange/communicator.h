/* SPDX-License-Identifier: Apache-2.0
 *
 * communicator.h: one NCCL communicator. libnccl.so.2 is loaded when the first one is asked for:
 * the file that RKS_NCCL_LIBRARY names, else the copy that is in the process already (PyTorch's),
 * else the file that rks_nccl_library named, else that of NVIDIA's package in the Python environment
 * that this library or its program is installed in, if it is root's, this user's or of the library's
 * owner, else what the system's search path has. It is never unloaded.
 *
 * Waits    Calls of NCCL return at once; each wait here polls, asks `look` between two looks, and
 *          ends with `limit_ms`. `look` may end a wait with an error of its own.
 * Threads  One thread makes all calls on a communicator, with the GPU's context current.
 * Errors   RKS_ERR_UNSUPPORTED if NCCL cannot be loaded, RKS_ERR_TIMEOUT if a wait is over,
 *          else RKS_ERR_IO with NCCL's number as cause. After an error only abort is left. */
#ifndef RKS_EXCHANGE_COMMUNICATOR_H
#define RKS_EXCHANGE_COMMUNICATOR_H

#include "exchange/gpu.h"

typedef struct rks_communicator rks_communicator;

enum { RKS_COMMUNICATOR_ID = 128 };

/* How long an abort may take: 20 s; tests shorten it. */
extern uint32_t rks_communicator_abort_ms;

typedef struct rks_nccl_patience {
    uint32_t limit_ms;
    rks_status (*look)(void *user, rks_error *err);
    void *user;
} rks_nccl_patience;

/* *version as NCCL counts: 22809 is 2.28.9. */
rks_status rks_nccl_load(int *version, rks_error *err);
/* Drawn by one rank of a communicator, needed by all. */
rks_status rks_communicator_draw_id(uint8_t id[RKS_COMMUNICATOR_ID], rks_error *err);

/* Within the GPU's context; returns when all ranks have come. *communicator is set also if an
 * error is returned, unless there was no memory for it: then only abort is left. RKS_ERR_UNSUPPORTED
 * where NCCL_COMM_BLOCKING=1, in the environment or in nccl.conf, would make every wait endless. */
rks_status rks_communicator_open(rks_gpu *gpu, const uint8_t id[RKS_COMMUNICATOR_ID],
                                 uint32_t ranks, uint32_t rank, const rks_nccl_patience *patience,
                                 rks_communicator **communicator, rks_error *err);
/* Puts on the stream: the chunk of each member goes to all. That of member i lies at slot + i *
 * stride and has sizes[i] bytes, which all ranks give alike; 1 at least. Grouped broadcasts travel
 * along the ring alone, whatever NCCL is set to; an all-gather could choose PAT, whose connections
 * take hundreds of MB. */
rks_status rks_communicator_gather(rks_communicator *communicator, uint64_t slot, uint64_t stride,
                                   const uint64_t *sizes, rks_gpu_stream stream,
                                   const rks_nccl_patience *patience, rks_error *err);
/* Without waiting: has NCCL noticed that something is wrong? */
rks_status rks_communicator_look(rks_communicator *communicator, rks_error *err);
/* Waits for what is on its way on all ranks, and frees it. After an error only abort is left. */
rks_status rks_communicator_close(rks_communicator *communicator, const rks_nccl_patience *patience,
                                  rks_error *err);
/* Ends what is on its way, and frees it. False: NCCL did not come back within 20 s, or could not
 * end it; the communicator, its thread and the memory that it works on are left as they are, and
 * the GPU must stay open. NULL is accepted. */
bool rks_communicator_abort(rks_communicator *communicator);

#endif
