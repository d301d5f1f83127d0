/* SPDX-License-Identifier: Apache-2.0
 *
 * small_float.h: converts the float types that C lacks. */
#ifndef RKS_SHARD_SMALL_FLOAT_H
#define RKS_SHARD_SMALL_FLOAT_H

#include "shard/schema.h"

/* Encodes as float16, bfloat16, float8_e4m3fn or float8_e5m2: rounds to nearest, ties to even.
 * Returns false if the finite value is out of the type's range. */
bool rks_small_float_encode(rks_kind kind, double value, uint16_t *bits);
/* Encodes NaN and infinities. Returns false if the type has no such value. */
bool rks_small_float_special(rks_kind kind, double value, uint16_t *bits);
/* Calls the one of these two that the value needs. */
bool rks_small_float_put(rks_kind kind, double value, uint16_t *bits);
double rks_small_float_decode(rks_kind kind, uint16_t bits);

#endif
