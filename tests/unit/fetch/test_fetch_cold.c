/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_cold.c: how an owner reads its disk for others. Rank 0 asks, rank 1 owns shard 0. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shard/shard_check.h"
#include "world.h"

enum { SILENCE_MS = 15000 };

static const int32_t ONE[] = {1, -1}, NOBODY[] = {-1};
static const int32_t *const OWNERS[] = {ONE, NOBODY, NOBODY};

static rks_fetch_server *server;

static int connect_world(void **state)
{
    (void)state;
    world_connect(2, SILENCE_MS);
    return 0;
}

static int disconnect_world(void **state)
{
    (void)state;
    rks_fetch_server_close(server);
    server = NULL;
    world_disconnect();
    return 0;
}

/* Rank 1 serves shard 0 to a job of this many ranks. */
static void serve(uint32_t readers)
{
    rks_shard *shards[WORLD_SHARDS] = {w.shards[0]};
    assert_ok(rks_fetch_server_open(w.engines[1], RKS_SERVICE_FETCH, shards, WORLD_SHARDS, readers,
                                    &server, &err),
              &err);
}

/* Maps all pages of the program and its libraries. The kernel counts a wait for any page, also one
 * that is locked while it is written, as those of a program that has just been linked may be. */
static void map_code(void)
{
    char line[PATH_MAX + 200];
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long begin = 0, end = 0;
        if (sscanf(line, "%lx-%lx r", &begin, &end) == 2 && strchr(line, '/') != NULL &&
            strstr(line, w.directory) == NULL)
            (void)madvise((void *)begin, end - begin, MADV_POPULATE_READ);
    }
    fclose(maps);
}

/* How often threads of this name have waited for a page from the disk. */
static long disk_waits(const char *name)
{
    long sum = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char path[300], text[512] = "";
        long waits = 0;
        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        char *line = fgets(text, sizeof(text), file);
        fclose(file);
        const char *end = line == NULL ? NULL : strrchr(text, ')');
        if (end != NULL && strstr(text, name) != NULL &&
            sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %ld", &waits) == 1)
            sum += waits;
    }
    closedir(tasks);
    return sum;
}

/* Drops most pages of shard 0's records from memory; false: this file system keeps them. */
static bool make_cold(void)
{
    rks_record_view first, last;
    unsigned char resident[1024];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    assert_ok(rks_shard_locate(w.shards[0], 0, &first, &err), &err);
    assert_ok(rks_shard_locate(w.shards[0], WORLD_ROWS - 1, &last, &err), &err);
    uint8_t *begin = (uint8_t *)((uintptr_t)first.record / page * page);
    size_t size = (size_t)(last.record - begin) + last.record_size;
    size_t pages = (size + page - 1) / page;
    assert_true(pages <= sizeof(resident));
    int fd = open(rks_shard_path(w.shards[0]), O_RDONLY | O_CLOEXEC);
    bool cold = false;
    assert_true(fd >= 0);
    for (int i = 0; i < 300 && !cold; i++) { /* while others keep the disk busy */
        size_t left = 0;
        sync(); /* a dirty page stays */
        /* The first drops pages that this map has used, the second those that it has not. */
        if (madvise(begin, size, MADV_PAGEOUT) != 0 ||
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0 ||
            mincore(begin, size, resident) != 0)
            break;
        for (size_t k = 0; k < pages; k++)
            left += resident[k] & 1;
        cold = left <= pages / 4; /* pages at the edges may stay */
        if (!cold)
            usleep(10000);
    }
    close(fd);
    return cold;
}

