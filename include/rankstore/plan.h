/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/plan.h: which samples form which batch, at which step, on which rank. Part of
 * rankstore.h. */
#ifndef RANKSTORE_PLAN_H
#define RANKSTORE_PLAN_H

#include "rankstore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plan: which samples form which batch, at which step, on which rank ---------------------- */

typedef struct rks_plan rks_plan;
struct rks_plan_mix; /* rankstore/mix.h */

/* Steps [first, last], both included, of an epoch. */
typedef struct rks_step_range {
    uint64_t epoch, first, last;
} rks_step_range;

/* Strategies:
 * bucket      neighbourhoods of like length, shuffled inside and across; the batches of a step have
 *             like cost on all ranks
 * sorted      longest first, steps in that order; epochs differ in the places of equal lengths, so
 *             padded tokens are the same in all of them
 * random      any samples together; with max_tokens, batches are filled up to it
 * sequential  by id, step-major and rank-minor; never shuffled
 * pack        bins: samples that together take at most `capacity`, filled best-fit decreasing over
 *             all lengths. A batch is `batch_size` bins. Bins of like cost share a step. Each epoch
 *             deals ids anew among equal lengths and shuffles ranks and steps. Steps are at most
 *             ceil(bins of best-fit decreasing / (ranks * micro_batches * batch_size)), unless a
 *             change of world in an epoch leaves less to fill bins with
 *
 * A sample above max_length, or one that max_tokens has no room for, is too long: an error that
 * names it, or it is dropped, alone in a batch (which may break the budget), counted as truncated
 * to that limit, at which the collator cuts (rks_collate_options.max_length, cut_by_length), or
 * split into pieces of that limit and a last one with the rest: each piece is planned like a
 * sample, once an epoch, and the collator takes it out of its sample (rks_plan_pieces). A length of
 * 0 takes room for 1 in a budget.
 *
 * Every rank has the same number of steps and no batch is empty: the last step's batches are split
 * over all ranks, or full and repeating samples of theirs, or dropped. If batches hold one
 * sample and their number is not a multiple of the ranks, there is nothing to split: RKS_ERR_DATA.
 *
 * pack: the last step takes the cheapest bins. tail "split" deals them over all ranks, and splits
 * bins if there are fewer than batches; "repeat" repeats bins; "drop" drops them. A sample above
 * `capacity` is too long; too_long may not be "alone". */
/* A run of `count` samples from `first` on that nobody can deliver. */
typedef struct rks_absent_run {
    uint32_t first;
    uint32_t count;
} rks_absent_run;

