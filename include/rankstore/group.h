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

/* How ranks find each other: one all-gather of a record of at most RKS_RECORD_MAX bytes.
 * It may be called a few times, by all ranks. On success `all` holds size * record_size
 * bytes in rank order. Errors hold the rank that is missing, or -1, and what became of it without
 * its name ("did not come within 30000 ms"): the group puts rank and host before it. Give your own
 * to bring a launcher that Rankstore does not know. */
enum { RKS_RECORD_MAX = 4096 };
typedef struct rks_bootstrap {
    size_t struct_size;
    const char *name; /* "solo", "local", "fork", "mpi" or the caller's own; for messages */
    uint32_t rank;
    uint32_t size;
    void *user;
    rks_status (*allgather)(void *user, const void *record, size_t record_size, void *all,
                            uint32_t timeout_ms, rks_error *err);
    /* May be NULL. Asked by waiting calls: has the launcher seen a rank end before its time? Then
     * its error: the rank, and what became of it ("was killed by signal 9"). On entry err->rank is
     * -1, or the rank whose connection has just broken: any end of that one is before its time. */
    rks_status (*check)(void *user, rks_error *err);
    void (*close)(void *user); /* may be NULL; called once by rks_group_close */
    void *local_hub;           /* the library's own: how threads of one process are connected */
} rks_bootstrap;

typedef struct rks_group_options {
    size_t struct_size;
    const rks_bootstrap *bootstrap; /* NULL: Open MPI if a launcher set its variables, else solo */
    uint32_t silence_ms;            /* T: how long a rank may be silent; default 15,000, from 200 */
    uint32_t patience_ms;    /* after this wait a line on stderr says who is waited for; 60,000 */
    const char *listen;      /* address or interface to listen on; NULL: RKS_LISTEN, else loopback
                              * where all ranks share it, else the default route's interface, or
                              * the only one that is up */
    const char *secret_file; /* 0600 file with at least 32 bytes; NULL: RKS_SECRET_FILE, else one
                              * that rank 0 makes in RKS_JOB_DIR, else none: ranks trust the public
                              * keys that the bootstrap hands round */
    const char *node;        /* what counts as a node; NULL: RKS_NODE, else the machine's boot id.
                              * Ranks of one node share memory: they hand each other descriptors
                              * through TMPDIR, /tmp or the network namespace. Containers that have
                              * none of these in common count as nodes, each with its own copy of
                              * the index; one line says so */
    uint32_t io_threads;     /* most threads of this rank that answer other ranks, and wait for cold
                              * pages, for all stores of the group; default 16, from 1 to 1024 */
} rks_group_options;

RKS_API void rks_group_options_default(rks_group_options *options);
RKS_SIZED_DEFAULT(rks_group_options)
#define rks_group_options_default(options) rks_group_options_default_sized(options)

/* COLLECTIVE. Connects the ranks. Fails on all ranks with the field and two ranks named
 * where versions or options differ. The caller owns *group. */
RKS_API rks_status rks_group_open(const rks_group_options *options, rks_group **group,
                                  rks_error *err);

/* Says goodbye and frees the group; waits at most T for the others. Not collective in
 * effect: a rank that never closes delays the others by T, no more. NULL is accepted. */
RKS_API void rks_group_close(rks_group *group);

/* Before a process ends; not collective, never waiting. This rank makes no further collective call of
 * the group. The other ranks' calls that wait for it, or that come later, fail: with `err` if `status`
 * is not RKS_OK (rank and host are put before its text, unless it names a rank), else because this
 * rank has left. Close stores and the group after it. NULL is accepted. */
RKS_API void rks_group_leave(rks_group *group, rks_status status, const rks_error *err);

RKS_API uint32_t rks_group_rank(const rks_group *group);
RKS_API uint32_t rks_group_size(const rks_group *group);
RKS_API uint32_t rks_group_node(const rks_group *group);  /* this rank's node, 0.. */
RKS_API uint32_t rks_group_nodes(const rks_group *group); /* how many */

/* How far the ranks are with a build or a comparison, from what each tells rank 0 about once a
 * second: sums over the ranks that have reported. Ranks other than 0 report what they know. */
