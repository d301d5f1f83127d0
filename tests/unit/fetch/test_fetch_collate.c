/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_collate.c: fetches that bring arrays, from maps of this node and from other ranks.
 * Rank 0 asks; rank 1 owns what is not mapped. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "fetch/fetcher.h"
#include "world.h"

static rks_fetch_server *server;
static rks_collate *collate; /* all columns, packed where they vary; tokens as int64 */

enum { SILENCE_MS = 60000, IDS = WORLD_SHARDS * WORLD_ROWS };

static const int32_t ONE[] = {1, -1};
static const int32_t *const OWNERS[] = {ONE, ONE, ONE};

static int open_world(void **state)
{
    static const rks_collate_column columns[] = {{.column = "tokens", .type = "int64"},
                                                 {.column = "wave"},
                                                 {.column = "note"},
                                                 {.column = "score"}};
    rks_collate_options options;
    (void)state;
    world_open();
    world_connect(2, SILENCE_MS);
    assert_ok(rks_fetch_server_open(w.engines[1], RKS_SERVICE_FETCH, w.shards, WORLD_SHARDS, 1,
                                    &server, &err),
              &err);
    rks_collate_options_default(&options);
    options.layout = "pack";
    options.columns = columns;
    options.column_count = 4;
    assert_ok(rks_collate_create(w.schema, &options, &collate, &err), &err);
    return 0;
}

static int close_world(void **state)
{
    rks_collate_release(collate);
    rks_fetch_server_close(server);
    return world_end(state);
}

/* Shards of the bits are mapped. */
static rks_fetcher *open_fetcher(unsigned mapped, bool check)
{
    rks_fetcher *fetcher = NULL;
    rks_fetcher_options options = world_options(0, mapped, OWNERS);
    options.check = check;
    assert_ok(rks_fetcher_open(&options, &fetcher, &err), &err);
    return fetcher;
}

static void draw(uint64_t *ids, rks_wanted *wanted, size_t count, unsigned seed)
{
    world_draw(ids, count, seed);
    world_wanted_many(ids, count, wanted);
}

static bool value_is(const rks_array *array, size_t i, size_t item, const rks_value *value)
{
    const char *data = array->data;
    int64_t from = array->offsets[i], items = array->offsets[i + 1] - from;
    return (uint64_t)items * item == value->size &&
           memcmp(data + (size_t)from * item, value->data == NULL ? "" : value->data,
                  value->size) == 0;
}

/* Arrays are what the samples are, which `batch` has from another fetch. */
static bool same_samples(const rks_arrays *arrays, rks_batch *batch)
{
    bool good = rks_arrays_samples(arrays) == rks_batch_count(batch);
    const rks_array *tokens = rks_arrays_get(arrays, 0);
    for (size_t i = 0; good && i < rks_batch_count(batch); i++) {
        rks_value values[5];
        for (uint32_t column = 0; column < 5; column++)
            good = good && rks_batch_value(batch, i, column, &values[column], NULL) == RKS_OK;
        int64_t from = tokens->offsets[i], count = tokens->offsets[i + 1] - from;
        good = good && (uint64_t)count * 4 == values[0].size;
        for (int64_t k = 0; good && k < count; k++) {
            int32_t token;
            memcpy(&token, (const char *)values[0].data + 4 * k, 4);
            good = ((const int64_t *)tokens->data)[from + k] == token;
        }
        good =
            good && value_is(rks_arrays_get(arrays, 1), i, 1, &values[3]) &&
            value_is(rks_arrays_get(arrays, 2), i, 1, &values[2]) &&
            memcmp((const double *)rks_arrays_get(arrays, 3)->data + i, values[4].data, 8) == 0 &&
            rks_arrays_ids(arrays)[i] == rks_batch_id(batch, i) &&
            rks_arrays_lengths(arrays)[i] == rks_batch_length(batch, i);
    }
    return good;
}

static bool arrays_are(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                       const rks_arrays *arrays)
{
    rks_batch *batch = NULL;
    bool good =
        world_fetch(fetcher, wanted, count, &batch, NULL) == RKS_OK && same_samples(arrays, batch);
    rks_batch_free(batch);
    return good;
}

/* 0: nothing is mapped, 7: all is. */
static const unsigned MAPPED[] = {7, 5, 0};

