/* SPDX-License-Identifier: Apache-2.0
 *
 * inside.h: the planner's own structures.
 *
 *   options ──► config
 *   lengths ──► base: the ids to plan, in the strategy's order (sorted, or by id)
 *   base    ──► layout: consecutive groups of the base, each cut into batches (epoch by epoch
 *               equal); of pack: bins (packing.h)
 *   layout + seed, epoch ──► ids shuffled within bounds, and which batch is at which (step, rank)
 *
 * After a change of world in the middle of an epoch the base is what is left of it: the epoch is
 * planned again for each segment [world, steps] that is done, and those samples are struck out. */
#ifndef RKS_PLAN_INSIDE_H
#define RKS_PLAN_INSIDE_H

#include <stdatomic.h>

#include "base/checksum.h"
#include "plan/plan.h"
#include "plan/random.h"

enum strategy {
    STRATEGY_BUCKET,
    STRATEGY_SORTED,
    STRATEGY_RANDOM,
    STRATEGY_SEQUENTIAL,
    STRATEGY_PACK
};
enum cost { COST_PADDED, COST_TOKENS, COST_QUADRATIC, COST_POLYNOMIAL };
enum too_long {
    TOO_LONG_ERROR,
    TOO_LONG_DROP,
    TOO_LONG_ALONE,
    TOO_LONG_TRUNCATE,
    TOO_LONG_SPLIT
};
enum tail { TAIL_SPLIT, TAIL_REPEAT, TAIL_DROP };

/* Checked options. */
typedef struct rks_plan_config {
    enum strategy strategy;
    enum cost cost;
    enum too_long too_long;
    enum tail tail;
    bool per_epoch;
    bool no_shuffle;
    bool mixed;
    bool longest_first; /* within batches */
    bool alone_in_order; /* a mix that keeps an order: samples that are alone stand where they are */
    uint32_t batch_size; /* UINT32_MAX: no bound; of pack: bins */
    uint64_t max_tokens; /* UINT64_MAX: no bound */
    uint32_t multiple;   /* from 1 */
    uint32_t world;
    uint32_t limit;       /* a longer sample is too long; UINT32_MAX: none is */
    const char *limit_by; /* the option that sets it */
    uint32_t clamp;       /* lengths count as at most this: limit with truncate */
    uint64_t seed;
    uint32_t capacity;        /* pack: a multiple of length_multiple */
    uint32_t length_multiple; /* from 1 */
    uint32_t micro_batches;   /* from 1 */
    const uint32_t *balance;  /* a cost of each sample, borrowed; NULL: by length */
    uint32_t pack_window;     /* pack: bins that are packed on their own; 0: all at once */
    uint64_t cost_linear;     /* cost a L + b L^2 of polynomial, and of pack always; below 2^39 */
    uint64_t cost_quadratic;
    char digest[17]; /* of all options but world and seed */
    const struct rks_plan_mix *mix; /* while the plan is made */
    const rks_step_range *skip;     /* while the plan is made */
    size_t skips;
    char words[480]; /* "tail=drop max_tokens=64": those of them that are no defaults */
} rks_plan_config;

rks_status rks_plan_config_read(const rks_plan_options *options, rks_plan_config *config,
                                rks_error *err);

/* Bins are packed anew each epoch, by windows. */
static inline bool rks_plan_windows(const rks_plan_config *config)
{
    return config->pack_window > 0;
}

/* cost.c: the factors of a polynomial cost as integers. */
rks_status rks_plan_cost_read(double linear, double quadratic, rks_plan_config *config,
                              rks_error *err);

/* Strategies that work on the sorted order. */
static inline bool rks_plan_sorts(const rks_plan_config *config)
{
    return config->strategy == STRATEGY_BUCKET || config->strategy == STRATEGY_SORTED ||
           config->strategy == STRATEGY_PACK;
}

