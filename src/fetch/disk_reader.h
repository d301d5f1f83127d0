/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_reader.h: asks this node's disk for records, for a fetcher or for an owner that serves
 * others.
 *
 * If all shards are in memory, nothing is asked for, and this check costs one load a batch. A
 * reader that had to wait for the disk (a major fault of its thread) ends that state. From then on
 * each record is looked up by its granule of 1 MiB (base/resident_pages.h), and records that may be
 * missing are asked for, sorted by place. */
#ifndef RKS_FETCH_DISK_READER_H
#define RKS_FETCH_DISK_READER_H

#include <stdatomic.h>

#include "base/ranges.h"
#include "shard/shard.h"

typedef struct rks_disk_reader {
    rks_shard *const *shards; /* by dataset number; NULL: not on this node. Belongs to the owner */
    size_t count;
    atomic_bool warm;              /* all shards were in memory at the last look */
    atomic_uint_least64_t scan_ms; /* time before which it does not look again */
    atomic_uint_least64_t disk_reads, disk_bytes;
} rks_disk_reader;

/* Prepares for random reads of the shards' records. */
void rks_disk_reader_begin(rks_disk_reader *disk, rks_shard *const *shards, size_t count);

/* Returns true if all shards are in memory. If that is unknown, checks a few granules of the
 * files. */
bool rks_disk_reader_is_warm(rks_disk_reader *disk);
/* Does the same for any number of granules, on a thread of its own. `stop` ends it. */
bool rks_disk_reader_scan(rks_disk_reader *disk, const atomic_bool *stop);
/* Returns true if some pages are known to be missing. Checks nothing. */
bool rks_disk_reader_is_cold(const rks_disk_reader *disk);

/* Finds the range of a record that must be read. Returns false if the record is in memory, not on
 * this node, or of unknown place. */
bool rks_disk_reader_range(const rks_disk_reader *disk, uint32_t shard, uint64_t row,
                           rks_range *range);
/* Sorts and merges the ranges, asks for them and counts what was read. `stop` ends it and may be
 * NULL. */
void rks_disk_reader_ask(rks_disk_reader *disk, rks_range *ranges, size_t count,
                         const atomic_bool *stop);

/* Records that are wanted together. The owner gives both arrays room for all of them. */
typedef struct rks_disk_window {
    rks_range *all;     /* where the records are */
    rks_range *missing; /* those that may not be in memory */
    size_t count, missing_count;
} rks_disk_window;
/* Adds a record. Returns its range, in window->all; NULL if it is not on this node or its place is
 * unknown. */
const rks_range *rks_disk_window_add(const rks_disk_reader *disk, rks_disk_window *window,
                                     uint32_t shard, uint64_t row);

/* Windows in the order of a file; {0} at first. One thread at a time. */
typedef struct rks_disk_stream {
    rks_resident_stream file;
    rks_range last; /* stretch of the previous window; end 0: no stream */
    uint64_t idle;  /* bytes of windows since the last one that had missing records */
} rks_disk_stream;
/* Returns true if this window follows the previous one. Records in memory count, too: the stream's
 * own read-ahead has read them, and continues only if they are used. Sorts and merges window->all;
 * if the window follows, that becomes a single stretch from the end of the previous one. `readers`
 * processes of this node take turns in the file, so gaps between the ranges of one are read for the
 * others. A stream starts with the second of two consecutive windows. It ends if nothing was
 * missing for longer than read-ahead reaches. */
bool rks_disk_stream_follows(rks_disk_stream *stream, rks_disk_window *window, uint32_t readers);
/* Reads the stretch with the system's own read-ahead, and counts the bytes read. `stop` ends it. */
void rks_disk_reader_stream(rks_disk_reader *disk, rks_disk_stream *stream, rks_range *stretch,
                            const atomic_bool *stop);
/* Asks for a single range, and for bytes after it if ranges come in the order of the file. */
void rks_disk_reader_follow(rks_disk_reader *disk, const rks_range *range);

/* Returns the number of major faults of this thread since the last call. Unless `exact`, checks
 * only if the coarse clock has ticked since, which costs next to nothing. */
long rks_disk_faults(bool exact);
/* Returns how many pages this thread itself has read from the disk by these faults. For the other
 * faults it only waited for pages that were already being read. If there are any, forgets that all
 * shards are in memory; the caller must forget the granules that it read, or all of them. */
size_t rks_disk_reader_waited(rks_disk_reader *disk, long faults);
/* Forgets that all shards are in memory. */
void rks_disk_reader_rescan(rks_disk_reader *disk);
void rks_disk_reader_forget(const rks_disk_reader *disk);

#endif
