/* SPDX-License-Identifier: Apache-2.0
 *
 * guess.h: columns as they come to be known, row by row: the inside of a format's `infer`. */
#ifndef RKS_INGEST_GUESS_H
#define RKS_INGEST_GUESS_H

#include <jansson.h>

#include "codec/json.h"
#include "ingest/ingest.h"

typedef struct rks_guess rks_guess;

/* Begins as {0}. */
typedef struct rks_guesses {
    rks_guess *items;
    size_t count;
    size_t room;
    json_t *places; /* name to position */
    bool flatten;         /* objects in a row make columns "outer.inner" */
    const char *rows_are; /* for messages; NULL: "lines" */
} rks_guesses;

/* A row as an object of its columns. RKS_ERR_DATA names a column whose types do not go together. */
rks_status rks_guesses_add(rks_guesses *all, rks_json object, uint64_t row, rks_error *err);
/* One column of a row by its value. */
rks_status rks_guesses_add_value(rks_guesses *all, const char *name, rks_json value, uint64_t row,
                                 rks_error *err);
/* One column of a row by its type, as a schema has it: "float32[*,3]". */
rks_status rks_guesses_add_type(rks_guesses *all, const char *name, const char *type, uint64_t row,
                                rks_error *err);
/* The schema's canonical text (rks_free) of `samples` rows; needs a column. */
rks_status rks_guesses_text(rks_guesses *all, uint64_t samples, char **text, rks_error *err);
void rks_guesses_free(rks_guesses *all);

#endif
