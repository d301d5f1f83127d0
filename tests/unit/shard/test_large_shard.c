/* SPDX-License-Identifier: Apache-2.0
 *
 * test_large_shard.c: a shard whose index has two segments of each kind. */
#include "shard_fixture.h"

#include "shard/shard.h"

enum { BEHIND = 100000, FIRST_UNIT = 3000001, NEAR = 300 };
static const uint64_t ROWS = RKS_SEGMENT_ROWS + BEHIND;

/* All about a sample follows from its row. */
static uint64_t number_of(uint64_t row)
{
    return row * UINT64_C(0x9e3779b97f4a7c15);
}

static uint32_t length_of(uint64_t row)
{
    return (uint32_t)(row % 1009);
}

static void write_shard(void)
{
    const char *const index[] = {"n"};
    rks_schema *schema = schema_of("n:uint64");
    rks_shard_options options = {
        .schema = schema, .build_id = {1, 2}, .index = index, .index_count = 1};
    rks_shard_writer *writer = NULL;
    assert_ok(rks_shard_writer_open(test_directory, "large", &options, &writer, &err), &err);
    for (uint64_t unit = 0, row = 0; unit < 2; unit++) {
        uint64_t first = row, end = unit == 0 ? FIRST_UNIT : ROWS;
        assert_ok(rks_shard_writer_begin(writer, unit, NULL, 0, &err), &err);
        for (; row < end; row++) {
            uint64_t number = number_of(row);
            uint32_t key = (uint32_t)row;
            rks_value value = value_of(&number, sizeof(number));
            rks_status status = rks_shard_writer_add(writer, &value, &key, sizeof(key),
                                                     length_of(row), (uint32_t)(row - first), &err);
            if (status != RKS_OK)
                assert_ok(status, &err);
        }
        assert_ok(rks_shard_writer_end(writer, end - first, 0, 0, &err), &err);
    }
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    rks_schema_free(schema);
}

static int set_up(void **state)
{
    (void)state;
    directory_begin();
    write_shard();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    directory_end();
    return 0;
}

static void check_row(rks_shard *shard, uint64_t row, const rks_record_view *view, uint64_t hash,
                      uint32_t length)
{
    uint32_t key = (uint32_t)row;
    uint64_t number = number_of(row);
    assert_int_equal(view->payload_size, sizeof(number));
    assert_memory_equal(view->payload, &number, sizeof(number));
    assert_int_equal(view->key_size, sizeof(key));
    assert_memory_equal(view->key, &key, sizeof(key));
    assert_int_equal(hash, rks_key_hash(&key, sizeof(key)));
    assert_int_equal(length, length_of(row));
    assert_ok(rks_record_check(view, rks_shard_id(shard), row, hash, length, &err), &err);
}

/* Index, places and records of [first, first + count), read as a range and one by one. */
static void check_range(rks_shard *shard, uint64_t first, size_t count)
{
    uint64_t hashes[2 * NEAR], numbers[2 * NEAR], rows[2 * NEAR];
    uint32_t lengths[2 * NEAR];
    rks_record_view views[2 * NEAR], view;
    assert_ok(rks_shard_copy_lengths(shard, first, count, lengths, &err), &err);
    assert_ok(rks_shard_copy_key_hashes(shard, first, count, hashes, &err), &err);
    assert_ok(rks_shard_copy_column(shard, 0, first, count, numbers, &err), &err);
    for (size_t i = 0; i < count; i++) /* from both ends in turn: the segment changes each time */
        rows[i] = first + (i % 2 == 0 ? i / 2 : count - 1 - i / 2);
    assert_ok(rks_shard_locate_many(shard, rows, count, views, &err), &err);
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)(rows[i] - first);
        assert_int_equal(numbers[at], number_of(rows[i]));
        check_row(shard, rows[i], &views[i], hashes[at], lengths[at]);
        assert_ok(rks_shard_locate(shard, rows[i], &view, &err), &err);
        assert_ptr_equal(view.record, views[i].record);
    }
}

static void both_sides_of_the_border_are_read(void **state)
{
    (void)state;
    rks_shard *shard = NULL;
    rks_record_view view;
    rks_manifest *manifest = NULL;
    assert_ok(rks_manifest_load(path_of("large.json"), &manifest, &err), &err);
    assert_int_equal(manifest->segment_count, 4 * 2 + 1); /* and the units' */
    rks_manifest_free(manifest);
    assert_ok(rks_shard_open(path_of("large.json"), &shard, &err), &err);
    assert_int_equal(rks_shard_count(shard), ROWS);
    check_range(shard, 0, NEAR);
    check_range(shard, FIRST_UNIT - NEAR, 2 * NEAR);
    check_range(shard, RKS_SEGMENT_ROWS - NEAR, 2 * NEAR);
    check_range(shard, RKS_SEGMENT_ROWS - 1, 2);
    check_range(shard, RKS_SEGMENT_ROWS, 1);
    check_range(shard, ROWS - NEAR, NEAR);
    assert_fails(RKS_ERR_ARGUMENT, rks_shard_locate(shard, ROWS, &view, &err));
    rks_shard_close(shard);
}

static void keep_offset(void *user, const rks_finding *finding)
{
    *(uint64_t *)user = finding->offset;
}

/* Flips a bit of the file. */
static void flip(uint64_t offset)
{
    uint8_t byte;
    FILE *file = fopen(path_of("large.rks"), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= 0x10;
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

static void both_segments_are_verified(void **state)
{
    (void)state;
    uint64_t samples = 0, findings = 0, offset = 0;
    rks_manifest *manifest = NULL;
    assert_ok(rks_verify(path_of("large.rks"), RKS_VERIFY_FULL, keep_offset, &offset, &samples,
                         &findings, &err),
              &err);
    assert_int_equal(findings, 0);
    assert_int_equal(samples, ROWS);
    assert_ok(rks_manifest_load(path_of("large.json"), &manifest, &err), &err);
    for (size_t i = 0; i < manifest->segment_count; i++) {
        const rks_segment *segment = &manifest->segments[i];
        if (segment->first_row != RKS_SEGMENT_ROWS)
            continue;
        assert_int_equal(segment->rows, BEHIND);
        flip(segment->offset + segment->size / 2);
    }
    rks_manifest_free(manifest);
    assert_ok(rks_verify(path_of("large.rks"), RKS_VERIFY_FAST, keep_offset, &offset, &samples,
                         &findings, &err),
              &err);
    assert_true(findings >= 4); /* lengths, key hashes, places, the column */
}

int main(void)
{
    alarm(600);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_of_the_border_are_read),
        cmocka_unit_test(both_segments_are_verified), /* the last: it leaves damage */
    };
    return cmocka_run_group_tests_name("large_shard", tests, set_up, tear_down);
}
