/* SPDX-License-Identifier: Apache-2.0
 *
 * npz_array.h: the arrays of an .npz file, a zip of .npy members, and their items from the first
 * on.
 *
 * Each array that is read has its own walk through the zip: rows of all arrays are wanted at once,
 * and members lie one behind the other. */
#ifndef RKS_INGEST_NPZ_ARRAY_H
#define RKS_INGEST_NPZ_ARRAY_H

#include "base/buffer.h"
#include "codec/archive.h"
#include "codec/npy.h"

/* An array a column, and three more where its items vary and may be missing. */
enum { RKS_NPZ_ARRAYS_MAX = 4 * RKS_COLUMNS_MAX };

typedef struct rks_npz_array {
    char *name;      /* of the member, without .npy */
    uint64_t member; /* its place in the zip */
    rks_npy npy;
    rks_error refused; /* why it cannot be read, with file and member; status RKS_OK: it can */
} rks_npz_array;

typedef struct rks_npz {
    const rks_input_file *file;
    rks_npz_array *arrays; /* in the order of their bytes */
    size_t count;
} rks_npz;

/* A zip whose first member is called NAME.npy, in no folder. */
bool rks_npz_looks_like(const uint8_t *bytes, size_t size, bool all);

/* Reads the headers of all members. Hostile names, a name twice and more than max_total are
 * RKS_ERR_DATA. To be closed in every case. */
rks_status rks_npz_open(rks_npz *npz, const rks_input_file *file, rks_error *err);
void rks_npz_close(rks_npz *npz);
/* The array NAME followed by `ending`; NULL where there is none. */
const rks_npz_array *rks_npz_find(const rks_npz *npz, const char *name, const char *ending);

/* Begins as {0}. */
typedef struct rks_npz_items {
    const rks_input_file *file;
    const rks_npz_array *array;
    rks_archive *archive;
    rks_buffer window;
    size_t at;     /* of the next item in the window */
    uint64_t left; /* bytes of items that are not in the window yet */
} rks_npz_items;

/* Of an array that is not refused. To be closed in every case. */
rks_status rks_npz_items_open(rks_npz_items *items, const rks_npz *npz, const rks_npz_array *array,
                              rks_error *err);
/* The next `size` bytes, of whole items, as they are stored here; aligned to an item, valid until
 * the next call. There must be as many. */
rks_status rks_npz_items_take(rks_npz_items *items, size_t size, uint8_t **bytes, rks_error *err);
rks_status rks_npz_items_skip(rks_npz_items *items, uint64_t size, rks_error *err);
/* Behind the last item: nothing follows, and the member's checksum is right. */
rks_status rks_npz_items_end(rks_npz_items *items, rks_error *err);
void rks_npz_items_close(rks_npz_items *items);

#endif
