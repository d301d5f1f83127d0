/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.c: the driver's half of the stand-in. */
#include <cuda.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

#define FAIL_IF_ASKED(name)                                                                        \
    if (double_enter(name) >= DOUBLE_FAILS)                                                        \
    return CUDA_ERROR_UNKNOWN

/* ---- streams and events ----------------------------------------------------------------- */

typedef struct task {
    struct task *next;
    void (*run)(void *work);
    void *work;
} task;

struct double_stream {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    task *first, **end; /* guarded by mutex */
    bool busy;          /* guarded by mutex */
    bool closing;       /* guarded by mutex */
};

typedef struct event {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    uint64_t recorded, reached; /* guarded by mutex */
} event;

static atomic_int queued; /* tasks of all streams that are not done */

void double_wait_for_device(const char *call)
{
    for (int i = 0; i < 200000 && atomic_load(&queued) > 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000}, NULL);
    if (atomic_load(&queued) > 0)
        double_complain(call, "waits for a device that is never idle");
}

static void *stream_main(void *user)
{
    double_stream *stream = user;
    pthread_mutex_lock(&stream->mutex);
    for (;;) {
        while (stream->first == NULL && !stream->closing)
            pthread_cond_wait(&stream->cond, &stream->mutex);
        task *t = stream->first;
        if (t == NULL)
            break;
        stream->first = t->next;
        if (stream->first == NULL)
            stream->end = &stream->first;
        stream->busy = true;
        pthread_mutex_unlock(&stream->mutex);
        t->run(t->work);
        free(t->work);
        free(t);
        pthread_mutex_lock(&stream->mutex);
        stream->busy = false;
        atomic_fetch_sub(&queued, 1);
    }
    pthread_mutex_unlock(&stream->mutex);
    return NULL;
}

void double_stream_put(double_stream *stream, void (*run)(void *work), void *work)
{
    task *t = malloc(sizeof(*t));
    *t = (task){NULL, run, work};
    atomic_fetch_add(&queued, 1);
    pthread_mutex_lock(&stream->mutex);
    *stream->end = t;
    stream->end = &t->next;
    pthread_cond_signal(&stream->cond);
    pthread_mutex_unlock(&stream->mutex);
}

