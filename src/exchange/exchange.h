/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h: a chunked all-gather of uneven byte streams: every sender's stream reaches every
 * receiver, in order. Staging memory is bounded whatever the sizes: a rank has a chunk of each of
 * four senders on its way, and holds four chunks that it sends. What the bytes mean is the caller's
 * business. All backends deliver the same bytes.
 *
 * Shares  The ranks of a node that write to one memory share the work: laid end to end, the streams
 *         that the node's receiver wants from other nodes are cut evenly, and each rank of the node
 *         takes one cut. All ranks compute all cuts from the same record, so no message arranges
 *         them.
 *
 *           node 1 wants   | stream of rank 0 |  of rank 1  |  of rank 2 |  of rank 3     |
 *           its 2 ranks    |       rank 4 takes       |         rank 5 takes              |
 *
 *   local  threads of one process: read straight from the sender's source
 *   mpi    tagged non-blocking messages through the MPI module
 *   nccl   all-gathers between the GPUs of the nodes, gpu_rails.h; the nodes' other ranks take no
 * part pull   receivers ask senders for ranges through the engine (RKS_SERVICE_INDEX), receiver k
 * beginning with sender k + 1, four at a time: needs neither MPI nor a GPU
 *
 * A rank that fails (its source or sink returns an error, or it is interrupted) asks the ranks that
 * wait for it to stop; then all stop with its error: the call ends with rks_group_agree. The group
 * ends the call when a rank is lost; with mpi, T without a chunk ends it, too. */
#ifndef RKS_EXCHANGE_EXCHANGE_H
#define RKS_EXCHANGE_EXCHANGE_H

#include "group/group.h"

/* A run of a rank's stream. The stream may be divided between two receivers at its ends, and at
 * multiples of `step` bytes from its begin. */
typedef struct rks_exchange_segment {
    uint64_t begin; /* in the stream */
    uint64_t size;  /* at least 1 */
    uint64_t step;
} rks_exchange_segment;

/* The segments of all streams, rank by rank, in order and without gaps; the same on all ranks. */
typedef struct rks_exchange_segments {
    const rks_exchange_segment *all;
    const size_t *first; /* by rank: its first segment; then the number of all */
} rks_exchange_segments;

/* Returns the segment that holds byte `offset` of a rank's stream; NULL beyond the end. */
const rks_exchange_segment *rks_exchange_segment_at(const rks_exchange_segments *segments,
                                                    uint32_t rank, uint64_t offset);
/* Returns the first offset, at or after `offset`, at which a rank's stream may be divided; beyond
 * the last segment its end. */
uint64_t rks_exchange_boundary(const rks_exchange_segments *segments, uint32_t rank,
                               uint64_t offset);

typedef struct rks_exchange_job {
    uint64_t size; /* bytes of this rank's stream; 0: it sends nothing */
    bool receives; /* this rank receives all streams but its own (node leaders) */
    /* The same on all ranks. If true, each rank of a node receives an even part of what the node's
     * receiver needs from other nodes; then at most one rank of a node may receive
     * (RKS_ERR_ARGUMENT). */
    bool shares;
    /* The same on all ranks. If true, the streams have checksums of their own, which `write`
     * checks; then pull and mpi add none. nccl always adds its own, so that an error of NCCL is not
     * taken for one of `write`. */
    bool checks;
    /* Where streams may be divided: for shares, and for the ends of chunks. NULL: anywhere. */
    const rks_exchange_segments *segments;
    /* By rank: this rank's node has its stream, so that this rank does not need it. NULL: it has
     * none. */
    const bool *has;
    /* `read` serves the streams of all ranks of this node, and the sink takes streams, or parts of
     * them, for its node's receiver, even its own. nccl needs this. */
    bool reads_node;
    /* Reads bytes of this rank's stream, which is `sender`. Any thread may call it, several at
     * once, several times for a range. For at most 256 KiB the engine's thread calls it, too, so it
     * must not wait for other ranks. */
    rks_status (*read)(void *user, uint32_t sender, uint64_t offset, void *bytes, size_t size,
                       rks_error *err);
    /* Receives bytes, in the calling thread, for each sender in order of offset; from where a
     * stream may be divided if the job shares, or with nccl. Never called for this rank's own
     * stream, but see reads_node. */
    rks_status (*write)(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                        size_t size, rks_error *err);
    /* Forgets what was received, since it comes again by another backend. NULL: it cannot, so none
     * takes the place of nccl. */
    void (*restart)(void *user);
    void *user;
    uint32_t chunk; /* bytes of a chunk; 0: 4 MiB. The smallest of all ranks counts, at most 1
                     * GiB */
} rks_exchange_job;

typedef struct rks_exchange_stats {
    uint64_t bytes_received; /* by this rank, heads of chunks included */
    uint64_t bytes_sent;
    uint64_t peak_bytes; /* staging memory */
    /* nccl only: */
    uint64_t pinned_bytes;     /* host memory that the GPU reads and writes by itself */
    uint64_t gpu_buffer_bytes; /* GPU memory of our buffers */
    uint64_t gpu_nccl_bytes;   /* how much more of the device's free memory was used, at most: by
                                * NCCL, and by others on that GPU at the same time */
    uint64_t gpu_code_bytes;   /* what stayed in use at the end and is not in gpu_nccl_bytes: NCCL's
                                * code, loaded once a process. 0 if the memory is kept */
    uint64_t agreed_ns; /* rks_now_ns() when this rank knew how the exchange had ended on all ranks;
                         * nothing was freed before that. 0: it failed before it began */
    char why[128];      /* why this backend ran: "named", "auto: ..." */
} rks_exchange_stats;

/* COLLECTIVE. Runs an exchange. `backend`: "local", "nccl", "mpi", "pull", or "auto" (NULL): local
 * for threads; nccl if a node receives enough to make up for NCCL's start; mpi if its module is
 * open; else pull. "nccl" takes options after its name: "nccl:rails=off,timeout=60,slot=16777216"
 * (rails=off: one communicator of all GPUs; timeout: seconds for a round; slot: bytes of GPU memory
 * for one of two rounds). If a named backend cannot run, all ranks return RKS_ERR_UNSUPPORTED,
 * which says why. If auto chose nccl and NCCL itself fails, all ranks continue with the next
 * backend. *used becomes a static name. *stats is filled after an error, too. */
rks_status rks_exchange_run(rks_group *group, const char *backend, const rks_exchange_job *job,
                            rks_exchange_stats *stats, const char **used, rks_error *err);

/* Returns the name of the backend that this rank would choose for an index below the size from
 * which on NCCL is worth its start. */
const char *rks_exchange_expected(rks_group *group);

/* Returns true if this process could take part in the nccl exchange. `text` says with what, or why
 * not. Loads the libraries and opens the GPU for a moment. */
bool rks_exchange_nccl_usable(char text[192]);

/* For tests: sets from how many bytes on auto chooses nccl; 0: the default of exchange.c. */
void rks_exchange_nccl_from(uint64_t bytes);

#endif
