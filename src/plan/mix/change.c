/* SPDX-License-Identifier: Apache-2.0
 *
 * change.c: the calls that change a mix from a step on. */
#include "plan/mix/mix.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/plan_state.h"
#include "plan/strategy.h"

/* Inserts a change in the order of steps. It replaces a change at the same step. */
static void insert_change(rks_mix_schedule *schedule, const rks_mix_change *change)
{
    size_t at = schedule->count;
    while (at > 0 && rks_mix_is_before(change->epoch, change->step, schedule->changes[at - 1].epoch,
                                       schedule->changes[at - 1].step))
        at--;
    if (at > 0 && schedule->changes[at - 1].epoch == change->epoch &&
        schedule->changes[at - 1].step == change->step) {
        rks_free(schedule->changes[at - 1].force.weights);
        schedule->changes[at - 1] = *change;
        return;
    }
    memmove(schedule->changes + at + 1, schedule->changes + at,
            (schedule->count - at) * sizeof(*schedule->changes));
    schedule->changes[at] = *change;
    schedule->count++;
}

/* Gives the weights of `change` to the changes after it, up to the next one with its own weights.
 * They go into arrays of `spare`, which then holds the old weights. */
static void pass_on(rks_mix_schedule *schedule, size_t sources, const rks_mix_change *change,
                    uint64_t **spare)
{
    size_t at = 0, used = 0;
    while (rks_mix_is_before(schedule->changes[at].epoch, schedule->changes[at].step, change->epoch,
                             change->step))
        at++;
    for (at++; at < schedule->count && schedule->changes[at].keeps; at++, used++) {
        uint64_t *before = schedule->changes[at].force.weights;
        memcpy(spare[used], change->force.weights, sources * sizeof(uint64_t));
        schedule->changes[at].force.weights = spare[used];
        spare[used] = before;
    }
}

/* Allocates the arrays for pass_on, and checks that these changes can have the weights. The caller
 * owns all arrays in `spare`, also after a failure. */
static rks_status make_spare(const rks_plan_input *in, const rks_mix_schedule *schedule,
                             const rks_mix_change *change, uint64_t **spare, rks_error *err)
{
    const rks_mix *mix = in->mix;
    size_t used = 0;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < schedule->count && status == RKS_OK; i++) {
        const rks_mix_change *other = &schedule->changes[i];
        if (!rks_mix_is_before(change->epoch, change->step, other->epoch, other->step))
            continue;
        if (!other->keeps)
            break;
        const rks_mix_force force = {change->force.weights, other->force.longest};
        status = rks_mix_check_force(in, &force, err);
        if (status == RKS_OK)
            spare[used] = rks_alloc_raw(mix->sources, sizeof(uint64_t), err);
        if (status == RKS_OK && spare[used++] == NULL)
            status = RKS_ERR_MEMORY;
    }
    return status;
}

/* Inserts a change; if it fails, restores the list from a copy, so nothing changes. `spare` comes
 * from make_spare; what it holds afterwards is not in use. */
static rks_status add_change(const rks_plan_input *in, rks_epoch_progress *progress,
                             rks_mix_change *change, uint64_t **spare, rks_error *err)
{
    rks_mix_schedule *schedule = &progress->schedule;
    rks_mix_change kept[RKS_PLAN_CHANGES_MAX + 1];
    char text[RKS_PLAN_SCHEDULE_MAX + 1];
    size_t count = schedule->count;
    memcpy(kept, schedule->changes, sizeof(kept));
    uint64_t *replaced = NULL;
    for (size_t i = 0; i < count; i++)
        if (kept[i].epoch == change->epoch && kept[i].step == change->step) {
            replaced = kept[i].force.weights;
            schedule->changes[i].force.weights = NULL; /* not freed yet */
        }
    uint64_t *mine[RKS_PLAN_CHANGES_MAX + 1];
    memcpy(mine, spare, sizeof(mine));
    insert_change(schedule, change);
    if (change->force.weights != NULL)
        pass_on(schedule, in->mix->sources, change, mine);
    rks_status status = RKS_OK;
    size_t size = rks_mix_write_changes(in->mix, schedule, text, sizeof(text));
    char skips[RKS_PLAN_SCHEDULE_MAX + 1];
    size += rks_plan_write_skips(progress, skips, sizeof(skips));
    if (schedule->count > RKS_PLAN_CHANGES_MAX || size > RKS_PLAN_SCHEDULE_MAX)
        status = rks_fail(err, RKS_ERR_STATE, 0,
                          "change at step %" PRIu64 " of epoch %" PRIu64
                          ": states have room for %d changes and %d bytes; %zu of %zu sources take "
                          "%zu; %s",
                          change->step, change->epoch, RKS_PLAN_CHANGES_MAX, RKS_PLAN_SCHEDULE_MAX,
                          schedule->count, in->mix->sources, size,
                          schedule->count > 1
                              ? "change less often, or make a new plan for the next epoch"
                              : "give sources that change alike one name, or make a new plan for "
                                "the next epoch");
    if (status == RKS_OK) {
        rks_free(replaced);
        memcpy(spare, mine, sizeof(mine)); /* what was there before, to be freed */
        return status;
    }
    memcpy(schedule->changes, kept, sizeof(kept));
    schedule->count = count;
    return status;
}

