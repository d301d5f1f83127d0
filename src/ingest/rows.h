/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: the input that a program makes (rks_input_ops), as the input of a build.
 *
 * Each unit stands for a file with the unit's name and no bytes, so row numbers and derived keys
 * are those of files. The units of a stream are found one at a time: the input holds only the one
 * that is read now, as unit 0. */
#ifndef RKS_INGEST_ROWS_H
#define RKS_INGEST_ROWS_H

#include "base/buffer.h"
#include "ingest/unit.h"
#include "rankstore/input.h"

enum { RKS_IDENTITY_MAX = 128 }; /* bytes of rks_scan.identity */

/* Makes an input without units. `ops` must outlive it. It does not close `object`. */
rks_status rks_rows_open(const rks_input_ops *ops, void *object, rks_input **input, rks_error *err);
/* What `scan` gets to know of the dataset. */
void rks_rows_set_base(rks_input *input, const char *base, uint64_t generation);
/* Lists the units, or of a stream the next one, whose number is `number`. *found: there is one. */
rks_status rks_rows_scan(rks_input *input, uint64_t number, bool *found, rks_error *err);
/* Reads the stream's unit past: its rows are dropped. */
rks_status rks_rows_pass(const rks_input *input, const rks_schema *schema, rks_error *err);

bool rks_input_is_rows(const rks_input *input);
/* After a scan. */
rks_stream_kind rks_rows_stream(const rks_input *input);
const char *rks_rows_identity(const rks_input *input);
/* The digest of the kind of input and of the names and weights of all units. */
rks_status rks_rows_digest(const rks_input *input, rks_digest *digest, rks_error *err);

/* Sets the options of an input whose rows have their own length. */
void rks_rows_own_lengths(const rks_input *input, rks_length_fn *length_fn, void **user);

#endif
