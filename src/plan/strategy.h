/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy.h: what a strategy is: an order of ids, and how they become batches and steps. A new
 * strategy is a file with one rks_strategy and a row in strategy.c.
 *
 *   base    the ids to plan, in the strategy's order
 *   cut     base ──► layout: groups of batches within the budget, in equal steps for a world
 *   shuffle ids change places within the layout's bounds
 *   place   layout ──► which batch is at which step and rank
 *
 * Laws, which tests/unit/plan/test_plan_laws.c checks for every row:
 * - The same input, keys and world give the same bits on every machine: integers alone, no state.
 * - Each id of the base is in one batch, unless the tail drops or repeats it. No batch is empty,
 *   none is above the budget, and all ranks have the same number of batches.
 * - Whole epochs have the same number of steps, unless the option steps is "per_epoch". */
#ifndef RKS_PLAN_STRATEGY_H
#define RKS_PLAN_STRATEGY_H

#include "plan/batch/layout.h"
#include "plan/order/order.h"

enum rks_plan_order {
    RKS_ORDER_BY_LENGTH, /* longest first, equal lengths by id */
    RKS_ORDER_BY_ID,
    RKS_ORDER_ANY /* the strategy shuffles all of them */
};

struct rks_strategy {
    const char *name; /* as users write it */
    enum rks_plan_order order;
    bool neighbourhoods; /* the batches of a group are dealt alike, so a group changes as a whole */
    bool packs;          /* batches are made of bins */
    /* Returns true if each epoch has a layout of its own. Ids in any order are then shuffled before
     * they are cut. NULL: epochs differ only in the order within one layout. */
    bool (*cuts_anew)(const rks_plan_config *config);
    /* Returns true if batches are bounded sample by sample, so that such bounds hold for those
     * batches, and not for others of that size. NULL: never. */
    bool (*is_greedy)(const rks_plan_config *config);
    /* Finds what holds for all whole epochs. NULL: rks_plan_lay_out_once. */
    rks_status (*lay_out)(rks_plan_input *in, rks_epoch_image *image, rks_error *err);
    /* Fills `layout`, which may hold an earlier one. image->ids holds the base unless whole epochs
     * are laid out. */
    rks_status (*cut)(const rks_plan_input *in, rks_epoch_image *image, const rks_plan_base *base,
                      const rks_epoch_task *task, rks_plan_layout *layout, rks_error *err);
    /* Shuffles image->ids; `layout` is NULL if that comes before the cut. NULL: never. */
    rks_status (*shuffle)(const rks_plan_input *in, rks_epoch_image *image,
                          const rks_plan_base *base, const rks_plan_layout *layout, uint64_t key,
                          rks_error *err);
    /* Fills image->slots and sets image->slotted. NULL: batches are in the order of slots. */
    rks_status (*place)(const rks_plan_input *in, rks_epoch_image *image,
                        const rks_epoch_task *task, rks_error *err);
};

/* Returns true for strategies that work on the sorted order. */
static inline bool rks_plan_sorts(const rks_plan_config *config)
{
    return config->strategy->order == RKS_ORDER_BY_LENGTH;
}

/* Returns true if batches are arrays without padding between samples. Their size is then the sum of
 * the widths of their samples. */
static inline bool rks_plan_sums(const rks_plan_config *config)
{
    return config->strategy->packs ||
           (config->cost == COST_TOKENS && config->max_tokens != UINT64_MAX);
}

/* Returns true for strategy random with a budget and constant steps (budget_fill.c). */
static inline bool rks_plan_fills(const rks_plan_config *config)
{
    return config->strategy->order == RKS_ORDER_ANY && config->max_tokens != UINT64_MAX &&
           !config->per_epoch && !config->alone_in_order;
}

/* Returns how many of the first epochs are looked at to know what all of them need. */
static inline uint64_t rks_plan_looks(const rks_plan_input *in)
{
    enum { LOOKS = 4, LOOKS_OF_LARGE = 2, LARGE = 1 << 20 };
    return in->config.no_shuffle ? 1 : in->count < LARGE ? LOOKS : LOOKS_OF_LARGE;
}

extern const rks_strategy rks_strategy_bucket, rks_strategy_sorted, rks_strategy_random,
    rks_strategy_sequential, rks_strategy_pack;

/* Returns the strategy's row by number; the first is the default. NULL after the last. */
const rks_strategy *rks_strategy_at(size_t number);
/* Adds a row after the others, for tests; NULL removes it. Process-wide. */
void rks_strategy_add(const rks_strategy *strategy);

/* epoch.c */
/* Returns the keys of segment `segment` of an epoch. */
rks_epoch_keys rks_epoch_keys_of(const rks_plan_input *in, uint64_t epoch, uint64_t segment);
/* Cuts the layout of all whole epochs, in->whole. */
rks_status rks_plan_lay_out_once(rks_plan_input *in, rks_epoch_image *image, rks_error *err);
/* Makes epoch 0 of a plan of which nothing was done, from what `work` knows of its base. */
rks_status rks_epoch_make_first(rks_plan_input *in, rks_epoch_work *work, rks_epoch_image *image,
                                rks_error *err);

/* cut.c: ways to cut that strategies share. Each cuts the ids after those that are alone. */
typedef rks_status (*rks_cut_fn)(const rks_plan_input *in, const rks_plan_base *base,
                                 rks_plan_layout *layout, rks_error *err);
/* Begins a layout with the samples that are alone, cuts the others, and makes equal steps. */
rks_status rks_plan_cut(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                        rks_cut_fn cut, rks_plan_layout *layout, rks_error *err);
/* Full batches of any samples: the count that the longest sample allows. */
rks_status rks_cut_uniform(const rks_plan_input *in, const rks_plan_base *base,
                           rks_plan_layout *layout, rks_error *err);
/* Batches that are filled in the order of the base. */
rks_status rks_cut_greedy(const rks_plan_input *in, const rks_plan_base *base,
                          rks_plan_layout *layout, rks_error *err);

/* step_balance.c: the ranks of a step get batches of like cost; steps are shuffled. */
rks_status rks_place_by_cost(const rks_plan_input *in, rks_epoch_image *image,
                             const rks_epoch_task *task, rks_error *err);

#endif
