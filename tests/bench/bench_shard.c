/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_shard.c: building, file size, random reads and opening, each beside its floor.
 *
 * Usage: bench_shard DIRECTORY (of the disk to measure; what it makes there is removed) */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checksum.h"
#include "bench.h"
#include "support/rows.h"
#include "dataset/dataset.h"
#include "shard/shard.h"
#include "dataset/build_directory.h"

enum {
    SAMPLES = 400000,
    BATCH = 64,
    READS = 8000,
    MANY = 10000000,
    KEY = 14,
    UNIT = 100000,
    MANY_UNIT = 1000000
};

typedef struct data {
    uint8_t *bytes;
    uint32_t *sizes;
    char (*keys)[KEY + 1];
    uint64_t total; /* column bytes */
} data;

static rks_group *group;
static char directory[3000];

static data make_data(void)
{
    data d = {.sizes = malloc(SAMPLES * sizeof(*d.sizes)),
              .keys = malloc(SAMPLES * sizeof(*d.keys))};
    uint64_t state = 1;
    for (int i = 0; i < SAMPLES; i++) {
        d.sizes[i] = bench_size(&state, 300, 1);
        d.total += d.sizes[i];
        snprintf(d.keys[i], sizeof(d.keys[i]), "key-%0*d", KEY - 4, i);
    }
    d.bytes = malloc(d.total);
    for (uint64_t i = 0; i < d.total; i++)
        d.bytes[i] = (uint8_t)bench_random(&state);
    return d;
}

static rks_status make_unit(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    const data *d = user;
    uint64_t at = 0;
    rks_status status = RKS_OK;
    int first = (int)unit * UNIT;
    for (int i = 0; i < first; i++)
        at += d->sizes[i];
    for (int i = first; status == RKS_OK && i < first + UNIT && i < SAMPLES; i++) {
        rks_value value = {.data = d->bytes + at, .size = d->sizes[i]};
        status = rows_add(sink, &value, d->keys[i], KEY, err);
        at += d->sizes[i];
    }
    return status;
}

static void build(const char *name, const data *d, rks_build_report *report)
{
    rks_error err;
    rks_build_options options;
    data own = *d;
    const made_rows rows = {.make = make_unit, .user = &own, .units = (SAMPLES + UNIT - 1) / UNIT};
    rks_build_options_default(&options);
    options.schema = "data:bytes";
    options.own_keys = true;
    bench_must(rows_build(group, name, &options, &rows, report, &err), &err);
}

static void write_plain(const char *path, const data *d)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    uint64_t since = 0;
    for (uint64_t at = 0; at < d->total;) {
        size_t piece = d->total - at < 1 << 20 ? (size_t)(d->total - at) : 1 << 20;
        if (write(fd, d->bytes + at, piece) != (ssize_t)piece || fd < 0) {
            perror(path);
            exit(3);
        }
        at += piece;
        since += piece;
        if (since >= 64 << 20) {
            fdatasync(fd);
            since = 0;
        }
    }
    fdatasync(fd);
    close(fd);
}

/* What one way of writing took, a round each. */
typedef struct cost {
    double seconds[ROUNDS], user[ROUNDS], kernel[ROUNDS];
} cost;

static void cost_begin(cost *c, int round)
{
    c->seconds[round] = -bench_seconds();
    c->user[round] = -bench_user();
    c->kernel[round] = -bench_kernel();
}

static void cost_end(cost *c, int round)
{
    c->seconds[round] += bench_seconds();
    c->user[round] += bench_user();
    c->kernel[round] += bench_kernel();
}