/* Items that a length needs in an array: rounded up to length_multiple. */
static inline uint64_t rks_plan_width(const rks_plan_config *config, uint64_t length)
{
    uint64_t multiple = config->length_multiple;
    return multiple == 1 ? length : (length + multiple - 1) / multiple * multiple;
}

/* The same in a budget, where a length of 0 counts as 1. */
static inline uint64_t rks_plan_size(const rks_plan_config *config, uint32_t length)
{
    return rks_plan_width(config, length == 0 ? 1 : length);
}

/* Batches are arrays without padding between samples, so sums of widths are what is delivered. */
static inline bool rks_plan_sums(const rks_plan_config *config)
{
    return config->strategy == STRATEGY_PACK ||
           (config->cost == COST_TOKENS && config->max_tokens != UINT64_MAX);
}

/* Samples of a batch at most, where `longest` is its longest; a multiple of config->multiple where
 * that is possible. From 1. */
static inline uint32_t rks_plan_cap(const rks_plan_config *config, uint32_t longest)
{
    uint64_t cap = config->max_tokens / rks_plan_size(config, longest);
    if (cap > config->batch_size)
        cap = config->batch_size;
    if (cap >= config->multiple)
        cap -= cap % config->multiple;
    return cap == 0 ? 1 : (uint32_t)cap;
}

/* Batches over base positions [first, first + span): `count` samples dealt evenly over `batches`.
 * count < span: the rest is left out (tail drop); count > span: the first ones come again (tail
 * repeat; the last group only). */
typedef struct rks_plan_group {
    uint32_t first;
    uint32_t span;
    uint32_t count;
    uint32_t batches;
    uint32_t first_batch;
    uint32_t cap;     /* samples of a full batch */
    uint32_t longest; /* length of the longest, where the strategy needs it */
    uint32_t unit;    /* samples are dealt in units of it: batch_multiple where possible */
    bool alone;       /* too long: one sample a batch */
} rks_plan_group;

typedef struct rks_pack rks_pack; /* packing.h */

typedef struct rks_plan_layout {
    rks_plan_group *groups;
    size_t count;
    size_t room;
    uint64_t base;    /* ids in the base */
    uint64_t batches; /* a multiple of the world */
    uint64_t samples; /* delivered, repeats included */
    uint64_t repeated;
    rks_pack *pack; /* strategy pack, which has no groups here; samples and repeated are then those
                     * of the epoch at hand */
} rks_plan_layout;

/* The ids to plan. `ids` may be NULL for random with constant steps, which needs `longest` only. */
typedef struct rks_plan_base {
    const uint32_t *ids;
    uint64_t count;
    uint64_t alone; /* of them at the front as batches of their own (not with sequential) */
    uint32_t longest;
} rks_plan_base;

typedef struct rks_plan_segment {
    uint32_t world;
    uint64_t steps;
} rks_plan_segment;

/* Steps [first, end) of an epoch, as the world counts them that does segment number `segment` of it
 * (skip.c). Of one segment they are apart, in the order of steps. */
typedef struct rks_plan_skip_range {
    uint64_t epoch, segment, first, end;
} rks_plan_skip_range;

/* A sample that is cut into pieces (pieces.c). */
typedef struct rks_plan_cut_sample {
    uint32_t id;
    uint32_t first; /* of its pieces among all */
} rks_plan_cut_sample;

enum { RKS_PLAN_SEGMENTS_MAX = 64 };

