/* SPDX-License-Identifier: Apache-2.0
 *
 * resident.h: which pieces of a mapped file are known to be in memory, and asking the disk for
 * those that are not.
 *
 * A file is looked at by pieces of 1 MiB. A piece that was found in memory whole counts as resident
 * until somebody says that it is not: reading it costs one load. The kernel may drop its pages
 * meanwhile; a reader that waits for the disk notices (its major faults) and calls
 * rks_resident_forget. A piece that was not whole is looked at again only after many reads of it.
 *
 * mincore() tells the truth only to who may write to the file or owns it, and calls all else
 * resident. For other files a byte of each page is read with RWF_NOWAIT, which waits for no disk.
 *
 * Any number of threads; what they find is advice, never trusted for what is read. */
#ifndef RKS_BASE_RESIDENT_H
#define RKS_BASE_RESIDENT_H

#include "base/guarded_map.h"

enum { RKS_RESIDENT_PIECE = 1 << 20 };

typedef struct rks_resident rks_resident;

/* `fd` is the map's file and may be closed then. The map and `path` must outlive it. */
rks_status rks_resident_open(int fd, const char *path, const rks_guarded_map *map,
                             rks_resident **resident, rks_error *err);
void rks_resident_close(rks_resident *resident); /* NULL is accepted */

/* Bytes [first, end) are read here and there: a fault reads its own page and no others. False: in
 * the order of the file, with the system's read-ahead. */
void rks_resident_expect_random(const rks_resident *resident, uint64_t first, uint64_t end,
                                bool random);

/* Are bytes [first, end) in memory, as far as is known? May look, which takes microseconds for a
 * piece that nobody looked at. */
bool rks_resident_has(rks_resident *resident, uint64_t first, uint64_t end);

/* Looks at up to *budget pieces from where it stopped the last time, and takes from *budget how
 * many it looked at. */
typedef enum rks_resident_state {
    RKS_RESIDENT_ALL,     /* the whole file is in memory */
    RKS_RESIDENT_SOME,    /* a piece is not */
    RKS_RESIDENT_UNKNOWN, /* not all of it was looked at yet */
} rks_resident_state;
rks_resident_state rks_resident_scan(rks_resident *resident, size_t *budget);

/* Starts reading bytes [first, end) from the disk, without waiting for them. */
void rks_resident_ask(const rks_resident *resident, uint64_t first, uint64_t end);
/* The same for bytes that are read now. If they follow those of the last call, the bytes behind
 * them are asked for, too: more with each call, up to 8 MiB. Returns how many bytes it
 * asked for. */
uint64_t rks_resident_follow(rks_resident *resident, uint64_t first, uint64_t end);

/* A file that is read into memory in its order: {NULL} is none yet. One thread at a time. */
typedef struct rks_resident_stream {
    const rks_resident *resident; /* whose file is open; NULL: no file */
    int fd, sink;                 /* -1: cannot be opened */
} rks_resident_stream;
/* Brings bytes [first, end) into memory and waits for them; the system reads ahead of them by itself,
 * in pages that are larger than those of rks_resident_ask: so it takes a fifth of its processor
 * time. For bytes that follow each other: for others too much is read. `stop` (or NULL) ends it
 * after 1 MiB. False: the file cannot be read so. */
bool rks_resident_stream_to(rks_resident_stream *stream, const rks_resident *resident,
                            uint64_t first, uint64_t end, const atomic_bool *stop);
void rks_resident_stream_end(rks_resident_stream *stream);

/* Bytes [first, end) were read once and are done with: pieces of which nothing was in memory before
 * leave it again, so that they push out nobody else's. */
void rks_resident_leave(rks_resident *resident, uint64_t first, uint64_t end);

/* Pieces under [first, end) may have left the memory. */
void rks_resident_forget(rks_resident *resident, uint64_t first, uint64_t end);

/* Drops the file's pages from memory, as far as no other process maps them and all is written. */
void rks_resident_drop(rks_resident *resident);
/* How many bytes of it are in memory now; false: this process may not know. */
bool rks_resident_bytes(const rks_resident *resident, uint64_t *bytes);

/* May this process know by mincore() what of the file is in memory? */
bool rks_resident_may_ask(int fd, const char *path);

/* How many bytes this thread has read from disks; false: the system does not say. */
bool rks_disk_bytes_of_thread(uint64_t *bytes);

#endif
