/* SPDX-License-Identifier: Apache-2.0
 *
 * by_line.h: what formats of one row a line have in common. */
#ifndef RKS_INGEST_BY_LINE_H
#define RKS_INGEST_BY_LINE_H

#include "ingest/format.h"
#include "ingest/lines.h"

/* Byte ranges of about unit_size; a packed file as a whole. */
rks_status rks_by_line_cut(rks_input *input, uint64_t unit_size, rks_error *err);
rks_status rks_by_line_count(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err);

/* The lines of a unit that are looked at for a schema: at most RKS_INFER_ROWS of rks_infer_bytes().
 * `look` sets *counts where the line is a sample; its failure gets file and line. *samples is how
 * many are. */
typedef rks_status (*rks_look_line_fn)(void *user, const rks_line *line, uint64_t row, bool *counts,
                                       rks_error *err);
rks_status rks_by_line_look(const rks_input *input, size_t unit, rks_look_line_fn look, void *user,
                            uint64_t *samples, rks_error *err);

/* Each line of the job's unit that is not too long. */
typedef rks_status (*rks_take_line_fn)(rks_job *job, void *user, const rks_line *line,
                                       rks_error *err);
rks_status rks_by_line_read(rks_job *job, rks_take_line_fn take, void *user, rks_error *err);

#endif
