/* SPDX-License-Identifier: Apache-2.0
 *
 * reading_state.h: what a rank knows of its own readers and of those of others; guarded by the
 * group's mutex. */
#ifndef RKS_GROUP_READING_STATE_H
#define RKS_GROUP_READING_STATE_H

#include "group/group_state.h"

enum {
    READERS = 128, /* some are gone: the last ones of their plans */
    PLANS = 64,
    TRACKS = 64,  /* at rank 0 */
    WINDOW = 16,  /* entries that rank 0 keeps of a track */
    CHANGES = 16, /* calls that are under way */
    CALL_SIZE = 16,
    READING_SIZE = 48,
    CHANGE_SIZE = READING_SIZE + CALL_SIZE,
    DOUBTS = 8,
    LOOK_MS = 1000,
};
static const uint32_t NO_TRACK = UINT32_MAX, LEFT_TRACK = UINT32_MAX - 1; /* not tracks */

typedef struct reader {
    rks_reading last; /* the last batch; reader 0: the entry is free */
    bool open, gone;
    bool given_two;          /* batches of this epoch, in this iteration; or all */
    uint64_t given_ms;       /* when the last batch was given */
    uint32_t track;          /* LEFT_TRACK: it is not compared */
    uint64_t count;          /* entries of the track */
    uint64_t epoch, changes; /* of its last entry */
} reader;

typedef struct plan_here {
    uint64_t plan;
    uint32_t tracks;
    reader *newest; /* of the track with the highest number, or NULL */
} plan_here;

/* An entry of a track, as a rank reports it. */
typedef struct entry {
    uint32_t rank, number;
    uint64_t plan, changes, epoch, place;
    bool answers;
} entry;

/* At rank 0: what the ranks that are furthest have read. */
typedef struct track {
    uint64_t plan, count; /* count 0: the track is free */
    uint32_t number;
    bool doubted, answered, ignored;
    uint64_t doubt;        /* the place that is doubted */
    entry answer;          /* the first one */
    entry entries[WINDOW]; /* entry i is at i % WINDOW */
} track;

typedef struct change {
    rks_reading place;
    uint64_t repeated;
    uint32_t rank, track;
    char call[CALL_SIZE]; /* empty: the entry is free */
} change;

typedef struct readings {
    reader readers[READERS];
    plan_here plans[PLANS];
    uint32_t plan_count;
    track tracks[TRACKS];
    entry doubts[DOUBTS]; /* that rank 0 asks about */
    uint64_t doubt_count;
    uint64_t track_count; /* that were ever begun: a new one replaces the oldest */
    change changes[CHANGES];
    uint64_t change_count;
    uint64_t repeated_ms; /* when this rank last sent its change */
} readings;

/* reading.c: lets rank 0 fail the group with an error of this rank's finding that names `rank`. */
void rks_reading_fail(rks_group *group, const rks_error *err, uint32_t rank);
/* reading_change.c: returns false with an error if a reader has passed the place of a change that
 * this rank does not make. The mutex must be held. */
bool rks_reading_check(const rks_group *group, const reader *r, rks_error *err);

#endif
