/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.c: the few calls of the CUDA driver that the exchange needs. */
#include "exchange/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "exchange/cuda_calls.h"
#include "exchange/dynamic_symbol.h"

#define FIELD(name, parameters) rks_cu_result(*name) parameters;
static struct {
    RKS_CUDA_CALLS(FIELD)
} driver;
#undef FIELD

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *loaded; /* guarded by mutex */

struct rks_gpu {
    rks_cu_device device;
    rks_cu_context context;
    uint8_t uuid[RKS_GPU_UUID];
};

static _Thread_local unsigned own_mode; /* the thread's mode while it is in the context */

static rks_status find_calls(void *library, rks_error *err)
{
    rks_status status = RKS_OK;
#define FIND(name, parameters)                                                                     \
    if (status == RKS_OK)                                                                          \
        status = rks_find_call(library, "the CUDA driver", #name, &driver.name, err);
    RKS_CUDA_CALLS(FIND)
#undef FIND
    return status;
}

static rks_status load_cuda(rks_error *err)
{
    const char *named = getenv("RKS_CUDA_LIBRARY");
    void *library = dlopen(named != NULL ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "no CUDA driver: %s",
                        why != NULL ? why : "libcuda.so.1");
    }
    rks_status status = find_calls(library, err);
    if (status != RKS_OK) {
        dlclose(library);
        return status;
    }
    loaded = library;
    return RKS_OK;
}

static rks_status check(rks_cu_result result, const char *what, rks_error *err)
{
    if (result == RKS_CU_SUCCESS)
        return RKS_OK;
    const char *why = NULL;
    if (driver.cuGetErrorString(result, &why) != RKS_CU_SUCCESS || why == NULL)
        why = "unknown error";
    rks_status status = RKS_ERR_IO;
    if (result == RKS_CU_OUT_OF_MEMORY)
        status = RKS_ERR_MEMORY;
    else if (result == RKS_CU_NO_DEVICE || result == RKS_CU_SYSTEM_DRIVER_MISMATCH)
        status = RKS_ERR_UNSUPPORTED;
    return rks_fail(err, status, (int64_t)result, "CUDA: %s: %s", what, why);
}

/* Finds the device of the thread's context. Returns false if the thread has none. */
static bool current_device(rks_cu_device *device)
{
    rks_cu_context context = NULL;
    return driver.cuCtxGetCurrent(&context) == RKS_CU_SUCCESS && context != NULL &&
           driver.cuCtxGetDevice(device) == RKS_CU_SUCCESS;
}

static rks_status choose_device(uint32_t place, rks_cu_device *device, rks_error *err)
{
    int count = 0;
    rks_status status = check(driver.cuDeviceGetCount(&count), "counting devices", err);
    if (status != RKS_OK)
        return status;
    if (count <= 0)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0, "no GPU is visible to this rank");
    if (current_device(device))
        return RKS_OK;
    long number = (long)(place % (uint32_t)count);
    const char *named = getenv("RKS_GPU");
    if (named != NULL) {
        char *end;
        number = strtol(named, &end, 10);
        if (*named == '\0' || *end != '\0' || number < 0 || number >= count)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "RKS_GPU=%s: %d GPUs are visible, numbered from 0", named, count);
    }
    return check(driver.cuDeviceGet(device, (int)number), "opening the device", err);
}

/* Refuses a running graph capture. Only the caller knows the stream that it works on. The driver
 * reports only on the two default streams, and if some stream captures that these would have to
 * wait for. A thread without a context captures nothing. */
rks_status rks_gpu_refuse_capture(rks_error *err)
{
    const rks_cu_stream streams[] = {RKS_CU_STREAM_LEGACY, RKS_CU_STREAM_PER_THREAD};
    rks_cu_context context = NULL;
    rks_status status = check(driver.cuCtxGetCurrent(&context), "the thread's context", err);
    for (int i = 0; i < 2 && status == RKS_OK && context != NULL; i++) {
        unsigned capture = RKS_CU_CAPTURE_NONE;
        rks_cu_result result = driver.cuStreamIsCapturing(streams[i], &capture);
        if (result == RKS_CU_STREAM_CAPTURE_IMPLICIT ||
            (result == RKS_CU_SUCCESS && capture != RKS_CU_CAPTURE_NONE))
            return rks_fail(err, RKS_ERR_STATE, 0,
                            "this thread captures a CUDA graph; open the dataset before it");
        status = check(result, "asking for a capture", err);
    }
    return status;
}