static void measure_build(const data *d)
{
    cost plain_cost, ours;
    char plain[4096], store[4096];
    rks_build_report report = {.struct_size = sizeof(report)};
    snprintf(plain, sizeof(plain), "%s/plain", directory);
    snprintf(store, sizeof(store), "%s/store", directory);
    for (int round = 0; round < ROUNDS; round++) {
        cost_begin(&plain_cost, round);
        write_plain(plain, d);
        cost_end(&plain_cost, round);
        unlink(plain);
        if (round > 0)
            rks_directory_remove(store);
        cost_begin(&ours, round);
        build(store, d, &report);
        cost_end(&ours, round);
    }
    double mb = (double)d->total / 1e6, gb = mb / 1e3;
    double floor_rate = mb / bench_median(plain_cost.seconds),
           rate = mb / bench_median(ours.seconds);
    double user = bench_median(ours.user) / gb, kernel = bench_median(ours.kernel) / gb;
    printf("build, 300 B median, 14-byte keys, synced, sealed   %6.0f MB/s; write + fdatasync "
           "%6.0f MB/s: %3.0f %% (reach 55)\n",
           rate, floor_rate, 100 * rate / floor_rate);
    printf("its CPU                                             %6.2f s/GB: user %.2f, kernel "
           "%.2f (reach 0.6); write + fdatasync: user %.2f, kernel %.2f\n",
           user + kernel, user, kernel, bench_median(plain_cost.user) / gb,
           bench_median(plain_cost.kernel) / gb);
}

static uint64_t files_size(const char *store)
{
    rks_error err;
    rks_dataset *dataset = NULL;
    bench_must(rks_dataset_load(store, &dataset, &err), &err);
    uint64_t size = 0;
    for (size_t i = 0; i < dataset->shard_count; i++)
        size += dataset->shards[i].file_bytes;
    rks_dataset_free(dataset);
    return size;
}

