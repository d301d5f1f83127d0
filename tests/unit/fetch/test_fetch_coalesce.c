/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_coalesce.c: requests of many batches to one owner that go over the wire as one. Rank 0
 * asks; ranks 1 and 2 own shards. What it is told of the largest record keeps the requests small.
 */
#include "base/memory.h"
#include "fetch/request_queue.h"
#include "fetch/request_sender.h"
#include "world.h"

enum { FETCHES = 40, EACH = 6, SILENCE_MS = 15000 };

static const int32_t ONE[] = {1, -1}, TWO[] = {2, -1}, ONE_TWO[] = {1, 2, -1};
static const int32_t *const BOTH[] = {ONE, TWO, ONE}, *const EITHER[] = {ONE_TWO, ONE_TWO, ONE_TWO};
static const uint64_t SMALL[WORLD_SHARDS] = {1500, 1500, 1500};
static rks_fetch_server *servers[3];
static rks_fetcher *fetcher;
static rks_fetch *fetches[FETCHES];
static uint64_t ids[FETCHES][EACH];

static void serve(uint32_t rank, unsigned bits)
{
    rks_shard *shards[WORLD_SHARDS];
    for (unsigned i = 0; i < WORLD_SHARDS; i++)
        shards[i] = (bits >> i & 1) != 0 ? w.shards[i] : NULL;
    assert_ok(rks_fetch_server_open(w.engines[rank], RKS_SERVICE_FETCH, shards, WORLD_SHARDS, 1,
                                    &servers[rank], &err),
              &err);
}

static rks_status open_fetcher(const int32_t *const *owners, uint64_t inflight_bytes)
{
    rks_fetcher_options options = world_options(0, 0, owners);
    options.largest = SMALL;
    options.inflight_bytes = inflight_bytes;
    return rks_fetcher_open(&options, &fetcher, &err);
}

static int begin(void **state)
{
    (void)state;
    world_connect(3, SILENCE_MS);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (size_t rank = 0; rank < 3; rank++) {
        rks_fetch_server_close(servers[rank]);
        servers[rank] = NULL;
    }
    world_disconnect();
    return 0;
}

/* `large`: some records may be larger than the fetcher was told. */
static void draw(unsigned i, unsigned seed, bool large, rks_wanted wanted[EACH])
{
    world_draw(ids[i], EACH, seed * FETCHES + i);
    for (unsigned k = 0; k < EACH; k++)
        ids[i][k] += !large && ids[i][k] % 37 == 5;
    world_wanted_many(ids[i], EACH, wanted);
}

/* Starts all at once. Sample `bad` of the first fetch, and of the one in the middle, is of a row
 * that its owner does not have; EACH: none. */
static void start_all(unsigned seed, bool large, size_t bad)
{
    rks_fetcher_gather(fetcher, true);
    for (unsigned i = 0; i < FETCHES; i++) {
        rks_wanted wanted[EACH];
        draw(i, seed, large, wanted);
        if (bad < EACH && (i == 0 || i == FETCHES / 2))
            wanted[bad].row = WORLD_ROWS + 1;
        assert_ok(world_start(fetcher, wanted, EACH, &fetches[i], &err), &err);
    }
    rks_fetcher_gather(fetcher, false);
}

static void arrives(unsigned i)
{
    rks_batch *batch = NULL;
    assert_ok(rks_fetch_wait(fetches[i], &batch, &err), &err);
    world_check_batch(batch, ids[i], EACH);
    rks_batch_free(batch);
}

static uint64_t frames(void)
{
    rks_engine_stats stats;
    rks_engine_stats_get(w.engines[0], &stats);
    return stats.frames_sent;
}

/* Also where some of the records are larger than was said: their owner's reply is refused, and each
 * is asked for alone. */
static void what_one_owner_is_asked_for_goes_out_as_one(void **state)
{
    (void)state;
    serve(1, 5);
    serve(2, 2);
    assert_ok(open_fetcher(BOTH, 0), &err);
    for (unsigned seed = 0; seed < 4; seed++) {
        start_all(seed, true, EACH);
        for (unsigned i = 0; i < FETCHES; i++)
            arrives(i);
    }
    rks_fetcher_close(fetcher);
}

static void many_small_requests_are_few_frames(void **state)
{
    (void)state;
    serve(1, 5);
    serve(2, 2);
    assert_ok(open_fetcher(BOTH, 0), &err);
    uint64_t before = frames();
    start_all(9, false, EACH);
    for (unsigned i = 0; i < FETCHES; i++)
        arrives(i);
    /* two hellos, two proofs, and some 6,400 bytes of 64 KiB for each of 80 requests */
    assert_in_range(frames() - before, 1, FETCHES);
    rks_fetcher_close(fetcher);
}

static void a_row_that_cannot_be_served_is_one_batch_s_error(void **state)
{
    (void)state;
    serve(1, 5);
    serve(2, 2);
    assert_ok(open_fetcher(BOTH, 0), &err);
    for (size_t bad = 0; bad < EACH; bad++) {
        start_all((unsigned)bad, false, bad);
        for (unsigned i = 0; i < FETCHES; i++) {
            rks_batch *batch = NULL;
            if (i != 0 && i != FETCHES / 2) {
                arrives(i);
                continue;
            }
            assert_int_not_equal(rks_fetch_wait(fetches[i], &batch, &err), RKS_OK);
            assert_null(batch);
        }
    }
    rks_fetcher_close(fetcher);
}

