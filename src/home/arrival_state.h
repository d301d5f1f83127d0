/* SPDX-License-Identifier: Apache-2.0
 *
 * arrival_state.h: what an arrival knows, for its own files: arrival.c, its files from beginning to
 * end; arrival_pieces.c, what comes into them. */
#ifndef RKS_HOME_ARRIVAL_STATE_H
#define RKS_HOME_ARRIVAL_STATE_H

#include <stdatomic.h>

#include "home/arrival.h"
#include "home/known_version.h"

/* A part of the head, and the manifest's word for its bytes. */
typedef struct head_part {
    uint64_t first, end;
    bool is_segment; /* `check` counts, else `digest` */
    uint64_t check;
    rks_digest digest;
} head_part;

struct rks_arrival {
    rks_home *home;           /* NULL: there is none */
    _Atomic(rks_home *) from; /* the holder; home once that has failed */
    char *directory, *name;
    char *file;      /* of NAME.arriving */
    char *home_file; /* "NAME.rks", as home has it */
    rks_digest manifest;
    uint64_t size;
    rks_digest sums_digest;
    head_part *head; /* by offset */
    size_t head_count;
    atomic_bool head_here;
    rks_digest *sums;
    rks_pieces *pieces;
    int fd;
    bool sparse;               /* takes no room ahead */
    bool whole;                /* another process has finished it meanwhile */
    rks_known_version version; /* of the shard's file at home */
};

/* From where it comes: a name for messages. */
static inline const char *rks_arrival_source(const rks_arrival *a)
{
    return atomic_load(&a->from)->name;
}

/* As rks_arrival_read, without a copy; give *loan back. */
rks_status rks_arrival_borrow(rks_arrival *a, uint64_t first, uint64_t end, rks_home_loan *loan,
                              rks_error *err);
/* Returns true if a failed read is to be made again from home, as `from` was the holder. */
bool rks_arrival_turns_home(rks_arrival *a, rks_home *from, rks_status status);

#endif
