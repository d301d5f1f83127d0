/* SPDX-License-Identifier: Apache-2.0
 *
 * guarded_map.h: a read-only map of a file that survives SIGBUS.
 *
 * Where the disk will not give a page, or the file was cut, the kernel sends SIGBUS to the reader
 * of a map. A handler of ours maps zeros over the page and marks it, so that the reader goes on
 * with wrong bytes; whoever uses bytes of a map asks rks_guarded_map_faulted() after reading or
 * copying them, and before believing them. Faults outside these maps go to the handler that was
 * there before.
 *
 * The handler is installed at the first open. Others (faulthandler, sanitizers, MPI) install
 * theirs whenever they like, so it is looked at again at each open and by rks_guarded_map_renew().
 * Nothing reports that a handler is replaced, so one gap stays: a fault within 20 ms after that, or
 * in the batch that is being read, goes to the other library's handler, which as a rule ends the
 * process.
 * A thread that reads maps must not block SIGBUS. System calls that read a map for us (write,
 * sendmsg) return EFAULT for such a page; no signal is sent then, and no mark made.
 *
 * Any number of threads; a forked child goes on with the maps it has. */
#ifndef RKS_BASE_GUARDED_MAP_H
#define RKS_BASE_GUARDED_MAP_H

#include <stdatomic.h>

#include "rankstore/base.h"

/* Read `bytes` and `size`; the rest is guarded_map.c's. Its memory is never given back, only used
 * again, so that the handler can look at it at any time. */
typedef struct rks_guarded_map {
    const uint8_t *bytes;
    uint64_t size;
    _Atomic uint64_t faults; /* how often the handler replaced something */
    /* A bit a page; NULL until the first fault, so that a file takes one of the process's maps. */
    _Atomic(_Atomic uint64_t *) marks;
    uint64_t marks_size;
    atomic_bool lost; /* all of it was replaced */
    atomic_bool taken;
    _Atomic uint64_t generation; /* odd: live, begin and end are valid */
    _Atomic uintptr_t begin;
    _Atomic uintptr_t end;
} rks_guarded_map;

/* Maps the first `size` bytes of `fd`, which may be closed then; `path` is for messages. An empty
 * map is RKS_ERR_CORRUPT, no address space RKS_ERR_MEMORY. */
rks_status rks_guarded_map_open(int fd, const char *path, uint64_t size, rks_guarded_map **map,
                                rks_error *err);
void rks_guarded_map_close(rks_guarded_map *map); /* NULL is accepted */

/* The handler of the process again, if another took its place; looks 50 times a second at most, so
 * it may be called for every batch. */
void rks_guarded_map_renew(void);

/* The slow half of the next call. */
bool rks_guarded_map_marked(const rks_guarded_map *map, const void *at, size_t size);

/* Was a page under [at, at + size) replaced before this call? One load where no page was. */
static inline bool rks_guarded_map_faulted(const rks_guarded_map *map, const void *at, size_t size)
{
    /* The caller's reads come first: the mark is made before the zeros appear. */
#if defined(__x86_64__)
    atomic_signal_fence(memory_order_seq_cst); /* the machine keeps loads in order */
#else
    atomic_thread_fence(memory_order_acquire);
#endif
    return atomic_load_explicit(&map->faults, memory_order_relaxed) != 0 &&
           rks_guarded_map_marked(map, at, size);
}

/* Reads one byte of each page of [at, at + size), so that all of them are in memory; false if a
 * page cannot be read. Asks the kernel for all of them first. */
bool rks_guarded_map_touch(const rks_guarded_map *map, const void *at, size_t size);

#endif