rks_status rks_gpu_open(uint32_t place, rks_gpu **gpu, rks_error *err)
{
    pthread_mutex_lock(&mutex);
    rks_status status = loaded != NULL ? RKS_OK : load_cuda(err);
    pthread_mutex_unlock(&mutex);
    if (status == RKS_OK)
        status = check(driver.cuInit(0), "start", err);
    rks_cu_device device = 0;
    if (status == RKS_OK)
        status = rks_gpu_refuse_capture(err);
    if (status == RKS_OK)
        status = choose_device(place, &device, err);
    if (status != RKS_OK)
        return status;
    rks_gpu *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->device = device;
    status = check(driver.cuDeviceGetUuid_v2((struct CUuuid_st *)(void *)opened->uuid, device),
                   "the device's number", err);
    if (status != RKS_OK) {
        rks_gpu_close(opened);
        return status;
    }
    *gpu = opened;
    return RKS_OK;
}

void rks_gpu_close(rks_gpu *gpu)
{
    if (gpu == NULL)
        return;
    if (gpu->context != NULL)
        driver.cuDevicePrimaryCtxRelease_v2(gpu->device);
    rks_free(gpu);
}

const uint8_t *rks_gpu_uuid(const rks_gpu *gpu)
{
    return gpu->uuid;
}

int rks_gpu_number(const rks_gpu *gpu)
{
    return gpu->device;
}

bool rks_gpu_has_virtual_memory(const rks_gpu *gpu)
{
    int version = 0, has = 0;
    return driver.cuDriverGetVersion(&version) == RKS_CU_SUCCESS && version >= RKS_CU_VERSION_12 &&
           driver.cuDeviceGetAttribute(&has, RKS_CU_DEVICE_VIRTUAL_MEMORY, gpu->device) ==
               RKS_CU_SUCCESS &&
           has != 0;
}

rks_status rks_gpu_free_memory(rks_gpu *gpu, uint64_t *bytes, rks_error *err)
{
    (void)gpu;
    size_t left = 0, all = 0;
    rks_status status = check(driver.cuMemGetInfo_v2(&left, &all), "free memory", err);
    if (status == RKS_OK)
        *bytes = left;
    return status;
}

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* held while contexts are made */

static rks_status make_context(rks_gpu *gpu, rks_error *err)
{
    pthread_mutex_lock(&making);
    rks_status status = RKS_OK;
    if (gpu->context == NULL)
        status = check(driver.cuDevicePrimaryCtxRetain(&gpu->context, gpu->device),
                       "the device's context", err);
    pthread_mutex_unlock(&making);
    return status;
}

rks_status rks_gpu_enter(rks_gpu *gpu, rks_error *err)
{
    own_mode = RKS_CU_CAPTURE_RELAXED;
    rks_status status =
        check(driver.cuThreadExchangeStreamCaptureMode(&own_mode), "capture mode", err);
    if (status != RKS_OK)
        return status;
    status = make_context(gpu, err);
    if (status == RKS_OK)
        status = check(driver.cuCtxPushCurrent_v2(gpu->context), "entering the context", err);
    if (status != RKS_OK)
        driver.cuThreadExchangeStreamCaptureMode(&own_mode);
    return status;
}

void rks_gpu_leave(rks_gpu *gpu)
{
    (void)gpu;
    rks_cu_context ours;
    driver.cuCtxPopCurrent_v2(&ours);
    driver.cuThreadExchangeStreamCaptureMode(&own_mode);
}

