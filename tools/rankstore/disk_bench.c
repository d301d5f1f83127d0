/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_bench.c: the floor by pread, the library's own time for the same records, and how deep the
 * disk's queue was meanwhile. */
#include "disk_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

enum { THREADS = 16, MOST_SAMPLES = 100000 };
static const uint64_t MOST_BYTES = (uint64_t)1 << 30;

typedef struct place {
    int fd;
    uint64_t offset, size;
} place;

struct cli_cold_run {
    rks_store *store;
    cli_cold found;
    uint64_t left; /* samples until the clock stops */
    double begun;
    bool runs;
    rks_store_stats before;
    char queue[64]; /* the disk's own figures; empty: unknown */
    double queue_before;
};

static double seconds_now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

/* ---- the disk ------------------------------------------------------------------------------ */

/* Milliseconds that requests have spent at the disk, summed over requests. */
static double queue_time(const char *path)
{
    double field[11];
    FILE *file = path[0] == '\0' ? NULL : fopen(path, "re");
    if (file == NULL)
        return -1;
    int count = 0;
    while (count < 11 && fscanf(file, "%lf", &field[count]) == 1)
        count++;
    fclose(file);
    return count == 11 ? field[10] : -1;
}

static void find_queue(cli_cold_run *run, int fd)
{
    struct stat info;
    if (fstat(fd, &info) == 0)
        snprintf(run->queue, sizeof(run->queue), "/sys/dev/block/%u:%u/stat", major(info.st_dev),
                 minor(info.st_dev));
    if (queue_time(run->queue) < 0)
        run->queue[0] = '\0';
}

/* ---- the floor ------------------------------------------------------------------------------ */

typedef struct reads {
    const place *places;
    size_t count;
    atomic_size_t next;
    atomic_size_t bad; /* 1 + the place whose read failed first; 0: none did */
    atomic_int error;  /* its errno; 0: the file ends before it */
} reads;

static void *read_some(void *user)
{
    reads *r = user;
    uint8_t *bytes = NULL;
    uint64_t room = 0;
    for (size_t i; (i = atomic_fetch_add(&r->next, 1)) < r->count;) {
        const place *p = &r->places[i];
        if (p->size > room) {
            free(bytes);
            bytes = malloc(room = p->size);
        }
        ssize_t got = bytes == NULL ? -1 : pread(p->fd, bytes, p->size, (off_t)p->offset);
        size_t none = 0;
        if (got <= 0) {
            int error = bytes == NULL ? ENOMEM : got < 0 ? errno : 0;
            if (atomic_compare_exchange_strong(&r->bad, &none, i + 1))
                atomic_store(&r->error, error);
            break;
        }
    }
    free(bytes);
    return NULL;
}

static void say_bad_place(const place *p, int error, rks_error *err)
{
    char link[40], path[256];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", p->fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    path[length < 0 ? 0 : length] = '\0';
    snprintf(err->text, sizeof(err->text),
             "--cold: %s: bytes %" PRIu64 " to %" PRIu64
             ": %s; \"rankstore verify\" says which samples are lost",
             path, p->offset, p->offset + p->size - 1,
             error == 0 ? "the file ends before them" : strerror(error));
}

static rks_status read_floor(const place *places, size_t count, uint32_t ranks, double *seconds,
                             rks_error *err)
{
    pthread_t threads[THREADS];
    reads r = {.places = places, .count = count};
    size_t wanted = ranks >= THREADS ? 1 : THREADS / ranks, started = 0;
    double begun = seconds_now();
    while (started < wanted && pthread_create(&threads[started], NULL, read_some, &r) == 0)
        started++;
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    *seconds = seconds_now() - begun;
    if (started == wanted && r.bad == 0)
        return RKS_OK;
    *err = (rks_error){.status = RKS_ERR_IO, .rank = -1, .cause = r.error};
    if (r.bad == 0)
        snprintf(
            err->text, sizeof(err->text),
            "--cold: no thread could be started: raise the limit on processes (pids.max of the "
            "control group, ulimit -u)");
    else
        say_bad_place(&places[r.bad - 1], r.error, err);
    return RKS_ERR_IO;
}

/* ---- places --------------------------------------------------------------------------------- */

typedef struct files {
    const char **paths; /* the store's */
    int *fds;
    size_t count;
} files;

