/* SPDX-License-Identifier: Apache-2.0
 *
 * inside.h: the planner's own structures and functions.
 *
 *   options ──► config
 *   lengths ──► base: the ids to plan, in the strategy's order (sorted, or by id)
 *   base    ──► layout: consecutive groups of the base, each cut into batches (the same in every
 *               epoch); strategy pack: bins (packing.h)
 *   layout + seed, epoch ──► ids shuffled within bounds, and which batch is at which (step, rank)
 *
 * After a change of world within an epoch, the base is the rest of the epoch. The planner plans the
 * epoch again for each segment [world, steps] that is done, and strikes out the samples of those
 * steps. */
#ifndef RKS_PLAN_INSIDE_H
#define RKS_PLAN_INSIDE_H

#include <stdatomic.h>

#include "base/checksum.h"
#include "plan/plan.h"
#include "plan/random.h"

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
    uint32_t unit;    /* samples are dealt in multiples of it: batch_multiple if possible, else 1 */
    bool alone;       /* samples that are too long: one a batch */
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
} rks_plan_base;

typedef struct rks_plan_segment {
    uint32_t world;
    uint64_t steps;
} rks_plan_segment;

/* Steps [first, end) of an epoch to skip, counted by the world that does segment number `segment`
 * of the epoch (skip.c). The ranges of a segment do not meet, and are in the order of steps. */
typedef struct rks_plan_skip_range {
    uint64_t epoch, segment, first, end;
} rks_plan_skip_range;

/* A sample that is cut into pieces (pieces.c). */
typedef struct rks_plan_cut_sample {
    uint32_t id;
    uint32_t first; /* number of its first piece among all pieces */
} rks_plan_cut_sample;

enum { RKS_PLAN_SEGMENTS_MAX = 64 };

/* What epochs are made from. It does not change once the plan is made, except that a mix may get
 * changes of its weights (schedule.c). */
