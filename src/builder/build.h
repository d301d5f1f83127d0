/* SPDX-License-Identifier: Apache-2.0
 *
 * build.h: what building from files and building from memory share. */
#ifndef RKS_BUILDER_BUILD_H
#define RKS_BUILDER_BUILD_H

#include "base/checksum.h"
#include "dataset/dataset.h"
#include "dataset/key_words.h"
#include "group/group.h"
#include "rankstore/build.h"

/* The caller's options over the defaults, checked. `given` may be NULL. */
rks_status rks_build_options_take(const rks_build_options *given, rks_build_options *options,
                                  rks_error *err);
/* What of the options decides, behind the shards, which samples count. */
typedef struct rks_selection {
    double sample_rate;
    uint64_t seed;
    uint64_t sample;
    bool dedup;
    const char *key; /* column that is no content; NULL: none */
} rks_selection;
rks_selection rks_build_selection(const rks_build_options *options);

/* The options that decide the result, as JSON for dataset.json and the build id. rks_free. */
rks_status rks_build_options_text(const rks_build_options *options, char **text, rks_error *err);
/* Over everything that decides the result. */
rks_status rks_build_id(const char *what, rks_digest input, const rks_schema *schema,
                        const char *options_text, rks_digest *id, rks_error *err);
/* COLLECTIVE. RKS_ERR_ARGUMENT where the digests of the input differ, naming two ranks and `what`
 * it is ("the list of input files"). */
rks_status rks_build_agree_input(rks_group *group, rks_status status, const char *what,
                                 const rks_digest *id, rks_error *err);
/* COLLECTIVE. RKS_ERR_ARGUMENT where schemas or options differ, naming the option and two ranks.
 * Both are looked at only where the status is RKS_OK. */
rks_status rks_build_agree_options(rks_group *group, rks_status status, const rks_schema *schema,
                                   const char *options_text, rks_error *err);

uint32_t rks_builder_columns(const rks_builder *builder);
void rks_builder_describe_keys(rks_builder *builder, const rks_key_words *words);

#endif
