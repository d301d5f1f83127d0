/* SPDX-License-Identifier: Apache-2.0
 *
 * longest_first.c: order "longest_first": sorts the samples of each batch of an epoch by length,
 * longest first; for pack, those of each bin. Equal lengths keep the plan's order. */
#include "plan/batch/layout.h"

#include <stdlib.h>

#include "base/memory.h"
#include "plan/cancellation.h"

/* A sample being sorted. The key's upper 32 bits grow as the length shrinks; the lower 32 bits are
 * its place. */
typedef struct placed {
    uint64_t key;
    uint32_t id;
} placed;

static int by_length(const void *a, const void *b)
{
    uint64_t left = ((const placed *)a)->key, right = ((const placed *)b)->key;
    return left < right ? -1 : left > right;
}

static void sort_some(const rks_plan_input *in, uint32_t *ids, size_t count, placed *room)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t shorter = UINT32_MAX - rks_plan_length(in, ids[i]);
        room[i] = (placed){shorter << 32 | i, ids[i]};
    }
    qsort(room, count, sizeof(*room), by_length);
    for (size_t i = 0; i < count; i++)
        ids[i] = room[i].id;
}

/* Sorts the batch at `slot`, or each of its bins. */
static void sort_batch(const rks_plan_input *in, rks_epoch_image *image, uint64_t slot,
                       placed *room)
{
    const uint32_t *ids, *bounds;
    size_t count, bins;
    rks_plan_at(in, image, slot, &ids, &count);
    uint32_t *own = image->ids + (ids - image->ids);
    if (image->layout->pack == NULL) {
        sort_some(in, own, count, room);
        return;
    }
    rks_plan_bins_at(in, image, slot, &bounds, &bins);
    for (size_t i = 0; i < bins; i++)
        sort_some(in, own + (bounds[i] - bounds[0]), bounds[i + 1] - bounds[i], room);
}

rks_status rks_plan_longest_first(const rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    size_t most = 0, count;
    uint64_t done = 0;
    const uint32_t *ids;
    for (uint64_t slot = 0; slot < image->layout->batches; slot++) {
        rks_plan_at(in, image, slot, &ids, &count);
        most = count > most ? count : most;
    }
    placed *room = rks_alloc_raw(most, sizeof(*room), err);
    if (room == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (uint64_t slot = 0; slot < image->layout->batches && status == RKS_OK; slot++) {
        rks_plan_at(in, image, slot, &ids, &count);
        sort_batch(in, image, slot, room);
        status = rks_plan_pause(&done, count, err);
    }
    rks_free(room);
    return status;
}