typedef struct rks_plan_input {
    rks_plan_config config;
    const uint32_t *lengths; /* borrowed */
    uint64_t count;
    const uint32_t *order; /* the sorted order, if the strategy needs it */
    uint64_t absent;       /* samples of length RKS_LENGTH_ABSENT, which come first in a sorted
                            * order */
    uint64_t too_long;     /* samples above config.limit that are not absent */
    uint32_t longest;      /* longest length planned in shared batches, after truncation */
    uint64_t batches_like; /* about how many batches all samples make; sets how many a
                            * neighbourhood mixes */
    struct rks_mix *mix;   /* mix.h; NULL: each sample occurs once */

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

struct rks_epoch_image;
/* Memory that lends an image room for its ids. `grow` provides for `count` of them; after `leave`
 * the image has none, and no room. */
typedef struct rks_epoch_room {
    rks_status (*grow)(struct rks_epoch_image *image, uint64_t count, rks_error *err);
    void (*leave)(struct rks_epoch_image *image);
} rks_epoch_room;

/* An epoch, or the rest of one: its batches, and which batch is at which step and rank. */
typedef struct rks_epoch_image {
    bool ready;
    uint64_t epoch;
    const rks_plan_layout *layout; /* in->whole, `part`, or one in the share */
    rks_plan_layout part;          /* the layout of an epoch that is planned on its own */
    uint64_t samples, repeated;    /* delivered, repeats included; and the repeats */
    uint32_t *ids;
    uint64_t ids_room;
    uint32_t *slots; /* step * world + rank -> batch, if `slotted`; else batches are in the order of
                      * slots */
    uint64_t slots_room;
    bool slotted;
    uint32_t *starts; /* pack: where each bin begins in ids; one more entry ends the last bin */
    uint64_t starts_room;
    rks_piece *pieces; /* in the order of ids; each piece's `place` is its place in the batch */
    uint32_t *piece_places;
    size_t pieces_shown;
    uint64_t pieces_room;
    bool rest_over; /* of a resumed epoch: no step is left after its segments */

    struct rks_epoch_room *room; /* NULL: the image owns the memory of its ids */

    /* Only while it is made. */
    bool is_shuffled;       /* ids hold the shuffled base of epoch 0; only while a plan is made */
    rks_plan_base shuffled; /* the shuffled base */
    /* Lengths of the base from place units_first on, in units of length_multiple, at least 1. NULL
     * if unknown. */
    uint32_t *units;
    uint64_t units_first, units_count;
    bool units_exact; /* true if no length is 0 */
} rks_epoch_image;

/* What was done of epochs, and what is to be skipped. A resume and a skip are filters over an
 * epoch's order. */
typedef struct rks_epoch_progress {
    /* A resumed epoch: the segments that earlier worlds did of it. */
    uint64_t resumed_epoch;
    rks_plan_segment done[RKS_PLAN_SEGMENTS_MAX];
    size_t done_count;
    uint64_t rest_steps;

    rks_plan_skip_range *skips; /* room for RKS_PLAN_SKIPS_MAX; NULL: none so far */
    size_t skip_count;
} rks_epoch_progress;

struct rks_plan {
    rks_plan_input in;
    rks_epoch_image image;   /* the current epoch */
    uint32_t *own_order;     /* the sorted order, if the plan owns it; else NULL */
    char dataset[33];        /* empty if unknown */
    char lengths_digest[17]; /* empty until a state needs it */

    /* Shared epochs (share.h). NULL: each rank makes its own. The plan does not own the arrays of
     * an epoch that it takes from there. */
    struct rks_plan_share *share;

    rks_epoch_progress progress;
};

/* Return the length, the sample and the balance cost of a piece. Piece ids start at `count`
 * (pieces.c). */
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

/* pieces.c */
/* Splits the samples that are too long, and adds the lengths of their pieces to *tokens, which
 * counts 1 for each such sample already. Does nothing unless too_long is "split".
 * RKS_ERR_UNSUPPORTED if samples and pieces together are 2^32 or more. */
rks_status rks_plan_split(rks_plan_input *in, uint64_t *tokens, rks_error *err);
/* Returns how many pieces cut sample number `cut` has; sets *first to the id of the first one. */
uint32_t rks_plan_pieces_of(const rks_plan_input *in, size_t cut, uint32_t *first);
/* Merges `count` ids of whole samples, longest first, and all pieces into one list, longest first.
 * Of equal lengths, whole samples come first. */
void rks_plan_merge_pieces(const rks_plan_input *in, const uint32_t *order, uint64_t count,
                           uint32_t *merged);
/* Returns the number, from 0 among all pieces, of the piece of sample `id` that begins at
 * `start`. */
uint32_t rks_plan_piece_number(const rks_plan_input *in, uint32_t id, uint32_t start);
/* Returns the share of a sample's cost config.balance that items [start, start + count) have. The
 * shares of all pieces add up to the cost. */
uint64_t rks_plan_part_of_balance(const rks_plan_input *in, uint32_t id, uint32_t start,
                                  uint32_t count);
/* Replaces piece ids in plan->image.ids by the ids of their samples, and fills plan->image.pieces.
 */
rks_status rks_plan_show_pieces(const rks_plan_input *in, rks_epoch_image *image, rks_error *err);
/* Sets *pieces and *piece_count to the pieces of a batch from rks_plan_at. The plan owns them. */
void rks_plan_pieces_at(const rks_epoch_image *image, const uint32_t *ids, size_t count,
                        const rks_piece **pieces, size_t *piece_count);
void rks_plan_free_pieces(rks_plan_input *in);

/* skip.c */
/* Returns `step`, counted in its segment, or the end of the range that skips it. */
uint64_t rks_plan_unskipped(const rks_epoch_progress *progress, uint64_t epoch, uint64_t segment,
                            uint64_t step);
/* Finds the next skipped steps [*first, *end) in [step, steps). Returns false if there are none. */
bool rks_plan_next_skip(const rks_epoch_progress *progress, uint64_t epoch, uint64_t segment,
                        uint64_t step, uint64_t steps, uint64_t *first, uint64_t *end);
/* Returns the segment of an epoch that these ranks do. */
uint64_t rks_plan_segment_of(const rks_epoch_progress *progress, uint64_t epoch);
/* Adds the ranges of the option `skip`; errors as from rks_plan_skip. */
rks_status rks_plan_skip_all(rks_plan *plan, const rks_step_range *list, size_t count,
                             rks_error *err);
/* Writes the ranges as JSON entries. Returns their size, which may be above `room`. */
size_t rks_plan_write_skips(const rks_epoch_progress *progress, char *text, size_t room);
/* Returns RKS_ERR_STATE if a state has no room for the plan's ranges and changes. */
rks_status rks_plan_schedule_fits(const rks_plan_input *in, const rks_epoch_progress *progress,
                                  rks_error *err);
/* Adds ranges to the list; on failure it is unchanged. RKS_ERR_STATE if a state has no room. */
rks_status rks_plan_add_skips(const rks_plan_input *in, rks_epoch_progress *progress,
                              const rks_plan_skip_range *ranges, size_t count, rks_error *err);
/* Adds the ranges of a state to the plan's. `list` may be NULL. RKS_ERR_STATE if the list is
 * malformed or has no room. On failure the plan's ranges are unchanged. */
struct json_t;
rks_status rks_plan_read_skips(const rks_plan_input *in, rks_epoch_progress *progress,
                               const struct json_t *list, rks_error *err);

/* stretch.c: checks for an interrupt during long work. Both functions return RKS_ERR_CANCELLED
 * after an interrupt. */
/* Sets *end to where the next stretch ends, which begins at sample `at` of `count`. Checks for an
 * interrupt between stretches. */
rks_status rks_plan_stretch(uint64_t at, uint64_t count, uint64_t *end, rks_error *err);
/* Counts `more` samples, and checks for an interrupt once a stretch. *done is 0 at first and counts
 * the samples since the last check. */
rks_status rks_plan_pause(uint64_t *done, uint64_t more, rks_error *err);
/* Sets a watch for this thread, until it is set to NULL. At each check the planner then increments
 * `progress`, and tests `stop` instead of the interrupt. If `stop` is NULL, it still checks for the
 * interrupt. */
typedef struct rks_plan_watch {
    _Atomic(uint64_t) *progress;
    const atomic_bool *stop;
} rks_plan_watch;
void rks_plan_watch_set(const rks_plan_watch *watch);

/* sort.c: advises the kernel to use huge pages for a large array. Without them, page faults and
 * address translation take a third of the time. It is only advice and cannot fail. */
void rks_plan_advise(void *memory, uint64_t bytes);

/* base.c: writes the base into plan->image.ids, which has room for rks_plan_kept() ids. `struck`
 * has a bit for each id, set if the base leaves it out; NULL leaves out none. */
rks_status rks_plan_base_fill(const rks_plan_input *in, rks_epoch_image *image,
                              const uint8_t *struck, rks_plan_base *base, rks_error *err);

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

/* fill.c: fills batches for strategy random with a budget and constant steps, for which
 * rks_plan_fills returns true. Below, `base` is image->ids, shuffled, unless a comment says
 * otherwise. */
/* Counts the batches that the base needs, and updates fill_most and fill_least. If `keeps` is true,
 * plan->image.units keeps the base's lengths for rks_plan_fill. */
rks_status rks_plan_fill_look(rks_plan_input *in, rks_epoch_image *image, const rks_plan_base *base,
                              bool keeps, rks_error *err);
/* Does the same for a base by id, as an epoch with the key `members` shuffles it. A shuffle does
 * not depend on what it shuffles. So this shuffles lengths, read in the order of ids, and looks
 * none up. */
rks_status rks_plan_fill_look_shuffled(rks_plan_input *in, rks_epoch_image *image,
                                       const rks_plan_base *base, uint64_t members, rks_error *err);
/* Frees plan->image.units. */
void rks_plan_fill_forget(rks_epoch_image *image);
/* Counts the batches that the samples need longest first, and updates only fill_most. */
rks_status rks_plan_fill_look_sorted(rks_plan_input *in, rks_epoch_image *image,
                                     const rks_plan_base *base, rks_error *err);
/* Fills `layout`; the counts set its number of batches if the epoch is whole. Afterwards
 * plan->image.units holds the lengths of the base, until rks_plan_fill_forget. RKS_ERR_DATA if the
 * batches cannot make equal steps. */
rks_status rks_plan_fill(const rks_plan_input *in, rks_epoch_image *image,
                         const rks_plan_base *base, uint32_t world, bool whole,
                         rks_plan_layout *layout, rks_error *err);

/* tail.c: makes the number of batches a multiple of world, as the option `tail` says. RKS_ERR_DATA
 * if that is not possible. */
rks_status rks_plan_even(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                         rks_plan_layout *layout, rks_error *err);

/* Sets *first and *end to the samples of batch `index` of a group, counted from the group's
 * first. */
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

/* longest_first.c: sorts the samples within each batch of the current epoch, longest first. */
rks_status rks_plan_longest_first(const rks_plan_input *in, rks_epoch_image *image, rks_error *err);

/* epoch_image.c */
/* Grows an array to at least `count` items of which *room are there. */
rks_status rks_epoch_grow(uint32_t **items, uint64_t *room, uint64_t count, rks_error *err);
/* Gives image->slots room for all batches, and says that they are used. */
rks_status rks_epoch_grow_slots(rks_epoch_image *image, rks_error *err);
/* Gives image->ids room for `count` ids. */
rks_status rks_epoch_grow_ids(rks_epoch_image *image, uint64_t count, rks_error *err);
/* Frees the arrays of the current epoch, which the plan must own. */
void rks_epoch_image_clear(rks_epoch_image *image);
/* Sets *ids and *count to the batch at `slot` of the current epoch. The plan owns the ids. */
void rks_plan_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t slot,
                 const uint32_t **ids, size_t *count);
