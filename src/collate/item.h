/* SPDX-License-Identifier: Apache-2.0
 *
 * item.h: the items of arrays: from which stored type into which type, and what fills up. */
#ifndef RKS_COLLATE_ITEM_H
#define RKS_COLLATE_ITEM_H

#include "shard/schema.h"

/* Converts `count` items. `from` need not be aligned. */
typedef void (*rks_convert_fn)(void *to, const void *from, size_t count);

/* Returns what values of a column consist of. It differs from the column's kind for str, bytes and
 * json. */
rks_kind rks_item_kind(const rks_column *column);
/* Returns the function that converts items. NULL if `to` does not hold every value of `from`.
 * `size`: bytes of an item if both kinds are the same. `wide`: choose a version that needs AVX2 and
 * gives the same bytes, also for NaN. */
rks_convert_fn rks_item_convert(rks_kind from, rks_kind to, size_t size, bool wide);
/* Writes `value` as an item of the kind to item[8]. Returns false if the kind does not have the
 * value: for integers, a fraction or one out of range; for floats, a finite one that would become
 * infinite. */
bool rks_item_encode(rks_kind kind, double value, uint8_t item[8]);

/* Writes the item `count` times; `size` is 1, 2, 4 or 8 bytes. */
void rks_item_fill(void *to, const uint8_t item[8], size_t size, size_t count);

#endif
