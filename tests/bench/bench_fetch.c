/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_fetch.c: samples over TCP loopback with checks beside a plain socket copy of the same
 * bytes, and what an idle owner costs.
 *
 * What bounds small samples is processor time: of the requester, which receives, checks and hands
 * each batch from its engine's thread to the caller's; then of the owner, whose records lie here
 * and there where the copy sends one buffer. On two cores the three threads share them. So read the
 * CPU figures: they are steadier than the rates.
 *
 * Usage: bench_fetch DIRECTORY [ROW]           ROW: 1 or 2, that row alone; default all */
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "support/rows.h"
#include "dataset/build_directory.h"

enum { DEPTH = 4 };

typedef struct work {
    const char *name;
    uint32_t size;    /* of a sample */
    uint32_t samples; /* in the dataset */
    uint32_t batch;
    uint32_t requests;
    int reach;
} work;

static const work works[] = {
    {"fetch over TCP loopback, 64 x 1 KB a request ", 1024, 100000, 64, 8000, 75},
    {"fetch over TCP loopback, 8 x 100 KB a request", 100 << 10, 2000, 8, 1000, 85},
};

enum { ROWS = sizeof(works) / sizeof(works[0]) };

static char directory[3000];
static int only;     /* 0: all rows */
static pid_t *owner; /* of rank 0, seen by all */

/* ---- the floor: the same bytes through a socket, nothing else -------------------------------- */

static void send_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = write(fd, bytes, size);
        if (put <= 0)
            exit(3);
        bytes += put;
        size -= (size_t)put;
    }
}

static double copy_plain(uint64_t total, size_t piece, double *cpu)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        exit(3);
    uint8_t *bytes = calloc(1, piece);
    pid_t child = fork();
    if (child == 0) {
        int peer = accept(listener, NULL, NULL);
        for (uint64_t sent = 0; sent < total; sent += piece)
            send_all(peer, bytes, piece);
        _exit(0);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, size) != 0)
        exit(3);
    double begun = bench_seconds(), used = bench_cpu();
    for (uint64_t got = 0; got < total;) {
        ssize_t some = read(fd, bytes, piece);
        if (some <= 0)
            break;
        got += (uint64_t)some;
    }
    double seconds = bench_seconds() - begun;
    *cpu = bench_cpu() - used;
    waitpid(child, NULL, 0);
    close(fd);
    close(listener);
    free(bytes);
    return seconds;
}

/* ---- ours: rank 0 owns everything, rank 1 asks ----------------------------------------------- */

static rks_status make_rows(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const work *w = user;
    uint8_t *bytes = malloc(w->size);
    rks_status status = RKS_OK;
    (void)unit;
    for (uint32_t i = 0; status == RKS_OK && i < w->samples; i++) {
        memset(bytes, (int)i, w->size);
        rks_value value = {.data = bytes, .size = w->size};
        status = rows_add(sink, &value, NULL, 0, err);
    }
    free(bytes);
    return status;
}

/* Rank 0 reads the only unit. */
static void build(rks_group *group, const char *name, const work *w)
{
    rks_error err;
    work copy = *w;
    const made_rows rows = {.make = make_rows, .user = &copy, .units = 1};
    rks_build_options options;
    rks_build_options_default(&options);
    options.schema = "data:bytes";
    bench_must(rows_build(group, name, &options, &rows, NULL, &err), &err);
}

static double fetch_all(rks_store *store, const work *w, double *cpu)
{
    rks_error err;
    uint64_t ids[64], state = 11;
    rks_fetch *inflight[DEPTH] = {NULL};
    double begun = bench_seconds(), used = bench_cpu();
    for (uint32_t i = 0; i < w->requests + DEPTH; i++) {
        rks_fetch **slot = &inflight[i % DEPTH];
        if (*slot != NULL) {
            rks_batch *batch = NULL;
            bench_must(rks_fetch_wait(*slot, &batch, &err), &err);
            rks_batch_free(batch);
            *slot = NULL;
        }
        if (i >= w->requests)
            continue;
        for (uint32_t k = 0; k < w->batch; k++)
            ids[k] = bench_random(&state) % w->samples;
        bench_must(rks_store_fetch_start(store, ids, w->batch, slot, &err), &err);
    }
    *cpu = bench_cpu() - used;
    return bench_seconds() - begun;
}

