/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_plan.c: what planning costs and how good the plans are, over log-normal lengths (median
 * 300, sigma 1, from 8 to 8192), max_tokens 16384, 8 ranks, one thread.
 *
 *   bench_plan [--runs N] [SAMPLES...]      medians of N runs (default 5)
 *
 * Stages: look + cut (create over a sorted order), sort, epoch (shuffle and arrange). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <malloc.h>

#include "base/clock.h"
#include "base/memory.h"
#include "plan/plan.h"
#include "plan/order/random.h"

enum { RUNS_MAX = 99 };

static void check(rks_status status, const rks_error *err)
{
    if (status == RKS_OK)
        return;
    fprintf(stderr, "bench_plan: %s: %s\n", rks_status_name(status), err->text);
    exit(3);
}

static uint32_t *draw_lengths(uint64_t count)
{
    uint32_t *lengths = malloc(count * sizeof(*lengths));
    if (lengths == NULL)
        exit(3);
    rks_random random = {5};
    for (uint64_t i = 0; i < count; i++) {
        double u = ((double)(rks_random_next(&random) >> 11) + 1) * 0x1p-53;
        double v = (double)(rks_random_next(&random) >> 11) * 0x1p-53;
        double length = 300 * exp(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
        lengths[i] = (uint32_t)(length < 8 ? 8 : length > 8192 ? 8192 : length);
    }
    return lengths;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), by_value);
    return values[count / 2];
}

/* Bytes that are allocated now, small and large. */
static size_t allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void measure(const char *strategy, const uint32_t *lengths, uint64_t count, int runs)
{
    rks_error err;
    rks_plan_options options;
    rks_plan_options_default(&options);
    options.strategy = strategy;
    options.max_tokens = 16384;
    options.world = 8;
    options.seed = 1;
    uint64_t order_bytes;
    check(rks_plan_order_bytes(count, &options, &order_bytes, &err), &err);

    double sort[RUNS_MAX], cut[RUNS_MAX], epoch[RUNS_MAX], all[RUNS_MAX];
    rks_plan_report report = {.struct_size = sizeof(report)};
    double bytes = 0;
    for (int run = 0; run < runs; run++) {
        size_t before = allocated();
        uint64_t t0 = rks_now_ns();
        uint32_t *order = order_bytes == 0 ? NULL : malloc(order_bytes);
        if (order != NULL)
            check(rks_plan_sort(lengths, count, order, &err), &err);
        uint64_t t1 = rks_now_ns();
        rks_plan *plan;
        check(rks_plan_create_sorted(lengths, count, order, NULL, &options, &plan, &err), &err);
        uint64_t t2 = rks_now_ns();
        const uint32_t *ids;
        size_t size;
        check(rks_plan_batch(plan, (uint64_t)run, 0, 0, &ids, &size, &err), &err);
        uint64_t t3 = rks_now_ns();
        bytes = (double)(allocated() - before) / (double)count;
        double n = (double)count;
        sort[run] = (double)(t1 - t0) / n;
        cut[run] = (double)(t2 - t1) / n;
        epoch[run] = (double)(t3 - t2) / n;
        all[run] = (double)(t3 - t0) / n;
        check(rks_plan_report_get(plan, (uint64_t)run, &report, &err), &err);
        rks_plan_free(plan);
        free(order);
    }
    printf("%-10s %9" PRIu64 " %7.2f %7.2f %7.2f %7.2f %8.2f %11.4f %8.4f %7" PRIu64 "\n", strategy,
           count, median(sort, runs), median(cut, runs), median(epoch, runs), median(all, runs),
           bytes, report.efficiency, report.balance, report.steps);
}

int main(int argc, char **argv)
{
    static const uint64_t usual[] = {10000000, 1000000, 100000, 10000};
    static const char *const strategies[] = {"bucket", "sorted", "random", "sequential"};
    int runs = 5;
    int first = 1;
    if (argc > 2 && strcmp(argv[1], "--runs") == 0) {
        runs = atoi(argv[2]);
        first = 3;
    }
    if (runs < 1 || runs > RUNS_MAX) {
        fprintf(stderr, "bench_plan: --runs is from 1 to %d\n", RUNS_MAX);
        return 2;
    }
    size_t sizes = argc > first ? (size_t)(argc - first) : sizeof(usual) / sizeof(usual[0]);
    printf("                         ns a sample                      bytes a\n"
           "strategy     samples    sort     cut   epoch     all   sample  efficiency  balance   "
           "steps\n");
    for (size_t i = 0; i < sizes; i++) {
        uint64_t count = argc > first ? strtoull(argv[first + (int)i], NULL, 10) : usual[i];
        if (count < 8 || count > UINT32_MAX) {
            fprintf(stderr, "bench_plan: samples are from 8 to 2^32 - 1\n");
            return 2;
        }
        uint32_t *lengths = draw_lengths(count);
        for (size_t j = 0; j < sizeof(strategies) / sizeof(strategies[0]); j++)
            measure(strategies[j], lengths, count, runs);
        free(lengths);
    }
    return 0;
}
