/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard.c: reading whole shards. */
#include "unit/shard/opened_shard.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/shard_check.h"

/* ---- whole shards ------------------------------------------------------------------------- */

static void reads_every_sample_and_its_key(void **state)
{
    (void)state;
    for (int derived = 0; derived < 2; derived++) {
        shards_recipe recipe = {
            .samples = 700, .units = 5, .wide_every = 50, .derived_keys = derived != 0};
        const char *name = derived ? "derived" : "stored";
        shards_write(shards_here, name, &recipe);
        assert_int_equal(refused_samples(name, &recipe), 0);
        rks_shard *shard = shards_open(shards_here, name);
        for (uint64_t row = 0; row < 700; row++) {
            char right[RKS_KEY_MAX + 1];
            uint8_t key[RKS_KEY_MAX];
            size_t key_size = 0;
            assert_ok(rks_shard_key(shard, row, key, &key_size, &err), &err);
            assert_int_equal(key_size, shards_key(&recipe, row, right));
            assert_memory_equal(key, right, key_size);
        }
        rks_shard_close(shard);
    }
}

static size_t maps_of(const char *name)
{
    char line[4096];
    size_t count = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, name) != NULL;
    fclose(file);
    return count;
}

/* The kernel gives a process 65,530 maps, and each change of advice splits one. */
static void advice_for_random_reads_leaves_a_shard_three_maps(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 400, .units = 3, .size_most = 6000, .index = true};
    shards_write(shards_here, "advised", &recipe);
    rks_shard *shard = shards_open(shards_here, "advised");
    assert_true(rks_shard_file_bytes(shard) > 1 << 20); /* a smaller one is read whole */
    assert_int_equal(maps_of("/advised.rks"), 1);
    rks_shard_expect_random(shard);
    assert_in_range(maps_of("/advised.rks"), 2, 3);
    assert_int_equal(refused_samples("advised", &recipe), 0);
    rks_shard_close(shard);
    assert_int_equal(maps_of("/advised.rks"), 0);
}

static void says_what_the_manifest_says(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 300, .units = 4, .index = true, .first = 1000};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    uint64_t files = 0;
    const char *const endings[] = {"a.rks", "a.sums", "a.json"};
    for (int i = 0; i < 3; i++) {
        struct stat info;
        assert_int_equal(stat(shards_path(endings[i]), &info), 0);
        files += (uint64_t)info.st_size;
    }
    assert_string_equal(rks_shard_path(shard), shards_path("a.rks"));
    assert_int_equal(rks_shard_count(shard), 300);
    assert_int_equal(rks_shard_file_bytes(shard), files);
    assert_int_equal(rks_shard_build_id(shard).low, 1);
    assert_false(rks_shard_manifest(shard)->derived_keys);
    assert_int_equal(rks_schema_columns(rks_shard_schema(shard)), 3);
    size_t units = 0;
    const rks_unit_summary *summaries = rks_shard_units(shard, &units);
    assert_int_equal(units, 4);
    uint64_t bytes = 0;
    for (size_t i = 0; i < units; i++)
        bytes += summaries[i].bytes;
    assert_int_equal(bytes, rks_shard_bytes(shard));
    assert_int_equal(rks_shard_index_columns(shard), 1);
    assert_string_equal(rks_shard_index_column(shard, 0)->name, "id");
    assert_null(rks_shard_index_column(shard, 1));
    int64_t ids[300];
    assert_ok(rks_shard_copy_column(shard, 0, 0, 300, ids, &err), &err);
    for (int i = 0; i < 300; i++)
        assert_int_equal(ids[i], 1000 + i);
    uint64_t largest = 0;
    for (uint64_t row = 0; row < 300; row++) {
        rks_record_view view;
        assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
        largest = view.record_size > largest ? view.record_size : largest;
        rks_shard_touch(shard, &view);
    }
    assert_int_equal(largest, rks_shard_largest(shard));
    rks_shard_close(shard);
    rks_shard_close(NULL);
}

static void copies_any_range_of_the_index(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 100};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    uint32_t lengths[100];
    uint64_t hashes[100];
    for (uint64_t first = 0; first <= 100; first += 9) {
        assert_ok(rks_shard_copy_lengths(shard, first, 100 - first, lengths, &err), &err);
        for (uint64_t i = 0; i < 100 - first; i++)
            assert_int_equal(lengths[i], shards_length(first + i));
    }
    assert_ok(rks_shard_copy_lengths(shard, 100, 0, lengths, &err), &err);
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_copy_lengths(shard, 1, 100, lengths, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_copy_key_hashes(shard, 101, 0, hashes, &err));
    assert_fails(RKS_ERR_ARGUMENT,
                 rks_shard_copy_key_hashes(shard, 5, UINT64_MAX - 2, hashes, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_copy_column(shard, 0, 0, 1, hashes, &err));
    rks_record_view view;
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate(shard, 100, &view, &err));
    assert_contains(err.text, "a.rks");
    rks_shard_close(shard);
}