static void arrays_hold_the_samples_in_the_order_asked_for(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1000};
    static uint64_t ids[1000];
    static rks_wanted wanted[1000];
    for (size_t m = 0; m < 3; m++) {
        rks_fetcher *fetcher = open_fetcher(MAPPED[m], true);
        for (size_t i = 0; i < 6; i++) {
            rks_arrays *arrays = NULL;
            rks_fetch *fetch = NULL;
            draw(ids, wanted, sizes[i], (unsigned)i);
            assert_ok(world_collate(fetcher, wanted, sizes[i], collate, &arrays, &err), &err);
            assert_true(arrays_are(fetcher, wanted, sizes[i], arrays));
            rks_arrays_free(arrays);
            assert_ok(world_start_arrays(fetcher, wanted, sizes[i], collate, &fetch, &err), &err);
            assert_ok(rks_fetch_wait_arrays(fetch, &arrays, &err), &err);
            assert_true(arrays_are(fetcher, wanted, sizes[i], arrays));
            rks_arrays_free(arrays);
        }
        rks_fetcher_close(fetcher);
    }
}

static void threads_make_arrays_ahead_of_time(void **state)
{
    (void)state;
    uint64_t ids[200];
    rks_wanted wanted[200];
    for (size_t m = 0; m < 3; m++) {
        rks_fetcher *fetcher = open_fetcher(MAPPED[m], true);
        rks_fetch *fetch = NULL;
        rks_arrays *arrays = NULL;
        draw(ids, wanted, 200, 3);
        assert_ok(world_start_arrays(fetcher, wanted, 200, collate, &fetch, &err), &err);
        while (!rks_fetch_ready(fetch)) /* nobody waits for it: who makes them is a worker */
            ;
        assert_ok(rks_fetch_wait_arrays(fetch, &arrays, &err), &err);
        assert_true(rks_arrays_memory(arrays) > 0);
        assert_true(arrays_are(fetcher, wanted, 200, arrays));
        rks_arrays_free(arrays);
        rks_fetcher_close(fetcher);
    }
}

static void a_fetch_can_be_cancelled_in_every_state(void **state)
{
    (void)state;
    enum { AHEAD = 40 };
    static rks_wanted wanted[AHEAD][300];
    uint64_t ids[300];
    rks_fetch *fetches[AHEAD];
    for (size_t m = 0; m < 3; m++) {
        rks_fetcher *fetcher = open_fetcher(MAPPED[m], true);
        for (unsigned i = 0; i < AHEAD; i++) {
            draw(ids, wanted[i], 300, i);
            assert_ok(world_start_arrays(fetcher, wanted[i], 300, collate, &fetches[i], &err),
                      &err);
            if (i % 5 == 0)
                rks_fetch_cancel(fetches[i]); /* before anything has come */
        }
        for (unsigned i = 0; i < AHEAD; i++) {
            rks_arrays *arrays = NULL;
            if (i % 5 == 0)
                continue;
            while (i % 5 == 1 && !rks_fetch_ready(fetches[i]))
                ;
            if (i % 5 < 3) { /* when all is over, and on the way */
                rks_fetch_cancel(fetches[i]);
                continue;
            }
            assert_ok(rks_fetch_wait_arrays(fetches[i], &arrays, &err), &err);
            assert_true(arrays_are(fetcher, wanted[i], 300, arrays));
            rks_arrays_free(arrays);
        }
        rks_fetcher_close(fetcher);
    }
    for (unsigned round = 0; round < 50; round++) { /* and while the fetcher closes */
        rks_fetcher *fetcher = open_fetcher(MAPPED[round % 3], true);
        assert_ok(world_start_arrays(fetcher, wanted[0], round * 6, collate, &fetches[0], &err),
                  &err);
        rks_fetch_cancel(fetches[0]);
        rks_fetcher_close(fetcher);
    }
}

static void figures_say_what_was_delivered(void **state)
{
    (void)state;
    static uint64_t ids[WORLD_ROWS];
    static rks_wanted wanted[WORLD_ROWS];
    for (size_t i = 0; i < WORLD_ROWS; i++)
        ids[i] = WORLD_ROWS + i;
    world_wanted_many(ids, WORLD_ROWS, wanted);
    for (size_t m = 0; m < 3; m++) {
        rks_fetch_stats stats = {0};
        rks_arrays *arrays = NULL;
        bool local = MAPPED[m] == 7;
        rks_fetcher *fetcher = open_fetcher(MAPPED[m], true);
        assert_ok(world_collate(fetcher, wanted, WORLD_ROWS, collate, &arrays, &err), &err);
        rks_arrays_free(arrays);
        rks_fetcher_stats(fetcher, &stats);
        assert_int_equal(stats.samples, WORLD_ROWS);
        assert_int_equal(stats.local_bytes, local ? rks_shard_bytes(w.shards[1]) : 0);
        assert_int_equal(stats.remote_bytes, local ? 0 : rks_shard_bytes(w.shards[1]));
        rks_fetcher_close(fetcher);
    }
}

