/* SPDX-License-Identifier: Apache-2.0
 *
 * double.h: a stand-in for the CUDA driver and NCCL, one shared library that has the symbols of
 * both and is loaded as they are (RKS_CUDA_LIBRARY, RKS_NCCL_LIBRARY). What it does is real,
 * without a GPU: device memory is memory of the process that the host cannot read, streams are
 * threads with a queue, events order them, frees wait for all of them, and a round of NCCL goes
 * between processes through a shared file, waiting for those that are late and for ever for those
 * that are gone, until it is aborted. NCCL's calls are in progress first. It complains of calls
 * without a context, and of calls on a communicator whose last one is not done.
 *
 * A test reaches these by dlsym, each process for itself. */
#ifndef RKS_TESTS_GPU_DOUBLE_H
#define RKS_TESTS_GPU_DOUBLE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum double_fault {
    DOUBLE_FAILS,       /* the call returns an error */
    DOUBLE_STICKS,      /* the call and all later ones of CUDA return an error */
    DOUBLE_FAILS_LATER, /* a round of NCCL that is in progress fails by and by; other calls: as
                           FAILS */
    DOUBLE_HANGS,       /* it never returns; its thread is lost */
    DOUBLE_KILLS,       /* the process dies in it */
    DOUBLE_STOPS,       /* it never returns while the process lives: SIGSTOP */
    DOUBLE_LATE,        /* it takes 300 ms longer */
    DOUBLE_NEVER_DONE,  /* a round, or the making of a communicator, that is never done, without an
                           error; other calls: as FAILS */
    DOUBLE_DAMAGES,     /* a round delivers a byte that was not sent; other calls: nothing */
} double_fault;

/* The nth call from now on (1: the next one), of all kinds or of the one with this name, has the
 * fault, once. */
typedef void (*double_fault_fn)(const char *call, uint64_t nth, double_fault fault);
/* Calls since the last fault was set, and whether it has happened. */
typedef bool (*double_happened_fn)(uint64_t *calls);

typedef struct double_figures {
    uint64_t device_bytes, peak_device_bytes; /* of our allocations */
    uint64_t pinned_bytes, peak_pinned_bytes;
    uint64_t streams, events, contexts, communicators; /* alive */
    uint64_t nccl_bytes;                               /* device memory of communicators */
    uint64_t code_bytes; /* of NCCL's code: from the first communicator on */
    uint64_t pushed;     /* contexts on this thread's stack */
    uint64_t peak_contexts;
    uint64_t most_ranks;     /* of a communicator */
    uint64_t aborts;         /* of communicators */
    uint64_t first_abort_ns; /* CLOCK_MONOTONIC, when the first one began; 0: there was none */
    uint64_t complaints;     /* calls that the real ones forbid; also printed */
    int capture_mode;        /* of this thread */
} double_figures;
typedef void (*double_figures_fn)(double_figures *figures);

/* Before the first call: which GPU this process sees (its UUID is filled with the number; -1:
 * none), which version NCCL has, whether the thread's stream captures, and whether the device has
 * virtual memory. */
typedef void (*double_machine_fn)(int gpu, int nccl_version, bool capturing, bool virtual_memory);

#endif
