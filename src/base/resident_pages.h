/* SPDX-License-Identifier: Apache-2.0
 *
 * resident_pages.h: tracks which granules of a mapped file are in memory, and asks the disk for the
 * others.
 *
 * A file is tracked in granules of 1 MiB. A granule that was found in memory as a whole counts as
 * resident until somebody says that it is not; checking that costs one load. The kernel may drop
 * its pages meanwhile: a reader that waits for the disk notices (by its major faults) and calls
 * rks_resident_forget. A granule that was not whole is checked again only after many reads of it.
 *
 * mincore() reports the truth only to a process that owns the file or may write to it; for others
 * it reports all pages as resident. For such files this reads a byte of each page with RWF_NOWAIT,
 * which does not wait for the disk.
 *
 * Any thread may call this. The answers are advice: what is read never depends on them. */
#ifndef RKS_BASE_RESIDENT_PAGES_H
#define RKS_BASE_RESIDENT_PAGES_H

#include "base/guarded_map.h"

enum { RKS_RESIDENT_GRANULE = 1 << 20 };

typedef struct rks_resident rks_resident;

/* `fd` is the map's file; the caller may close it afterwards. The map and `path` must outlive
 * *resident. */
rks_status rks_resident_open(int fd, const char *path, const rks_guarded_map *map,
                             rks_resident **resident, rks_error *err);
void rks_resident_close(rks_resident *resident); /* NULL is accepted */

/* The file's second name, under which it is looked for if it has lost the first one. `path` must
 * outlive *resident. Call it before others use it. */
void rks_resident_also(rks_resident *resident, const char *path);
/* Opens the file again if it is still there under its name; otherwise returns -1. */
int rks_resident_open_again(const rks_resident *resident);

/* Sets how bytes [first, end) will be read. Random: a fault reads its own page and no others.
 * Otherwise: in the order of the file, with the system's read-ahead. */
void rks_resident_expect_random(const rks_resident *resident, uint64_t first, uint64_t end,
                                bool random);

/* Returns true if bytes [first, end) are in memory as far as is known. Checks granules that are
 * unknown, which takes microseconds each. */
bool rks_resident_has(rks_resident *resident, uint64_t first, uint64_t end);

/* Returns true if the pages of bytes [first, end) are in memory now, even if their granules are not
 * known to be. Takes a system call for each 128 KiB. */
bool rks_resident_now(rks_resident *resident, uint64_t first, uint64_t end);

/* What a scan of the whole file has found. */
typedef enum rks_resident_state {
    RKS_RESIDENT_ALL,     /* the whole file is in memory */
    RKS_RESIDENT_SOME,    /* some granule is not */
    RKS_RESIDENT_UNKNOWN, /* the budget ended before the file */
} rks_resident_state;
/* Checks up to *budget granules, starting where the last call stopped, and subtracts from *budget
 * how many it checked. */
rks_resident_state rks_resident_scan(rks_resident *resident, size_t *budget);

/* Starts reading bytes [first, end) from the disk, without waiting for them. */
void rks_resident_ask(const rks_resident *resident, uint64_t first, uint64_t end);
/* Starts reading bytes [first, end), which the caller reads now. If they follow those of the last
 * call, also starts reading the bytes after them: more with each call, up to 8 MiB. Returns how
 * many bytes it asked the disk for. */
uint64_t rks_resident_follow(rks_resident *resident, uint64_t first, uint64_t end);

/* The open file of rks_resident_stream_to; {NULL} is none. One thread at a time. */
typedef struct rks_resident_stream {
    const rks_resident *resident; /* whose file is open; NULL if none is */
    int fd, sink;                 /* -1 if it cannot be opened */
} rks_resident_stream;
/* Brings bytes [first, end) into memory and waits for them. The system reads ahead by itself, in
 * larger units than rks_resident_ask gets, so this takes a fifth of its processor time. Use it for
 * bytes in the order of the file; otherwise too much is read. *stop (if not NULL) ends it within 1
 * MiB. Returns false if the file cannot be read this way. */
bool rks_resident_stream_to(rks_resident_stream *stream, const rks_resident *resident,
                            uint64_t first, uint64_t end, const atomic_bool *stop);
void rks_resident_stream_end(rks_resident_stream *stream);

/* Drops granules of [first, end) that the caller has read and does not need again, if nothing of
 * them was in memory before. So reading them displaces no other process's pages. */
void rks_resident_leave(rks_resident *resident, uint64_t first, uint64_t end);

/* Marks the granules of [first, end) as unknown: they may have left the memory. */
void rks_resident_forget(rks_resident *resident, uint64_t first, uint64_t end);

/* Drops the file's pages from memory, except those that another process maps or that are not
 * written yet. */
void rks_resident_drop(rks_resident *resident);
/* Counts the bytes of the file that are in memory now. Returns false if mincore() is forbidden,
 * or does not tell this process the truth. */
bool rks_resident_bytes(rks_resident *resident, uint64_t *bytes);

/* Returns true if mincore() tells this process the truth about the file. */
bool rks_resident_may_ask(int fd, const char *path);

/* Gets how many bytes this thread has read from disks. Returns false if the system does not say. */
bool rks_disk_bytes_of_thread(uint64_t *bytes);

#endif
