/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_pack.c: bins of a capacity, filled best-fit decreasing (pack.c), all at once or by
 * windows that each epoch draws anew (pack_windows.c). pack_assign.c says which ids are in which
 * bin. */
#include "plan/strategy.h"

#include "base/memory.h"
#include "plan/pack/packing.h"

static bool pack_cuts_anew(const rks_plan_config *config)
{
    return rks_plan_windows(config);
}

static rks_status pack_cut(const rks_plan_input *in, rks_epoch_image *image,
                           const rks_plan_base *base, const rks_epoch_task *task,
                           rks_plan_layout *layout, rks_error *err)
{
    (void)image;
    return rks_plan_windows(&in->config)
               ? rks_pack_lay_out_windows(in, base, task->world, task->keys.windows, task->whole,
                                          layout, err)
               : rks_pack_lay_out(in, base, task->world, layout, err);
}

/* Counts the bins that the first epochs need. Then makes epoch 0. */
static rks_status lay_out_windows(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    uint64_t looks = rks_plan_looks(in);
    rks_plan_base base = {
        .ids = rks_plan_base_sorted(in), .count = rks_plan_kept(in), .longest = in->longest};
    uint32_t *merged = NULL;
    if (in->piece_count > 0) {
        merged = rks_alloc_raw(base.count, sizeof(*merged), err);
        if (merged == NULL)
            return RKS_ERR_MEMORY;
        rks_plan_merge_pieces(in, base.ids, rks_plan_uncut(in), merged);
        base.ids = merged;
    }
    rks_status status = rks_pack_look(in, &base, 0, 0, err);
    for (uint64_t epoch = 0; epoch < looks && status == RKS_OK; epoch++)
        status = rks_pack_look(in, &base, rks_epoch_keys_of(in, epoch, 0).windows,
                               in->config.pack_window, err);
    rks_free(merged);
    if (status != RKS_OK)
        return status;
    /* Adds a reserve, so that hardly any epoch needs larger windows. */
    uint64_t apart = in->window_most > in->window_least ? in->window_most - in->window_least : 0;
    in->window_most += apart;
    in->window_least -= apart < in->window_least ? apart : in->window_least;
    rks_epoch_work work = {0};
    status = rks_epoch_make_first(in, &work, image, err);
    in->whole.batches = image->part.batches;
    return status;
}

static rks_status pack_lay_out(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    return rks_plan_windows(&in->config) ? lay_out_windows(in, image, err)
                                         : rks_plan_lay_out_once(in, image, err);
}

static rks_status pack_place(const rks_plan_input *in, rks_epoch_image *image,
                             const rks_epoch_task *task, rks_error *err)
{
    rks_status status =
        rks_pack_deal(in, image, task->world, task->keys.members, task->keys.bins, err);
    if (status == RKS_OK)
        status = rks_epoch_grow_slots(image, err);
    return status == RKS_OK ? rks_pack_arrange(in, image, task->world, task->keys.places, err)
                            : status;
}

const rks_strategy rks_strategy_pack = {
    .name = "pack",
    .order = RKS_ORDER_BY_LENGTH,
    .packs = true,
    .cuts_anew = pack_cuts_anew,
    .lay_out = pack_lay_out,
    .cut = pack_cut,
    .place = pack_place,
};
