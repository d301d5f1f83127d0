/* SPDX-License-Identifier: Apache-2.0
 *
 * test_holes.c: what a reader of an arriving file may meet: pages of a hole that are in memory
 * before their piece comes, a file that gets its name under a stream, and a file at home that is
 * replaced while it is read. A row is right or is not here. */
#include "support/check.h"
#include "support/shards.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "home/arrivals.h"

enum { SAMPLES = 1000, LIMIT_MS = 120000, READ_REPLACED = 3 };

static const shards_recipe recipe = {.samples = SAMPLES, .units = 4, .wide_every = 1};
static rks_error err;
static rks_home *home;
static rks_home_ops ops; /* of home, with a read of the test's own */
static char local[256], other[256];
static rks_arrival_wish wish;
static uint8_t *room;
static atomic_int reads; /* of pieces from home, by several threads */
static int replaced_at;  /* the read before which `other` becomes the file; 0: none */

/* The file at home becomes another one between two reads of it. */
static rks_status read_and_replace(void *state, rks_home_read *read, rks_error *why)
{
    const size_t size = strlen(read->name);
    const bool of_data = size > 4 && strcmp(read->name + size - 4, ".rks") == 0;
    if (of_data && atomic_fetch_add(&reads, 1) + 1 == replaced_at)
        (void)rename(other, shards_path("a.rks"));
    return rks_home_directory.read(state, read, why);
}

static int begin(void **state)
{
    static const rks_home_limits limits = {.stall_ms = LIMIT_MS, .timeout_ms = LIMIT_MS};
    if (shards_begin(state) != 0)
        return -1;
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    snprintf(local, sizeof(local), "%s/local", shards_here);
    snprintf(other, sizeof(other), "%s/other", shards_here);
    assert_int_equal(mkdir(local, 0755), 0);
    assert_ok(rks_home_open(shards_here, &limits, &home, &err), &err);
    ops = *home->ops;
    ops.read = read_and_replace;
    home->ops = &ops;
    atomic_store(&reads, 0);
    replaced_at = 0;
    wish = (rks_arrival_wish){.home = home,
                              .directory = local,
                              .name = "a",
                              .manifest = rks_shard_manifest_digest(shard),
                              .dataset = "dataset 1a2b3c4d, generation 7"};
    rks_shard_close(shard);
    room = rks_alloc_raw(RKS_ARRIVAL_PIECES, RKS_PIECE, &err);
    assert_non_null(room);
    return 0;
}

static int end(void **state)
{
    char command[1024];
    rks_free(room);
    rks_home_close(home);
    snprintf(command, sizeof(command), "rm -rf '%s' '%s'", local, other);
    return system(command) != 0 ? -1 : shards_end(state);
}

/* The arrival, of which only the head is here. */
static rks_arrival *open_arrival(rks_shard **shard)
{
    rks_arrival *arrival = NULL;
    bool whole = true;
    uint64_t brought = 0;
    assert_ok(rks_arrival_open(&wish, &arrival, &whole, &err), &err);
    assert_false(whole);
    assert_ok(rks_arrival_bring_head(arrival, room, &brought, &err), &err);
    char *path = rks_arrival_path(arrival, &err);
    assert_ok(rks_shard_open_arriving(path, rks_arrival_pieces(arrival), shard, &err), &err);
    rks_free(path);
    return arrival;
}

/* Returns true if the row is here; then it must be right. */
static bool is_here(rks_shard *shard, uint64_t row)
{
    uint64_t first = 0, stop = 0;
    rks_record_view view;
    if (rks_shard_lacks(shard, row, &first, &stop)) {
        assert_fails(RKS_ERR_STATE, rks_shard_locate(shard, row, &view, &err));
        return false;
    }
    assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
    assert_false(rks_shard_faulted(shard, view.record, view.record_size));
    assert_true(shards_payload_right(&recipe, rks_shard_schema(shard), row, view.payload,
                                     view.payload_size));
    return true;
}

static uint64_t count_here(rks_shard *shard)
{
    uint64_t count = 0;
    for (uint64_t row = 0; row < SAMPLES; row++)
        count += is_here(shard, row);
    return count;
}

/* ---- holes ----------------------------------------------------------------------------------- */

/* Reads every page of the file by a map and by calls: those of holes are zeros in memory then. */
static void touch(const char *ending, uint64_t size)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/a.%s", local, ending);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    const volatile uint8_t *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    for (uint64_t at = 0; at < size; at += 4096)
        (void)map[at];
    for (uint64_t at = 0; at < size; at += RKS_PIECE)
        assert_true(pread(fd, room, RKS_PIECE, (off_t)at) > 0);
    munmap((void *)(uintptr_t)map, (size_t)size);
    close(fd);
}

static void touch_by_the_shard(rks_shard *shard, uint64_t size)
{
    size_t budget = SIZE_MAX;
    rks_resident_stream stream = {0};
    assert_true(rks_shard_stream_to(&stream, shard, 0, size, NULL));
    rks_resident_stream_end(&stream);
    (void)rks_shard_scan(shard, &budget);
    assert_true(rks_shard_arrives(shard));
    assert_false(rks_shard_in_memory(shard, 0, size)); /* though its pages are */
}

