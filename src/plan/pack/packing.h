/* SPDX-License-Identifier: Apache-2.0
 *
 * packing.h: strategy "pack": bins of a capacity, filled best-fit decreasing.
 *
 *   base (sorted ids) ──► runs: positions of equal size
 *   histogram of runs ──► groups: bins that hold the same numbers of samples of the same sizes
 *   groups            ──► steps of bins of like cost, costliest first (pack.c, pack_tail.c)
 *   runs, groups      ──► words: all that epochs need of them, in a quarter of the memory
 * (pack_codec.c) seed, epoch       ──► ids shuffled within runs and dealt into the bins
 * (pack_assign.c)
 *
 * All but the last line depend only on lengths, so they are made once. A chain of patterns lists a
 * bin's samples: `count` samples of run `run`, then those of the pattern `before`. */
#ifndef RKS_PLAN_PACK_PACKING_H
#define RKS_PLAN_PACK_PACKING_H

#include "plan/order/random.h"
#include "plan/pack/bits.h"
#include "plan/epoch.h"

enum { RKS_PACK_NONE = UINT32_MAX };

/* Words: see pack_codec.c. */
enum { RKS_PACK_WIDE = UINT16_MAX, RKS_PACK_FEW = 8, RKS_PACK_NEAR = 4096 };

typedef struct rks_pack_run {
    uint32_t size;  /* room that each sample needs in a bin */
    uint32_t first; /* first position in the base */
} rks_pack_run;

typedef struct rks_pack_pattern {
    uint32_t before; /* next pattern of the chain; RKS_PACK_NONE ends it */
    uint32_t run;
    uint32_t count;
} rks_pack_pattern;

typedef struct rks_pack_group {
    rks_u128 cost;    /* of one bin */
    uint32_t pattern; /* where the chain of a bin's patterns starts */
    uint32_t bins;
    uint32_t samples; /* of one bin */
    uint32_t room;    /* room left in a bin */
    uint32_t next;    /* while bins are filled: another group with the same room */
} rks_pack_group;

struct rks_pack {
    rks_pack_run *runs; /* largest first; one more entry marks the end of the last one */
    size_t run_count, run_room;
    rks_pack_pattern *patterns;
    size_t pattern_count, pattern_room;
    rks_pack_group *groups; /* costliest first */
    size_t group_count, group_room;
    uint16_t *words; /* of a layout (pack_codec.c); runs, patterns and groups are then NULL */
    size_t word_count, kind_count;
    uint64_t bins;     /* bins delivered, repeats not included */
    uint64_t repeated; /* bins of the last step that are delivered a second time */
    uint64_t slots;    /* batches of an optimizer step: ranks * micro-batches */
    uint64_t steps;    /* optimizer steps */
    uint64_t shared;   /* how many of the last steps share their bins: these are dealt evenly over
                        * all their batches */
};

/* Returns the room that a sample takes up in a bin. Planned lengths are at most `capacity`, a
 * multiple of length_multiple. */
static inline uint32_t rks_pack_size(const rks_plan_input *in, uint32_t id)
{
    return (uint32_t)rks_plan_size(&in->config, rks_plan_length(in, id));
}

/* Returns a * size + b * size^2 of the option `cost`. Both factors are below 2^39. */
static inline rks_u128 rks_pack_cost(const rks_plan_config *config, uint32_t size)
{
    rks_u128 linear = config->cost_linear, quadratic = config->cost_quadratic;
    return (linear + quadratic * size) * size;
}

/* Sets *first and *end to the bins of a batch, repeats included. */
static inline void rks_pack_bins_of(const rks_pack *pack, uint32_t batch_size, uint64_t batch,
                                    uint64_t *first, uint64_t *end)
{
    uint64_t full = (pack->steps - pack->shared) * pack->slots;
    if (batch < full) {
        *first = batch * batch_size;
        *end = *first + batch_size;
        return;
    }
    uint64_t begin = full * batch_size, index = batch - full;
    uint64_t bins = pack->bins + pack->repeated - begin, batches = pack->shared * pack->slots;
    uint64_t each = bins / batches, more = bins % batches; /* the first batches have one bin more */
    *first = begin + index * each + (index < more ? index : more);
    *end = *first + each + (index < more ? 1 : 0);
}

/* A bin of an epoch, if samples have costs of their own (the option `balance`). */
typedef struct rks_pack_bin {
    uint64_t cost;
    uint32_t first, samples; /* place in the dealt ids */
} rks_pack_bin;

/* The groups that have bins, by the room of these bins. */
typedef struct rks_pack_shelf {
    uint32_t *heads; /* by room: the first group, or RKS_PACK_NONE */
    rks_bits rooms;  /* the rooms that have a group */
} rks_pack_shelf;

/* pack.c */
rks_status rks_pack_add_pattern(rks_pack *pack, uint32_t before, uint32_t run, uint32_t count,
                                uint32_t *pattern, rks_error *err);
