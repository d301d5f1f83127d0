/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_bench.h: bench --cold: what the disk gives, beside 16 threads that read the same records. */
#ifndef RKS_TOOLS_DISK_BENCH_H
#define RKS_TOOLS_DISK_BENCH_H

#include <jansson.h>

#include "rankstore.h"

/* Of one rank, or of all: sums, and the longest time. */
typedef struct cli_cold {
    uint64_t samples; /* the first ones of the epoch, which both read */
    double pread_seconds, seconds;
    uint64_t disk_bytes, disk_reads;   /* while they were read by the library */
    uint64_t file_bytes, cached_bytes; /* of the shards, when reading began; UINT64_MAX: unknown */
    double depth; /* requests that the disk had at a time, on average; below 0: unknown */
} cli_cold;

typedef struct cli_cold_run cli_cold_run;

/* COLLECTIVE. Drops the shards' pages, reads the first samples of the epoch by pread, as many
 * threads as there are ranks share 16, and drops the pages again. Free *run with cli_cold_end. */
rks_status cli_cold_begin(rks_store *store, rks_plan *plan, uint64_t epoch, cli_cold_run **run,
                          rks_error *err);
/* The clock starts, or, after `samples` more of them were delivered, perhaps stops. */
void cli_cold_start(cli_cold_run *run);
void cli_cold_delivered(cli_cold_run *run, uint64_t samples);
/* Stops the clock if it still runs. */
cli_cold cli_cold_end(cli_cold_run *run);

void cli_cold_add(cli_cold *all, const cli_cold *one);
void cli_cold_json(json_t *object, const cli_cold *all);
void cli_cold_print(const cli_cold *all);

#endif
