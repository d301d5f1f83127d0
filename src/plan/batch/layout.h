/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h: layouts of batches, and where batches go. */
#ifndef RKS_PLAN_BATCH_LAYOUT_H
#define RKS_PLAN_BATCH_LAYOUT_H

#include "plan/epoch.h"

/* layout.c */
/* Adds one batch: to the last group if that has batches of the same kind, else as a new group. */
rks_status rks_plan_layout_batch(rks_plan_layout *layout, uint64_t first, uint64_t size,
                                 uint32_t cap, bool alone, rks_error *err);
/* Adds the group of the first `samples` samples, each alone in a batch. */
rks_status rks_plan_layout_alone(rks_plan_layout *layout, uint64_t samples, rks_error *err);
/* Adds a group, and grows the layout's `room`. RKS_ERR_MEMORY if allocation fails. */
rks_status rks_plan_layout_add(rks_plan_layout *layout, const rks_plan_group *group,
                               rks_error *err);
void rks_plan_layout_free(rks_plan_layout *layout);

/* budget_fill.c: fills batches for strategy random with a budget and constant steps, for which
 * rks_plan_fills returns true. Below, `base` is image->ids, shuffled, unless a comment says
 * otherwise. */
/* Counts the batches that the base needs, and updates fill_most and fill_least. If `keeps` is true,
 * `work` keeps the base's widths for rks_plan_fill. */
rks_status rks_plan_fill_look(rks_plan_input *in, rks_epoch_work *work, const rks_plan_base *base,
                              bool keeps, rks_error *err);
/* Does the same for a base by id, as an epoch with the key `members` shuffles it. A shuffle does
 * not depend on what it shuffles. So this shuffles lengths, read in the order of ids, and looks
 * none up. */
rks_status rks_plan_fill_look_shuffled(rks_plan_input *in, rks_epoch_work *work,
                                       const rks_plan_base *base, uint64_t members, rks_error *err);
/* Frees work->widths. */
void rks_plan_fill_forget(rks_epoch_work *work);
/* Counts the batches that the samples need longest first, and updates only fill_most. */
rks_status rks_plan_fill_look_sorted(rks_plan_input *in, rks_epoch_work *work,
                                     const rks_plan_base *base, rks_error *err);
/* Fills `layout`; the counts set its number of batches if the epoch is whole. Afterwards
 * task->work holds the widths of the base, until rks_plan_fill_forget. RKS_ERR_DATA if the
 * batches cannot make equal steps. */
rks_status rks_plan_fill(const rks_plan_input *in, rks_epoch_image *image,
                         const rks_plan_base *base, const rks_epoch_task *task,
                         rks_plan_layout *layout, rks_error *err);

/* tail.c */
/* Return RKS_ERR_DATA for batches that make no equal steps: they cannot be split further, or are
 * too few for the option tail "drop". */
rks_status rks_plan_cannot_split(uint64_t batches, uint32_t world, rks_error *err);
rks_status rks_plan_drops_all(uint64_t batches, uint32_t world, rks_error *err);
/* Makes the number of batches a multiple of world, as the option `tail` says. RKS_ERR_DATA
 * if that is not possible. */
rks_status rks_plan_even(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                         rks_plan_layout *layout, rks_error *err);

/* Sets *first and *end to the samples of batch `index` of a group, counted from the group's
 * first. */
static inline void rks_plan_deal(const rks_plan_group *group, uint32_t index, uint64_t *first,
                                 uint64_t *end)
{
    uint64_t multiples = ((uint64_t)group->count + group->multiple - 1) / group->multiple;
    uint64_t each = multiples / group->batches;
    uint64_t more = multiples % group->batches; /* the first batches have one multiple more */
    *first = (index * each + (index < more ? index : more)) * group->multiple;
    *end = *first + (each + (index < more ? 1 : 0)) * group->multiple;
    if (*end > group->count)
        *end = group->count;
}

/* longest_first.c: sorts the samples within each batch of the current epoch, longest first. */
rks_status rks_plan_longest_first(const rks_plan_input *in, rks_epoch_image *image, rks_error *err);

/* batch_class.c */
enum {
    RKS_BATCH_CLASS_BITS = 6,
    RKS_BATCH_CLASS_WIDTH = 1 << RKS_BATCH_CLASS_BITS,
    RKS_BATCH_CLASSES = 96 * RKS_BATCH_CLASS_WIDTH
};
/* Sets the class of each batch of the epoch. Batches of like cost have one class, which grows with
 * cost. */
rks_status rks_plan_classify(const rks_plan_input *in, const rks_epoch_image *image,
                             const rks_epoch_work *work, uint16_t *classes, rks_error *err);

/* step_balance.c */
/* Shuffles the runs of `row` slots among each other. */
rks_status rks_plan_shuffle_steps(rks_epoch_image *image, uint64_t row, uint64_t key,
                                  rks_error *err);

#endif