static int open_once(files *f, const char *path)
{
    for (size_t i = f->count; i-- > 0;)
        if (f->paths[i] == path)
            return f->fds[i];
    const char **paths = realloc((void *)f->paths, (f->count + 1) * sizeof(*paths));
    if (paths == NULL)
        return -1;
    f->paths = paths;
    int *fds = realloc(f->fds, (f->count + 1) * sizeof(*fds));
    if (fds == NULL)
        return -1;
    f->fds = fds;
    f->paths[f->count] = path;
    f->fds[f->count] = open(path, O_RDONLY | O_CLOEXEC);
    return f->fds[f->count++];
}

static void close_files(files *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->fds[i] >= 0)
            close(f->fds[i]);
    free((void *)f->paths);
    free(f->fds);
}

/* The first samples of the epoch of this rank, as far as they lie on this node. */
static rks_status find_places(cli_cold_run *run, rks_plan *plan, uint64_t epoch, files *f,
                              place *places, size_t *count, rks_error *err)
{
    uint64_t steps = 0, bytes = 0;
    uint32_t rank = rks_group_rank(rks_store_group(run->store));
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    for (uint64_t step = 0; status == RKS_OK && step < steps && bytes < MOST_BYTES; step++) {
        const uint32_t *ids = NULL;
        size_t many = 0;
        status = rks_plan_next_step(plan, epoch, step, &step, err);
        if (status != RKS_OK || step == steps)
            break;
        status = rks_plan_batch(plan, epoch, step, rank, &ids, &many, err);
        if (status != RKS_OK || *count + many > MOST_SAMPLES)
            break;
        for (size_t i = 0; status == RKS_OK && i < many; i++) {
            const char *path = NULL;
            place *p = &places[*count];
            status = rks_store_place(run->store, ids[i], &path, &p->offset, &p->size, err);
            if (status == RKS_OK) {
                p->fd = open_once(f, path);
                bytes += p->size;
                ++*count;
            } else if (status == RKS_ERR_NOT_FOUND) {
                status = RKS_OK;
            }
        }
        run->found.samples += many;
    }
    if (f->count > 0)
        find_queue(run, f->fds[0]);
    return status;
}

/* ---- a run ---------------------------------------------------------------------------------- */

/* COLLECTIVE. Twice: what another rank had mapped goes with the second. */
static rks_status drop_pages(cli_cold_run *run, rks_status status, rks_error *err)
{
    rks_cache_report report = {.struct_size = sizeof(report)};
    for (int twice = 0; twice < 2; twice++) {
        if (status == RKS_OK)
            rks_store_drop_cache(run->store, &report);
        status = rks_group_agree(rks_store_group(run->store), "bench: drop pages", status, err);
    }
    run->found.file_bytes = report.file_bytes;
    run->found.cached_bytes = report.cached_bytes;
    return status;
}

rks_status cli_cold_begin(rks_store *store, rks_plan *plan, uint64_t epoch, cli_cold_run **run,
                          rks_error *err)
{
    size_t count = 0;
    files f = {0};
    rks_group *group = rks_store_group(store);
    cli_cold_run *made = calloc(1, sizeof(*made));
    place *places = calloc(MOST_SAMPLES, sizeof(*places));
    rks_status status = RKS_OK;
    if (made == NULL || places == NULL) {
        free(made);
        free(places);
        *err = (rks_error){.status = RKS_ERR_MEMORY, .rank = -1, .text = "out of memory"};
        return rks_group_agree(group, "bench: places", RKS_ERR_MEMORY, err);
    }
    made->store = store;
    status = find_places(made, plan, epoch, &f, places, &count, err);
    status = drop_pages(made, status, err);
    if (status == RKS_OK) {
        status = read_floor(places, count, rks_group_size(group), &made->found.pread_seconds, err);
        status = drop_pages(made, status, err);
    }
    close_files(&f);
    free(places);
    if (status != RKS_OK) {
        free(made);
        return status;
    }
    *run = made;
    return RKS_OK;
}

void cli_cold_start(cli_cold_run *run)
{
    run->before.struct_size = sizeof(run->before);
    rks_store_stats_get(run->store, &run->before);
    run->left = run->found.samples;
    run->queue_before = queue_time(run->queue);
    run->runs = true;
    run->begun = seconds_now();
}

