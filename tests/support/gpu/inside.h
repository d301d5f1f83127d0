/* SPDX-License-Identifier: Apache-2.0
 *
 * inside.h: what the two halves of the stand-in share. */
#ifndef RKS_TESTS_GPU_INSIDE_H
#define RKS_TESTS_GPU_INSIDE_H

#include <pthread.h>

#include "double.h"

#define DOUBLE_API __attribute__((visibility("default")))

/* The loader frees another thread's block of a library's TLS unseen by the thread sanitizer. */
#define DOUBLE_STATIC_TLS __attribute__((tls_model("initial-exec")))

struct double_world {
    pthread_mutex_t mutex;
    int gpu;
    int nccl_version;
    bool capturing;
    bool no_virtual_memory;
    bool sticky;            /* guarded by mutex */
    double_figures figures; /* guarded by mutex */
};
extern struct double_world double_world;

struct double_thread {
    uint64_t pushed;
    int capture_mode; /* 0: global, as a thread begins */
};
extern _Thread_local struct double_thread double_thread DOUBLE_STATIC_TLS;

DOUBLE_API void double_set_fault(const char *call, uint64_t nth, double_fault fault);
DOUBLE_API bool double_fault_happened(uint64_t *calls);
DOUBLE_API void double_set_machine(int gpu, int nccl_version, bool capturing, bool virtual_memory);
DOUBLE_API void double_get_figures(double_figures *figures);

/* Each call of the driver or of NCCL begins with it: DOUBLE_GOOD, or a double_fault. */
enum { DOUBLE_GOOD = -1 };
int double_enter(const char *call);
void double_count(uint64_t *now, uint64_t *peak, int64_t change);
void double_complain(const char *call, const char *what);
/* The thread has a context, as the call needs. */
void double_needs_context(const char *call);
/* Device memory as the process may use it: only the stand-in may. */
void *double_inside(const void *device);
/* Waits until no stream has anything to do; 20 s at most. */
void double_wait_for_device(const char *call);

/* Work on a stream, in order. `run` is called on the stream's thread, `work` is freed after it. */
typedef struct double_stream double_stream;
void double_stream_put(double_stream *stream, void (*run)(void *work), void *work);

/* Bytes of the GPU: of nobody at the start. */
enum { DOUBLE_GPU_BYTES = 1 << 30 };

#endif
