/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/schema.h: columns, samples, and conditions on them. Part of rankstore.h. */
#ifndef RANKSTORE_SCHEMA_H
#define RANKSTORE_SCHEMA_H

#include "rankstore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- schema and samples ---------------------------------------------------------------------- */

/* A sample is a flat record of named, typed columns. A type is one of
 *     bool int8..int64 uint8..uint64 float16 float32 float64 bfloat16
 *     float8_e4m3fn float8_e5m2 complex64, alone (a scalar) or with dimensions:
 *     int32[*]   float16[80,*]   uint8[*,*,3]          at most RKS_DIMS_MAX of them
 *     str   bytes   json                               (sizes in bytes)
 * with `?` behind it if a value may be missing ("int64?"). `*` may differ from sample
 * to sample. Data is little-endian, row-major, without gaps. */
typedef struct rks_schema rks_schema;

enum { RKS_DIMS_MAX = 8, RKS_COLUMNS_MAX = 1024, RKS_KEY_MAX = 511 };

/* `text`: a JSON object {"name": "type", ...} or the short form "name:type,name:type".
 * The order is kept. Names: 1 to 255 bytes of UTF-8 without control characters.
 * RKS_ERR_ARGUMENT names the column. The caller owns *schema. */
RKS_API rks_status rks_schema_parse(const char *text, rks_schema **schema, rks_error *err);
RKS_API void rks_schema_free(rks_schema *schema); /* NULL is accepted */
RKS_API uint32_t rks_schema_columns(const rks_schema *schema);
RKS_API const char *rks_schema_name(const rks_schema *schema, uint32_t column); /* as schema */
RKS_API const char *rks_schema_type(const rks_schema *schema, uint32_t column); /* "int32[*]" */
/* -1 if there is none. */
RKS_API int rks_schema_find(const rks_schema *schema, const char *name);
/* The canonical JSON object. Valid as long as the schema. */
RKS_API const char *rks_schema_text(const rks_schema *schema);

/* One column of one sample. `data` NULL: missing (nullable columns only). */
typedef struct rks_value {
    const void *data;
    uint64_t size;               /* bytes */
    uint32_t dims[RKS_DIMS_MAX]; /* sizes of all dimensions; unused ones 0. At `add` a type with
                                  * one `*` may leave them 0: size says it */
} rks_value;

/* A value of `column` as JSON text, as rks_store_export writes it in jsonl: bytes, and a str that is
 * no UTF-8, as {"base64": "..."}; NaN, infinities and integers above 2^63 - 1 as strings; numbers in
 * as few digits as give the same value of their type back; a missing value as null. value->dims has
 * all sizes, as those of rks_batch_value have. RKS_ERR_ARGUMENT for a column out of range, or a size
 * that does not fit dims; RKS_ERR_DATA for a json value that is no JSON. Free *text with
 * rks_release. */
RKS_API rks_status rks_value_json(const rks_schema *schema, uint32_t column, const rks_value *value,
                                  char **text, rks_error *err);

/* The number in a scalar of a float type: float16, bfloat16, float8_e4m3fn, float8_e5m2, float32 or
 * float64, exactly. `item` has the type's size, at any alignment. RKS_ERR_ARGUMENT: another type.
 */
RKS_API rks_status rks_float_read(const char *type, const void *item, double *number,
                                  rks_error *err);

/* A sample as callbacks and readers see it. */
typedef struct rks_sample {
    const rks_schema *schema;
    const rks_value *values; /* rks_schema_columns() of them */
    const void *key;
    size_t key_size;
    uint32_t length; /* 0 before the length function has run */
} rks_sample;

/* Callbacks return 1 to keep and 0 to drop a sample; negative is an error on all ranks, with
 * the text that the callback left in *err. They run in the thread that builds. */
typedef int (*rks_filter_fn)(void *user, const rks_sample *sample, rks_error *err);
typedef rks_status (*rks_length_fn)(void *user, const rks_sample *sample, uint64_t *length,
                                    rks_error *err);

/* `sample` is valid during the call; its key is the one that rks_build would give it, also where it
 * would be derived. `row` counts from 0 in the sample's file. A failure ends the unit, with the
 * row's place in front of its text. */
typedef rks_status (*rks_read_fn)(void *user, const rks_sample *sample, uint64_t row,
                                  rks_error *err);

/* ---- where: conditions on a sample's columns ------------------------------------------------- */

/* As a build's `where`: "COLUMN OP VALUE [and ...]", OP one of == != < <= > >=. A column's name or
 * a value with spaces is written in quotes; `null` is a missing value. RKS_ERR_ARGUMENT names the
 * column, or the place in the text (from 1). The schema must outlive *where, which the caller
 * owns. */
typedef struct rks_where rks_where;
RKS_API rks_status rks_where_parse(const rks_schema *schema, const char *text, rks_where **where,
                                   rks_error *err);
/* Do all conditions hold? `values` has one entry a column of the schema. Any threads. RKS_ERR_DATA:
 * a value whose size does not fit its type. */
RKS_API rks_status rks_where_test(const rks_where *where, const rks_value *values, bool *keep,
                                  rks_error *err);
RKS_API void rks_where_free(rks_where *where); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
