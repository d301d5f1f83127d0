/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_case.h: what the tests of the shard writer share: samples whose bytes say who they are,
 * and a directory, a schema and options for each test. */
#ifndef RKS_TESTS_WRITER_CASE_H
#define RKS_TESTS_WRITER_CASE_H

#include "shard_fixture.h"

static rks_schema *schema; /* "data:bytes" if a test does not change it */
static rks_shard_options options;

static inline void set_schema(const char *text)
{
    rks_schema_free(schema);
    schema = schema_of(text);
    options = (rks_shard_options){.schema = schema, .build_id = {1, 2}, .block_size = 64 << 10};
}

static inline int case_begin(void **state)
{
    (void)state;
    directory_begin();
    set_schema("data:bytes");
    return 0;
}

static inline int case_end(void **state)
{
    (void)state;
    rks_schema_free(schema);
    schema = NULL;
    directory_end();
    return 0;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, case_begin, case_end)

static inline rks_status try_writer(const char *name, rks_shard_writer **writer)
{
    return rks_shard_writer_open(test_directory, name, &options, writer, &err);
}

static inline rks_shard_writer *open_writer(const char *name)
{
    rks_shard_writer *writer = NULL;
    assert_ok(try_writer(name, &writer), &err);
    return writer;
}

static inline void seal(rks_shard_writer *writer, const char *name, sealed *shard)
{
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    sealed_load(name, shard);
}

/* Bytes that say who they are: sample `i` of any size. */
static inline void fill(uint8_t *bytes, size_t size, uint64_t i)
{
    for (size_t at = 0; at < size; at++)
        bytes[at] = (uint8_t)(i * 131 + at * 7 + at / 251);
}

static inline size_t size_of(uint64_t i)
{
    return i % 97 * 13 + 5;
}

static inline rks_status add_one(rks_shard_writer *writer, uint64_t i, uint32_t row)
{
    static uint8_t bytes[2048];
    char key[32];
    int key_size = snprintf(key, sizeof(key), "key-%010llu", (unsigned long long)i);
    fill(bytes, size_of(i), i);
    rks_value value = value_of(bytes, size_of(i));
    return rks_shard_writer_add(writer, &value, key, (size_t)key_size, (uint32_t)size_of(i), row,
                                &err);
}

static inline void add_unit(rks_shard_writer *writer, uint64_t unit, uint64_t first, uint64_t count)
{
    assert_ok(rks_shard_writer_begin(writer, unit, NULL, first, &err), &err);
    for (uint64_t i = 0; i < count; i++)
        assert_ok(add_one(writer, first + i, (uint32_t)i), &err);
    assert_ok(rks_shard_writer_end(writer, count + 2, 1, 1, &err), &err);
}

static inline void assert_sample(const sealed *shard, uint64_t row, uint64_t i)
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

/* That the rows are the samples 0, 1, ... */
static inline void seal_and_check(rks_shard_writer *writer, uint64_t samples)
{
    sealed shard;
    seal(writer, "part", &shard);
    assert_int_equal(shard.manifest->samples, samples);
    for (uint64_t row = 0; row < samples; row++)
        assert_sample(&shard, row, row);
    sealed_free(&shard);
}

#endif
