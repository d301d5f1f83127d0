/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_image.c: the arrays of an epoch: they grow, give a batch by its slot, and are freed. */
#include "plan/order/order.h"

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/batch/layout.h"
#include "plan/pack/packing.h"

rks_status rks_epoch_grow(uint32_t **items, uint64_t *room, uint64_t count, rks_error *err)
{
    if (count <= *room && *items != NULL)
        return RKS_OK;
    uint32_t *grown = rks_realloc(*items, count, sizeof(*grown), err);
    if (grown == NULL)
        return RKS_ERR_MEMORY;
    rks_plan_advise(grown, count * sizeof(*grown));
    rks_usage_add(RKS_MEMORY_PLAN, (count - *room) * sizeof(*grown));
    *items = grown;
    *room = count;
    return RKS_OK;
}

rks_status rks_epoch_grow_ids(rks_epoch_image *image, uint64_t count, rks_error *err)
{
    return image->room != NULL ? image->room->grow(image, count, err)
                               : rks_epoch_grow(&image->ids, &image->ids_room, count, err);
}

rks_status rks_epoch_grow_slots(rks_epoch_image *image, rks_error *err)
{
    image->slotted = true;
    return rks_epoch_grow(&image->slots, &image->slots_room, image->layout->batches, err);
}

void rks_plan_bins_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t slot,
                      const uint32_t **bounds, size_t *bins)
{
    uint64_t first, end;
    rks_pack_bins_of(image->layout->pack, in->config.batch_size, image->slots[slot], &first, &end);
    *bounds = image->starts + first;
    *bins = end - first;
}

void rks_plan_batch_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t batch,
                       const uint32_t **ids, size_t *count)
{
    uint64_t first, end;
    if (image->layout->pack != NULL) {
        rks_pack_bins_of(image->layout->pack, in->config.batch_size, batch, &first, &end);
        *ids = image->ids + image->starts[first];
        *count = image->starts[end] - image->starts[first];
        return;
    }
    const rks_plan_group *groups = image->layout->groups;
    size_t low = 0; /* the last group that begins at or before the batch */
    size_t high = image->layout->count - 1;
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (groups[middle].first_batch <= batch)
            low = middle;
        else
            high = middle - 1;
    }
    rks_plan_deal(&groups[low], (uint32_t)(batch - groups[low].first_batch), &first, &end);
    *ids = image->ids + groups[low].first + first;
    *count = end - first;
}

void rks_plan_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t slot,
                 const uint32_t **ids, size_t *count)
{
    rks_plan_batch_at(in, image, image->slotted ? image->slots[slot] : slot, ids, count);
}

void rks_epoch_image_clear(rks_epoch_image *image)
{
    rks_plan_layout_free(&image->part);
    rks_usage_sub(RKS_MEMORY_PLAN,
                  (image->slots_room + image->ids_room + image->starts_room) * sizeof(uint32_t) +
                      image->pieces_room * (sizeof(*image->pieces) + sizeof(uint32_t)));
    rks_free(image->slots);
    rks_free(image->starts);
    rks_free(image->ids);
    rks_free(image->pieces);
    rks_free(image->piece_places);
    rks_free(image->quotas);
    image->slots = image->starts = image->ids = image->piece_places = NULL;
    image->pieces = NULL;
    image->quotas = NULL;
    image->slots_room = image->starts_room = image->ids_room = image->pieces_room = 0;
    image->pieces_shown = 0;
    image->layout = NULL;
    image->ready = false;
}
