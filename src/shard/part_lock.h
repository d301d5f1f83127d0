/* SPDX-License-Identifier: Apache-2.0
 *
 * part_lock.h: one writer of a shard at a time, over processes: a file that is locked (flock) and
 * says who holds it. The kernel ends the lock with its holder; what a killed one leaves is a
 * file without lock, which the next one takes over. */
#ifndef RKS_SHARD_PART_LOCK_H
#define RKS_SHARD_PART_LOCK_H

#include "rankstore/base.h"

typedef struct rks_part_lock rks_part_lock;

/* Never waits. RKS_ERR_STATE names pid and host of the holder. */
rks_status rks_part_lock_take(const char *path, rks_part_lock **lock, rks_error *err);
/* Removes the file. NULL is accepted. */
void rks_part_lock_release(rks_part_lock *lock);

#endif
