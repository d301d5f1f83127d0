/* SPDX-License-Identifier: Apache-2.0
 *
 * mix.h: how many times each sample occurs in an epoch (the option `mix`).
 *
 *   weights, sizes of sources, N ──► quotas: draws of each source          (quota.c)
 *   quotas, seed, epoch          ──► left: how often each sample is drawn   (mix.c)
 *   left                         ──► base: ids, each as often as it is drawn
 *                                                                  (mix_base.c, sequence.c)
 *   base                         ──► batches, as in any plan; then the steps get an order in which
 *                                    the sources are even                   (interleave.c)
 *
 * In a resumed epoch, `left` counts the draws that remain, and `drawn` those that were delivered.
 *
 * A sample in pieces (sample_pieces.c) is drawn whole. Each draw of it is a draw of each of its
 * pieces, which are planned and delivered on their own (mix_pieces.c). */
#ifndef RKS_PLAN_MIX_MIX_H
#define RKS_PLAN_MIX_MIX_H

#include "plan/epoch.h"
#include "rankstore/mix.h"

struct json_t;

enum { RKS_MIX_NONE = UINT16_MAX };

/* The option, checked; it does not change. */
typedef struct rks_mix {
    size_t sources;
    char **names;
    uint64_t *bounds;    /* sources + 1 entries; or NULL, and source_of is set */
    uint16_t *blocks;    /* with bounds: the source of the first sample of each block of ids */
    unsigned block_bits; /* a block has 2^block_bits ids */
    const uint16_t *source_of; /* borrowed, or NULL */
    const uint32_t *counts;    /* borrowed, or NULL */
    const double *odds;        /* borrowed, or NULL */
    bool tokens;
    char digest[17];      /* digest of the options */
    uint64_t draws;       /* draws of a whole epoch */
    uint64_t *sizes;      /* samples of each source that can be drawn */
    uint64_t *token_sums; /* sum of their lengths, after truncation */
    rks_mix_force first;  /* in force from the start */

} rks_mix;

/* The draws of an epoch while it is made. */
typedef struct rks_mix_draws {
    uint64_t *quotas; /* draws of each source: image->quotas */
    uint64_t *levels; /* the least times that each of its samples is drawn in the epoch */
    uint64_t *extras; /* how many of its samples are drawn once more */
    uint32_t *left;   /* of each sample and piece: draws that remain; NULL if `listed` */
    bool listed;      /* the draws are listed without `left` (sequence.c) */
    uint64_t key;     /* key that decides which samples are drawn once more */
    uint32_t *drawn;  /* of each sample and piece: draws delivered; NULL: none */
    uint64_t rest;    /* sum of `left` */
    uint64_t whole;   /* `rest` at the beginning of the epoch */
} rks_mix_draws;

/* Returns the source of a sample. Ask for ids in ascending order; *at is 0 at first. */
static inline size_t rks_mix_next_source(const rks_mix *mix, uint32_t id, size_t *at)
{
    if (mix->source_of != NULL)
        return mix->source_of[id];
    while (id >= mix->bounds[*at + 1])
        ++*at;
    return *at;
}

