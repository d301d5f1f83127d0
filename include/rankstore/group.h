/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/group.h: the ranks of a job, and what memory each holds. Part of rankstore.h. */
#ifndef RANKSTORE_GROUP_H
#define RANKSTORE_GROUP_H

#include "rankstore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- group: the ranks of a job --------------------------------------------------------------- */

typedef struct rks_group rks_group;

/* How ranks find each other: an all-gather of a record of at most RKS_RECORD_MAX bytes a rank.
 * All ranks may call it a few times. On success `all` holds size * record_size bytes in rank
 * order. An error holds the missing rank, or -1, and what happened to it without its name ("did
 * not come within 30000 ms"): the group puts rank and host before it. Implement this to support a
 * launcher that Rankstore does not know. */
enum { RKS_RECORD_MAX = 4096 };
typedef struct rks_bootstrap {
    size_t struct_size;
    const char *name; /* "solo", "local", "fork", "mpi" or the caller's own; for messages */
    uint32_t rank;
    uint32_t size;
    void *user;
    rks_status (*allgather)(void *user, const void *record, size_t record_size, void *all,
                            uint32_t timeout_ms, rks_error *err);
    /* May be NULL. Waiting calls ask it whether the launcher has seen a rank end too early. If so,
     * it returns that rank's error: the rank, and how it ended ("was killed by signal 9"). On entry
     * err->rank is -1, or the rank whose connection has just broken: report any exit of that rank
     * as a failure. */
    rks_status (*check)(void *user, rks_error *err);
    void (*close)(void *user); /* may be NULL; called once by rks_group_close */
    void *local_hub;           /* the library's own: how threads of one process are connected */
} rks_bootstrap;

typedef struct rks_group_options {
    size_t struct_size;
    const rks_bootstrap *bootstrap; /* NULL: Open MPI if mpirun set its variables; srun's step if
                                     * that has several tasks; else solo. RKS_ERR_UNSUPPORTED under
                                     * another PMI launcher */
    uint32_t silence_ms;            /* T: how long a rank may be silent; default 15,000, from 200 */
    uint32_t patience_ms;    /* after this wait a line on stderr names the rank that is waited for;
                              * default 60,000 */
    const char *listen;      /* address or interface to listen on. NULL: RKS_LISTEN, or loopback if
                              * all ranks share it. Otherwise the default route's interface, or the
                              * only one that is up */
    const char *secret_file; /* 0600 file with at least 32 bytes; NULL: RKS_SECRET_FILE, else one
                              * that rank 0 makes in RKS_JOB_DIR, else none: ranks trust the public
                              * keys that the bootstrap passes on */
    const char *node;        /* what counts as a node; NULL: RKS_NODE, else the machine's boot id.
                              * Ranks of one node share memory: they pass each other descriptors
                              * through TMPDIR, /tmp or the network namespace. Containers that have
                              * none of these in common count as nodes of their own, each with its
                              * own copy of the index; a line on stderr reports it */
    uint32_t io_threads;     /* most threads of this rank that answer other ranks, and wait for cold
                              * pages, for all stores of the group; default 16, from 1 to 1024 */
    uint32_t arrival_ms;     /* under srun: how long ranks may start one after the other; default
                              * 300,000 */
} rks_group_options;

RKS_API void rks_group_options_default(rks_group_options *options);
RKS_SIZED_DEFAULT(rks_group_options)
#define rks_group_options_default(options) rks_group_options_default_sized(options)

/* COLLECTIVE. Connects the ranks. If versions or options differ, it fails on all ranks and names
 * the field and two ranks. The caller owns *group. */
RKS_API rks_status rks_group_open(const rks_group_options *options, rks_group **group,
                                  rks_error *err);

/* Says goodbye and frees the group. Waits at most T (silence_ms) for the others: a rank that never
 * closes delays the others by no more than that. NULL is accepted. */
RKS_API void rks_group_close(rks_group *group);

