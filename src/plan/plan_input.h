/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_input.h: what the epochs of a plan are made from.
 *
 *   options ──► config
 *   lengths ──► base: the ids to plan, in the strategy's order (sorted, or by id)
 *   base    ──► layout: consecutive groups of the base, each cut into batches (the same in every
 *               epoch); strategy pack: bins (pack/packing.h)
 *   layout + seed, epoch ──► ids shuffled within bounds, and which batch is at which (step, rank)
 *
 * After a change of world within an epoch, the base is the rest of the epoch. The planner plans the
 * epoch again for each segment [world, steps] that is done, and strikes out the samples of those
 * steps. */
#ifndef RKS_PLAN_PLAN_INPUT_H
#define RKS_PLAN_PLAN_INPUT_H

#include "base/checksum.h"
#include "plan/plan.h"

enum cost { COST_PADDED, COST_TOKENS, COST_QUADRATIC, COST_POLYNOMIAL };
enum too_long { TOO_LONG_ERROR, TOO_LONG_DROP, TOO_LONG_ALONE, TOO_LONG_TRUNCATE, TOO_LONG_SPLIT };
enum tail { TAIL_SPLIT, TAIL_REPEAT, TAIL_DROP };

typedef struct rks_strategy rks_strategy;

/* The options, checked. */
typedef struct rks_plan_config {
    const struct rks_strategy *strategy; /* strategy.h */
    enum cost cost;
    enum too_long too_long;
    enum tail tail;
    bool per_epoch;
    bool no_shuffle;
    bool mixed;
    bool longest_first;  /* longest first within each batch */
    bool alone_in_order; /* a mix that keeps its order: too long samples stay in place, each alone
                          * in its batch */
    uint32_t batch_size; /* UINT32_MAX: no bound; pack: bins of a batch */
    uint64_t max_tokens; /* UINT64_MAX: no bound */
    uint32_t multiple;   /* at least 1 */
    uint32_t world;
    uint32_t limit;       /* a longer sample is too long; UINT32_MAX: no limit */
    const char *limit_by; /* the option that sets `limit`, for errors */
    uint32_t clamp;       /* lengths count as at most this: `limit` for truncate, else UINT32_MAX */
    uint64_t seed;
    uint32_t capacity;        /* pack: a multiple of length_multiple */
    uint32_t length_multiple; /* at least 1 */
    uint32_t micro_batches;   /* at least 1 */
    const uint32_t *balance;  /* a cost of each sample, borrowed; NULL: balance by length */
    uint32_t pack_window;     /* pack: bins of a window, which is packed on its own; 0: all at
                               * once */
    uint64_t cost_linear;     /* cost a L + b L^2, for polynomial and always for pack; below 2^39 */
    uint64_t cost_quadratic;
    char digest[17];                /* of all options except world and seed */
    const struct rks_plan_mix *mix; /* only while the plan is made */
    const rks_step_range *skip;     /* only while the plan is made */
    size_t skips;
    char words[480]; /* the options that differ from the defaults: "tail=drop max_tokens=64" */
} rks_plan_config;

rks_status rks_plan_config_read(const rks_plan_options *options, rks_plan_config *config,
                                rks_error *err);

/* Returns true if each epoch packs its bins anew, by windows. */
static inline bool rks_plan_windows(const rks_plan_config *config)
{
    return config->pack_window > 0;
}

/* cost.c: stores the factors of a polynomial cost as integers. RKS_ERR_ARGUMENT if a factor is
 * negative or not finite, or if both are 0. */
rks_status rks_plan_cost_read(double linear, double quadratic, rks_plan_config *config,
                              rks_error *err);

/* Returns the items that a length needs in an array: the length, rounded up to length_multiple. */
static inline uint64_t rks_plan_width(const rks_plan_config *config, uint64_t length)
{
    uint64_t multiple = config->length_multiple;
    return multiple == 1 ? length : (length + multiple - 1) / multiple * multiple;
}

/* Returns the items that a length counts for in a budget. A length of 0 counts as 1. */
static inline uint64_t rks_plan_size(const rks_plan_config *config, uint32_t length)
{
    return rks_plan_width(config, length == 0 ? 1 : length);
}

/* Returns the most samples, at least 1, of a batch whose longest sample is `longest`; a multiple of
 * config->multiple if possible. */
static inline uint32_t rks_plan_cap(const rks_plan_config *config, uint32_t longest)
{
    uint64_t cap = config->max_tokens / rks_plan_size(config, longest);
    if (cap > config->batch_size)
        cap = config->batch_size;
    if (cap >= config->multiple)
        cap -= cap % config->multiple;
    return cap == 0 ? 1 : (uint32_t)cap;
}

/* A group: `count` samples of base positions [first, first + span), dealt evenly over `batches`
 * batches.
 * - count < span: the group leaves out the last samples (tail drop).
 * - count > span: the first samples are repeated (tail repeat; only in the last group). */
