/* SPDX-License-Identifier: Apache-2.0
 *
 * mds_type.h: the encodings of MDS's columns, and the values of their bytes.
 *
 *   bytes, jpeg, png       bytes
 *   str                    str
 *   json                   json
 *   int, int8 to float64   a little-endian number; int is int64
 *   str_int, str_float     int64, float64, as decimal text
 *   ndarray[:TYPE[:SHAPE]] an array: u8 type where the encoding has none; where it has no shape u8
 *                          4 * dimensions + w, sizes of 2^w bytes each; items
 *
 * pkl is refused: reading one would run what it holds. */
#ifndef RKS_INGEST_MDS_TYPE_H
#define RKS_INGEST_MDS_TYPE_H

#include "codec/npy.h"
#include "ingest/member_value.h"

typedef enum rks_mds_how {
    RKS_MDS_BYTES,
    RKS_MDS_STR,
    RKS_MDS_JSON,
    RKS_MDS_NUMBER,
    RKS_MDS_DECIMAL,
    RKS_MDS_ARRAY,
} rks_mds_how;

typedef struct rks_mds_type {
    rks_mds_how how;
    bool has_item, has_shape; /* of an array: the encoding says it */
    rks_npy array;            /* what it says; of a number it is all */
} rks_mds_type;

/* RKS_ERR_DATA says what is wrong, not where. */
rks_status rks_mds_type_parse(const char *encoding, rks_mds_type *type, rks_error *err);
/* The schema's type of these bytes; of arrays that have their shape with them the first dimension
 * is `*`. Where the encoding says all, `bytes` may be NULL. */
rks_status rks_mds_type_of(const rks_mds_type *type, const uint8_t *bytes, size_t size,
                           char name[128], rks_error *err);
/* As rks_member_value_make(). */
rks_status rks_mds_value(const rks_mds_type *type, const rks_column *column, uint8_t *bytes,
                         size_t size, rks_buffer *store, rks_member_value *made, rks_error *err);

#endif
