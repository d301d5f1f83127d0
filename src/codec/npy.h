/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.h: the header of a .npy file (versions 1 to 3), and its items in our stored form:
 * little-endian, in C order. Objects, structures and text are refused: nothing is unpickled.
 *
 *   0  6  "\x93NUMPY"
 *   6  2  version
 *   8  2  bytes of the dictionary (4 from version 2 on)
 *   ...   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and spaces
 *   ...   items */
#ifndef RKS_CODEC_NPY_H
#define RKS_CODEC_NPY_H

#include "base/buffer.h"
#include "shard/schema.h"

/* Larger headers are refused. */
enum { RKS_NPY_HEADER_MAX = 64 << 10 };

typedef struct rks_npy {
    const char *item; /* as in a schema: "float32" */
    rks_kind kind;
    uint32_t item_size;
    bool swapped;  /* big-endian */
    bool typeless; /* V1 or V2, as float8 and bfloat16 are stored: the schema knows which */
    bool fortran;  /* Fortran order: the first dimension varies fastest */
    uint32_t dim_count;
    uint64_t dims[RKS_DIMS_MAX];
    uint64_t size; /* bytes of all items, checked for overflow */
    size_t begin;  /* offset of the items */
} rks_npy;

/* Parses a file's first bytes: RKS_NPY_HEADER_MAX of them, or all if there are fewer. RKS_ERR_DATA
 * says what is wrong. */
rks_status rks_npy_parse(const uint8_t *bytes, size_t size, rks_npy *npy, rks_error *err);
/* Prints the schema's type for an array of one sample: the first dimension, and each dimension of
 * 0, is `*`. */
void rks_npy_type(const rks_npy *npy, char type[128]);
/* Does the same, but keeps the first dimension unless it is 0. */
void rks_npy_fixed_type(const rks_npy *npy, char type[128]);
/* Describes one row along the first axis. RKS_ERR_DATA if there is no axis, if the array is in
 * Fortran order, or if its rows have no bytes or 4 GiB or more. */
rks_status rks_npy_row(const rks_npy *npy, rks_npy *row, rks_error *err);
/* Returns RKS_ERR_DATA if only a schema can say what the items are. */
rks_status rks_npy_check_typed(const rks_npy *npy, rks_error *err);
/* Returns true if the column's items have this type. */
bool rks_npy_items_fit(const rks_npy *npy, const rks_column *column);
/* Returns true if this array may be a value of the column. */
bool rks_npy_fits(const rks_npy *npy, const rks_column *column);
/* Converts npy->size bytes of items in place to our stored form. */
rks_status rks_npy_arrange(const rks_npy *npy, uint8_t *items, rks_error *err);

/* Appends the header (version 1) of an array in C order. */
rks_status rks_npy_header(rks_kind kind, const uint64_t *dims, uint32_t dim_count,
                          rks_buffer *header, rks_error *err);

#endif
