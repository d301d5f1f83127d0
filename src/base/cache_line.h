/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_line.h: what the processor fetches from memory at once. */
#ifndef RKS_BASE_CACHE_LINE_H
#define RKS_BASE_CACHE_LINE_H

enum { RKS_CACHE_LINE = 64 }; /* bytes, of most processors */

/* Asks for the cache line at `at`, which need not be mapped. To GCC, __builtin_prefetch alone has
 * no effect: it drops calls of functions that do nothing else, and their prefetches with them. The
 * empty assembly is an effect that it keeps. */
static inline void rks_prefetch(const void *at)
{
    __builtin_prefetch(at);
    __asm__ volatile("");
}

#endif
