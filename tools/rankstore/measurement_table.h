/* SPDX-License-Identifier: Apache-2.0
 *
 * measurement_table.h: what a bench measured, and its names: a figure is called the same in --json
 * and, with rankstore_ before it and what Prometheus wants after it, in --metrics. */
#ifndef RKS_TOOLS_MEASUREMENT_TABLE_H
#define RKS_TOOLS_MEASUREMENT_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "rankstore.h"

/* Of one rank, or of all: sums, and the largest of what is a peak or a time. */
typedef struct cli_measured {
    uint64_t samples, bytes, local_bytes, remote_bytes, served_bytes;
    uint64_t peak_anon_bytes, index_bytes_node, exchange_bytes, quarantined, collectives;
    uint64_t disk_bytes, disk_reads, home_bytes;
    double seconds, wait_seconds;
} cli_measured;

void cli_measured_add(cli_measured *all, const cli_measured *one);
/* Adds each figure under its name. */
void cli_measured_json(json_t *object, const cli_measured *all);
/* Prometheus text: HELP and TYPE once a figure, then a line a rank with its label. */
void cli_measured_metrics(FILE *out, const cli_measured *ranks, uint32_t count);

#endif
