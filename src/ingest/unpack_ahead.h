/* SPDX-License-Identifier: Apache-2.0
 *
 * unpack_ahead.h: a thread that unpacks up to 1 MiB ahead of who reads, so that rows are parsed
 * meanwhile. One reader at a time. */
#ifndef RKS_INGEST_UNPACK_AHEAD_H
#define RKS_INGEST_UNPACK_AHEAD_H

#include "rankstore/base.h"

typedef struct rks_unpack_ahead rks_unpack_ahead;

/* Unpacks at most `size` bytes; *got is 0 at the end. *taken: packed bytes read so far. Called by
 * the thread, until it fails or ends. */
typedef rks_status (*rks_unpack_source)(void *user, void *bytes, size_t size, size_t *got,
                                        uint64_t *taken, rks_error *err);

/* NULL: no memory or no thread; then the caller reads the source itself. */
rks_unpack_ahead *rks_unpack_ahead_start(rks_unpack_source source, void *user);
/* As a source, and notices interrupts. A failure comes behind all bytes before it, and again with
 * each further call. */
rks_status rks_unpack_ahead_read(rks_unpack_ahead *ahead, void *bytes, size_t size, size_t *got,
                                 uint64_t *taken, rks_error *err);
/* The source is the caller's again. NULL is accepted. */
void rks_unpack_ahead_close(rks_unpack_ahead *ahead);

#endif
