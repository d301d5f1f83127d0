/* SPDX-License-Identifier: Apache-2.0
 *
 * planner_mark.h: whether two builds of the library plan alike. Two that have the same version, but
 * were built from different sources, may not. */
#ifndef RKS_PLAN_PLANNER_MARK_H
#define RKS_PLAN_PLANNER_MARK_H

#include "rankstore/base.h"

/* Gets a digest of the planner's versions and of plans that this library makes of lengths of its
 * own: by every strategy, tail, way of long samples, and of a mix. Builds that plan alike have
 * equal ones. It is made once a process, in about a millisecond, and then kept. Thread-safe.
 * RKS_ERR_MEMORY, or RKS_ERR_CANCELLED after an interrupt. */
rks_status rks_planner_mark(uint64_t *mark, rks_error *err);

#endif
