/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.h: what a process did when: spans in a ring a thread, for rks_trace_drain. Off, it costs a
 * load and a branch. Any thread.
 *
 *     uint64_t begun = rks_trace_begin();          0 where tracing is off
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

/* A span that began before tracing did is left out. */
static inline void rks_trace_end(uint64_t begun, rks_trace_kind kind, int64_t peer,
                                 uint64_t samples, uint64_t bytes)
{
    if (__builtin_expect(begun != 0, false))
        rks_trace_add(begun, kind, peer, samples, bytes);
}

#endif
