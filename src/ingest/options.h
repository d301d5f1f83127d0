/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the build options that concern reading an input and selecting its samples. 0 and NULL
 * mean the default. The fields mean the same as in rks_build_options. */
#ifndef RKS_INGEST_OPTIONS_H
#define RKS_INGEST_OPTIONS_H

#include "rankstore/schema.h"

typedef struct rks_ingest_options {
    /* the input */
    const char *format;
    const char *columns;
    const char *json_path;
    bool flatten;
    const char *dtype;
    const char *schema; /* as the user gave it; NULL: inferred, or the existing dataset's */
    bool infer_all;     /* infer from all rows */
    const char *extra;  /* "error", "drop" or "json"; NULL: depends on the schema */
    uint64_t unit_size; /* 0: rks_unit_size_for() of the input */
    uint64_t max_sample;
    uint64_t max_total;
    uint64_t input_bytes;        /* of sources that are URLs: in memory at once */
    const char *storage_options; /* of their stores; outlives the input */
    const char *listing; /* of rks_input_listing; outlives the input; NULL: ask the stores */
    bool skip_bad;
    bool unchecked; /* do not verify hashes that the source itself has */
    double sample_rate;
    uint64_t seed;
    /* a sample */
    const char *key;
    const char *length;
    uint32_t length_unit;
    uint32_t min_length;
    uint32_t max_length;
    const char *where;
    const char *const *index;
    size_t index_count;
    const char *const *counts;
    size_t counts_count;
    rks_filter_fn filter;
    rks_length_fn length_fn;
    void *callback_user;
    bool own_keys; /* rows of a program have their own */
} rks_ingest_options;

#endif
