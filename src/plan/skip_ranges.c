/* SPDX-License-Identifier: Apache-2.0
 *
 * skip_ranges.c: steps that are skipped. They stay in the plan, so nothing else of it changes.
 * Loaders pass over them, and the rest of a resumed epoch does not hold their samples.
 *
 * A range counts the steps of one segment of an epoch, so it means the same samples after a change
 * of world. If the world before did not reach these steps, their samples are struck out with those
 * that it delivered. */
#include "plan/mix/mix.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

static bool is_of(const rks_plan_skip_range *range, uint64_t epoch, uint64_t segment)
{
    return range->epoch == epoch && range->segment == segment;
}

bool rks_plan_next_skip(const rks_epoch_progress *progress, uint64_t epoch, uint64_t segment,
                        uint64_t step, uint64_t steps, uint64_t *first, uint64_t *end)
{
    for (size_t i = 0; step < steps && i < progress->skip_count; i++) {
        const rks_plan_skip_range *range = &progress->skips[i];
        if (!is_of(range, epoch, segment) || range->end <= step || range->first >= steps)
            continue;
        *first = range->first < step ? step : range->first;
        *end = range->end < steps ? range->end : steps;
        return true;
    }
    return false;
}

uint64_t rks_plan_unskipped(const rks_epoch_progress *progress, uint64_t epoch, uint64_t segment,
                            uint64_t step)
{
    uint64_t first, end;
    return rks_plan_next_skip(progress, epoch, segment, step, UINT64_MAX, &first, &end) &&
                   first == step
               ? end
               : step;
}

uint64_t rks_plan_segment_of(const rks_epoch_progress *progress, uint64_t epoch)
{
    return progress->resumed_epoch == epoch ? progress->done_count : 0;
}

/* Inserts a range into an ordered list, and joins it with those that it meets. */
static void insert_range(rks_plan_skip_range *list, size_t *count, rks_plan_skip_range range)
{
    size_t kept = 0, at = 0;
    for (size_t i = 0; i < *count; i++) {
        rks_plan_skip_range old = list[i];
        if (is_of(&old, range.epoch, range.segment) && old.first <= range.end &&
            range.first <= old.end) {
            range.first = old.first < range.first ? old.first : range.first;
            range.end = old.end > range.end ? old.end : range.end;
            continue;
        }
        list[kept++] = old;
    }
    while (at < kept && (list[at].epoch != range.epoch       ? list[at].epoch < range.epoch
                         : list[at].segment != range.segment ? list[at].segment < range.segment
                                                             : list[at].first < range.first))
        at++;
    memmove(list + at + 1, list + at, (kept - at) * sizeof(*list));
    list[at] = range;
    *count = kept + 1;
}

size_t rks_plan_write_skips(const rks_epoch_progress *progress, char *text, size_t room)
{
    size_t size = 0;
    text[0] = '\0';
    for (size_t i = 0; i < progress->skip_count && size < room; i++) {
        const rks_plan_skip_range *range = &progress->skips[i];
        size += (size_t)snprintf(
            text + size, room - size, "%s[%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
            i == 0 ? "" : ", ", range->epoch, range->segment, range->first, range->end);
    }
    return size;
}

rks_status rks_plan_schedule_fits(const rks_plan_input *in, const rks_epoch_progress *progress,
                                  rks_error *err)
{
    char text[RKS_PLAN_SCHEDULE_MAX + 1];
    size_t size = rks_plan_write_skips(progress, text, sizeof(text));
    if (in->mix != NULL)
        size += rks_mix_write_changes(in->mix, &progress->schedule, text, sizeof(text));
    if (progress->skip_count <= RKS_PLAN_SKIPS_MAX && size <= RKS_PLAN_SCHEDULE_MAX)
        return RKS_OK;
    return rks_fail(
        err, RKS_ERR_STATE, 0,
        "skip: states have room for %d ranges of steps, and for %d bytes of these and of "
        "changes of weights; %zu ranges take more",
        RKS_PLAN_SKIPS_MAX, RKS_PLAN_SCHEDULE_MAX, progress->skip_count);
}

/* Adds `count` ranges to the plan's list; on failure the list is unchanged. */
rks_status rks_plan_add_skips(const rks_plan_input *in, rks_epoch_progress *progress,
                              const rks_plan_skip_range *ranges, size_t count, rks_error *err)
{
    rks_plan_skip_range *made = rks_alloc(RKS_PLAN_SKIPS_MAX + 1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_skip_range *kept = progress->skips;
    size_t kept_count = progress->skip_count;
    if (kept_count > 0)
        memcpy(made, kept, kept_count * sizeof(*made));
    progress->skips = made;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < count && status == RKS_OK; i++) {
        insert_range(progress->skips, &progress->skip_count, ranges[i]);
        status = rks_plan_schedule_fits(in, progress, err);
    }
    if (status != RKS_OK) {
        progress->skips = kept;
        progress->skip_count = kept_count;
        kept = made;
    }
    rks_free(kept);
    return status;
}

/* ---- in states ------------------------------------------------------------------------------- */

static bool read_range(const json_t *entry, uint32_t micro, rks_plan_skip_range *range)
{
    json_int_t most[] = {INT64_MAX, RKS_PLAN_SEGMENTS_MAX, UINT32_MAX, UINT32_MAX};
    uint64_t numbers[4] = {0};
    bool good = json_array_size(entry) == 4;
    for (size_t i = 0; i < 4 && good; i++) {
        const json_t *value = json_array_get(entry, i);
        good = json_is_integer(value) && json_integer_value(value) >= 0 &&
               json_integer_value(value) <= most[i];
        numbers[i] = (uint64_t)json_integer_value(value);
    }
    *range = (rks_plan_skip_range){numbers[0], numbers[1], numbers[2], numbers[3]};
    return good && range->first < range->end && range->first % micro == 0 &&
           range->end % micro == 0;
}

rks_status rks_plan_read_skips(const rks_plan_input *in, rks_epoch_progress *progress,
                               const json_t *list, rks_error *err)
{
    size_t entries = json_array_size(list); /* 0 if it is not a list */
    if (list == NULL)
        return RKS_OK;
    if (entries == 0 || entries > RKS_PLAN_SKIPS_MAX)
        return rks_fail(err, RKS_ERR_STATE, 0, "state: skip: not a list of 1 to %d",
                        RKS_PLAN_SKIPS_MAX);
    rks_plan_skip_range *ranges = rks_alloc_raw(entries, sizeof(*ranges), err);
    if (ranges == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < entries && status == RKS_OK; i++)
        if (!read_range(json_array_get(list, i), in->config.micro_batches, &ranges[i]))
            status = rks_fail(err, RKS_ERR_STATE, 0,
                              "state: skip: entry %zu is not [epoch, segment, first, end] of whole "
                              "optimizer steps",
                              i);
    if (status == RKS_OK)
        status = rks_plan_add_skips(in, progress, ranges, entries, err);
    rks_free(ranges);
    return status;
}
