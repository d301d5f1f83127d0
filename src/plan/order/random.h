/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h: the planner's random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014; constants of Stafford's mix 13).
 *
 * The n-th number of a stream is mix(key + n * gamma), so a stream is a counter and a key. Each use
 * has its own key (seed, epoch, segment, stage, part), so no stream depends on which others were
 * drawn before. */
#ifndef RKS_PLAN_ORDER_RANDOM_H
#define RKS_PLAN_ORDER_RANDOM_H

#include <stdint.h>

__extension__ typedef unsigned __int128 rks_u128;

typedef struct rks_random {
    uint64_t state;
} rks_random;

static inline uint64_t rks_random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t rks_random_next(rks_random *random)
{
    random->state += 0x9e3779b97f4a7c15u;
    return rks_random_mix(random->state);
}

/* Returns the key of part `part` of the use that `key` stands for. */
static inline uint64_t rks_random_key(uint64_t key, uint64_t part)
{
    return rks_random_mix(rks_random_mix(key + 0x9e3779b97f4a7c15u) ^
                          rks_random_mix(part + 0xd1b54a32d192ed03u));
}

/* Returns a random number from 0 to range - 1. The bias is below range / 2^64. */
static inline uint64_t rks_random_below(rks_random *random, uint64_t range)
{
    return (uint64_t)(((rks_u128)rks_random_next(random) * range) >> 64);
}

#endif
