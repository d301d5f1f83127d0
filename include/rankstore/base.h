/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/base.h: status, errors, version; what a process holds and what it did when. Part of
 * rankstore.h. */
#ifndef RANKSTORE_BASE_H
#define RANKSTORE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RKS_API __attribute__((visibility("default")))

/* Values are part of the interface: append, never renumber. */
typedef enum rks_status {
    RKS_OK = 0,
    RKS_ERR_ARGUMENT = -1,     /* the caller broke a rule of this header */
    RKS_ERR_MEMORY = -2,       /* an allocation or a mapping failed */
    RKS_ERR_IO = -3,           /* disk, file system, network or another system resource */
    RKS_ERR_CORRUPT = -4,      /* bytes that do not match their checksum or format */
    RKS_ERR_PEER = -5,         /* another rank failed or went away */
    RKS_ERR_TIMEOUT = -6,      /* a rank was silent, or a limit that the user set is over */
    RKS_ERR_STATE = -7,        /* the call does not fit what was called before */
    RKS_ERR_NOT_FOUND = -8,    /* no such key, file or dataset */
    RKS_ERR_DATA = -9,         /* input that cannot be taken: malformed, duplicate, too large */
    RKS_ERR_UNSUPPORTED = -10, /* a feature this build, machine or format version lacks */
    RKS_ERR_CANCELLED = -11,   /* the interrupt callback asked for an end */
} rks_status;

/* What went wrong and where; 512 bytes. It holds no pointers, so it is copied between
 * threads and sent between ranks as it is. */
typedef struct rks_error {
    int32_t status;       /* rks_status */
    int32_t rank;         /* where it happened; -1 if not known */
    int64_t cause;        /* errno, LMDB, MPI or NCCL code; 0 if there is none */
    char host[32];        /* the rank's host, shortened; empty if not known */
    char text[448];       /* one line, always terminated, UTF-8 */
    uint8_t reserved[16]; /* zero */
} rks_error;

/* A part of a sample that is above a plan's limit: `count` items from item `start` on, both in the
 * unit of lengths. Lists of pieces are sparse: samples that are not in them are whole. */
typedef struct rks_piece {
    uint32_t place; /* of the sample in its batch, from 0 */
    uint32_t start;
    uint32_t count;
} rks_piece;

/* "0.2.0". Static. */
RKS_API const char *rks_version(void);

/* "corrupt", "peer failed", ... one or two words. Static; "unknown" for other numbers. */
RKS_API const char *rks_status_name(rks_status status);

/* Frees memory that a call of this header returned as "free with rks_release".
 * NULL is accepted. */
RKS_API void rks_release(void *memory);

/* Lets a program call a _default function of a newer library whose struct is larger. The library
 * writes into RKS_OPTIONS_ROOM bytes, and the program gets the part of the struct that it was
 * compiled with; struct_size is at most that. A call by the function's address, as from another
 * language, writes the library's whole struct: give it this room. */
