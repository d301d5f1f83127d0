/* SPDX-License-Identifier: Apache-2.0
 *
 * resume_state.h: what interrupted builds left in a directory. A build that finds its own work
 * there continues with the unit size and the inferred schema of that work. Otherwise its units, and
 * so its sample ids and dataset id, could differ.
 *
 * Work is a build's own if its build id follows from today's input and options, cut by the recorded
 * unit size. Only the id decides; work of other builds is ignored. */
#ifndef RKS_BUILDER_RESUME_STATE_H
#define RKS_BUILDER_RESUME_STATE_H

#include "builder/build.h"
#include "group/agreement.h"
#include "ingest/unit.h"
#include "shard/manifest.h"

/* The most bytes of a rank's list: its dataset and 16 builds, each with a schema that a manifest
 * can hold. */
#define RKS_RESUME_MAX (17 * (uint64_t)(28 + RKS_MANIFEST_MAX))

/* Adds what a directory holds to a list that all ranks can read: its dataset and, unless `replace`
 * is set, its unfinished parts (a replacing build takes over none). Damaged or missing things are
 * left out. RKS_ERR_UNSUPPORTED if another version of the library began a part. */
rks_status rks_resume_collect(const char *directory, bool replace, rks_buffer *list,
                              rks_error *err);

/* After the agreement in which the ranks' lists were fact `fact`: makes *list the list of all of
 * them. */
rks_status rks_resume_join(const rks_group *group, const rks_agreed *agreed, size_t fact,
                           rks_buffer *list, rks_error *err);

/* What a build looks for. */
typedef struct rks_resume_request {
    rks_input *input;
    uint64_t unit_size; /* as the user set it; 0: not set */
    const rks_schema *schema;
    bool schema_given; /* by the user, or by the dataset that is appended to; else it is inferred */
    const char *options_text;
} rks_resume_request;

/* Looks for the build's own work in the lists of all ranks. *schema becomes NULL if there is none.
 * Otherwise the input is cut as it was then, and *schema becomes its schema (free with
 * rks_schema_free). */
rks_status rks_resume_find(const rks_resume_request *request, const rks_buffer *lists,
                           rks_schema **schema, rks_error *err);

/* Returns the unit size for an input that is added to a dataset with unit size `unit_size` (0:
 * samples from memory; then 64 MiB): the same, or the default if that one would make more than
 * 4,096 units of it. */
uint64_t rks_resume_append_size(uint64_t unit_size, uint64_t bytes);

#endif