struct rks_plan {
    rks_plan_config config;
    const uint32_t *lengths; /* borrowed */
    uint64_t count;
    const uint32_t *order;   /* sorted and bucket */
    uint32_t *own_order;     /* the same, where it is not borrowed */
    char dataset[33];        /* empty: not known */
    char lengths_digest[17]; /* empty until a state asks for it */
    uint64_t absent;         /* samples of length RKS_LENGTH_ABSENT: first in a sorted order */
    uint64_t too_long;       /* samples above config.limit, which are there */
    uint32_t longest;        /* of those that are not alone or dropped, as truncated */
    struct rks_mix *mix;     /* mix.h; NULL: each sample occurs once */
    uint64_t batches_like;   /* about how many batches all samples make; sets the mixing */
    uint64_t fill_most, fill_least; /* batches that epochs need, where rks_plan_fills */
    bool is_shuffled;       /* the ids are the base of epoch 0, shuffled: the plan is being made */
    rks_plan_base shuffled; /* that base */
    /* Of the base at hand, from place units_first on: lengths in units of length_multiple, from 1;
     * NULL: not known. */
    uint32_t *units;
    uint64_t units_first, units_count;
    bool units_exact; /* no length is 0 */
    /* Bins that epochs need by windows, where rks_plan_windows, and that all need at once. */
    uint64_t window_most, window_least, window_all;

    rks_plan_layout whole; /* of a whole epoch, unless per_epoch; its `batches` alone where
                            * rks_plan_fills */
    rks_plan_layout part;  /* of an epoch that is planned on its own */
    /* The epoch at hand. */
    bool ready;
    uint64_t epoch;
    const rks_plan_layout *layout;
    uint32_t *ids;
    uint64_t ids_room;
    uint32_t *slots; /* step * world + rank -> batch, where `slotted`; else batches are in order */
    uint64_t slots_room;
    bool slotted;
    uint32_t *starts; /* pack: where bin i begins in ids; one more is the end of the last */
    uint64_t starts_room;

    /* share.h: where epochs are shared; NULL: each rank has its own. The arrays of an epoch that is
     * shown from there are nobody's to free. */
    struct rks_plan_share *share;
    struct rks_share_room *room; /* of a maker: its ids lie there; NULL: in memory of its own */

    /* Pieces: those of the plan, and those of the epoch at hand. */
    rks_plan_cut_sample *cuts; /* too_long of them at most */
    size_t cut_count;
    uint64_t piece_count;
    uint32_t *piece_order; /* as ids from `count` on, longest first */
    rks_piece *pieces;     /* by place in ids; `place` is that in the batch */
    uint32_t *piece_places;
    size_t pieces_shown;
    uint64_t pieces_room;

    /* A resumed epoch: what was done of it before, by which worlds. */
    uint64_t resumed_epoch;
    rks_plan_segment done[RKS_PLAN_SEGMENTS_MAX];
    size_t done_count;
    uint64_t rest_steps;
    bool rest_over; /* nothing is left after these segments */

    rks_plan_skip_range *skips; /* room for RKS_PLAN_SKIPS_MAX; NULL: none was skipped ever */
    size_t skip_count;
};

/* Of pieces, whose ids are from `count` on: pieces.c. */
uint32_t rks_plan_piece_length(const rks_plan *plan, uint32_t id);
uint32_t rks_plan_piece_sample(const rks_plan *plan, uint32_t id);
uint64_t rks_plan_piece_balance(const rks_plan *plan, uint32_t id);

/* Of a sample, or of a piece, whose id is from `count` on. */
static inline uint32_t rks_plan_length(const rks_plan *plan, uint32_t id)
{
    if (id >= plan->count)
        return rks_plan_piece_length(plan, id);
    uint32_t length = plan->lengths[id];
    return length < plan->config.clamp ? length : plan->config.clamp;
}

/* Samples of a whole epoch's base that are not in pieces. */
static inline uint64_t rks_plan_uncut(const rks_plan *plan)
{
    enum too_long too_long = plan->config.too_long;
    bool leaves = too_long == TOO_LONG_DROP || too_long == TOO_LONG_SPLIT;
    return plan->count - plan->absent - (leaves ? plan->too_long : 0);
}

/* Samples and pieces of a whole epoch's base. */
static inline uint64_t rks_plan_kept(const rks_plan *plan)
{
    return rks_plan_uncut(plan) + plan->piece_count;
}

