/* SPDX-License-Identifier: Apache-2.0
 *
 * step_balance.c: assigns batches to slots. Batches are sorted into classes of like cost
 * (batch_class.c) and shuffled in their class. Each run of `world` batches becomes a step, and then
 * the steps are shuffled. So the ranks of a step wait for each other as little as possible. */
#include "plan/cancellation.h"

#include "base/memory.h"
#include "plan/mix/mix.h"
#include "plan/strategy.h"

/* Sorts batches into image->slots, the costliest class first. counts[c] becomes the end of
 * class c. */
static rks_status sort_by_class(rks_epoch_image *image, const uint16_t *classes, uint32_t *counts,
                                rks_error *err)
{
    uint64_t batches = image->layout->batches;
    rks_status status = RKS_OK;
    for (uint64_t i = 0, end; i < batches && status == RKS_OK;) {
        status = rks_plan_stretch(i, batches, &end, err);
        for (; i < end; i++)
            counts[classes[i]]++;
    }
    uint32_t next = 0;
    for (size_t class = RKS_BATCH_CLASSES; class-- > 0;) {
        uint32_t count = counts[class];
        counts[class] = next;
        next += count;
    }
    for (uint64_t i = 0, end; i < batches && status == RKS_OK;) {
        status = rks_plan_stretch(i, batches, &end, err);
        for (; i < end; i++)
            image->slots[counts[classes[i]]++] = (uint32_t)i;
    }
    return status;
}

rks_status rks_plan_shuffle_steps(rks_epoch_image *image, uint64_t row, uint64_t key,
                                  rks_error *err)
{
    rks_random random = {key};
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = image->layout->batches / row; i > 1 && status == RKS_OK; i--) {
        uint32_t *a = image->slots + (i - 1) * row;
        uint32_t *b = image->slots + rks_random_below(&random, i) * row;
        for (uint64_t slot = 0; slot < row; slot++) {
            uint32_t batch = a[slot];
            a[slot] = b[slot];
            b[slot] = batch;
        }
        status = rks_plan_pause(&done, row, err);
    }
    return status;
}

rks_status rks_place_by_cost(const rks_plan_input *in, rks_epoch_image *image,
                             const rks_epoch_task *task, rks_error *err)
{
    const rks_plan_layout *layout = image->layout;
    uint64_t key = task->keys.places;
    rks_status status = rks_epoch_grow_slots(image, err);
    if (status != RKS_OK)
        return status;
    status = RKS_ERR_MEMORY;
    uint32_t *counts = NULL;
    uint16_t *classes = rks_alloc_raw(layout->batches, sizeof(*classes), err);
    if (classes == NULL)
        goto out;
    counts = rks_alloc(RKS_BATCH_CLASSES, sizeof(*counts), err);
    if (counts == NULL)
        goto out;

    status = rks_plan_classify(in, image, task->work, classes, err);
    if (status == RKS_OK)
        status = sort_by_class(image, classes, counts, err);
    uint32_t first = 0;
    for (size_t class = RKS_BATCH_CLASSES; class-- > 0 && status == RKS_OK;) {
        status = rks_plan_shuffle(rks_random_key(key, class), image->slots + first,
                                  counts[class] - first, err);
        first = counts[class];
    }
    if (status == RKS_OK)
        status =
            rks_plan_shuffle_steps(image, task->world, rks_random_key(key, RKS_BATCH_CLASSES), err);
    if (status == RKS_OK && in->mix != NULL)
        status = rks_mix_interleave(in, image, task->world, err);

out:
    rks_free(counts);
    rks_free(classes);
    return status;
}
