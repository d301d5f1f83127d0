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
 * count and id. Nothing to do without dedup and sample. */
rks_status rks_commit_leave_out(rks_parts *parts, rks_dataset *dataset, const uint32_t *holders,
                                rks_error *err);

#endif
