/* SPDX-License-Identifier: Apache-2.0
 *
 * json_rows.h: what JSON lines and JSON arrays have in common: each row is one JSON object. */
#ifndef RKS_INGEST_JSON_ROWS_H
#define RKS_INGEST_JSON_ROWS_H

#include "ingest/schema_inference.h"
#include "ingest/job.h"
#include "ingest/lines.h"

/* Start with {.input = ...}. */
typedef struct rks_json_looking {
    const rks_input *input;
    rks_guesses all;
    rks_json_parser parser;
} rks_json_looking;

void rks_json_looking_free(rks_json_looking *looking);
/* Adds a row to a schema that is inferred; sets *counts if it is a sample. With skip_bad, skips a
 * malformed row. The error does not name the place. */
rks_status rks_json_look(rks_json_looking *looking, const rks_line *line, uint64_t row,
                         bool *counts, rks_error *err);
/* Prints the schema of `samples` rows; *schema_text stays NULL if there are none. `path` names the
 * file in the error. */
rks_status rks_json_looked(rks_json_looking *looking, uint64_t samples, const char *path,
                           char **schema_text, rks_error *err);

/* Makes the row parser of a job. */
rks_status rks_json_row_create(const rks_job *job, rks_row **row, rks_error *err);
/* Offers a line to the job. If it does not fit an inferred schema, the error contains the schema
 * that it would fit. */
rks_status rks_json_take(rks_job *job, rks_row *row, const rks_line *line, rks_error *err);

#endif
