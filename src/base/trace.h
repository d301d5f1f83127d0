/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h: records what a process did and when: spans, in one ring for each thread, which
 * rks_trace_drain reads. When tracing is off, a span costs a load and a branch. Any thread may call
 * this.
 *
 *     uint64_t begun = rks_trace_begin();          0 if tracing is off
 *     ...
 *     rks_trace_end(begun, RKS_TRACE_FETCH, owner, samples, bytes); */
#ifndef RKS_BASE_TRACE_H
#define RKS_BASE_TRACE_H

#include <stdatomic.h>

#include "base/clock.h"

extern atomic_bool rks_trace_on;

void rks_trace_add(uint64_t begin_ns, rks_trace_kind kind, int64_t peer, uint64_t samples,
                   uint64_t bytes);

static inline uint64_t rks_trace_begin(void)
{
    bool on = atomic_load_explicit(&rks_trace_on, memory_order_relaxed);
    return __builtin_expect(on, false) ? rks_now_ns() : 0;
}

/* Ends a span. Drops a span that began before tracing did. */
static inline void rks_trace_end(uint64_t begun, rks_trace_kind kind, int64_t peer,
                                 uint64_t samples, uint64_t bytes)
{
    if (__builtin_expect(begun != 0, false))
        rks_trace_add(begun, kind, peer, samples, bytes);
}

#endif
