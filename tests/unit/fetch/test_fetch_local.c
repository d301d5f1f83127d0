/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_local.c: samples that lie in maps of this node. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"
#include "fetch/fetcher.h"
#include "world.h"

static void a_batch_holds_its_samples_in_the_order_asked_for(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 63, 64, 1000};
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    for (size_t i = 0; i < 5; i++) {
        static uint64_t ids[1000];
        static rks_wanted wanted[1000];
        rks_batch *batch = NULL;
        world_draw(ids, sizes[i], (unsigned)i);
        world_wanted_many(ids, sizes[i], wanted);
        assert_ok(world_fetch(fetcher, wanted, sizes[i], &batch, &err), &err);
        world_check_batch(batch, ids, sizes[i]);
        rks_batch_free(batch);
    }
    rks_fetcher_close(fetcher);
}

static void repeats_are_copies_of_their_own(void **state)
{
    (void)state;
    const uint64_t ids[] = {17, 17, 17};
    rks_wanted wanted[3];
    rks_batch *batch = NULL;
    size_t size;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    world_wanted_many(ids, 3, wanted);
    assert_ok(world_fetch(fetcher, wanted, 3, &batch, &err), &err);
    world_check_batch(batch, ids, 3);
    uint8_t *payload = rks_batch_payload(batch, 1, &size);
    memset(payload, 0xff, size);
    world_check_sample(batch, 0, 17);
    world_check_sample(batch, 2, 17);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void an_empty_batch_is_a_batch(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_fetch *fetch = NULL;
    rks_value value;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    assert_ok(world_fetch(fetcher, NULL, 0, &batch, &err), &err);
    assert_int_equal(rks_batch_count(batch), 0);
    assert_null(rks_batch_key(batch, 0, NULL));
    assert_null(rks_batch_payload(batch, 0, NULL));
    assert_fails(RKS_ERR_ARGUMENT, rks_batch_value(batch, 0, 0, &value, &err));
    rks_batch_free(batch);
    assert_ok(world_start(fetcher, NULL, 0, &fetch, &err), &err);
    assert_true(rks_fetch_ready(fetch));
    assert_ok(rks_fetch_wait(fetch, &batch, &err), &err);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void a_sample_that_cannot_be_is_refused(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    rks_wanted wanted = world_wanted(3);
    wanted.shard = WORLD_SHARDS;
    assert_fails(RKS_ERR_ARGUMENT, world_fetch(fetcher, &wanted, 1, &batch, &err));
    wanted = world_wanted(3);
    wanted.row = UINT64_MAX;
    assert_fails(RKS_ERR_ARGUMENT, world_fetch(fetcher, &wanted, 1, &batch, &err));
    wanted.row = WORLD_ROWS;
    assert_true(world_fetch(fetcher, &wanted, 1, &batch, &err) != RKS_OK);
    assert_contains(err.text, "sample 3 (key key/3)");
    assert_null(batch);
    rks_fetcher_close(fetcher);
}

static void a_sample_that_the_index_does_not_know_so_is_corrupt(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    for (int what = 0; what < 3; what++) {
        rks_batch *batch = NULL;
        rks_wanted wanted[2] = {world_wanted(8), world_wanted(9)};
        wanted[1].row += what == 0; /* its neighbour lies there: transplanted */
        wanted[1].length += what == 1;
        wanted[1].key_hash += what == 2;
        assert_fails(RKS_ERR_CORRUPT, world_fetch(fetcher, wanted, 2, &batch, &err));
        assert_contains(err.text, "sample 9 (key key/9)");
        assert_null(batch);
        wanted[1] = world_wanted(9);
        assert_ok(world_fetch(fetcher, wanted, 2, &batch, &err), &err);
        rks_batch_free(batch);
    }
    rks_fetcher_close(fetcher);
}

/* Where the record of a row lies in its shard's file. */
static uint64_t file_offset(uint64_t id, rks_record_view *view)
{
    rks_record_view first;
    uint32_t shard = (uint32_t)(id / WORLD_ROWS);
    assert_ok(rks_shard_locate(w.shards[shard], id % WORLD_ROWS, view, &err), &err);
    /* the first record of the file, found in it, tells where the map begins */
    assert_ok(rks_shard_locate(w.shards[shard], 0, &first, &err), &err);
    uint8_t head[24], found[24];
    memcpy(head, first.record, 24);
    int fd = open(rks_shard_path(w.shards[shard]), O_RDONLY);
    uint64_t at = (uintptr_t)first.record % 4096;
    while (pread(fd, found, 24, (off_t)at) == 24 && memcmp(head, found, 24) != 0)
        at += 4096;
    close(fd);
    return at + (uint64_t)(view->record - first.record);
}

/* Flips each byte of a sample's record in the file: a fetch of it fails or brings the right bytes.
 */
static void flip_all_of(rks_fetcher *fetcher, uint64_t id)
{
    rks_record_view view;
    uint64_t at = file_offset(id, &view);
    int fd = open(rks_shard_path(w.shards[id / WORLD_ROWS]), O_RDWR);
    assert_true(fd >= 0);
    size_t harmless = 0;
    for (size_t i = 0; i < view.record_size; i++) {
        rks_batch *batch = NULL;
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, (off_t)(at + i)), 1);
        byte ^= (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(at + i)), 1);
        rks_wanted wanted = world_wanted(id), other = world_wanted(id - 2);
        if (world_fetch(fetcher, &wanted, 1, &batch, &err) == RKS_OK) {
            harmless++;
            world_check_sample(batch, 0, id);
            rks_batch_free(batch);
        } else {
            assert_contains(err.text, "sample ");
        }
        assert_ok(world_fetch(fetcher, &other, 1, &batch, &err), &err);
        rks_batch_free(batch);
        byte ^= (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(at + i)), 1);
    }
    close(fd);
    assert_true(harmless <= 5); /* flags, and the source row where keys are stored */
}

