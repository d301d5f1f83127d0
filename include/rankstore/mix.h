/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/mix.h: how many times each sample occurs in an epoch: weights of sources or samples.
 * Part of rankstore.h. */
#ifndef RANKSTORE_MIX_H
#define RANKSTORE_MIX_H

#include "rankstore/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    RKS_MIX_SOURCES_MAX = 65535,
    RKS_MIX_WINDOW = 100, /* steps over which deviations are measured */
    RKS_PLAN_CHANGES_MAX = 64,
    RKS_PLAN_SCHEDULE_MAX = 6144 /* bytes of a state that hold all its changes */
};

/* The option `mix` of a plan. A weight is how many times a sample occurs in an epoch, and every
 * strategy works on this multiset as on a set.
 *
 * Of N draws, a source with weight w gets n = N w / (sum of weights), rounded by largest remainders
 * so that the sum is N. Each of its M samples occurs floor(n / M) times, and a random part of them,
 * another one in each epoch, once more. Samples that are absent or dropped (too_long "drop") are
 * not drawn and not counted in M. Weights become fixed-point numbers of 48 bits of the largest.
 *
 * Samples that are split into pieces (too_long "split") are drawn whole: each draw of one is a draw
 * of each of its pieces, which are planned apart. After a change the other pieces of a draw that
 * was begun still come, also those of samples that wait. Sources are even by samples and pieces.
 *
 * The number of steps may differ between epochs, never between ranks: ask rks_plan_steps for each.
 *
 *   random      draws of all sources are spread evenly: after any number of draws, each source has
 *               its share, give or take one draw, or two if it has fewer than one of 4,096 draws.
 *               A source repeats a sample after all of its samples were drawn. Steps of like cost
 *               are sought among near batches only.
 *   sequential  the same, each source in the order of its ids.
 *   bucket,     steps are put in an order in which the 16 sources of the most draws are as even as
 *   pack        lengths allow, up to the last step; rks_plan_sources says how even.
 *   sorted      longest first, whatever the source.
 *
 * Memory is that of a plan of N samples and pieces; there is no table of draws. A resumed epoch
 * takes 8 bytes a sample while it is planned.
 *
 * Give at most one of weights, counts and odds. Without any, each sample of a source occurs once.
 */
typedef struct rks_plan_mix {
    size_t struct_size;
    size_t sources;           /* 1 to RKS_MIX_SOURCES_MAX */
    const char *const *names; /* for messages, reports and states; NULL: "0", "1", ... */
    const double *weights;    /* of each source: finite, at least 0, and one above 0 */
    const uint64_t *bounds;   /* sources + 1: source s has the ids bounds[s] .. bounds[s + 1] - 1 */
    /* Instead of bounds: the source of each sample. A sample whose number is not below `sources`
     * is never drawn. It must outlive the plan. */
    const uint16_t *source_of;
    uint64_t samples;       /* draws N, below 2^32. 0: the fewest with which every sample of a
                             * source that has a weight occurs; with counts: their sum */
    bool tokens;            /* weights are shares of tokens: n is in proportion to w divided by
                             * the mean length of the source's samples */
    const uint32_t *counts; /* of each sample: how many times it occurs. It must outlive the plan */
    const double *odds;     /* of each sample, from 0: it occurs N odds / (sum of odds) times,
                             * rounded down or up at random; needs `samples`. It must outlive the
                             * plan */
} rks_plan_mix;

/* Sets defaults. The plan copies all arrays and names except those that must outlive it. */
RKS_API void rks_plan_mix_default(rks_plan_mix *mix);
RKS_SIZED_DEFAULT(rks_plan_mix)
#define rks_plan_mix_default(options) rks_plan_mix_default_sized(options)

/* Changes a plan from step `step` of `epoch` on, also for later epochs. `weights` are new ones of
 * all sources (NULL: as before). Samples longer than `longest` wait (0: none does). The rest of
 * that epoch has N draws minus those before the step, at the new weights; samples that were drawn
 * least come first. Steps keep counting. A change at the step of an earlier change replaces it. A
 * plan has no group: all ranks must make the same changes. States hold them; RKS_ERR_STATE if they
 * have no room. RKS_ERR_ARGUMENT if the epoch ends before `step`; a change at its end is for the
 * next epoch. For plans with weights of sources, or with none. On failure the plan is unchanged. */
RKS_API rks_status rks_plan_change(rks_plan *plan, uint64_t epoch, uint64_t step,
                                   const double *weights, size_t sources, uint32_t longest,
                                   rks_error *err);

/* Makes the same change `steps` steps after the first one of epoch 0, counted over epochs as these
 * ranks have them. A state that another number of ranks saved holds the change's place for those
 * ranks, and that place stays when the state is resumed. RKS_ERR_STATE after a state of an epoch
 * that other ranks began. With max_tokens, capacity, or samples that are alone or split, epochs
 * differ in steps, so every epoch before that step is planned: RKS_ERR_ARGUMENT from 2^20 epochs,
 * or about 2^30 draws, on. */
RKS_API rks_status rks_plan_change_after(rks_plan *plan, uint64_t steps, const double *weights,
                                         size_t sources, uint32_t longest, rks_error *err);

/* Returns the place of the last change that one of these calls made, as states hold it: *step
 * counts over all numbers of ranks that took part in *epoch. RKS_ERR_STATE if there was none. */
RKS_API rks_status rks_plan_last_change(const rks_plan *plan, uint64_t *epoch, uint64_t *step,
                                        rks_error *err);

/* A source in one epoch. */
typedef struct rks_plan_source {
    size_t struct_size;
    const char *name;  /* the plan's */
    double share;      /* planned, of all draws */
    uint64_t samples;  /* that can be drawn */
    uint64_t draws;    /* delivered; of a sample in pieces, its first one counts */
    uint64_t distinct; /* samples among them */
    uint64_t tokens;   /* their lengths, as truncated or split */
    double deviation;  /* of its share of the draws of any RKS_MIX_WINDOW steps from its share of
                        * the epoch's: the largest, from 0 to 1 (of the epoch if it is shorter) */
} rks_plan_source;

/* Returns the sources of an epoch: sets *count to their number, and fills up to `room` entries of
 * `list`, each of list[0].struct_size bytes. RKS_ERR_STATE if the plan has no mix. While it runs it
 * takes a bit a sample, and 4 bytes a source for each step of a window. */
RKS_API rks_status rks_plan_sources(rks_plan *plan, uint64_t epoch, rks_plan_source *list,
                                    size_t room, size_t *count, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
