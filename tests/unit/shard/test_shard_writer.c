/* SPDX-License-Identifier: Apache-2.0
 *
 * test_shard_writer.c: what a shard holds that was written and sealed, and what is refused. */
#include "writer_case.h"

static void what_was_added_is_found_by_its_locator(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 7, 0, 3000);
    add_unit(writer, 3, 3000, 1);
    add_unit(writer, 9, 3001, 2000);
    sealed shard;
    seal(writer, "part", &shard);
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
}

/* ---- what can be stored ---- */

static void a_shard_without_samples_is_one(void **state)
{
    (void)state;
    set_schema("data:bytes,n:int32");
    const char *index[] = {"n"};
    options.index = index;
    options.index_count = 1;
    for (int units = 0; units < 2; units++) {
        rks_shard_writer *writer = NULL;
        const char *name = units == 0 ? "none" : "empty";
        assert_ok(try_writer(name, &writer), &err);
        if (units == 1) {
            assert_ok(rks_shard_writer_begin(writer, 3, NULL, 0, &err), &err);
            assert_ok(rks_shard_writer_end(writer, 10, 10, 0, &err), &err);
        }
        assert_ok(rks_shard_writer_seal(writer, &err), &err);
        rks_shard_writer_close(writer);
        sealed shard;
        sealed_load(name, &shard);
        assert_int_equal(shard.manifest->samples, 0);
        assert_int_equal(shard.units.count, units);
        sealed_free(&shard);
    }
}

static void a_sample_above_the_block_size_has_its_own_block(void **state)
{
    (void)state;
    enum { LARGE = 5 << 20 };
    uint8_t *bytes = malloc(LARGE);
    options.block_size = 0;
    rks_shard_writer *writer = open_writer("part");
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < 5; i++) {
        size_t size = i % 2 == 1 ? LARGE : 100;
        char key[2] = {'k', (char)('0' + i)};
        rks_value value = value_of(bytes, size);
        fill(bytes, size, i);
        assert_ok(rks_shard_writer_add(writer, &value, key, 2, i, i, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, 5, 0, 0, &err), &err);
    sealed shard;
    seal(writer, "part", &shard);
    for (uint32_t i = 0; i < 5; i++) {
        rks_value value;
        rks_record_view view = sealed_record(&shard, i);
        assert_ok(rks_record_decode(shard.manifest->schema, view.payload, view.payload_size, &value,
                                    &err),
                  &err);
        assert_int_equal(value.size, i % 2 == 1 ? LARGE : 100);
        fill(bytes, value.size, i);
        assert_memory_equal(value.data, bytes, value.size);
        if (i % 2 == 1) /* on its own: a block header is in front of it, and it is aligned */
            assert_int_equal(((const char *)value.data - shard.bytes) % 64, 0);
    }
    assert_int_equal(shard.manifest->largest, 24 + 64 + LARGE + 2);
    sealed_free(&shard);
    free(bytes);
}

static void payloads_and_wide_columns_are_aligned_in_the_file(void **state)
{
    (void)state;
    static const uint8_t bytes[9000];
    set_schema("t:str,w:float32[*],d:float64[*]");
    rks_shard_writer *writer = open_writer("part");
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < 400; i++) {
        char key[16];
        int key_size = snprintf(key, sizeof(key), "%u", i * i * i);
        rks_value values[] = {value_of(bytes, i % 13),
                              value_of(bytes, i % 3 == 0 ? 4096 + 4 * i : 40),
                              value_of(bytes, 8 * (i % 5))};
        assert_ok(rks_shard_writer_add(writer, values, key, (size_t)key_size, i, i, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, 400, 0, 0, &err), &err);
    sealed shard;
    seal(writer, "part", &shard);
    for (uint32_t i = 0; i < 400; i++) {
        rks_value values[3];
        rks_record_view view = sealed_record(&shard, i);
        size_t offset = (size_t)(view.payload - (const uint8_t *)shard.bytes);
        assert_int_equal(view.align, i % 3 == 0 ? 64 : 8);
        assert_int_equal(offset % view.align, 0);
        assert_ok(rks_record_decode(shard.manifest->schema, view.payload, view.payload_size, values,
                                    &err),
                  &err);
        assert_int_equal(((const char *)values[1].data - shard.bytes) % (i % 3 == 0 ? 64 : 4), 0);
        assert_int_equal(((const char *)values[2].data - shard.bytes) % 8, 0);
    }
    for (size_t i = 0; i < shard.manifest->segment_count; i++)
        assert_int_equal(shard.manifest->segments[i].offset % 8, 0);
    sealed_free(&shard);
}