typedef struct rks_group_progress {
    size_t struct_size;
    uint64_t done, total, samples; /* bytes of work, and samples, of all ranks */
    uint32_t ranks;                /* that have reported; 0: none, and all else is 0 */
    uint32_t slowest_rank;         /* the one with the smallest share of its own work done */
    uint64_t slowest_done, slowest_total;
} rks_group_progress;

/* The caller sets struct_size. Not collective, never waiting, any thread. */
RKS_API void rks_group_progress_get(rks_group *group, rks_group_progress *progress);

/* COLLECTIVE. Ends a phase: every rank brings its own status (and error if it is not
 * RKS_OK); all return the failing rank's with the lowest number, or RKS_OK. `phase` is a
 * short name, equal on all ranks; ranks in different phases get RKS_ERR_STATE. */
RKS_API rks_status rks_group_agree(rks_group *group, const char *phase, rks_status status,
                                   rks_error *err);

/* How many collective calls of this group this rank has made, including that of rks_group_open: the
 * same on all ranks while all make the same calls. Each costs one walk up the tree of ranks and one
 * down. Not collective, never waiting, any thread. */
RKS_API uint64_t rks_group_collectives(const rks_group *group);

/* Between collective calls; not collective, never waiting, any thread. A rank whose own long work
 * fails says so at once (_stop), and brings its error to the next collective call. The others ask
 * now and then (_must_stop): RKS_ERR_PEER if a rank has said so, or was lost; who gets it makes
 * that call early, with this status and error, and there the failing rank's own error counts. */
RKS_API void rks_group_stop(rks_group *group);
RKS_API rks_status rks_group_must_stop(rks_group *group, rks_error *err);

/* Bytes that all ranks together bring to an all-gather at most: 1 GiB. */
enum { RKS_ALLGATHER_MAX = 1 << 30 };

/* COLLECTIVE. Every rank brings its status and `size` bytes (sizes may differ; also 0); on success
 * *all holds them in rank order, (*offsets)[r] to (*offsets)[r + 1] being rank r's (size of the
 * group + 1 entries). Free both with rks_release. A rank that brings an error fails the call on
 * all, as with agree; so does one with which they are more than RKS_ALLGATHER_MAX. */
RKS_API rks_status rks_group_allgather(rks_group *group, const char *phase, rks_status mine,
                                       const void *bytes, size_t size, uint8_t **all,
                                       uint64_t **offsets, rks_error *err);

/* Runs `main_fn` on `ranks` new processes of this machine and supervises them: when one
 * ends badly the others learn its rank and how it ended. Returns the exit code of the
 * first rank that failed (128 + signal for one that was killed), else 0. SIGINT and SIGTERM are
 * passed on. No process outlives the caller. Call it before any thread is started. */
typedef int (*rks_rank_fn)(const rks_bootstrap *bootstrap, void *user);
RKS_API rks_status rks_launch(uint32_t ranks, rks_rank_fn main_fn, void *user, int *exit_code,
                              rks_error *err);

/* The same on threads of this process: for tests and tools. */
RKS_API rks_status rks_launch_threads(uint32_t ranks, rks_rank_fn main_fn, void *user,
                                      int *exit_code, rks_error *err);

/* The NCCL that exchange "nccl" uses where none is loaded in the process yet and RKS_NCCL_LIBRARY
 * does not name one: a path of libnccl.so.2. Copied; NULL: what the system finds. Any thread.
 * RKS_ERR_MEMORY. */
RKS_API rks_status rks_nccl_library(const char *path, rks_error *err);

/* ---- memory of all ranks ------------------------------------------------------------------- */

/* Over all ranks; of equal ones the lowest rank. A least_peak far below peak: one rank alone pays.
 */
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

/* COLLECTIVE. The figures of all ranks, on all of them. `struct_size`: sizeof(rks_memory_use).
 * *ranks has one entry a rank (free with rks_release); NULL: not wanted. most->struct_size is set
 * by the caller; most may be NULL. */
RKS_API rks_status rks_memory_use_all(rks_group *group, size_t struct_size, rks_memory_use **ranks,
                                      rks_memory_most *most, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