#define RKS_OPTIONS_ROOM 4096
#define RKS_SIZED_DEFAULT(type)                                                                    \
    static inline void type##_default_sized(type *options)                                         \
    {                                                                                              \
        union {                                                                                    \
            type known;                                                                            \
            unsigned char room[RKS_OPTIONS_ROOM];                                                  \
        } whole;                                                                                   \
        if (options == NULL)                                                                       \
            return;                                                                                \
        memset(&whole, 0, sizeof(whole));                                                          \
        (type##_default)(&whole.known);                                                            \
        *options = whole.known;                                                                    \
        if (options->struct_size > sizeof(*options))                                               \
            options->struct_size = sizeof(*options);                                               \
    }

/* Sets the callback that every waiting call and every long computation (plans) asks at least every
 * 100 ms, in the calling thread. Nonzero ends the call with RKS_ERR_CANCELLED. It holds for the
 * whole process. NULL removes it. */
typedef int (*rks_interrupt_fn)(void *user);
RKS_API void rks_set_interrupt(rks_interrupt_fn interrupt, void *user);

/* Reports progress of a long call. Every rank calls it, in the calling thread, at most every 100
 * ms. `done` and `total` count bytes of this rank (rks_group_progress_get: of all ranks); `total`
 * is 0 if it is not known. Rank 0 also calls it while it waits for the others. */
typedef void (*rks_progress_fn)(void *user, const char *phase, uint64_t done, uint64_t total,
                                uint64_t samples);

/* ---- memory: what the library holds ------------------------------------------------------- */

/* The figures are the process's since its start, of all its stores together: ranks that are threads
 * of one process have them in common. Values are part of the interface: append, never renumber. */
typedef enum rks_memory_kind {
    RKS_MEMORY_INDEX = 0, /* the index, the sorted order and the epochs of plans: one copy a node,
                           * shared by its ranks. Every rank reports the node's total: do not sum */
    RKS_MEMORY_INDEX_OWN = 1, /* of this process alone: where samples lie, the table that finds keys
                               * (made by the first search), pieces of index that come in */
    RKS_MEMORY_PLAN = 2, /* of this process alone: ids and batches of an epoch that is not shared,
                          * and what making one takes meanwhile */
    RKS_MEMORY_STAGING = 3, /* chunks of index on their way, at both ends, while a store opens */
    RKS_MEMORY_BATCHES =
        4, /* batches and arrays that are alive, those fetched ahead and replies that
            * come in included, and up to 64 MiB a store kept for the next ones */
    RKS_MEMORY_IN_FLIGHT = 5, /* of RKS_MEMORY_BATCHES: replies of owners that are on their way */
    RKS_MEMORY_PINNED = 6,    /* host memory that is pinned for a GPU */
    RKS_MEMORY_GPU_SLOTS = 7, /* GPU memory of the exchange's own slots */
    RKS_MEMORY_GPU_NCCL = 8,  /* GPU memory that NCCL uses: the fall of the driver's free memory
                               * during its set-up. It includes what others allocate meanwhile */
    RKS_MEMORY_RESIDENT = 9, /* of the process, by the kernel (VmRSS, VmHWM): all above that is host
                              * memory and was touched, pages of mapped shards, and everything
                              * else that the process holds */
} rks_memory_kind;
enum { RKS_MEMORY_KINDS = 10 }; /* that this header knows */

/* "index", "index_own", "plan", "staging", "batches", "in_flight", "pinned", "gpu_slots",
 * "gpu_nccl", "resident": the names in JSON and Python. Static; NULL from the first number on that
 * the library does not know. */
RKS_API const char *rks_memory_kind_name(uint32_t kind);

typedef struct rks_memory_figure {
    uint64_t current; /* bytes now */
    uint64_t peak;    /* the most so far */
} rks_memory_figure;

typedef struct rks_memory_use {
    size_t struct_size;
    rks_memory_figure kinds[RKS_MEMORY_KINDS]; /* by rks_memory_kind */
} rks_memory_use;

/* Fills the figures of this process. Set struct_size first. Any thread. */
RKS_API void rks_memory_use_get(rks_memory_use *use);

/* Compares an amount of memory that the caller is about to take with what the machine and the
 * control groups of the process leave; less than 16 MiB is always there. Linux promises more
 * memory than it has, and kills who uses what is not there. `what` begins the error
 * (RKS_ERR_MEMORY, with both numbers), `advice` ends it. */
RKS_API rks_status rks_memory_check(uint64_t bytes, const char *what, const char *advice,
                                    rks_error *err);

/* ---- trace: what this process did when ------------------------------------------------------ */

typedef enum rks_trace_kind {
    RKS_TRACE_PLAN = 0,     /* an epoch's batches were computed */
    RKS_TRACE_PREFETCH = 1, /* a batch was prefetched: from its start until the caller got it;
                             * overlaps others */
    RKS_TRACE_FETCH = 2,    /* a request to an owner, until its reply was there; overlaps others */
    RKS_TRACE_COPY = 3,     /* samples came from maps of this node */
    RKS_TRACE_WAIT = 4,     /* a caller waited for samples */
    RKS_TRACE_BATCH = 5,    /* a batch was with the caller, from one rks_epoch_next to the next */
} rks_trace_kind;

typedef struct rks_trace_event {
    rks_trace_kind kind;
    uint32_t thread;   /* of this process, numbered from 1 */
    uint64_t begin_ns; /* CLOCK_MONOTONIC */
    uint64_t duration_ns;
    int64_t peer;     /* fetch: the owner's rank; else -1 */
    uint64_t samples; /* 0 if it is not known */
    uint64_t bytes;
} rks_trace_event;

/* "plan", "prefetch", ... Static. */
RKS_API const char *rks_trace_name(rks_trace_kind kind);

/* Starts tracing in the whole process. Without this call it is off, at no measurable cost. Each
 * thread keeps its last `events_a_thread` events of 56 bytes (0: 65,536). If it is called several
 * times, the first number counts. RKS_ERR_ARGUMENT above RKS_TRACE_EVENTS_MAX. */
enum { RKS_TRACE_EVENTS_MAX = 1 << 24 };
RKS_API rks_status rks_trace_start(uint32_t events_a_thread, rks_error *err);
/* Stops tracing. Kept events stay until rks_trace_drain. */
RKS_API void rks_trace_stop(void);
/* Returns the kept events and forgets them: thread by thread, the oldest first. *dropped counts
 * events that were overwritten since the last drain. Any thread, also while others trace. Free
 * *events with rks_release. */
RKS_API rks_status rks_trace_drain(rks_trace_event **events, size_t *count, uint64_t *dropped,
                                   rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
