/* SPDX-License-Identifier: Apache-2.0
 *
 * line_units.h: what the formats of one row a line have in common. */
#ifndef RKS_INGEST_LINE_UNITS_H
#define RKS_INGEST_LINE_UNITS_H

#include "ingest/format.h"
#include "ingest/lines.h"

/* Cuts files into byte ranges of about unit_size. A packed file is one unit. */
rks_status rks_by_line_cut(rks_input *input, uint64_t unit_size, rks_error *err);
rks_status rks_by_line_count(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);

/* Passes lines of a unit to `look`, to infer a schema: at most RKS_INFER_ROWS of rks_infer_bytes().
 * `look` sets *counts if the line is a sample; file and line are put before its error. *samples is
 * the number of samples. */
typedef rks_status (*rks_look_line_fn)(void *user, const rks_line *line, uint64_t row, bool *counts,
                                       rks_error *err);
rks_status rks_by_line_look(const rks_input *input, size_t unit, rks_look_line_fn look, void *user,
                            uint64_t *samples, rks_error *err);

/* Passes each line of the job's unit to `take`, unless it is too long. */
typedef rks_status (*rks_take_line_fn)(rks_job *job, void *user, const rks_line *line,
                                       rks_error *err);
rks_status rks_by_line_read(rks_job *job, rks_take_line_fn take, void *user, rks_error *err);

#endif
