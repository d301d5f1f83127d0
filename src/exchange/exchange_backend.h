/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange_backend.h: what the dispatch and the backends share. */
#ifndef RKS_EXCHANGE_EXCHANGE_BACKEND_H
#define RKS_EXCHANGE_EXCHANGE_BACKEND_H

#include "exchange/exchange.h"

/* How many senders a rank receives from at once, one chunk each, and how many chunks it sends at
 * once. */
enum { RKS_EXCHANGE_LANES = 4 };

/* Bytes [begin, end) of a stream. */
typedef struct rks_exchange_part {
    uint64_t begin, end;
} rks_exchange_part;

/* What all ranks know of an exchange, as this rank sees it. */
typedef struct rks_exchange_plan {
    rks_group *group;
    const rks_exchange_job *job;
    uint32_t rank;
    uint32_t size;
    uint32_t chunk;           /* the smallest that any rank asked for */
    uint32_t room;            /* bytes of the largest chunk that this rank receives */
    uint32_t send_room;       /* bytes of the largest chunk that this rank sends */
    uint64_t *sizes;          /* of each rank's stream */
    bool *wanted;             /* senders that this rank receives from; no empty parts */
    bool *wanters;            /* ranks that receive from this one */
    rks_exchange_part *parts; /* of each sender's stream, what this rank receives */
    rks_exchange_part *given; /* of this rank's stream, what each rank receives */
    bool *node_wanted;        /* nccl: senders that some rank of this node receives from */
    const char *options;      /* after the backend's name; NULL or "" if none */
    uint64_t *tokens;         /* what each rank's backend returned from prepare */
    rks_exchange_stats stats;
    bool stopped;    /* it ended early because of an error that another rank brings */
    bool failed;     /* the exchange has failed; for close */
    bool job_failed; /* nccl: this rank's source or sink failed, or an interrupt came */
} rks_exchange_plan;

/* A backend moves the streams of a plan. prepare (which may be collective) runs on all ranks before
 * run does on any. close runs on all after run has ended on all, or after the group has failed. run
 * returns this rank's own error. If it ends early because of another rank, it sets `stopped` and
 * returns RKS_OK. */
typedef struct rks_exchange_backend {
    const char *name;
    const char *why_auto; /* why auto chose it; may be NULL */
    bool tells_size;      /* the reason also says how many bytes are to be moved */
    bool takes_options;   /* options may follow its name */
    bool reads_others;    /* needs the job's reads_node */
    const char *in_clear; /* who carries the bytes without encrypting them; NULL: our own
                           * connections */
    bool slow_start;      /* auto chooses it for many bytes only, and another one if it fails */
    rks_status (*can)(rks_group *group, rks_error *err); /* RKS_ERR_UNSUPPORTED says why it cannot
                                                          * run */
    rks_status (*prepare)(rks_exchange_plan *plan, void **state, uint64_t *token, rks_error *err);
    rks_status (*run)(rks_exchange_plan *plan, void *state, rks_error *err);
    void (*close)(rks_exchange_plan *plan, void *state); /* state is not NULL */
} rks_exchange_backend;

extern const rks_exchange_backend rks_exchange_local;
extern const rks_exchange_backend rks_exchange_mpi;
extern const rks_exchange_backend rks_exchange_nccl;
extern const rks_exchange_backend rks_exchange_pull;

/* Finds the next sender, from rank + 1 on and then from 0, and where its part begins. Returns false
 * after the last. *cursor begins with 0. */
bool rks_exchange_next(const rks_exchange_plan *plan, uint32_t *cursor, uint32_t *sender,
                       uint64_t *offset);
/* Returns the size of the chunk at `offset`, in this rank's part of a sender's stream. It ends at a
 * boundary if one is near enough. Returns 0 at the end of the part. */
uint32_t rks_exchange_chunk(const rks_exchange_plan *plan, uint32_t sender, uint64_t offset);
/* For a job that shares: sets parts, given and node_wanted for the node of `receiver`, which
 * receives from the senders whose bits are set. */
rks_status rks_exchange_share(rks_exchange_plan *plan, uint32_t receiver, const uint8_t *wants,
                              rks_error *err);
/* Passes a chunk to the sink. */
rks_status rks_exchange_take(rks_exchange_plan *plan, uint32_t sender, uint64_t offset,
                             const void *bytes, uint32_t size, rks_error *err);
/* Called between chunks and in waits. Returns an error if interrupted. Sets `stopped` if another
 * rank has failed. */
rks_status rks_exchange_look(rks_exchange_plan *plan, rks_error *err);

#endif