DOUBLE_API CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
    double_needs_context("cuStreamCreate");
    FAIL_IF_ASKED("cuStreamCreate");
    if (flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE; /* it would wait for a framework's streams */
    double_stream *stream = calloc(1, sizeof(*stream));
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->cond, NULL);
    stream->end = &stream->first;
    pthread_create(&stream->thread, NULL, stream_main, stream);
    double_count(&double_world.figures.streams, NULL, 1);
    *out = (CUstream)stream;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuStreamDestroy(CUstream handle)
{
    double_needs_context("cuStreamDestroy_v2");
    double_enter("cuStreamDestroy_v2");
    double_stream *stream = (double_stream *)handle;
    pthread_mutex_lock(&stream->mutex);
    stream->closing = true;
    pthread_cond_signal(&stream->cond);
    pthread_mutex_unlock(&stream->mutex);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->cond);
    pthread_mutex_destroy(&stream->mutex);
    free(stream);
    double_count(&double_world.figures.streams, NULL, -1);
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuStreamQuery(CUstream handle)
{
    double_needs_context("cuStreamQuery");
    /* A fault here cannot be told from one of the work on the stream: it is looked at while an
     * exchange ends, when nothing may fail any more. */
    double_stream *stream = (double_stream *)handle;
    pthread_mutex_lock(&stream->mutex);
    bool idle = stream->first == NULL && !stream->busy;
    pthread_mutex_unlock(&stream->mutex);
    return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

DOUBLE_API CUresult cuEventCreate(CUevent *out, unsigned flags)
{
    double_needs_context("cuEventCreate");
    FAIL_IF_ASKED("cuEventCreate");
    if (flags != CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_VALUE;
    event *made = calloc(1, sizeof(*made));
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->cond, NULL);
    double_count(&double_world.figures.events, NULL, 1);
    *out = (CUevent)made;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuEventDestroy(CUevent handle)
{
    double_needs_context("cuEventDestroy_v2");
    double_enter("cuEventDestroy_v2");
    event *e = (event *)handle;
    /* As the driver does: it goes when nothing on a stream needs it any more. */
    pthread_mutex_lock(&e->mutex);
    while (e->reached < e->recorded)
        pthread_cond_wait(&e->cond, &e->mutex);
    pthread_mutex_unlock(&e->mutex);
    pthread_cond_destroy(&e->cond);
    pthread_mutex_destroy(&e->mutex);
    free(e);
    double_count(&double_world.figures.events, NULL, -1);
    return CUDA_SUCCESS;
}

typedef struct mark {
    event *e;
    uint64_t number;
} mark;

static void reach(void *work)
{
    mark *m = work;
    pthread_mutex_lock(&m->e->mutex);
    m->e->reached = m->number;
    pthread_cond_broadcast(&m->e->cond);
    pthread_mutex_unlock(&m->e->mutex);
}

static void await(void *work)
{
    mark *m = work;
    pthread_mutex_lock(&m->e->mutex);
    while (m->e->reached < m->number)
        pthread_cond_wait(&m->e->cond, &m->e->mutex);
    pthread_mutex_unlock(&m->e->mutex);
}

static mark *mark_of(event *e, bool next)
{
    mark *m = malloc(sizeof(*m));
    pthread_mutex_lock(&e->mutex);
    e->recorded += next;
    *m = (mark){e, e->recorded};
    pthread_mutex_unlock(&e->mutex);
    return m;
}

DOUBLE_API CUresult cuEventRecord(CUevent handle, CUstream stream)
{
    double_needs_context("cuEventRecord");
    FAIL_IF_ASKED("cuEventRecord");
    double_stream_put((double_stream *)stream, reach, mark_of((event *)handle, true));
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    double_needs_context("cuStreamWaitEvent");
    (void)flags;
    FAIL_IF_ASKED("cuStreamWaitEvent");
    double_stream_put((double_stream *)stream, await, mark_of((event *)handle, false));
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuEventQuery(CUevent handle)
{
    double_needs_context("cuEventQuery");
    FAIL_IF_ASKED("cuEventQuery");
    event *e = (event *)handle;
    pthread_mutex_lock(&e->mutex);
    bool done = e->reached == e->recorded;
    pthread_mutex_unlock(&e->mutex);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

DOUBLE_API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    FAIL_IF_ASKED("cuStreamIsCapturing");
    *status =
        double_world.capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* ---- memory ----------------------------------------------------------------------------- */

/* Sizes stand before what is handed out. */
enum { BEFORE = 64 };

/* An address of the device is none of the process: the processor refuses it. */
static const uintptr_t DEVICE = (uintptr_t)1 << 62;

void *double_inside(const void *device)
{
    if (((uintptr_t)device & DEVICE) == 0)
        double_complain("a copy or a round", "host memory in place of the device's");
    return (void *)((uintptr_t)device & ~DEVICE);
}

static void *take(size_t bytes)
{
    uint8_t *memory = NULL;
    if (posix_memalign((void **)&memory, BEFORE, BEFORE + bytes) != 0)
        return NULL;
    memcpy(memory, &bytes, sizeof(bytes));
    memset(memory + BEFORE, 0xa5, bytes); /* nothing may count on zeros */
    return memory + BEFORE;
}

static size_t give(void *memory)
{
    size_t bytes;
    memcpy(&bytes, (uint8_t *)memory - BEFORE, sizeof(bytes));
    free((uint8_t *)memory - BEFORE);
    return bytes;
}

DOUBLE_API CUresult cuMemAlloc(CUdeviceptr *out, size_t bytes)
{
    double_needs_context("cuMemAlloc_v2");
    if (double_enter("cuMemAlloc_v2") >= DOUBLE_FAILS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (double_thread.capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED || double_thread.pushed == 0)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* it would break another thread's capture */
    double_count(&double_world.figures.device_bytes, &double_world.figures.peak_device_bytes,
                 (int64_t)bytes);
    *out = (CUdeviceptr)((uintptr_t)take(bytes) | DEVICE);
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuMemFree(CUdeviceptr memory)
{
    double_needs_context("cuMemFree_v2");
    double_enter("cuMemFree_v2");
    double_wait_for_device("cuMemFree_v2");
    double_count(&double_world.figures.device_bytes, NULL,
                 -(int64_t)give(double_inside((void *)(uintptr_t)memory)));
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    double_needs_context("cuMemHostAlloc");
    (void)flags;
    if (double_enter("cuMemHostAlloc") >= DOUBLE_FAILS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    double_count(&double_world.figures.pinned_bytes, &double_world.figures.peak_pinned_bytes,
                 (int64_t)bytes);
    *out = take(bytes);
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuMemFreeHost(void *memory)
{
    double_needs_context("cuMemFreeHost");
    double_enter("cuMemFreeHost");
    double_wait_for_device("cuMemFreeHost");
    double_count(&double_world.figures.pinned_bytes, NULL, -(int64_t)give(memory));
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuMemGetInfo(size_t *left, size_t *all)
{
    double_needs_context("cuMemGetInfo_v2");
    FAIL_IF_ASKED("cuMemGetInfo_v2");
    double_figures figures;
    double_get_figures(&figures);
    *all = DOUBLE_GPU_BYTES;
    *left = DOUBLE_GPU_BYTES - figures.device_bytes - figures.nccl_bytes - figures.code_bytes;
    return CUDA_SUCCESS;
}

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

static void run_copy(void *work)
{
    copy *c = work;
    memcpy(c->to, c->from, c->bytes);
}

static void put_copy(CUstream stream, void *to, const void *from, size_t bytes)
{
    copy *c = malloc(sizeof(*c));
    *c = (copy){to, from, bytes};
    double_stream_put((double_stream *)stream, run_copy, c);
}

DOUBLE_API CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes,
                                      CUstream stream)
{
    double_needs_context("cuMemcpyHtoDAsync_v2");
    FAIL_IF_ASKED("cuMemcpyHtoDAsync_v2");
    put_copy(stream, double_inside((void *)(uintptr_t)to), from, bytes);
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    double_needs_context("cuMemcpyDtoHAsync_v2");
    FAIL_IF_ASKED("cuMemcpyDtoHAsync_v2");
    put_copy(stream, to, double_inside((const void *)(uintptr_t)from), bytes);
    return CUDA_SUCCESS;
}

/* ---- device and context ----------------------------------------------------------------- */

DOUBLE_API CUresult cuInit(unsigned flags)
{
    (void)flags;
    FAIL_IF_ASKED("cuInit");
    return double_world.gpu < 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

DOUBLE_API CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory"
            : error == CUDA_ERROR_NO_DEVICE   ? "no CUDA-capable device is detected"
                                              : "unknown error";
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuDeviceGetCount(int *count)
{
    FAIL_IF_ASKED("cuDeviceGetCount");
    *count = 1;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuDriverGetVersion(int *version)
{
    FAIL_IF_ASKED("cuDriverGetVersion");
    *version = 13000;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    FAIL_IF_ASKED("cuDeviceGetAttribute");
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED &&
             !double_world.no_virtual_memory;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuDeviceGet(CUdevice *device, int number)
{
    FAIL_IF_ASKED("cuDeviceGet");
    *device = number;
    return CUDA_SUCCESS;
}

/* cuda.h may lead cuDeviceGetUuid to this one. */
#undef cuDeviceGetUuid
DOUBLE_API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    (void)device;
    FAIL_IF_ASKED("cuDeviceGetUuid_v2");
    memset(uuid, double_world.gpu, sizeof(*uuid));
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuCtxGetCurrent(CUcontext *context)
{
    FAIL_IF_ASKED("cuCtxGetCurrent");
    /* A thread that captures has a framework's. */
    *context = double_thread.pushed > 0 || double_world.capturing ? (CUcontext)&double_world : NULL;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuCtxGetDevice(CUdevice *device)
{
    FAIL_IF_ASKED("cuCtxGetDevice");
    *device = 0;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    FAIL_IF_ASKED("cuDevicePrimaryCtxRetain");
    double_count(&double_world.figures.contexts, &double_world.figures.peak_contexts, 1);
    *context = (CUcontext)&double_world;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)device;
    double_enter("cuDevicePrimaryCtxRelease_v2");
    double_count(&double_world.figures.contexts, NULL, -1);
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuCtxPushCurrent(CUcontext context)
{
    (void)context;
    FAIL_IF_ASKED("cuCtxPushCurrent_v2");
    double_thread.pushed++;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuCtxPopCurrent(CUcontext *context)
{
    double_enter("cuCtxPopCurrent_v2");
    double_thread.pushed--;
    *context = (CUcontext)&double_world;
    return CUDA_SUCCESS;
}

DOUBLE_API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    FAIL_IF_ASKED("cuThreadExchangeStreamCaptureMode");
    int before = double_thread.capture_mode;
    double_thread.capture_mode = *mode;
    *mode = (CUstreamCaptureMode)before;
    return CUDA_SUCCESS;
}
