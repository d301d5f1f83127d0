/* SPDX-License-Identifier: Apache-2.0
 *
 * npy.h: the header of a .npy file (versions 1 to 3), and its items as they are stored here:
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

/* A header of more bytes is refused. */
enum { RKS_NPY_HEADER_MAX = 64 << 10 };

typedef struct rks_npy {
    const char *item; /* as a schema has it: "float32" */
    rks_kind kind;
    uint32_t item_size;
    bool swapped;  /* big-endian */
    bool typeless; /* V1 or V2, as float8 and bfloat16 are written: a schema says which they are */
    bool fortran;  /* the first dimension runs fastest */
    uint32_t dim_count;
    uint64_t dims[RKS_DIMS_MAX];
    uint64_t size; /* bytes of all items; no overflow */
    size_t begin;  /* of the items */
} rks_npy;

/* Of the file's first bytes, RKS_NPY_HEADER_MAX or all there are. RKS_ERR_DATA says what is wrong.
 */
rks_status rks_npy_parse(const uint8_t *bytes, size_t size, rks_npy *npy, rks_error *err);
/* The schema's type of an array of one sample: the first dimension is `*`, and each of 0. */
void rks_npy_type(const rks_npy *npy, char type[128]);
/* The same with all dimensions as they are. */
void rks_npy_fixed_type(const rks_npy *npy, char type[128]);
/* What the first axis holds: RKS_ERR_DATA where there is none, where it lies innermost (Fortran's
 * order) or where its rows take no bytes, or 4 GiB. */
rks_status rks_npy_row(const rks_npy *npy, rks_npy *row, rks_error *err);
/* RKS_ERR_DATA where only a schema can say what the items are. */
rks_status rks_npy_check_typed(const rks_npy *npy, rks_error *err);
/* The column's items are these. */
bool rks_npy_items_fit(const rks_npy *npy, const rks_column *column);
/* A value of the column may be this array. */
bool rks_npy_fits(const rks_npy *npy, const rks_column *column);
/* Brings npy->size bytes of items into the order that they are stored in, in place. */
rks_status rks_npy_arrange(const rks_npy *npy, uint8_t *items, rks_error *err);

/* Appends the header (version 1) of an array in C order. */
rks_status rks_npy_header(rks_kind kind, const uint64_t *dims, uint32_t dim_count,
                          rks_buffer *header, rks_error *err);

#endif
