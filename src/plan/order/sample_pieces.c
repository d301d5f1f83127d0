/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_pieces.c: too_long "split": cuts samples above the limit into pieces of that length; the
 * last piece of a sample takes the rest.
 *
 * A piece is planned like a sample. Its id is `count` + its place among the pieces, so it is above
 * those of all samples. Pieces are in the order of samples, and in order within each. A cut
 * sample's own id is not planned. When an epoch is ready, the ids of pieces become the ids of their
 * samples, and a list says which places hold pieces. So samples that are not cut cost nothing. */
#include "plan/order/order.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/mix/mix.h"
#include "plan/plan_memory.h"

/* Returns the cut sample of piece `piece`. */
static const rks_plan_cut_sample *find_cut(const rks_plan_input *in, uint32_t piece)
{
    size_t low = 0, high = in->cut_count - 1;
    while (low < high) { /* the last one whose first piece is not after it */
        size_t middle = high - (high - low) / 2;
        if (in->cuts[middle].first <= piece)
            low = middle;
        else
            high = middle - 1;
    }
    return &in->cuts[low];
}

static rks_piece piece_of(const rks_plan_input *in, uint32_t piece, uint32_t *id)
{
    const rks_plan_cut_sample *cut = find_cut(in, piece);
    uint32_t limit = in->config.limit, start = (piece - cut->first) * limit;
    uint32_t left = in->lengths[cut->id] - start;
    *id = cut->id;
    return (rks_piece){.start = start, .count = left < limit ? left : limit};
}

uint32_t rks_plan_piece_length(const rks_plan_input *in, uint32_t id)
{
    uint32_t sample;
    return piece_of(in, id - (uint32_t)in->count, &sample).count;
}

uint32_t rks_plan_piece_sample(const rks_plan_input *in, uint32_t id)
{
    return find_cut(in, id - (uint32_t)in->count)->id;
}

uint64_t rks_plan_part_of_balance(const rks_plan_input *in, uint32_t id, uint32_t start,
                                  uint32_t count)
{
    uint64_t cost = in->config.balance[id], length = in->lengths[id];
    return cost * (start + (uint64_t)count) / length - cost * start / length;
}

uint64_t rks_plan_piece_balance(const rks_plan_input *in, uint32_t id)
{
    uint32_t sample;
    rks_piece piece = piece_of(in, id - (uint32_t)in->count, &sample);
    return rks_plan_part_of_balance(in, sample, piece.start, piece.count);
}

uint32_t rks_plan_piece_number(const rks_plan_input *in, uint32_t id, uint32_t start)
{
    size_t low = 0, high = in->cut_count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (in->cuts[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return in->cuts[low].first + start / in->config.limit;
}

/* ---- which pieces there are ------------------------------------------------------------------ */

static rks_status list_cuts(rks_plan_input *in, rks_error *err)
{
    uint32_t limit = in->config.limit;
    uint64_t pieces = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t length = in->lengths[i];
            if (length <= limit || length == RKS_LENGTH_ABSENT)
                continue;
            in->cuts[in->cut_count++] =
                (rks_plan_cut_sample){.id = (uint32_t)i, .first = (uint32_t)pieces};
            pieces += length / limit + (length % limit != 0);
            if (in->count + pieces > UINT32_MAX)
                return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                                "plan: too_long=split makes 2^32 samples and pieces or more of %s "
                                "%" PRIu32 "; make that larger",
                                in->config.limit_by, limit);
        }
    }
    in->piece_count = pieces;
    return RKS_OK;
}

/* Sorts pieces longest first, equal ones in order. */
static rks_status sort_pieces(rks_plan_input *in, rks_error *err)
{
    uint32_t limit = in->config.limit, piece = 0;
    in->piece_order = rks_alloc_raw(in->piece_count, sizeof(*in->piece_order), err);
    if (in->piece_order == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, in->piece_count * sizeof(*in->piece_order));
    uint32_t *lengths = rks_alloc_raw(in->piece_count, sizeof(*lengths), err);
    if (lengths == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < in->cut_count; i++)
        for (uint32_t left = in->lengths[in->cuts[i].id]; left > 0; piece++) {
            lengths[piece] = left < limit ? left : limit;
            left -= lengths[piece];
        }
    rks_status status = rks_plan_sort(lengths, in->piece_count, in->piece_order, err);
    rks_free(lengths);
    for (uint64_t i = 0; i < in->piece_count && status == RKS_OK; i++)
        in->piece_order[i] += (uint32_t)in->count;
    return status;
}

rks_status rks_plan_split(rks_plan_input *in, uint64_t *tokens, rks_error *err)
{
    if (in->config.too_long != TOO_LONG_SPLIT || in->too_long == 0)
        return RKS_OK;
    in->cuts = rks_alloc_raw(in->too_long, sizeof(*in->cuts), err);
    if (in->cuts == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, in->too_long * sizeof(*in->cuts));
    rks_status status = list_cuts(in, err);
    if (status == RKS_OK)
        status = rks_plan_memory_check(in, err);
    for (size_t i = 0; i < in->cut_count && status == RKS_OK; i++)
        *tokens += in->lengths[in->cuts[i].id] - 1; /* it counts 1 already */
    in->longest = in->config.limit;
    return status == RKS_OK ? sort_pieces(in, err) : status;
}

