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
 * with `?` after it if a value may be missing ("int64?"). `*` may differ from sample
 * to sample. What integers stand for may follow the item: int32(date), days since 1970; and
 *     int64(timestamp_us)  int64(timestamp_us_utc)     since 1970, without a zone and in UTC
 *     int64(time_us)       int64(duration_us)          since midnight; a length of time
 * in s, ms, us or ns. They are read and written as the numbers that they are. Data is
 * little-endian, row-major, without gaps. */
typedef struct rks_schema rks_schema;

enum { RKS_DIMS_MAX = 8, RKS_COLUMNS_MAX = 1024, RKS_KEY_MAX = 511 };
/* The most bytes of a sample's columns: 64 KiB less than 2 GiB, which is what one write can be. */
#define RKS_SAMPLE_MAX UINT64_C(2147418112)

/* `text`: a JSON object {"name": "type", ...} or the short form "name:type,name:type".
 * The order is kept. Names: 1 to 255 bytes of UTF-8 without control characters.
 * RKS_ERR_ARGUMENT names the column. The caller owns *schema. */
RKS_API rks_status rks_schema_parse(const char *text, rks_schema **schema, rks_error *err);
RKS_API void rks_schema_free(rks_schema *schema); /* NULL is accepted */
RKS_API uint32_t rks_schema_columns(const rks_schema *schema);
RKS_API const char *rks_schema_name(const rks_schema *schema, uint32_t column); /* as schema */
RKS_API const char *rks_schema_type(const rks_schema *schema, uint32_t column); /* "int32[*]" */
/* Returns a column's number; -1 if the schema has no such column. */
RKS_API int rks_schema_find(const rks_schema *schema, const char *name);
/* Returns the schema as a canonical JSON object. Valid as long as the schema. */
RKS_API const char *rks_schema_text(const rks_schema *schema);

/* What the items of a type are. */
typedef enum rks_item_class {
    RKS_CLASS_BOOL,
    RKS_CLASS_INT, /* signed */
    RKS_CLASS_UINT,
    RKS_CLASS_FLOAT,
    RKS_CLASS_COMPLEX,
    RKS_CLASS_STR,
    RKS_CLASS_BYTES,
    RKS_CLASS_JSON,
} rks_item_class;

typedef struct rks_type_info {
    size_t struct_size;
    const char *item; /* "float16": the type without dimensions and `?`; never freed */
    rks_item_class item_class;
    uint32_t item_size;          /* bytes; 1 for str, bytes and json */
    uint32_t dim_count;          /* 0: a scalar; 1 for str, bytes and json, which have one `*` */
    uint32_t dims[RKS_DIMS_MAX]; /* 0 for `*`; unused ones 0 */
    uint32_t variable_dims;      /* how many are `*` */
    uint32_t unit;               /* bytes: item_size times all fixed dimensions */
    bool nullable;
    const char *numpy;   /* the items as NumPy's array interface names them: "<f2". bfloat16 and
                          * float8, which NumPy lacks: unsigned integers of their size. Never freed */
    const char *meaning; /* what integers stand for: "timestamp_us"; NULL: numbers. Never freed */
} rks_type_info;
/* Describes a type, such as one of rks_schema_type ("float16[80,*]?"). Set struct_size first; no
 * more bytes than that are written. RKS_ERR_ARGUMENT: `type` is not a type. */
RKS_API rks_status rks_type_describe(const char *type, rks_type_info *info, rks_error *err);
/* Returns the name of item type `i`, from 0: "bool", "int8", ... NULL after the last. */
RKS_API const char *rks_type_item(size_t i);

/* One column of one sample. `data` NULL: missing (nullable columns only). */
typedef struct rks_value {
    const void *data;
    uint64_t size;               /* bytes */
    uint32_t dims[RKS_DIMS_MAX]; /* sizes of all dimensions; unused ones 0. At `add` a type with
                                  * one `*` may leave them 0: size says it */
} rks_value;

/* Returns a value of `column` as JSON text, like jsonl of rks_store_export. Bytes, and a str that
 * is not UTF-8, are {"base64": "..."}. NaN, infinities and integers above 2^63 - 1 are strings.
 * Numbers have the fewest digits that give the same value of their type. A missing value is null.
 * value->dims has all sizes, as from rks_batch_value. RKS_ERR_ARGUMENT: column out of range, or a
 * size that does not fit dims. RKS_ERR_DATA: a json value that is not JSON. Free *text with
 * rks_release. */
RKS_API rks_status rks_value_json(const rks_schema *schema, uint32_t column, const rks_value *value,
                                  char **text, rks_error *err);

/* Converts a scalar of a float type exactly: float16, bfloat16, float8_e4m3fn, float8_e5m2, float32
 * or float64. `item` has the type's size, at any alignment. RKS_ERR_ARGUMENT for another type. */
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

/* ---- where: conditions on a sample's columns ------------------------------------------------- */

/* Parses a condition like a build's `where`: "COLUMN OP VALUE [and ...]", OP one of == != < <= >
 * >=. Write a name or value with spaces in quotes; `null` is a missing value. RKS_ERR_ARGUMENT
 * names the column, or the place in the text (from 1). The schema must outlive *where. The caller
 * owns *where. */
typedef struct rks_where rks_where;
RKS_API rks_status rks_where_parse(const rks_schema *schema, const char *text, rks_where **where,
                                   rks_error *err);
/* Tests whether all conditions hold. `values` has one entry for each column of the schema. Any
 * thread. RKS_ERR_DATA if the size of a value does not fit its type. */
RKS_API rks_status rks_where_test(const rks_where *where, const rks_value *values, bool *keep,
                                  rks_error *err);
RKS_API void rks_where_free(rks_where *where); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
