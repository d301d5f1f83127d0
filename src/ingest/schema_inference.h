/* SPDX-License-Identifier: Apache-2.0
 *
 * schema_inference.h: guesses a schema row by row; formats' `infer` use it. */
#ifndef RKS_INGEST_SCHEMA_INFERENCE_H
#define RKS_INGEST_SCHEMA_INFERENCE_H

#include <jansson.h>

#include "codec/json.h"
#include "ingest/ingest.h"

typedef struct rks_guess rks_guess;

/* Start with {0}. */
typedef struct rks_guesses {
    rks_guess *items;
    size_t count;
    size_t room;
    json_t *places;       /* position of each name */
    bool flatten;         /* objects in a row become columns "outer.inner" */
    const char *rows_are; /* what messages call rows; NULL: "lines" */
} rks_guesses;

/* Adds a row, an object of its columns. RKS_ERR_DATA names a column whose types conflict. */
rks_status rks_guesses_add(rks_guesses *all, rks_json object, uint64_t row, rks_error *err);
/* Adds one column of a row by its value. */
rks_status rks_guesses_add_value(rks_guesses *all, const char *name, rks_json value, uint64_t row,
                                 rks_error *err);
/* Adds one column of a row by its type, as in a schema: "float32[*,3]". */
rks_status rks_guesses_add_type(rks_guesses *all, const char *name, const char *type, uint64_t row,
                                rks_error *err);
/* Prints the schema of `samples` rows as canonical text (rks_free). There must be a column. */
rks_status rks_guesses_text(rks_guesses *all, uint64_t samples, char **text, rks_error *err);
void rks_guesses_free(rks_guesses *all);

#endif