/* The sample of an id that is planned. */
static inline uint32_t rks_plan_sample(const rks_plan *plan, uint32_t id)
{
    return id < plan->count ? id : rks_plan_piece_sample(plan, id);
}

/* pieces.c */
/* Too long samples become pieces; adds their lengths to *tokens. */
rks_status rks_plan_split(rks_plan *plan, uint64_t *tokens, rks_error *err);
/* Pieces of cut sample number `cut`; *first is the id of the first one. */
uint32_t rks_plan_pieces_of(const rks_plan *plan, size_t cut, uint32_t *first);
/* `count` ids of whole samples, longest first, and all pieces, as one such list. */
void rks_plan_merge_pieces(const rks_plan *plan, const uint32_t *order, uint64_t count,
                           uint32_t *merged);
/* The piece of sample `id` that begins at `start`, as the plan counts it: its number from 0 among
 * all pieces. */
uint32_t rks_plan_piece_number(const rks_plan *plan, uint32_t id, uint32_t start);
/* What of a sample's cost config.balance a part of it has, so that the parts' sum is the whole. */
uint64_t rks_plan_part_of_balance(const rks_plan *plan, uint32_t id, uint32_t start,
                                  uint32_t count);
/* Ids of pieces in plan->ids become those of their samples; fills plan->pieces. */
rks_status rks_plan_show_pieces(rks_plan *plan, rks_error *err);
/* Those of a batch that rks_plan_at gave. */
void rks_plan_pieces_at(const rks_plan *plan, const uint32_t *ids, size_t count,
                        const rks_piece **pieces, size_t *piece_count);
void rks_plan_free_pieces(rks_plan *plan);

/* skip.c */
/* Of `step`, counted in a segment: itself, or the end of the range that skips it. */
uint64_t rks_plan_unskipped(const rks_plan *plan, uint64_t epoch, uint64_t segment, uint64_t step);
/* The next steps from `step` on that are skipped: false, if none below `steps`. */
bool rks_plan_next_skip(const rks_plan *plan, uint64_t epoch, uint64_t segment, uint64_t step,
                        uint64_t steps, uint64_t *first, uint64_t *end);
/* The segment that these ranks do in an epoch. */
uint64_t rks_plan_segment_of(const rks_plan *plan, uint64_t epoch);
/* Those of the option `skip`. */
rks_status rks_plan_skip_all(rks_plan *plan, const rks_step_range *list, size_t count,
                             rks_error *err);
/* As JSON entries; returns their size, which may be above `room`. */
size_t rks_plan_write_skips(const rks_plan *plan, char *text, size_t room);
/* Has a state room for them and for the plan's changes? */
rks_status rks_plan_schedule_fits(const rks_plan *plan, rks_error *err);
/* Adds those of a state to the plan's; on failure these are as they were. `list` may be NULL. */
struct json_t;
rks_status rks_plan_read_skips(rks_plan *plan, const struct json_t *list, rks_error *err);

/* stretch.c: work over many samples looks for an interrupt now and then: RKS_ERR_CANCELLED. */
/* *end: up to where to go on from sample `at` of `count`; asks between stretches. */
rks_status rks_plan_stretch(uint64_t at, uint64_t count, uint64_t *end, rks_error *err);
/* After `more` samples; *done, 0 at first, counts those since it asked last. */
rks_status rks_plan_pause(uint64_t *done, uint64_t more, rks_error *err);
/* For this thread, until NULL: each time that it would ask for an interrupt, it counts one up, and
 * looks at `stop` in the interrupt's place (NULL: asks, too). */
typedef struct rks_plan_watch {
    _Atomic(uint64_t) *progress;
    const atomic_bool *stop;
} rks_plan_watch;
void rks_plan_watch_set(const rks_plan_watch *watch);

/* sort.c: asks for huge pages where an array is large: without them a third of the time goes into
 * page faults and address translation. Advice; it cannot fail. */
