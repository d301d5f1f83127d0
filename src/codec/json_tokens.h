/* SPDX-License-Identifier: Apache-2.0
 *
 * json_tokens.h: what no parser here reads, found in a text token by token: NaN and infinities,
 * which Python's json writes bare, and integers beyond 64 bits. */
#ifndef RKS_CODEC_JSON_TOKENS_H
#define RKS_CODEC_JSON_TOKENS_H

#include <stdint.h>

#include "base/buffer.h"

/* A NaN or infinity of a text. */
typedef struct rks_json_special {
    uint64_t word; /* how many tokens but commas and colons stand before it */
    double value;
} rks_json_special;

/* Writes finite reals of the same size over each bare NaN, Infinity and -Infinity, and appends
 * these to `found`, an array of rks_json_special. The text may be malformed. */
rks_status rks_json_hide_specials(uint8_t *text, size_t size, rks_buffer *found, rks_error *err);

/* Writes the values back to the tape of the text that was parsed after hiding them. */
void rks_json_restore_specials(uint64_t *tape, const rks_buffer *found);

/* Returns the first integer below -2^63 or above 2^64 - 1 and its size; NULL if there is none. */
const uint8_t *rks_json_large_integer(const uint8_t *text, size_t size, size_t *digits);

#endif
