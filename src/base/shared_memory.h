/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_memory.h: memory that the ranks of a node share by descriptor. It has its pages from the
 * start: a full disk is RKS_ERR_IO here, not SIGBUS in whoever writes to its map. `what` ("index")
 * begins the messages. The descriptor is the caller's. */
#ifndef RKS_BASE_SHARED_MEMORY_H
#define RKS_BASE_SHARED_MEMORY_H

#include "rankstore/base.h"

/* A memfd. Above 1 GiB an unnamed file in `directory`, so that it can be paged out. If that is NULL:
 * still a memfd if it takes less than a quarter of the memory that is available, else a file in
 * TMPDIR, /tmp or /var/tmp, the first one that is a disk of this node and has the room; a line on
 * stderr says which. RKS_ERR_IO if there is none. */
rks_status rks_shared_memory(const char *what, uint64_t bytes, const char *directory, int *fd,
                             rks_error *err);
/* Its size cannot change. */
rks_status rks_shared_memfd(const char *what, uint64_t bytes, int *fd, rks_error *err);
rks_status rks_shared_file(const char *what, uint64_t bytes, const char *directory, int *fd,
                           rks_error *err);
/* A memfd without pages; rks_shared_grow gives it those of [at, at + bytes), also far apart. */
rks_status rks_shared_growing(const char *what, int *fd, rks_error *err);
rks_status rks_shared_grow(const char *what, int fd, uint64_t at, uint64_t bytes, rks_error *err);
/* No descriptor gives a writable map any more (memfd only; files are left as they are). */
rks_status rks_shared_memory_seal(const char *what, int fd, rks_error *err);

/* For tests: memfds up to this size, files above it; 0: 1 GiB again. */
void rks_shared_memory_memfd_max(uint64_t bytes);

#endif