typedef struct rks_plan_options {
    size_t struct_size;
    const char *strategy; /* "bucket" (default), "sorted", "random", "sequential", "pack" */
    uint32_t batch_size;  /* samples a batch at most, to 2^24; 0: no such bound. pack: bins of a
                           * batch, 0 stands for 1 */
    uint64_t max_tokens;  /* budget of a batch in the units of `cost`; 0: no such bound. With
                           * neither bound given, batch_size is 64 */
    const char *cost;     /* "padded" (default: longest * count), "tokens" (sum of lengths),
                           * "quadratic" (padded for the budget; longest squared * count
                           * for the balance over ranks), "polynomial" (padded for the budget;
                           * cost_linear * L + cost_quadratic * L^2 of the longest, * count, for
                           * the balance). pack sums the cost over the samples of a bin; padded
                           * counts as tokens there */
    uint32_t max_length;  /* 0: none */
    const char *too_long; /* "error" (default), "drop", "alone", "truncate", "split" */
    const char *tail;     /* "split" (default: the last batches are smaller), "repeat" (filled with
                           * samples already used), "drop" */
    const char *steps;    /* "constant" (default), "per_epoch" (random with max_tokens only: batches
                           * are filled, and their number varies; an epoch that cannot be made
                           * even is RKS_ERR_DATA when it is asked for) */
    uint32_t batch_multiple; /* batches hold a multiple of it if possible; default 1 */
    bool no_shuffle;         /* every epoch is as epoch 0; sorted breaks ties by id */
    uint32_t world;          /* ranks to plan for; 0: the group's size (rks_plan_create: 1) */
    uint64_t seed;
    uint32_t capacity;        /* size of a bin, to 2^24; pack requires it, others refuse it */
    uint32_t length_multiple; /* a sample takes its length, rounded up to a multiple of it, in
                               * budgets, bins and reports: what the collator pads widths to
                               * (rks_collate_options.to_multiple); capacity is a multiple of it.
                               * Default 1, to 2^16. 0: 1 for pack and cost "tokens", else
                               * gcd(8, max_tokens) */
    uint32_t micro_batches;   /* pack: K batches of each rank make one optimizer step, default 1, to
                               * 2^16: sums of cost are even over them. rks_plan_steps and `step`
                               * count batches of a rank, a multiple of K; states fall between
                               * optimizer steps */
    bool mixed;               /* pack: an optimizer step takes any bins together, not bins of like
                               * cost; for micro_batches or batch_size above 1 */
    double cost_linear;       /* polynomial: factors of at least 0, and one above 0. Only their
                               * ratio matters. They are rounded to 39 bits of the larger one */
    double cost_quadratic;
    uint32_t pack_window; /* pack: each epoch puts the samples in another order and packs stretches
                           * of it that fill so many bins on their own: other samples meet, for a
                           * few more bins, and up to 40 bytes a sample more. All epochs have the
                           * same number of steps: what the first ones need. 0: packs all at once */
    const char *order; /* within a batch, of pack within each bin: "plan" (default: as the plan has
                        * them), "longest_first" (equal lengths as the plan has them) */
    const struct rks_plan_mix *mix; /* how many times each sample occurs; NULL: once. Read while the
                                     * plan is made */
    const uint32_t *balance;    /* a cost for each sample, as many as there are lengths. The balance
                                 * over ranks sums it instead of `cost`, which then counts only for the
                                 * budget. A piece (too_long "split") costs its share by items, rounded
                                 * so that the shares of all pieces add up to the sample's cost.
                                 * Borrowed; it must outlive the plan. NULL: none */
    const rks_step_range *skip; /* steps to skip, as by rks_plan_skip; read while the plan is made.
                                 * NULL: none */
    size_t skips;               /* how many ranges */
    bool whole; /* rks_plan_open: batches hold absent samples, too, which cannot be read: to look
                 * at the plan of the complete dataset. It is the same plan */
    /* rks_plan_create: samples that nobody can deliver, in ascending runs that do not meet. They
     * are planned by their lengths and left out of the batches, as rks_plan_open does it with what
     * its store lacks. Copied. */
    const rks_absent_run *absent;
    size_t absent_count;
} rks_plan_options;

RKS_API void rks_plan_options_default(rks_plan_options *options);
RKS_SIZED_DEFAULT(rks_plan_options)
#define rks_plan_options_default(options) rks_plan_options_default_sized(options)

/* The bounds of a plan's batches, for callers that make arrays of them. */
typedef struct rks_plan_limits {
    size_t struct_size;
    uint64_t budget;          /* maximum items of a batch; 0: no bound */
    bool sums;                /* the budget counts unpadded items */
    uint32_t length_multiple; /* lengths are rounded up to this, at least 1 */
    uint32_t cut;             /* longer samples are cut to this many items; 0: none is cut */
    uint32_t longest;         /* maximum length of a whole sample; 0: no bound */
    uint32_t piece;           /* longer samples come in pieces of this many items; 0: no pieces */
    uint32_t row;             /* items of a bin; 0: batches have no bins */
} rks_plan_limits;
/* Fills the limits of a plan with these options. Set limits->struct_size first; no more bytes than
 * that are written. RKS_ERR_ARGUMENT as from rks_plan_create. */
RKS_API rks_status rks_plan_limits_get(const rks_plan_options *options, rks_plan_limits *limits,
                                       rks_error *err);

/* Makes a plan over `count` lengths. They are not copied: they must outlive the plan. It is a pure
 * function: the same lengths, options and version give the same bits on any machine. `dataset` (32
 * hexadecimal digits, or NULL) is written into states. A length of UINT32_MAX marks an absent
 * sample (a partial store), which is never planned and counts as dropped. RKS_ERR_ARGUMENT names
 * the option; RKS_ERR_DATA if no plan exists (fewer samples than ranks, a sample above max_length).
 * The caller owns *plan. */
RKS_API rks_status rks_plan_create(const uint32_t *lengths, uint64_t count, const char *dataset,
                                   const rks_plan_options *options, rks_plan **plan,
                                   rks_error *err);

RKS_API void rks_plan_free(rks_plan *plan); /* NULL is accepted */

RKS_API uint32_t rks_plan_world(const rks_plan *plan);
/* Returns the steps of an epoch, skipped ones included. They are equal on all ranks, and in all
 * epochs unless the option `steps` is "per_epoch". */
RKS_API rks_status rks_plan_steps(rks_plan *plan, uint64_t epoch, uint64_t *steps, rks_error *err);

