/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch.h: an epoch: its image, what was done of it, and the function that makes it.
 *
 * rks_epoch_make is pure: the same input, progress, epoch and step give the same image. It takes no
 * lock, waits for nothing and does no I/O. */
#ifndef RKS_PLAN_EPOCH_H
#define RKS_PLAN_EPOCH_H

#include "plan/mix/schedule.h"
#include "plan/plan_input.h"

typedef struct rks_plan_segment {
    uint32_t world;
    uint64_t steps;
} rks_plan_segment;

/* Steps [first, end) of an epoch to skip, counted by the world that does segment number `segment`
 * of the epoch (skip_ranges.c). The ranges of a segment do not meet, and are in the order of steps.
 */
typedef struct rks_plan_skip_range {
    uint64_t epoch, segment, first, end;
} rks_plan_skip_range;

enum { RKS_PLAN_SEGMENTS_MAX = 64 };

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
    const rks_plan_layout *layout; /* in->whole, `part`, or one in the cache */
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
    /* Of a mix: the steps that the image holds, counted over all worlds; it is the last stretch of
     * the epoch if `is_last`. And how many draws were chosen of each source. */
    uint64_t begin, end;
    bool is_last;
    uint64_t *quotas;
    bool rest_over; /* of a resumed epoch: no step is left after its segments */

    struct rks_epoch_room *room; /* NULL: the image owns the memory of its ids */
} rks_epoch_image;

/* The keys of random numbers for the parts of an epoch. */
typedef struct rks_epoch_keys {
    uint64_t members; /* which ids share a batch */
    uint64_t places;  /* which batches share a step */
    uint64_t bins;
    uint64_t windows;
    uint64_t draws; /* of a mix */
} rks_epoch_keys;

/* What is known of an epoch's base while the epoch is made. It begins zeroed, and ends with
 * rks_plan_fill_forget. */
typedef struct rks_epoch_work {
    bool is_shuffled;       /* image->ids hold the shuffled base of epoch 0 */
    rks_plan_base shuffled; /* that base */
    /* Widths of the base's samples from place `first` on, in multiples of length_multiple, at least
     * 1. NULL if unknown. */
    uint32_t *widths;
    uint64_t first, count;
    bool exact; /* no length is 0 */
} rks_epoch_work;

/* What an epoch is cut for. */
typedef struct rks_epoch_task {
    uint32_t world;
    bool whole; /* a whole epoch of each sample once: all of these have the same number of steps */
    rks_epoch_keys keys;
    rks_epoch_work *work;
} rks_epoch_task;

/* What was done of epochs, what is to be skipped, and how a mix changes. A resume and a skip
 * are filters over an epoch's order. */
typedef struct rks_epoch_progress {
    /* A resumed epoch: the segments that earlier worlds did of it. */
    uint64_t resumed_epoch;
    rks_plan_segment done[RKS_PLAN_SEGMENTS_MAX];
    size_t done_count;
    uint64_t rest_steps;

    rks_plan_skip_range *skips; /* room for RKS_PLAN_SKIPS_MAX; NULL: none so far */
    size_t skip_count;

    rks_mix_schedule schedule; /* the changes of a mix */
} rks_epoch_progress;

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
/* Pack: sets *bounds to where the bins of that batch begin in image->ids. It has one entry
 * more than *bins. */
void rks_plan_bins_at(const rks_plan_input *in, const rks_epoch_image *image, uint64_t slot,
                      const uint32_t **bounds, size_t *bins);

/* epoch.c */
/* Fills in->whole. Fails, mostly with RKS_ERR_DATA, if no epoch can be planned. */
rks_status rks_plan_lay_out(rks_plan_input *in, rks_epoch_image *image, rks_error *err);
/* Makes the epoch for this rank alone, whatever is current or shared. */
rks_status rks_epoch_make(const rks_plan_input *in, const rks_epoch_progress *progress,
                          uint64_t epoch, uint64_t step, rks_epoch_image *image, rks_error *err);
/* skip_ranges.c */
/* Returns `step`, counted in its segment, or the end of the range that skips it. */
uint64_t rks_plan_unskipped(const rks_epoch_progress *progress, uint64_t epoch, uint64_t segment,
                            uint64_t step);
/* Finds the next skipped steps [*first, *end) in [step, steps). Returns false if there are none. */
bool rks_plan_next_skip(const rks_epoch_progress *progress, uint64_t epoch, uint64_t segment,
                        uint64_t step, uint64_t steps, uint64_t *first, uint64_t *end);
/* Returns the segment of an epoch that these ranks do. */
uint64_t rks_plan_segment_of(const rks_epoch_progress *progress, uint64_t epoch);
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

/* batch_spread.c: fills the batch sizes of a report from tokens[step * world + rank], the padded
 * tokens of each batch. Reorders `tokens`. There is at least one step. */
void rks_plan_spread(uint64_t *tokens, uint64_t steps, uint32_t world, rks_plan_report *report);

#endif
