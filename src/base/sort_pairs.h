/* SPDX-License-Identifier: Apache-2.0
 *
 * sort_pairs.h: sorts many pairs of numbers in place. */
#ifndef RKS_BASE_SORT_PAIRS_H
#define RKS_BASE_SORT_PAIRS_H

#include <stddef.h>
#include <stdint.h>

typedef struct rks_pair {
    uint64_t first;
    uint64_t second;
} rks_pair;

/* Sorts by `first`, then by `second`. Uses no second array; the time grows with the count alone,
 * whatever the numbers are. */
void rks_pairs_sort(rks_pair *pairs, size_t count);

#endif
