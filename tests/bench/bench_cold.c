/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_cold.c: a dataset that is larger than the memory, read from the disk, beside `pread` by 16
 * threads of the same records in the same order.
 *
 * Usage: bench_cold DIRECTORY [MIB [SAMPLES [RANKS]]]
 *
 * RANKS is alone (one rank), together (two ranks that share a map) or apart (two ranks with
 * no_share); without it all three are measured.
 *
 * MIB (default 2048) is the size of each dataset. A turn reads the last SAMPLES (default 60000) of
 * an epoch, a fifth of them if they are large, ten times as many in file order: so nothing is read
 * ahead that does not count. Five turns, each beside the floor; the share is the median of theirs.
 * If the machine has a writable memory cgroup, the readers get a fifth of a dataset's size;
 * otherwise pages are dropped before each turn, and the first line says so. Ranks are processes.
 *
 * Sixteen threads get more of a busy processor than a few: `chrt -r 1 bench_cold ...` puts both
 * before other work of the machine. */
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "support/rows.h"
#include "dataset/build_directory.h"

enum { THREADS = 16, TURNS = 5 };

typedef struct work {
    const char *name;
    uint32_t size; /* of a sample */
    const char *strategy;
    uint32_t batch;
    double samples; /* of a turn, as a share of SAMPLES */
    int reach;      /* in per cent of the floor */
} work;

static const work works[] = {
    {"2 KiB records, random order  ", 2048, "random", 64, 1, 100},
    {"100 KB records, random order ", 100000, "random", 16, 0.2, 90},
    {"2 KiB records, in file order ", 2048, "sequential", 64, 10, 90},
};

static char directory[3000], cgroup[64];
static uint64_t dataset_bytes = (uint64_t)2048 << 20, most_samples = 60000;

/* ---- less memory ---------------------------------------------------------------------------- */