static void make_warm(void)
{
    static uint8_t bytes[1 << 16];
    int fd = open(rks_shard_path(w.shards[0]), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while (read(fd, bytes, sizeof(bytes)) > 0)
        ;
    close(fd);
}

/* Fetches `count` rows of shard 0 from `first` on, each `step` after the last, in one request. */
static void fetch_rows(rks_fetcher *fetcher, uint64_t first, uint64_t step, size_t count)
{
    uint64_t ids[100];
    rks_wanted wanted[100];
    rks_batch *batch = NULL;
    assert_true(count <= sizeof(ids) / sizeof(ids[0]));
    for (size_t i = 0; i < count; i++)
        ids[i] = first + i * step;
    world_wanted_many(ids, count, wanted);
    assert_ok(world_fetch(fetcher, wanted, count, &batch, &err), &err);
    world_check_batch(batch, ids, count);
    rks_batch_free(batch);
}

/* A quarter of the rows, from all over the shard. */
static void fetch_of_shard_0(rks_fetcher *fetcher)
{
    fetch_rows(fetcher, 0, 4, WORLD_ROWS / 4);
}

static void cold_rows_are_read_by_the_pool(void **state)
{
    (void)state;
    serve(1);
    if (!make_cold())
        skip();
    rks_fetcher *fetcher = world_fetcher(0, OWNERS);
    map_code();
    long engine = disk_waits("rks-engine");
    uint64_t reads = 0, bytes = 0, more = 0;
    rks_shard_forget(w.shards[0], 0, UINT64_MAX); /* what other tests found in memory */
    fetch_of_shard_0(fetcher);
    assert_int_equal(disk_waits("rks-engine"), engine);
    rks_fetch_server_disk(server, &reads, &bytes);
    assert_true(reads > 0 && bytes > 0); /* asked for before anybody waits */
    make_warm();
    for (int i = 0; i < 3; i++) /* a piece that was cold is not looked at again at once */
        fetch_of_shard_0(fetcher);
    assert_int_equal(disk_waits("rks-engine"), engine);
    if (!make_cold())
        goto out;
    fetch_of_shard_0(fetcher); /* the engine's thread waits, and notices */
    assert_true(disk_waits("rks-engine") > engine);
    if (!make_cold())
        goto out;
    engine = disk_waits("rks-engine");
    rks_fetch_server_disk(server, &reads, &bytes);
    fetch_of_shard_0(fetcher);
    assert_int_equal(disk_waits("rks-engine"), engine);
    rks_fetch_server_disk(server, &more, &bytes);
    assert_true(more > reads);
out:
    rks_fetcher_close(fetcher);
}

/* ---- streams ------------------------------------------------------------------------------- */

enum { BATCH = 50 };

/* The share of the pages inside of rows [first, first + BATCH) that are in memory. */
static double share_in_memory(uint64_t first)
{
    unsigned char resident[1024];
    uint64_t begin = 0, end = 0, other = 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), found = 0;
    assert_true(rks_shard_extent(w.shards[0], first, &begin, &other));
    assert_true(rks_shard_extent(w.shards[0], first + BATCH - 1, &other, &end));
    begin = (begin + page - 1) / page * page;
    size_t pages = (size_t)(end - begin) / page;
    assert_true(pages > 0 && pages <= sizeof(resident));
    assert_int_equal(mincore((void *)(uintptr_t)(rks_shard_map(w.shards[0])->bytes + begin),
                             pages * page, resident),
                     0);
    for (size_t i = 0; i < pages; i++)
        found += resident[i] & 1;
    return (double)found / (double)pages;
}

/* Rank 0 asks for every second batch. Returns whether the last batch that it left out was read. */
static bool left_out_is_read(uint32_t readers)
{
    serve(readers);
    rks_fetcher *fetcher = world_fetcher(0, OWNERS);
    rks_shard_forget(w.shards[0], 0, UINT64_MAX);
    for (uint64_t first = 0; first + BATCH <= WORLD_ROWS; first += 2 * BATCH)
        fetch_rows(fetcher, first, 1, BATCH);
    double share = share_in_memory(WORLD_ROWS - 3 * BATCH);
    rks_fetcher_close(fetcher);
    return share > 0.9;
}

/* If two ranks take turns in a file, the owner reads what lies between the batches of one, too: the
 * other will ask for it. */
static void requests_in_file_order_are_read_as_a_stream(void **state)
{
    (void)state;
    if (!make_cold())
        skip();
    assert_true(left_out_is_read(2));
}

static void a_single_reader_gets_what_it_asks_for_and_no_more(void **state)
{
    (void)state;
    if (!make_cold())
        skip();
    assert_false(left_out_is_read(1));
}

#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, connect_world, disconnect_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED(cold_rows_are_read_by_the_pool),
        CONNECTED(requests_in_file_order_are_read_as_a_stream),
        CONNECTED(a_single_reader_gets_what_it_asks_for_and_no_more),
    };
    return cmocka_run_group_tests_name("fetch_cold", tests, world_begin, world_end);
}