/* Does the same by the batch's number instead of its slot. */
void rks_plan_batch_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t batch,
                       const uint32_t **ids, size_t *count);
/* Pack: sets *bounds to where the bins of that batch begin in plan->image.ids. It has one entry
 * more than *bins. */
void rks_plan_bins_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t slot,
                      const uint32_t **bounds, size_t *bins);

/* epoch.c */
/* Fills plan->in.whole. Fails, mostly with RKS_ERR_DATA, if no epoch can be planned. */
rks_status rks_plan_lay_out(rks_plan_input *in, rks_epoch_image *image, rks_error *err);
/* plan.c: makes `epoch`, or its rest after a resume, the plan's current epoch. */
rks_status rks_plan_prepare(rks_plan *plan, uint64_t epoch, rks_error *err);
/* Does the same, and for a mix with changes, makes the stretch of `step` current (the last one if
 * there is no such step). */
rks_status rks_plan_prepare_step(rks_plan *plan, uint64_t epoch, uint64_t step, rks_error *err);
/* Makes the epoch for this rank alone, whatever is current or shared. */
rks_status rks_epoch_make(const rks_plan_input *in, const rks_epoch_progress *progress,
                          uint64_t epoch, uint64_t step, rks_epoch_image *image, rks_error *err);
/* shuffle.c: shuffles uniformly. Allocates 4 bytes an item during the call if there are more than
 * half a million. */
