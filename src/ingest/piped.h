/* SPDX-License-Identifier: Apache-2.0
 *
 * piped.h: lines that come through a pipe, a block at a time:
 *
 *   pipe ─► block: whole lines, at least `unit_size` bytes but for the last ─► a file in memory
 *
 * A block ends with the first line that brings it to that size: the same bytes make the same
 * blocks.
 * The file is the one file of an input whose one unit is the block, so that a format reads it as it
 * reads any other. Nothing is written to a disk, and nothing is read twice. */
#ifndef RKS_INGEST_PIPED_H
#define RKS_INGEST_PIPED_H

#include "ingest/unit.h"

static const uint64_t RKS_PIPED_UNIT = (uint64_t)8 << 20; /* the default of unit_size */

typedef struct rks_piped rks_piped;

/* Opens the lines of a descriptor, which is borrowed. `format`: "jsonl", the default, or "text";
 * RKS_ERR_ARGUMENT for others, and for options that the format does not take. What the options
 * point to must outlive it. */
rks_status rks_piped_open(int fd, const rks_ingest_options *options, rks_piped **piped,
                          rks_error *err);
void rks_piped_close(rks_piped *piped); /* NULL is accepted */

/* Makes the next block the input's unit; `rows` are those of the block before. *found: there is
 * one. Waits for the pipe, and hears interrupts meanwhile. RKS_ERR_DATA: a line is larger than
 * max_sample, which skip_bad does not skip here: its end may never come. */
rks_status rks_piped_next(rks_piped *piped, uint64_t rows, bool *found, rks_error *err);
/* The input; it has a unit once rks_piped_next has found a block. */
rks_input *rks_piped_input(const rks_piped *piped);
uint64_t rks_piped_first_row(const rks_piped *piped); /* of the block */
uint64_t rks_piped_bytes(const rks_piped *piped);     /* of all blocks so far */

#endif
