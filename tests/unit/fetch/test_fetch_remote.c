/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_remote.c: samples from other ranks, through engines and servers of this process.
 * Rank 0 asks; ranks 1 to 3 own shards. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "world.h"

static rks_fetch_server *servers[WORLD_ENGINES];

enum { SILENCE_MS = 15000 };

static int connect_world(void **state)
{
    (void)state;
    world_connect(WORLD_ENGINES, SILENCE_MS);
    return 0;
}

static int disconnect_world(void **state)
{
    (void)state;
    for (size_t rank = 0; rank < WORLD_ENGINES; rank++) {
        rks_fetch_server_close(servers[rank]);
        servers[rank] = NULL;
    }
    world_disconnect();
    return 0;
}

/* `rank` serves the shards of these bits. */
static void serve(uint32_t rank, unsigned bits)
{
    rks_shard *shards[WORLD_SHARDS];
    for (unsigned i = 0; i < WORLD_SHARDS; i++)
        shards[i] = (bits >> i & 1) != 0 ? w.shards[i] : NULL;
    assert_ok(rks_fetch_server_open(w.engines[rank], RKS_SERVICE_FETCH, shards, WORLD_SHARDS, 1,
                                    &servers[rank], &err),
              &err);
}

static const int32_t ONE[] = {1, -1}, TWO[] = {2, -1}, THREE[] = {3, -1}, ONE_TWO[] = {1, 2, -1},
                     NOBODY[] = {-1};
static const int32_t *const EACH_ITS_OWN[] = {ONE, TWO, THREE};

static void fetch_and_check(rks_fetcher *fetcher, size_t count, unsigned seed)
{
    static uint64_t ids[2000];
    static rks_wanted wanted[2000];
    rks_batch *batch = NULL;
    world_draw(ids, count, seed);
    world_wanted_many(ids, count, wanted);
    assert_ok(world_fetch(fetcher, wanted, count, &batch, &err), &err);
    world_check_batch(batch, ids, count);
    rks_batch_free(batch);
}

static void samples_come_from_their_owners_in_order(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 64, 127, 128, 129, 1000, 2000};
    for (uint32_t rank = 1; rank < 4; rank++)
        serve(rank, 1u << (rank - 1));
    for (unsigned mapped = 0; mapped < 8; mapped += 3) { /* 0: all remote; else mixed */
        rks_fetcher *fetcher = world_fetcher(mapped, EACH_ITS_OWN);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            fetch_and_check(fetcher, sizes[i], (unsigned)i);
        rks_fetcher_close(fetcher);
    }
}

static void rows_that_were_served_before_come_the_same_again(void **state)
{
    (void)state;
    serve(1, 7);
    static const int32_t *const owners[] = {ONE, ONE, ONE};
    rks_fetcher *fetcher = world_fetcher(0, owners);
    for (unsigned round = 0; round < 6; round++) { /* later ones find all rows warm */
        uint64_t before = rks_fetch_server_bytes(servers[1]);
        fetch_and_check(fetcher, 2000, round % 2);
        assert_true(rks_fetch_server_bytes(servers[1]) > before);
    }
    rks_fetcher_close(fetcher);
}

/* Rank 3 has all shards, and stands for the owners; where it is lost, they are asked themselves. */
static void a_rank_that_stands_for_the_owners_is_asked_first(void **state)
{
    (void)state;
    static const uint32_t asks[] = {0, 3, 3, 3};
    static const int32_t *const owners[] = {ONE, TWO, ONE};
    rks_fetcher *fetcher = NULL;
    serve(1, 5);
    serve(2, 2);
    serve(3, 7);
    rks_fetcher_options options = world_options(0, 0, owners);
    options.asks = asks;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    fetch_and_check(fetcher, 2000, 1);
    assert_true(rks_fetch_server_bytes(servers[3]) > 0);
    assert_int_equal(rks_fetch_server_bytes(servers[1]) + rks_fetch_server_bytes(servers[2]), 0);
    rks_fetch_server_close(servers[3]);
    servers[3] = NULL;
    fetch_and_check(fetcher, 2000, 2);
    assert_true(rks_fetch_server_bytes(servers[1]) > 0 && rks_fetch_server_bytes(servers[2]) > 0);
    rks_fetcher_close(fetcher);
}