void rks_plan_merge_pieces(const rks_plan_input *in, const uint32_t *order, uint64_t count,
                           uint32_t *merged)
{
    uint64_t piece = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t length = in->lengths[order[i]];
        while (piece < in->piece_count &&
               rks_plan_piece_length(in, in->piece_order[piece]) > length)
            *merged++ = in->piece_order[piece++];
        *merged++ = order[i];
    }
    memcpy(merged, in->piece_order + piece, (in->piece_count - piece) * sizeof(*in->piece_order));
}

uint32_t rks_plan_pieces_of(const rks_plan_input *in, size_t cut, uint32_t *first)
{
    uint64_t end = cut + 1 < in->cut_count ? in->cuts[cut + 1].first : in->piece_count;
    *first = (uint32_t)(in->count + in->cuts[cut].first);
    return (uint32_t)(end - in->cuts[cut].first);
}

/* ---- the pieces of an epoch ------------------------------------------------------------------ */

static uint64_t count_pieces(const rks_plan_input *in, const rks_epoch_image *image, uint64_t count)
{
    uint64_t pieces = 0;
    for (uint64_t i = 0; i < count; i++)
        pieces += image->ids[i] >= in->count;
    return pieces;
}

static rks_status make_piece_room(rks_epoch_image *image, uint64_t pieces, rks_error *err)
{
    if (pieces <= image->pieces_room)
        return RKS_OK;
    rks_piece *list = rks_realloc(image->pieces, pieces, sizeof(*list), err);
    if (list == NULL)
        return RKS_ERR_MEMORY;
    image->pieces = list;
    uint32_t *places = rks_realloc(image->piece_places, pieces, sizeof(*places), err);
    if (places == NULL)
        return RKS_ERR_MEMORY;
    image->piece_places = places;
    rks_usage_add(RKS_MEMORY_PLAN,
                  (pieces - image->pieces_room) * (sizeof(*list) + sizeof(*places)));
    image->pieces_room = pieces;
    return RKS_OK;
}

/* Returns the number of the first piece at place `first` of image->ids or after it. */
static size_t find_places(const rks_epoch_image *image, uint64_t first)
{
    size_t low = 0, high = image->pieces_shown;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (image->piece_places[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void rks_plan_pieces_at(const rks_epoch_image *image, const uint32_t *ids, size_t count,
                        const rks_piece **pieces, size_t *piece_count)
{
    uint64_t first = (uint64_t)(ids - image->ids);
    size_t from = image->pieces_shown == 0 ? 0 : find_places(image, first);
    size_t end = image->pieces_shown == 0 ? 0 : find_places(image, first + count);
    *pieces = image->pieces == NULL ? NULL : image->pieces + from;
    *piece_count = end - from;
}

rks_status rks_plan_show_pieces(const rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    image->pieces_shown = 0;
    if (in->piece_count == 0)
        return RKS_OK;
    const rks_plan_layout *layout = image->layout;
    uint64_t count = layout->pack != NULL ? image->samples : layout->base, done = 0;
    if (layout->pack == NULL && image->repeated > 0) {
        const rks_plan_group *last = &layout->groups[layout->count - 1];
        count = (uint64_t)last->first + last->count;
    }
    rks_status status = make_piece_room(image, count_pieces(in, image, count), err);
    for (uint64_t i = 0; i < count && status == RKS_OK; i++) {
        if (image->ids[i] < in->count)
            continue;
        image->piece_places[image->pieces_shown] = (uint32_t)i;
        image->pieces[image->pieces_shown++] =
            piece_of(in, image->ids[i] - (uint32_t)in->count, &image->ids[i]);
    }
    for (uint64_t slot = 0; slot < layout->batches && status == RKS_OK; slot++) {
        const uint32_t *ids;
        const rks_piece *list;
        size_t samples, pieces;
        rks_plan_at(in, image, slot, &ids, &samples);
        rks_plan_pieces_at(image, ids, samples, &list, &pieces);
        for (size_t i = 0, at = (size_t)(list - image->pieces); i < pieces; i++)
            image->pieces[at + i].place =
                image->piece_places[at + i] - (uint32_t)(ids - image->ids);
        status = rks_plan_pause(&done, samples, err);
    }
    return status;
}

void rks_plan_free_pieces(rks_plan_input *in)
{
    rks_usage_sub(RKS_MEMORY_PLAN,
                  (in->cuts == NULL ? 0 : in->too_long * sizeof(*in->cuts)) +
                      (in->piece_order == NULL ? 0 : in->piece_count * sizeof(uint32_t)));
    rks_free(in->cuts);
    rks_free(in->piece_order);
}