static void derived_keys_are_not_stored_and_count_on_in_their_file(void **state)
{
    (void)state;
    set_schema("t:str");
    options.derived_keys = true;
    rks_shard_writer *writer = open_writer("part");
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_writer_begin(writer, 4, NULL, 0, &err));
    assert_ok(rks_shard_writer_begin(writer, 4, "dir/a.txt", 1000, &err), &err);
    rks_value value = value_of("abc", 3);
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_writer_add(writer, &value, "k", 1, 3, 0, &err));
    for (uint32_t row = 0; row < 300; row += 3) /* the others are filtered */
        assert_ok(rks_shard_writer_add(writer, &value, NULL, 0, 3, row, &err), &err);
    assert_ok(rks_shard_writer_end(writer, 300, 200, 0, &err), &err);
    assert_ok(rks_shard_writer_begin(writer, 5, "b", 0, &err), &err);
    assert_ok(rks_shard_writer_add(writer, &value, NULL, 0, 3, 7, &err), &err);
    assert_ok(rks_shard_writer_end(writer, 8, 7, 0, &err), &err);
    rks_shard_writer_close(writer); /* names survive a resume */
    writer = open_writer("part");
    sealed shard;
    seal(writer, "part", &shard);
    assert_true(shard.manifest->derived_keys);
    assert_string_equal(shard.units.key_names[0], "dir/a.txt");
    assert_int_equal(shard.units.summaries[0].first_source_row, 1000);
    assert_int_equal(shard.manifest->bytes, 101 * 3);
    const uint8_t *hashes = segment_bytes(&shard, RKS_SEGMENT_KEY_HASHES, 0);
    assert_int_equal(rks_load_u64(hashes + 8 * 2), rks_key_hash("dir/a.txt:1006", 14));
    assert_int_equal(rks_load_u64(hashes + 8 * 100), rks_key_hash("b:7", 3));
    for (uint64_t row = 0; row < 101; row++) {
        rks_record_view view = sealed_record(&shard, row);
        assert_int_equal(view.key_size, 0);
        assert_int_equal(view.source_row, row == 100 ? 7 : 3 * row);
    }
    sealed_free(&shard);
}

static void index_columns_travel_as_plain_numbers(void **state)
{
    (void)state;
    set_schema("t:str,a:float32,b:int64,c:uint8,n:int8?,v:int8[*],f:bool,z:complex64");
    const char *index[] = {"c", "a"};
    const char *const wrong[] = {"t", "n", "v", "f", "z", "x"};
    rks_shard_writer *writer = NULL;
    options.index = index;
    for (size_t i = 0; i < 6; i++) {
        options.index = &wrong[i];
        options.index_count = 1;
        assert_fails(RKS_ERR_ARGUMENT, try_writer("part", &writer));
        assert_contains(err.text, wrong[i]);
    }
    options.index = index;
    options.index_count = 2;
    writer = open_writer("part");
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < 1000; i++) {
        float a = (float)i / 2;
        int64_t b = i;
        uint8_t c = i % 3 == 0;
        rks_value values[] = {
            value_of("text", i % 5), value_of(&a, 4), value_of(&b, 8),        value_of(&c, 1), {0},
            value_of("", 0),         value_of("", 1), value_of("12345678", 8)};
        assert_ok(rks_shard_writer_add(writer, values, &i, 4, 1, i, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, 1000, 0, 0, &err), &err);
    sealed shard;
    seal(writer, "part", &shard);
    assert_int_equal(shard.manifest->index_count, 2);
    const uint8_t *columns[2] = {NULL, NULL};
    for (size_t i = 0; i < shard.manifest->segment_count; i++)
        if (shard.manifest->segments[i].kind == RKS_SEGMENT_COLUMN)
            columns[shard.manifest->segments[i].column == 1] =
                (const uint8_t *)shard.bytes + shard.manifest->segments[i].offset;
    for (uint32_t i = 0; i < 1000; i++) {
        float a;
        memcpy(&a, columns[1] + 4 * i, 4);
        assert_true(a == (float)i / 2);
        assert_int_equal(columns[0][i], i % 3 == 0);
    }
    sealed_free(&shard);
}

