/* SPDX-License-Identifier: Apache-2.0
 *
 * communicator.h: one NCCL communicator. libnccl.so.2 is loaded when the first one is asked for:
 * the copy that is in the process already (PyTorch's), else the file that RKS_NCCL_LIBRARY or
 * rks_nccl_library named, else what the system's search path has. It is never unloaded.
 *
 * Waits    Calls of NCCL return at once; each wait here polls, asks `look` between two looks, and
 *          ends with `limit_ms`. `look` may end a wait with an error of its own.
 * Threads  One thread makes all calls on a communicator, with the GPU's context current.
 * Errors   RKS_ERR_UNSUPPORTED where NCCL cannot be loaded, RKS_ERR_TIMEOUT where a wait is over,
 *          else RKS_ERR_IO with NCCL's number as cause. After an error only abort is left. */
#ifndef RKS_EXCHANGE_COMMUNICATOR_H
#define RKS_EXCHANGE_COMMUNICATOR_H

#include "exchange/gpu.h"

typedef struct rks_communicator rks_communicator;

enum { RKS_COMMUNICATOR_ID = 128 };

typedef struct rks_nccl_patience {
    uint32_t limit_ms;
    rks_status (*look)(void *user, rks_error *err);
    void *user;
} rks_nccl_patience;

/* *version as NCCL counts: 22809 is 2.28.9. */
rks_status rks_nccl_load(int *version, rks_error *err);
/* Drawn by one rank of a communicator, needed by all. */
rks_status rks_communicator_draw_id(uint8_t id[RKS_COMMUNICATOR_ID], rks_error *err);

/* On this thread's current context; returns when all ranks have come. */
rks_status rks_communicator_open(const uint8_t id[RKS_COMMUNICATOR_ID], uint32_t ranks,
                                 uint32_t rank, const rks_nccl_patience *patience,
                                 rks_communicator **communicator, rks_error *err);
/* Puts an all-gather in place on the stream: `bytes` of each rank, this rank's lying at slot + rank
 * * bytes. */
rks_status rks_communicator_all_gather(rks_communicator *communicator, uint64_t slot, size_t bytes,
                                       rks_gpu_stream stream, const rks_nccl_patience *patience,
                                       rks_error *err);
/* Without waiting: has NCCL noticed that something is wrong? */
rks_status rks_communicator_look(rks_communicator *communicator, rks_error *err);
/* Gives GPU memory back that it takes again at resume, and can do nothing in between. For
 * communicators with nothing on its way. RKS_ERR_UNSUPPORTED where NCCL is older than 2.29.7. */
rks_status rks_communicator_suspend(rks_communicator *communicator,
                                    const rks_nccl_patience *patience, rks_error *err);
rks_status rks_communicator_resume(rks_communicator *communicator,
                                   const rks_nccl_patience *patience, rks_error *err);
/* Waits for what is on its way on all ranks, and frees it. On failure it is aborted. */
rks_status rks_communicator_close(rks_communicator *communicator, const rks_nccl_patience *patience,
                                  rks_error *err);
/* Ends what is on its way, and frees it. False: NCCL did not come back within 20 s, and the
 * communicator, its thread and the memory that it works on are left as they are. NULL is accepted.
 */
bool rks_communicator_abort(rks_communicator *communicator);

#endif
