/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_selection.h: applies a build's options to a sample: keep it or not, its length, its key.
 * Serves samples from files and from memory alike.
 *
 * Order   Counts (item_count.h), then `where`, then the key, then the filter callback (which sees
 * the key), then the length and its limits. Key     The bytes of a str or bytes column, or the
 * decimal digits of an integer column. Length  str, bytes and json: their bytes. An array: the
 * items of its first variable dimension (of its first dimension if all are fixed). An integer: its
 * value. chars: the characters of a str. wav: the sample frames of a WAV file in bytes, by its
 * header (wav.h). A missing value has length 0. The length is divided by length_unit and rounded
 * up. Without the option it is the length of the column of rks_schema_length(). */
#ifndef RKS_INGEST_SAMPLE_SELECTION_H
#define RKS_INGEST_SAMPLE_SELECTION_H

#include "ingest/options.h"
#include "shard/schema.h"

typedef struct rks_selector rks_selector;

/* Compiles counts, where, length, key and index columns against the schema. A wrong one is
 * RKS_ERR_ARGUMENT naming option and column. The schema and the options' strings and callbacks must
 * outlive the selector. For samples from files, pass the options of rks_input_options(). */
rks_status rks_selector_create(const rks_schema *schema, const rks_ingest_options *options,
                               rks_selector **selector, rks_error *err);
void rks_selector_free(rks_selector *selector); /* NULL is accepted */

/* Returns the schema that rows bring: that of the dataset without the columns of `counts`. Lives as
 * long as the selector. */
const rks_schema *rks_selector_rows(const rks_selector *selector);
/* Returns the values of a row with its counts, as the dataset's schema has them: `values` itself if
 * there are none. It is valid until the next call, as long as `values` are. */
const rks_value *rks_selector_count(rks_selector *selector, const rks_value *values);
/* Applies the options to one sample of the dataset's schema. If *keep is false, the sample is
 * filtered and the rest is not set. *key is NULL, or the caller's own key, which callbacks see and
 * which stays if keys are derived. Afterwards it points into `values`, or for an integer key to its
 * digits in the selector, valid until the next call; NULL if keys are derived. A length above 2^32
 * - 2 and a key that is empty or too long are RKS_ERR_DATA. */
rks_status rks_selector_apply(rks_selector *selector, const rks_value *values, bool *keep,
                              uint32_t *length, const void **key, size_t *key_size, rks_error *err);
/* Returns true if keys are derived from unit name and row. */
bool rks_selector_derived_keys(const rks_selector *selector);
/* Returns true if the last failure came from a user's callback, not from the row. */
bool rks_selector_callback_failed(const rks_selector *selector);

#endif