static void a_hole_that_was_touched_is_not_read(void **state)
{
    (void)state;
    rks_shard *shard = NULL;
    rks_arrival *arrival = open_arrival(&shard);
    const uint64_t size = rks_arrival_size(arrival);
    const uint64_t pieces = rks_pieces_count(rks_arrival_pieces(arrival));
    uint64_t before = count_here(shard), brought = 0;
    assert_true(before < SAMPLES);
    for (uint64_t piece = 0; piece < pieces; piece++) {
        touch("arriving", size);
        touch_by_the_shard(shard, size);
        assert_int_equal(count_here(shard), before);
        assert_ok(rks_arrival_bring(arrival, piece, 1, room, &brought, &err), &err);
        const uint64_t now = count_here(shard);
        assert_true(now >= before);
        before = now;
    }
    assert_int_equal(before, SAMPLES);
    rks_shard_close(shard);
    rks_arrival_close(arrival);
}

/* ---- a new name ------------------------------------------------------------------------------ */

typedef struct streaming {
    rks_shard *shard;
    uint64_t size;
    atomic_bool stop;
    atomic_int rounds, failures;
} streaming;

static void *stream_on(void *user)
{
    streaming *s = user;
    while (!atomic_load(&s->stop)) {
        rks_resident_stream stream = {0};
        rks_shard_drop(s->shard);
        if (!rks_shard_stream_to(&stream, s->shard, 0, s->size, NULL))
            atomic_fetch_add(&s->failures, 1);
        rks_resident_stream_end(&stream);
        atomic_fetch_add(&s->rounds, 1);
    }
    return NULL;
}

static void wait_for_rounds(streaming *s, int more)
{
    const int wanted = atomic_load(&s->rounds) + more;
    while (atomic_load(&s->rounds) < wanted)
        usleep(500);
}

static void a_file_gets_its_name_under_a_stream(void **state)
{
    (void)state;
    streaming s = {0};
    pthread_t thread;
    uint64_t brought = 0;
    rks_arrival *arrival = open_arrival(&s.shard);
    s.size = rks_arrival_size(arrival);
    assert_int_equal(pthread_create(&thread, NULL, stream_on, &s), 0);
    for (uint64_t i = 0; i < rks_pieces_count(rks_arrival_pieces(arrival)); i++)
        assert_ok(rks_arrival_bring(arrival, i, 1, room, &brought, &err), &err);
    wait_for_rounds(&s, 1);
    assert_ok(rks_arrival_finish(arrival, &err), &err);
    wait_for_rounds(&s, 2);
    assert_int_equal(count_here(s.shard), SAMPLES);
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&s.failures), 0);
    rks_shard_close(s.shard);
    rks_arrival_close(arrival);
}

/* ---- another file at home -------------------------------------------------------------------- */

static rks_status bring_all(void)
{
    rks_arrivals *set = NULL;
    bool reached = false;
    assert_ok(rks_arrivals_open(&wish, 1, false, &set, &err), &err);
    rks_status status = rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &reached, &err);
    rks_arrivals_close(set);
    return status;
}

/* Every row that counts as here is right, whatever home holds. */
static void look_at_what_came(void)
{
    rks_shard *shard = NULL;
    char sealed[300];
    snprintf(sealed, sizeof(sealed), "%s/a.json", local);
    if (access(sealed, F_OK) == 0)
        return; /* shards_same looks at it */
    rks_arrival *arrival = open_arrival(&shard);
    (void)count_here(shard);
    rks_shard_close(shard);
    rks_arrival_close(arrival);
}

/* `turn` is added to each byte of the other file: 0: only its inode is another one. */
static void replace_at_home(uint8_t turn)
{
    size_t size = 0;
    uint8_t *bytes = shards_load(shards_here, "a.rks", &size);
    uint8_t *turned = malloc(size);
    assert_non_null(turned);
    for (size_t i = 0; i < size; i++)
        turned[i] = (uint8_t)(bytes[i] + turn);
    shards_store(shards_here, "other", turned, size);
    replaced_at = READ_REPLACED;
    const rks_status status = bring_all();
    assert_true(atomic_load(&reads) >= READ_REPLACED);
    replaced_at = 0;
    if (turn == 0)
        assert_ok(status, &err);
    if (status != RKS_OK) {
        assert_int_equal(status, RKS_ERR_CORRUPT);
        assert_contains(err.text, "a.rks: the MiB at offset ");
        assert_contains(err.text, "is not the one that was published");
        assert_contains(err.text, "(dataset 1a2b3c4d, generation 7)");
    }
    look_at_what_came();
    shards_store(shards_here, "other", bytes, size);
    assert_int_equal(rename(other, shards_path("a.rks")), 0);
    free(bytes);
    free(turned);
    assert_ok(bring_all(), &err);
    shards_same(shards_here, local, "a");
}

static void a_file_that_is_replaced_at_home_comes_whole_or_not_at_all(void **state)
{
    (void)state;
    replace_at_home(1);
}

static void the_same_bytes_in_another_file_go_on(void **state)
{
    (void)state;
    replace_at_home(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_hole_that_was_touched_is_not_read, begin, end),
        cmocka_unit_test_setup_teardown(a_file_gets_its_name_under_a_stream, begin, end),
        cmocka_unit_test_setup_teardown(a_file_that_is_replaced_at_home_comes_whole_or_not_at_all,
                                        begin, end),
        cmocka_unit_test_setup_teardown(the_same_bytes_in_another_file_go_on, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
