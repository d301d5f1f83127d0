/* SPDX-License-Identifier: Apache-2.0
 *
 * cancellation.h: long work is done in stretches, between which it can be ended. */
#ifndef RKS_PLAN_CANCELLATION_H
#define RKS_PLAN_CANCELLATION_H

#include <stdatomic.h>

#include "rankstore/base.h"

/* cancellation.c: checks for an interrupt during long work. Both functions return RKS_ERR_CANCELLED
 * after an interrupt. */
/* Sets *end to where the next stretch ends, which begins at sample `at` of `count`. Checks for an
 * interrupt between stretches. */
rks_status rks_plan_stretch(uint64_t at, uint64_t count, uint64_t *end, rks_error *err);
/* Counts `more` samples, and checks for an interrupt once a stretch. *done is 0 at first and counts
 * the samples since the last check. */
rks_status rks_plan_pause(uint64_t *done, uint64_t more, rks_error *err);
/* Sets a watch for this thread, until it is set to NULL. At each check the planner then increments
 * `progress`, and tests `stop` instead of the interrupt. If `stop` is NULL, it still checks for the
 * interrupt. */
typedef struct rks_plan_watch {
    _Atomic(uint64_t) *progress;
    const atomic_bool *stop;
} rks_plan_watch;
void rks_plan_watch_set(const rks_plan_watch *watch);

#endif
