/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_random.c: batches of any samples. With batch_size alone they are full. With a budget
 * they are filled: in constant steps by budget_fill.c, or each epoch as far as they go (steps
 * per_epoch). The draws of a mix keep the order in which their sources are even (sequence.c). */
#include "plan/strategy.h"

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/mix/mix.h"

static bool random_cuts_anew(const rks_plan_config *config)
{
    return config->per_epoch || rks_plan_fills(config);
}

static bool random_is_greedy(const rks_plan_config *config)
{
    return config->max_tokens != UINT64_MAX || config->alone_in_order;
}

static rks_status random_cut(const rks_plan_input *in, rks_epoch_image *image,
                             const rks_plan_base *base, const rks_epoch_task *task,
                             rks_plan_layout *layout, rks_error *err)
{
    /* Fewer samples than ranks fail, or repeat. */
    if (rks_plan_fills(&in->config) && base->count >= task->world)
        return rks_plan_fill(in, image, base, task, layout, err);
    return rks_plan_cut(in, base, task->world,
                        random_is_greedy(&in->config) ? rks_cut_greedy : rks_cut_uniform, layout,
                        err);
}

static rks_status random_shuffle(const rks_plan_input *in, rks_epoch_image *image,
                                 const rks_plan_base *base, const rks_plan_layout *layout,
                                 uint64_t key, rks_error *err)
{
    (void)in;
    (void)layout;
    rks_status status = rks_plan_shuffle(rks_random_key(key, 0), image->ids, base->alone, err);
    if (status == RKS_OK) /* rks_plan_fill_look_shuffled does the same with lengths */
        status = rks_plan_shuffle(rks_random_key(key, 1), image->ids + base->alone,
                                  base->count - base->alone, err);
    return status;
}

/* Counts the batches that the lengths need, longest first. */
static rks_status look_at_sorted(rks_plan_input *in, rks_epoch_work *work,
                                 const rks_plan_base *shuffled, rks_error *err)
{
    uint64_t count = shuffled->count - shuffled->alone - in->piece_count;
    uint64_t room = in->count + (in->piece_count > 0 ? shuffled->count : 0);
    uint32_t *order = rks_alloc_raw(room, sizeof(*order), err);
    if (order == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, room * sizeof(*order));
    rks_plan_base base = *shuffled;
    uint64_t least = in->fill_least;
    rks_status status = rks_plan_sort(in->lengths, in->count, order, err);
    if (status == RKS_OK) { /* after the absent, dropped, split and alone ones */
        base.ids = order + (in->count - count) - base.alone;
        if (in->piece_count > 0) {
            rks_plan_merge_pieces(in, base.ids, count, order + in->count);
            base.ids = order + in->count;
        }
        status = rks_plan_fill_look(in, work, &base, false, err);
        in->fill_least = least; /* no epoch is in this order */
    }
    rks_usage_sub(RKS_MEMORY_PLAN, room * sizeof(*order));
    rks_free(order);
    return status;
}

/* Counts the batches of the first epochs, then makes epoch 0 from ids and lengths in memory. */
static rks_status lay_out_filled(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    enum { DIRECT_LENGTHS = 1 << 16 };
    uint64_t looks = rks_plan_looks(in);
    rks_plan_base base = {0};
    rks_epoch_work work = {0};
    rks_status status = rks_epoch_grow_ids(image, rks_plan_kept(in), err);
    in->fill_least = UINT64_MAX;
    if (status == RKS_OK)
        status = rks_plan_base_fill(in, image, NULL, &base, err);
    for (uint64_t epoch = looks - 1; epoch > 0 && status == RKS_OK; epoch--)
        status = rks_plan_fill_look_shuffled(in, &work, &base,
                                             rks_epoch_keys_of(in, epoch, 0).members, err);
    if (looks > 1 && status == RKS_OK)
        status = in->longest < DIRECT_LENGTHS ? rks_plan_fill_look_sorted(in, &work, &base, err)
                                              : look_at_sorted(in, &work, &base, err);
    if (status == RKS_OK)
        status = random_shuffle(in, image, &base, NULL, rks_epoch_keys_of(in, 0, 0).members, err);
    if (status == RKS_OK)
        status = rks_plan_fill_look(in, &work, &base, true, err);
    if (status == RKS_OK) {
        work.is_shuffled = true;
        work.shuffled = base;
        status = rks_epoch_make_first(in, &work, image, err);
    }
    rks_plan_fill_forget(&work);
    in->whole.batches = image->part.batches;
    return status;
}

static rks_status random_lay_out(rks_plan_input *in, rks_epoch_image *image, rks_error *err)
{
    return rks_plan_fills(&in->config) ? lay_out_filled(in, image, err)
                                       : rks_plan_lay_out_once(in, image, err);
}

static rks_status random_place(const rks_plan_input *in, rks_epoch_image *image,
                               const rks_epoch_task *task, rks_error *err)
{
    if (in->mix == NULL)
        return rks_place_by_cost(in, image, task, err);
    return task->world == 1 ? RKS_OK : rks_mix_arrange(in, image, task, err);
}

const rks_strategy rks_strategy_random = {
    .name = "random",
    .order = RKS_ORDER_ANY,
    .cuts_anew = random_cuts_anew,
    .is_greedy = random_is_greedy,
    .lay_out = random_lay_out,
    .cut = random_cut,
    .shuffle = random_shuffle,
    .place = random_place,
};