static void stop_clock(cli_cold_run *run)
{
    rks_store_stats after = {.struct_size = sizeof(after)};
    double seconds = seconds_now() - run->begun, queue = queue_time(run->queue);
    if (!run->runs)
        return;
    run->runs = false;
    run->found.seconds = seconds;
    rks_store_stats_get(run->store, &after);
    run->found.disk_bytes = after.disk_bytes - run->before.disk_bytes;
    run->found.disk_reads = after.disk_reads - run->before.disk_reads;
    run->found.depth =
        queue < 0 || seconds <= 0 ? -1 : (queue - run->queue_before) / 1000 / seconds;
}

void cli_cold_delivered(cli_cold_run *run, uint64_t samples)
{
    run->left -= samples < run->left ? samples : run->left;
    if (run->runs && run->left == 0)
        stop_clock(run);
}

cli_cold cli_cold_end(cli_cold_run *run)
{
    cli_cold found = {0};
    if (run == NULL)
        return found;
    stop_clock(run);
    found = run->found;
    free(run);
    return found;
}

/* ---- what is said --------------------------------------------------------------------------- */

void cli_cold_add(cli_cold *all, const cli_cold *one)
{
    bool unknown = all->cached_bytes == UINT64_MAX || one->cached_bytes == UINT64_MAX;
    all->samples += one->samples;
    all->disk_bytes += one->disk_bytes;
    all->disk_reads += one->disk_reads;
    all->file_bytes = one->file_bytes > all->file_bytes ? one->file_bytes : all->file_bytes;
    all->cached_bytes = unknown                                 ? UINT64_MAX
                        : one->cached_bytes > all->cached_bytes ? one->cached_bytes
                                                                : all->cached_bytes;
    if (one->pread_seconds > all->pread_seconds)
        all->pread_seconds = one->pread_seconds;
    if (one->seconds > all->seconds)
        all->seconds = one->seconds;
    if (one->depth > all->depth)
        all->depth = one->depth;
}

static double rate(uint64_t samples, double seconds)
{
    return (double)samples / (seconds > 0 ? seconds : 1e-9);
}

static double each(uint64_t sum, uint64_t samples)
{
    return samples == 0 ? 0 : (double)sum / (double)samples;
}

void cli_cold_json(json_t *object, const cli_cold *all)
{
    bool known = all->cached_bytes != UINT64_MAX;
    json_t *cold = json_object();
    json_object_set_new(cold, "samples", json_integer((json_int_t)all->samples));
    json_object_set_new(cold, "samples_per_second", json_real(rate(all->samples, all->seconds)));
    json_object_set_new(cold, "pread_samples_per_second",
                        json_real(rate(all->samples, all->pread_seconds)));
    json_object_set_new(
        cold, "share_of_pread",
        json_real(rate(all->samples, all->seconds) / rate(all->samples, all->pread_seconds)));
    json_object_set_new(cold, "disk_bytes_per_sample",
                        json_real(each(all->disk_bytes, all->samples)));
    json_object_set_new(cold, "disk_reads", json_integer((json_int_t)all->disk_reads));
    json_object_set_new(cold, "depth", all->depth < 0 ? json_null() : json_real(all->depth));
    json_object_set_new(cold, "file_bytes", json_integer((json_int_t)all->file_bytes));
    json_object_set_new(cold, "cached_bytes",
                        known ? json_integer((json_int_t)all->cached_bytes) : json_null());
    json_object_set_new(object, "cold", cold);
}

static bool mincore_answers(void)
{
    unsigned char there;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return mincore((void *)((uintptr_t)&there / page * page), page, &there) == 0;
}

void cli_cold_print(const cli_cold *all)
{
    printf("  cold      %s, the first of the epoch: %s/s, %.0f %% of 16 threads of pread (%s/s)\n",
           cli_counted(all->samples, "sample"),
           cli_count((uint64_t)rate(all->samples, all->seconds)),
           100 * rate(all->samples, all->seconds) / rate(all->samples, all->pread_seconds),
           cli_count((uint64_t)rate(all->samples, all->pread_seconds)));
    printf("            %s of disk a sample in %s; ",
           cli_bytes((uint64_t)each(all->disk_bytes, all->samples)),
           cli_counted(all->disk_reads, "request"));
    if (all->depth < 0)
        printf("depth unknown\n");
    else
        printf("%.1f at a time\n", all->depth);
    if (all->cached_bytes == UINT64_MAX)
        printf("            what stayed cached of %s is unknown: %s\n", cli_bytes(all->file_bytes),
               mincore_answers() ? "the files are another user's"
                                 : "a container's filter forbids mincore");
    else
        printf("            %s of %s stayed cached\n", cli_bytes(all->cached_bytes),
               cli_bytes(all->file_bytes));
}
