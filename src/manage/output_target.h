/* SPDX-License-Identifier: Apache-2.0
 *
 * output_target.h: a file or directory that appears only when it is complete. It is written as
 * TARGET.rks-part beside its place, locked by its writer, and renamed at the end. */
#ifndef RKS_MANAGE_OUTPUT_TARGET_H
#define RKS_MANAGE_OUTPUT_TARGET_H

#include "rankstore/base.h"

typedef struct rks_target rks_target;

/* Checks what exists at `path`. `force`: an existing file will be replaced, and also a directory
 * that is empty or that rks_target_mark has marked. RKS_ERR_ARGUMENT for anything else that exists;
 * RKS_ERR_STATE if another process writes this target. Removes what a killed process left. */
rks_status rks_target_open(const char *path, bool force, rks_target **target, rks_error *err);
/* Returns where to write. Nothing exists there. */
const char *rks_target_part(const rks_target *target);
/* Marks a directory with a hidden file that says what made it. */
rks_status rks_target_mark(const rks_target *target, rks_error *err);
/* Moves the part into its place in one step, and makes that durable. If that fails, what was there
 * before is there again. */
rks_status rks_target_commit(rks_target *target, rks_error *err);
/* Removes the part unless it was committed. NULL is allowed. */
void rks_target_close(rks_target *target);

#endif
