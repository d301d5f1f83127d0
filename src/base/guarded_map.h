/* SPDX-License-Identifier: Apache-2.0
 *
 * guarded_map.h: a read-only map of a file that survives SIGBUS.
 *
 * If the disk fails to deliver a page, or the file was truncated, the kernel sends SIGBUS to the
 * thread that reads the map. Our handler maps zeros over the page and marks it, so that the reader
 * goes on with wrong bytes. After you read or copy bytes of a map, and before you use them, call
 * rks_guarded_map_faulted(). Faults outside these maps go to the handler that was installed before
 * ours. rks_guarded_map_anew() gives such pages their file again: after a failure that passes, they
 * can be read.
 *
 * The first open installs the handler. Other libraries (faulthandler, sanitizers, MPI) install
 * theirs at any time, so each open and rks_guarded_map_renew() check it again. Nothing reports that
 * a handler was replaced, so one gap remains: a fault within 20 ms after that, or in the batch that
 * is being read, goes to the other library's handler, which usually ends the process.
 *
 * A thread that reads maps must not block SIGBUS. If a system call reads a map for us (write,
 * sendmsg), a bad page makes it return EFAULT: there is no signal then, and no mark.
 *
 * Any thread may call this. A forked child keeps using the maps it has. */
#ifndef RKS_BASE_GUARDED_MAP_H
#define RKS_BASE_GUARDED_MAP_H

#include <stdatomic.h>

#include "rankstore/base.h"

/* Callers read `bytes` and `size`; the rest belongs to guarded_map.c. Its memory is never freed,
 * only reused, so that the handler can look at it at any time. */
typedef struct rks_guarded_map {
    const uint8_t *bytes;
    uint64_t size;
    _Atomic uint64_t faults;  /* how many times the handler replaced something */
    _Atomic int64_t replaced; /* of these, how many are still replaced: at most that many maps */
    _Atomic int32_t handling; /* handlers that are replacing something now */
    /* One mark a page; NULL until the first fault, so that a file takes only one of the process's
     * maps. */
    _Atomic(_Atomic uint32_t *) marks;
    uint64_t marks_size;
    atomic_bool lost; /* the whole map was replaced */
    atomic_bool taken;
    _Atomic uint64_t generation; /* odd while the entry is live: begin and end are valid */
    _Atomic uintptr_t begin;
    _Atomic uintptr_t end;
} rks_guarded_map;

/* Maps the first `size` bytes of `fd`; the caller may close `fd` afterwards. `path` is for
 * messages. A size of 0 is RKS_ERR_CORRUPT; no address space is RKS_ERR_MEMORY. Free with
 * rks_guarded_map_close. */
rks_status rks_guarded_map_open(int fd, const char *path, uint64_t size, rks_guarded_map **map,
                                rks_error *err);
void rks_guarded_map_close(rks_guarded_map *map); /* NULL is accepted */

/* Call it before you read: bytes that this thread reads from now on are the file's in all pages
 * that were mapped anew before. A thread that never calls it counts those as replaced. Installs the
 * handler again if another one took its place; checks that at most 50 times a second, so you may
 * call this for every batch. Never call it between reading and rks_guarded_map_faulted. */
void rks_guarded_map_renew(void);

/* Maps the replaced pages of bytes [first, end), and those near them, from `fd` again, which must
 * be the map's file. Other threads may read meanwhile: what they began to read before counts as
 * replaced. Pages that still cannot be read are replaced again when they are read. */
void rks_guarded_map_anew(rks_guarded_map *map, int fd, uint64_t first, uint64_t end);

/* The slow half of rks_guarded_map_faulted. */
bool rks_guarded_map_marked(const rks_guarded_map *map, const void *at, size_t size);

/* Returns true if a page of [at, at + size) was replaced before this call, and not mapped anew
 * before this thread called rks_guarded_map_renew. Costs one load if no page of the map was. */
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

/* Brings all pages of [at, at + size) into memory by reading a byte of each. If they are many, asks
 * the kernel for all of them first. Returns false if a page cannot be read. */
bool rks_guarded_map_touch(const rks_guarded_map *map, const void *at, size_t size);

#endif
