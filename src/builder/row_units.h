/* SPDX-License-Identifier: Apache-2.0
 *
 * row_units.h: the units of rows that a program makes (ingest/rows.h): lists them, and reads those
 * of a stream, which are found one at a time. */
#ifndef RKS_BUILDER_ROW_UNITS_H
#define RKS_BUILDER_ROW_UNITS_H

#include "builder/read_units.h"

/* COLLECTIVE. Lists the units, which must be the same on all ranks; of a stream the first one.
 * *more: there is one. `status` and *err: this rank's result so far. */
rks_status rks_row_units_list(rks_group *group, rks_status status, rks_input *input,
                              const rks_parts *parts, bool *more, rks_error *err);
/* Reads a stream, beginning with the unit that is listed, if there is one, into this rank's shard.
 * *samples: those of the units that ended. */
rks_status rks_row_units_read(const rks_read_units *reading, rks_input *input, uint32_t ranks,
                              bool more, uint64_t *samples, rks_error *err);
/* COLLECTIVE, after a stream's end. Refuses streams of two ranks that are equal. */
rks_status rks_row_units_compare(rks_group *group, rks_status status, const rks_input *input,
                                 rks_error *err);

#endif
