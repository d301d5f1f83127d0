/* SPDX-License-Identifier: Apache-2.0
 *
 * top_read.h: what this user's running processes of this machine say of themselves. */
#ifndef RKS_TOOLS_TOP_READ_H
#define RKS_TOOLS_TOP_READ_H

#include <stddef.h>
#include <stdint.h>

/* A dataset that a process has open. */
typedef struct top_store {
    uint64_t pid, now_ms; /* now_ms: the process's clock when it answered */
    uint64_t number, rank, ranks, node, nodes;
    uint64_t samples, bytes, local_bytes, remote_bytes, served_bytes, disk_bytes, disk_reads,
        home_bytes;
    uint64_t wait_ns, batches, epoch, step, steps, ahead;
    char group[20], dataset[40], directory[208];
} top_store;

typedef struct top_figure {
    const char *name;
    size_t field;
} top_figure;
/* Names on the wire and where they go, of numbers. */
extern const top_figure top_figures[];
extern const size_t top_figure_count;

typedef struct top_found {
    top_store *stores; /* by job, node, rank, process, number */
    size_t count;
    size_t left_out; /* stores that processes had no room for */
} top_found;

/* Asks each process of this user, for at most 500 ms each. 0, or an errno value. */
int top_read(top_found *found);
void top_free(top_found *found);

#endif