static void a_sample_that_the_index_does_not_know_so_is_corrupt(void **state)
{
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        rks_fetcher *fetcher = open_fetcher(MAPPED[m], true);
        for (int what = 0; what < 6; what++) {
            rks_arrays *arrays = NULL;
            rks_fetch *fetch = NULL;
            rks_wanted wanted[2] = {world_wanted(8), world_wanted(9)};
            wanted[1].row += what % 3 == 0; /* its neighbour lies there: transplanted */
            wanted[1].length += what % 3 == 1;
            wanted[1].key_hash += what % 3 == 2;
            if (what < 3) {
                assert_fails(RKS_ERR_CORRUPT,
                             world_collate(fetcher, wanted, 2, collate, &arrays, &err));
            } else {
                assert_ok(world_start_arrays(fetcher, wanted, 2, collate, &fetch, &err), &err);
                assert_fails(RKS_ERR_CORRUPT, rks_fetch_wait_arrays(fetch, &arrays, &err));
            }
            assert_contains(err.text, "sample 9 (key key/9)");
            assert_null(arrays);
        }
        rks_fetcher_close(fetcher);
    }
}

/* Where the record of a row lies in its shard's file. */
static uint64_t file_offset(uint64_t id, rks_record_view *view)
{
    rks_record_view first;
    const rks_shard *shard = w.shards[id / WORLD_ROWS];
    assert_ok(rks_shard_locate(shard, id % WORLD_ROWS, view, &err), &err);
    assert_ok(rks_shard_locate(shard, 0, &first, &err), &err);
    uint8_t head[24], found[24];
    memcpy(head, first.record, 24);
    int fd = open(rks_shard_path(shard), O_RDONLY);
    uint64_t at = (uintptr_t)first.record % 4096;
    while (pread(fd, found, 24, (off_t)at) == 24 && memcmp(head, found, 24) != 0)
        at += 4096;
    close(fd);
    return at + (uint64_t)(view->record - first.record);
}

/* Each byte of a sample flipped in the file: its arrays fail, or are those of the right bytes. */
static void flip_all_of(uint64_t id)
{
    rks_record_view view;
    rks_batch *right = NULL;
    size_t harmless = 0;
    rks_wanted wanted = world_wanted(id);
    uint64_t at = file_offset(id, &view);
    int fd = open(rks_shard_path(w.shards[id / WORLD_ROWS]), O_RDWR);
    rks_fetcher *fetcher = open_fetcher(7, true);
    assert_true(fd >= 0);
    assert_ok(world_fetch(fetcher, &wanted, 1, &right, &err), &err);
    for (size_t i = 0; i < view.record_size; i++) {
        rks_arrays *arrays = NULL;
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, (off_t)(at + i)), 1);
        byte ^= (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(at + i)), 1);
        if (world_collate(fetcher, &wanted, 1, collate, &arrays, &err) == RKS_OK) {
            harmless++;
            assert_true(same_samples(arrays, right));
            rks_arrays_free(arrays);
        } else {
            assert_contains(err.text, "sample ");
        }
        byte ^= (uint8_t)(1u << i % 8);
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(at + i)), 1);
    }
    close(fd);
    rks_batch_free(right);
    rks_fetcher_close(fetcher);
    assert_true(harmless <= 5); /* flags, and the source row where keys are stored */
}

static void a_flipped_byte_never_gets_into_arrays(void **state)
{
    (void)state;
    flip_all_of(15);
    flip_all_of(2 * WORLD_ROWS + 16);
    flip_all_of(42); /* with a wave of 9000 bytes */
}

static void without_checks_everything_gets_into_arrays(void **state)
{
    (void)state;
    rks_fetcher *fetcher = open_fetcher(7, false);
    rks_arrays *arrays = NULL;
    rks_wanted wanted = world_wanted(9);
    wanted.key_hash++;
    assert_ok(world_collate(fetcher, &wanted, 1, collate, &arrays, &err), &err);
    assert_true(arrays_are(fetcher, &wanted, 1, arrays));
    rks_arrays_free(arrays);
    rks_fetcher_close(fetcher);
}

