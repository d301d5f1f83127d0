/* SPDX-License-Identifier: Apache-2.0
 *
 * mix.h: how many times each sample occurs in an epoch (the option `mix`).
 *
 *   weights, sizes of sources, N ──► quotas: draws of each source          (quota.c)
 *   quotas, seed, epoch          ──► left: how often each sample is drawn   (mix.c)
 *   left                         ──► base: ids, of which one may come often (mix.c, sequence.c)
 *   base                         ──► batches, as of any plan; then their steps are put in an order
 *                                    in which sources are even              (even.c)
 *
 * In a resumed epoch `left` is what is left, and `drawn` what was delivered.
 *
 * Samples that are in pieces (pieces.c) are drawn whole: each draw of one is a draw of each of its
 * pieces, which are planned and delivered apart (mix_pieces.c). */
#ifndef RKS_PLAN_MIX_H
#define RKS_PLAN_MIX_H

#include "plan/inside.h"
#include "rankstore/mix.h"

struct json_t;

enum { RKS_MIX_NONE = UINT16_MAX };

/* What a stretch of steps is drawn by. */
typedef struct rks_mix_force {
    uint64_t *weights; /* fixed-point; NULL: in proportion to sizes */
    uint32_t longest;  /* longer samples wait */
} rks_mix_force;

typedef struct rks_mix_change {
    uint64_t epoch, step; /* counted over all worlds */
    rks_mix_force force;
    bool keeps;   /* its weights are those before it, also if these change later */
    bool counted; /* its step was counted from the beginning of epoch 0 */
} rks_mix_change;

typedef struct rks_mix {
    uint64_t version; /* of the planner: the newest, or that of the state that was resumed */
    size_t sources;
    char **names;
    uint64_t *bounds;          /* sources + 1, or NULL: */
    uint16_t *blocks;    /* with bounds: the source of the first sample of each block of ids */
    unsigned block_bits; /* a block has 2^block_bits of them */
    const uint16_t *source_of; /* borrowed */
    const uint32_t *counts;    /* borrowed, or NULL */
    const double *odds;        /* borrowed, or NULL */
    bool tokens;
    char digest[17];      /* of the options */
    uint64_t draws;       /* of a whole epoch */
    uint64_t *sizes;      /* samples of each source that can be drawn */
    uint64_t *token_sums; /* their lengths, as truncated */
    rks_mix_force first;  /* from the start */
    rks_mix_change changes[RKS_PLAN_CHANGES_MAX + 1]; /* in the order of steps */
    size_t change_count;
    uint64_t last_epoch, last_step; /* the place of the change that was made last, by a call */
    bool was_changed;               /* there was one */

    /* The stretch of an epoch that is at hand: steps [begin, end), counted over all worlds. */
    uint64_t begin, end;
    bool is_last;
    bool steps_known; /* of an epoch */
    uint64_t steps_epoch, steps;

    /* The draws at hand. */
    uint64_t *quotas; /* draws of each source */
    uint64_t *levels; /* how often each of its samples is drawn in the epoch at least */
    uint64_t *extras; /* how many of its samples are drawn once more */
    uint32_t *left;   /* of each sample and piece, draws that are to come; NULL between epochs, and: */
    bool listed;      /* the draws at hand are listed without it (sequence.c) */
    uint64_t key;     /* of what is drawn once more */
    uint32_t *drawn;  /* of each sample and piece, delivered; NULL: none */
    uint64_t rest;    /* sum of left */
    uint64_t whole;   /* the same at the beginning of the epoch */
} rks_mix;

/* The source of a sample, where ids are asked in ascending order; *at is 0 at first. */
static inline size_t rks_mix_next_source(const rks_mix *mix, uint32_t id, size_t *at)
{
    if (mix->source_of != NULL)
        return mix->source_of[id];
    while (id >= mix->bounds[*at + 1])
        ++*at;
    return *at;
}