void rks_plan_advise(void *memory, uint64_t bytes);

/* base.c: writes the base into plan->ids, which has room for rks_plan_kept() of them. `struck`: a bit
 * an id, set where it is left out; NULL: none is. */
rks_status rks_plan_base_fill(rks_plan *plan, const uint8_t *struck, rks_plan_base *base,
                              rks_error *err);
/* The sorted base: what is not there comes first in the order, then what is too long. */
const uint32_t *rks_plan_base_sorted(const rks_plan *plan);

/* cut.c: base -> groups, without regard to the world. */
rks_status rks_plan_cut(const rks_plan *plan, const rks_plan_base *base, rks_plan_layout *layout,
                        rks_error *err);
/* Adds one batch, to the last group where it is like those there. */
rks_status rks_plan_layout_batch(rks_plan_layout *layout, uint64_t first, uint64_t size,
                                 uint32_t cap, bool alone, rks_error *err);
/* Adds the batches of samples that are alone. */
rks_status rks_plan_layout_alone(rks_plan_layout *layout, uint64_t samples, rks_error *err);
/* Adds a group; `room` of the layout grows. */
rks_status rks_plan_layout_add(rks_plan_layout *layout, const rks_plan_group *group,
                               rks_error *err);
void rks_plan_layout_free(rks_plan_layout *layout);

/* fill.c: strategy random with a budget and constant steps. `base` is plan->ids, shuffled. */
static inline bool rks_plan_fills(const rks_plan_config *config)
{
    return config->strategy == STRATEGY_RANDOM && config->max_tokens != UINT64_MAX &&
           !config->per_epoch && !config->alone_in_order;
}
/* Counts the batches that the base needs into fill_most and fill_least; `keeps`: plan->units holds
 * its lengths for rks_plan_fill. */
rks_status rks_plan_fill_look(rks_plan *plan, const rks_plan_base *base, bool keeps,
                              rks_error *err);
/* The same of a base by id as an epoch shuffles it with the key `members`: a shuffle does not depend
 * on what it shuffles, so lengths in the order of ids are shuffled, and none is looked up. */
rks_status rks_plan_fill_look_shuffled(rks_plan *plan, const rks_plan_base *base,
                                       uint64_t members, rks_error *err);
/* Frees plan->units. */
void rks_plan_fill_forget(rks_plan *plan);
/* Counts those that as many samples need longest first, into fill_most alone. */
rks_status rks_plan_fill_look_sorted(rks_plan *plan, const rks_plan_base *base, rks_error *err);
/* Fills plan->part, by these counts if the epoch is whole. plan->units holds the lengths of its base
 * until rks_plan_fill_forget. */
rks_status rks_plan_fill(rks_plan *plan, const rks_plan_base *base, uint32_t world, bool whole,
                         rks_error *err);

/* tail.c: makes the number of batches a multiple of world, by the option `tail`. */
rks_status rks_plan_even(const rks_plan *plan, const rks_plan_base *base, uint32_t world,
                         rks_plan_layout *layout, rks_error *err);

/* Where batch `index` of a group lies, counted from the group's first. */
static inline void rks_plan_deal(const rks_plan_group *group, uint32_t index, uint64_t *first,
                                 uint64_t *end)
{
    uint64_t units = ((uint64_t)group->count + group->unit - 1) / group->unit;
    uint64_t each = units / group->batches;
    uint64_t more = units % group->batches; /* the first batches have one unit more */
    *first = (index * each + (index < more ? index : more)) * group->unit;
    *end = *first + (each + (index < more ? 1 : 0)) * group->unit;
    if (*end > group->count)
        *end = group->count;
}

/* Of samples and pieces, where config.balance is given. Below 2^64 in sum. */
static inline uint64_t rks_plan_balance_of(const rks_plan *plan, const uint32_t *ids, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += ids[i] < plan->count ? plan->config.balance[ids[i]]
                                    : rks_plan_piece_balance(plan, ids[i]);
    return sum;
}

