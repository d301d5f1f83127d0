/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard_writer.c: writing, resuming and sealing shards. */
#include "shard_fixture.h"

#include <sys/mount.h>
#include <sys/wait.h>

static int set_up(void **state)
{
    (void)state;
    directory_begin();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    directory_end();
    return 0;
}

/* Bytes that say who they are: sample `i` of any size. */
static void fill(uint8_t *bytes, size_t size, uint64_t i)
{
    for (size_t at = 0; at < size; at++)
        bytes[at] = (uint8_t)(i * 131 + at * 7 + at / 251);
}

static size_t size_of(uint64_t i)
{
    return i % 97 * 13 + 5;
}

static rks_status add_one(rks_shard_writer *writer, uint64_t i, uint32_t row)
{
    static uint8_t bytes[2048];
    char key[32];
    int key_size = snprintf(key, sizeof(key), "key-%010llu", (unsigned long long)i);
    fill(bytes, size_of(i), i);
    rks_value value = value_of(bytes, size_of(i));
    return rks_shard_writer_add(writer, &value, key, (size_t)key_size, (uint32_t)size_of(i), row,
                                &err);
}

static void add_unit(rks_shard_writer *writer, uint64_t unit, uint64_t first, uint64_t count)
{
    assert_ok(rks_shard_writer_begin(writer, unit, NULL, first, &err), &err);
    for (uint64_t i = 0; i < count; i++)
        assert_ok(add_one(writer, first + i, (uint32_t)i), &err);
    assert_ok(rks_shard_writer_end(writer, count + 2, 1, 1, &err), &err);
}

static rks_shard_options options_of(const rks_schema *schema)
{
    return (rks_shard_options){.schema = schema, .build_id = {1, 2}, .block_size = 64 << 10};
}

static void assert_sample(const sealed *shard, uint64_t row, uint64_t i)
{
    uint8_t bytes[2048];
    rks_value value;
    rks_record_view view = sealed_record(shard, row);
    assert_ok(
        rks_record_decode(shard->manifest->schema, view.payload, view.payload_size, &value, &err),
        &err);
    assert_int_equal(value.size, size_of(i));
    fill(bytes, size_of(i), i);
    assert_memory_equal(value.data, bytes, value.size);
    char key[32];
    int key_size = snprintf(key, sizeof(key), "key-%010llu", (unsigned long long)i);
    assert_int_equal(view.key_size, key_size);
    assert_memory_equal(view.key, key, view.key_size);
    assert_int_equal(view.length, size_of(i));
}

static void what_was_added_is_found_by_its_locator(void **state)
{
    (void)state;
    rks_schema *schema = schema_of("data:bytes");
    rks_shard_options options = options_of(schema);
    rks_shard_writer *writer = NULL;
    assert_ok(rks_shard_writer_open(test_directory, "part", &options, &writer, &err), &err);
    add_unit(writer, 7, 0, 3000);
    add_unit(writer, 3, 3000, 1);
    add_unit(writer, 9, 3001, 2000);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 5001);
    assert_int_equal(shard.units.count, 3);
    assert_int_equal(shard.units.summaries[1].unit, 3);
    assert_int_equal(shard.units.first_rows[2], 3001);
    assert_int_equal(shard.units.summaries[0].filtered, 1);
    uint64_t bytes = 0;
    for (uint64_t row = 0; row < 5001; row++) {
        assert_sample(&shard, row, row);
        bytes += size_of(row) + 14;
    }
    assert_int_equal(shard.manifest->bytes, bytes);
    assert_int_not_equal(access(path_of("part.lock"), F_OK), 0);
    sealed_free(&shard);
    rks_schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_added_is_found_by_its_locator, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("shard_writer", tests, NULL, NULL);
}
