/* SPDX-License-Identifier: Apache-2.0
 *
 * read_units.h: a rank's units into its shard, by one thread or several.
 *
 * Each thread reads a unit of its own. Units end in order (ingest.h, rks_ingest_turn), so the dataset,
 * the errors and the list of bad rows are those of one thread: the first unit that fails says why, and
 * the units before it are finished. */
#ifndef RKS_BUILDER_READ_UNITS_H
#define RKS_BUILDER_READ_UNITS_H

#include "builder/behind.h"
#include "builder/parts.h"
#include "ingest/ingest.h"

typedef struct rks_read_units {
    const rks_input *input;
    rks_parts *parts;       /* finished units are not read */
    const uint32_t *owners; /* by unit: the rank that reads it */
    uint32_t rank;
    uint64_t *first_rows; /* by unit: row in its file of its first row */
    bool learns_rows;     /* this rank reads all units: those of a file's later ones are entered here */
    uint32_t threads;     /* 1: the caller's; options with callbacks take one in any case */
    const rks_schema *schema;
    const rks_ingest_options *options;
    rks_buffer *bad;
    const rks_behind *behind;
    /* By the caller's thread, about each MiB of one thread or each 100 ms of several: input bytes
     * and samples so far. A failure ends the reading. */
    rks_status (*tick)(void *user, uint64_t bytes, uint64_t samples, rks_error *err);
    void *user;
} rks_read_units;

/* *samples: of the units that ended. */
rks_status rks_read_units_run(const rks_read_units *reading, uint64_t *samples, rks_error *err);

#endif
