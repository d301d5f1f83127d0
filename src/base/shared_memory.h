/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_memory.h: memory that the ranks of a node share by descriptor. All its pages are allocated
 * at the start, so a full disk is RKS_ERR_IO here, not a SIGBUS in whoever writes to its map.
 * `what` ("index") begins the messages. The caller closes the descriptor. */
#ifndef RKS_BASE_SHARED_MEMORY_H
#define RKS_BASE_SHARED_MEMORY_H

#include "rankstore/base.h"

/* Makes a memfd up to 1 GiB, unless that takes half of the available memory or more; else an
 * unnamed file in `directory`, so that it can be paged out. If `directory` is NULL: above 1 GiB,
 * too, a memfd if it takes less than a quarter of the available memory; else a file in TMPDIR, /tmp
 * or /var/tmp, the first that is a disk of this node and has the room, and a line on stderr says
 * which. RKS_ERR_IO if there is none. */
rks_status rks_shared_memory(const char *what, uint64_t bytes, const char *directory, int *fd,
                             rks_error *err);
/* Makes a memfd whose size cannot change. If memfd_create is forbidden (base/forbidden_call.h): an
 * unnamed file in /dev/shm, TMPDIR, /tmp or /var/tmp, the first in memory or on a disk of this node
 * that has the room. */
rks_status rks_shared_memfd(const char *what, uint64_t bytes, int *fd, rks_error *err);
/* Makes an unnamed file in `directory`. */
rks_status rks_shared_file(const char *what, uint64_t bytes, const char *directory, int *fd,
                           rks_error *err);
/* Makes a memfd, or such a file, without pages. rks_shared_grow allocates the pages of [at, at +
 * bytes); the stretches may lie far apart. */
rks_status rks_shared_growing(const char *what, int *fd, rks_error *err);
rks_status rks_shared_grow(const char *what, int fd, uint64_t at, uint64_t bytes, rks_error *err);
/* Seals a memfd: from now on no descriptor gives a writable map. Leaves files as they are. */
rks_status rks_shared_memory_seal(const char *what, int fd, rks_error *err);

/* For tests: sets the size in bytes up to which memory is a memfd, not a file; 0 restores 1 GiB. */
void rks_shared_memory_memfd_max(uint64_t bytes);

#endif
