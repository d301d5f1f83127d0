/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/trace.h: what this process did when. Part of rankstore.h. */
#ifndef RANKSTORE_TRACE_H
#define RANKSTORE_TRACE_H

#include "rankstore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rks_trace_kind {
    RKS_TRACE_PLAN = 0,     /* an epoch's batches were computed */
    RKS_TRACE_PREFETCH = 1, /* a batch was on its way ahead of time: from its start until it was
                             * handed out; overlaps others */
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
    uint64_t samples; /* 0 where it is not known */
    uint64_t bytes;
} rks_trace_event;

/* "plan", "prefetch", ... Static. */
RKS_API const char *rks_trace_name(rks_trace_kind kind);

/* Process-wide, and off until it is started; off it costs nothing that can be measured. Each thread
 * keeps its last `events_a_thread` events (56 bytes each; 0: 65,536; of several calls the first one
 * decides). RKS_ERR_ARGUMENT above RKS_TRACE_EVENTS_MAX. */
enum { RKS_TRACE_EVENTS_MAX = 1 << 24 };
RKS_API rks_status rks_trace_start(uint32_t events_a_thread, rks_error *err);
/* What was kept stays for a drain. */
RKS_API void rks_trace_stop(void);
/* Hands out the events that were kept, thread by thread, each from its oldest, and forgets them;
 * *dropped counts those that were overwritten since the last drain. Any thread, also while others
 * trace. Free *events with rks_release. */
RKS_API rks_status rks_trace_drain(rks_trace_event **events, size_t *count, uint64_t *dropped,
                                   rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
