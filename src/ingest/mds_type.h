/* SPDX-License-Identifier: Apache-2.0
 *
 * mds_type.h: the encodings of MDS columns, and the values of their bytes.
 *
 *   bytes, jpeg, png       bytes
 *   str                    str
 *   json                   json
 *   int, int8 to float64   a little-endian number; int is int64
 *   str_int, str_float     int64, float64, as decimal text
 *   ndarray[:TYPE[:SHAPE]] an array: u8 type if the encoding has none; if it has no shape, u8
 *                          4 * dimensions + w, then sizes of 2^w bytes each; items
 *
 * pkl is refused: reading a pickle would run code in it. */
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
    bool has_item, has_shape; /* for an array: the encoding has it */
    rks_npy array;            /* what the encoding says; for a number, all there is */
} rks_mds_type;

/* Parses an encoding. RKS_ERR_DATA says what is wrong, but not where. */
rks_status rks_mds_type_parse(const char *encoding, rks_mds_type *type, rks_error *err);
/* Gets the schema's type for these bytes. If an array holds its own shape, the first dimension is
 * `*`. If the encoding says everything, `bytes` may be NULL. */
rks_status rks_mds_type_of(const rks_mds_type *type, const uint8_t *bytes, size_t size,
                           char name[128], rks_error *err);
/* Like rks_member_value_make(). */
rks_status rks_mds_value(const rks_mds_type *type, const rks_column *column, uint8_t *bytes,
                         size_t size, rks_buffer *store, rks_member_value *made, rks_error *err);

#endif
