/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_ingest.c: how fast inputs become samples, beside what the library that reads them takes
 * for the same bytes: libarchive for members, zlib or libarchive for what is packed, simdjson for
 * JSON, read() for plain files. It prints the README's table; aimed at are 70 %.
 *
 * What is measured is rks_input_open() and rks_ingest_unit() of all units, schema given, on one
 * thread, with the calls of the unit's writer replaced by a count (ld --wrap): writing a shard
 * is bench_shard's. Rates are of unpacked bytes by seconds of that thread's processor, so that
 * other programs disturb little; libarchive's copying of members' bytes is asked of both sides.
 *
 * Usage: bench_ingest DIRECTORY [INPUT] (on a disk with 300 MB to spare; what it makes there is
 * removed) */
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "bench.h"
#include "ingest/ingest.h"
#include "ingest_inputs.h"
#include "support/counting_writer.h"
#include "support/folder.h"

static char directory[3000];

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct plan {
    char *schema_text;
    rks_schema *schema;
} plan;

static void find_schema(const char *path, plan *made)
{
    rks_error err;
    rks_input *opened = NULL;
    rks_ingest_options options = {0};
    bench_must(rks_input_open(&path, 1, &options, &opened, &err), &err);
    bench_must(rks_ingest_infer(opened, 0, &made->schema_text, &err), &err);
    bench_must(rks_schema_parse(made->schema_text, &made->schema, &err), &err);
    rks_input_free(opened);
}

static void read_by_us(const char *path, const plan *with)
{
    rks_error err;
    rks_input *opened = NULL;
    rks_selector *selector = NULL;
    rks_buffer bad = {0};
    rks_ingest_options options = {0};
    options.schema = with->schema_text;
    bench_must(rks_input_open(&path, 1, &options, &opened, &err), &err);
    rks_input_options(opened, &options);
    bench_must(rks_selector_create(with->schema, &options, &selector, &err), &err);
    const rks_ingest_reading reading = {opened, with->schema, &options, selector, &bad};
    for (size_t unit = 0; unit < opened->unit_count; unit++)
        bench_must(rks_ingest_unit(&reading, unit, 0, NULL, NULL, NULL, &err), &err);
    rks_selector_free(selector);
    rks_buffer_free(&bad);
    rks_input_free(opened);
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double on_disk;

static int add_size(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)path, (void)at;
    on_disk += kind == FTW_F ? (double)info->st_size : 0;
    return 0;
}

/* 1,234,567 */
static const char *with_commas(uint64_t number, char text[32])
{
    char digits[24];
    int size = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
    char *to = text;
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return text;
}

/* A row of the README's table. */
static void measure(const input *in)
{
    on_disk = 0;
    char folder[4096], path[4200];
    double ours[ROUNDS], theirs[ROUNDS];
    plan with = {0};
    snprintf(folder, sizeof(folder), "%s/input", directory);
    snprintf(path, sizeof(path), "%s/%s", folder, in->name);
    if (mkdir(folder, 0700) != 0) {
        perror(folder);
        exit(3);
    }
    uint64_t size = in->make(in, path);
    nftw(folder, add_size, 16, FTW_PHYS);
    find_schema(path, &with);
    for (int round = -1; round < ROUNDS; round++) { /* one to warm up */
        double begun = thread_seconds();
        in->read(in, path);
        double between = thread_seconds();
        counted = (counted_samples){0};
        read_by_us(path, &with);
        if (round >= 0) {
            theirs[round] = between - begun;
            ours[round] = thread_seconds() - between;
        }
    }
    double mb = (double)size / 1e6, us = bench_median(ours), them = bench_median(theirs);
    char rows[32], our_rate[32], their_rate[32];
    printf("| %s | %.1f MB (%.1f) | %s | %s MB/s | %s MB/s, %s | %.0f %% |\n", in->name, mb,
           on_disk / 1e6, with_commas(counted.samples, rows),
           with_commas((uint64_t)(mb / us), our_rate),
           with_commas((uint64_t)(mb / them), their_rate), in->library, 100 * them / us);
    fflush(stdout);
    rks_schema_free(with.schema);
    rks_free(with.schema_text);
    folder_remove(folder);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: bench_ingest DIRECTORY [INPUT]\n");
        return 2;
    }
    snprintf(directory, sizeof(directory), "%s/rankstore-bench-XXXXXX", argv[1]);
    if (mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    printf("| input | size (on disk) | samples | Rankstore | the library | share |\n"
           "|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < INPUT_COUNT; i++)
        if (argc == 2 || strcmp(argv[2], INPUTS[i].name) == 0)
            measure(&INPUTS[i]);
    rmdir(directory);
    return 0;
}