static void a_flipped_byte_is_never_handed_out(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    flip_all_of(fetcher, 15);
    flip_all_of(fetcher, 2 * WORLD_ROWS + 16);
    rks_fetcher_close(fetcher);
}

static void without_checks_everything_is_handed_out(void **state)
{
    (void)state;
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, 7, NULL);
    options.check = false;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    rks_batch *batch = NULL;
    rks_wanted wanted = world_wanted(9);
    wanted.key_hash++;
    assert_ok(world_fetch(fetcher, &wanted, 1, &batch, &err), &err);
    world_check_sample(batch, 0, 9);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void fetches_started_ahead_arrive(void **state)
{
    (void)state;
    enum { AHEAD = 20 };
    rks_fetch *fetches[AHEAD];
    uint64_t ids[AHEAD][64];
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    for (unsigned i = 0; i < AHEAD; i++) {
        rks_wanted wanted[64];
        world_draw(ids[i], 64, i);
        world_wanted_many(ids[i], 64, wanted);
        assert_ok(world_start(fetcher, wanted, 64, &fetches[i], &err), &err);
    }
    for (unsigned i = 0; i < AHEAD; i++) {
        rks_batch *batch = NULL;
        if (i % 3 == 2) {
            rks_fetch_cancel(fetches[i]);
            continue;
        }
        while (i % 3 == 1 && !rks_fetch_ready(fetches[i]))
            ;
        assert_ok(rks_fetch_wait(fetches[i], &batch, &err), &err);
        world_check_batch(batch, ids[i], 64);
        rks_batch_free(batch);
    }
    rks_fetch_cancel(NULL);
    rks_fetcher_close(fetcher);
}

static int stop_now(void *user)
{
    (void)user;
    return 1;
}