static void those_that_are_cancelled_take_none_with_them(void **state)
{
    (void)state;
    serve(1, 5);
    serve(2, 2);
    assert_ok(open_fetcher(BOTH, 0), &err);
    for (unsigned round = 0; round < 20; round++) {
        start_all(round, false, EACH);
        for (unsigned i = 0; i < FETCHES; i++)
            if ((i + round) % 3 != 0)
                rks_fetch_cancel(fetches[i]);
        for (unsigned i = 0; i < FETCHES; i++)
            if ((i + round) % 3 == 0)
                arrives(i);
    }
    start_all(20, false, EACH); /* and all of them, with the fetcher */
    for (unsigned i = 0; i < FETCHES; i++)
        rks_fetch_cancel(fetches[i]);
    rks_fetcher_close(fetcher);
}

static void replies_on_their_way_keep_the_cap(void **state)
{
    (void)state;
    rks_fetch_stats stats = {0};
    serve(1, 5);
    serve(2, 2);
    for (uint64_t cap = 30 << 10; cap <= 120 << 10; cap *= 2) {
        assert_ok(open_fetcher(BOTH, cap), &err);
        start_all((unsigned)cap, false, EACH);
        for (unsigned i = 0; i < FETCHES; i++)
            arrives(i);
        rks_fetcher_stats(fetcher, &stats);
        assert_in_range(stats.peak_inflight_bytes, 1, cap);
        rks_fetcher_close(fetcher);
    }
}

static void another_owner_is_asked_when_one_is_gone(void **state)
{
    (void)state;
    serve(1, 7);
    serve(2, 7);
    assert_ok(open_fetcher(EITHER, 0), &err);
    start_all(1, false, EACH);
    rks_fetch_server_close(servers[1]);
    servers[1] = NULL;
    rks_engine_close(w.engines[1], 0);
    w.engines[1] = NULL;
    for (unsigned i = 0; i < FETCHES; i++)
        arrives(i);
    start_all(2, false, EACH);
    for (unsigned i = 0; i < FETCHES; i++)
        arrives(i);
    rks_fetcher_close(fetcher);
}

/* The thread that sends has taken them out of the queue, and then stands still for longer than the
 * limit of their silence: others are asked, and the batches have come and gone when it goes on. */
static void those_that_are_given_up_before_they_are_sent_touch_no_batch(void **state)
{
    enum { STARTED = 10, LIMIT_MS = 10000 };
    (void)state;
    serve(1, 7);
    serve(2, 7);
    rks_fetcher_options options = world_options(0, 0, EITHER);
    options.largest = SMALL;
    options.timeout_ms = LIMIT_MS;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    rks_fetcher_gather(fetcher, true);
    for (unsigned i = 0; i < STARTED; i++) {
        rks_wanted wanted[EACH];
        draw(i, 3, false, wanted);
        assert_ok(world_start(fetcher, wanted, EACH, &fetches[i], &err), &err);
    }
    atomic_store(&fetcher->gathering, 0);
    pthread_mutex_lock(&fetcher->mutex);
    rks_fetch_request *taken = rks_fetch_next_to_send(fetcher);
    for (rks_fetch_request *one = taken; one != NULL; one = one->next)
        one->sent_ms = 0;
    pthread_mutex_unlock(&fetcher->mutex);
    assert_non_null(taken);
    for (unsigned i = 0; i < STARTED; i++)
        arrives(i);
    rks_fetch_send(taken);
    start_all(4, false, EACH);
    for (unsigned i = 0; i < FETCHES; i++)
        arrives(i);
    rks_fetcher_close(fetcher);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    serve(1, 7);
    serve(2, 7);
    unsigned passed = 0;
    for (long n = 1; passed < 3; n += 1 + n / 16) {
        assert_ok(open_fetcher(BOTH, 0), &err);
        bool failed = false;
        rks_fetcher_gather(fetcher, true);
        for (unsigned i = 0; i < FETCHES; i++) {
            rks_wanted wanted[EACH];
            draw(i, 1, false, wanted);
            assert_ok(world_start(fetcher, wanted, EACH, &fetches[i], &err), &err);
        }
        rks_batch *batches[FETCHES] = {NULL};
        rks_memory_fail_at(n);
        rks_fetcher_gather(fetcher, false);
        for (unsigned i = 0; i < FETCHES; i++) {
            rks_status status = rks_fetch_wait(fetches[i], &batches[i], &err);
            failed = failed || status != RKS_OK;
            assert_true(status == RKS_OK || status == RKS_ERR_MEMORY || status == RKS_ERR_PEER);
        }
        rks_memory_fail_at(0);
        for (unsigned i = 0; i < FETCHES; i++) {
            if (batches[i] != NULL)
                world_check_batch(batches[i], ids[i], EACH);
            rks_batch_free(batches[i]);
        }
        passed = n > 2000 && !failed ? passed + 1 : 0;
        rks_fetcher_close(fetcher);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_one_owner_is_asked_for_goes_out_as_one, begin, end),
        cmocka_unit_test_setup_teardown(many_small_requests_are_few_frames, begin, end),
        cmocka_unit_test_setup_teardown(a_row_that_cannot_be_served_is_one_batch_s_error, begin,
                                        end),
        cmocka_unit_test_setup_teardown(those_that_are_cancelled_take_none_with_them, begin, end),
        cmocka_unit_test_setup_teardown(replies_on_their_way_keep_the_cap, begin, end),
        cmocka_unit_test_setup_teardown(another_owner_is_asked_when_one_is_gone, begin, end),
        cmocka_unit_test_setup_teardown(those_that_are_given_up_before_they_are_sent_touch_no_batch,
                                        begin, end),
        cmocka_unit_test_setup_teardown(survives_each_failing_allocation, begin, end),
    };
    return cmocka_run_group_tests(tests, world_begin, world_end);
}
