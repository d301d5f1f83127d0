/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h: one GPU through the CUDA driver, libcuda.so.1, which is loaded when the first one is asked
 * for and never before (RKS_CUDA_LIBRARY names another file). No CUDA runtime.
 *
 * Context    The device's primary one, which the CUDA runtime, PyTorch and NCCL share. It takes
 *            hundreds of MB of GPU memory where nobody else has made it yet: rks_gpu_open makes
 *            none, the first rks_gpu_enter does. Calls leave the thread as it was.
 * Memory     The driver's plain allocation: a framework's allocator never sees it.
 * Streams    Non-blocking: they wait for no stream of anybody else. Calls that a running graph
 *            capture of another thread would forbid run in relaxed mode, and leave it valid.
 * Errors     RKS_ERR_UNSUPPORTED if there is no driver or GPU, RKS_ERR_MEMORY if its memory
 * is full, RKS_ERR_STATE during a capture of the caller, else RKS_ERR_IO with CUDA's number as
 * cause.
 *
 * A thread may enter a GPU that another one is in. A child of fork must not use its parent's. */
#ifndef RKS_EXCHANGE_GPU_H
#define RKS_EXCHANGE_GPU_H

#include "rankstore/base.h"

typedef struct rks_gpu rks_gpu;

enum { RKS_GPU_UUID = 16 };

/* Opens a GPU. `place`: this rank's position among the ranks of its node. Chooses the GPU of the
 * thread's current context, else the visible one with the number RKS_GPU, else number place %
 * count. */
rks_status rks_gpu_open(uint32_t place, rks_gpu **gpu, rks_error *err);
/* Closes it. Everything allocated must be freed before. NULL is allowed. */
void rks_gpu_close(rks_gpu *gpu);
/* Returns the UUID, which is equal for two ranks that use the same GPU. */
const uint8_t *rks_gpu_uuid(const rks_gpu *gpu);
int rks_gpu_number(const rks_gpu *gpu);
/* Returns true if NCCL may use the driver's virtual memory: the device has it, and the driver is of
 * CUDA 12 or newer. Makes no context. */
bool rks_gpu_has_virtual_memory(const rks_gpu *gpu);
/* Fails with RKS_ERR_STATE if this thread captures a graph, as far as the driver reports it.
 * rks_gpu_open checks it, too. Makes no context. */
rks_status rks_gpu_refuse_capture(rks_error *err);

/* Between enter and leave the GPU's context is current in this thread: for calls of NCCL. They
 * cannot be nested. */
rks_status rks_gpu_enter(rks_gpu *gpu, rks_error *err);
void rks_gpu_leave(rks_gpu *gpu);

/* Call everything below between enter and leave. */

/* Returns the free bytes of the whole device. */
rks_status rks_gpu_free_memory(rks_gpu *gpu, uint64_t *bytes, rks_error *err);
rks_status rks_gpu_alloc(rks_gpu *gpu, size_t bytes, uint64_t *address, rks_error *err);
void rks_gpu_free(rks_gpu *gpu, uint64_t address); /* 0 is accepted */
/* Allocates host memory that the GPU reads and writes by itself. */
rks_status rks_gpu_pin(rks_gpu *gpu, size_t bytes, void **memory, rks_error *err);
void rks_gpu_unpin(rks_gpu *gpu, void *memory); /* NULL is accepted */

typedef void *rks_gpu_stream; /* a cudaStream_t */
typedef void *rks_gpu_event;
rks_status rks_gpu_stream_create(rks_gpu *gpu, rks_gpu_stream *stream, rks_error *err);
void rks_gpu_stream_destroy(rks_gpu *gpu, rks_gpu_stream stream); /* NULL is accepted */
rks_status rks_gpu_event_create(rks_gpu *gpu, rks_gpu_event *event, rks_error *err);
void rks_gpu_event_destroy(rks_gpu *gpu, rks_gpu_event event); /* NULL is accepted */

/* *idle: all work on the stream is done; only then may memory be freed. Does not wait. */
rks_status rks_gpu_idle(rks_gpu *gpu, rks_gpu_stream stream, bool *idle, rks_error *err);

/* Queue work on the stream, and return before it is done. */
rks_status rks_gpu_upload(rks_gpu *gpu, uint64_t to, const void *pinned, size_t bytes,
                          rks_gpu_stream stream, rks_error *err);
rks_status rks_gpu_download(rks_gpu *gpu, void *pinned, uint64_t from, size_t bytes,
                            rks_gpu_stream stream, rks_error *err);
rks_status rks_gpu_record(rks_gpu *gpu, rks_gpu_event event, rks_gpu_stream stream, rks_error *err);
/* Makes later work on the stream wait for the event. */
rks_status rks_gpu_wait(rks_gpu *gpu, rks_gpu_stream stream, rks_gpu_event event, rks_error *err);
/* *done: all work queued before the event was recorded is done. Does not wait. */
rks_status rks_gpu_done(rks_gpu *gpu, rks_gpu_event event, bool *done, rks_error *err);

#endif
