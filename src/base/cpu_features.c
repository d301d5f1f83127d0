/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu_features.c: executes CPUID itself. The compilers' built-in function needs a run-time library
 * that not every compiler has: a wheel built with zig would not link. */
#include "base/cpu_features.h"

#ifdef __x86_64__

#include <cpuid.h>
#include <stdatomic.h>

enum { ASKED = 1, HAS_AVX = 2, HAS_AVX2 = 4 };

static int ask_processor(void)
{
    enum { OSXSAVE = 1 << 27, AVX = 1 << 28, AVX2 = 1 << 5, XMM_AND_YMM = 6 };
    unsigned a = 0, b = 0, c = 0, d = 0, kept = 0, high = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & OSXSAVE) == 0 || (c & AVX) == 0)
        return ASKED;
    __asm__ volatile("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
    if ((kept & XMM_AND_YMM) != XMM_AND_YMM)
        return ASKED;
    bool avx2 = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & AVX2) != 0;
    return ASKED | HAS_AVX | (avx2 ? HAS_AVX2 : 0);
}

static bool has(int what)
{
    static atomic_int known;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == 0) {
        answer = ask_processor(); /* two threads may ask at once; they get the same answer */
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return (answer & what) != 0;
}

bool rks_has_avx(void)
{
    return has(HAS_AVX);
}

bool rks_has_avx2(void)
{
    return has(HAS_AVX2);
}

#else

bool rks_has_avx(void)
{
    return false;
}

bool rks_has_avx2(void)
{
    return false;
}

#endif
