/* SPDX-License-Identifier: Apache-2.0
 *
 * absent_steps.h: the batches of a step some of whose samples nobody can deliver: they lie in lost
 * shards, or in quarantine. The plan stays that of the complete dataset, so its states and digests
 * do, too. Only what is delivered of a step changes. Laws, for each step:
 *
 * - What is delivered are the present samples of the step, each once, in the order of the plan.
 * - A rank with a present sample in its batch keeps the first of them. One without any receives the
 *   last half of the largest batch that there is then. So no batch is empty, and each is a part of
 *   one planned batch: it is within the plan's budget.
 * - A step with fewer present samples than ranks is left out on all ranks; of pack, so is the
 *   optimizer step that it is in.
 *
 * All of it follows from the plan and the absent samples, so all ranks find the same. */
#ifndef RKS_PLAN_ABSENT_STEPS_H
#define RKS_PLAN_ABSENT_STEPS_H

#include "plan/plan.h"

/* What a rank delivers: `count` of the present samples of rank `from`, from `first` on. */
typedef struct rks_step_part {
    uint32_t from;
    uint64_t first, count;
} rks_step_part;

/* Deals a step. present[r]: the present samples of rank r's batch. Returns false if there are fewer
 * than ranks. */
bool rks_step_deal(const uint64_t *present, uint32_t world, rks_step_part *parts);

/* A batch as the plan has it, or as it is delivered. */
typedef struct rks_step_batch {
    const uint32_t *ids;
    size_t count;
    const rks_piece *pieces;
    size_t piece_count;
    const uint32_t *bounds; /* pack: as of rks_plan_bins */
    size_t bins;
} rks_step_batch;

/* The absent samples of a plan, and memory for a batch without them. */
typedef struct rks_plan_absences rks_plan_absences;
rks_status rks_plan_absences_create(const rks_absent_run *runs, size_t count, uint32_t world,
                                    rks_plan_absences **absences, rks_error *err);
void rks_plan_absences_free(rks_plan_absences *absences); /* NULL is accepted */
/* Returns how many runs it has; *runs lives as long as `absences`. */
size_t rks_plan_absences_runs(const rks_plan_absences *absences, const rks_absent_run **runs);
/* Returns how many of the ids are present. */
uint64_t rks_plan_present(const rks_plan_absences *absences, const uint32_t *ids, size_t count);

/* Sets *left_out if the step is. */
rks_status rks_plan_left_out(rks_plan *plan, uint64_t epoch, uint64_t step, bool *left_out,
                             rks_error *err);
/* Counts the steps in [begin, end) that are left out. The steps of an epoch are looked at once.
 * `end` is at most the number of steps. */
rks_status rks_plan_count_left_out(rks_plan *plan, uint64_t epoch, uint64_t begin, uint64_t end,
                                   uint64_t *count, rks_error *err);
/* Forgets which steps are left out: what the plan does of an epoch has changed. */
void rks_plan_forget_left_out(rks_plan *plan);
/* Turns the planned batch of a rank into what it delivers; of a step that is left out, into its
 * present samples, of which there may be none. The arrays are those of the absences until the next
 * call. */
rks_status rks_plan_deliver(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                            rks_step_batch *batch, rks_error *err);

#endif
