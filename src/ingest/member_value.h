/* SPDX-License-Identifier: Apache-2.0
 *
 * member_value.h: a member's bytes as the value of a column. */
#ifndef RKS_INGEST_MEMBER_VALUE_H
#define RKS_INGEST_MEMBER_VALUE_H

#include "base/buffer.h"
#include "shard/schema.h"

/* Where the value's bytes are: in `bytes` themselves (which npy's are changed in), or from `place`
 * on in the store, which may still move. */
typedef struct rks_member_value {
    rks_value value; /* data is set where it is in `bytes` */
    bool stored;
    size_t place;
} rks_member_value;

/* By the column's type, and by the last part of the member's ending where numbers are written in
 * several ways. RKS_ERR_DATA names the column. `bytes` are at a place divisible by 8. */
rks_status rks_member_value_make(const rks_column *column, const char *ending, uint8_t *bytes,
                                 size_t size, rks_buffer *store, rks_member_value *made,
                                 rks_error *err);

#endif
