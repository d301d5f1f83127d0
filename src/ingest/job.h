/* SPDX-License-Identifier: Apache-2.0
 *
 * job.h: the job of reading one unit; a format passes its rows to it.
 *
 * For each row, in order, the format calls rks_job_is_sampled(). If that is true, it calls
 * rks_job_emit() with the row's values, unless it failed itself. Then it calls rks_job_row() with
 * the outcome. A row without a sample (a blank line) is a row without an offer. */
#ifndef RKS_INGEST_JOB_H
#define RKS_INGEST_JOB_H

#include "ingest/ingest.h"
#include "ingest/row.h"
#include "ingest/file_walk.h"
#include "shard/unit_digest.h"

enum { RKS_JOB_TICK = 1 << 20 }; /* bytes */

typedef struct rks_job {
    const rks_input *input;
    const rks_input_unit *unit;
    const rks_schema *schema; /* of the rows: without counts */
    rks_schema_from schema_from;
    const rks_ingest_options *options;
    rks_selector *selector;
    rks_unit_writer *writer; /* the target: a writer or */
    rks_unit_check *check;   /* a check or */
    rks_sink *sink;
    bool sink_failed; /* on the last sample */
    rks_buffer *bad_list;
    const rks_ingest_progress *progress;
    bool skip_bad;
    uint64_t max_sample;
    uint64_t draw_limit;         /* see row_sampling.h */
    const rks_ingest_turn *turn; /* NULL during the job's turn */
    uint64_t held;               /* bytes of samples that wait for it, of stored inputs */
    uint64_t first_row;          /* of the unit, in its file; unknown before the turn */
    uint64_t rows;               /* seen so far: the current row's number in the unit */
    uint64_t kept;
    uint64_t filtered;
    uint64_t bad;
    uint64_t ticked; /* bytes at the last tick */
} rks_job;

/* A row's place for messages: "path:LINE", "path: item 7", "path: member", or "path". */
typedef struct rks_place {
    const char *path;
    bool line;          /* show the row's number in its file, counted from 1, as a line */
    const char *called; /* what a row is called if its number counts from 0; NULL: not shown */
    const char *member; /* a member of the file; NULL if none */
} rks_place;

/* Waits until all units before have ended. From then on it is the job's turn, and the current row's
 * number is known. A failure ends the unit. */
rks_status rks_job_wait_turn(rks_job *job, rks_error *err);

/* What each row needs is inline for its common case. */

bool rks_job_draws(rks_job *job);
rks_status rks_job_finish_row(rks_job *job, const rks_place *place, rks_status status,
                              rks_error *err);
rks_status rks_job_report(rks_job *job, uint64_t bytes, rks_error *err);

/* Returns true if sample_rate takes the current row. Call it once a row. A row that is not taken
 * counts as filtered; end it with rks_job_row(RKS_OK). */
static inline bool rks_job_is_sampled(rks_job *job)
{
    return job->draw_limit == 0 || rks_job_draws(job);
}

/* Applies the selector to one sample and writes it. `values` has one entry a column. */
rks_status rks_job_emit(rks_job *job, const rks_value *values, rks_error *err);
/* Does the same with a key of the row's own (NULL: none), which counts if no column holds the key.
 */
rks_status rks_job_emit_keyed(rks_job *job, const rks_value *values, const void *key,
                              size_t key_size, rks_error *err);
/* Ends the row, whose outcome is `status` with *err. With skip_bad a malformed one (RKS_ERR_DATA)
 * is listed and skipped. Otherwise the row's place is put before the error, which ends the unit. */
static inline rks_status rks_job_row(rks_job *job, const rks_place *place, rks_status status,
                                     rks_error *err)
{
    if (status != RKS_OK || job->rows == UINT32_MAX)
        return rks_job_finish_row(job, place, status, err);
    job->rows++;
    return RKS_OK;
}

/* Adds a line to those about what was skipped, if there is room. The unit must have its turn. */
rks_status rks_job_list(rks_job *job, const char *line, rks_error *err);

/* Call it when `bytes` of the unit are read. Reports about every MiB; does not check for
 * interrupts. */
static inline rks_status rks_job_tick(rks_job *job, uint64_t bytes, rks_error *err)
{
    return bytes - job->ticked < RKS_JOB_TICK ? RKS_OK : rks_job_report(job, bytes, err);
}

/* Returns true if an input column that the schema lacks is an error. Otherwise the column is
 * dropped, or goes with the others into the column RKS_EXTRA_COLUMN. */
bool rks_job_refuses_extra(const rks_job *job);

/* Fails with RKS_ERR_DATA: a row of `size` bytes is above max_sample. */
rks_status rks_job_too_long(const rks_job *job, uint64_t size, rks_error *err);

#endif