static void a_refused_sample_leaves_the_writer_usable(void **state)
{
    (void)state;
    uint8_t bytes[600] = {0};
    char long_key[RKS_KEY_MAX + 1];
    memset(long_key, 'k', sizeof(long_key));
    options.max_sample = 500;
    rks_shard_writer *writer = open_writer("part");
    rks_value good = value_of(bytes, 5), large = value_of(bytes, 600), missing = {0};
    assert_fails(RKS_ERR_STATE, rks_shard_writer_add(writer, &good, "k", 1, 1, 0, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_end(writer, 0, 0, 0, &err));
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    assert_fails(RKS_ERR_STATE, rks_shard_writer_begin(writer, 1, NULL, 0, &err));
    assert_fails(RKS_ERR_STATE, rks_shard_writer_seal(writer, &err));
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &large, "big", 3, 1, 0, &err));
    assert_contains(err.text, "\"big\"");
    assert_contains(err.text, "500");
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &missing, "k", 1, 1, 0, &err));
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &good, "", 0, 1, 0, &err));
    assert_fails(RKS_ERR_DATA, rks_shard_writer_add(writer, &good, long_key, 512, 1, 0, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_writer_add(writer, &good, NULL, 0, 1, 0, &err));
    assert_ok(rks_shard_writer_add(writer, &good, long_key, 511, 1, 0, &err), &err);
    assert_ok(rks_shard_writer_add(writer, &good, "\0\n", 2, 1, 1, &err), &err);
    assert_ok(rks_shard_writer_end(writer, 2, 0, 0, &err), &err);
    sealed shard;
    seal(writer, "part", &shard);
    assert_int_equal(shard.manifest->samples, 2);
    rks_record_view view = sealed_record(&shard, 1);
    assert_int_equal(view.key_size, 2);
    assert_memory_equal(view.key, "\0\n", 2);
    sealed_free(&shard);
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    rks_shard_writer *writer = NULL;
    options.block_size = 1000;
    assert_fails(RKS_ERR_ARGUMENT, try_writer("part", &writer));
    options.block_size = UINT64_C(1) << 40;
    assert_fails(RKS_ERR_ARGUMENT, try_writer("part", &writer));
    options.block_size = 0;
    options.max_sample = UINT64_C(1) << 32;
    assert_fails(RKS_ERR_ARGUMENT, try_writer("part", &writer));
    options.max_sample = 0;
    assert_fails(RKS_ERR_IO,
                 rks_shard_writer_open(path_of("none"), "part", &options, &writer, &err));
}

/* ---- digests and sizes ---- */

static void digests_do_not_depend_on_shard_or_block_size(void **state)
{
    (void)state;
    rks_digest first = {0}, second = {0};
    size_t count = 0;
    rks_shard_writer *writer = open_writer("part");
    add_unit(writer, 1, 0, 1000);
    add_unit(writer, 2, 1000, 1000);
    first = rks_shard_writer_units(writer, &count)[0].digest;
    second = rks_shard_writer_units(writer, &count)[1].digest;
    rks_shard_writer_close(writer);
    assert_int_equal(first.low, UINT64_C(0x65d51ffcae5f7b46));
    assert_int_equal(first.high, UINT64_C(0x177b56e1d2e25d90));
    options.block_size = 1 << 20;
    assert_ok(try_writer("other", &writer), &err);
    add_unit(writer, 2, 1000, 1000);
    add_unit(writer, 1, 0, 1000);
    assert_true(rks_digest_equal(second, rks_shard_writer_units(writer, &count)[0].digest));
    assert_true(rks_digest_equal(first, rks_shard_writer_units(writer, &count)[1].digest));
    rks_shard_writer_close(writer);
}

static void small_samples_cost_48_bytes_and_a_percent(void **state)
{
    (void)state;
    options.block_size = 0;
    enum { COUNT = 40000 };
    rks_shard_writer *writer = open_writer("part");
    uint64_t plain = 0, random = 1;
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t i = 0; i < COUNT; i++) {
        static uint8_t bytes[1024];
        char key[32];
        random = random * 6364136223846793005u + 1442695040888963407u;
        size_t size = 100 + (random >> 33) % 400; /* about 300 */
        rks_value value = value_of(bytes, size);
        snprintf(key, sizeof(key), "key-%010u", i);
        assert_ok(rks_shard_writer_add(writer, &value, key, 14, 1, i, &err), &err);
        plain += size + 14;
    }
    assert_ok(rks_shard_writer_end(writer, COUNT, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    struct stat file, sums, manifest;
    assert_int_equal(stat(path_of("part.rks"), &file), 0);
    assert_int_equal(stat(path_of("part.sums"), &sums), 0);
    assert_int_equal(stat(path_of("part.json"), &manifest), 0);
    uint64_t whole = (uint64_t)(file.st_size + sums.st_size + manifest.st_size);
    print_message("overhead: %.2f bytes a sample\n", (double)(whole - plain) / COUNT);
    assert_true(whole <= plain + COUNT * 48 + plain / 100);
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->bytes, plain);
    sealed_free(&shard);
}

