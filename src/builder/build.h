/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: what building from files and building from memory share. */
#ifndef RKS_BUILDER_BUILD_H
#define RKS_BUILDER_BUILD_H

#include "base/checksum.h"
#include "dataset/dataset.h"
#include "dataset/key_words.h"
#include "group/agreement.h"
#include "rankstore/build.h"

/* The caller's options over the defaults, checked. `given` may be NULL. */
rks_status rks_build_options_take(const rks_build_options *given, rks_build_options *options,
                                  rks_error *err);
/* What of the options decides, after the shards, which samples count. */
typedef struct rks_selection {
    double sample_rate;
    uint64_t seed;
    uint64_t sample;
    bool dedup;
    const char *key; /* column that is not content; NULL: none */
} rks_selection;
rks_selection rks_build_selection(const rks_build_options *options);

/* Threads of this rank: the option, else the node's cores shared by its ranks, RKS_BUILD_THREADS at
 * most, since one thread puts into LMDB what the others read. */
enum { RKS_BUILD_THREADS = 4, RKS_BUILD_THREADS_MOST = 64 };
uint32_t rks_build_threads(const rks_group *group, const rks_build_options *options);

/* The `length` to record where none is given: the first column of variable size but "__key__", which
 * names a sample and measures nothing, else the first array of fixed size; never the key. NULL
 * if a length is given, if the schema has none of these, or if the column is the very first one of
 * variable size: that one is meant by no length, too. Lives as long as the schema. */
const char *rks_build_default_length(const rks_schema *schema, const rks_build_options *options);
/* The options that decide the result, as JSON for dataset.json and the build id. rks_free. */
rks_status rks_build_options_text(const rks_build_options *options, char **text, rks_error *err);
/* Over everything that decides the result. */
rks_status rks_build_id(const char *what, rks_digest input, const rks_schema *schema,
                        const char *options_text, rks_digest *id, rks_error *err);
/* What all ranks must give alike: `what` the digest is of ("the list of input files"), the schema
 * (NULL: to be inferred), options. All is borrowed. */
enum { RKS_BUILD_SAME = 6 };
void rks_build_same(rks_fact facts[RKS_BUILD_SAME], const char *what, const rks_digest *input,
                    const rks_schema *schema, const rks_build_options *options,
                    const char *options_text);

/* What the user may not have meant: columns of an inferred schema that are objects or lists, and, with
 * `flatten`, those that were made of objects. */
void rks_build_report_columns(const rks_schema *schema, bool flatten, rks_build_report *report);

/* COLLECTIVE. rks_builder_open, where `status` and *err are what became of this rank so far, as in
 * rks_group_agree; nothing else is looked at unless it is RKS_OK. */
rks_status rks_builder_begin(rks_group *group, rks_status status, const char *directory,
                             const rks_build_options *options, rks_builder **builder,
                             rks_error *err);
uint32_t rks_builder_columns(const rks_builder *builder);
void rks_builder_describe_keys(rks_builder *builder, const rks_key_words *words);

#endif
