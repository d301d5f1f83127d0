/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: the payload of a sample: its columns in the stored layout, which record.c draws. */
#ifndef RKS_SHARD_RECORD_H
#define RKS_SHARD_RECORD_H

#include "base/buffer.h"
#include "shard/schema.h"

/* Checks the values against the schema and appends the payload to *payload. Errors name the column.
 * *align is the payload's alignment in the file: 64 if a column has 4 KiB or more, else 8. *plain
 * is the sum of the column bytes. str and json must be UTF-8. */
rks_status rks_record_encode(const rks_schema *schema, const rks_value *values, rks_buffer *payload,
                             uint32_t *align, uint64_t *plain, rks_error *err);

/* The same in two steps, for a caller that has the room. Step 1 makes all checks and computes the
 * sizes. */
rks_status rks_record_measure(const rks_schema *schema, const rks_value *values, uint64_t *size,
                              uint32_t *align, uint64_t *plain, rks_error *err);
/* Step 2 writes exactly that many bytes, of values that passed step 1. */
void rks_record_write(const rks_schema *schema, const rks_value *values, uint8_t *payload);

/* Points `values` (one a column) into the payload. The bytes may be hostile: every bound is
 * checked. UTF-8 is not checked again: it was when the value was written. A missing value has data
 * NULL; an empty one points into the payload. */
rks_status rks_record_decode(const rks_schema *schema, const uint8_t *payload, size_t size,
                             rks_value *values, rks_error *err);

/* Which columns a reader needs, from the first to the last; computed once. */
typedef struct rks_record_pick {
    const rks_schema *schema;
    uint32_t first, end;          /* columns to walk over: [first, end) */
    uint32_t dims_size, nullable; /* of the whole schema */
    size_t prefix;                /* bytes before the columns */
    uint64_t at;                  /* where column `first` starts, before alignment */
    const int32_t *to; /* values[to[i]] takes column i; none if to[i] < 0. NULL: values[i] */
} rks_record_pick;

/* Picks columns [first, last]. The schema must outlive the pick. */
rks_record_pick rks_record_pick_columns(const rks_schema *schema, uint32_t first, uint32_t last);
/* Like rks_record_decode, but only fills values[first] to values[last], and perhaps some before
 * them. Does not check the bounds of columns after `last`. */
rks_status rks_record_decode_picked(const rks_record_pick *pick, const uint8_t *payload,
                                    size_t size, rks_value *values, rks_error *err);

/* Reads records of one schema as records of another one, `as`. Columns are matched by name; a
 * column that the record lacks is missing. */
typedef struct rks_record_fit {
    rks_record_pick pick; /* all columns */
    int32_t *to;
    uint32_t columns; /* of `as` */
} rks_record_fit;
/* Makes a fit. `own` must outlive it. */
rks_status rks_record_fit_create(const rks_schema *own, const rks_schema *as, rks_record_fit *fit,
                                 rks_error *err);
void rks_record_fit_free(rks_record_fit *fit);
/* Fills values[0 .. columns of `as`). */
rks_status rks_record_decode_fit(const rks_record_fit *fit, const uint8_t *payload, size_t size,
                                 rks_value *values, rks_error *err);

#endif