static void figures_say_what_was_delivered(void **state)
{
    (void)state;
    uint64_t ids[WORLD_ROWS];
    rks_wanted wanted[WORLD_ROWS];
    rks_batch *batch = NULL;
    rks_fetch_stats stats = {0};
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    for (size_t i = 0; i < WORLD_ROWS; i++)
        ids[i] = WORLD_ROWS + i;
    world_wanted_many(ids, WORLD_ROWS, wanted);
    assert_ok(world_fetch(fetcher, wanted, WORLD_ROWS, &batch, &err), &err);
    rks_fetcher_stats(fetcher, &stats);
    assert_int_equal(stats.samples, WORLD_ROWS);
    assert_int_equal(stats.bytes, rks_shard_bytes(w.shards[1]));
    assert_int_equal(stats.local_bytes, stats.bytes);
    assert_int_equal(stats.remote_bytes, 0);
    assert_int_equal(stats.peak_batch_bytes, rks_batch_memory(batch));
    assert_true(stats.wait_ns > 0);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void digest_of_batches_does_not_depend_on_their_order(void **state)
{
    (void)state;
    uint64_t sums[2][2] = {{0, 0}, {0, 0}};
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    for (size_t i = 0; i < 100; i++) {
        rks_batch *batch = NULL;
        rks_wanted two[2] = {world_wanted(12 * i), world_wanted(12 * (99 - i))};
        assert_ok(world_fetch(fetcher, two, 1, &batch, &err), &err);
        rks_batch_digest(batch, sums[0]);
        rks_batch_free(batch);
        assert_ok(world_fetch(fetcher, two + 1, 1, &batch, &err), &err);
        rks_batch_digest(batch, sums[1]);
        rks_batch_free(batch);
    }
    assert_memory_equal(sums[0], sums[1], 16);
    rks_batch *batch = NULL;
    rks_wanted one = world_wanted(12);
    assert_ok(world_fetch(fetcher, &one, 1, &batch, &err), &err);
    rks_batch_digest(batch, sums[1]);
    assert_memory_not_equal(sums[0], sums[1], 16);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void an_interrupt_ends_no_finished_fetch(void **state)
{
    (void)state;
    rks_fetch *fetch = NULL;
    rks_batch *batch = NULL;
    rks_wanted wanted = world_wanted(5);
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    assert_ok(world_start(fetcher, &wanted, 1, &fetch, &err), &err);
    while (!rks_fetch_ready(fetch))
        ;
    rks_set_interrupt(stop_now, NULL);
    assert_ok(rks_fetch_wait(fetch, &batch, &err), &err);
    rks_set_interrupt(NULL, NULL);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void large_blocks_are_kept_for_the_next_batch_but_not_many(void **state)
{
    (void)state;
    enum { BLOCKS = 90, SIZE = 1 << 20, KEPT_MOST = 64 };
    rks_block *blocks[BLOCKS];
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, 7, NULL);
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    long before = rks_memory_in_use();
    for (size_t i = 0; i < BLOCKS; i++)
        assert_non_null(blocks[i] = rks_blocks_take(fetcher->pool, SIZE, &err));
    rks_block *last = blocks[BLOCKS - 1];
    for (size_t i = 0; i < BLOCKS; i++)
        rks_blocks_give(fetcher->pool, blocks[i]);
    assert_in_range(rks_memory_in_use() - before, 1, KEPT_MOST);
    assert_true(rks_blocks_kept(fetcher->pool) <= (size_t)KEPT_MOST * SIZE);
    assert_int_equal(rks_blocks_memory(fetcher->pool), rks_blocks_kept(fetcher->pool));
    blocks[0] = rks_blocks_take(fetcher->pool, SIZE - 1, &err); /* another size of its class */
    assert_ptr_equal(blocks[0], last);
    assert_int_equal(blocks[0]->size, SIZE - 1);
    assert_int_equal(rks_blocks_memory(fetcher->pool),
                     rks_blocks_kept(fetcher->pool) + blocks[0]->bytes);
    rks_blocks_give(fetcher->pool, blocks[0]);
    rks_fetcher_close(fetcher);
    assert_true(rks_memory_in_use() < before);
}

static void the_newest_block_serves_what_fills_a_quarter_of_it(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20, SPARE = 256 };
    rks_blocks *pool = NULL;
    rks_block *small, *large, *found;
    assert_ok(rks_blocks_create(&pool, &err), &err);
    assert_non_null(small = rks_blocks_take(pool, SIZE / 4, &err));
    assert_non_null(large = rks_blocks_take(pool, SIZE - SPARE, &err));
    rks_blocks_give(pool, small);
    rks_blocks_give(pool, large);
    assert_ptr_equal(found = rks_blocks_take(pool, SIZE / 4, &err),
                     large); /* small would fit, too */
    rks_blocks_give(pool, found);
    assert_ptr_equal(found = rks_blocks_take(pool, SIZE / 8, &err), small);
    rks_blocks_give(pool, found);
    assert_ptr_equal(found = rks_blocks_take(pool, SIZE / 2, &err), large);
    rks_blocks_give(pool, found);
    rks_blocks_release(pool);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const uint64_t ids[] = {1, 2, 900, 5};
    rks_wanted wanted[4];
    world_wanted_many(ids, 4, wanted);
    long before = rks_memory_in_use();
    bool done = false;
    for (long n = 1; !done; n++) {
        assert_true(n < 100);
        rks_fetcher *fetcher = NULL;
        rks_batch *batch = NULL, *second = NULL;
        rks_fetch *fetch = NULL;
        rks_fetcher_options options = world_options(0, 7, NULL);
        rks_memory_fail_at(n);
        rks_status status = rks_fetcher_open(&options, &fetcher, &err);
        if (status == RKS_OK)
            status = world_fetch(fetcher, wanted, 4, &batch, &err);
        if (status == RKS_OK)
            status = world_start(fetcher, wanted, 4, &fetch, &err);
        if (status == RKS_OK)
            status = rks_fetch_wait(fetch, &second, &err);
        rks_value value;
        if (status == RKS_OK)
            status = rks_batch_value(batch, 0, 0, &value, &err);
        if (status == RKS_OK && rks_batch_key(batch, 2, NULL) == NULL)
            status = RKS_ERR_MEMORY;
        rks_memory_fail_at(0);
        done = status == RKS_OK;
        if (!done)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_batch_free(batch);
        rks_batch_free(second);
        rks_fetcher_close(fetcher);
        assert_int_equal(rks_memory_in_use(), before);
    }
}

static bool read_some(rks_fetcher *fetcher, unsigned round, unsigned seed)
{
    uint64_t ids[32];
    rks_wanted wanted[32];
    rks_batch *batch = NULL;
    rks_fetch *fetch = NULL;
    bool good;
    world_draw(ids, 32, seed);
    world_wanted_many(ids, 32, wanted);
    if (round % 2 == 0)
        good = world_fetch(fetcher, wanted, 32, &batch, NULL) == RKS_OK;
    else
        good = world_start(fetcher, wanted, 32, &fetch, NULL) == RKS_OK &&
               rks_fetch_wait(fetch, &batch, NULL) == RKS_OK;
    if (good)
        world_check_batch(batch, ids, 32);
    rks_batch_free(batch);
    return good;
}

static void four_threads_fetch_at_once(void **state)
{
    (void)state;
    rks_fetcher *fetcher = world_fetcher(7, NULL);
    world_read_by_threads(fetcher, read_some, 60);
    rks_fetcher_close(fetcher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_holds_its_samples_in_the_order_asked_for),
        cmocka_unit_test(repeats_are_copies_of_their_own),
        cmocka_unit_test(an_empty_batch_is_a_batch),
        cmocka_unit_test(a_sample_that_cannot_be_is_refused),
        cmocka_unit_test(a_sample_that_the_index_does_not_know_so_is_corrupt),
        cmocka_unit_test(a_flipped_byte_is_never_handed_out),
        cmocka_unit_test(without_checks_everything_is_handed_out),
        cmocka_unit_test(fetches_started_ahead_arrive),
        cmocka_unit_test(figures_say_what_was_delivered),
        cmocka_unit_test(digest_of_batches_does_not_depend_on_their_order),
        cmocka_unit_test(an_interrupt_ends_no_finished_fetch),
        cmocka_unit_test(large_blocks_are_kept_for_the_next_batch_but_not_many),
        cmocka_unit_test(the_newest_block_serves_what_fills_a_quarter_of_it),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(four_threads_fetch_at_once),
    };
    return cmocka_run_group_tests_name("fetch_local", tests, world_begin, world_end);
}