rks_status rks_gpu_alloc(rks_gpu *gpu, size_t bytes, uint64_t *address, rks_error *err)
{
    (void)gpu;
    rks_cu_address made = 0;
    rks_status status = check(driver.cuMemAlloc_v2(&made, bytes), "allocating GPU memory", err);
    if (status == RKS_OK)
        *address = made;
    return status;
}

void rks_gpu_free(rks_gpu *gpu, uint64_t address)
{
    (void)gpu;
    if (address != 0)
        driver.cuMemFree_v2(address);
}

rks_status rks_gpu_pin(rks_gpu *gpu, size_t bytes, void **memory, rks_error *err)
{
    (void)gpu;
    return check(driver.cuMemHostAlloc(memory, bytes, 0), "allocating pinned memory", err);
}

void rks_gpu_unpin(rks_gpu *gpu, void *memory)
{
    (void)gpu;
    if (memory != NULL)
        driver.cuMemFreeHost(memory);
}

rks_status rks_gpu_stream_create(rks_gpu *gpu, rks_gpu_stream *stream, rks_error *err)
{
    (void)gpu;
    rks_cu_stream made = NULL;
    rks_status status =
        check(driver.cuStreamCreate(&made, RKS_CU_STREAM_NON_BLOCKING), "making a stream", err);
    if (status == RKS_OK)
        *stream = made;
    return status;
}

void rks_gpu_stream_destroy(rks_gpu *gpu, rks_gpu_stream stream)
{
    (void)gpu;
    if (stream != NULL)
        driver.cuStreamDestroy_v2(stream);
}

rks_status rks_gpu_idle(rks_gpu *gpu, rks_gpu_stream stream, bool *idle, rks_error *err)
{
    (void)gpu;
    rks_cu_result result = driver.cuStreamQuery(stream);
    *idle = result == RKS_CU_SUCCESS;
    return result == RKS_CU_NOT_READY ? RKS_OK : check(result, "looking at a stream", err);
}

rks_status rks_gpu_event_create(rks_gpu *gpu, rks_gpu_event *event, rks_error *err)
{
    (void)gpu;
    rks_cu_event made = NULL;
    rks_status status =
        check(driver.cuEventCreate(&made, RKS_CU_EVENT_DISABLE_TIMING), "making an event", err);
    if (status == RKS_OK)
        *event = made;
    return status;
}

void rks_gpu_event_destroy(rks_gpu *gpu, rks_gpu_event event)
{
    (void)gpu;
    if (event != NULL)
        driver.cuEventDestroy_v2(event);
}

rks_status rks_gpu_upload(rks_gpu *gpu, uint64_t to, const void *pinned, size_t bytes,
                          rks_gpu_stream stream, rks_error *err)
{
    (void)gpu;
    return check(driver.cuMemcpyHtoDAsync_v2(to, pinned, bytes, stream), "upload", err);
}

rks_status rks_gpu_download(rks_gpu *gpu, void *pinned, uint64_t from, size_t bytes,
                            rks_gpu_stream stream, rks_error *err)
{
    (void)gpu;
    return check(driver.cuMemcpyDtoHAsync_v2(pinned, from, bytes, stream), "download", err);
}

rks_status rks_gpu_record(rks_gpu *gpu, rks_gpu_event event, rks_gpu_stream stream, rks_error *err)
{
    (void)gpu;
    return check(driver.cuEventRecord(event, stream), "recording an event", err);
}

rks_status rks_gpu_wait(rks_gpu *gpu, rks_gpu_stream stream, rks_gpu_event event, rks_error *err)
{
    (void)gpu;
    return check(driver.cuStreamWaitEvent(stream, event, 0), "waiting for an event", err);
}

rks_status rks_gpu_done(rks_gpu *gpu, rks_gpu_event event, bool *done, rks_error *err)
{
    (void)gpu;
    rks_cu_result result = driver.cuEventQuery(event);
    *done = result == RKS_CU_SUCCESS;
    return result == RKS_CU_NOT_READY ? RKS_OK : check(result, "looking at an event", err);
}