static bool write_text(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* This process and its children; both versions of cgroups. */
static void take_less_memory(uint64_t bytes)
{
    static const char *const roots[][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                           {"/sys/fs/cgroup", "memory.max"}};
    char text[32], own[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
    snprintf(own, sizeof(own), "%d", (int)getpid());
    for (size_t i = 0; i < 2; i++) {
        snprintf(cgroup, sizeof(cgroup), "%s/rankstore-bench-%d", roots[i][0], (int)getpid());
        if (mkdir(cgroup, 0755) == 0) {
            if (write_text(cgroup, roots[i][1], text) && write_text(cgroup, "cgroup.procs", own)) {
                printf("memory of the readers: %llu MiB, by a cgroup\n",
                       (unsigned long long)(bytes >> 20));
                return;
            }
            rmdir(cgroup);
        }
    }
    cgroup[0] = '\0';
    printf(
        "memory of the readers: all (no writable cgroup); pages are dropped before each round\n");
}

static void leave_cgroup(void)
{
    char root[64], own[32];
    if (cgroup[0] == '\0')
        return;
    snprintf(root, sizeof(root), "%.*s", (int)(strrchr(cgroup, '/') - cgroup), cgroup);
    snprintf(own, sizeof(own), "%d", (int)getpid());
    write_text(root, "cgroup.procs", own);
    rmdir(cgroup);
}

/* ---- the floor ------------------------------------------------------------------------------ */

typedef struct place {
    int fd;
    uint64_t offset, size;
} place;

typedef struct to_read {
    const place *places;
    size_t count;
    _Atomic size_t next;
} to_read;

static void *read_places(void *user)
{
    to_read *r = user;
    uint8_t *bytes = malloc(1 << 20);
    for (size_t i; (i = r->next++) < r->count;)
        if (pread(r->places[i].fd, bytes, r->places[i].size, (off_t)r->places[i].offset) <= 0)
            exit(3);
    free(bytes);
    return NULL;
}

static double pread_all(const place *places, size_t count, size_t threads)
{
    to_read r = {.places = places, .count = count};
    pthread_t running[THREADS];
    double begun = bench_seconds();
    for (size_t i = 0; i < threads; i++)
        if (pthread_create(&running[i], NULL, read_places, &r) != 0)
            exit(3);
    for (size_t i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    return bench_seconds() - begun;
}

static size_t samples_of(rks_store *store, rks_plan *plan, uint64_t epoch, uint64_t step,
                         const uint32_t **ids)
{
    rks_error err;
    size_t count = 0;
    bench_must(rks_plan_batch(plan, epoch, step, rks_group_rank(rks_store_group(store)), ids,
                              &count, &err),
               &err);
    return count;
}

/* The last steps of the epoch, with up to `limit` samples of this rank and at least one step. */
static uint64_t first_step(rks_store *store, rks_plan *plan, uint64_t epoch, uint64_t limit)
{
    rks_error err;
    uint64_t step = 0, samples = 0;
    const uint32_t *ids = NULL;
    bench_must(rks_plan_steps(plan, epoch, &step, &err), &err);
    while (step > 0 && samples < limit)
        samples += samples_of(store, plan, epoch, --step, &ids);
    return step;
}

/* Samples of the epoch of this rank from a step on, as the plan has them. */
static place *find_places(rks_store *store, rks_plan *plan, uint64_t epoch, uint64_t step,
                          size_t *count)
{
    rks_error err;
    const char *open_path = NULL;
    int fd = -1;
    uint64_t steps = 0;
    const uint32_t *ids = NULL;
    bench_must(rks_plan_steps(plan, epoch, &steps, &err), &err);
    place *places = NULL;
    for (*count = 0; step < steps; step++) {
        size_t many = samples_of(store, plan, epoch, step, &ids);
        places = realloc(places, (*count + many) * sizeof(*places));
        for (size_t i = 0; i < many; i++) {
            place *p = &places[(*count)++];
            const char *path = NULL;
            bench_must(rks_store_place(store, ids[i], &path, &p->offset, &p->size, &err), &err);
            if (path != open_path) /* each dataset has one shard */
                fd = open(open_path = path, O_RDONLY | O_CLOEXEC);
            p->fd = fd;
        }
    }
    return places;
}

/* ---- ours ----------------------------------------------------------------------------------- */

static double read_epoch(rks_store *store, rks_plan *plan, uint64_t epoch, uint64_t step)
{
    rks_error err;
    rks_epoch *reading = NULL;
    rks_epoch_options options;
    rks_epoch_options_default(&options);
    options.epoch = epoch;
    options.first_step = step;
    double begun = bench_seconds();
    bench_must(rks_epoch_open(store, plan, &options, &reading, &err), &err);
    rks_batch *batch = NULL;
    do {
        bench_must(rks_epoch_next(reading, &batch, NULL, &err), &err);
        rks_batch_free(batch);
    } while (batch != NULL);
    double seconds = bench_seconds() - begun;
    rks_epoch_close(reading);
    return seconds;
}

static void drop(rks_store *store)
{
    rks_error err;
    for (int twice = 0; twice < 2; twice++) {
        rks_store_drop_cache(store, NULL);
        bench_must(rks_group_agree(rks_store_group(store), "drop", RKS_OK, &err), &err);
    }
}

/* COLLECTIVE. The most of all ranks' values, or their sum. */
static double of_all(rks_group *group, double value, bool sum)
{
    rks_error err;
    rks_gathered all = {0};
    double found = 0;
    bench_must(rks_group_allgather(group, "figure", RKS_OK, &value, sizeof(value), &all, &err),
               &err);
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        double other;
        memcpy(&other, all.bytes + all.offsets[rank], sizeof(other));
        found = sum ? found + other : other > found ? other : found;
    }
    rks_release(all.bytes);
    rks_release(all.offsets);
    return found;
}

static double median(double *values)
{
    qsort(values, TURNS, sizeof(*values), bench_order);
    return values[TURNS / 2];
}

/* Of all turns and, at the end, of all ranks. */
typedef struct tally {
    double floor_s[TURNS], ours_s[TURNS], share[TURNS];
    double samples, floor_cpu, ours_cpu, disk_bytes;
} tally;

static void take_turn(rks_store *store, rks_plan *plan, uint64_t turn, uint64_t limit, tally *t)
{
    rks_group *group = rks_store_group(store);
    size_t count = 0;
    uint64_t step = first_step(store, plan, turn, limit);
    place *places = find_places(store, plan, turn, step, &count);
    rks_store_stats before = {.struct_size = sizeof(before)}, after = before;
    drop(store);
    double used = bench_cpu();
    t->floor_s[turn] =
        of_all(group, pread_all(places, count, THREADS / rks_group_size(group)), false);
    t->floor_cpu += bench_cpu() - used;
    drop(store);
    rks_store_stats_get(store, &before);
    used = bench_cpu();
    t->ours_s[turn] = of_all(group, read_epoch(store, plan, turn, step), false);
    t->ours_cpu += bench_cpu() - used;
    rks_store_stats_get(store, &after);
    t->share[turn] = t->floor_s[turn] / t->ours_s[turn];
    t->disk_bytes += (double)(after.disk_bytes - before.disk_bytes);
    t->samples += (double)count;
    if (count > 0)
        close(places[0].fd);
    free(places);
}

static void print_tally(const work *w, uint32_t ranks, bool no_share, tally *t)
{
    double samples = t->samples / TURNS, ours = samples / median(t->ours_s);
    double share = 100 * median(t->share);
    printf("%s %u rank%s  %8.0f/s %7.1f MB/s; 16 x pread %8.0f/s: %4.0f %% (%.0f to %.0f, reach "
           "%d); %.1f KB read a sample; CPU %.1f us a sample, pread %.1f\n",
           w->name, ranks, no_share ? ", no share" : "          ", ours, ours * w->size / 1e6,
           samples / median(t->floor_s), share, 100 * t->share[0], 100 * t->share[TURNS - 1],
           w->reach, t->disk_bytes / 1000 / t->samples, 1e6 * t->ours_cpu / t->samples,
           1e6 * t->floor_cpu / t->samples);
    fflush(stdout);
}

static void measure(rks_group *group, const work *w, bool no_share)
{
    rks_error err;
    rks_store *store = NULL;
    rks_plan *plan = NULL;
    rks_store_options options;
    rks_plan_options planned;
    char name[4096];
    tally t = {0};
    uint32_t ranks = rks_group_size(group);
    snprintf(name, sizeof(name), "%s/%u", directory, w->size);
    rks_store_options_default(&options);
    options.no_share = no_share;
    bench_must(rks_store_open(group, name, &options, &store, &err), &err);
    rks_plan_options_default(&planned);
    planned.strategy = w->strategy;
    planned.batch_size = w->batch;
    bench_must(rks_plan_open(store, &planned, &plan, &err), &err);
    uint64_t limit = (uint64_t)((double)most_samples * w->samples) / ranks;
    for (uint64_t turn = 0; turn < TURNS; turn++)
        take_turn(store, plan, turn, limit, &t);
    /* One rank may read for the others: only sums say what a sample takes. */
    t.samples = of_all(group, t.samples, true);
    t.disk_bytes = of_all(group, t.disk_bytes, true);
    t.ours_cpu = of_all(group, t.ours_cpu, true);
    t.floor_cpu = of_all(group, t.floor_cpu, true);
    if (rks_group_rank(group) == 0)
        print_tally(w, ranks, no_share, &t);
    rks_plan_free(plan);
    rks_store_close(store, 0);
}

static rks_status make_rows(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const uint32_t *size = user;
    uint8_t *bytes = malloc(*size);
    rks_status status = RKS_OK;
    (void)unit;
    for (uint64_t i = 0; status == RKS_OK && i < dataset_bytes / *size; i++) {
        memset(bytes, (int)i, *size);
        rks_value value = {.data = bytes, .size = *size};
        status = rows_add(sink, &value, NULL, 0, err);
    }
    free(bytes);
    return status;
}

static void build(rks_group *group, uint32_t size)
{
    rks_error err;
    const made_rows rows = {.make = make_rows, .user = &size, .units = 1};
    rks_build_options options;
    char name[4096];
    snprintf(name, sizeof(name), "%s/%u", directory, size);
    rks_build_options_default(&options);
    options.schema = "data:bytes";
    bench_must(rows_build(group, name, &options, &rows, NULL, &err), &err);
}

static int run(const rks_bootstrap *bootstrap, void *user)
{
    rks_error err;
    rks_group *group = NULL;
    rks_group_options options;
    const char *what = user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    bench_must(rks_group_open(&options, &group, &err), &err);
    if (strcmp(what, "build") == 0) {
        build(group, 2048);
        build(group, 100000);
    } else {
        for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++)
            measure(group, &works[i], strcmp(what, "apart") == 0);
    }
    rks_group_close(group);
    return 0;
}

/* Runs the three kinds of ranks, or the one that `only` names. */
static int run_all(const char *only)
{
    static const struct {
        const char *name;
        uint32_t ranks;
    } kinds[] = {{"alone", 1}, {"together", 2}, {"apart", 2}};
    int code = 0;
    bool known = false;
    for (size_t i = 0; code == 0 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        rks_error err;
        if (only != NULL && strcmp(only, kinds[i].name) != 0)
            continue;
        known = true;
        bench_must(rks_launch(kinds[i].ranks, run, (void *)(uintptr_t)kinds[i].name, &code, &err),
                   &err);
    }
    if (!known)
        fprintf(stderr, "bench_cold: RANKS is alone, together or apart, not '%s'\n", only);
    return known ? code : 2;
}

int main(int argc, char **argv)
{
    rks_error err;
    int code = 0;
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: bench_cold DIRECTORY [MIB [SAMPLES [RANKS]]]\n");
        return 2;
    }
    if (argc > 2)
        dataset_bytes = strtoull(argv[2], NULL, 10) << 20;
    if (argc > 3)
        most_samples = strtoull(argv[3], NULL, 10);
    snprintf(directory, sizeof(directory), "%s/rankstore-bench-XXXXXX", argv[1]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    bench_must(rks_launch(1, run, (char *)"build", &code, &err), &err);
    take_less_memory(dataset_bytes / 5);
    fflush(stdout);
    if (code == 0)
        code = run_all(argc > 4 ? argv[4] : NULL);
    leave_cgroup();
    rks_directory_remove(directory);
    return code;
}
