/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h: a chunked all-gather of uneven byte streams: every sender's stream reaches every
 * receiver, in order. Staging memory is bounded whatever the sizes: a rank has a chunk of each of
 * four senders on its way, and holds four chunks that it sends. What the bytes mean is the caller's
 * business. All backends deliver the same bytes.
 *
 *   local  threads of one process: read straight from the sender's source
 *   mpi    tagged non-blocking messages through the MPI module
 *   pull   receivers ask senders for ranges through the engine (RKS_SERVICE_INDEX), receiver k
 * beginning with sender k + 1, four at a time: needs neither MPI nor a GPU
 *
 * A rank that fails (its source or sink returns an error, or it is interrupted) tells those who
 * wait for it to stop; then all stop with its error: the call ends with rks_group_agree. A rank
 * that is lost ends the call through the group; with mpi also a chunk that does not come for T. */
#ifndef RKS_EXCHANGE_EXCHANGE_H
#define RKS_EXCHANGE_EXCHANGE_H

#include "group/group.h"

typedef struct rks_exchange_job {
    uint64_t size; /* of this rank's stream; 0: it sends nothing */
    bool receives; /* this rank wants all streams but its own (node leaders) */
    /* Called by any thread, possibly several times for a range, possibly at once from several. */
    rks_status (*read)(void *user, uint64_t offset, void *bytes, size_t size, rks_error *err);
    /* Called in the calling thread, for each sender in order of offset; never for this rank itself.
     */
    rks_status (*write)(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                        size_t size, rks_error *err);
    /* true: this rank does not need that sender's stream (its node has it). Same answer always. */
    bool (*skip)(void *user, uint32_t sender);
    void *user;
    uint32_t chunk; /* bytes; 0: 4 MiB; the smallest of all ranks is taken, and at most 1 GiB */
} rks_exchange_job;

typedef struct rks_exchange_stats {
    uint64_t bytes_received; /* this rank, heads of chunks included */
    uint64_t bytes_sent;
    uint64_t peak_bytes; /* staging memory */
} rks_exchange_stats;

/* COLLECTIVE. `backend`: "local", "mpi", "pull", or "auto" (local for threads, mpi where its module
 * is open, else pull). A named one that cannot run is RKS_ERR_UNSUPPORTED on all, saying why. *used
 * gets a static name. */
rks_status rks_exchange_run(rks_group *group, const char *backend, const rks_exchange_job *job,
                            rks_exchange_stats *stats, const char **used, rks_error *err);

#endif
