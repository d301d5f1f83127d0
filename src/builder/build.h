/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: the options of a build and what follows from them. */
#ifndef RKS_BUILDER_BUILD_H
#define RKS_BUILDER_BUILD_H

#include <jansson.h>

#include "base/checksum.h"
#include "dataset/dataset.h"
#include "group/agreement.h"
#include "rankstore/build.h"

/* Completes the caller's options with the defaults, and checks them. `given` may be NULL. */
rks_status rks_build_options_take(const rks_build_options *given, rks_build_options *options,
                                  rks_error *err);
/* The options that decide, after the shards are written, which samples count. */
typedef struct rks_selection {
    double sample_rate;
    uint64_t seed;
    uint64_t sample;
    bool dedup;
    const char *key; /* column that does not count as content; NULL: none */
} rks_selection;
rks_selection rks_build_selection(const rks_build_options *options);

/* Threads of a rank: the option, else the node's cores divided by its ranks, at most
 * RKS_BUILD_THREADS, since one thread writes to LMDB what the others read. */
enum { RKS_BUILD_THREADS = 4, RKS_BUILD_THREADS_MOST = 64 };
uint32_t rks_build_threads(const rks_group *group, const rks_build_options *options);

/* Returns the `length` to record if none is given: that of rks_schema_length. NULL if a length is
 * given, or if that is no column. Lives as long as the schema. */
const char *rks_build_default_length(const rks_schema *schema, const rks_build_options *options);
/* Writes the options that decide the result, as JSON for dataset.json and the build id. Free with
 * rks_free. */
rks_status rks_build_options_text(const rks_build_options *options, char **text, rks_error *err);
/* Reads the rules of `counts` that such a text has. They belong to `recorded`. Free *rules with
 * rks_free, also after a failure. */
rks_status rks_recorded_counts(const json_t *recorded, const char ***rules, size_t *count,
                               rks_error *err);
/* Computes the build id from everything that decides the result. */
rks_status rks_build_id(const char *what, rks_digest input, const rks_schema *schema,
                        const char *options_text, rks_digest *id, rks_error *err);
/* The values that must be the same on all ranks: the digest of `what` ("the list of input files"),
 * the schema (NULL: to be inferred), options. All are borrowed. */
enum { RKS_BUILD_SAME = 7 };
void rks_build_same(rks_fact facts[RKS_BUILD_SAME], const char *what, const rks_digest *input,
                    const rks_schema *schema, const rks_build_options *options,
                    const char *options_text);

/* Reports what the user may not have meant: columns of an inferred schema that are objects or
 * lists, and, with `flatten`, columns that were made from objects. */
void rks_build_report_columns(const rks_schema *schema, bool flatten, rks_build_report *report);

#endif
