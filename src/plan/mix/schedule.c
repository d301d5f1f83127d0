/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: changes of a mix at a step: what is drawn from that step on.
 *
 * An epoch with changes has stretches. It is planned for the first stretch, which does its steps.
 * The rest of the epoch is drawn anew for the second stretch, and so on, as after a change of
 * world. Steps count from the epoch's first step, over all worlds. */
#include "plan/mix/mix.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Returns how many steps of the epoch earlier worlds did. */
static uint64_t steps_before(const rks_epoch_progress *progress, uint64_t epoch)
{
    uint64_t steps = 0;
    for (size_t i = 0; progress->resumed_epoch == epoch && i < progress->done_count; i++)
        steps += progress->done[i].steps;
    return steps;
}

uint64_t rks_mix_number(const rks_epoch_progress *progress, uint64_t epoch, uint64_t step)
{
    return steps_before(progress, epoch) + step;
}

bool rks_mix_is_before(uint64_t epoch, uint64_t step, uint64_t other_epoch, uint64_t other_step)
{
    return epoch != other_epoch ? epoch < other_epoch : step < other_step;
}

const rks_mix_force *rks_mix_force_at(const rks_mix *mix, const rks_mix_schedule *schedule,
                                      uint64_t epoch, uint64_t step)
{
    const rks_mix_force *force = &mix->first;
    for (size_t i = 0; i < schedule->count; i++)
        if (!rks_mix_is_before(epoch, step, schedule->changes[i].epoch, schedule->changes[i].step))
            force = &schedule->changes[i].force;
    return force;
}

uint64_t rks_mix_next_change(const rks_mix_schedule *schedule, uint64_t epoch, uint64_t step)
{
    for (size_t i = 0; i < schedule->count; i++)
        if (schedule->changes[i].epoch == epoch && schedule->changes[i].step > step)
            return schedule->changes[i].step;
    return UINT64_MAX;
}

size_t rks_mix_write_changes(const rks_mix *mix, const rks_mix_schedule *schedule, char *text,
                             size_t room)
{
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < schedule->count && size < room; i++) {
        const rks_mix_change *change = &schedule->changes[i];
        size += (size_t)snprintf(text + size, room - size,
                                 "%s[%" PRIu64 ", %" PRIu64 ", %" PRIu32 ", [", i == 0 ? "" : ", ",
                                 change->epoch, change->step, change->force.longest);
        for (size_t s = 0; change->force.weights != NULL && s < mix->sources && size < room; s++)
            size += (size_t)snprintf(text + size, room - size, "%s%" PRIu64, s == 0 ? "" : ", ",
                                     change->force.weights[s]);
        if (size < room)
            size += (size_t)snprintf(text + size, room - size, "]]");
    }
    return size;
}

void rks_mix_free_changes(rks_mix_schedule *schedule)
{
    for (size_t i = 0; i < schedule->count; i++)
        rks_free(schedule->changes[i].force.weights);
    schedule->count = 0;
}

/* Checks that every source with a weight has samples that may be drawn. */
rks_status rks_mix_check_force(const rks_plan_input *in, const rks_mix_force *force, rks_error *err)
{
    const rks_mix *mix = in->mix;
    uint64_t *sizes = rks_alloc(2 * mix->sources, sizeof(*sizes), err);
    if (sizes == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_mix_sizes(in, force->longest, sizes, sizes + mix->sources, err);
    uint64_t all = 0;
    for (size_t i = 0; i < mix->sources && status == RKS_OK; i++) {
        all += sizes[i];
        if (force->weights != NULL && force->weights[i] > 0 && sizes[i] == 0)
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "change: \"%.60s\" has a weight, and no samples of at most %" PRIu32
                              "; give it 0, or let longer ones come",
                              mix->names[i], force->longest);
    }
    if (status == RKS_OK && all == 0)
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0, "change: no sample is of at most %" PRIu32,
                          force->longest);
    rks_free(sizes);
    return status;
}

/* ---- in states ------------------------------------------------------------------------------- */

static bool is_up_to(const json_t *value, json_int_t most)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 &&
           json_integer_value(value) <= most;
}