rks_status rks_pack_add_group(rks_pack *pack, const rks_pack_group *group, rks_error *err);
/* Sorts groups [first, group_count), costliest first, and fills in their costs. */
void rks_pack_sort(const rks_plan_config *config, rks_pack *pack, size_t first);
/* Makes a pack with the runs of the base, and no bins. RKS_ERR_DATA if the base has too few samples
 * for the ranks. The caller frees *pack with rks_pack_free. */
rks_status rks_pack_begin(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                          rks_pack **pack, rks_error *err);
/* Finishes filled groups: removes those without bins, counts bins, and sorts. */
void rks_pack_settle(const rks_plan_config *config, rks_pack *pack);
/* Returns the cost of a bin whose chain starts at `pattern`. */
rks_u128 rks_pack_bin_cost(const rks_plan_config *config, const rks_pack *pack, uint32_t pattern);
/* Makes `pack` the layout's, which frees it from then on, also after a failure. Makes the pack's
 * words. */
rks_status rks_pack_keep(rks_plan_layout *layout, const rks_plan_base *base, rks_pack *pack,
                         rks_error *err);

/* pack_codec.c */
/* Makes the words, and frees runs, patterns and groups. Each group becomes a kind. */
rks_status rks_pack_make_kinds(rks_pack *pack, rks_error *err);
void rks_pack_free_making(rks_pack *pack);

/* Reads a number from the words, and moves *at on. */
static inline uint32_t rks_pack_number(const uint16_t **at)
{
    const uint16_t *word = *at;
    bool is_wide = *word == RKS_PACK_WIDE;
    *at += is_wide ? 3 : 1;
    return is_wide ? word[1] | (uint32_t)word[2] << 16 : *word;
}

/* Reads the next pattern of a kind, and returns its count. *run is the run of the pattern before
 * it, or run_count for the first one, and becomes the run of this one. */
static inline uint32_t rks_pack_next_pattern(const uint16_t **at, uint32_t *run)
{
    uint32_t word = *(*at)++, count = word % RKS_PACK_FEW;
    if (count > 0) {
        *run += word / RKS_PACK_FEW - RKS_PACK_NEAR; /* may wrap around */
        return count;
    }
    *run = rks_pack_number(at);
    return rks_pack_number(at);
}

/* best_fit.c: packs the runs into groups, in no order; some groups end without bins. */
rks_status rks_pack_fit(rks_pack *pack, uint32_t capacity, rks_error *err);
/* Does the same run by run, largest first, with `left` samples of a run. The shelf must be zero
 * before make. Free it also if make fails. clear takes off the groups that lie on the shelf, all of
 * which are in [first, group_count). */
rks_status rks_pack_shelf_make(rks_pack_shelf *shelf, uint32_t capacity, rks_error *err);
rks_status rks_pack_fit_run(rks_pack_shelf *shelf, rks_pack *pack, uint32_t run, uint32_t left,
                            uint32_t capacity, rks_error *err);
void rks_pack_shelf_clear(rks_pack_shelf *shelf, const rks_pack *pack, size_t first);
void rks_pack_shelf_free(rks_pack_shelf *shelf);

/* pack_tail.c: makes equal steps for `world` ranks. `steps` is the number of optimizer steps; 0
 * stands for as few as the bins need (tail drop: as many as they fill). RKS_ERR_DATA if that is not
 * possible. */
rks_status rks_pack_even(const rks_plan_input *in, uint32_t world, uint64_t steps, rks_pack *pack,
                         rks_error *err);

/* pack.c: packs a sorted base into bins in equal steps (strategy pack). RKS_ERR_DATA if that is not
 * possible. */
rks_status rks_pack_lay_out(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                            rks_plan_layout *layout, rks_error *err);
void rks_pack_free(rks_pack *pack); /* NULL is accepted */
/* pack_windows.c: does the same by windows of the base, in the order that `key` draws. `whole`: it
 * is a whole epoch, and all of these have the same number of steps. */
rks_status rks_pack_lay_out_windows(const rks_plan_input *in, const rks_plan_base *base,
                                    uint32_t world, uint64_t key, bool whole,
                                    rks_plan_layout *layout, rks_error *err);
/* Counts the bins of the base, and updates window_most and window_least. Packs by windows of `bins`
 * bins, or all at once if `bins` is 0, which must be the first call and also sets window_all. */
rks_status rks_pack_look(rks_plan_input *in, const rks_plan_base *base, uint64_t key, uint64_t bins,
                         rks_error *err);
/* pack_assign.c: replaces image->ids, a sorted base, by the ids of the bins, and fills
 * image->starts. `members` and `bins` are keys. */
rks_status rks_pack_deal(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                         uint64_t members, uint64_t bins, rks_error *err);
/* Fills image->slots, which has room. */
rks_status rks_pack_arrange(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                            uint64_t key, rks_error *err);

#endif
