/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: the payload of a sample: its columns in the stored layout (the picture is in record.c).
 */
#ifndef RKS_SHARD_RECORD_H
#define RKS_SHARD_RECORD_H

#include "base/buffer.h"
#include "shard/schema.h"

/* Checks the values against the schema (naming the column) and appends the payload to *payload.
 * *align is 64 where a column of 4 KiB and more is in it, else 8: the payload's place in the file.
 * *plain is the sum of the column bytes. str and json must be UTF-8. */
rks_status rks_record_encode(const rks_schema *schema, const rks_value *values, rks_buffer *payload,
                             uint32_t *align, uint64_t *plain, rks_error *err);

/* The same in two steps, for a caller that has the room: first all checks and sizes, */
rks_status rks_record_measure(const rks_schema *schema, const rks_value *values, uint64_t *size,
                              uint32_t *align, uint64_t *plain, rks_error *err);
/* then exactly that many bytes, of values that passed. */
void rks_record_write(const rks_schema *schema, const rks_value *values, uint8_t *payload);

/* Points `values` (one a column) into the payload. The bytes are hostile: every bound is checked.
 * Text is not looked at again: what is str was UTF-8 when it was written. A missing value has data
 * NULL; an empty one points into the payload. */
rks_status rks_record_decode(const rks_schema *schema, const uint8_t *payload, size_t size,
                             rks_value *values, rks_error *err);

/* The columns that a reader needs: from the first one to the last, worked out once. */
typedef struct rks_record_pick {
    const rks_schema *schema;
    uint32_t first, end;          /* columns to be walked over: [first, end) */
    uint32_t dims_size, nullable; /* of the whole schema */
    size_t prefix;                /* bytes before the columns */
    uint64_t at;                  /* where column `first` begins, before it is aligned */
    const int32_t *to; /* NULL: column i is values[i]; else values[to[i]], or nothing below 0 */
} rks_record_pick;

/* Of columns [first, last]; the schema must outlive it. */
rks_record_pick rks_record_pick_columns(const rks_schema *schema, uint32_t first, uint32_t last);
/* rks_record_decode for these columns: fills values[first] to values[last], and perhaps some before
 * them; bounds of columns behind are not looked at. */
rks_status rks_record_decode_picked(const rks_record_pick *pick, const uint8_t *payload,
                                    size_t size, rks_value *values, rks_error *err);

/* Records of one schema read as records of another one, `as`: a column is found by its name, and
 * one that they lack is missing. */
typedef struct rks_record_fit {
    rks_record_pick pick; /* all columns */
    int32_t *to;
    uint32_t columns; /* of `as` */
} rks_record_fit;
/* `own` must outlive the fit. */
rks_status rks_record_fit_create(const rks_schema *own, const rks_schema *as, rks_record_fit *fit,
                                 rks_error *err);
void rks_record_fit_free(rks_record_fit *fit);
/* Fills values[0 .. columns of `as`). */
rks_status rks_record_decode_fit(const rks_record_fit *fit, const uint8_t *payload, size_t size,
                                 rks_value *values, rks_error *err);

#endif