/* Announces, before a process ends, that this rank makes no further collective call of the group.
 * Calls of other ranks that wait for it, or come later, fail: with `err` if `status` is not RKS_OK
 * (its text gets rank and host in front, unless it names a rank), else because this rank has left.
 * Close stores and the group after it. Not collective; never waits. NULL is accepted. */
RKS_API void rks_group_leave(rks_group *group, rks_status status, const rks_error *err);

RKS_API uint32_t rks_group_rank(const rks_group *group);
RKS_API uint32_t rks_group_size(const rks_group *group);
RKS_API uint32_t rks_group_node(const rks_group *group);  /* this rank's node, 0.. */
RKS_API uint32_t rks_group_nodes(const rks_group *group); /* how many */

/* How far the ranks are with a build or a comparison. Each rank reports to rank 0 about once a
 * second; these are sums over the ranks that have reported. Other ranks than 0 know only their own
 * part. */
typedef struct rks_group_progress {
    size_t struct_size;
    uint64_t done, total, samples; /* bytes of work, and samples, of all ranks */
    uint32_t ranks;                /* that have reported; 0: none, and all else is 0 */
    uint32_t slowest_rank;         /* the one with the smallest share of its own work done */
    uint64_t slowest_done, slowest_total;
} rks_group_progress;

/* The caller sets struct_size. Not collective, never waiting, any thread. */
RKS_API void rks_group_progress_get(rks_group *group, rks_group_progress *progress);

/* Describes what this rank does before its next collective call ("reads its source"), for the line
 * on stderr of ranks that wait for it. Longer texts are cut to 95 bytes. Not collective; never
 * waits; any thread. */
RKS_API void rks_group_announce(rks_group *group, const char *text);

/* COLLECTIVE. Ends a phase. Every rank passes its own status, and its error if that is not RKS_OK.
 * All ranks return the error of the lowest rank that failed, or RKS_OK. `phase` is a short name,
 * equal on all ranks; ranks in different phases get RKS_ERR_STATE. */
RKS_API rks_status rks_group_agree(rks_group *group, const char *phase, rks_status status,
                                   rks_error *err);

/* Returns how many collective calls of this group this rank has made, rks_group_open included. It
 * is equal on all ranks if all make the same calls. Each call goes up the tree of ranks once, and
 * down once. Not collective; never waits; any thread. */
RKS_API uint64_t rks_group_collectives(const rks_group *group);

/* Stop long work between collective calls. A rank whose work fails calls _stop at once, and passes
 * its error to the next collective call. The others call _must_stop now and then. It returns
 * RKS_ERR_PEER if a rank has called _stop, or was lost. A rank that gets it makes the next
 * collective call early, with this status and error; that call returns the failing rank's own
 * error. Not collective; never wait; any thread. */
RKS_API void rks_group_stop(rks_group *group);
RKS_API rks_status rks_group_must_stop(rks_group *group, rks_error *err);

/* ---- do the ranks read the same batches? ----------------------------------------------------- */

/* A batch that a reader (a loader, a sampler) of a plan has given to its caller on this rank. */
typedef struct rks_reading {
    uint64_t reader;  /* identifies the reader on this rank; not 0 */
    uint64_t plan;    /* digest of the plan without its changes; equal on all ranks */
    uint64_t changes; /* digest of the plan's changes: new weights, skipped steps */
    uint64_t epoch, step;
    uint32_t is_last;  /* 1: the step is the epoch's last */
    uint32_t reserved; /* 0 */
} rks_reading;

/* Compares, without waiting, what the ranks read. Rank 0 notes the epochs of which a reader has
 * given two batches, or the only one; several in a row of one epoch count once. If two ranks read
 * at the same time, as their nth epochs, different epochs or epochs with different changes, the
 * group fails on all ranks with RKS_ERR_ARGUMENT. This call returns that error; it does not report
 * other failures of the group. Readers of a plan are paired in the order in which they give their
 * second batch; one that goes on in the epoch in which the last one has ended takes its place, and
one that begins within another's iteration is not compared. Of a
 * group 64 open readers of 64 plans are compared, others are ignored. Not collective; never waits;
 * any thread. */
