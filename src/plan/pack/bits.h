/* SPDX-License-Identifier: Apache-2.0
 *
 * bits.h: a set of numbers below a bound, which finds its next number in a few instructions. Level
 * 0 has a bit for each number. Each of the three levels above has a bit for each word of the level
 * below that is not 0. */
#ifndef RKS_PLAN_PACK_BITS_H
#define RKS_PLAN_PACK_BITS_H

#include "base/memory.h"

enum { RKS_BITS_LEVELS = 4, RKS_BITS_NONE = UINT32_MAX }; /* up to 64^4 numbers */

typedef struct rks_bits {
    uint64_t *levels[RKS_BITS_LEVELS]; /* level 0: bit r is set if r is in the set */
    uint64_t words[RKS_BITS_LEVELS];
} rks_bits;

/* Makes an empty set of numbers below `bound`, which is from 1 to 2^24 + 1. RKS_ERR_MEMORY if
 * allocation fails. The caller frees levels[0] with rks_free. */
static inline rks_status rks_bits_make(rks_bits *bits, uint64_t bound, rks_error *err)
{
    uint64_t words = 0;
    for (int level = 0; level < RKS_BITS_LEVELS; level++) {
        bound = (bound + 63) / 64;
        bits->words[level] = bound;
        words += bound;
    }
    uint64_t *memory = rks_alloc(words, sizeof(*memory), err);
    bits->levels[0] = memory;
    if (memory == NULL)
        return RKS_ERR_MEMORY;
    for (int level = 1; level < RKS_BITS_LEVELS; level++)
        bits->levels[level] = bits->levels[level - 1] + bits->words[level - 1];
    return RKS_OK;
}

static inline void rks_bits_set(rks_bits *bits, uint32_t number)
{
    for (int level = 0; level < RKS_BITS_LEVELS; level++) {
        bits->levels[level][number / 64] |= UINT64_C(1) << number % 64;
        number /= 64;
    }
}

static inline void rks_bits_clear(rks_bits *bits, uint32_t number)
{
    for (int level = 0; level < RKS_BITS_LEVELS; level++) {
        uint64_t *word = &bits->levels[level][number / 64];
        *word &= ~(UINT64_C(1) << number % 64);
        if (*word != 0)
            return;
        number /= 64;
    }
}

/* Returns the least number of the set that is `least` or above; RKS_BITS_NONE if there is none. */
static inline uint32_t rks_bits_find(const rks_bits *bits, uint32_t least)
{
    uint64_t at = least;
    for (int level = 0; level < RKS_BITS_LEVELS && at / 64 < bits->words[level]; level++) {
        uint64_t word = bits->levels[level][at / 64] & (~UINT64_C(0) << at % 64);
        if (word != 0) {
            at = at / 64 * 64 + (uint64_t)__builtin_ctzll(word);
            while (level-- > 0)
                at = at * 64 + (uint64_t)__builtin_ctzll(bits->levels[level][at]);
            return (uint32_t)at;
        }
        at = at / 64 + 1;
    }
    return RKS_BITS_NONE;
}

#endif
