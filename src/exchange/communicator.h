/* SPDX-License-Identifier: Apache-2.0
 *
 * communicator.h: one NCCL communicator. libnccl.so.2 is loaded when the first one is asked for:
 * the file that RKS_NCCL_LIBRARY names, else the copy that is in the process already (PyTorch's),
 * else the file that rks_nccl_library named, else that of NVIDIA's package in the Python
 * environment that this library or its program is installed in, if it is root's, this user's or of
 * the library's owner, else what the system's search path has. It is never unloaded.
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

/* The longest that an abort may take: 20,000 ms; tests shorten it. */
extern uint32_t rks_communicator_abort_ms;

typedef struct rks_nccl_patience {
    uint32_t limit_ms;
    rks_status (*look)(void *user, rks_error *err);
    void *user;
} rks_nccl_patience;

/* Loads NCCL. *version in NCCL's way of counting: 22809 is 2.28.9. */
rks_status rks_nccl_load(int *version, rks_error *err);
/* Draws an id on one rank of a communicator; all its ranks need it. */
rks_status rks_communicator_draw_id(uint8_t id[RKS_COMMUNICATOR_ID], rks_error *err);

/* Makes a communicator within the GPU's context. Returns when all ranks have come. *communicator is
 * set also after an error, unless memory was short; then only abort may be called.
 * RKS_ERR_UNSUPPORTED if NCCL_COMM_BLOCKING=1 is set, in the environment or in nccl.conf, since
 * every wait would be endless. */
rks_status rks_communicator_open(rks_gpu *gpu, const uint8_t id[RKS_COMMUNICATOR_ID],
                                 uint32_t ranks, uint32_t rank, const rks_nccl_patience *patience,
                                 rks_communicator **communicator, rks_error *err);
/* Queues a step on the stream that sends each member's chunk to all. The chunk of member i is at
 * buffer + i * stride and has sizes[i] bytes, at least 1, the same on all ranks. It uses grouped
 * broadcasts, which need only the ring whatever NCCL is set to. An all-gather could choose PAT,
 * whose connections take hundreds of MB. */
rks_status rks_communicator_gather(rks_communicator *communicator, uint64_t buffer, uint64_t stride,
                                   const uint64_t *sizes, rks_gpu_stream stream,
                                   const rks_nccl_patience *patience, rks_error *err);
/* Returns an error if NCCL has noticed one. Does not wait. */
rks_status rks_communicator_look(rks_communicator *communicator, rks_error *err);
/* Waits until all ranks have finished what is queued, and frees the communicator. After an error
 * only abort may be called. */
rks_status rks_communicator_close(rks_communicator *communicator, const rks_nccl_patience *patience,
                                  rks_error *err);
/* Ends what is in progress and frees the communicator. Returns false if NCCL did not return within
 * 20 s, or could not end it. Then the communicator, its thread and the memory that it uses are left
 * as they are, and the GPU must stay open. NULL is allowed. */
bool rks_communicator_abort(rks_communicator *communicator);

#endif