RKS_API rks_status rks_group_reading(rks_group *group, const rks_reading *reading, rks_error *err);
/* Call it when a reader's iteration ends; `gone`: the reader gives no further batch. Not
 * collective; never waits; any thread. */
RKS_API void rks_group_reading_ends(rks_group *group, uint64_t reader, int gone);

/* Call it before the collective call by which all ranks change a plan, and _ends after that call,
 * whether it succeeded or failed. While this rank waits in it, a rank whose reader passes the place
 * of this rank's reader (`first` if it has none) fails the group on all ranks with
 * RKS_ERR_ARGUMENT. first->changes is the digest before the change. `call` names it in the error.
 * Not collective; never wait. */
RKS_API void rks_group_change_begins(rks_group *group, const rks_reading *first, const char *call);
RKS_API void rks_group_change_ends(rks_group *group, uint64_t plan);

/* Most bytes of all ranks together in an all-gather: 1 GiB. */
enum { RKS_ALLGATHER_MAX = 1 << 30 };

/* What all ranks passed. */
typedef struct rks_gathered {
    uint8_t *bytes;    /* in rank order */
    uint64_t *offsets; /* those of rank r are offsets[r] to offsets[r + 1] */
} rks_gathered;

/* COLLECTIVE. Every rank passes its status and `size` bytes; sizes may differ, and may be 0. On
 * success *all holds them; free both fields with rks_release. If a rank passes an error, the call
 * fails on all, as with agree; also if all bytes together exceed RKS_ALLGATHER_MAX. */
RKS_API rks_status rks_group_allgather(rks_group *group, const char *phase, rks_status mine,
                                       const void *bytes, size_t size, rks_gathered *all,
                                       rks_error *err);

/* Runs `main_fn` in `ranks` new processes of this machine and supervises them. If one fails, the
 * others get an error with its rank and how it ended. *exit_code becomes that of the first rank
 * that failed (128 + signal if it was killed), else 0. SIGINT and SIGTERM are passed on. No process
 * outlives the caller. Call it before you start any thread. */
typedef int (*rks_rank_fn)(const rks_bootstrap *bootstrap, void *user);
RKS_API rks_status rks_launch(uint32_t ranks, rks_rank_fn main_fn, void *user, int *exit_code,
                              rks_error *err);

/* The same on threads of this process: for tests and tools. */
RKS_API rks_status rks_launch_threads(uint32_t ranks, rks_rank_fn main_fn, void *user,
                                      int *exit_code, rks_error *err);

/* Sets the path of the libnccl.so.2 that exchange "nccl" loads if the process has not loaded one
 * yet and RKS_NCCL_LIBRARY names none. The path is copied; NULL: the one that the system finds. Any
 * thread. Errors: RKS_ERR_MEMORY. */
RKS_API rks_status rks_nccl_library(const char *path, rks_error *err);

/* ---- memory of all ranks ------------------------------------------------------------------- */

/* The largest values over all ranks, with the lowest rank that has them. If least_peak is far below
 * peak, one rank takes the memory for all. */
typedef struct rks_memory_extreme {
    uint64_t current;
    uint64_t peak;
    uint64_t least_peak; /* the smallest of the ranks' peaks */
    uint32_t current_rank;
    uint32_t peak_rank;
} rks_memory_extreme;

typedef struct rks_memory_most {
    size_t struct_size;
    rks_memory_extreme kinds[RKS_MEMORY_KINDS];
} rks_memory_most;

/* COLLECTIVE. Returns the memory figures of all ranks on each rank. `struct_size` is
 * sizeof(rks_memory_use). *ranks gets one entry a rank (free it with rks_release); `ranks` may be
 * NULL. `most` may be NULL; else set most->struct_size first. */
RKS_API rks_status rks_memory_use_all(rks_group *group, size_t struct_size, rks_memory_use **ranks,
                                      rks_memory_most *most, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
