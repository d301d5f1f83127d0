/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_shards.c: opening a directory of many small shards, beside reading the same files plainly.
 *
 * Usage: bench_shards DIRECTORY [SHARDS [RANKS]]
 *
 * Builds SHARDS shards of 3 samples (10000) in a new directory below DIRECTORY, and opens them by
 * RANKS processes of one node (1), ROUNDS times, in turn with the plain way; removes them at the
 * end. The plain way is one process that reads each manifest and the first two pages of each file,
 * and maps it. Maps are those of the rank with most of them, by /proc/self/maps. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"
#include "dataset/build_directory.h"
#include "support/shards.h"

enum { PAGES = 8192 };

/* Of one open: the slowest rank's seconds, the CPU of all, and most maps of a rank. */
typedef struct figures {
    double seconds, cpu;
    uint64_t maps;
} figures;

static char directory[3000];
static uint32_t shards = 10000, ranks = 1;
static int results; /* a pipe: rank 0 writes the figures */

static void make_shards(void)
{
    char (*names)[16] = calloc(shards, sizeof(*names));
    const char **list = calloc(shards, sizeof(*list));
    for (uint32_t i = 0; i < shards; i++) {
        shards_recipe recipe = {
            .first = 3 * (uint64_t)i, .samples = 3, .units = 1, .first_unit = i};
        snprintf(names[i], sizeof(names[i]), "part-%06u", i);
        list[i] = names[i];
        shards_write(directory, names[i], &recipe);
    }
    shards_commit(directory, list, shards);
    free(list);
    free(names);
}

/* ---- the store ---------------------------------------------------------------------------------
 */

static uint64_t count_maps(void)
{
    char *line = NULL;
    size_t room = 0;
    uint64_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && getline(&line, &room, maps) > 0)
        count += strstr(line, directory) != NULL;
    free(line);
    if (maps != NULL)
        fclose(maps);
    return count;
}

static void report(rks_group *group, const figures *own)
{
    rks_error err;
    rks_gathered all = {0};
    figures sum = {0}, one;
    bench_must(rks_group_allgather(group, "figures", RKS_OK, own, sizeof(*own), &all, &err), &err);
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        memcpy(&one, all.bytes + all.offsets[rank], sizeof(one));
        sum.seconds = one.seconds > sum.seconds ? one.seconds : sum.seconds;
        sum.maps = one.maps > sum.maps ? one.maps : sum.maps;
        sum.cpu += one.cpu;
    }
    rks_release(all.bytes);
    rks_release(all.offsets);
    if (rks_group_rank(group) == 0 && write(results, &sum, sizeof(sum)) != sizeof(sum))
        exit(3);
}

static int open_store(const rks_bootstrap *bootstrap, void *user)
{
    rks_error err;
    rks_group *group = NULL;
    rks_store *store = NULL;
    rks_group_options options;
    figures own;
    (void)user;
    rks_group_options_default(&options);
    options.bootstrap = bootstrap;
    bench_must(rks_group_open(&options, &group, &err), &err);
    double begun = bench_seconds(), used = bench_cpu();
    bench_must(rks_store_open(group, directory, NULL, &store, &err), &err);
    own = (figures){bench_seconds() - begun, bench_cpu() - used, count_maps()};
    report(group, &own);
    rks_store_close(store, 0);
    rks_group_close(group);
    return 0;
}

static figures open_once(void)
{
    rks_error err;
    int code = 0, ends[2];
    figures found;
    if (pipe(ends) != 0)
        exit(3);
    results = ends[1];
    bench_must(rks_launch(ranks, open_store, NULL, &code, &err), &err);
    close(ends[1]);
    if (code != 0 || read(ends[0], &found, sizeof(found)) != sizeof(found))
        exit(3);
    close(ends[0]);
    return found;
}

/* ---- the plain way ------------------------------------------------------------------------------
 */

static int open_part(uint32_t number, const char *end, off_t *size)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof(path), "%s/part-%06u%s", directory, number, end);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0)
        exit(3);
    *size = info.st_size;
    return fd;
}

static void read_part(int fd, size_t size)
{
    static uint8_t bytes[1 << 16];
    if (pread(fd, bytes, size < sizeof(bytes) ? size : sizeof(bytes), 0) <= 0)
        exit(3);
}

static figures read_plainly(void)
{
    void **maps = calloc(shards, sizeof(*maps));
    size_t *sizes = calloc(shards, sizeof(*sizes));
    double begun = bench_seconds(), used = bench_cpu();
    for (uint32_t i = 0; i < shards; i++) {
        off_t size = 0;
        int fd = open_part(i, ".json", &size);
        read_part(fd, (size_t)size);
        close(fd);
        fd = open_part(i, ".rks", &size);
        read_part(fd, PAGES);
        sizes[i] = (size_t)size;
        maps[i] = mmap(NULL, sizes[i], PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    figures found = {bench_seconds() - begun, bench_cpu() - used, shards};
    for (uint32_t i = 0; i < shards; i++)
        munmap(maps[i], sizes[i]);
    free(sizes);
    free(maps);
    return found;
}

int main(int argc, char **argv)
{
    double seconds[ROUNDS], cpu[ROUNDS], plain_seconds[ROUNDS], plain_cpu[ROUNDS];
    uint64_t maps = 0;
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: bench_shards DIRECTORY [SHARDS [RANKS]]\n");
        return 2;
    }
    shards = argc > 2 ? (uint32_t)atol(argv[2]) : shards;
    ranks = argc > 3 ? (uint32_t)atol(argv[3]) : ranks;
    snprintf(directory, sizeof(directory), "%s/bench-shards-XXXXXX", argv[1]);
    if (shards == 0 || ranks == 0 || mkdtemp(directory) == NULL) {
        perror(directory);
        return 3;
    }
    make_shards();
    for (int i = 0; i < ROUNDS; i++) {
        figures plain = read_plainly(), found = open_once();
        plain_seconds[i] = plain.seconds;
        plain_cpu[i] = plain.cpu;
        seconds[i] = found.seconds;
        cpu[i] = found.cpu;
        maps = found.maps;
    }
    rks_directory_remove(directory);
    printf("%u shards, %u ranks of one node: open %.3f s, %.3f s of processor, %.2f maps a shard\n",
           shards, ranks, bench_median(seconds), bench_median(cpu), (double)maps / shards);
    printf("their files read plainly, by one process: %.3f s, %.3f s of processor\n",
           bench_median(plain_seconds), bench_median(plain_cpu));
    return 0;
}
