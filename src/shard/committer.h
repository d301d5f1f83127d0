/* SPDX-License-Identifier: Apache-2.0
 *
 * committer.h: a thread that puts finished blocks and unit records into LMDB and commits, while the
 * caller fills the next block. It alone uses the environment between create and free. */
#ifndef RKS_SHARD_COMMITTER_H
#define RKS_SHARD_COMMITTER_H

#include "base/buffer.h"
#include "shard/lmdb_env.h"

typedef struct rks_committer rks_committer;

rks_status rks_committer_create(rks_lmdb *env, rks_committer **committer, rks_error *err);
/* Commits what is queued, unless it failed before. NULL is accepted. */
void rks_committer_free(rks_committer *committer);

/* A buffer of at least `room` bytes; waits while too much is queued. Give it to
 * rks_committer_put or rks_committer_drop. Returns what the thread failed with, if it did. */
rks_status rks_committer_buffer(rks_committer *committer, size_t room, uint8_t **buffer,
                                rks_error *err);
/* NULL is accepted. */
void rks_committer_drop(rks_committer *committer, uint8_t *buffer);

/* One transaction takes both: a block of `size` bytes in a buffer (NULL: none), and a unit's
 * record (size 0: none), which is copied. The buffer is the committer's in any case. */
rks_status rks_committer_put(rks_committer *committer, uint64_t block_number, uint8_t *block,
                             size_t size, uint64_t unit_position, const rks_buffer *unit,
                             rks_error *err);
/* Waits until all is committed. */
rks_status rks_committer_flush(rks_committer *committer, rks_error *err);

#endif