/* What a writer does to a sample meanwhile: other bytes, which fit, and back. */
typedef struct spoiler {
    pthread_t thread;
    int fd;
    uint64_t at;
    size_t size;
    uint8_t right[16 << 10];
    atomic_bool stop;
} spoiler;

static void *spoil(void *user)
{
    spoiler *s = user;
    uint8_t wrong[sizeof(s->right)];
    for (size_t i = 0; i < s->size; i++)
        wrong[i] = (uint8_t)~s->right[i];
    while (!atomic_load(&s->stop))
        if (pwrite(s->fd, wrong, s->size, (off_t)s->at) != (ssize_t)s->size ||
            pwrite(s->fd, s->right, s->size, (off_t)s->at) != (ssize_t)s->size)
            break;
    return NULL;
}

static void a_file_that_changes_meanwhile_does_no_harm(void **state)
{
    (void)state;
    enum { ID = 42 };
    static spoiler s;
    rks_record_view view;
    rks_batch *batch = NULL;
    rks_value value;
    rks_wanted wanted = world_wanted(ID);
    rks_fetcher *fetcher = open_fetcher(7, true);
    assert_ok(world_fetch(fetcher, &wanted, 1, &batch, &err), &err);
    assert_ok(rks_batch_value(batch, 0, 3, &value, &err), &err);
    /* a part of the wave */
    size_t payload = 0;
    const uint8_t *begin = rks_batch_payload(batch, 0, &payload);
    s.at = file_offset(ID, &view);
    s.at +=
        (uint64_t)(view.payload - view.record) + (uint64_t)((const uint8_t *)value.data - begin);
    s.size = value.size;
    memcpy(s.right, value.data, s.size);
    s.fd = open(rks_shard_path(w.shards[0]), O_RDWR);
    assert_true(s.fd >= 0);
    assert_int_equal(pthread_create(&s.thread, NULL, spoil, &s), 0);
    for (int i = 0; i < 3000; i++) {
        rks_arrays *arrays = NULL;
        rks_status status = world_collate(fetcher, &wanted, 1, collate, &arrays, &err);
        assert_true(status == RKS_OK ? same_samples(arrays, batch) : status == RKS_ERR_CORRUPT);
        rks_arrays_free(arrays);
    }
    atomic_store(&s.stop, true);
    pthread_join(s.thread, NULL);
    close(s.fd);
    rks_batch_free(batch);
    rks_fetcher_close(fetcher);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const uint64_t ids[] = {1, 402, 900, 5};
    rks_wanted wanted[4];
    world_wanted_many(ids, 4, wanted);
    for (int ahead = 0; ahead < 2; ahead++) {
        bool done = false;
        for (long n = 1; !done; n++) {
            assert_true(n < 100);
            rks_fetcher *fetcher = NULL;
            rks_arrays *arrays = NULL;
            rks_fetch *fetch = NULL;
            rks_fetcher_options options = world_options(0, 7, NULL);
            long before = rks_memory_in_use();
            rks_memory_fail_at(n);
            rks_status status = rks_fetcher_open(&options, &fetcher, &err);
            if (status == RKS_OK && ahead == 0)
                status = world_collate(fetcher, wanted, 4, collate, &arrays, &err);
            else if (status == RKS_OK)
                status = world_start_arrays(fetcher, wanted, 4, collate, &fetch, &err);
            if (fetch != NULL)
                status = rks_fetch_wait_arrays(fetch, &arrays, &err);
            rks_memory_fail_at(0);
            done = status == RKS_OK;
            if (!done)
                assert_int_equal(status, RKS_ERR_MEMORY);
            rks_arrays_free(arrays);
            rks_fetcher_close(fetcher);
            assert_int_equal(rks_memory_in_use(), before);
        }
    }
}

static void survives_failing_allocations_with_other_ranks(void **state)
{
    (void)state;
    const uint64_t ids[] = {1, 402, 900, 5};
    rks_wanted wanted[4];
    int passed = 0;
    world_wanted_many(ids, 4, wanted);
    for (long n = 1; passed < 20; n++) {
        assert_true(n < 500);
        rks_fetcher *fetcher = NULL;
        rks_arrays *arrays = NULL;
        rks_fetcher_options options = world_options(0, 1, OWNERS);
        rks_memory_fail_at(n);
        rks_status status = rks_fetcher_open(&options, &fetcher, &err);
        if (status == RKS_OK)
            status = world_collate(fetcher, wanted, 4, collate, &arrays, &err);
        rks_memory_fail_at(0);
        passed = status == RKS_OK ? passed + 1 : 0;
        if (status == RKS_OK)
            assert_true(arrays_are(fetcher, wanted, 4, arrays));
        else
            assert_true(status == RKS_ERR_MEMORY || status == RKS_ERR_PEER);
        rks_arrays_free(arrays);
        rks_fetcher_close(fetcher);
    }
}

