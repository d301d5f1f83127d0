/* SPDX-License-Identifier: Apache-2.0
 *
 * member_value.h: converts a member's bytes to the value of a column. */
#ifndef RKS_INGEST_MEMBER_VALUE_H
#define RKS_INGEST_MEMBER_VALUE_H

#include "base/buffer.h"
#include "shard/schema.h"

/* Where the value's bytes lie: in `bytes` (npy arrays are converted there), or in the store from
 * `place` on; the store may still move. */
typedef struct rks_member_value {
    rks_value value; /* data is set if it lies in `bytes` */
    bool stored;
    size_t place;
} rks_member_value;

/* Converts by the column's type and, for numbers, by the last part of the member's ending.
 * RKS_ERR_DATA names the column. `bytes` must be aligned to 8. */
rks_status rks_member_value_make(const rks_column *column, const char *ending, uint8_t *bytes,
                                 size_t size, rks_buffer *store, rks_member_value *made,
                                 rks_error *err);

#endif
