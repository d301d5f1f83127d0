/* SPDX-License-Identifier: Apache-2.0
 *
 * input.h: how a build and a reader look at an input, each rank at a part of it. */
#ifndef RKS_BUILDER_INPUT_H
#define RKS_BUILDER_INPUT_H

#include "dataset/dataset.h"
#include "group/agreement.h"
#include "ingest/unit.h"
#include "rankstore/build.h"

/* Returns the options that ingest needs. Strings, lists and callbacks are borrowed. */
rks_ingest_options rks_build_ingest_options(const rks_build_options *options);

/* Opens the input and sets the options that follow from it. Its digest (rks_input_digest) must be
 * the same on all ranks. The caller owns *input, also after a failure if it is not NULL. */
rks_status rks_input_look(const char *const *sources, size_t count, rks_build_options *options,
                          rks_input **input, rks_error *err);

/* COLLECTIVE, if a source is in a store and options->listing is NULL, which must be so on all ranks
 * or on none. Rank 0 asks the stores, and all set options->listing to what it found. `status` is
 * this rank's own. Free *listing with rks_free, also after a failure. */
rks_status rks_input_list(rks_group *group, rks_status status, const char *const *sources,
                          size_t count, rks_build_options *options, char **listing, rks_error *err);

/* Sets the key that the input has by default, if the schema has that column. `given`: options->key
 * before rks_input_look. */
void rks_input_key(const rks_input *input, const char *given, const rks_schema *schema,
                   rks_build_options *options);

/* Infers the schema from the first rows of this rank's share of the units. Free with rks_free.
 * *schema_text stays NULL if there is no row. */
rks_status rks_input_infer(const rks_group *group, const rks_input *input, char **schema_text,
                           rks_error *err);
/* Returns the schema of the build: with the column for fields that it lacks, if the option `extra`
 * asks for it. */
rks_status rks_input_schema(const rks_build_options *options, const char *text, rks_schema **schema,
                            rks_error *err);
/* Makes the fact with what this rank has inferred, for rks_input_join. */
rks_fact rks_input_inferred(const rks_group *group, const char *schema_text);
/* Joins what all ranks have inferred (rks_input_inferred is fact `fact`). Free with rks_free.
 * RKS_ERR_DATA if there is no row at all. */
rks_status rks_input_join(const rks_input *input, const rks_agreed *agreed, size_t fact,
                          char **schema_text, rks_error *err);

/* Which rows to count, and by whom. */
typedef struct rks_counting {
    const uint64_t *known;  /* rows of a unit, or UINT64_MAX; NULL: all unknown */
    const uint32_t *owners; /* by unit: the rank that will read it, and counts it; UINT32_MAX: none;
                             * NULL: not known. The same on all ranks */
    bool is_needed; /* the same on all ranks. false: no rows have to be counted, no agreement is
                     * made, and the status is this rank's own */
} rks_counting;

/* COLLECTIVE. Finds for each unit which row of its file it begins with. Free with rks_free. A rank
 * that failed before brings its status. */
rks_status rks_input_first_rows(rks_group *group, rks_status status, const rks_input *input,
                                const rks_counting *counting, uint64_t **first_rows,
                                rks_error *err);
/* Returns true if the next unit is of the same file: it begins where this one's rows end. */
bool rks_input_goes_on(const rks_input *input, size_t unit);
/* Returns true if some unit begins inside a file. The same on all ranks, whatever each knows of
 * finished units. */
bool rks_input_begins_inside(const rks_input *input);

/* For rks_key_words: writes where a row of a dataset comes from that is made of the rks_input
 * `input`, or of what it is added to. */
void rks_input_describe_row(void *input, const rks_dataset *dataset, size_t at, uint64_t row,
                            char *text, size_t room);

#endif
