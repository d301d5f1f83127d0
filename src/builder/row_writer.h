/* SPDX-License-Identifier: Apache-2.0
 *
 * row_writer.h: writes rows that a rank brings one at a time, with their own keys, as one unit of a
 * dataset. For results that are gathered: inputs are read by build.c. */
#ifndef RKS_BUILDER_ROW_WRITER_H
#define RKS_BUILDER_ROW_WRITER_H

#include "builder/parts.h"

typedef struct rks_row_writer rks_row_writer;

/* COLLECTIVE. `status` and *err: this rank's result so far, as in rks_group_agree. The other
 * arguments are used only if it is RKS_OK. No other rank writes into `directory`. `words` describes
 * the keys. The caller owns *writer. */
rks_status rks_row_writer_open(rks_group *group, rks_status status, const char *directory,
                               const char *schema, const rks_key_words *words,
                               rks_row_writer **writer, rks_error *err);
/* Adds a row. It may be called again after a row was refused. */
rks_status rks_row_writer_add(rks_row_writer *writer, const rks_value *values, const void *key,
                              size_t key_size, rks_error *err);
uint32_t rks_row_writer_columns(const rks_row_writer *writer);
/* COLLECTIVE. Seals the parts and commits the dataset, or fails on all ranks with `status`. */
rks_status rks_row_writer_commit(rks_row_writer *writer, rks_status status, rks_error *err);
void rks_row_writer_close(rks_row_writer *writer); /* NULL is accepted */

#endif