static rks_status read_change(const rks_mix *mix, const json_t *entry, rks_mix_change *change,
                              rks_error *err)
{
    const json_t *weights = json_array_get(entry, 3);
    size_t count = json_array_size(weights);
    bool good = json_array_size(entry) == 4 && is_up_to(json_array_get(entry, 0), INT64_MAX) &&
                is_up_to(json_array_get(entry, 1), INT64_MAX) &&
                is_up_to(json_array_get(entry, 2), UINT32_MAX) && json_is_array(weights) &&
                (count == 0 || count == mix->sources);
    *change = (rks_mix_change){0};
    if (good && count > 0) {
        uint64_t all = 0;
        change->force.weights = rks_alloc_raw(count, sizeof(uint64_t), err);
        if (change->force.weights == NULL)
            return RKS_ERR_MEMORY;
        for (size_t i = 0; i < count; i++) {
            const json_t *weight = json_array_get(weights, i);
            good = good && is_up_to(weight, (json_int_t)1 << 48) &&
                   (json_integer_value(weight) == 0 || mix->sizes[i] > 0);
            change->force.weights[i] = (uint64_t)json_integer_value(weight);
            all += change->force.weights[i];
        }
        good = good && all > 0;
    }
    change->epoch = (uint64_t)json_integer_value(json_array_get(entry, 0));
    change->step = (uint64_t)json_integer_value(json_array_get(entry, 1));
    change->force.longest = (uint32_t)json_integer_value(json_array_get(entry, 2));
    return good ? RKS_OK
                : rks_fail(err, RKS_ERR_STATE, 0,
                           "state: changes: not [epoch, step, longest, weights of all sources]");
}

static bool is_same_weights(const rks_mix *mix, const uint64_t *a, const uint64_t *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return memcmp(a, b, mix->sources * sizeof(*a)) == 0;
}

/* Returns true if the list of a state has the plan's change. A change that keeps the weights before
 * it takes those of the state. A change that was counted from the beginning takes the state's
 * place, since epochs of another world have other numbers of steps. `taken` marks the entries that
 * matched such a change. */
static bool has_change(const rks_mix *mix, rks_mix_change *list, size_t count,
                       const rks_mix_change *change, bool taken[RKS_PLAN_CHANGES_MAX])
{
    for (size_t i = 0; i < count; i++) {
        rks_mix_change *other = &list[i];
        bool there = other->epoch == change->epoch && other->step == change->step;
        bool same = (there || (change->counted && !taken[i])) &&
                    other->force.longest == change->force.longest;
        if (same &&
            (change->keeps || is_same_weights(mix, other->force.weights, change->force.weights))) {
            other->keeps = change->keeps;
            other->counted = change->counted;
            taken[i] = change->counted;
            return true;
        }
    }
    return false;
}

rks_status rks_mix_read_changes(const rks_plan_input *in, const rks_mix_schedule *ours,
                                const json_t *list, rks_mix_schedule *read, rks_error *err)
{
    const rks_mix *mix = in->mix;
    rks_mix_change *changes = read->changes;
    size_t entries = json_array_size(list); /* 0 if it is not a list */
    rks_status status = RKS_OK;
    read->count = 0;
    if (list != NULL && (entries == 0 || entries > RKS_PLAN_CHANGES_MAX))
        return rks_fail(err, RKS_ERR_STATE, 0, "state: changes: not a list of 1 to %d",
                        RKS_PLAN_CHANGES_MAX);
    if (list != NULL && (mix->counts != NULL || mix->odds != NULL))
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "state: changes: the plan has no weights of sources");
    for (size_t i = 0; i < entries && status == RKS_OK; i++) {
        status = read_change(mix, json_array_get(list, i), &changes[i], err);
        read->count = i + 1;
        if (status == RKS_OK && i > 0 &&
            !rks_mix_is_before(changes[i - 1].epoch, changes[i - 1].step, changes[i].epoch,
                               changes[i].step))
            status = rks_fail(err, RKS_ERR_STATE, 0, "state: changes: not in the order of steps");
        if (status == RKS_OK && changes[i].step % in->config.micro_batches != 0)
            status =
                rks_fail(err, RKS_ERR_STATE, 0, "state: changes: a step within an optimizer step");
        if (status == RKS_OK)
            status = rks_mix_check_force(in, &changes[i].force, err);
        if (status == RKS_ERR_ARGUMENT)
            status = rks_fail(err, RKS_ERR_STATE, 0, "state: changes: entry %zu cannot be", i);
    }
    bool taken[RKS_PLAN_CHANGES_MAX] = {false};
    for (size_t i = 0; i < ours->count && status == RKS_OK; i++)
        if (!has_change(mix, changes, read->count, &ours->changes[i], taken))
            status = rks_fail(err, RKS_ERR_STATE, 0,
                              "state: changes differ: it has not the plan's change at step %" PRIu64
                              " of epoch %" PRIu64 "; make that change after the state is resumed",
                              ours->changes[i].step, ours->changes[i].epoch);
    if (status != RKS_OK) {
        rks_mix_free_changes(read);
    }
    return status;
}
