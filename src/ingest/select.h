/* SPDX-License-Identifier: Apache-2.0
 *
 * select.h: what a build option says about a sample: keep it or not, its length, its key. Serves
 * files and samples from memory alike.
 *
 * Order   `where`, then the key, then the filter callback (which sees the key), then the length
 *         and its limits.
 * Key     of a str or bytes column its bytes, of an integer column its decimal digits.
 * Length  of str, bytes and json their bytes; of an array the items of its first variable dimension
 *         (of its first where all are fixed); an integer as it is; chars: the characters of a str;
 *         wav: the sample frames of a WAV file in bytes, by its header (wav.h).
 *         A missing value has length 0. Divided by length_unit, rounded up. Without the option it
 *         is the first column with a variable dimension that is not the key's, else 1. Builds pass
 *         over "__key__", and take an array of fixed size rather than 1 (rks_build_default_length);
 *         they record the column as the option. Datasets of earlier versions keep their rule. */
#ifndef RKS_INGEST_SELECT_H
#define RKS_INGEST_SELECT_H

#include "ingest/options.h"
#include "shard/schema.h"

typedef struct rks_selector rks_selector;

/* Compiles where, length, key and index columns against the schema; a wrong one is RKS_ERR_ARGUMENT
 * naming option and column. The schema and the options' strings and callbacks must outlive it.
 * For samples from files the options are those of rks_input_options(). */
rks_status rks_selector_create(const rks_schema *schema, const rks_ingest_options *options,
                               rks_selector **selector, rks_error *err);
void rks_selector_free(rks_selector *selector); /* NULL is accepted */

/* *keep false: filtered, and the rest is not set. *key comes in as a key of the caller's own, which
 * callbacks see and which stays where keys are derived, or as NULL. It then points into `values`,
 * or into the selector's own room for an integer key (decimal digits), valid until the next call;
 * NULL where keys are derived. A length above 2^32 - 2 and a key that is empty or too long are
 * RKS_ERR_DATA. */
rks_status rks_selector_apply(rks_selector *selector, const rks_value *values, bool *keep,
                              uint32_t *length, const void **key, size_t *key_size, rks_error *err);
/* Keys are derived from unit name and row. */
bool rks_selector_derived_keys(const rks_selector *selector);
/* The last failure came from a callback of the user's: it is no fault of the row. */
bool rks_selector_callback_failed(const rks_selector *selector);

#endif
