/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_exchange.c: run by mpirun: ranks get each other's streams by MPI messages, and by requests
 * beside MPI; failures end all alike. Every rank checks itself; exit code 0 means all is well. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "group/agreement.h"
#include "unit/exchange/exchange_case.h"

enum { STOP_SILENCE_MS = 2000 };

static int failures;
static uint32_t rank, ranks;

static void fail_with(const exchange_case *all, const char *what)
{
    const case_result *result = &all->results[rank];
    fprintf(stderr, "rank %u, %s, %s: %s: %s %s\n", rank, all->backend, what,
            rks_status_name(result->status), result->status != RKS_OK ? result->err.text : "",
            result->wrong);
    failures++;
}

static void expect_good(rks_group *group, exchange_case *all, const char *used, const char *what)
{
    case_run(group, all);
    const case_result *result = &all->results[rank];
    uint64_t limit = 8 * ((uint64_t)all->chunk + 64);
    if (result->status != RKS_OK || result->wrong[0] != '\0' || strcmp(result->used, used) != 0 ||
        result->stats.peak_bytes > limit ||
        result->stats.bytes_received > result->received + result->received / 100 + 4096)
        fail_with(all, what);
}

static void expect_failed(rks_group *group, exchange_case *all, rks_status status, const char *what)
{
    case_run(group, all);
    const case_result *result = &all->results[rank];
    if (result->status != status || result->err.rank != (int32_t)all->fault_rank ||
        result->wrong[0] != '\0')
        fail_with(all, what);
}

static const uint64_t shapes[][CASE_RANKS] = {
    {1000000, 1, 4096, 0, 70001, 8191, 30000, 5},
    {0, 0, 0, 0, 0, 0, 0, 0},
    {0, 0, 99999, 0, 0, 0, 0, 0},
    {65536, 65536, 65536, 65536, 65536, 65536, 65536, 65536},
};

static void run_shapes(rks_group *group, const char *backend, const char *used)
{
    static const uint32_t chunks[] = {3001, 65536, 4 << 20};
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        for (size_t chunk = 0; chunk < 3; chunk++) {
            exchange_case all = {.backend = backend, .chunk = chunks[chunk], .receivers = 0xff};
            memcpy(all.sizes, shapes[shape], sizeof(all.sizes));
            expect_good(group, &all, used, "uneven streams");
            all.receivers = 0x5; /* two receivers, which skip a neighbour */
            all.skips[0] = 0x2;
            all.skips[2] = 0x8;
            expect_good(group, &all, used, "two receivers");
        }
    }
}

/* Two nodes of two ranks: what a node receives comes to its ranks once, some to each. */
static void run_shared(rks_group *group, const char *backend, const char *used)
{
    static const uint32_t chunks[] = {3001, 65536};
    for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
        for (size_t i = 0; i < 4; i++) {
            exchange_case all = {.backend = backend,
                                 .chunk = chunks[i / 2],
                                 .of_a_node = 2,
                                 .grain = i % 2 == 0 ? 0 : 1000};
            memcpy(all.sizes, shapes[shape], sizeof(all.sizes));
            expect_good(group, &all, used, "two nodes");
            uint64_t received = all.results[rank].received, sent = 0;
            const rks_fact fact = rks_fact_sum(&received, 1);
            for (uint32_t sender = 0; sender < ranks; sender++)
                sent += all.sizes[sender];
            if (rks_group_agree_on(group, "test: received", RKS_OK, &fact, 1, NULL, NULL) !=
                    RKS_OK ||
                received != sent)
                fail_with(&all, "a stream is not whole");
        }
    }
    exchange_case all = {.backend = used,
                         .chunk = 4096,
                         .of_a_node = 2,
                         .sizes = {300000, 300000, 300000, 300000},
                         .fault = FAULT_SOURCE,
                         .fault_rank = 3};
    expect_failed(group, &all, RKS_ERR_DATA, "a failing source of two nodes");
    all.fault = FAULT_SINK;
    expect_failed(group, &all, RKS_ERR_IO, "a failing share");
}

