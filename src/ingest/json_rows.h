/* SPDX-License-Identifier: Apache-2.0
 *
 * json_rows.h: what JSON lines and JSON arrays have in common: a row is one JSON object. */
#ifndef RKS_INGEST_JSON_ROWS_H
#define RKS_INGEST_JSON_ROWS_H

#include "ingest/guess.h"
#include "ingest/job.h"
#include "ingest/lines.h"

/* Begins as {.input = ...}. */
typedef struct rks_json_looking {
    const rks_input *input;
    rks_guesses all;
    rks_json_parser parser;
} rks_json_looking;

void rks_json_looking_free(rks_json_looking *looking);
/* A row that is looked at for a schema; *counts where it is a sample. What is malformed is passed
 * over with skip_bad. The error has no place. */
rks_status rks_json_look(rks_json_looking *looking, const rks_line *line, uint64_t row,
                         bool *counts, rks_error *err);
/* The schema of `samples` rows; *schema_text stays NULL where there are none. `path` names the file
 * in the error. */
rks_status rks_json_looked(rks_json_looking *looking, uint64_t samples, const char *path,
                           char **schema_text, rks_error *err);

/* The row of a job. */
rks_status rks_json_row_create(const rks_job *job, rks_row **row, rks_error *err);
/* Offers a line to the job; one that does not fit an inferred schema is an error that has the
 * schema which it would fit. */
rks_status rks_json_take(rks_job *job, rks_row *row, const rks_line *line, rks_error *err);

#endif