static void measure_size(const data *d)
{
    char store[4096];
    snprintf(store, sizeof(store), "%s/store", directory);
    double plain = (double)d->total + (double)KEY * SAMPLES, files = (double)files_size(store);
    double allowed = plain + 48.0 * SAMPLES + 0.01 * plain;
    printf("file size, same data                                columns + keys + %.1f bytes a "
           "sample (reach 48 and 1 %%: "
           "%.1f)\n",
           (files - plain) / SAMPLES, (allowed - plain) / SAMPLES);
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct place {
    uint64_t offset;
    uint32_t size;
} place;

/* What a program that knows every offset would do: copy from the map into a batch's buffer. */
static double read_plain(const uint8_t *map, const place *places, bool check)
{
    uint8_t *batch = malloc(64 << 20);
    uint64_t state = 7;
    volatile uint64_t sink = 0;
    double begun = bench_seconds();
    for (int i = 0; i < READS; i++) {
        uint8_t *at = batch;
        for (int k = 0; k < BATCH; k++) {
            const place *p = &places[bench_random(&state) % SAMPLES];
            memcpy(at, map + p->offset, p->size);
            if (check)
                sink += rks_checksum64(at, p->size);
            at += p->size;
        }
    }
    double seconds = bench_seconds() - begun;
    free(batch);
    return seconds;
}

static double read_store(rks_store *store)
{
    rks_error err;
    uint64_t ids[BATCH], state = 7;
    double begun = bench_seconds();
    for (int i = 0; i < READS; i++) {
        rks_batch *batch = NULL;
        for (int k = 0; k < BATCH; k++)
            ids[k] = bench_random(&state) % SAMPLES;
        bench_must(rks_store_fetch(store, ids, BATCH, &batch, &err), &err);
        rks_batch_free(batch);
    }
    return bench_seconds() - begun;
}

static place *find_places(const char *store, const uint8_t **map, rks_shard **shard)
{
    rks_error err;
    rks_dataset *dataset = NULL;
    char path[5000];
    place *places = malloc(SAMPLES * sizeof(*places));
    bench_must(rks_dataset_load(store, &dataset, &err), &err);
    snprintf(path, sizeof(path), "%s/%s.json", store, dataset->shards[0].name);
    bench_must(rks_shard_open(path, shard, &err), &err);
    rks_dataset_free(dataset);
    rks_record_view view;
    bench_must(rks_shard_locate(*shard, 0, &view, &err), &err);
    *map = view.record;
    for (uint64_t row = 0; row < SAMPLES; row++) {
        bench_must(rks_shard_locate(*shard, row, &view, &err), &err);
        places[row] = (place){(uint64_t)(view.payload - *map), (uint32_t)view.payload_size};
    }
    return places;
}

static void measure_reads(void)
{
    rks_error err;
    rks_store *stores[2] = {NULL, NULL};
    rks_shard *shard = NULL;
    const uint8_t *map = NULL;
    char name[4096];
    double seconds[4][ROUNDS];
    snprintf(name, sizeof(name), "%s/store", directory);
    place *places = find_places(name, &map, &shard);
    for (int check = 0; check < 2; check++) {
        rks_store_options options;
        rks_store_options_default(&options);
        options.no_check = check == 0;
        bench_must(rks_store_open(group, name, &options, &stores[check], &err), &err);
    }
    for (int round = -1; round < ROUNDS; round++) /* one to warm up */
        for (int check = 0; check < 2; check++) {
            double plain = read_plain(map, places, check == 1), ours = read_store(stores[check]);
            if (round >= 0) {
                seconds[2 * check][round] = plain;
                seconds[2 * check + 1][round] = ours;
            }
        }
    for (int check = 0; check < 2; check++) {
        double plain = bench_median(seconds[2 * check]),
               ours = bench_median(seconds[2 * check + 1]);
        printf("read random samples, batches of 64, %-9s       %6.2f M samples/s; map + memcpy%s "
               "%.2f M: %3.0f %% (reach "
               "%d)\n",
               check ? "checked" : "unchecked", READS * BATCH / ours / 1e6, check ? " + XXH3" : "",
               READS * BATCH / plain / 1e6, 100 * plain / ours, check ? 70 : 80);
        rks_store_close(stores[check], 0);
    }
    rks_shard_close(shard);
    free(places);
}

/* ---- opening --------------------------------------------------------------------------------- */

static rks_status make_numbers(void *user, uint64_t unit, rks_sink *sink, rks_error *err)
{
    rks_status status = RKS_OK;
    (void)user;
    uint32_t first = (uint32_t)unit * MANY_UNIT;
    for (uint32_t i = first; status == RKS_OK && i < first + MANY_UNIT && i < MANY; i++) {
        rks_value value = {.data = &i, .size = sizeof(i)};
        status = rows_add(sink, &value, NULL, 0, err);
    }
    return status;
}

static void measure_open(void)
{
    rks_error err;
    const made_rows rows = {.make = make_numbers, .units = (MANY + MANY_UNIT - 1) / MANY_UNIT};
    rks_build_options options;
    rks_dataset *dataset = NULL;
    double seconds[ROUNDS];
    char name[4096], path[5000];
    snprintf(name, sizeof(name), "%s/many", directory);
    rks_build_options_default(&options);
    options.schema = "n:uint32";
    bench_must(rows_build(group, name, &options, &rows, NULL, &err), &err);
    bench_must(rks_dataset_load(name, &dataset, &err), &err);
    snprintf(path, sizeof(path), "%s/%s.json", name, dataset->shards[0].name);
    for (int round = 0; round < ROUNDS; round++) {
        rks_shard *shard = NULL;
        double begun = bench_seconds();
        bench_must(rks_shard_open(path, &shard, &err), &err);
        seconds[round] = bench_seconds() - begun;
        rks_shard_close(shard);
    }
    printf("open a shard of 10 M samples                        %6.2f ms (reach 20)\n",
           1e3 * bench_median(seconds));
    rks_dataset_free(dataset);
    rks_directory_remove(name);
}

int main(int argc, char **argv)
{
    rks_error err;
    if (argc != 2) {
        fprintf(stderr, "usage: bench_shard DIRECTORY\n");
        return 2;
    }
    snprintf(directory, sizeof(directory), "%s/rankstore-bench-XXXXXX", argv[1]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    bench_must(rks_group_open(NULL, &group, &err), &err);
    data d = make_data();
    measure_build(&d);
    measure_size(&d);
    measure_reads();
    measure_open();
    free(d.bytes);
    free(d.sizes);
    free(d.keys);
    rks_group_close(group);
    char store[4096];
    snprintf(store, sizeof(store), "%s/store", directory);
    rks_directory_remove(store);
    rks_directory_remove(directory);
    return 0;
}
