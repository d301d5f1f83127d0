/* SPDX-License-Identifier: Apache-2.0
 *
 * test_readahead.c: ids whose samples are read from the disk long before they are fetched. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fetch/readahead.h"
#include "fetch/batch.h"
#include "fetch/fetcher.h"
#include "shard/shard_state.h"
#include "world.h"

enum { IDS = WORLD_SHARDS * WORLD_ROWS };

static uint32_t ids[IDS];

static bool find_id(void *user, uint32_t id, uint32_t *shard, uint64_t *row)
{
    (void)user;
    *shard = id / WORLD_ROWS;
    *row = id % WORLD_ROWS;
    return id < IDS;
}

/* All that is asked for goes to the disk, as if nothing were in memory. */
static bool make_cold(rks_fetcher *fetcher)
{
    for (size_t i = 0; i < WORLD_SHARDS; i++) { /* small files would be read whole */
        rks_shard_drop(w.shards[i]);
        rks_resident_expect_random(w.shards[i]->resident, 0, UINT64_MAX, true);
    }
    rks_fetcher_forget_cache(fetcher);
    return !rks_disk_reader_is_warm(&fetcher->disk);
}

static rks_readahead *begin(rks_fetcher *fetcher, uint64_t max_bytes)
{
    rks_readahead *ahead = NULL;
    rks_readahead_options options = {.fetcher = fetcher, .locate = find_id, .max_bytes = max_bytes};
    assert_ok(rks_readahead_open(&options, &ahead, &err), &err);
    for (uint32_t i = 0; i < IDS; i++)
        ids[i] = i * 7 % IDS;
    return ahead;
}

static rks_fetch_stats stats_of(rks_fetcher *fetcher)
{
    rks_fetch_stats stats;
    rks_fetcher_stats(fetcher, &stats);
    return stats;
}

static uint64_t whole_files(void)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < WORLD_SHARDS; i++)
        bytes += rks_shard_file_bytes(w.shards[i]);
    return bytes;
}

static void what_is_pushed_is_read_once(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    if (!make_cold(fetcher))
        skip();
    rks_readahead *ahead = begin(fetcher, 0);
    assert_true(rks_readahead_wants(ahead));
    for (int twice = 0; twice < 2; twice++)
        assert_true(rks_readahead_push(ahead, ids, IDS, twice == 1));
    assert_true(rks_readahead_settle(ahead) > 0);
    rks_fetch_stats stats = stats_of(fetcher);
    assert_true(stats.disk_bytes > 0 &&
                stats.disk_bytes <= whole_files() + WORLD_SHARDS * (64 << 10));
    assert_true(stats.disk_reads > 0 && stats.disk_reads < IDS); /* neighbours are one request */
    rks_readahead_started(ahead, 2 * (size_t)IDS, NULL);
    assert_int_equal(rks_readahead_settle(ahead), 0);
    rks_readahead_close(ahead);
    rks_fetcher_close(fetcher);
}

static void bytes_bound_how_far_ahead_it_reads(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    if (!make_cold(fetcher))
        skip();
    rks_readahead *ahead = begin(fetcher, 1); /* a window at a time */
    assert_true(rks_readahead_push(ahead, ids, IDS, true));
    uint64_t one = rks_readahead_settle(ahead);
    assert_true(one > 0);
    assert_int_equal(rks_readahead_settle(ahead), one);
    rks_readahead_started(ahead, IDS,
                          NULL); /* what is fetched now is asked for whatever the bound */
    assert_int_equal(rks_readahead_settle(ahead), 0);
    rks_readahead_close(ahead);
    rks_fetcher_close(fetcher);
}

/* Pushes and starts ids until more is asked for than `bytes`; returns how much that is. */
static uint64_t ask_for_more_than(rks_readahead *ahead, uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), found = 0;
    for (uint64_t pages = 0; pages * page <= 2 * bytes; pages += IDS) /* a page a sample at least */
        assert_true(rks_readahead_push(ahead, ids, IDS, false));
    found = rks_readahead_settle(ahead);
    assert_true(found > bytes);
    return found;
}