/* Returns the source of a sample. Ask for ids in any order. */
static inline size_t rks_mix_source(const rks_mix *mix, uint32_t id)
{
    if (mix->source_of != NULL)
        return mix->source_of[id];
    size_t low = mix->blocks[id >> mix->block_bits];
    size_t high = mix->blocks[(id >> mix->block_bits) + 1]; /* mostly equal to `low` */
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
/* Converts weights to fixed-point numbers; the largest one has 48 bits. `what` names the option in
 * errors. RKS_ERR_ARGUMENT for a wrong weight, or for a weight of a source without samples. */
rks_status rks_mix_weights_read(const rks_mix *mix, const double *weights, const char *what,
                                uint64_t *fixed, rks_error *err);
/* Divides `draws` draws over the sources. If weights is NULL, in proportion to sizes.
 * RKS_ERR_ARGUMENT if tokens are weighted and a source has only samples of length 0. */
rks_status rks_mix_quotas(const rks_mix *mix, const uint64_t *weights, const uint64_t *sizes,
                          const uint64_t *token_sums, uint64_t draws, uint64_t *quotas,
                          rks_error *err);
/* Finds the fewest draws with which every sample of a source that has a weight occurs.
 * RKS_ERR_ARGUMENT if they are 2^32 or more. */
rks_status rks_mix_fewest(const rks_mix *mix, uint64_t *draws, rks_error *err);

/* mix.c */
/* Makes a mix from the options, and sets in->mix to it. in->lengths and config must be set. The
 * caller frees *mix with rks_mix_free, also after a failure. */
rks_status rks_mix_create(rks_plan_input *in, const rks_plan_mix *options, rks_mix **mix,
                          rks_error *err);
void rks_mix_free(rks_mix *mix);
/* Begins the draws of an epoch, with the quotas of its image. The caller ends them with
 * rks_mix_draws_end, also after a failure. */
rks_status rks_mix_draws_begin(const rks_plan_input *in, rks_epoch_image *image,
                               rks_mix_draws *draws, rks_error *err);
void rks_mix_draws_end(const rks_plan_input *in, rks_mix_draws *draws);
/* Frees `left` and `drawn`, once nothing is chosen any more. */
void rks_mix_draws_forget(const rks_plan_input *in, rks_mix_draws *draws);
/* Chooses the `count` draws that remain of an epoch: fills left, quotas and levels. `key` decides
 * which samples occur once more. `once`: nothing else is chosen in this epoch, so `left` is not
 * made if the draws can be listed without it. */
rks_status rks_mix_choose(const rks_plan_input *in, rks_mix_draws *draws,
                          const rks_mix_force *force, uint64_t count, uint64_t key, bool once,
                          rks_error *err);
/* Returns true if an epoch may draw sample `id`: it is present, at most `longest`, in a source and
 * not dropped. */
static inline bool rks_mix_can_draw(const rks_plan_input *in, uint32_t id, uint32_t longest)
{
    const rks_mix *mix = in->mix;
    uint32_t length = in->lengths[id];
    if (length == RKS_LENGTH_ABSENT || length > longest)
        return false;
    if (mix->source_of != NULL && mix->source_of[id] >= mix->sources) /* in no source */
        return false;
    return in->config.too_long != TOO_LONG_DROP || length <= in->config.limit;
}
/* Starts to count deliveries, for an epoch whose rest is planned later. */
rks_status rks_mix_begin_rest(const rks_plan_input *in, rks_mix_draws *draws, rks_error *err);
void rks_mix_strike(rks_mix_draws *draws, const uint32_t *ids, size_t count);
/* mix_base.c: writes the base into image->ids, which has room for draws->rest ids. */
rks_status rks_mix_fill(const rks_plan_input *in, const rks_mix_draws *draws,
                        rks_epoch_image *image, uint64_t key, rks_plan_base *base, rks_error *err);
/* mix_pieces.c */
/* Returns the number of samples and pieces: the length of `left` and `drawn`. */
uint64_t rks_mix_items(const rks_plan_input *in);
/* Returns the draws of samples of which no piece was delivered yet. A change can give these to
 * other samples. */
uint64_t rks_mix_unbegun(const rks_plan_input *in, const rks_mix_draws *draws);
/* Prepares pieces before draws are chosen. `left` of each piece becomes what it lacks of the draws
 * that were begun. `drawn` of each cut sample becomes the number of draws that were begun.
 * `is_new`: `left` is new, so it is set to 0 for all pieces. */
void rks_mix_join_pieces(const rks_plan_input *in, rks_mix_draws *draws, bool is_new);
/* Turns each draw of a cut sample into a draw of each of its pieces, after draws are chosen. Sets
 * draws->rest. RKS_ERR_UNSUPPORTED if that is 2^32 or more. */
rks_status rks_mix_part_pieces(const rks_plan_input *in, rks_mix_draws *draws, rks_error *err);
/* Writes the multiset in the order of lengths into image->ids, if samples are in pieces. */
rks_status rks_mix_fill_sorted_pieces(const rks_plan_input *in, const rks_mix_draws *draws,
                                      rks_epoch_image *image, rks_plan_base *base, rks_error *err);
/* Writes the draws of cut sample number `cut` to image->ids[*at], draw by draw. */
void rks_mix_copy_pieces(const rks_plan_input *in, const rks_mix_draws *draws,
                         rks_epoch_image *image, size_t cut, uint64_t *at);

/* Returns about how many batches all draws of an epoch make. */
uint64_t rks_mix_batches_like(const rks_plan_input *in, rks_error *err);

/* Counts the samples of each source that can be drawn and are at most `longest`, and their
 * lengths. */
rks_status rks_mix_sizes(const rks_plan_input *in, uint32_t longest, uint64_t *sizes,
                         uint64_t *token_sums, rks_error *err);

/* schedule.c */
/* Returns the number of a step, counted over all worlds. */
uint64_t rks_mix_number(const rks_epoch_progress *progress, uint64_t epoch, uint64_t step);
/* Returns what is in force at a step, and the next step at which that changes (UINT64_MAX: none in
 * this epoch). */
const rks_mix_force *rks_mix_force_at(const rks_mix *mix, const rks_mix_schedule *schedule,
                                      uint64_t epoch, uint64_t step);
uint64_t rks_mix_next_change(const rks_mix_schedule *schedule, uint64_t epoch, uint64_t step);
/* Returns true if one step comes before another. */
bool rks_mix_is_before(uint64_t epoch, uint64_t step, uint64_t other_epoch, uint64_t other_step);
/* Checks that every source with a weight has samples that may be drawn. */
rks_status rks_mix_check_force(const rks_plan_input *in, const rks_mix_force *force,
                               rks_error *err);
/* Writes the changes as JSON entries. Returns their size, which may be above `room`. */
size_t rks_mix_write_changes(const rks_mix *mix, const rks_mix_schedule *schedule, char *text,
                             size_t room);
/* Reads and checks the changes of a state; `ours` are the plan's. On success the caller frees
 * `read` with rks_mix_free_changes. `list` may be NULL. RKS_ERR_STATE if the list is malformed, or
 * lacks a change of the plan. */
rks_status rks_mix_read_changes(const rks_plan_input *in, const rks_mix_schedule *ours,
                                const struct json_t *list, rks_mix_schedule *read, rks_error *err);
void rks_mix_free_changes(rks_mix_schedule *schedule);

/* sequence.c: fills image->ids in the order of draws, with the sources even, for strategies
 * that keep that order. */
rks_status rks_mix_sequence(const rks_plan_input *in, const rks_mix_draws *draws,
                            rks_epoch_image *image, uint64_t key, rks_error *err);

/* source_merge.c: merges the lists of sources into `merged`. After any number of entries each list
 * has had its share of them, give or take one, or two if it has fewer than one of 4,096 entries. */
typedef struct rks_mix_list {
    const uint32_t *ids;
    uint64_t count;
} rks_mix_list;

rks_status rks_mix_merge(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                         rks_error *err);
/* Merges without the step for rarer lists: their entries come early and together. */
rks_status rks_mix_merge_all(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                             rks_error *err);
/* The two ways to merge, with the same result. *merges is false if blocks cannot do it; then write
 * all of `merged` anew. */
rks_status rks_mix_merge_turns(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                               rks_error *err);
rks_status rks_mix_merge_blocks(const rks_mix_list *lists, size_t sources, uint32_t *merged,
                                bool *merges, rks_error *err);

/* interleave.c: puts the steps, runs of `row` slots, in an order in which the sources are even.
 *
 * Let off(n) be how many of the first n steps' draws are of a source, less its share of them. In a
 * window of steps from n to m with D draws, the source deviates by |off(m) - off(n)| / D.
 *
 * Bound: |off(m) - off(n)| is at most the sum of the m - n largest offs of single steps, since the
 * window consists of that many steps, whatever their order. Each step is chosen for the least sum
 * of squares of off(n) over the sources. That looks one step ahead, so no tighter bound is proven.
 * Measured, 485 plans of three sources of like lengths: the most that any window is off is on
 * average 0.47 of the standard deviation of a window if steps come in random order, and 2.5 of it
 * in such an order. A single step can make a window uneven: a bin of 60 short samples of one
 * source is 2 points of 100 steps of 20 draws.
 */
rks_status rks_mix_interleave(const rks_plan_input *in, rks_epoch_image *image, uint64_t row,
                              rks_error *err);
/* Fills image->slots for a base that keeps its order: near batches of like cost share a step.
 */
rks_status rks_mix_arrange(const rks_plan_input *in, rks_epoch_image *image,
                           const rks_epoch_task *task, rks_error *err);
/* Fills an entry for each source. */
rks_status rks_mix_report(rks_plan *plan, uint64_t epoch, rks_plan_source *list, rks_error *err);

#endif
