/* SPDX-License-Identifier: Apache-2.0
 *
 * npz_array.h: the arrays of an .npz file, which is a zip of .npy members, and their items.
 *
 * Each array that is read has its own walk through the zip, since rows of all arrays are needed at
 * once but members lie one after the other. */
#ifndef RKS_INGEST_NPZ_ARRAY_H
#define RKS_INGEST_NPZ_ARRAY_H

#include "base/buffer.h"
#include "codec/archive.h"
#include "codec/npy.h"

/* Each column has an array, and three more if its items vary in size and may be missing. */
enum { RKS_NPZ_ARRAYS_MAX = 4 * RKS_COLUMNS_MAX };

typedef struct rks_npz_array {
    char *name;      /* name of the member, without .npy */
    uint64_t member; /* the member's place in the zip */
    rks_npy npy;
    rks_error refused; /* why it cannot be read, with file and member; status RKS_OK if it can */
} rks_npz_array;

typedef struct rks_npz {
    const rks_input_file *file;
    rks_npz_array *arrays; /* in the order of their positions */
    size_t count;
} rks_npz;

/* Returns true for a zip whose first member is called NAME.npy, in no folder. */
bool rks_npz_looks_like(const uint8_t *bytes, size_t size, bool all);

/* Reads the headers of all members. Hostile names, a name twice and more than max_total are
 * RKS_ERR_DATA. Close it also on failure. */
rks_status rks_npz_open(rks_npz *npz, const rks_input_file *file, rks_error *err);
void rks_npz_close(rks_npz *npz);
/* Finds the array called `name` followed by `ending`; NULL if there is none. */
const rks_npz_array *rks_npz_find(const rks_npz *npz, const char *name, const char *ending);

/* Start with {0}. */
typedef struct rks_npz_items {
    const rks_input_file *file;
    const rks_npz_array *array;
    rks_archive *archive;
    rks_buffer window;
    size_t at;     /* position of the next item in the window */
    uint64_t left; /* bytes of items after the window */
} rks_npz_items;

/* Opens the items of an array that is not refused. Close it also on failure. */
rks_status rks_npz_items_open(rks_npz_items *items, const rks_npz *npz, const rks_npz_array *array,
                              rks_error *err);
/* Gets the next `size` bytes, of whole items, in our stored form; aligned to an item, valid until
 * the next call. There must be that many. */
rks_status rks_npz_items_take(rks_npz_items *items, size_t size, uint8_t **bytes, rks_error *err);
rks_status rks_npz_items_skip(rks_npz_items *items, uint64_t size, rks_error *err);
/* Checks after the last item that nothing follows and that the member's checksum is right. */
rks_status rks_npz_items_end(rks_npz_items *items, rks_error *err);
void rks_npz_items_close(rks_npz_items *items);

#endif