typedef struct rks_plan_group {
    uint32_t first;
    uint32_t span;
    uint32_t count;
    uint32_t batches;
    uint32_t first_batch;
    uint32_t cap;     /* samples of a full batch */
    uint32_t longest; /* length of the longest sample, if the strategy needs it */
    uint32_t
        multiple; /* samples are dealt in multiples of it: batch_multiple if possible, else 1 */
    bool alone;   /* samples that are too long: one a batch */
} rks_plan_group;

typedef struct rks_pack rks_pack; /* packing.h */

typedef struct rks_plan_layout {
    rks_plan_group *groups;
    size_t count;
    size_t room;
    uint64_t base;    /* number of ids in the base */
    uint64_t batches; /* a multiple of the world */
    uint64_t samples; /* samples delivered, repeats included */
    uint64_t repeated;
    rks_pack *pack; /* strategy pack, else NULL; the layout then has no groups, and each epoch has
                     * its own samples and repeated (rks_epoch_image) */
} rks_plan_layout;

/* The ids to plan. `ids` may be NULL if the cut needs only `longest` (random with constant
 * steps). */
typedef struct rks_plan_base {
    const uint32_t *ids;
    uint64_t count;
    uint64_t alone; /* how many ids at the front are batches of their own; 0 for sequential */
    uint32_t longest;
    uint64_t whole; /* ids of the whole epoch */
} rks_plan_base;

/* A sample that is cut into pieces (sample_pieces.c). */
typedef struct rks_plan_cut_sample {
    uint32_t id;
    uint32_t first; /* number of its first piece among all pieces */
} rks_plan_cut_sample;

/* What epochs are made from. It does not change once the plan is made. */
typedef struct rks_plan_input {
    rks_plan_config config;
    const uint32_t *lengths; /* borrowed */
    uint64_t count;
    const uint32_t *order;     /* the sorted order, if the strategy needs it */
    uint64_t absent;           /* samples of length RKS_LENGTH_ABSENT, which come first in a sorted
                                * order */
    uint64_t too_long;         /* samples above config.limit that are not absent */
    uint32_t longest;          /* longest length planned in shared batches, after truncation */
    uint64_t batches_like;     /* about how many batches all samples make; sets how many a
                                * neighbourhood mixes */
    const struct rks_mix *mix; /* mix.h; NULL: each sample occurs once */

    /* The pieces of samples that are cut. */
    rks_plan_cut_sample *cuts; /* at most `too_long` of them */
    size_t cut_count;
    uint64_t piece_count;
    uint32_t *piece_order; /* piece ids, which start at `count`, longest first */

    /* What holds for all whole epochs; it is found when the plan is made. */
    rks_plan_layout whole; /* their layout, unless per_epoch; only its `batches` is valid if
                            * rks_plan_fills */
    uint64_t fill_most, fill_least;     /* batches that epochs need, if rks_plan_fills */
    uint64_t window_most, window_least; /* bins that epochs need, if rks_plan_windows */
    uint64_t window_all;                /* bins that packing all at once needs */
} rks_plan_input;

/* Return the length, the sample and the balance cost of a piece. Piece ids start at `count`
 * (sample_pieces.c). */
uint32_t rks_plan_piece_length(const rks_plan_input *in, uint32_t id);
uint32_t rks_plan_piece_sample(const rks_plan_input *in, uint32_t id);
uint64_t rks_plan_piece_balance(const rks_plan_input *in, uint32_t id);

/* Returns the length of a sample, or of a piece (ids from `count` on), after truncation. */
static inline uint32_t rks_plan_length(const rks_plan_input *in, uint32_t id)
{
    if (id >= in->count)
        return rks_plan_piece_length(in, id);
    uint32_t length = in->lengths[id];
    return length < in->config.clamp ? length : in->config.clamp;
}

/* Returns how many whole samples the base of a whole epoch has. */
static inline uint64_t rks_plan_uncut(const rks_plan_input *in)
{
    enum too_long too_long = in->config.too_long;
    bool leaves = too_long == TOO_LONG_DROP || too_long == TOO_LONG_SPLIT;
    return in->count - in->absent - (leaves ? in->too_long : 0);
}

/* Returns how many samples and pieces the base of a whole epoch has. */
static inline uint64_t rks_plan_kept(const rks_plan_input *in)
{
    return rks_plan_uncut(in) + in->piece_count;
}

/* Returns where the base begins in the sorted order, after the absent samples and those that are
 * dropped or split. */
static inline const uint32_t *rks_plan_base_sorted(const rks_plan_input *in)
{
    return in->order + (in->count - rks_plan_uncut(in));
}

/* Returns the sample of an id that is planned. */
static inline uint32_t rks_plan_sample(const rks_plan_input *in, uint32_t id)
{
    return id < in->count ? id : rks_plan_piece_sample(in, id);
}

/* Returns the sum of the costs of samples and pieces, which is below 2^64. config.balance must be
 * set. */
static inline uint64_t rks_plan_balance_of(const rks_plan_input *in, const uint32_t *ids,
                                           size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ids[i] < in->count ? in->config.balance[ids[i]] : rks_plan_piece_balance(in, ids[i]);
    return sum;
}

#endif