rks_status rks_plan_shuffle(uint64_t key, uint32_t *items, uint64_t count, rks_error *err);
/* Shuffles ids of equal length in plan->image.ids, which are sorted by length. So lengths and
 * bounds stay as they are. */
rks_status rks_plan_shuffle_equals(const rks_plan_input *in, rks_epoch_image *image,
                                   const rks_plan_base *base, uint64_t key, rks_error *err);

/* spread.c: fills the batch sizes of a report from tokens[step * world + rank], the padded tokens
 * of each batch. Reorders `tokens`. There is at least one step. */
void rks_plan_spread(uint64_t *tokens, uint64_t steps, uint32_t world, rks_plan_report *report);

/* batch_class.c */
enum {
    RKS_BATCH_CLASS_BITS = 6,
    RKS_BATCH_CLASS_WIDTH = 1 << RKS_BATCH_CLASS_BITS,
    RKS_BATCH_CLASSES = 96 * RKS_BATCH_CLASS_WIDTH
};
/* Sets the class of each batch of the epoch. Batches of like cost have one class, which grows with
 * cost. */
rks_status rks_plan_classify(const rks_plan_input *in, const rks_epoch_image *image,
                             uint16_t *classes, rks_error *err);

/* slots.c */
/* Shuffles the runs of `row` slots among each other. */
rks_status rks_plan_shuffle_steps(rks_epoch_image *image, uint64_t row, uint64_t key,
                                  rks_error *err);

/* pack.c: packs a sorted base into bins in equal steps (strategy pack). RKS_ERR_DATA if that is not
 * possible. */
rks_status rks_pack_lay_out(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                            rks_plan_layout *layout, rks_error *err);
void rks_pack_free(rks_pack *pack); /* NULL is accepted */
/* windows.c: does the same by windows of the base, in the order that `key` draws. `whole`: it is a
 * whole epoch, and all of these have the same number of steps. */
rks_status rks_pack_lay_out_windows(const rks_plan_input *in, const rks_plan_base *base,
                                    uint32_t world, uint64_t key, bool whole,
                                    rks_plan_layout *layout, rks_error *err);
/* Counts the bins of the base, and updates window_most and window_least. Packs by windows of `bins`
 * bins, or all at once if `bins` is 0, which must be the first call and also sets window_all. */
rks_status rks_pack_look(rks_plan_input *in, const rks_plan_base *base, uint64_t key, uint64_t bins,
                         rks_error *err);
/* deal.c: replaces plan->image.ids, a sorted base, by the ids of the bins, and fills
 * plan->image.starts. `members` and `bins` are keys. */
rks_status rks_pack_deal(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                         uint64_t members, uint64_t bins, rks_error *err);
/* Fills plan->image.slots, which has room. */
rks_status rks_pack_arrange(const rks_plan_input *in, rks_epoch_image *image, uint32_t world,
                            uint64_t key, rks_error *err);

#endif
