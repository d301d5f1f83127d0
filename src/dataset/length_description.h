/* SPDX-License-Identifier: Apache-2.0
 *
 * length_description.h: what lengths of a dataset count, for reports and people. */
#ifndef RKS_DATASET_LENGTH_DESCRIPTION_H
#define RKS_DATASET_LENGTH_DESCRIPTION_H

#include <jansson.h>

#include "dataset/dataset.h"

enum { RKS_LENGTH_WORDS = 160 }; /* bytes with NUL; a long column name is cut */

/* What the options that a build recorded say about lengths. */
typedef struct rks_recorded_length {
    const char
        *name;     /* as rks_length_rule.name; NULL: not recorded. Lives as long as the options */
    uint32_t unit; /* 0: not recorded */
    bool by_function;
} rks_recorded_length;
/* `options` may be NULL: then nothing is recorded. */
rks_recorded_length rks_recorded_length_read(const json_t *options);

/* Returns what lengths of a dataset count, as rks_length_rule.name, whether it was recorded or not;
 * NULL if a function measured samples, or each has length 1. `key` is the dataset's key column, or
 * NULL. Lives as long as the options and the schema. */
const char *rks_recorded_length_name(const rks_recorded_length *recorded, const rks_schema *schema,
                                     const char *key);

/* How a build measured samples. */
typedef struct rks_length_rule {
    bool by_function;
    char name[272]; /* a column's, or "chars:" or "wav:" and a column's; empty if a function
                     * measured them, or each has length 1 */
    uint32_t unit;  /* what lengths were divided by, from 1 */
} rks_length_rule;
/* Returns false if there is no rule: a united dataset, since each source has one of its own, or a
 * build that recorded nothing. */
bool rks_dataset_length_rule(const rks_dataset *dataset, rks_length_rule *rule);

/* Writes what lengths count: "items of tokens, 257 each", "bytes of text / 4, rounded up", "what a
 * function said", ...; "" if there is no rule. */
void rks_dataset_length_words(const rks_dataset *dataset, char text[RKS_LENGTH_WORDS]);

#endif
