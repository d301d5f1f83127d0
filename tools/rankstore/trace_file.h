/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_file.h: what the ranks did when, in one Chrome trace (JSON): Perfetto and chrome://tracing
 * read it. */
#ifndef RKS_TOOLS_TRACE_FILE_H
#define RKS_TOOLS_TRACE_FILE_H

#include "rankstore.h"

/* COLLECTIVE. Starts tracing; times are counted from here, which is the same moment on all ranks
 * but for the time that an agreement takes. *origin_ns is for the call below. */
rks_status cli_trace_start(rks_group *group, uint64_t *origin_ns, rks_error *err);

/* COLLECTIVE. Ends tracing and writes all ranks' events to `path` on rank 0, which appears when it
 * is whole. A rank is a process (pid) of the trace; fetches and prefetches overlap, so they are
 * asynchronous events. Ranks' events travel through files under TMPDIR, so memory is bounded.
 * *events and *dropped, of all ranks, are set on rank 0. */
rks_status cli_trace_write(rks_group *group, const char *path, uint64_t origin_ns, uint64_t *events,
                           uint64_t *dropped, rks_error *err);

#endif
