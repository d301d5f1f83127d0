/* SPDX-License-Identifier: Apache-2.0
 *
 * key_words.h: how messages name equal keys, and derived keys that are equal by their units' names. */
#ifndef RKS_DATASET_KEY_WORDS_H
#define RKS_DATASET_KEY_WORDS_H

#include "dataset/dataset.h"

enum { RKS_PLACE_NAME = 28 }; /* bytes of a name in it that are shown, its last ones */

/* The words of the message about a key that appears twice. */
typedef struct rks_key_words {
    void (*key)(const void *key, size_t size, char *text, size_t room); /* NULL: as text */
    /* Where a sample comes from, "row 7 of FILE": `row` of the source rows of dataset->units[unit],
     * from 0. NULL: by the unit's number. */
    void (*place)(void *user, const rks_dataset *dataset, size_t unit, uint64_t row, char *text,
                  size_t room);
    void *user; /* of place */
    const char *advice; /* what to do, after it; NULL: nothing */
} rks_key_words;

/* Derived keys are equal where two units have one name and share rows: RKS_ERR_DATA names the rows
 * in `words` (NULL: by the units' numbers). */
rks_status rks_commit_check_names(const rks_dataset *dataset, const rks_key_words *words,
                                  rks_error *err);

#endif
