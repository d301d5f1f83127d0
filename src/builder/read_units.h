/* SPDX-License-Identifier: Apache-2.0
 *
 * read_units.h: reads a rank's units into its shard, with one thread or several.
 *
 * Each thread reads a unit of its own. Units end in order (ingest.h, rks_ingest_turn), so the
 * dataset, the errors and the list of bad rows are those of a single thread: the first unit that
 * fails gives the error, and the units before it are finished. */
#ifndef RKS_BUILDER_READ_UNITS_H
#define RKS_BUILDER_READ_UNITS_H

#include "builder/page_cache.h"
#include "builder/parts.h"
#include "ingest/ingest.h"

typedef struct rks_read_units {
    const rks_input *input;
    rks_parts *parts;       /* finished units are not read */
    const uint32_t *owners; /* by unit: the rank that reads it */
    uint32_t rank;
    const size_t *units; /* what to read, in this order; NULL: this rank's units, ascending */
    size_t unit_count;
    uint64_t *first_rows; /* by unit: number of its first row in its file */
    bool learns_rows;     /* a file's units are all this rank's or finished, and it enters the first
                           * rows of later ones here */
    uint64_t max_shard;   /* as rks_build_options.max_shard */
    uint32_t threads;     /* 1: only the caller's; options with callbacks always use one */
    const rks_schema *schema;
    const rks_ingest_options *options;
    rks_buffer *bad;
    const rks_page_cache *page_cache;
    /* Called by the caller's thread, about each MiB with one thread or each 100 ms with several:
     * input bytes and samples so far. An error ends the reading. */
    rks_status (*tick)(void *user, uint64_t bytes, uint64_t samples, rks_error *err);
    void *user;
} rks_read_units;

/* *samples: those of the units that ended. */
rks_status rks_read_units_run(const rks_read_units *reading, uint64_t *samples, rks_error *err);

#endif