static bool has_weights(const rks_mix *mix, rks_error *err)
{
    bool has = mix != NULL && mix->counts == NULL && mix->odds == NULL;
    if (!has)
        rks_fail(err, RKS_ERR_STATE, 0, "change: the plan has no weights of sources");
    return has;
}

/* A call that changes a mix from step `step` of `epoch` on. */
typedef struct change_call {
    uint64_t epoch, step;
    const double *weights; /* one for each of `sources`; NULL: those before it */
    size_t sources;
    uint32_t longest; /* 0: no limit */
    bool counted;
} change_call;

static rks_status check_call(const rks_plan_input *in, const change_call *call, rks_error *err)
{
    if (!has_weights(in->mix, err))
        return RKS_ERR_STATE;
    if (call->weights != NULL && call->sources != in->mix->sources)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "change: %zu weights for %zu sources",
                        call->sources, in->mix->sources);
    if (call->epoch > INT64_MAX || call->step > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "change at step %" PRIu64 " of epoch %" PRIu64
                        ": steps are below 2^32, and epochs below 2^63",
                        call->step, call->epoch);
    if (call->step % in->config.micro_batches != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "change at step %" PRIu64 " of epoch %" PRIu64
                        ": an optimizer step has %" PRIu32
                        " micro-batches; change at a multiple of that",
                        call->step, call->epoch, in->config.micro_batches);
    return RKS_OK;
}

/* Gives `change` the weights of the call, or those before it. The caller owns them, also after a
 * failure. */
static rks_status read_weights(const rks_plan_input *in, const rks_mix_schedule *schedule,
                               const change_call *call, rks_mix_change *change, rks_error *err)
{
    const rks_mix *mix = in->mix;
    const uint64_t *before = rks_mix_force_at(mix, schedule, change->epoch, change->step)->weights;
    rks_status status = RKS_OK;
    if (call->weights != NULL || before != NULL) {
        change->force.weights = rks_alloc_raw(mix->sources, sizeof(uint64_t), err);
        if (change->force.weights == NULL)
            return RKS_ERR_MEMORY;
    }
    if (call->weights != NULL)
        status = rks_mix_weights_read(mix, call->weights, "change", change->force.weights, err);
    else if (before != NULL)
        memcpy(change->force.weights, before, mix->sources * sizeof(*before));
    return status == RKS_OK ? rks_mix_check_force(in, &change->force, err) : status;
}

/* A change behind the last step would say nothing of this epoch. One at its end is for the next. */
static rks_status check_place(rks_plan *plan, const change_call *call, rks_error *err)
{
    uint64_t steps = 0;
    if (call->counted || call->step == 0)
        return RKS_OK;
    rks_status status = rks_plan_steps(plan, call->epoch, &steps, err);
    if (status == RKS_OK && call->step > steps)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "change at step %" PRIu64 " of epoch %" PRIu64 ": it has %" PRIu64
                          " steps; for the epochs after it, give epoch %" PRIu64 ", step 0",
                          call->step, call->epoch, steps, call->epoch + 1);
    return status;
}

