/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_collate.c: epochs whose batches come as arrays, beside one thread that takes the same
 * samples from a plain map of the file, and beside memset of as many bytes.
 *
 * Usage: bench_collate DIRECTORY */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "bench.h"
#include "support/rows.h"
#include "dataset/build_directory.h"
#include "store/store.h"

typedef struct work {
    const char *name;
    const char *schema;
    const char *unit; /* of a figure */
    uint32_t samples;
    uint32_t item; /* bytes, as stored */
    const char *layout, *type, *strategy;
    uint32_t capacity; /* of a row, else 0 */
    double reach;      /* units a second, on two quiet cores */
} work;

static const work works[] = {
    {"tokens uint16, padded to int64", "data:uint16[*]", "G tokens/s", 300000, 2, "pad", "int64",
     "sorted", 0, 1.3},
    {"tokens uint16, rows of 8,192  ", "data:uint16[*]", "G tokens/s", 300000, 2, "rows", "int64",
     "pack", 8192, 1.3},
    {"blobs of 100 KB, packed       ", "data:bytes", "GB/s      ", 4000, 1, "pack", NULL, "bucket",
     0, 6.5},
};

enum { BATCH = 64, ROWS = 8, BLOB = 100000, MOST = 8192 };

typedef struct world {
    const work *w;
    rks_store *store;
    rks_plan *plan;
    uint64_t steps, items; /* of an epoch */
    uint8_t *room;         /* of the floors: the largest batch */
    size_t room_size;
} world;

static rks_status make_rows(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    static uint8_t bytes[BLOB];
    const work *w = user;
    uint64_t state = 7;
    rks_status status = RKS_OK;
    (void)unit;
    for (uint32_t i = 0; status == RKS_OK && i < w->samples; i++) {
        uint32_t count = w->item == 1 ? BLOB : bench_size(&state, 300, 0.8);
        if (w->item != 1)
            count = count < 8 ? 8 : count > MOST ? MOST : count;
        memset(bytes, (int)i, (size_t)count * w->item);
        rks_value value = {.data = bytes, .size = (uint64_t)count * w->item};
        status = rows_add(sink, &value, NULL, 0, err);
    }
    return status;
}

static void build(rks_group *group, const char *name, const work *w)
{
    rks_error err;
    work copy = *w;
    const made_rows rows = {.make = make_rows, .user = &copy, .units = 1};
    rks_build_options options;
    rks_build_options_default(&options);
    options.schema = w->schema;
    bench_must(rows_build(group, name, &options, &rows, NULL, &err), &err);
}

/* ---- the floors ------------------------------------------------------------------------------ */

/* The widest of a batch. */
static uint32_t widest(const world *o, const uint32_t *ids, size_t count)
{
    const uint32_t *lengths = rks_store_lengths(o->store);
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++)
        most = lengths[ids[i]] > most ? lengths[ids[i]] : most;
    return most;
}

static void widen(int64_t *to, const uint16_t *from, size_t count, size_t width)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
    memset(to + count, 0, (width - count) * sizeof(*to));
}

/* The bins of a batch, each into a row. */
static void read_rows(const world *o, uint64_t step, const uint32_t *ids,
                      const uint8_t *const *places)
{
    rks_error err;
    const uint32_t *lengths = rks_store_lengths(o->store), *bounds;
    size_t bins, capacity = o->w->capacity;
    bench_must(rks_plan_bins(o->plan, 0, step, 0, &bounds, &bins, &err), &err);
    for (size_t bin = 0; bin < bins; bin++) {
        int64_t *to = (int64_t *)(void *)o->room + bin * capacity, *end = to + capacity;
        for (uint32_t i = bounds[bin] - bounds[0]; i < bounds[bin + 1] - bounds[0]; i++) {
            widen(to, (const uint16_t *)(const void *)places[ids[i]], lengths[ids[i]],
                  lengths[ids[i]]);
            to += lengths[ids[i]];
        }
        memset(to, 0, (size_t)(end - to) * sizeof(*to));
    }
}

/* Items of a batch's array. */
static size_t items_of(const world *o, uint64_t step, const uint32_t *ids, size_t count)
{
    rks_error err;
    const uint32_t *bounds;
    size_t bins;
    if (o->w->capacity == 0)
        return count * widest(o, ids, count);
    bench_must(rks_plan_bins(o->plan, 0, step, 0, &bounds, &bins, &err), &err);
    return bins * o->w->capacity;
}

static uint64_t seen; /* so that no compiler leaves the sums out */

/* Each batch of the plan from the map into the same memory; where each sample lies is known. */
static double read_plain(const world *o, const uint8_t *const *places)
{
    rks_error err;
    const uint32_t *lengths = rks_store_lengths(o->store), *ids;
    size_t count;
    double begun = bench_seconds();
    for (uint64_t step = 0; step < o->steps; step++) {
        bench_must(rks_plan_batch(o->plan, 0, step, 0, &ids, &count, &err), &err);
        if (o->w->capacity != 0) {
            read_rows(o, step, ids, places);
            continue;
        }
        uint32_t width = widest(o, ids, count);
        for (size_t i = 0; i < count; i++) {
            if (o->w->item == 1) {
                seen += rks_checksum64(places[ids[i]], BLOB);
                memcpy(o->room + i * BLOB, places[ids[i]], BLOB);
            } else {
                widen((int64_t *)(void *)o->room + i * width,
                      (const uint16_t *)(const void *)places[ids[i]], lengths[ids[i]], width);
            }
        }
    }
    return bench_seconds() - begun;
}

