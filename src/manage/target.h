/* SPDX-License-Identifier: Apache-2.0
 *
 * target.h: a file or directory that appears when all of it is there. It grows as
 * TARGET.rks-part beside its place, locked by who writes it, and is renamed at the end. */
#ifndef RKS_MANAGE_TARGET_H
#define RKS_MANAGE_TARGET_H

#include "rankstore/base.h"

typedef struct rks_target rks_target;

/* Looks at what is there. `force`: an existing file is replaced in the end, and so is a directory
 * that rks_target_mark has marked, or an empty one. RKS_ERR_ARGUMENT for anything else that is
 * there; RKS_ERR_STATE if another process writes this target. What a killed one left is removed.
 */
rks_status rks_target_open(const char *path, bool force, rks_target **target, rks_error *err);
/* Where to write: nothing is there. */
const char *rks_target_part(const rks_target *target);
/* Into a directory: a hidden file that says who made it. */
rks_status rks_target_mark(const rks_target *target, rks_error *err);
/* Puts the part into its place, at once, and makes that durable. */
rks_status rks_target_commit(rks_target *target, rks_error *err);
/* Without a commit the part is removed. NULL is accepted. */
void rks_target_close(rks_target *target);

#endif