static void run_faults(rks_group *group, const char *backend)
{
    for (uint32_t fault_rank = 0; fault_rank < ranks; fault_rank++) {
        exchange_case all = {.backend = backend,
                             .chunk = 4096,
                             .receivers = 0xff,
                             .sizes = {300000, 300000, 300000, 300000},
                             .fault_rank = fault_rank};
        all.fault = FAULT_SOURCE;
        expect_failed(group, &all, RKS_ERR_DATA, "a failing source");
        all.fault = FAULT_SINK;
        expect_failed(group, &all, RKS_ERR_IO, "a failing sink");
        all.fault = FAULT_NONE;
        expect_good(group, &all, backend, "after a failure");
    }
}

/* Rank 2 stops in the middle; the others end within T, naming it, and leave a file each in
 * `directory`. Then the job is over: MPI has no way to end in order without a rank. */
static int run_stopped(rks_group *group, const char *directory)
{
    exchange_case all = {.backend = "mpi",
                         .chunk = 4096,
                         .receivers = 0xff,
                         .sizes = {300000, 300000, 300000, 300000},
                         .fault = FAULT_STOP,
                         .fault_rank = 2};
    uint64_t begun_ms = rks_now_ms();
    case_run(group, &all);
    const case_result *result = &all.results[rank];
    uint64_t took_ms = rks_now_ms() - begun_ms;
    if ((result->status != RKS_ERR_PEER && result->status != RKS_ERR_TIMEOUT) ||
        result->err.rank != 2 || took_ms > 3 * STOP_SILENCE_MS)
        fail_with(&all, "a stopped rank");
    if (rank == 2) /* it was continued, only to be ended */
        _exit(4);
    char path[4096];
    snprintf(path, sizeof(path), "%s/%u", directory, rank);
    if (failures == 0)
        close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    /* The first to leave ends the job: wait for the others' files. */
    for (uint32_t other = 0; other < ranks && rks_now_ms() - begun_ms < 20000; other++) {
        snprintf(path, sizeof(path), "%s/%u", directory, other);
        while (other != 2 && access(path, F_OK) != 0 && rks_now_ms() - begun_ms < 20000)
            usleep(1000);
    }
    _exit(4);
}

int main(int argc, char **argv)
{
    rks_group *group = NULL;
    rks_error err;
    alarm(600); /* nothing here may hang */
    if (open_group_on(NULL, NULL, argc > 1 ? STOP_SILENCE_MS : 0, &group, &err) != RKS_OK) {
        fprintf(stderr, "group: %s\n", err.text);
        return 1;
    }
    rank = rks_group_rank(group);
    ranks = rks_group_size(group);
    if (ranks != 4) {
        fprintf(stderr, "%u ranks, not 4\n", ranks);
        failures++;
    } else if (argc > 1) {
        return run_stopped(group, argv[1]);
    } else {
        run_shapes(group, "auto", "mpi");
        run_shapes(group, "pull", "pull");
        run_faults(group, "mpi");
        run_faults(group, "pull");
        exchange_case all = {.backend = "local"};
        case_run(group, &all);
        if (all.results[rank].status != RKS_ERR_UNSUPPORTED)
            fail_with(&all, "refused");
    }
    rks_group_close(group);
    char node[16];
    snprintf(node, sizeof(node), "n%u", rank / 2);
    if (open_group_on(NULL, node, 0, &group, &err) != RKS_OK) {
        fprintf(stderr, "group of two nodes: %s\n", err.text);
        return 1;
    }
    run_shared(group, "auto", "mpi");
    run_shared(group, "pull", "pull");
    rks_group_close(group);
    if (rks_memory_in_use() != 0) {
        fprintf(stderr, "rank %u: %ld allocations are left\n", rank, rks_memory_in_use());
        failures++;
    }
    return failures == 0 ? 0 : 1;
}