/* Returns true if samples of the plan are absent (rks_plan_open on a store without some shards, or
 * with a quarantine). Batches come without them. If a rank would have none, it receives the last
 * half of the largest batch of its step. A step with fewer samples that are there than ranks is
 * left out, as if it were skipped; of pack, its optimizer step is. Steps, states and digests stay
 * those of the complete dataset. */
RKS_API bool rks_plan_has_absent(const rks_plan *plan);
/* Return them, and the lengths that the plan is over: what rks_plan_create needs for the same plan.
 * Lengths of absent samples are those that were sealed. *runs is NULL if there are none. Both live
 * as long as the plan. */
RKS_API void rks_plan_absent(const rks_plan *plan, const rks_absent_run **runs, size_t *count);
RKS_API void rks_plan_lengths(const rks_plan *plan, const uint32_t **lengths, uint64_t *count);

enum { RKS_PLAN_SKIPS_MAX = 256 };
/* Skips steps `first` to `last` of `epoch`, both included. No loader delivers them, and their
 * samples count as used. Other steps keep their numbers and samples. A plan has no group: all ranks
 * must skip the same steps.
 *
 * States hold the skipped steps, and a plan that resumes a state skips the steps of both. If
 * another number of ranks goes on in that epoch, it does not get the samples of skipped steps
 * either; if it begins the epoch, it skips its own steps of these numbers. In a resumed epoch steps
 * count from where these ranks went on. An open epoch (rks_epoch_open) still delivers the steps
 * that it has listed ahead: open it again at its next step.
 *
 * RKS_ERR_ARGUMENT if the epoch has no such steps, or they are not whole optimizer steps.
 * RKS_ERR_STATE if states have no room for it (RKS_PLAN_SKIPS_MAX ranges, and RKS_PLAN_SCHEDULE_MAX
 * bytes with the changes of rks_plan_change). On failure the plan is unchanged. */
RKS_API rks_status rks_plan_skip(rks_plan *plan, uint64_t epoch, uint64_t first, uint64_t last,
                                 rks_error *err);
/* Finds the first step from `step` on that is not skipped. If there is none, *next is the number of
 * steps. */
RKS_API rks_status rks_plan_next_step(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *next,
                                      rks_error *err);
/* Counts the skipped steps of the epoch before `step`. */
RKS_API rks_status rks_plan_skipped(rks_plan *plan, uint64_t epoch, uint64_t step, uint64_t *count,
                                    rks_error *err);

/* Returns the batch of `rank` at `step`, also if that step is skipped: *count ids, at least one.
 * The plan owns them; they are valid until the plan is asked for another epoch, or freed. The first
 * call for an epoch computes that epoch. One thread at a time. */
RKS_API rks_status rks_plan_batch(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                                  const uint32_t **sample_ids, size_t *count, rks_error *err);

/* Returns which samples of that batch are pieces (too_long "split"), in order of `place`; *count
 * may be 0. A sample may appear in a batch several times, each time with another piece. The plan
 * owns them, like the ids. */
RKS_API rks_status rks_plan_pieces(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                                   const rks_piece **pieces, size_t *count, rks_error *err);

/* Returns the bins of that batch (strategy pack, else RKS_ERR_STATE). Bin i of *bins holds
 * sample_ids[bounds[i] - bounds[0]] to, but not including, sample_ids[bounds[i + 1] - bounds[0]] of
 * rks_plan_batch. No bin is empty. The plan owns them, like the ids. */
RKS_API rks_status rks_plan_bins(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                                 const uint32_t **bounds, size_t *bins, rks_error *err);

