/* SPDX-License-Identifier: Apache-2.0
 *
 * length_words.h: what lengths of a dataset count, for reports and people. */
#ifndef RKS_DATASET_LENGTH_WORDS_H
#define RKS_DATASET_LENGTH_WORDS_H

#include "dataset/dataset.h"

enum { RKS_LENGTH_WORDS = 160 }; /* bytes with NUL; a long column name is cut */

/* Writes what lengths count: "items of tokens, 257 each", "bytes of text / 4, rounded up", "what a
 * function said", ...; "" for a united dataset, since each source has a rule of its own. */
void rks_dataset_length_words(const rks_dataset *dataset, char text[RKS_LENGTH_WORDS]);

#endif