/* The last: it does harm. */
static void a_cut_file_is_an_error_of_its_samples_only(void **state)
{
    (void)state;
    char path[128];
    rks_shard *again = NULL;
    /* cmocka took the handler of SIGBUS for this test; an open takes it back */
    snprintf(path, sizeof(path), "%s/part0.json", w.directory);
    assert_ok(rks_shard_open(path, &again, &err), &err);
    rks_shard_close(again);
    rks_fetcher *earlier = open_fetcher(7, true);
    rks_view *kept = NULL;
    rks_wanted of_cut = world_wanted(778);
    assert_ok(rks_fetcher_view(earlier, &of_cut, &kept, &err), &err);
    for (int i = 0; i < 2; i++) { /* copied, and not */
        world_lose_page(w.shards[0], 42, 5000);
        rks_fetcher *fetcher = open_fetcher(7, i == 0);
        rks_arrays *arrays = NULL;
        rks_wanted two[2] = {world_wanted(4), world_wanted(42)};
        assert_fails(RKS_ERR_IO, world_collate(fetcher, two, 2, collate, &arrays, &err));
        assert_contains(err.text, "sample 42 (key key/42)");
        assert_ok(world_collate(fetcher, two, 2, collate, &arrays, &err), &err); /* mapped anew */
        assert_true(arrays_are(fetcher, two, 2, arrays));
        rks_arrays_free(arrays);
        rks_fetcher_close(fetcher);
    }
    assert_int_equal(truncate(rks_shard_path(w.shards[1]), 8192), 0);
    rks_wanted wanted[2] = {world_wanted(3), world_wanted(777)};
    for (int i = 0; i < 8; i++) {
        rks_fetcher *fetcher = open_fetcher(i % 2 == 0 ? 7 : 5, i % 4 < 2);
        rks_arrays *arrays = NULL;
        rks_view *view = NULL;
        rks_fetch *fetch = NULL;
        if (i < 4) {
            assert_fails(RKS_ERR_IO, world_collate(fetcher, wanted, 2, collate, &arrays, &err));
        } else {
            assert_ok(world_start_arrays(fetcher, wanted, 2, collate, &fetch, &err), &err);
            assert_fails(RKS_ERR_IO, rks_fetch_wait_arrays(fetch, &arrays, &err));
        }
        assert_contains(err.text, "sample 777 (key key/777)");
        assert_fails(RKS_ERR_IO, rks_fetcher_view(fetcher, &wanted[1], &view, &err));
        assert_contains(err.text, "sample 777 (key key/777)");
        assert_ok(world_collate(fetcher, wanted, 1, collate, &arrays, &err), &err);
        assert_true(arrays_are(fetcher, wanted, 1, arrays));
        rks_arrays_free(arrays);
        rks_fetcher_close(fetcher);
    }
    rks_value value;
    static const uint8_t zeros[64 * 4];
    assert_ok(rks_view_value(kept, 0, &value, &err), &err); /* as it was, and reads as zeros */
    assert_int_equal(value.size, of_cut.length * 4);
    assert_true(value.size > 0);
    assert_memory_equal(value.data, zeros, value.size);
    rks_view_free(kept);
    rks_fetcher_close(earlier);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_hold_the_samples_in_the_order_asked_for),
        cmocka_unit_test(threads_make_arrays_ahead_of_time),
        cmocka_unit_test(a_fetch_can_be_cancelled_in_every_state),
        cmocka_unit_test(figures_say_what_was_delivered),
        cmocka_unit_test(a_sample_that_the_index_does_not_know_so_is_corrupt),
        cmocka_unit_test(a_flipped_byte_never_gets_into_arrays),
        cmocka_unit_test(without_checks_everything_gets_into_arrays),
        cmocka_unit_test(a_file_that_changes_meanwhile_does_no_harm),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(survives_failing_allocations_with_other_ranks),
        cmocka_unit_test(a_cut_file_is_an_error_of_its_samples_only),
    };
    alarm(600); /* a wait that never ends is a failure, not a stuck job */
    return cmocka_run_group_tests_name("fetch_collate", tests, open_world, close_world);
}