typedef struct rks_plan_report {
    size_t struct_size;
    uint64_t samples; /* delivered in the epoch, repeats included; a piece counts as one */
    uint64_t dropped; /* by too_long or tail */
    uint64_t repeated;
    uint64_t truncated;
    uint64_t steps;
    uint64_t batches;
    uint64_t tokens;        /* sum of lengths, truncated ones as truncated */
    uint64_t padded_tokens; /* items that batches have in all: sum of longest, rounded up to
                             * length_multiple, * count; of pack, and with a budget of cost
                             * "tokens": of lengths, rounded up */
    uint64_t largest_batch; /* padded tokens of the largest */
    double efficiency;      /* tokens / padded_tokens */
    double balance;         /* mean over optimizer steps of mean cost / max cost over ranks */
    double tokens_per_step; /* mean over steps, all ranks */
    char digest[33];        /* of the epoch's batches: 32 hexadecimal digits */
    /* Size GPU memory by the largest batch, not by the mean. All in padded tokens: */
    uint32_t largest_batch_rank; /* of the largest batch; of equal ones, of the first step's, */
    uint64_t largest_batch_step; /* and there of the lowest rank's */
    uint64_t smallest_batch;
    uint64_t median_batch;           /* at least half of the batches have no more */
    uint64_t p95_batch;              /* at least 95 % of the batches have no more */
    uint64_t least_largest_of_ranks; /* each rank has a largest batch: the least of these */
    uint64_t least_largest_of_steps; /* each step has a largest batch: the least of these */
    uint64_t bins;                   /* pack, else 0 */
    double fill;                     /* pack: tokens / (bins * capacity), else 0 */
    double token_balance;            /* as balance, of the sums of lengths */
    double lost; /* share of all ranks' time spent waiting for the costliest rank of each optimizer
                  * step, if time is proportional to cost */
    uint32_t length_multiple; /* lengths are rounded up to this: the collator's to_multiple */
    uint32_t cut;             /* too_long "truncate": longer samples count as this long: the
                               * collator's max_length; else 0 */
    uint64_t pieces;          /* of samples, those that are pieces */
    uint64_t skipped;         /* skipped steps; no other figure counts them or their samples */
    uint64_t absent;          /* of `samples`, those that nobody can deliver: of lost shards, or in
                               * quarantine. Batches come without them */
    uint64_t left_out;        /* of `steps`, those with fewer samples that are there than ranks */
} rks_plan_report;
/* Fills the report of an epoch. Set struct_size first. In a resumed epoch it covers the rest, and
 * steps count from there. It takes 8 bytes a batch while it runs. RKS_ERR_DATA if all steps are
 * skipped. */
RKS_API rks_status rks_plan_report_get(rks_plan *plan, uint64_t epoch, rks_plan_report *report,
                                       rks_error *err);

/* Returns the bounds of an epoch's neighbourhoods: for each its greatest length, ascending, without
 * repeats. Only strategy bucket has any; for others *count is 0. The lengths of a batch, as
 * truncated, are between two neighbouring bounds, both included. Samples that are alone in a batch
 * have no bound. Free *bounds (NULL if *count is 0) with rks_release. */
RKS_API rks_status rks_plan_bounds(rks_plan *plan, uint64_t epoch, uint32_t **bounds, size_t *count,
                                   rks_error *err);

/* An earlier generation of a dataset that has grown. */
typedef struct rks_generation {
    uint64_t number;  /* from 1 */
    uint64_t samples; /* those with ids below it */
    char dataset[40]; /* its id: 32 hexadecimal digits and a NUL */
} rks_generation;

/* Names the earlier generations of the plan's dataset, for rks_plan_resume. The list is
 * copied. rks_plan_open does it for a store of one dataset. */
RKS_API rks_status rks_plan_know_earlier(rks_plan *plan, const rks_generation *earlier,
                                         size_t count, rks_error *err);

/* A job's position in an epoch: equal on all ranks, at most RKS_STATE_MAX bytes of JSON. */
enum { RKS_STATE_MAX = 8192 };
/* Writes the plan's state before step `step` of `epoch` as JSON into `text`. `step` may be the
 * number of steps: then the epoch is over. RKS_ERR_STATE after dozens of changes of world in one
 * epoch. */
RKS_API rks_status rks_plan_state(rks_plan *plan, uint64_t epoch, uint64_t step, char *text,
                                  size_t text_size, rks_error *err);
/* Resumes a state, also one of another number of ranks. The plan then holds the rest of the state's
 * epoch, and whole other epochs. *epoch and *step say where to go on. With the same world they are
 * as saved. With another world *step is 0: the rest is spread over the new ranks, or, if nothing
 * was left, it is the next epoch. RKS_ERR_STATE names what differs (planner version, dataset,
 * samples, lengths, options, seed). RKS_ERR_DATA if the rest cannot be made even for these ranks
 * (fewer samples than ranks). On failure the plan is unchanged.
 *
 * A state of an earlier generation (rks_plan_know_earlier) goes on if it is at the end of an epoch,
 * or at the beginning of one: the epoch that comes next is whole, of the larger dataset. Within an
 * epoch it is RKS_ERR_STATE, which names the generation to open. */
RKS_API rks_status rks_plan_resume(rks_plan *plan, const char *state, uint64_t *epoch,
                                   uint64_t *step, rks_error *err);

#ifdef __cplusplus
}
#endif

#endif
