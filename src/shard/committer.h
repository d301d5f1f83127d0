/* SPDX-License-Identifier: Apache-2.0
 *
 * committer.h: a thread that puts finished blocks and unit records into LMDB and commits them,
 * while the caller fills the next block. Between create and free only this thread uses the
 * environment. */
#ifndef RKS_SHARD_COMMITTER_H
#define RKS_SHARD_COMMITTER_H

#include "base/buffer.h"
#include "shard/lmdb_env.h"

typedef struct rks_committer rks_committer;

rks_status rks_committer_create(rks_lmdb *env, rks_committer **committer, rks_error *err);
/* Commits what is queued, unless something failed before; ends the thread. NULL is accepted. */
void rks_committer_free(rks_committer *committer);

/* Takes a buffer of at least `room` bytes; waits while too much is queued. Pass it to
 * rks_committer_put or rks_committer_drop. If the thread has failed, returns its error. */
rks_status rks_committer_buffer(rks_committer *committer, size_t room, uint8_t **buffer,
                                rks_error *err);
/* Returns an unused buffer. NULL is accepted. */
void rks_committer_drop(rks_committer *committer, uint8_t *buffer);

/* Queues a block of `size` bytes (NULL: none) and a unit's record (empty: none), which is copied.
 * One transaction takes both. The committer owns the buffer afterwards, also if this fails. */
rks_status rks_committer_put(rks_committer *committer, uint64_t block_number, uint8_t *block,
                             size_t size, uint64_t unit_position, const rks_buffer *unit,
                             rks_error *err);
/* Waits until all is committed; returns the thread's error if it failed. */
rks_status rks_committer_flush(rks_committer *committer, rks_error *err);

#endif
