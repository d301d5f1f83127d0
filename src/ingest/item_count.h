/* SPDX-License-Identifier: Apache-2.0
 *
 * item_count.h: columns that count items of other columns, such as the labels that a loss counts.
 *
 *   rule   name "=" column op number        learned = labels != -100
 *
 *   rows bring      input_ids  labels
 *   a dataset has   input_ids  labels  learned      the rules' columns are its last ones, int64
 *
 * name, column and op are those of a condition (codec/filter.h), and numbers compare as they do
 * there: exactly, whatever the types. A rule counts the items of a numeric array for which the
 * comparison holds; of a number that is 0 or 1; of a missing value it is 0. */
#ifndef RKS_INGEST_ITEM_COUNT_H
#define RKS_INGEST_ITEM_COUNT_H

#include "shard/schema.h"

typedef struct rks_item_counts rks_item_counts;

/* Makes the schema of the rows: `schema` without the rules' columns. RKS_ERR_ARGUMENT for a rule
 * that cannot be read, and for a column of its name that is not int64; if the schema is `inferred`,
 * for any column of its name, which the rows bring themselves. Free with rks_schema_free. */
rks_status rks_item_counts_source(const rks_schema *schema, const char *const *rules, size_t count,
                                  bool inferred, rks_schema **source, rks_error *err);
/* Makes the schema of a dataset: that of the rows, and the rules' columns after it. Free with
 * rks_schema_free. */
rks_status rks_item_counts_schema(const rks_schema *source, const char *const *rules, size_t count,
                                  rks_schema **schema, rks_error *err);

/* Returns whether two lists have the same rules in the same order, however they are written.
 * RKS_ERR_ARGUMENT for a rule that cannot be read. */
rks_status rks_item_counts_equal(const char *const *a, size_t a_count, const char *const *b,
                                 size_t b_count, bool *equal, rks_error *err);

/* Compiles the rules against the schema of a dataset, which must outlive *counts. RKS_ERR_ARGUMENT
 * names a rule whose column is unknown or has no numbers, and a schema that does not end with the
 * rules' columns. */
rks_status rks_item_counts_create(const rks_schema *schema, const char *const *rules, size_t count,
                                  rks_item_counts **counts, rks_error *err);
void rks_item_counts_free(rks_item_counts *counts); /* NULL is accepted */
/* Returns the schema of the rows. Lives as long as `counts`. */
const rks_schema *rks_item_counts_rows(const rks_item_counts *counts);
/* Returns the values of a row and its counts: a sample of the dataset's schema. It is valid until
 * the next call, as long as `values` are. */
const rks_value *rks_item_counts_apply(rks_item_counts *counts, const rks_value *values);

#endif