static rks_status change_at(rks_plan *plan, const change_call *call, rks_error *err)
{
    const rks_plan_input *in = &plan->in;
    rks_status status = check_call(in, call, err);
    if (status == RKS_OK)
        status = check_place(plan, call, err);
    if (status != RKS_OK)
        return status;
    uint64_t number = rks_mix_number(&plan->progress, call->epoch, call->step);
    rks_mix_change change = {.epoch = call->epoch,
                             .step = number,
                             .keeps = call->weights == NULL,
                             .counted = call->counted};
    change.force.longest = call->longest == 0 ? UINT32_MAX : call->longest;
    uint64_t *spare[RKS_PLAN_CHANGES_MAX + 1] = {NULL};
    status = read_weights(in, &plan->progress.schedule, call, &change, err);
    if (status == RKS_OK)
        status = make_spare(in, &plan->progress.schedule, &change, spare, err);
    if (status == RKS_OK)
        status = add_change(in, &plan->progress, &change, spare, err);
    for (size_t i = 0; i < RKS_PLAN_CHANGES_MAX; i++)
        rks_free(spare[i]);
    if (status != RKS_OK) {
        rks_free(change.force.weights);
        return status;
    }
    rks_epoch_image *image = &plan->image;
    if (image->epoch > call->epoch || (image->epoch == call->epoch && image->end > number))
        image->ready = false;
    plan->last_epoch = call->epoch;
    plan->last_step = number;
    plan->was_changed = true;
    plan->steps_known = false;
    rks_plan_forget_left_out(plan);
    return RKS_OK;
}

rks_status rks_plan_change(rks_plan *plan, uint64_t epoch, uint64_t step, const double *weights,
                           size_t sources, uint32_t longest, rks_error *err)
{
    const change_call call = {epoch, step, weights, sources, longest, .counted = false};
    return change_at(plan, &call, err);
}

/* Returns true if all epochs without a change have the same number of steps: batches are counted,
 * and lengths do not matter. */
static bool counts_batches(const rks_plan_config *config)
{
    return !config->strategy->packs && config->max_tokens == UINT64_MAX &&
           config->too_long != TOO_LONG_ALONE && config->too_long != TOO_LONG_SPLIT;
}

/* Returns the first epoch from `epoch` on that has a change, or UINT64_MAX. */
static uint64_t next_changed(const rks_mix_schedule *schedule, uint64_t epoch)
{
    for (size_t i = 0; i < schedule->count; i++)
        if (schedule->changes[i].epoch >= epoch)
            return schedule->changes[i].epoch;
    return UINT64_MAX;
}

/* Finds the epoch of step `step`, counted from the first step of epoch 0, and the step's number in
 * that epoch. If epochs have the same number of steps, counts them; else plans each one. */
static rks_status find_step(rks_plan *plan, uint64_t step, uint64_t *epoch, uint64_t *number,
                            rks_error *err)
{
    enum { PLANNED_MOST = 1 << 20 };
    const uint64_t draws_most = UINT64_C(1) << 30; /* half a minute */
    bool counts = counts_batches(&plan->in.config);
    uint64_t there, each = 0, planned = 0;
    *epoch = 0;
    for (uint64_t left = step;; ++*epoch, left -= there) {
        uint64_t changed = next_changed(&plan->progress.schedule, *epoch);
        if (each > 0 && changed > *epoch) {
            uint64_t alike = left / each < changed - *epoch ? left / each : changed - *epoch;
            *epoch += alike;
            left -= alike * each;
        }
        *number = left;
        if (each > 0 && changed > *epoch)
            return RKS_OK;
        rks_status status = rks_plan_steps(plan, *epoch, &there, err);
        if (status != RKS_OK || left < there)
            return status;
        if (there == 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "change after %" PRIu64 " steps: an epoch has none", step);
        if (counts && changed > *epoch)
            each = there;
        uint64_t all = ++planned + (counts ? 0 : left / there);
        if (all > PLANNED_MOST || all > 1 + draws_most / plan->in.mix->draws)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "change after %" PRIu64 " steps: about %" PRIu64
                            " epochs away, whose steps differ, so each had to be planned; name the "
                            "epoch and its step",
                            step, left / there + *epoch);
    }
}

rks_status rks_plan_change_after(rks_plan *plan, uint64_t steps, const double *weights,
                                 size_t sources, uint32_t longest, rks_error *err)
{
    change_call call = {
        .weights = weights, .sources = sources, .longest = longest, .counted = true};
    if (!has_weights(plan->in.mix, err))
        return RKS_ERR_STATE;
    if (plan->progress.done_count > 0)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "change after %" PRIu64
                        " steps: other ranks did some of them; name the epoch "
                        "and its step",
                        steps);
    rks_status status = find_step(plan, steps, &call.epoch, &call.step, err);
    return status == RKS_OK ? change_at(plan, &call, err) : status;
}

rks_status rks_plan_last_change(const rks_plan *plan, uint64_t *epoch, uint64_t *step,
                                rks_error *err)
{
    if (!plan->was_changed)
        return rks_fail(err, RKS_ERR_STATE, 0, "change: none was made by this plan");
    *epoch = plan->last_epoch;
    *step = plan->last_step;
    return RKS_OK;
}
