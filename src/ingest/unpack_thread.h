/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack_thread.h: a thread that unpacks up to 1 MiB ahead of the reader, who parses rows
 * meanwhile. One reader at a time. */
#ifndef RKS_INGEST_UNPACK_THREAD_H
#define RKS_INGEST_UNPACK_THREAD_H

#include "rankstore/base.h"

typedef struct rks_unpack_ahead rks_unpack_ahead;

/* Unpacks at most `size` bytes; *got is 0 at the end. *taken is the packed bytes read so far. The
 * thread calls it until it fails or ends. */
typedef rks_status (*rks_unpack_source)(void *user, void *bytes, size_t size, size_t *got,
                                        uint64_t *taken, rks_error *err);

/* Starts the thread. Returns NULL if memory or a thread is lacking; then the caller reads the
 * source itself. */
rks_unpack_ahead *rks_unpack_ahead_start(rks_unpack_source source, void *user);
/* Reads like the source, and checks for interrupts. A failure follows all bytes before it, and
 * repeats with each further call. */
rks_status rks_unpack_ahead_read(rks_unpack_ahead *ahead, void *bytes, size_t size, size_t *got,
                                 uint64_t *taken, rks_error *err);
/* Ends the thread; the caller owns the source again. NULL is accepted. */
void rks_unpack_ahead_close(rks_unpack_ahead *ahead);

#endif