static double set_memory(const world *o)
{
    rks_error err;
    const uint32_t *ids;
    size_t count, item = o->w->item == 1 ? 1 : sizeof(int64_t);
    double begun = bench_seconds();
    for (uint64_t step = 0; step < o->steps; step++) {
        bench_must(rks_plan_batch(o->plan, 0, step, 0, &ids, &count, &err), &err);
        memset(o->room, (int)step, items_of(o, step, ids, count) * item);
        seen += o->room[step % o->room_size];
    }
    return bench_seconds() - begun;
}

/* ---- ours ------------------------------------------------------------------------------------ */

static double read_epoch(const world *o)
{
    rks_error err;
    rks_epoch *epoch = NULL;
    rks_epoch_options options;
    rks_collate_options collate;
    rks_collate_options_default(&collate);
    const rks_collate_column column = {.column = "data", .type = o->w->type};
    collate.layout = o->w->layout;
    collate.row_items = o->w->capacity;
    collate.columns = &column;
    collate.column_count = 1;
    rks_epoch_options_default(&options);
    options.collate = &collate;
    bench_must(rks_epoch_open(o->store, o->plan, &options, &epoch, &err), &err);
    double begun = bench_seconds();
    for (rks_arrays *arrays = NULL;; rks_arrays_free(arrays)) {
        bench_must(rks_epoch_next_arrays(epoch, &arrays, NULL, &err), &err);
        if (arrays == NULL)
            break;
        seen += *(const uint8_t *)rks_arrays_get(arrays, 0)->data;
    }
    double took = bench_seconds() - begun;
    rks_epoch_close(epoch);
    return took;
}

static void measure(const world *o, const uint8_t *const *places)
{
    double ours[ROUNDS], plain[ROUNDS], set[ROUNDS], cpu[ROUNDS], plain_cpu[ROUNDS];
    read_epoch(o); /* to warm up */
    read_plain(o, places);
    for (int round = 0; round < ROUNDS; round++) {
        double used = bench_cpu();
        plain[round] = read_plain(o, places);
        plain_cpu[round] = bench_cpu() - used;
        used = bench_cpu();
        ours[round] = read_epoch(o);
        cpu[round] = bench_cpu() - used;
        set[round] = set_memory(o);
    }
    double g = (double)o->items / 1e9, figure = g / bench_median(ours);
    printf("%s  %6.2f %s (reach %.1f); plain map, one thread %.2f: %3.0f %%; memset %.2f; "
           "%.2f CPU s/G, plain %.2f\n",
           o->w->name, figure, o->w->unit, o->w->reach, g / bench_median(plain),
           100 * figure * bench_median(plain) / g, g / bench_median(set), bench_median(cpu) / g,
           bench_median(plain_cpu) / g);
    fflush(stdout);
}

/* Where the samples lie in a plain map of their only shard's file. */
static const uint8_t **find_places(const world *o, const uint8_t **map, size_t *size)
{
    rks_error err;
    const rks_shard *shard = o->store->shards[0];
    struct stat info;
    int fd = open(rks_shard_path(shard), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        exit(3);
    *size = (size_t)info.st_size;
    *map = mmap(NULL, *size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    close(fd);
    const uint8_t **places = malloc(o->w->samples * sizeof(*places));
    rks_record_view view, first;
    bench_must(rks_shard_locate(shard, 0, &first, &err), &err);
    /* The store's map begins at the same byte: its distance is that of the first record. */
    const uint8_t *found = *map + (uintptr_t)first.record % 4096;
    while (memcmp(found, first.record, 24) != 0)
        found += 4096;
    for (uint32_t i = 0; i < o->w->samples; i++) {
        bench_must(rks_shard_locate(shard, i, &view, &err), &err);
        rks_value value;
        bench_must(rks_record_decode(rks_store_schema(o->store), view.payload, view.payload_size,
                                     &value, &err),
                   &err);
        places[i] = found + ((const uint8_t *)value.data - first.record);
    }
    return places;
}

static void run_work(rks_group *group, const char *directory, const work *w)
{
    rks_error err;
    char name[4096];
    world o = {.w = w};
    const uint8_t *map = NULL;
    size_t size = 0;
    rks_plan_options options;
    snprintf(name, sizeof(name), "%s/%s%u", directory, w->layout, w->item);
    build(group, name, w);
    bench_must(rks_store_open(group, name, NULL, &o.store, &err), &err);
    rks_plan_options_default(&options);
    options.strategy = w->strategy;
    options.capacity = w->capacity;
    options.batch_size = w->capacity != 0 ? ROWS : BATCH;
    bench_must(rks_plan_open(o.store, &options, &o.plan, &err), &err);
    bench_must(rks_plan_steps(o.plan, 0, &o.steps, &err), &err);
    for (uint32_t i = 0; i < w->samples; i++)
        o.items += rks_store_lengths(o.store)[i];
    o.room_size = BATCH * (w->item == 1 ? (size_t)BLOB : MOST * sizeof(int64_t));
    o.room = aligned_alloc(64, o.room_size);
    memset(o.room, 1, o.room_size);
    const uint8_t **places = find_places(&o, &map, &size);
    measure(&o, places);
    free(places);
    free(o.room);
    munmap((void *)(uintptr_t)map, size);
    rks_plan_free(o.plan);
    rks_store_close(o.store, 0);
    rks_directory_remove(name);
}

int main(int argc, char **argv)
{
    rks_error err;
    rks_group *group = NULL;
    char directory[3000];
    if (argc != 2) {
        fprintf(stderr, "usage: bench_collate DIRECTORY\n");
        return 2;
    }
    snprintf(directory, sizeof(directory), "%s/rankstore-bench-XXXXXX", argv[1]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    bench_must(rks_group_open(NULL, &group, &err), &err);
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++)
        run_work(group, directory, &works[i]);
    rks_group_close(group);
    rks_directory_remove(directory);
    return seen == 1;
}
