/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: shows the figures of a running process. One thread of the process sleeps until a
 * client connects to one of two sockets:
 *
 *   rankstore top    a Unix socket with an abstract name, "rankstore-top-UID-PID". The kernel
 * removes it when the process ends, for any reason. Clients of another user get nothing. metrics
 * Prometheus text over HTTP on 127.0.0.1; opened only if a port is given
 *
 * Both send the same figures. The number of sources and clients, the size of the text and the time
 * that a client may take are all bounded.
 */
#ifndef RKS_METRICS_METRICS_H
#define RKS_METRICS_METRICS_H

#include "rankstore/base.h"

/* Names as in docs/figures.md. */
typedef struct rks_metrics {
    uint64_t group; /* identifies the job: the same on all of its ranks */
    uint32_t rank, ranks, node, nodes;
    uint64_t number; /* of the source within this process; rks_metrics_begin sets it */
    char dataset[33];
    char directory[200]; /* only the end of a path that is longer */
    uint64_t samples, bytes, local_bytes, remote_bytes, served_bytes, disk_bytes, disk_reads,
        home_bytes;
    uint64_t wait_ns, batches, epoch, step, steps, ahead;
} rks_metrics;

/* One source of figures. The caller sets `read` and `user`. The metrics' thread calls `read`, which
 * fills every field except `number`. */
typedef struct rks_metrics_source {
    void (*read)(void *user, rks_metrics *figures);
    void *user;
    uint64_t number;                 /* set by rks_metrics_begin */
    struct rks_metrics_source *next; /* set by rks_metrics_begin */
} rks_metrics_source;

/* Starts to show `source`, which must stay valid until rks_metrics_end(): to rankstore top, and
 * also at 127.0.0.1:`port` if `port` is not 0. Fails, and then does not show `source`, with
 * RKS_ERR_IO if the port cannot be opened, and with RKS_ERR_ARGUMENT if this process already serves
 * another port. Succeeds without top's socket if that cannot be opened or RKS_TOP is "off", and
 * without any socket if the thread cannot start. Any thread. */
rks_status rks_metrics_begin(rks_metrics_source *source, uint32_t port, rks_error *err);
/* Stops showing `source`; `read` is not called after this returns. The last source ends the thread
 * and closes the sockets. Does nothing if `source` was never begun, or if the parent process began
 * it before a fork. Any thread except the metrics' own. */
void rks_metrics_end(rks_metrics_source *source);

/* metrics_text.c. Write a snapshot as text of at most `room` bytes, including the NUL, and return
 * its size without the NUL. A source (top) or a metric (metrics) that does not fit is omitted
 * whole. Top's last line counts the omitted sources; `left_out` is the number that the snapshot
 * itself lacks. */
size_t rks_metrics_as_top(const rks_metrics *all, size_t count, size_t left_out, char *text,
                          size_t room);
size_t rks_metrics_as_prometheus(const rks_metrics *all, size_t count, char *text, size_t room);

#endif
