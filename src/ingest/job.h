/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h: reading one unit: what a format hands its rows to.
 *
 * For each row, in order: rks_job_takes(), and where it does, rks_job_offer() with its values, or a
 * failure of the format's own; then rks_job_row() with what came of it. A row that holds no sample
 * (a blank line) is a row without an offer. */
#ifndef RKS_INGEST_JOB_H
#define RKS_INGEST_JOB_H

#include "ingest/ingest.h"
#include "ingest/row.h"
#include "ingest/walk.h"

enum { RKS_JOB_TICK = 1 << 20 }; /* bytes */

typedef struct rks_job {
    const rks_input *input;
    const rks_input_unit *unit;
    const rks_schema *schema;
    rks_schema_from schema_from;
    const rks_ingest_options *options;
    rks_selector *selector;
    rks_unit_writer *writer; /* or */
    const rks_ingest_taker *taker;
    bool taker_failed; /* with the last sample */
    rks_buffer *bad_list;
    const rks_ingest_progress *progress;
    bool skip_bad;
    uint64_t max_sample;
    uint64_t draw_limit; /* see draw.h */
    const rks_ingest_turn *turn; /* NULL: it is the job's */
    uint64_t first_row; /* in the file; unknown before the turn */
    uint64_t rows; /* seen so far; the row at hand has this number in the unit */
    uint64_t kept;
    uint64_t filtered;
    uint64_t bad;
    uint64_t ticked; /* bytes at the last tick */
} rks_job;

/* Where a row is, for messages: "path:LINE", "path: item 7", "path: member", or "path". */
typedef struct rks_place {
    const char *path;
    bool line;          /* the row's number in its file, counted from 1, is a line's */
    const char *called; /* what rows are called whose number counts from 0; NULL: nothing */
    const char *member; /* in the file; NULL: none */
} rks_place;

/* Waits until all units before have ended; from here on it is the job's turn, and the number of the
 * row at hand is known. A failure ends the unit. */
rks_status rks_job_take_turn(rks_job *job, rks_error *err);

/* What is asked for each row is inline, where it has nothing to do. */

bool rks_job_draws(rks_job *job);
rks_status rks_job_settle(rks_job *job, const rks_place *place, rks_status status, rks_error *err);
rks_status rks_job_report(rks_job *job, uint64_t bytes, rks_error *err);

/* Is the row at hand in the sample that is asked for? Asked once a row; one that is not counts as
 * filtered, and ends with rks_job_row(RKS_OK). */
static inline bool rks_job_takes(rks_job *job)
{
    return job->draw_limit == 0 || rks_job_draws(job);
}

/* One sample: chosen, measured, written. `values` has one entry a column. */
rks_status rks_job_offer(rks_job *job, const rks_value *values, rks_error *err);
/* Ends the row, which came out as `status` with *err: a malformed one (RKS_ERR_DATA) is listed and
 * passed over with skip_bad; else its place goes in front of the error, which ends the unit. */
static inline rks_status rks_job_row(rks_job *job, const rks_place *place, rks_status status,
                                     rks_error *err)
{
    if (status != RKS_OK || job->rows == UINT32_MAX)
        return rks_job_settle(job, place, status, err);
    job->rows++;
    return RKS_OK;
}

/* `bytes` of the unit are read. Reports about each MiB; notices nothing else. */
static inline rks_status rks_job_tick(rks_job *job, uint64_t bytes, rks_error *err)
{
    return bytes - job->ticked < RKS_JOB_TICK ? RKS_OK : rks_job_report(job, bytes, err);
}

/* A column of the input that the schema lacks is an error; else it is left out, or goes with the
 * others to the column RKS_EXTRA_COLUMN. */
bool rks_job_refuses_extra(const rks_job *job);

/* RKS_ERR_DATA: a row of `size` bytes is above max_sample. */
rks_status rks_job_too_long(const rks_job *job, uint64_t size, rks_error *err);

#endif
