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

/* `place`: this rank's position among the ranks of its node. The GPU is that of the thread's
 * current context, else the visible one whose number RKS_GPU says, else number place % count. */
rks_status rks_gpu_open(uint32_t place, rks_gpu **gpu, rks_error *err);
/* What was allocated must be freed before. NULL is accepted. */
void rks_gpu_close(rks_gpu *gpu);
/* Equal for two ranks that use the same GPU. */
const uint8_t *rks_gpu_uuid(const rks_gpu *gpu);
int rks_gpu_number(const rks_gpu *gpu);
/* Whether NCCL may use the driver's virtual memory: the device has it, and the driver is of CUDA 12
 * or newer. Makes no context. */
bool rks_gpu_has_virtual_memory(const rks_gpu *gpu);
/* RKS_ERR_STATE if this thread captures a graph, as far as the driver tells; rks_gpu_open looks
 * too. Makes no context. */
rks_status rks_gpu_refuse_capture(rks_error *err);

/* The context is this thread's between the two: for calls of NCCL. Not nested. */
rks_status rks_gpu_enter(rks_gpu *gpu, rks_error *err);
void rks_gpu_leave(rks_gpu *gpu);

/* All below between enter and leave. */

/* Bytes of the whole device that nobody has taken. */
rks_status rks_gpu_free_memory(rks_gpu *gpu, uint64_t *bytes, rks_error *err);
rks_status rks_gpu_alloc(rks_gpu *gpu, size_t bytes, uint64_t *address, rks_error *err);
void rks_gpu_free(rks_gpu *gpu, uint64_t address); /* 0 is accepted */
/* Host memory that the GPU reads and writes by itself. */
rks_status rks_gpu_pin(rks_gpu *gpu, size_t bytes, void **memory, rks_error *err);
void rks_gpu_unpin(rks_gpu *gpu, void *memory); /* NULL is accepted */

typedef void *rks_gpu_stream; /* a cudaStream_t */
typedef void *rks_gpu_event;
rks_status rks_gpu_stream_create(rks_gpu *gpu, rks_gpu_stream *stream, rks_error *err);
void rks_gpu_stream_destroy(rks_gpu *gpu, rks_gpu_stream stream); /* NULL is accepted */
rks_status rks_gpu_event_create(rks_gpu *gpu, rks_gpu_event *event, rks_error *err);
void rks_gpu_event_destroy(rks_gpu *gpu, rks_gpu_event event); /* NULL is accepted */

/* Without waiting: has all that was put on the stream been done? Memory may be freed only then. */
rks_status rks_gpu_idle(rks_gpu *gpu, rks_gpu_stream stream, bool *idle, rks_error *err);

/* Put on the stream; they return before they are done. */
rks_status rks_gpu_upload(rks_gpu *gpu, uint64_t to, const void *pinned, size_t bytes,
                          rks_gpu_stream stream, rks_error *err);
rks_status rks_gpu_download(rks_gpu *gpu, void *pinned, uint64_t from, size_t bytes,
                            rks_gpu_stream stream, rks_error *err);
rks_status rks_gpu_record(rks_gpu *gpu, rks_gpu_event event, rks_gpu_stream stream, rks_error *err);
/* What comes later on the stream waits for the event. */
rks_status rks_gpu_wait(rks_gpu *gpu, rks_gpu_stream stream, rks_gpu_event event, rks_error *err);
/* Without waiting: has all that the event was recorded behind been done? */
rks_status rks_gpu_done(rks_gpu *gpu, rks_gpu_event event, bool *done, rks_error *err);

#endif
