/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_state.h: a plan: its input, its current epoch, and what was done of epochs. */
#ifndef RKS_PLAN_PLAN_STATE_H
#define RKS_PLAN_PLAN_STATE_H

#include "plan/absent_steps.h"
#include "plan/epoch.h"

/* Finds an earlier generation among more than can be listed. */
typedef struct rks_plan_finder {
    /* Returns true if there was a generation with so many samples and this id. Writes its name, and
     * what to open. */
    bool (*find)(void *user, uint64_t samples, const char *dataset, char *text, size_t room);
    void (*free)(void *user);
    void *user;
} rks_plan_finder;

struct rks_plan {
    rks_plan_input in;
    rks_epoch_image image;   /* the current epoch */
    struct rks_mix *own_mix; /* in.mix */
    uint32_t *own_order;     /* the sorted order, if the plan owns it; else NULL */
    char dataset[33];        /* empty if unknown */
    char lengths_digest[17]; /* empty until a state needs it */

    /* Shared epochs (epoch_cache.h). NULL: each rank makes its own. The plan does not own the
     * arrays of an epoch that it takes from there. */
    struct rks_epoch_cache *cache;

    rks_epoch_progress progress;
    rks_plan_absences *absences; /* NULL: nothing is absent */

    rks_generation *earlier; /* generations of the dataset; may be NULL */
    size_t earlier_count;
    rks_plan_finder finder; /* `find` NULL: there is none */

    /* With a mix: */
    bool steps_known; /* `steps` is valid, for epoch `steps_epoch` */
    uint64_t steps_epoch, steps;
    bool was_changed; /* a call made a change, the last one at this place */
    uint64_t last_epoch, last_step;
};

/* Lets rks_plan_resume ask `finder` for states of generations that the plan does not list. The plan
 * frees it. */
void rks_plan_find_earlier(rks_plan *plan, rks_plan_finder finder);
/* plan.c: makes `epoch`, or its rest after a resume, the plan's current epoch. */
rks_status rks_plan_prepare(rks_plan *plan, uint64_t epoch, rks_error *err);
/* Does the same, and for a mix with changes, makes the stretch of `step` current (the last one if
 * there is no such step). */
rks_status rks_plan_prepare_step(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err);
/* Returns the batch as it is planned, with absent samples. */
rks_status rks_plan_planned(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                            rks_step_batch *batch, rks_error *err);
/* Counts the steps before `step` that the user skips. */
rks_status rks_plan_skipped_by_user(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *count,
                                    rks_error *err);
/* Adds the ranges of the option `skip`; errors as from rks_plan_skip. */
rks_status rks_plan_skip_all(rks_plan *plan, const rks_step_range *list, size_t count,
                             rks_error *err);

#endif
