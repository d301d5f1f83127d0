/* SPDX-License-Identifier: Apache-2.0
 *
 * small_float.h: the float types that C does not have. */
#ifndef RKS_SHARD_SMALL_FLOAT_H
#define RKS_SHARD_SMALL_FLOAT_H

#include "shard/schema.h"

/* float16, bfloat16, float8_e4m3fn and float8_e5m2, rounded to nearest, ties to even. False where
 * the finite value is out of the type's range. */
bool rks_small_float_encode(rks_kind kind, double value, uint16_t *bits);
/* The same for NaN and infinities; false where the type has no such value. */
bool rks_small_float_special(rks_kind kind, double value, uint16_t *bits);
/* Either of the two, as the value needs. */
bool rks_small_float_put(rks_kind kind, double value, uint16_t *bits);
double rks_small_float_decode(rks_kind kind, uint16_t bits);

#endif
