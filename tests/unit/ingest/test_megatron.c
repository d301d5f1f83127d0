/* SPDX-License-Identifier: Apache-2.0
 *
 * test_megatron.c: both kinds of index, and what they may lie about. */
#include "built.h"

#include "ingest/megatron_index.h"

enum { ROWS = 5000 };

static uint32_t length_of(uint64_t row)
{
    return (uint32_t)(row * 7 % 40);
}

static uint16_t token_of(uint64_t row, uint64_t at)
{
    return (uint16_t)(row * 31 + at);
}

static void put(rks_buffer *to, uint64_t value, size_t size)
{
    uint8_t bytes[8];
    rks_store_u64(bytes, value);
    assert_ok(rks_buffer_add(to, bytes, size, &err), &err);
}

/* u16 tokens of `rows` sequences; where the index's lists begin. */
static void make(uint64_t rows, bool older, bool documents, rks_buffer *index, rks_buffer *data)
{
    uint64_t place = 0;
    index->size = data->size = 0;
    assert_ok(rks_buffer_add(index, older ? "TNTIDX\0\0" : "MMIDIDX\0\0", older ? 8 : 9, &err),
              &err);
    put(index, 1, 8);
    put(index, 8, older ? 8 : 1);
    if (older)
        put(index, 2, 8);
    put(index, rows, 8);
    if (older)
        put(index, rows, 8);
    if (documents)
        put(index, 2, 8);
    for (uint64_t row = 0; older && row <= rows; row++)
        put(index, row, 8);
    for (uint64_t row = 0; !older && row < rows; row++)
        put(index, length_of(row), 4);
    for (uint64_t row = 0; row < rows + older; place += length_of(row++))
        put(index, older ? place : 2 * place, 8);
    for (uint64_t row = 0; older && row < rows; row++)
        put(index, length_of(row), 8);
    for (uint64_t at = 0; documents && at < 2; at++)
        put(index, at * rows, 8);
    for (uint64_t row = 0; row < rows; row++)
        for (uint32_t at = 0; at < length_of(row); at++)
            put(data, token_of(row, at), 2);
}

static const char *write_pair(const rks_buffer *index, const rks_buffer *data)
{
    scratch_bytes("m.bin", data->data, data->size);
    return scratch_bytes("m.idx", index->data, index->size);
}

static void check_rows(const built *out)
{
    assert_int_equal(out->samples, ROWS);
    assert_string_equal(rks_schema_text(rks_shard_schema(out->shard)),
                        "{\"tokens\":\"uint16[*]\"}");
    for (uint64_t row = 0; row < ROWS; row++) {
        rks_record_view view;
        rks_value value;
        assert_ok(rks_shard_locate(out->shard, row, &view, &err), &err);
        assert_ok(rks_record_decode(rks_shard_schema(out->shard), view.payload, view.payload_size,
                                    &value, &err),
                  &err);
        assert_int_equal(value.size, 2 * length_of(row));
        for (uint32_t at = 0; at < length_of(row); at++)
            assert_int_equal(rks_load_u16((const uint8_t *)value.data + 2 * at), token_of(row, at));
    }
}

