/* SPDX-License-Identifier: Apache-2.0
 *
 * test_failed_sync.c: a shard whose file cannot be synced at its end. What was written then may be
 * lost, though the page cache shows it: nothing may count as here before it was checked and written
 * again. What a disk has lost is zeros here, written behind the arrival's back. */
#include "support/check.h"
#include "support/shards.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "failing_fsync.h"
#include "home/arrivals.h"
#include "shard/shard_check.h"

enum { SAMPLES = 1000, LIMIT_MS = 120000 };

static rks_error err;
static rks_home *home;
static rks_home_ops ops; /* of home, with a read of the test's own */
static char local[256];
static rks_arrival_wish wish;
static uint64_t pieces_count;
static uint8_t *room;
static void (*on_read)(void); /* during each read from home; NULL: nothing */

static rks_status read_and_tell(void *state, rks_home_read *read, rks_error *why)
{
    if (on_read != NULL)
        on_read();
    return rks_home_directory.read(state, read, why);
}

static int begin(void **state)
{
    static const rks_home_limits limits = {.stall_ms = LIMIT_MS, .timeout_ms = LIMIT_MS};
    const shards_recipe recipe = {.samples = SAMPLES, .units = 4, .wide_every = 1};
    if (shards_begin(state) != 0)
        return -1;
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    snprintf(local, sizeof(local), "%s/local", shards_here);
    assert_int_equal(mkdir(local, 0755), 0);
    assert_ok(rks_home_open(shards_here, &limits, &home, &err), &err);
    ops = *home->ops;
    ops.read = read_and_tell;
    home->ops = &ops;
    on_read = NULL;
    wish = (rks_arrival_wish){.home = home,
                              .directory = local,
                              .name = "a",
                              .manifest = rks_shard_manifest_digest(shard)};
    rks_shard_close(shard);
    room = rks_alloc_raw(RKS_ARRIVAL_PIECES, RKS_PIECE, &err);
    assert_non_null(room);
    return 0;
}

static int end(void **state)
{
    char command[512];
    atomic_store(&fsync_fails, 0);
    rks_free(room);
    rks_home_close(home);
    snprintf(command, sizeof(command), "rm -rf '%s'", local);
    return system(command) != 0 ? -1 : shards_end(state);
}

static rks_arrival *open_arrival(void)
{
    rks_arrival *arrival = NULL;
    bool whole = true;
    assert_ok(rks_arrival_open(&wish, &arrival, &whole, &err), &err);
    assert_false(whole);
    pieces_count = rks_pieces_count(rks_arrival_pieces(arrival));
    return arrival;
}

static uint64_t bring(rks_arrival *arrival, uint64_t first, uint64_t count)
{
    uint64_t brought = 0, all = 0;
    for (uint64_t i = first; i < first + count; i++) {
        assert_ok(rks_arrival_bring(arrival, i, 1, room, &brought, &err), &err);
        all += brought;
    }
    return all;
}

static void bring_head(rks_arrival *arrival)
{
    uint64_t brought = 0;
    assert_ok(rks_arrival_bring_head(arrival, room, &brought, &err), &err);
}

static rks_shard *open_shard(rks_arrival *arrival)
{
    rks_shard *shard = NULL;
    char *path = rks_arrival_path(arrival, &err);
    assert_ok(rks_shard_open_arriving(path, rks_arrival_pieces(arrival), &shard, &err), &err);
    rks_free(path);
    return shard;
}

static void lose(uint64_t first, size_t size)
{
    char *zeros = rks_alloc(size, 1, &err), path[300];
    snprintf(path, sizeof(path), "%s/a.arriving", local);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, zeros, size, (off_t)first), size);
    close(fd);
    rks_free(zeros);
}

static bool is_missing(const char *file)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/%s", local, file);
    return access(path, F_OK) != 0;
}

/* What the sync lost is brought again; what it did not is only written again. */
static void pieces_are_checked_and_written_again(void **state)
{
    (void)state;
    rks_arrival *arrival = open_arrival();
    rks_pieces *pieces = rks_arrival_pieces(arrival);
    bring_head(arrival);
    bring(arrival, 0, pieces_count);
    atomic_store(&fsync_fails, 1);
    assert_fails(RKS_ERR_IO, rks_arrival_finish(arrival, &err));
    assert_contains(err.text, "a.arriving");
    assert_true(is_missing("a.json") && is_missing("a.rks"));
    assert_int_equal(rks_pieces_doubts(pieces), 1);
    assert_false(rks_pieces_sealed(pieces));
    for (uint64_t i = 0; i < pieces_count; i++)
        assert_int_equal(rks_pieces_get(pieces, i), RKS_PIECE_CLAIMED);
    assert_fails(RKS_ERR_IO, rks_arrival_finish(arrival, &err)); /* nothing is here */
    assert_true(is_missing("a.json") && is_missing("a.rks"));
    lose(2 * RKS_PIECE + 4096, 4096);
    assert_int_equal(bring(arrival, 0, pieces_count), RKS_PIECE);
    assert_ok(rks_arrival_finish(arrival, &err), &err);
    assert_true(rks_pieces_sealed(pieces));
    assert_true(is_missing("a.pieces"));
    rks_arrival_close(arrival);
    shards_same(shards_here, local, "a");
}