static void lost_pages_halve_how_far_ahead_it_reads(void **state)
{
    (void)state;
    enum { BYTES = 16 << 20, WINDOW = 5 << 20 };
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    if (!make_cold(fetcher))
        skip();
    rks_readahead *ahead = begin(fetcher, BYTES);
    uint64_t whole = ask_for_more_than(ahead, BYTES - 1), half = 0;
    assert_true(whole < BYTES + WINDOW);
    rks_readahead_lost(ahead);
    rks_readahead_lost(ahead); /* these pages were asked for before it was known */
    for (int i = 0; i < 1000 && (half = rks_readahead_settle(ahead)) >= whole; i++)
        rks_readahead_started(ahead, IDS, NULL);
    for (int i = 0; i < 1000 && half >= BYTES / 2 + WINDOW; i++) {
        rks_readahead_started(ahead, IDS, NULL);
        half = rks_readahead_settle(ahead);
    }
    assert_true(half >= BYTES / 2 - WINDOW && half < BYTES / 2 + WINDOW);
    rks_readahead_close(ahead);
    rks_fetcher_close(fetcher);
}

static void what_was_asked_for_is_not_counted_twice(void **state)
{
    (void)state;
    uint64_t known = 0;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    rks_readahead *ahead = NULL;
    rks_fetch_stats before = {0};
    /* The system keeps pages that it is just reading or writing: then there may be nothing to ask
     * for. */
    for (int i = 0; i < 20 && before.disk_bytes == 0; i++) {
        rks_readahead_close(ahead);
        if (!make_cold(fetcher) || !rks_disk_bytes_of_thread(&known))
            skip();
        ahead = begin(fetcher, 0);
        assert_true(rks_readahead_push(ahead, ids, IDS, true));
        (void)rks_readahead_settle(ahead);
        before = stats_of(fetcher);
    }
    assert_true(before.disk_bytes > 0);
    for (uint32_t i = 0; i < IDS; i++) { /* some wait for what is on its way */
        rks_wanted wanted = world_wanted(ids[i]);
        rks_batch *batch = NULL;
        assert_ok(world_fetch(fetcher, &wanted, 1, &batch, &err), &err);
        rks_batch_free(batch);
    }
    rks_fetch_stats after = stats_of(fetcher);
    assert_true(after.disk_bytes <= whole_files() + WORLD_SHARDS * (64 << 10));
    rks_readahead_close(ahead);
    rks_fetcher_close(fetcher);
}

static void close_ends_it_at_once(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    if (!make_cold(fetcher))
        skip();
    for (int turn = 0; turn < 50; turn++) {
        rks_readahead *ahead = begin(fetcher, 1);
        for (int i = 0; i < 20; i++)
            assert_true(rks_readahead_push(ahead, ids, IDS, false));
        uint64_t begun = rks_now_ms();
        rks_readahead_close(ahead);
        assert_true(rks_now_ms() - begun < 10000);
        if (!make_cold(fetcher))
            break;
    }
    rks_fetcher_close(fetcher);
}

