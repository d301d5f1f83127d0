/* SPDX-License-Identifier: Apache-2.0
 *
 * excluded_samples.h: samples that lie in a dataset's shards and do not count: duplicates, and what
 * a sample of N leaves out. Shards are sealed, so they are listed beside dataset.json. A sample's
 * **position** is its place among all that are stored: units by number, rows in the order of the
 * unit. The picture of the file is in excluded_samples.c. */
#ifndef RKS_DATASET_EXCLUDED_SAMPLES_H
#define RKS_DATASET_EXCLUDED_SAMPLES_H

#include "base/buffer.h"
#include "base/checksum.h"

/* A run of `count` consecutive positions. */
typedef struct rks_excluded_run {
    uint32_t first;
    uint32_t count;
} rks_excluded_run;

/* Runs are ascending, and between two of them at least one sample counts. All zero: nothing is
 * excluded. */
typedef struct rks_excluded {
    char name[64];       /* the file's, beside dataset.json */
    uint64_t samples;    /* in all runs */
    uint64_t bytes;      /* their column and key bytes */
    uint64_t duplicates; /* those excluded as duplicates; the others were not drawn into a sample of
                          * N */
    uint64_t run_count;
    rks_digest digest;      /* the file's */
    rks_excluded_run *runs; /* NULL until they are loaded */
} rks_excluded;

/* Sorts and joins runs in place; *count is how many remain. RKS_ERR_DATA if a position is in two of
 * them. */
rks_status rks_excluded_settle(rks_excluded_run *runs, uint64_t *count, rks_error *err);
/* Appends the bytes of the file; sets name, samples, run_count and digest. Runs must be settled. */
rks_status rks_excluded_encode(rks_excluded *excluded, rks_buffer *bytes, rks_error *err);
/* Decodes the runs. RKS_ERR_CORRUPT unless they agree with `excluded` (all but its runs) and are
 * below `stored`. */
rks_status rks_excluded_decode(rks_excluded *excluded, const void *bytes, size_t size,
                               uint64_t stored, const char *path, rks_error *err);
/* Returns the size of a file with so many runs. */
uint64_t rks_excluded_size(uint64_t run_count);

#endif