/* Else zeros could be read as data as soon as the pages go. */
static void a_shard_arrives_until_it_is_sealed(void **state)
{
    (void)state;
    uint64_t first = 0, stop = 0;
    size_t budget = SIZE_MAX;
    rks_arrival *arrival = open_arrival();
    bring_head(arrival);
    bring(arrival, 0, pieces_count);
    rks_shard *shard = open_shard(arrival);
    assert_false(rks_shard_lacks(shard, 7, &first, &stop));
    (void)rks_shard_scan(shard, &budget);
    assert_true(rks_shard_arrives(shard));
    atomic_store(&fsync_fails, 1);
    assert_fails(RKS_ERR_IO, rks_arrival_finish(arrival, &err));
    (void)rks_shard_scan(shard, &budget);
    assert_true(rks_shard_arrives(shard));
    for (uint64_t row = 0; row < SAMPLES; row++)
        assert_true(rks_shard_lacks(shard, row, &first, &stop));
    bring(arrival, 0, pieces_count);
    for (uint64_t row = 0; row < SAMPLES; row++)
        assert_false(rks_shard_lacks(shard, row, &first, &stop));
    assert_ok(rks_arrival_finish(arrival, &err), &err);
    (void)rks_shard_scan(shard, &budget);
    assert_false(rks_shard_arrives(shard));
    rks_shard_close(shard);
    rks_arrival_close(arrival);
}

/* They and the index lie in the file without a mark: only the process that read them knows them. */
static void records_and_index_that_came_alone_are_forgotten(void **state)
{
    (void)state;
    uint64_t first = 0, stop = 0, place = 0;
    rks_arrival *arrival = open_arrival();
    rks_pieces *pieces = rks_arrival_pieces(arrival);
    bring_head(arrival);
    rks_shard *shard = open_shard(arrival);
    assert_true(rks_shard_lacks(shard, 7, &first, &stop));
    rks_shard_note_record(shard, 7, rks_pieces_doubts(pieces));
    assert_false(rks_shard_lacks(shard, 7, &place, &stop));
    assert_true(rks_shard_lacks(shard, 8, &place, &stop));
    rks_pieces_doubt(pieces); /* as another process does */
    rks_shard_note_record(shard, 9, 0);
    place = rks_shard_place(shard, 7);
    lose(place / RKS_PIECE * RKS_PIECE, 4096); /* of the last, short piece */
    /* the index first, where it lies; then what it says */
    uint64_t parts = 0;
    for (; rks_shard_lacks(shard, 7, &first, &stop) && first >= place / 4096 * 4096; parts++)
        bring(arrival, first / RKS_PIECE, (stop - 1) / RKS_PIECE - first / RKS_PIECE + 1);
    assert_in_range(parts, 1, 2);
    assert_true(rks_shard_lacks(shard, 7, &first, &stop));
    assert_true(rks_shard_lacks(shard, 9, &first, &stop));
    rks_shard_note_record(shard, 7, rks_pieces_doubts(pieces));
    assert_false(rks_shard_lacks(shard, 7, &first, &stop));
    rks_shard_close(shard);
    rks_arrival_close(arrival);
}

static rks_pieces *doubted;

static void doubt(void)
{
    rks_pieces_doubt(doubted);
}

/* Another process finds, while this one brings a piece, that it cannot sync. */
static void a_piece_that_was_on_its_way_is_no_exception(void **state)
{
    (void)state;
    rks_arrival *arrival = open_arrival();
    doubted = rks_arrival_pieces(arrival);
    on_read = doubt;
    bring(arrival, 1, 1);
    assert_int_equal(rks_pieces_get(doubted, 1), RKS_PIECE_CLAIMED);
    on_read = NULL;
    assert_int_equal(bring(arrival, 1, 1), 0);
    assert_int_equal(rks_pieces_get(doubted, 1), RKS_PIECE_HERE);
    rks_arrival_close(arrival);
}

static uint64_t all_right(const rks_need *need, const uint8_t *bytes, uint64_t size)
{
    (void)need;
    (void)bytes;
    return size;
}

static atomic_int came;
static uint32_t came_with;

static void note_need(rks_need *need, bool alone, const rks_error *why)
{
    came_with = alone && why->status == RKS_OK ? need->doubts : UINT32_MAX;
    atomic_fetch_add(&came, 1);
}

static void read_slowly(void)
{
    usleep(20000);
}

/* The set fails, and says so; a later one brings what lacks. A record says when it was read. */
static void a_set_goes_on_after_a_failed_sync(void **state)
{
    (void)state;
    rks_arrivals *set = NULL;
    bool reached = false;
    rks_need need = {.first = 100, .end = 200, .check = all_right, .here = note_need};
    atomic_store(&came, 0);
    on_read = read_slowly; /* behind a slow link records come alone */
    assert_ok(rks_arrivals_open(&wish, 1, true, &set, &err), &err);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_HEADS, LIMIT_MS, &reached, &err), &err);
    rks_pieces_doubt(rks_arrival_pieces(rks_arrivals_get(set, 0)));
    rks_arrivals_need(set, &need);
    while (atomic_load(&came) == 0)
        usleep(1000);
    assert_int_equal(came_with, 1);
    atomic_store(&fsync_fails, 1);
    rks_arrivals_go(set, true);
    assert_fails(RKS_ERR_IO, rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &reached, &err));
    assert_contains(err.text, "a.arriving");
    rks_arrivals_close(set);
    assert_true(is_missing("a.json"));
    assert_ok(rks_arrivals_open(&wish, 1, false, &set, &err), &err);
    assert_ok(rks_arrivals_wait(set, RKS_ARRIVALS_WHOLE, LIMIT_MS, &reached, &err), &err);
    assert_true(reached);
    rks_arrivals_close(set);
    shards_same(shards_here, local, "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pieces_are_checked_and_written_again, begin, end),
        cmocka_unit_test_setup_teardown(a_shard_arrives_until_it_is_sealed, begin, end),
        cmocka_unit_test_setup_teardown(records_and_index_that_came_alone_are_forgotten, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_piece_that_was_on_its_way_is_no_exception, begin, end),
        cmocka_unit_test_setup_teardown(a_set_goes_on_after_a_failed_sync, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