static void a_batch_is_located_as_its_rows_are(void **state)
{
    (void)state;
    enum { COUNT = 150 };
    shards_recipe recipe = {.samples = 1000};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    uint64_t rows[COUNT];
    rks_record_view views[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        rows[i] = i * 7919 % 1000;
    assert_ok(rks_shard_locate_many(shard, rows, COUNT, views, &err), &err);
    for (size_t i = 0; i < COUNT; i++) {
        rks_record_view one;
        assert_ok(rks_shard_locate(shard, rows[i], &one, &err), &err);
        assert_ptr_equal(one.record, views[i].record);
        assert_int_equal(one.record_size, views[i].record_size);
    }
    assert_ok(rks_shard_locate_many(shard, rows, 0, views, &err), &err);
    rows[100] = 1000;
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate_many(shard, rows, COUNT, views, &err));
    rks_shard_close(shard);
}

static void wide_columns_are_aligned_in_the_map(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 60, .wide_every = 2};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = shards_open(shards_here, "a");
    for (uint64_t row = 0; row < 60; row += 2) {
        rks_record_view view;
        rks_value values[3];
        assert_ok(rks_shard_locate(shard, row, &view, &err), &err);
        assert_ok(rks_record_decode(rks_shard_schema(shard), view.payload, view.payload_size,
                                    values, &err),
                  &err);
        assert_int_equal(view.align, 64);
        assert_int_equal((uintptr_t)values[2].data % 64, 0);
    }
    rks_shard_close(shard);
}

static void a_shard_without_samples_is_a_shard(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    rks_shard_writer *writer = NULL;
    assert_ok(rks_schema_parse(SHARDS_SCHEMA, &schema, &err), &err);
    rks_shard_options options = {.schema = schema};
    assert_ok(rks_shard_writer_open(shards_here, "none", &options, &writer, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
    rks_shard *shard = shards_open(shards_here, "none");
    assert_int_equal(rks_shard_count(shard), 0);
    rks_record_view view;
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate(shard, 0, &view, &err));
    assert_ok(rks_shard_copy_lengths(shard, 0, 0, NULL, &err), &err);
    rks_shard_close(shard);
}

/* ---- threads, forks, memory --------------------------------------------------------------- */

static void *read_some(void *argument)
{
    open_shard *reading = argument;
    uintptr_t wrong = 0;
    for (uint64_t i = 0; i < 4000; i++) {
        uint64_t row = i * 7919 % 1000;
        rks_record_view view;
        uint32_t length = 0;
        if (rks_shard_locate(reading->shard, row, &view, NULL) != RKS_OK ||
            rks_record_check(&view, rks_shard_id(reading->shard), row, reading->hashes[row],
                             reading->lengths[row], NULL) != RKS_OK ||
            rks_shard_copy_lengths(reading->shard, row, 1, &length, NULL) != RKS_OK ||
            length != reading->lengths[row])
            wrong++;
    }
    return (void *)wrong;
}

static void four_threads_read_one_shard(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 1000};
    shards_write(shards_here, "a", &recipe);
    open_shard reading;
    assert_true(begin_reading(&reading, "a", &recipe));
    rks_shard *fresh = shards_open(shards_here, "a"); /* its segments are not yet compared */
    rks_shard_close(reading.shard);
    reading.shard = fresh;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_some, &reading), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    end_reading(&reading);
}

static void a_forked_child_reads_on(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 1000};
    shards_write(shards_here, "a", &recipe);
    open_shard reading;
    assert_true(begin_reading(&reading, "a", &recipe));
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(600);
        bool good = read_some(&reading) == NULL && refused_samples("a", &recipe) == 0;
        _exit(good ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_null(read_some(&reading));
    end_reading(&reading);
}

static void opening_survives_each_failing_allocation(void **state)
{
    (void)state;
    shards_recipe recipe = {.samples = 30, .derived_keys = true};
    shards_write(shards_here, "a", &recipe);
    rks_shard *shard = NULL;
    long nth = 1;
    for (;; nth++) {
        rks_memory_fail_at(nth);
        rks_status status = rks_shard_open(shards_path("a.json"), &shard, &err);
        rks_memory_fail_at(0);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
        assert_null(shard);
        assert_int_equal(rks_memory_in_use(), 0);
    }
    assert_true(nth > 5);
    rks_shard_close(shard);
}

static void opening_allocates_nothing_for_a_sample(void **state)
{
    (void)state;
    long used[2];
    for (uint64_t i = 0; i < 2; i++) {
        shards_recipe recipe = {.samples = i == 0 ? 10 : 5000, .size_most = 20};
        shards_write(shards_here, i == 0 ? "few" : "many", &recipe);
        rks_shard *shard = shards_open(shards_here, i == 0 ? "few" : "many");
        used[i] = rks_memory_in_use();
        rks_shard_close(shard);
    }
    assert_int_equal(used[0], used[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARD_TEST(reads_every_sample_and_its_key),
        SHARD_TEST(advice_for_random_reads_leaves_a_shard_three_maps),
        SHARD_TEST(says_what_the_manifest_says),
        SHARD_TEST(copies_any_range_of_the_index),
        SHARD_TEST(a_batch_is_located_as_its_rows_are),
        SHARD_TEST(wide_columns_are_aligned_in_the_map),
        SHARD_TEST(a_shard_without_samples_is_a_shard),
        SHARD_TEST(four_threads_read_one_shard),
        SHARD_TEST(a_forked_child_reads_on),
        SHARD_TEST(opening_survives_each_failing_allocation),
        SHARD_TEST(opening_allocates_nothing_for_a_sample),
    };
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