static void a_fetch_that_comes_first_asks_for_itself(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    rks_request_list *list = NULL;
    if (!make_cold(fetcher))
        skip();
    rks_readahead *ahead = begin(fetcher, 1);
    assert_true(rks_readahead_push(ahead, ids, 10, false));
    assert_ok(rks_request_list_create(fetcher, 10, &list, &err), &err);
    rks_readahead_started(ahead, 10, list);
    (void)rks_readahead_settle(ahead);
    assert_false(rks_readahead_claim(ahead, 10, 10)); /* the thread has asked */
    assert_true(rks_readahead_claim(ahead, 30, 10));  /* but not for these, nor those before, */
    assert_true(rks_readahead_claim(ahead, 20, 10));
    assert_false(rks_readahead_claim(ahead, 20, 10)); /* which were taken now */
    rks_readahead_close(ahead);                       /* the list holds what it needs */
    for (uint32_t i = 0; i < 10; i++)
        list->wanted[i] = world_wanted(ids[i]);
    rks_batch *batch = NULL;
    assert_ok(rks_fetcher_fetch(fetcher, list, &batch, &err), &err);
    for (uint32_t i = 0; i < 10; i++)
        world_check_sample(batch, i, ids[i]);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

/* Windows of 100 ids in the order of the files: the second one of a file begins a stream, and
 * fetches of the next two come before their windows are read. */
static void ids_in_the_order_of_a_file_are_read_before_their_fetch(void **state)
{
    (void)state;
    enum { WINDOW = 100 };
    uint64_t known = 0;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    if (!make_cold(fetcher) || !rks_disk_bytes_of_thread(&known))
        skip();
    rks_readahead *ahead = begin(fetcher, 0);
    for (uint32_t i = 0; i < IDS; i++)
        ids[i] = i;
    for (uint32_t first = 0; first < IDS; first += WINDOW) {
        rks_request_list *list = NULL;
        rks_batch *batch = NULL;
        if (first % WORLD_ROWS == 0) /* else a late thread makes one window of two files */
            (void)rks_readahead_settle(ahead);
        assert_true(rks_readahead_push(ahead, ids + first, WINDOW, first + WINDOW == IDS));
        assert_ok(rks_request_list_create(fetcher, WINDOW, &list, &err), &err);
        for (uint32_t i = 0; i < WINDOW; i++)
            list->wanted[i] = world_wanted(first + i);
        bool early = first % WORLD_ROWS > WINDOW;
        if (!early)
            (void)rks_readahead_settle(ahead);
        rks_readahead_started(ahead, WINDOW, list);
        assert_ok(rks_fetcher_fetch(fetcher, list, &batch, &err), &err);
        for (uint32_t i = 0; i < WINDOW; i++)
            world_check_sample(batch, i, first + i);
        assert_false(batch->list->asked); /* it waited */
        rks_batch_free(batch);
    }
    (void)rks_readahead_settle(ahead);
    rks_fetch_stats stats = stats_of(fetcher);
    assert_true(stats.disk_bytes > 0);
    assert_true(stats.disk_bytes <= whole_files() + WORLD_SHARDS * (64 << 10)); /* nothing twice */
    rks_readahead_close(ahead);
    rks_fetcher_close(fetcher);
}

/* ---- streams -------------------------------------------------------------------------------- */

enum { P = 4096 };

static bool follow(rks_disk_stream *stream, rks_range first, rks_range second, uint32_t readers,
                   rks_range *stretch)
{
    rks_range ranges[] = {second, first};
    rks_disk_window window = {.all = ranges, .count = 2, .missing_count = 2};
    bool follows = rks_disk_stream_follows(stream, &window, readers);
    *stretch = ranges[0];
    return follows && window.count == 1;
}

static void windows_that_follow_each_other_are_a_stream(void **state)
{
    (void)state;
    rks_disk_stream stream = {0};
    rks_range found;
    /* of one reader: the first window follows nothing, and a gap ends it */
    assert_false(follow(&stream, (rks_range){0, P, 0}, (rks_range){P, 9 * P, 0}, 1, &found));
    assert_true(
        follow(&stream, (rks_range){9 * P, 10 * P, 0}, (rks_range){10 * P, 20 * P, 0}, 1, &found));
    assert_true(found.first == 9 * P && found.end == 20 * P);
    assert_true(
        follow(&stream, (rks_range){19 * P, 25 * P, 0}, (rks_range){21 * P, 30 * P, 0}, 1, &found));
    assert_true(found.first == 20 * P && found.end == 30 * P); /* no page twice */
    assert_false(
        follow(&stream, (rks_range){40 * P, 50 * P, 0}, (rks_range){50 * P, 51 * P, 0}, 1, &found));
    assert_false(follow(&stream, (rks_range){0, P, 0}, (rks_range){2 * P, 3 * P, 0}, 1, &found));
    assert_false(follow(&stream, (rks_range){3 * P, 4 * P, 0}, (rks_range){4 * P, 5 * P, 1}, 1,
                        &found)); /* two files */
    assert_false(
        follow(&stream, (rks_range){5 * P, 6 * P, 1}, (rks_range){6 * P, 7 * P, 1}, 1, &found));
    /* of two that take turns: what lies between is the other's */
    assert_false(
        follow(&stream, (rks_range){0, 8 * P, 2}, (rks_range){16 * P, 24 * P, 2}, 2, &found));
    assert_true(
        follow(&stream, (rks_range){32 * P, 40 * P, 2}, (rks_range){48 * P, 56 * P, 2}, 2, &found));
    assert_true(found.first == 24 * P && found.end == 56 * P);
    assert_false(follow(&stream, (rks_range){64 * P, 65 * P, 2}, (rks_range){99 * P, 100 * P, 2}, 2,
                        &found));
}

/* Windows that are in memory were brought by the stream's read-ahead, so they do not end it; unless
 * there are more of them than read-ahead can bring. */
static void a_stream_goes_on_through_what_it_has_brought(void **state)
{
    (void)state;
    enum { WINDOW = 1 << 20, MOST = 64 };
    rks_disk_stream stream = {0};
    uint64_t at = 0;
    int windows = 0;
    for (int i = 0; i < 4; i++, at += WINDOW) { /* in memory: nothing begins */
        rks_range range = {at, at + WINDOW, 0};
        rks_disk_window window = {.all = &range, .count = 1};
        assert_false(rks_disk_stream_follows(&stream, &window, 1));
    }
    for (int i = 0; i < 2; i++, at += WINDOW) {
        rks_range range = {at, at + WINDOW, 0};
        rks_disk_window window = {.all = &range, .count = 1, .missing_count = 1};
        assert_int_equal(rks_disk_stream_follows(&stream, &window, 1), i == 1);
    }
    for (;; windows++, at += WINDOW) {
        rks_range range = {at, at + WINDOW, 0};
        rks_disk_window window = {.all = &range, .count = 1};
        if (!rks_disk_stream_follows(&stream, &window, 1))
            break;
        assert_true(windows <= MOST && range.first == at && range.end == at + WINDOW);
    }
    assert_true(windows >= 16); /* twice the system's usual read-ahead, 8 MiB */
}

/* Reads ahead in a file that is cut meanwhile; its samples fail by name, and no signal comes. */
static int read_what_was_cut(bool in_order)
{
    rks_guarded_map *any = NULL; /* puts the library's handler in the place of the test's */
    int fd = open(rks_shard_path(w.shards[1]), O_RDONLY | O_CLOEXEC);
    if (rks_guarded_map_open(fd, "any", 1, &any, &err) != RKS_OK)
        return 4;
    rks_guarded_map_close(any);
    close(fd);
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    rks_readahead *ahead = begin(fetcher, 0);
    (void)make_cold(fetcher);
    for (uint32_t i = 0; i < IDS && in_order; i++)
        ids[i] = i;
    (void)rks_readahead_push(ahead, ids, in_order ? WORLD_ROWS / 2 : IDS, true);
    if (in_order)
        (void)rks_readahead_settle(ahead);
    if (truncate(rks_shard_path(w.shards[0]), 4096) != 0)
        return 2;
    if (in_order)
        (void)rks_readahead_push(ahead, ids + WORLD_ROWS / 2, WORLD_ROWS / 2, true);
    else
        (void)rks_readahead_push(ahead, ids, IDS, true);
    (void)rks_readahead_settle(ahead);
    rks_wanted wanted = world_wanted(WORLD_ROWS - 1);
    rks_batch *batch = NULL;
    rks_status status = world_fetch(fetcher, &wanted, 1, &batch, &err);
    bool named = strstr(err.text, "sample 399") != NULL &&
                 strstr(err.text, rks_shard_path(w.shards[0])) != NULL;
    rks_readahead_close(ahead);
    rks_fetcher_close(fetcher);
    return (status == RKS_ERR_IO || status == RKS_ERR_CORRUPT) && named ? 0 : 3;
}

static void a_file_that_is_cut_meanwhile_fails_by_name_in_each_process(void **state)
{
    (void)state;
    for (int in_order = 1; in_order >= 0; in_order--) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(read_what_was_cut(in_order));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_int_equal(read_what_was_cut(false), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_pushed_is_read_once),
        cmocka_unit_test(bytes_bound_how_far_ahead_it_reads),
        cmocka_unit_test(lost_pages_halve_how_far_ahead_it_reads),
        cmocka_unit_test(what_was_asked_for_is_not_counted_twice),
        cmocka_unit_test(close_ends_it_at_once),
        cmocka_unit_test(a_fetch_that_comes_first_asks_for_itself),
        cmocka_unit_test(ids_in_the_order_of_a_file_are_read_before_their_fetch),
        cmocka_unit_test(windows_that_follow_each_other_are_a_stream),
        cmocka_unit_test(a_stream_goes_on_through_what_it_has_brought),
        cmocka_unit_test(a_file_that_is_cut_meanwhile_fails_by_name_in_each_process), /* the last */
    };
    return cmocka_run_group_tests_name("ahead", tests, world_begin, world_end);
}