static void figures_add_up_on_both_sides(void **state)
{
    (void)state;
    rks_fetch_stats stats = {0};
    rks_wanted wanted[2 * WORLD_ROWS];
    rks_batch *batch = NULL;
    serve(1, 1);
    rks_fetcher *fetcher = world_fetcher(2, EACH_ITS_OWN);
    for (uint64_t id = 0; id < 2 * WORLD_ROWS; id++)
        wanted[id] = world_wanted(id);
    assert_ok(world_fetch(fetcher, wanted, 2 * WORLD_ROWS, &batch, &err), &err);
    rks_fetcher_stats(fetcher, &stats);
    assert_int_equal(stats.samples, 2 * WORLD_ROWS);
    assert_int_equal(stats.remote_bytes, rks_shard_bytes(w.shards[0]));
    assert_int_equal(stats.local_bytes, rks_shard_bytes(w.shards[1]));
    assert_int_equal(rks_fetch_server_bytes(servers[1]), stats.remote_bytes);
    assert_int_equal(stats.peak_batch_bytes, rks_batch_memory(batch));
    assert_true(stats.peak_inflight_bytes > 0);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void fetches_started_ahead_arrive_or_are_cancelled(void **state)
{
    (void)state;
    enum { AHEAD = 30 };
    rks_fetch *fetches[AHEAD];
    static uint64_t ids[AHEAD][200];
    serve(1, 7);
    static const int32_t *const owners[] = {ONE, ONE, ONE};
    rks_fetcher *fetcher = world_fetcher(4, owners);
    for (unsigned i = 0; i < AHEAD; i++) {
        rks_wanted wanted[200];
        world_draw(ids[i], 200, i);
        world_wanted_many(ids[i], 200, wanted);
        assert_ok(world_start(fetcher, wanted, 200, &fetches[i], &err), &err);
        if (i % 5 == 4)
            rks_fetch_cancel(fetches[i]);
    }
    for (unsigned i = 0; i < AHEAD; i++) {
        rks_batch *batch = NULL;
        if (i % 5 == 4)
            continue;
        if (i % 5 == 3) {
            rks_fetch_cancel(fetches[i]);
            continue;
        }
        while (i % 5 == 1 && !rks_fetch_ready(fetches[i]))
            ;
        assert_ok(rks_fetch_wait(fetches[i], &batch, &err), &err);
        world_check_batch(batch, ids[i], 200);
        rks_batch_free(batch);
    }
    rks_fetcher_close(fetcher);
}

static void a_fetcher_may_close_while_cancelled_requests_are_on_their_way(void **state)
{
    (void)state;
    serve(1, 7);
    static const int32_t *const owners[] = {ONE, ONE, ONE};
    for (unsigned round = 0; round < 50; round++) {
        rks_fetch *fetch = NULL;
        uint64_t ids[300];
        rks_wanted wanted[300];
        rks_fetcher *fetcher = world_fetcher(0, owners);
        world_draw(ids, 300, round);
        world_wanted_many(ids, 300, wanted);
        assert_ok(world_start(fetcher, wanted, 300, &fetch, &err), &err);
        rks_fetch_cancel(fetch);
        rks_fetcher_close(fetcher);
    }
}

static void replies_on_their_way_keep_the_cap(void **state)
{
    (void)state;
    rks_fetch_stats stats = {0};
    rks_fetcher *fetcher = NULL;
    static const int32_t *const owners[] = {ONE, ONE, ONE};
    rks_fetcher_options options = world_options(0, 0, owners);
    options.inflight_bytes = 600 << 10;
    serve(1, 7);
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    for (unsigned i = 0; i < 3; i++)
        fetch_and_check(fetcher, 2000, i);
    rks_fetcher_stats(fetcher, &stats);
    assert_true(stats.peak_inflight_bytes > 0);
    assert_true(stats.peak_inflight_bytes <= options.inflight_bytes);
    rks_fetcher_close(fetcher);
    /* a cap below any reply still lets one through at a time */
    options = world_options(0, 0, owners);
    options.inflight_bytes = 1;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    fetch_and_check(fetcher, 1000, 7);
    rks_fetcher_close(fetcher);
}

static void a_shard_that_nobody_serves_is_named(void **state)
{
    (void)state;
    static const int32_t *const owners[] = {ONE, NOBODY, NULL};
    rks_batch *batch = NULL;
    serve(1, 1);
    rks_fetcher *fetcher = world_fetcher(0, owners);
    for (uint64_t shard = 1; shard < 3; shard++) {
        rks_wanted wanted[2] = {world_wanted(1), world_wanted(shard * WORLD_ROWS)};
        assert_fails(RKS_ERR_NOT_FOUND, world_fetch(fetcher, wanted, 2, &batch, &err));
        assert_contains(err.text, "no rank serves shard");
        assert_contains(err.text, shard == 1 ? "sample 400 " : "sample 800 ");
    }
    fetch_and_check(fetcher, 0, 0);
    rks_fetcher_close(fetcher);
}

static void an_owner_refuses_what_it_does_not_serve_and_goes_on(void **state)
{
    (void)state;
    rks_digest real = w.ids[0];
    rks_batch *batch = NULL;
    rks_wanted wanted[2] = {world_wanted(1), world_wanted(WORLD_ROWS + 1)};
    static const int32_t *const owners[] = {ONE, ONE, ONE};
    serve(1, 1);
    rks_fetcher *fetcher = world_fetcher(0, owners);
    assert_fails(RKS_ERR_NOT_FOUND, world_fetch(fetcher, wanted + 1, 1, &batch, &err));
    assert_contains(err.text, "shard 1 is not served here");
    assert_contains(err.text, "sample 401 (key key/401)");
    assert_int_equal(err.rank, 1);
    wanted[0].row = WORLD_ROWS;
    assert_fails(RKS_ERR_ARGUMENT, world_fetch(fetcher, wanted, 1, &batch, &err));
    assert_contains(err.text, "rows 400 + 1 of 400");
    rks_fetcher_close(fetcher);
    w.ids[0].low ^= 1;
    fetcher = world_fetcher(0, owners);
    w.ids[0] = real;
    wanted[0] = world_wanted(1);
    assert_fails(RKS_ERR_NOT_FOUND, world_fetch(fetcher, wanted, 1, &batch, &err));
    assert_contains(err.text, "another id");
    rks_fetcher_close(fetcher);
    fetcher = world_fetcher(0, owners);
    assert_ok(world_fetch(fetcher, wanted, 1, &batch, &err), &err);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void a_transplanted_sample_is_found(void **state)
{
    (void)state;
    static const int32_t *const owners[] = {ONE, ONE, ONE};
    serve(1, 7);
    rks_fetcher *fetcher = world_fetcher(0, owners);
    for (int what = 0; what < 3; what++) {
        rks_batch *batch = NULL;
        rks_wanted wanted[2] = {world_wanted(8), world_wanted(9)};
        wanted[1].row += what == 0;
        wanted[1].length += what == 1;
        wanted[1].key_hash += what == 2;
        assert_fails(RKS_ERR_CORRUPT, world_fetch(fetcher, wanted, 2, &batch, &err));
        assert_contains(err.text, "sample 9 (key key/9)");
        assert_int_equal(err.rank, 1);
        assert_null(batch);
    }
    fetch_and_check(fetcher, 100, 1);
    rks_fetcher_close(fetcher);
}

static void another_owner_is_asked_when_the_first_fails(void **state)
{
    (void)state;
    static const int32_t *const owners[] = {ONE_TWO, ONE_TWO, THREE};
    serve(1, 2); /* has shard 1 only */
    serve(2, 3);
    serve(3, 4);
    rks_fetcher *fetcher = world_fetcher(0, owners);
    fetch_and_check(fetcher, 500, 1);
    assert_true(rks_fetch_server_bytes(servers[2]) > 0);
    /* an owner that has gone */
    rks_fetch_server_close(servers[1]);
    servers[1] = NULL;
    rks_engine_close(w.engines[1], 0);
    w.engines[1] = NULL;
    fetch_and_check(fetcher, 500, 2);
    fetch_and_check(fetcher, 500, 3);
    rks_fetcher_close(fetcher);
}

static void an_owner_that_is_gone_is_named(void **state)
{
    (void)state;
    rks_batch *batch = NULL;
    serve(1, 1);
    serve(2, 2);
    rks_fetcher *fetcher = world_fetcher(0, EACH_ITS_OWN);
    rks_wanted wanted[2] = {world_wanted(400), world_wanted(5)};
    assert_ok(world_fetch(fetcher, wanted, 2, &batch, &err), &err);
    rks_batch_free(batch);
    batch = NULL;
    rks_fetch_server_close(servers[1]);
    servers[1] = NULL;
    rks_engine_close(w.engines[1], 0);
    w.engines[1] = NULL;
    assert_fails(RKS_ERR_PEER, world_fetch(fetcher, wanted, 2, &batch, &err));
    assert_int_equal(err.rank, 1);
    assert_contains(err.text, "sample 5 (key key/5)");
    assert_null(batch);
    assert_ok(world_fetch(fetcher, wanted, 1, &batch, &err), &err);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void without_an_engine_only_maps_are_read(void **state)
{
    (void)state;
    rks_fetcher *fetcher = NULL;
    rks_batch *batch = NULL;
    rks_fetcher_options options = world_options(0, 1, EACH_ITS_OWN);
    options.engine = NULL;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    rks_wanted wanted[2] = {world_wanted(5), world_wanted(405)};
    assert_ok(world_fetch(fetcher, wanted, 1, &batch, &err), &err);
    rks_batch_free(batch);
    assert_fails(RKS_ERR_STATE, world_fetch(fetcher, wanted, 2, &batch, &err));
    rks_fetcher_close(fetcher);
}

/* Samples of 20, 7, 7 and 7 MB and a small one, in a shard of their own. */
static void samples_above_a_reply_s_bound_arrive(void **state)
{
    (void)state;
    enum { ROWS = 5, MEGABYTE = 1000000 };
    static const size_t sizes[ROWS] = {20 * MEGABYTE, 7 * MEGABYTE, 7 * MEGABYTE, 7 * MEGABYTE, 9};
    char path[128], key[16];
    rks_schema *schema = NULL;
    rks_shard_writer *writer = NULL;
    rks_shard *shard = NULL;
    uint8_t *bytes = malloc(sizes[0]);
    for (size_t i = 0; i < sizes[0]; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    assert_ok(rks_schema_parse("data:bytes", &schema, &err), &err);
    rks_shard_options options = {.schema = schema};
    assert_ok(rks_shard_writer_open(w.directory, "big", &options, &writer, &err), &err);
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t row = 0; row < ROWS; row++) {
        rks_value value = {.data = bytes + row, .size = sizes[row] - row};
        snprintf(key, sizeof(key), "big%u", row);
        assert_ok(rks_shard_writer_add(writer, &value, key, 4, row, row, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, ROWS, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    snprintf(path, sizeof(path), "%s/big.json", w.directory);
    assert_ok(rks_shard_open(path, &shard, &err), &err);
    assert_ok(
        rks_fetch_server_open(w.engines[1], RKS_SERVICE_FETCH, &shard, 1, 1, &servers[1], &err),
        &err);

    rks_fetcher *fetcher = NULL;
    rks_batch *batch = NULL;
    rks_fetch_stats stats = {0};
    rks_digest id = rks_shard_id(shard);
    uint64_t largest = rks_shard_largest(shard);
    static const int32_t *const owners[] = {ONE};
    rks_fetcher_options fetching = {.engine = w.engines[0],
                                    .shard_ids = &id,
                                    .largest = &largest,
                                    .owners = owners,
                                    .shard_count = 1,
                                    .schema = schema,
                                    .check = true,
                                    .service = RKS_SERVICE_FETCH};
    assert_ok(rks_fetcher_open(&fetching, &fetcher, &err), &err);
    rks_wanted wanted[2 * ROWS];
    for (uint32_t i = 0; i < 2 * ROWS; i++) {
        snprintf(key, sizeof(key), "big%u", i % ROWS);
        wanted[i] = (rks_wanted){
            .id = i, .row = i % ROWS, .key_hash = rks_key_hash(key, 4), .length = i % ROWS};
    }
    assert_ok(world_fetch(fetcher, wanted, 2 * ROWS, &batch, &err), &err);
    for (uint32_t i = 0; i < 2 * ROWS; i++) {
        rks_value value;
        assert_ok(rks_batch_value(batch, i, 0, &value, &err), &err);
        assert_int_equal(value.size, sizes[i % ROWS] - i % ROWS);
        assert_memory_equal(value.data, bytes + i % ROWS, value.size);
    }
    rks_fetcher_stats(fetcher, &stats);
    assert_true(stats.peak_inflight_bytes <=
                20 * MEGABYTE + 1000); /* one at a time: split replies */
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
    rks_fetch_server_close(servers[1]);
    servers[1] = NULL;
    rks_shard_close(shard);
    rks_schema_free(schema);
    free(bytes);
    static const char *const kinds[] = {"rks", "sums", "json", "lock"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s/big.%s", w.directory, kinds[i]);
        unlink(path);
    }
}

static bool read_some(rks_fetcher *fetcher, unsigned round, unsigned seed)
{
    uint64_t ids[64];
    rks_wanted wanted[64];
    rks_batch *batch = NULL;
    rks_fetch *fetch = NULL;
    bool good;
    world_draw(ids, 64, seed);
    for (size_t k = 0; round % 4 == 3 && k < 64; k++)
        ids[k] = 5 + 37 * (ids[k] % 32); /* wide ones: replies that workers or waiters check */
    world_wanted_many(ids, 64, wanted);
    if (round % 3 == 0)
        good = world_fetch(fetcher, wanted, 64, &batch, NULL) == RKS_OK;
    else
        good = world_start(fetcher, wanted, 64, &fetch, NULL) == RKS_OK;
    if (round % 3 == 1 && good)
        good = rks_fetch_wait(fetch, &batch, NULL) == RKS_OK;
    if (round % 3 == 2 && good)
        rks_fetch_cancel(fetch);
    else if (good)
        world_check_batch(batch, ids, 64);
    rks_batch_free(batch);
    return good;
}

static void four_threads_fetch_at_once(void **state)
{
    (void)state;
    for (uint32_t rank = 1; rank < 4; rank++)
        serve(rank, 1u << (rank - 1));
    rks_fetcher *fetcher = world_fetcher(1, EACH_ITS_OWN);
    world_read_by_threads(fetcher, read_some, 40);
    rks_fetcher_close(fetcher);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    static const int32_t *const owners[] = {ONE_TWO, ONE_TWO, ONE_TWO};
    const uint64_t ids[] = {1, 402, 900, 5};
    rks_wanted wanted[4];
    serve(1, 7);
    serve(2, 7);
    world_wanted_many(ids, 4, wanted);
    int passed = 0;
    for (long n = 1; passed < 20; n++) {
        assert_true(n < 500);
        rks_fetcher *fetcher = NULL;
        rks_batch *batch = NULL;
        rks_fetcher_options options = world_options(0, 1, owners);
        rks_memory_fail_at(n);
        rks_status status = rks_fetcher_open(&options, &fetcher, &err);
        if (status == RKS_OK)
            status = world_fetch(fetcher, wanted, 4, &batch, &err);
        rks_memory_fail_at(0);
        passed = status == RKS_OK ? passed + 1 : 0;
        if (status == RKS_OK)
            world_check_batch(batch, ids, 4);
        else
            assert_true(status == RKS_ERR_MEMORY || status == RKS_ERR_PEER);
        rks_batch_free(batch);
        rks_fetcher_close(fetcher);
    }
}

#define CONNECTED(test) cmocka_unit_test_setup_teardown(test, connect_world, disconnect_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONNECTED(samples_come_from_their_owners_in_order),
        CONNECTED(rows_that_were_served_before_come_the_same_again),
        CONNECTED(a_rank_that_stands_for_the_owners_is_asked_first),
        CONNECTED(figures_add_up_on_both_sides),
        CONNECTED(fetches_started_ahead_arrive_or_are_cancelled),
        CONNECTED(a_fetcher_may_close_while_cancelled_requests_are_on_their_way),
        CONNECTED(replies_on_their_way_keep_the_cap),
        CONNECTED(a_shard_that_nobody_serves_is_named),
        CONNECTED(an_owner_refuses_what_it_does_not_serve_and_goes_on),
        CONNECTED(a_transplanted_sample_is_found),
        CONNECTED(another_owner_is_asked_when_the_first_fails),
        CONNECTED(an_owner_that_is_gone_is_named),
        CONNECTED(without_an_engine_only_maps_are_read),
        CONNECTED(samples_above_a_reply_s_bound_arrive),
        CONNECTED(four_threads_fetch_at_once),
        CONNECTED(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("fetch_remote", tests, world_begin, world_end);
}
