/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_calls.h: the calls of the CUDA driver that Rankstore makes, declared here, so that every
 * build has them: cuda.h belongs to the CUDA Toolkit, which pip's build isolation hides. The names,
 * values and parameters are the driver's stable ABI since CUDA 11.3;
 * tests/unit/exchange/test_declarations.c compares them with cuda.h where that is installed. */
#ifndef RKS_EXCHANGE_CUDA_CALLS_H
#define RKS_EXCHANGE_CUDA_CALLS_H

#include <stddef.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUuuid_st;

typedef unsigned rks_cu_result;
typedef int rks_cu_device;
typedef struct CUctx_st *rks_cu_context;
typedef struct CUstream_st *rks_cu_stream;
typedef struct CUevent_st *rks_cu_event;
typedef unsigned long long rks_cu_address; /* of GPU memory */

enum rks_cu_values {
    RKS_CU_SUCCESS = 0,
    RKS_CU_OUT_OF_MEMORY = 2,
    RKS_CU_NO_DEVICE = 100,
    RKS_CU_NOT_READY = 600,
    RKS_CU_SYSTEM_DRIVER_MISMATCH = 803,
    RKS_CU_STREAM_CAPTURE_IMPLICIT = 906,
    RKS_CU_STREAM_NON_BLOCKING = 1,
    RKS_CU_EVENT_DISABLE_TIMING = 2,
    RKS_CU_CAPTURE_RELAXED = 2,         /* a mode */
    RKS_CU_CAPTURE_NONE = 0,            /* a status */
    RKS_CU_DEVICE_VIRTUAL_MEMORY = 102, /* an attribute */
    RKS_CU_VERSION_12 = 12000,
};

/* Handles of streams that always exist. */
#define RKS_CU_STREAM_LEGACY ((rks_cu_stream)1)
#define RKS_CU_STREAM_PER_THREAD ((rks_cu_stream)2)

/* CALL(name, parameters); all return rks_cu_result. A uuid is 16 bytes. */
#define RKS_CUDA_CALLS(CALL)                                                                       \
    CALL(cuInit, (unsigned flags))                                                                 \
    CALL(cuGetErrorString, (rks_cu_result result, const char **text))                              \
    CALL(cuDriverGetVersion, (int *version))                                                       \
    CALL(cuDeviceGetCount, (int *count))                                                           \
    CALL(cuDeviceGetAttribute, (int *value, unsigned attribute, rks_cu_device device))             \
    CALL(cuDeviceGet, (rks_cu_device * device, int number))                                        \
    CALL(cuDeviceGetUuid_v2, (struct CUuuid_st * uuid, rks_cu_device device))                      \
    CALL(cuCtxGetCurrent, (rks_cu_context * context))                                              \
    CALL(cuCtxGetDevice, (rks_cu_device * device))                                                 \
    CALL(cuDevicePrimaryCtxRetain, (rks_cu_context * context, rks_cu_device device))               \
    CALL(cuDevicePrimaryCtxRelease_v2, (rks_cu_device device))                                     \
    CALL(cuCtxPushCurrent_v2, (rks_cu_context context))                                            \
    CALL(cuCtxPopCurrent_v2, (rks_cu_context * context))                                           \
    CALL(cuThreadExchangeStreamCaptureMode, (unsigned *mode))                                      \
    CALL(cuStreamIsCapturing, (rks_cu_stream stream, unsigned *status))                            \
    CALL(cuStreamQuery, (rks_cu_stream stream))                                                    \
    CALL(cuStreamCreate, (rks_cu_stream * stream, unsigned flags))                                 \
    CALL(cuStreamDestroy_v2, (rks_cu_stream stream))                                               \
    CALL(cuStreamWaitEvent, (rks_cu_stream stream, rks_cu_event event, unsigned flags))            \
    CALL(cuEventCreate, (rks_cu_event * event, unsigned flags))                                    \
    CALL(cuEventDestroy_v2, (rks_cu_event event))                                                  \
    CALL(cuEventRecord, (rks_cu_event event, rks_cu_stream stream))                                \
    CALL(cuEventQuery, (rks_cu_event event))                                                       \
    CALL(cuMemAlloc_v2, (rks_cu_address * memory, size_t bytes))                                   \
    CALL(cuMemFree_v2, (rks_cu_address memory))                                                    \
    CALL(cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                            \
    CALL(cuMemFreeHost, (void *memory))                                                            \
    CALL(cuMemGetInfo_v2, (size_t *left, size_t *all))                                             \
    CALL(cuMemcpyHtoDAsync_v2,                                                                     \
         (rks_cu_address to, const void *from, size_t bytes, rks_cu_stream stream))                \
    CALL(cuMemcpyDtoHAsync_v2, (void *to, rks_cu_address from, size_t bytes, rks_cu_stream stream))

#endif
