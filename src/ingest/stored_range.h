/* SPDX-License-Identifier: Apache-2.0
 *
 * stored_range.h: bytes of an object, which come on a thread of their own or on the caller's, and
 * the ranges that wait for a reader:
 *
 *   made ─► started, or fetched ─► read from ─► dropped
 *                    │                 │
 *                    └─────► kept ◄────┘   until a reader begins where the range begins
 *
 * Laws. Whoever has a range has it alone. One that is kept belongs to the stores, which drop it
 * when readers want its room; at most half of `input_bytes` is kept. All hold their room from the
 * moment when they are made: twice their size until their bytes have come, as a request holds them,
 * too. */
#ifndef RKS_INGEST_STORED_RANGE_H
#define RKS_INGEST_STORED_RANGE_H

#include <stdatomic.h>

#include "ingest/stored.h"

enum { RKS_RANGE_LEAST = 64 << 10 };

typedef struct rks_stored_range {
    rks_stored_root *root;
    char *path; /* the object's URL */
    char version[RKS_HOME_VERSION];
    uint64_t first, end;
    uint64_t room; /* taken for it */
    uint8_t *bytes;
    pthread_t thread;
    bool threaded; /* there is a thread to join */
    atomic_bool stop;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ended; /* guarded by the mutex */
    rks_status status;
    rks_error err;
    struct rks_stored_range *next; /* of those that are kept */
} rks_stored_range;

/* Makes a range from `first` on: of `size` bytes, or of as many as there are and find room, but at
 * least half of RKS_RANGE_LEAST. */
rks_status rks_range_make(rks_stored_root *root, const rks_input_file *file, uint64_t first,
                          uint64_t size, rks_stored_range **range, rks_error *err);
/* Fetches it on the caller's thread. RKS_ERR_DATA: the object is not the one that was listed. */
rks_status rks_range_fetch(rks_stored_range *range, rks_error *err);
/* Fetches it on a thread of its own. Returns false if there is none. */
bool rks_range_start(rks_stored_range *range);
/* Waits for a range that was started; gives its failure. */
rks_status rks_range_wait(rks_stored_range *range, rks_error *err);
/* Ends the fetch, and frees the range. NULL is accepted. */
void rks_range_drop(rks_stored_range *range);

/* Keeps a range, if there is room, else drops it. NULL is accepted. */
void rks_range_keep(rks_stored_range *range);
/* Takes the kept range that begins at `first`; NULL: there is none. */
rks_stored_range *rks_range_take(const rks_stored_root *root, const rks_input_file *file,
                                 uint64_t first);
bool rks_range_is_kept(const rks_stored_root *root, const rks_input_file *file, uint64_t first);
/* Starts to fetch the bytes [first, end) that are not kept, and keeps them. Does nothing if there
 * is no room. */
void rks_range_ahead(rks_stored_root *root, const rks_input_file *file, uint64_t first,
                     uint64_t end);
void rks_range_drop_kept(rks_stores *stores);

#endif