static void each_kind_is_read_by_either_file_and_by_their_stem(void **state)
{
    (void)state;
    rks_buffer index = {0}, data = {0};
    for (int kind = 0; kind < 3; kind++) {
        make(ROWS, kind > 0, kind < 2, &index, &data);
        write_pair(&index, &data);
        static const char *const names[] = {"m.idx", "m.bin", "m"};
        for (size_t i = 0; i < 3; i++) {
            rks_ingest_options options = {.unit_size = 20000};
            built out;
            assert_ok(build(scratch_path(names[i]), &options, &out), &err);
            check_rows(&out);
            done(&out);
        }
    }
    rks_buffer_free(&index);
    rks_buffer_free(&data);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void a_stem_needs_both_files_and_nothing_of_its_own_name(void **state)
{
    (void)state;
    rks_ingest_options options = {0};
    built out;
    scratch_file("alone.idx", "x");
    assert_fails(RKS_ERR_NOT_FOUND, build(scratch_path("alone"), &options, &out));
    scratch_file("alone.bin", "x");
    assert_fails(RKS_ERR_DATA, build(scratch_path("alone"), &options, &out));
    assert_contains(err.text, "not a Megatron index");
    options.format = "text";
    assert_fails(RKS_ERR_NOT_FOUND, build(scratch_path("alone"), &options, &out));
    options.format = NULL;
    scratch_file("alone", "a line\n");
    assert_ok(build(scratch_path("alone"), &options, &out), &err);
    assert_int_equal(out.samples, 1);
    done(&out);
    assert_int_equal(rks_memory_in_use(), 0);
}

typedef struct lie {
    size_t at;
    uint64_t value;
    size_t size;
    const char *says;
} lie;

static void expect_lies(bool older, const lie *lies, size_t count)
{
    rks_buffer index = {0}, data = {0};
    for (size_t i = 0; i < count; i++) {
        rks_ingest_options options = {.skip_bad = i % 2 == 1};
        built out;
        make(3, older, true, &index, &data);
        uint8_t bytes[8];
        rks_store_u64(bytes, lies[i].value);
        memcpy(index.data + lies[i].at, bytes, lies[i].size);
        rks_status status = build(write_pair(&index, &data), &options, &out);
        if (status != RKS_ERR_DATA)
            fail_msg("lie %zu: %d", i, (int)status);
        assert_contains(err.text, lies[i].says);
        done(&out);
    }
    rks_buffer_free(&index);
    rks_buffer_free(&data);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void what_an_index_says_is_checked(void **state)
{
    (void)state;
    /* Sequences of 0, 7 and 14 tokens. */
    const lie mapped[] = {
        {9, 2, 8, "version 2"},
        {17, 0, 1, "dtype code 0"},
        {17, 9, 1, "dtype code 9"},
        {18, UINT64_MAX, 8, "do not fit"},
        {18, UINT64_MAX / 12 + 1, 8, "do not fit"},
        {26, UINT64_MAX / 8 + 1, 8, "do not fit"},
        {38, UINT32_MAX, 4, "sequence 1 lies outside"},
        {38, 0x7fffffff, 4, "sequence 1 lies outside"},
        {54, UINT64_MAX, 8, "sequence 1 lies outside"},
        {54, UINT64_MAX - 13, 8, "sequence 1 lies outside"},
        {54, 29, 8, "sequence 1 lies outside"},
    };
    const lie older[] = {
        {8, 2, 8, "version 2"},
        {16, 0, 8, "dtype code 0"},
        {16, UINT64_MAX, 8, "dtype code"},
        {24, 4, 8, "tokens of 4 bytes"},
        {32, UINT64_MAX, 8, "only sequences of one dimension"},
        {40, 6, 8, "only sequences of one dimension"},
        {48, UINT64_MAX, 8, "do not fit"},
        {64, 2, 8, "sequence 1: only sequences of one dimension"},
        {96, UINT64_MAX, 8, "sequence 1 lies outside"},
        {96, UINT64_MAX / 2 + 1, 8, "sequence 1 lies outside"},
        {96, 15, 8, "sequence 1 lies outside"},
        {128, UINT64_MAX, 8, "sequence 1 lies outside"},
        {128, UINT64_MAX / 2, 8, "sequence 1 lies outside"},
        {128, 1ull << 32, 8, "sequence 1 lies outside"},
    };
    expect_lies(false, mapped, sizeof(mapped) / sizeof(mapped[0]));
    expect_lies(true, older, sizeof(older) / sizeof(older[0]));
}

static void cut_files_are_refused_wherever_they_are_cut(void **state)
{
    (void)state;
    rks_buffer index = {0}, data = {0};
    rks_ingest_options options = {0};
    built out;
    for (int older = 0; older < 2; older++) {
        make(3, older, true, &index, &data);
        size_t whole = index.size, bytes = data.size;
        for (size_t cut = 0; cut < whole; cut++) {
            index.size = cut;
            rks_status status = build(write_pair(&index, &data), &options, &out);
            if (status != RKS_ERR_DATA)
                fail_msg("cut at %zu: %d", cut, (int)status);
            done(&out);
        }
        index.size = whole;
        data.size = bytes - 1;
        assert_fails(RKS_ERR_DATA, build(write_pair(&index, &data), &options, &out));
        assert_contains(err.text, "sequence 2 lies outside");
        done(&out);
    }
    rks_buffer_free(&index);
    rks_buffer_free(&data);
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_read_by_either_file_and_by_their_stem),
        cmocka_unit_test(a_stem_needs_both_files_and_nothing_of_its_own_name),
        cmocka_unit_test(what_an_index_says_is_checked),
        cmocka_unit_test(cut_files_are_refused_wherever_they_are_cut),
    };
    return cmocka_run_group_tests_name("megatron", tests, scratch_open, scratch_close);
}