/* The same in any order. */
static inline size_t rks_mix_source(const rks_mix *mix, uint32_t id)
{
    if (mix->source_of != NULL)
        return mix->source_of[id];
    size_t low = mix->blocks[id >> mix->block_bits];
    size_t high = mix->blocks[(id >> mix->block_bits) + 1]; /* mostly the same one */
    while (low < high) {
        size_t middle = high - (high - low) / 2;
        if (mix->bounds[middle] <= id)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* quota.c */
/* Numbers of 48 bits of the largest. `what` is the option in errors. */
rks_status rks_mix_weights_read(const rks_mix *mix, const double *weights, const char *what,
                                uint64_t *fixed, rks_error *err);
/* Draws of each source, `draws` in all; weights NULL: in proportion to sizes. */
rks_status rks_mix_quotas(const rks_mix *mix, const uint64_t *weights, const uint64_t *sizes,
                          const uint64_t *token_sums, uint64_t draws, uint64_t *quotas,
                          rks_error *err);
/* The fewest draws with which every sample of a source that has a weight occurs. */
rks_status rks_mix_fewest(const rks_mix *mix, uint64_t *draws, rks_error *err);

/* mix.c */
/* Makes plan->mix of the options; plan->lengths and config are there. */
rks_status rks_mix_create(rks_plan *plan, const rks_plan_mix *options, rks_error *err);
void rks_mix_free(rks_plan *plan);
/* Chooses what is left of an epoch: fills mix->left, quotas and levels. `draws` of them; `key`
 * decides which samples occur once more. `once`: nothing is chosen again in this epoch, so that
 * `left` need not be made where draws can be listed without it. */
rks_status rks_mix_choose(rks_plan *plan, const rks_mix_force *force, uint64_t draws, uint64_t key,
                          bool once, rks_error *err);
/* Samples that an epoch may have. */
static inline bool rks_mix_draws(const rks_plan *plan, uint32_t id, uint32_t longest)
{
    const rks_mix *mix = plan->mix;
    uint32_t length = plan->lengths[id];
    if (length == RKS_LENGTH_ABSENT || length > longest)
        return false;
    if (mix->source_of != NULL && mix->source_of[id] >= mix->sources) /* of none */
        return false;
    return plan->config.too_long != TOO_LONG_DROP || length <= plan->config.limit;
}
void rks_mix_end(rks_plan *plan); /* frees left and drawn */
/* Of an epoch that was begun: from here on, deliveries count. */
rks_status rks_mix_begin_rest(rks_plan *plan, rks_error *err);
void rks_mix_strike(rks_mix *mix, const uint32_t *ids, size_t count);
/* Writes the base into plan->ids, which has room for mix->rest. */
rks_status rks_mix_fill(rks_plan *plan, uint64_t key, rks_plan_base *base, rks_error *err);
/* mix_pieces.c */
/* Samples and pieces: what `left` and `drawn` have room for. */
uint64_t rks_mix_items(const rks_plan *plan);
/* Draws of samples of which no piece was delivered yet: what a change can give to others. */
uint64_t rks_mix_unbegun(const rks_plan *plan);
/* Before draws are chosen: `left` of pieces becomes what they lack of draws that were begun, and
 * `drawn` of their samples the draws that were begun. `left` is new: of pieces it is set to 0. */
void rks_mix_join_pieces(rks_plan *plan, bool is_new);
/* After that: each draw of a sample becomes one of each of its pieces; sets mix->rest. */
rks_status rks_mix_part_pieces(rks_plan *plan, rks_error *err);
/* Writes the multiset in the order of lengths into plan->ids, where there are pieces. */
rks_status rks_mix_fill_sorted_pieces(rks_plan *plan, rks_plan_base *base, rks_error *err);
/* Writes the draws of cut sample number `cut`, draw by draw, to plan->ids[*at]. */
void rks_mix_copy_pieces(rks_plan *plan, size_t cut, uint64_t *at);

/* Batches, about, that all draws of an epoch make. */
uint64_t rks_mix_batches_like(const rks_plan *plan, rks_error *err);

/* Samples of each source that can be drawn if longer ones wait, and their lengths. */
rks_status rks_mix_sizes(const rks_plan *plan, uint32_t longest, uint64_t *sizes,
                         uint64_t *token_sums, rks_error *err);

/* schedule.c */
/* A step's number over all worlds. */
uint64_t rks_mix_number(const rks_plan *plan, uint64_t epoch, uint64_t step);
/* What holds at a step, and the next step where that changes (UINT64_MAX: none in the epoch). */
const rks_mix_force *rks_mix_force_at(const rks_mix *mix, uint64_t epoch, uint64_t step);
uint64_t rks_mix_next_change(const rks_mix *mix, uint64_t epoch, uint64_t step);
/* As JSON entries; returns their size, which may be above `room`. */
size_t rks_mix_write_changes(const rks_mix *mix, char *text, size_t room);
/* Those of a state, checked; `changes` has room for RKS_PLAN_CHANGES_MAX. `list` may be NULL. */
rks_status rks_mix_read_changes(const rks_plan *plan, const struct json_t *list,
                                rks_mix_change *changes, size_t *count, rks_error *err);
void rks_mix_free_changes(rks_mix_change *changes, size_t count);

/* sequence.c: plan->ids for strategies in the order of draws: sources evenly. */
rks_status rks_mix_sequence(rks_plan *plan, uint64_t key, rks_error *err);

/* merge.c: merges the lists of sources into `merged`: after any number of entries each list has had
 * its share of them, give or take one, or two if it has fewer than one of 4,096 entries. */
typedef struct rks_mix_list {
    const uint32_t *ids;
    uint64_t count;
} rks_mix_list;

rks_status rks_mix_merge(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                         rks_error *err);
/* As plans of version 2 have it: entries of rarer lists come early and together. */
rks_status rks_mix_merge_all(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                             rks_error *err);
/* The same in both ways that it goes. *merges: false if blocks cannot do it; `merged` is then to be
 * written anew. */
rks_status rks_mix_merge_turns(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                               rks_error *err);
rks_status rks_mix_merge_blocks(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                                bool *merges, rks_error *err);

/* even.c: puts runs of `row` slots in an order in which sources are even. */
rks_status rks_mix_even(rks_plan *plan, uint64_t row, rks_error *err);
/* Fills plan->slots of a base that keeps its order: like costs share a step, among near batches. */
rks_status rks_mix_arrange(rks_plan *plan, uint32_t world, uint64_t key, rks_error *err);
/* Fills an entry of each source. */
rks_status rks_mix_report(rks_plan *plan, uint64_t epoch, rks_plan_source *list, rks_error *err);

#endif
