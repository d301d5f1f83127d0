/* SPDX-License-Identifier: Apache-2.0
 *
 * reads.h: what a fetcher, or an owner for others, asks of this node's disk.
 *
 * As long as all shards are in memory nothing is asked, and knowing it costs one load a batch. A
 * reader that had to wait for the disk (a major fault of its thread) ends that: then each record is
 * looked up by its piece of 1 MiB (base/resident.h), and those that may be missing are asked for,
 * sorted by place. */
#ifndef RKS_FETCH_READS_H
#define RKS_FETCH_READS_H

#include <stdatomic.h>

#include "base/ranges.h"
#include "shard/shard.h"

typedef struct rks_reads {
    rks_shard *const *shards; /* by dataset number; NULL: not on this node. The owner's */
    size_t count;
    atomic_bool warm; /* all shards were in memory when they were looked at */
    atomic_uint_least64_t scan_ms; /* not to be looked at again before */
    atomic_uint_least64_t disk_reads, disk_bytes;
} rks_reads;

/* The shards' records are read at random from now on. */
void rks_reads_begin(rks_reads *reads, rks_shard *const *shards, size_t count);

/* Is all of it in memory? Looks at a few pieces of the files if that is not known yet. */
bool rks_reads_warm(rks_reads *reads);
/* The same, at any number of pieces: for a thread of its own. `stop` ends it. */
bool rks_reads_look(rks_reads *reads, const atomic_bool *stop);
/* Is some of it known not to be in memory? Looks at nothing. */
bool rks_reads_cold(const rks_reads *reads);

/* Finds the range of a record that must be asked for. Returns false if there is none, or if it is in
 * memory. */
bool rks_reads_range(const rks_reads *reads, uint32_t shard, uint64_t row, rks_range *range);
/* Sorts and merges the ranges, asks for them and counts what was read. `stop` (or NULL) ends it. */
void rks_reads_ask(rks_reads *reads, rks_range *ranges, size_t count, const atomic_bool *stop);

/* Records that are wanted together. The owner gives both lists room for all of them. */
typedef struct rks_reads_window {
    rks_range *all;     /* where the records lie */
    rks_range *missing; /* those that may not be in memory */
    size_t count, missing_count;
} rks_reads_window;
/* Adds a record. Returns where it lies, in window->all; NULL if it is not on this node, or if nobody
 * knows where it lies. */
const rks_range *rks_reads_add(const rks_reads *reads, rks_reads_window *window, uint32_t shard,
                               uint64_t row);

/* Windows that come in the order of a file; {0} at first. One thread at a time. */
typedef struct rks_reads_stream {
    rks_resident_stream file;
    rks_range last; /* the stretch of the window before; end 0: no stream is on */
    uint64_t idle;  /* bytes of windows since one had to be read from the disk */
} rks_reads_stream;
/* Does this window follow the last one? Its records in memory count, too: the stream's own
 * read-ahead has brought them, and goes on only if they are read. Sorts and merges window->all. If it
 * follows, that becomes a single stretch from the end of the last one. `readers` processes of this
 * node take turns in the file: what lies between the ranges of one is read for the others. A stream
 * begins with the second of two windows that follow each other, and ends if nothing was missing for
 * longer than read-ahead reaches. */
bool rks_reads_follows(rks_reads_stream *stream, rks_reads_window *window, uint32_t readers);
/* Reads the stretch with the system's own read-ahead, and counts what was read. `stop` ends it. */
void rks_reads_stream_to(rks_reads *reads, rks_reads_stream *stream, rks_range *stretch,
                         const atomic_bool *stop);
/* Asks for a single range, and for what lies behind it if ranges come in the order of the file. */
void rks_reads_follow(rks_reads *reads, const rks_range *range);

/* How many major faults this thread has had since the last call. Unless `exact`, it looks only if
 * the clock has ticked since: then it costs next to nothing. */
long rks_reads_faults(bool exact);
/* After so many faults: how many pages this thread has read from the disk itself by faults. The
 * others were on their way already, and it only waited for them. If there are any, forgets that all
 * is in memory; the caller forgets the pieces that it read, or all of them. */
size_t rks_reads_waited(rks_reads *reads, long faults);
/* Forgets that all is in memory. */
void rks_reads_look_again(rks_reads *reads);
void rks_reads_forget_all(const rks_reads *reads);

#endif