/* ---- failures ---- */

static rks_status write_all(void)
{
    const char *index[] = {"n"};
    options.index = index;
    options.index_count = 1;
    rks_shard_writer *writer = NULL;
    rks_status status = try_writer("part", &writer);
    if (status == RKS_OK)
        status = rks_shard_writer_begin(writer, 0, NULL, 0, &err);
    for (uint32_t i = 0; status == RKS_OK && i < 400; i++) {
        static uint8_t bytes[1000];
        rks_value values[] = {value_of(bytes, sizeof(bytes)), value_of(&i, 4)};
        status = rks_shard_writer_add(writer, values, &i, 4, i, i, &err);
    }
    if (status == RKS_OK)
        status = rks_shard_writer_end(writer, 400, 0, 0, &err);
    if (status == RKS_OK)
        status = rks_shard_writer_seal(writer, &err);
    rks_shard_writer_close(writer);
    return status;
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    set_schema("data:bytes,n:int32");
    long before = rks_memory_in_use();
    rks_status status = RKS_ERR_MEMORY;
    for (long nth = 1; status != RKS_OK; nth++) {
        rks_memory_fail_at(nth);
        status = write_all();
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        assert_int_equal(rks_memory_in_use(), before);
        assert_int_not_equal(access(path_of("part.lock"), F_OK), 0);
        if (status != RKS_OK) {
            unlink(path_of("part.rks"));
            unlink(path_of("part.json")); /* there, if only making its name durable failed */
        }
        assert_true(nth < 400);
    }
    sealed shard;
    sealed_load("part", &shard);
    assert_int_equal(shard.manifest->samples, 400);
    sealed_free(&shard);
}

/* ---- units that are written ahead ---- */

static rks_unit_writer *write_ahead(rks_shard_writer *writer, uint64_t unit)
{
    rks_unit_writer *made = NULL;
    uint8_t bytes[1000] = {0};
    assert_ok(rks_unit_writer_create(writer, unit, NULL, &made, &err), &err);
    for (uint32_t i = 0; i < 400; i++) {
        rks_value value = value_of(bytes, sizeof(bytes));
        assert_ok(rks_unit_writer_add(made, &value, &i, 4, i, i, &err), &err);
    }
    return made;
}

static void a_unit_ends_only_in_its_place(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    rks_unit_writer *unit = write_ahead(writer, 0);
    assert_fails(RKS_ERR_STATE, rks_unit_writer_end(unit, 400, 0, 0, &err));
    assert_contains(err.text, "no unit has begun");
    assert_ok(rks_unit_writer_place(unit, 0, &err), &err);
    assert_ok(rks_unit_writer_end(unit, 400, 0, 0, &err), &err);
    rks_unit_writer_free(unit);
    sealed shard;
    seal(writer, "part", &shard);
    assert_int_equal(shard.manifest->samples, 400);
    sealed_free(&shard);
}

/* Some of its blocks are in the shard then, others are not. */
static void a_unit_whose_place_failed_cannot_end(void **state)
{
    (void)state;
    rks_shard_writer *writer = open_writer("part");
    rks_unit_writer *unit = write_ahead(writer, 0);
    rks_memory_fail_at(1);
    assert_fails(RKS_ERR_MEMORY, rks_unit_writer_place(unit, 0, &err));
    rks_memory_fail_at(0);
    assert_fails(RKS_ERR_STATE, rks_unit_writer_end(unit, 400, 0, 0, &err));
    assert_contains(err.text, "failed before");
    rks_unit_writer_free(unit);
    assert_fails(RKS_ERR_STATE, rks_shard_writer_seal(writer, &err));
    rks_shard_writer_close(writer);
}

int main(void)
{
    alarm(600);
    const struct CMUnitTest tests[] = {
        CASE(what_was_added_is_found_by_its_locator),
        CASE(a_shard_without_samples_is_one),
        CASE(a_sample_above_the_block_size_has_its_own_block),
        CASE(payloads_and_wide_columns_are_aligned_in_the_file),
        CASE(derived_keys_are_not_stored_and_count_on_in_their_file),
        CASE(index_columns_travel_as_plain_numbers),
        CASE(a_refused_sample_leaves_the_writer_usable),
        CASE(wrong_options_are_refused),
        CASE(digests_do_not_depend_on_shard_or_block_size),
        CASE(small_samples_cost_48_bytes_and_a_percent),
        CASE(a_unit_ends_only_in_its_place),
        CASE(a_unit_whose_place_failed_cannot_end),
        CASE(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("shard_writer", tests, NULL, NULL);
}
