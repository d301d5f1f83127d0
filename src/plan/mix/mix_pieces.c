/* SPDX-License-Identifier: Apache-2.0
 *
 * mix_pieces.c: a mix of samples that are cut into pieces (too_long "split").
 *
 * Draws choose samples; the plan holds pieces. While draws are chosen, `left` of a cut sample
 * counts its draws. Then each of its pieces gets these draws, and the sample itself has none. So
 * every item of a sample occurs once in each of its draws.
 *
 * A change of weights may find a draw half delivered. The other pieces of that draw remain: a piece
 * lacks as many draws as it is behind the most delivered piece of its sample. */
#include "plan/mix/mix.h"

#include <inttypes.h>

#include "base/error.h"
#include "plan/cancellation.h"
#include "plan/order/order.h"

uint64_t rks_mix_items(const rks_plan_input *in)
{
    return in->count + in->piece_count;
}

/* Returns the least of `counts` over the pieces of a cut sample. */
static uint32_t fewest_of(const rks_plan_input *in, size_t cut, const uint32_t *counts)
{
    uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first), fewest = UINT32_MAX;
    for (uint32_t i = 0; i < pieces; i++)
        fewest = counts[first + i] < fewest ? counts[first + i] : fewest;
    return fewest;
}

static uint32_t most_of(const rks_plan_input *in, size_t cut, const uint32_t *counts)
{
    uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first), most = 0;
    for (uint32_t i = 0; i < pieces; i++)
        most = counts[first + i] > most ? counts[first + i] : most;
    return most;
}

uint64_t rks_mix_unbegun(const rks_plan_input *in, const rks_mix_draws *draws)
{
    uint64_t unbegun = draws->rest;
    for (size_t cut = 0; cut < in->cut_count; cut++) {
        uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first);
        for (uint32_t i = 0; i < pieces; i++)
            unbegun -= draws->left[first + i];
        unbegun += fewest_of(in, cut, draws->left);
    }
    return unbegun;
}

void rks_mix_join_pieces(const rks_plan_input *in, rks_mix_draws *draws, bool is_new)
{
    for (size_t cut = 0; cut < in->cut_count; cut++) {
        uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first);
        uint32_t unbegun = is_new ? 0 : fewest_of(in, cut, draws->left);
        for (uint32_t i = 0; i < pieces; i++)
            draws->left[first + i] = is_new ? 0 : draws->left[first + i] - unbegun;
        if (draws->drawn != NULL)
            draws->drawn[in->cuts[cut].id] = most_of(in, cut, draws->drawn);
    }
}

rks_status rks_mix_part_pieces(const rks_plan_input *in, rks_mix_draws *draws, rks_error *err)
{
    uint64_t count = draws->rest, done = 0;
    for (size_t cut = 0; cut < in->cut_count; cut++) {
        uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first);
        uint32_t *times = &draws->left[in->cuts[cut].id];
        draws->rest -= *times;
        for (uint32_t i = 0; i < pieces; i++) {
            draws->left[first + i] += *times;
            draws->rest += draws->left[first + i];
        }
        *times = 0;
        rks_status status = rks_plan_pause(&done, pieces, err);
        if (status != RKS_OK)
            return status;
    }
    return draws->rest <= UINT32_MAX
               ? RKS_OK
               : rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                          "mix: %" PRIu64 " draws are %" PRIu64 " samples and pieces of %s %" PRIu32
                          "; an epoch has at most 2^32 - 1: set samples lower, or %s higher",
                          count, draws->rest, in->config.limit_by, in->config.limit,
                          in->config.limit_by);
}

rks_status rks_mix_fill_sorted_pieces(const rks_plan_input *in, const rks_mix_draws *draws,
                                      rks_epoch_image *image, rks_plan_base *base, rks_error *err)
{
    const uint32_t *order = rks_plan_base_sorted(in), *left = draws->left;
    uint64_t uncut = rks_plan_uncut(in), piece = 0, done = 0, at = 0;
    for (uint64_t i = 0; i < uncut || piece < in->piece_count;) {
        /* As in rks_plan_merge_pieces, of equal lengths whole samples come first. */
        bool takes_piece = i == uncut || (piece < in->piece_count &&
                                          rks_plan_piece_length(in, in->piece_order[piece]) >
                                              in->lengths[order[i]]);
        uint32_t id = takes_piece ? in->piece_order[piece++] : order[i++];
        for (uint32_t times = left[id]; times > 0; times--)
            image->ids[at++] = id;
        rks_status status = rks_plan_pause(&done, 1 + left[id], err);
        if (status != RKS_OK)
            return status;
    }
    base->count = at;
    return RKS_OK;
}

void rks_mix_copy_pieces(const rks_plan_input *in, const rks_mix_draws *draws,
                         rks_epoch_image *image, size_t cut, uint64_t *at)
{
    const uint32_t *left = draws->left;
    uint32_t first, pieces = rks_plan_pieces_of(in, cut, &first);
    for (uint32_t times = most_of(in, cut, left); times > 0; times--)
        for (uint32_t i = 0; i < pieces; i++)
            if (left[first + i] >= times)
                image->ids[(*at)++] = first + i;
}
