/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h: the check that stands between sealed parts and a dataset. */
#ifndef RKS_BUILDER_COMMIT_H
#define RKS_BUILDER_COMMIT_H

#include "builder/build.h"
#include "builder/parts.h"
#include "dataset/dataset.h"
#include "group/group.h"

/* COLLECTIVE. Sets what the build's selection leaves out of the sealed samples: dataset->excluded,
 * count and id. Without dedup and sample there is nothing to do, no agreement, and `status` is
 * returned. Else that is brought to the first one; `dataset` is not looked at unless it is RKS_OK on
 * all ranks. The status may be this rank's own. */
rks_status rks_commit_leave_out(rks_parts *parts, rks_status status, rks_dataset *dataset,
                                const uint32_t *holders, rks_error *err);

#endif
