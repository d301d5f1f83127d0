/* SPDX-License-Identifier: Apache-2.0
 *
 * key_description.h: how messages name equal keys, and derived keys that are equal by their units'
 * names.
 */
#ifndef RKS_DATASET_KEY_DESCRIPTION_H
#define RKS_DATASET_KEY_DESCRIPTION_H

#include "dataset/dataset.h"

enum { RKS_PLACE_NAME = 28 }; /* how many bytes of a name are shown there, its last ones */

/* How the message about a key that appears twice is worded. */
typedef struct rks_key_words {
    void (*key)(const void *key, size_t size, char *text, size_t room); /* NULL: the key is shown as
                                                                         * text */
    /* Writes where a sample comes from, "row 7 of FILE": `row` counts the source rows of
     * dataset->units[unit] from 0. NULL: the unit's number is shown. */
    void (*place)(void *user, const rks_dataset *dataset, size_t unit, uint64_t row, char *text,
                  size_t room);
    void *user;         /* passed to place */
    const char *advice; /* what to do, at the end; NULL: none */
} rks_key_words;

/* Derived keys are equal if two units have the same name and common rows. RKS_ERR_DATA names the
 * rows in `words` (NULL: by the units' numbers). */
rks_status rks_commit_check_names(const rks_dataset *dataset, const rks_key_words *words,
                                  rks_error *err);

#endif