/* longest_first.c: sorts within the batches of the epoch at hand. */
rks_status rks_plan_longest_first(rks_plan *plan, rks_error *err);

/* epoch.c */
/* Fills plan->whole, so that it is known that an epoch can be planned at all. */
rks_status rks_plan_lay_out(rks_plan *plan, rks_error *err);
/* Makes `epoch` the plan's epoch at hand: whole, or what is left of it. */
rks_status rks_plan_prepare(rks_plan *plan, uint64_t epoch, rks_error *err);
/* The same where an epoch has changes: makes the stretch of `step` the one at hand (the last one if
 * there is no such step). */
rks_status rks_plan_prepare_step(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err);
/* The same for this rank alone, whatever is at hand or shared. */
rks_status rks_plan_make(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err);
/* Frees the arrays of the epoch at hand, as far as they are the plan's. */
void rks_plan_drop_epoch(rks_plan *plan);
/* A batch of the epoch at hand. */
void rks_plan_at(const rks_plan *plan, uint64_t slot, const uint32_t **ids, size_t *count);
/* The same by the number of the batch, not by its slot. */
void rks_plan_batch_at(const rks_plan *plan, uint64_t batch, const uint32_t **ids, size_t *count);
/* The same of pack: the bins of that batch, as bounds in plan->ids: one more than bins. */
void rks_plan_bins_at(const rks_plan *plan, uint64_t slot, const uint32_t **bounds, size_t *bins);
/* shuffle.c: takes 4 bytes an item for a while where there are more than half a million. */
rks_status rks_plan_shuffle(uint64_t key, uint32_t *items, uint64_t count, rks_error *err);

/* spread.c: what a report says of padded tokens, tokens[step * world + rank], which are put out of
 * order. At least one step. */
void rks_plan_spread(uint64_t *tokens, uint64_t steps, uint32_t world, rks_plan_report *report);

/* slots.c: which batch at which slot, like costs in one step. */
rks_status rks_plan_arrange(rks_plan *plan, uint32_t world, uint64_t key, rks_error *err);
/* The class of each batch of the epoch: like costs have one class, which grows with cost. */
rks_status rks_plan_classify(const rks_plan *plan, uint16_t *classes, rks_error *err);
/* Shuffles runs of `row` slots. */
rks_status rks_plan_shuffle_steps(rks_plan *plan, uint64_t row, uint64_t key, rks_error *err);

/* pack.c: strategy pack: bins of a sorted base in equal steps. */
rks_status rks_pack_lay_out(const rks_plan *plan, const rks_plan_base *base, uint32_t world,
                            rks_plan_layout *layout, rks_error *err);
void rks_pack_free(rks_pack *pack); /* NULL is accepted */
/* windows.c: the same by windows of the base in the order that `key` draws; `whole`: of a whole
 * epoch, whose steps are always as many. */
rks_status rks_pack_lay_out_windows(const rks_plan *plan, const rks_plan_base *base, uint32_t world,
                                    uint64_t key, bool whole, rks_plan_layout *layout,
                                    rks_error *err);
/* Counts the bins of the base into window_most and window_least: by windows of `bins` bins, or, the
 * first time, all at once (0). */
rks_status rks_pack_look(rks_plan *plan, const rks_plan_base *base, uint64_t key, uint64_t bins,
                         rks_error *err);
/* deal.c: plan->ids, a sorted base, becomes the ids of bins; fills plan->starts. `members` and
 * `bins` are keys. */
rks_status rks_pack_deal(rks_plan *plan, rks_plan_layout *layout, uint32_t world, uint64_t members,
                         uint64_t bins, rks_error *err);
/* Fills plan->slots, which has room. */
rks_status rks_pack_arrange(rks_plan *plan, const rks_plan_layout *layout, uint32_t world,
                            uint64_t key, rks_error *err);

#endif
