/* SPDX-License-Identifier: Apache-2.0
 *
 * schema.h: columns and their types. rankstore.h has the public part. */
#ifndef RKS_SHARD_SCHEMA_H
#define RKS_SHARD_SCHEMA_H

#include "rankstore/schema.h"

typedef enum rks_kind {
    RKS_KIND_BOOL,
    RKS_KIND_INT8,
    RKS_KIND_INT16,
    RKS_KIND_INT32,
    RKS_KIND_INT64,
    RKS_KIND_UINT8,
    RKS_KIND_UINT16,
    RKS_KIND_UINT32,
    RKS_KIND_UINT64,
    RKS_KIND_FLOAT16,
    RKS_KIND_FLOAT32,
    RKS_KIND_FLOAT64,
    RKS_KIND_BFLOAT16,
    RKS_KIND_FLOAT8_E4M3FN,
    RKS_KIND_FLOAT8_E5M2,
    RKS_KIND_COMPLEX64,
    RKS_KIND_STR,
    RKS_KIND_BYTES,
    RKS_KIND_JSON,
} rks_kind;

/* All that is known of the kinds, by kind; the public rks_type_info explains the fields. */
typedef struct rks_kind_info {
    const char *name;
    rks_item_class item_class;
    uint32_t size;
    const char *numpy;
} rks_kind_info;
enum { RKS_KINDS = RKS_KIND_JSON + 1 };
extern const rks_kind_info rks_kinds[RKS_KINDS];

/* Finds the kind of a type's name without dimensions ("float16", of `size` bytes). Returns false if
 * there is no such type. */
bool rks_kind_find(const char *name, size_t size, rks_kind *kind);

static inline bool rks_kind_is_integer(rks_kind kind)
{
    rks_item_class item_class = rks_kinds[kind].item_class;
    return item_class == RKS_CLASS_INT || item_class == RKS_CLASS_UINT;
}

/* Returns false for complex64. */
static inline bool rks_kind_is_float(rks_kind kind)
{
    return rks_kinds[kind].item_class == RKS_CLASS_FLOAT;
}

/* Returns true for str, bytes and json: values of any size, counted in bytes. */
static inline bool rks_kind_is_text(rks_kind kind)
{
    return rks_kinds[kind].item_class >= RKS_CLASS_STR;
}

/* Returns true for bfloat16 and float8: NumPy sees their bits. */
static inline bool rks_kind_is_bits(rks_kind kind)
{
    return rks_kind_is_float(kind) && rks_kinds[kind].numpy[1] == 'u';
}

typedef struct rks_column {
    const char *name;
    rks_kind kind;
    uint32_t item_size;          /* bytes; 1 for str, bytes, json */
    uint32_t dim_count;          /* 0 for a scalar; 1 (variable) for str, bytes, json */
    uint32_t dims[RKS_DIMS_MAX]; /* 0 for `*` */
    uint32_t variable_dims;      /* number of `*` */
    uint32_t unit;               /* bytes: item_size times the fixed dimensions */
    uint32_t dims_before;        /* variable dimensions of the columns before it */
    uint32_t nulls_before;       /* nullable columns before it */
    bool nullable;
    const char *meaning; /* what integers stand for: "timestamp_us"; NULL: numbers */
    char type[128];      /* canonical: "float16[80,*]?" */
} rks_column;

const rks_column *rks_schema_column(const rks_schema *schema, uint32_t column);
/* Returns true if the column may be in the index: a scalar integer or float that is never missing.
 */
bool rks_column_indexable(const rks_column *column);
/* Returns the column that lengths count if a build does not say: the first array of variable size;
 * else the first str, bytes or json except "__key__", which names a sample and measures nothing;
 * else the first array of fixed size; else "__key__". Never the column `key` (NULL: none is the
 * key). NULL if there is none: then each sample has length 1. */
const rks_column *rks_schema_length(const rks_schema *schema, const char *key);
/* Returns the one of datasets that do not record it: the same, but arrays, str, bytes and json of
 * variable size are all alike. */
const rks_column *rks_schema_unrecorded_length(const rks_schema *schema, const char *key);
/* Finds the columns that are to be in the index; `columns` may be NULL. RKS_ERR_ARGUMENT names one
 * that is not in the schema, cannot be in the index, or appears twice. */
rks_status rks_schema_index(const rks_schema *schema, const char *const *names, size_t count,
                            uint32_t *columns, rks_error *err);

/* Makes a schema of the columns that are not among `names`. RKS_ERR_ARGUMENT if none is left. Free
 * with rks_schema_free. */
rks_status rks_schema_without(const rks_schema *schema, const char *const *names, size_t count,
                              rks_schema **made, rks_error *err);
/* Makes a schema with further columns of one type at the end. Free with rks_schema_free. */
rks_status rks_schema_with(const rks_schema *schema, const char *const *names, size_t count,
                           const char *type, rks_schema **made, rks_error *err);

/* Makes a str, bytes or json value; it points to `bytes`. */
static inline rks_value rks_blob_value(const void *bytes, size_t size)
{
    return (rks_value){.data = bytes, .size = size, .dims = {(uint32_t)size}};
}

#endif
