/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h: what the measuring programs share. Each figure stands beside its floor, taken in the
 * same run, in turn, ROUNDS times; medians are printed. */
#ifndef RKS_TESTS_BENCH_H
#define RKS_TESTS_BENCH_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "rankstore.h"

enum { ROUNDS = 5 };

static inline double bench_seconds(void)
{
    return (double)rks_now_ns() / 1e9;
}

/* Seconds of processor that this process has used, all threads. */
static inline double bench_user(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_utime.tv_sec + (double)used.ru_utime.tv_usec / 1e6;
}

static inline double bench_kernel(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)used.ru_stime.tv_sec + (double)used.ru_stime.tv_usec / 1e6;
}

static inline double bench_cpu(void)
{
    return bench_user() + bench_kernel();
}

static inline int bench_order(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static inline double bench_median(const double values[ROUNDS])
{
    double sorted[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        sorted[i] = values[i];
    qsort(sorted, ROUNDS, sizeof(sorted[0]), bench_order);
    return sorted[ROUNDS / 2];
}

static inline uint64_t bench_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 24;
}

/* Log-normal sizes: median * e^(sigma * normal), at least 1. */
static inline uint32_t bench_size(uint64_t *state, double median, double sigma)
{
    double u = ((double)(bench_random(state) & 0xffffff) + 1) / 16777217.0;
    double v = (double)(bench_random(state) & 0xffffff) / 16777216.0;
    double size = median * exp(sigma * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
    return size < 1 ? 1 : size > 1e6 ? 1000000 : (uint32_t)size;
}

static inline void bench_must(rks_status status, const rks_error *err)
{
    if (status == RKS_OK)
        return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(3);
}

#endif
