/* SPDX-License-Identifier: Apache-2.0
 *
 * item.h: the items of arrays: from which stored type into which type, and what fills up. */
#ifndef RKS_COLLATE_ITEM_H
#define RKS_COLLATE_ITEM_H

#include "shard/schema.h"

/* Converts `count` items; `from` need not be aligned. */
typedef void (*rks_convert_fn)(void *to, const void *from, size_t count);

/* What str, bytes and json consist of; other kinds are their own items. */
rks_kind rks_item_kind(const rks_column *column);
/* NULL where `to` does not hold every value of `from`. `size` is that of an item of both, where
 * they are the same. `wide`: a kernel that needs AVX2 and gives the same bytes, NaN included. */
rks_convert_fn rks_item_convert(rks_kind from, rks_kind to, size_t size, bool wide);
/* `value` as an item of the kind, its bytes in item[8]; false if it has no such value: a
 * fraction or one out of range for integers, a finite one that becomes infinite for floats. */
bool rks_item_encode(rks_kind kind, double value, uint8_t item[8]);

/* `count` times the item of `size` bytes: 1, 2, 4 or 8. */
void rks_item_fill(void *to, const uint8_t item[8], size_t size, size_t count);

#endif
