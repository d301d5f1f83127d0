/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h: a running process shows its figures, live. One thread of the process waits for clients
 * and costs nothing meanwhile:
 *
 *   rankstore top    a Unix socket with an abstract name, "rankstore-top-UID-PID". It goes with the
 *                    process, however that ends. Clients of another user get nothing.
 *   metrics          Prometheus text over HTTP on 127.0.0.1, on request only
 *
 * Both write the same snapshot. All of it is bounded: sources, clients, text and the time of each.
 */
#ifndef RKS_WATCH_WATCH_H
#define RKS_WATCH_WATCH_H

#include "rankstore/base.h"

/* Names as in docs/figures.md. */
typedef struct rks_watch_figures {
    uint64_t group; /* the same on all ranks of a job, and no other job's */
    uint32_t rank, ranks, node, nodes;
    uint64_t number; /* of the source in this process; set by the watch */
    char dataset[33];
    char directory[200]; /* the end of a longer one */
    uint64_t samples, bytes, local_bytes, remote_bytes, served_bytes, disk_bytes, disk_reads;
    uint64_t wait_ns, batches, epoch, step, steps, ahead;
} rks_watch_figures;

/* What is watched. `read` is called by the watch's thread, and fills all but `number`. */
typedef struct rks_watched {
    void (*read)(void *user, rks_watch_figures *figures);
    void *user;
    uint64_t number;          /* the watch's */
    struct rks_watched *next; /* the watch's */
} rks_watched;

/* From now on `watched` is shown. `port` 0: to rankstore top alone; else also at 127.0.0.1:`port`.
 * A port that cannot be had is RKS_ERR_IO, one beside another of this process RKS_ERR_ARGUMENT, and
 * nothing is watched then. Where top's socket or the thread cannot be had, or RKS_TOP is "off", the
 * process is only not shown. */
rks_status rks_watch_begin(rks_watched *watched, uint32_t port, rks_error *err);
/* `read` is not called any more. The last one ends the thread and closes the sockets. One that was
 * not begun, or was begun before a fork of this process, is left alone. */
void rks_watch_end(rks_watched *watched);

/* figures.c: the snapshot as text, at most `room` bytes with a NUL; returns its size. What does not
 * fit is left out whole, and counted in `top`'s last line. */
size_t rks_watch_top(const rks_watch_figures *all, size_t count, size_t left_out, char *text,
                     size_t room);
size_t rks_watch_metrics(const rks_watch_figures *all, size_t count, char *text, size_t room);

#endif
