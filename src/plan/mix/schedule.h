/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h: the changes of a mix, each at a step (schedule.c). They are a part of an epoch's
 * progress, since calls and states add them. */
#ifndef RKS_PLAN_MIX_SCHEDULE_H
#define RKS_PLAN_MIX_SCHEDULE_H

#include <stdbool.h>

#include "rankstore/mix.h"

/* What decides the draws of a stretch of steps. */
typedef struct rks_mix_force {
    uint64_t *weights; /* fixed-point; NULL: in proportion to sizes */
    uint32_t longest;  /* longer samples are not drawn yet */
} rks_mix_force;

typedef struct rks_mix_change {
    uint64_t epoch, step; /* `step` counts over all worlds */
    rks_mix_force force;
    bool keeps;   /* it keeps the weights before it, also if those change later */
    bool counted; /* its step was counted from the beginning of epoch 0 */
} rks_mix_change;

typedef struct rks_mix_schedule {
    rks_mix_change changes[RKS_PLAN_CHANGES_MAX + 1]; /* in the order of steps */
    size_t count;
} rks_mix_schedule;

#endif