static double owner_cpu(void)
{
    clockid_t clock;
    struct timespec used = {0};
    if (clock_getcpuclockid(*owner, &clock) == 0)
        clock_gettime(clock, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void measure(rks_group *group, const work *w)
{
    rks_error err;
    rks_store *store = NULL;
    rks_store_options options;
    char name[4096];
    double floor_s[ROUNDS], ours_s[ROUNDS], floor_cpu[ROUNDS], ours_cpu[ROUNDS], owner_s[ROUNDS];
    snprintf(name, sizeof(name), "%s/rank-%u-%u", directory, rks_group_rank(group), w->size);
    build(group, name, w);
    rks_store_options_default(&options);
    options.no_share = true;
    bench_must(rks_store_open(group, name, &options, &store, &err), &err);
    uint64_t total = (uint64_t)w->requests * w->batch * w->size;
    if (rks_group_rank(group) == 1) {
        double ignored;
        fetch_all(store, w, &ignored); /* to warm up */
        for (int round = 0; round < ROUNDS; round++) {
            floor_s[round] = copy_plain(total, (size_t)w->batch * w->size, &floor_cpu[round]);
            owner_s[round] = -owner_cpu();
            ours_s[round] = fetch_all(store, w, &ours_cpu[round]);
            owner_s[round] += owner_cpu();
        }
        double gb = (double)total / 1e9;
        double plain = gb / bench_median(floor_s), ours = gb / bench_median(ours_s);
        printf("%s       %6.2f GB/s; plain socket copy %.2f GB/s: %3.0f %% (reach %d); CPU s/GB: "
               "requester %.2f, owner %.2f, plain %.2f\n",
               w->name, ours, plain, 100 * ours / plain, w->reach, bench_median(ours_cpu) / gb,
               bench_median(owner_s) / gb, bench_median(floor_cpu) / gb);
        fflush(stdout);
    }
    bench_must(rks_group_agree(group, "measured", RKS_OK, &err), &err);
    rks_store_close(store, 0);
    rks_directory_remove(name);
}

static void measure_idle(rks_group *group)
{
    rks_error err;
    double used = bench_cpu(), begun = bench_seconds();
    if (rks_group_rank(group) == 0) /* the other rank waits for it in the agreement */
        sleep(10);
    if (rks_group_rank(group) == 0)
        printf(
            "idle owner over 10 s                                %6.3f %% of a core (reach 0.5)\n",
            100 * (bench_cpu() - used) / (bench_seconds() - begun));
    bench_must(rks_group_agree(group, "idle", RKS_OK, &err), &err);
}

static int run(const rks_bootstrap *bootstrap, void *user)
{
    rks_error err;
    rks_group *group = NULL;
    rks_group_options options;
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    bench_must(rks_group_open(&options, &group, &err), &err);
    if (rks_group_rank(group) == 0)
        *owner = getpid();
    for (int i = 0; i < ROWS; i++)
        if (only == 0 || only == i + 1)
            measure(group, &works[i]);
    if (only == 0)
        measure_idle(group);
    rks_group_close(group);
    return 0;
}

int main(int argc, char **argv)
{
    rks_error err;
    int code = 0;
    only = argc == 3 ? atoi(argv[2]) : 0;
    if (argc < 2 || argc > 3 || only < 0 || only > ROWS || (argc == 3 && only == 0)) {
        fprintf(stderr, "usage: bench_fetch DIRECTORY [ROW]\n");
        return 2;
    }
    owner = mmap(NULL, sizeof(*owner), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (owner == MAP_FAILED) {
        perror("bench_fetch");
        return 3;
    }
    snprintf(directory, sizeof(directory), "%s/rankstore-bench-XXXXXX", argv[1]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    bench_must(rks_launch(2, run, NULL, &code, &err), &err);
    rks_directory_remove(directory);
    return code;
}
