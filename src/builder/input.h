/* SPDX-License-Identifier: Apache-2.0
 *
 * input.h: what a build and a reader ask of an input, each rank a part of it. */
#ifndef RKS_BUILDER_INPUT_H
#define RKS_BUILDER_INPUT_H

#include "group/group.h"
#include "ingest/unit.h"
#include "rankstore/build.h"

/* What of the options ingest asks for; strings, lists and callbacks are borrowed. */
rks_ingest_options rks_build_ingest_options(const rks_build_options *options);

/* COLLECTIVE. Opens the input, the same on all ranks, and sets the options as it makes them. The
 * caller owns *input, also after a failure where it is not NULL. */
rks_status rks_input_look(rks_group *group, const char *const *sources, size_t count,
                          rks_build_options *options, rks_input **input, rks_error *err);

/* COLLECTIVE. A schema of all units' first rows; rks_free. RKS_ERR_DATA where there is no row. */
rks_status rks_input_infer(rks_group *group, const rks_input *input, char **schema_text,
                           rks_error *err);

/* COLLECTIVE. For each unit the row of its file that it begins with; rks_free. `known`: rows of a
 * unit, or UINT64_MAX; NULL: of none. A rank that failed before brings its status. */
rks_status rks_input_first_rows(rks_group *group, rks_status status, const rks_input *input,
                                const uint64_t *known, uint64_t **first_rows, rks_error *err);

#endif
