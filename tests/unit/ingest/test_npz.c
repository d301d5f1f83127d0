/* SPDX-License-Identifier: Apache-2.0
 *
 * test_npz.c: .npz files as columns, and offsets, shapes and counts that lie. */
#include "built.h"
#include "npy_file.h"
#include "packed.h"

#include "ingest/npz_array.h"

enum { ARRAYS = 8, ROOM = 64 << 10 };

/* Three rows of items 1, 2 | | 3; with shapes (1, 2), (0, 2), (1, 1). */
static const int64_t OFFSETS[] = {0, 2, 2, 3}, SHAPES[] = {1, 2, 0, 2, 1, 1};
static const int16_t ITEMS[] = {1, 2, 3};
static const uint8_t MISSING[] = {0, 1, 0};

static packed_member members[ARRAYS];
static size_t count;

static void begin(void)
{
    for (size_t i = 0; i < count; i++)
        free((void *)members[i].bytes);
    count = 0;
}

static void add(const char *name, const char *descr, const char *shape, const void *items,
                size_t size)
{
    uint8_t *bytes = malloc(ROOM);
    assert_non_null(bytes);
    members[count++] = (packed_member){
        .name = name, .bytes = bytes, .size = npy_file(bytes, descr, shape, items, size)};
}

static void add_varying(const int64_t *offsets, const char *offset_shape, const int64_t *shapes,
                        const char *shape_shape)
{
    begin();
    add("v.npy", "<i2", "3,", ITEMS, sizeof(ITEMS));
    add("v.offsets.npy", "<i8", offset_shape, offsets, 8 * (size_t)atoi(offset_shape));
    if (shapes != NULL)
        add("v.shapes.npy", "<i8", shape_shape, shapes,
            8 * (size_t)atoi(shape_shape) * (size_t)atoi(strchr(shape_shape, ' ')));
}

static rks_status build_npz(const rks_ingest_options *options, built *out)
{
    return build(packed_archive("a.npz", -2, members, count), options, out);
}

static void check(const built *out, uint64_t row, uint32_t column, const void *bytes, size_t size,
                  uint32_t rows, uint32_t width)
{
    rks_record_view view;
    rks_value values[4];
    const rks_schema *schema = rks_shard_schema(out->shard);
    assert_ok(rks_shard_locate(out->shard, row, &view, &err), &err);
    assert_ok(rks_record_decode(schema, view.payload, view.payload_size, values, &err), &err);
    if (bytes == NULL) {
        assert_null(values[column].data);
        return;
    }
    assert_non_null(values[column].data);
    assert_int_equal(values[column].size, size);
    assert_memory_equal(values[column].data, bytes, size);
    assert_int_equal(values[column].dims[0], rows);
    assert_int_equal(values[column].dims[1], width);
}

static void arrays_are_columns_of_one_axis(void **state)
{
    (void)state;
    const uint8_t big[] = {0, 1, 0, 2, 0, 3, 0, 4};
    const int16_t turned[] = {1, 2, 3, 4};
    rks_ingest_options options = {0};
    built out;
    begin();
    add("a.npy", ">i2", "2, 2", big, sizeof(big));
    add("b.npy", "|u1", "2,", big, 2);
    assert_ok(build_npz(&options, &out), &err);
    assert_string_equal(rks_schema_text(rks_shard_schema(out.shard)),
                        "{\"a\":\"int16[2]\",\"b\":\"uint8\"}");
    assert_int_equal(out.samples, 2);
    check(&out, 0, 0, turned, 4, 2, 0);
    check(&out, 1, 0, turned + 2, 4, 2, 0);
    check(&out, 1, 1, big + 1, 1, 0, 0);
    done(&out);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void varying_sizes_come_by_offsets_and_shapes(void **state)
{
    (void)state;
    rks_ingest_options options = {0};
    built out;
    add_varying(OFFSETS, "4,", SHAPES, "3, 2");
    add("v.missing.npy", "|b1", "3,", MISSING, sizeof(MISSING));
    assert_ok(build_npz(&options, &out), &err);
    assert_string_equal(rks_schema_text(rks_shard_schema(out.shard)), "{\"v\":\"int16[*,*]?\"}");
    check(&out, 0, 0, ITEMS, 4, 1, 2);
    check(&out, 1, 0, NULL, 0, 0, 0);
    check(&out, 2, 0, ITEMS + 2, 2, 1, 1);
    done(&out);
    add_varying(OFFSETS, "4,", NULL, NULL);
    assert_ok(build_npz(&options, &out), &err);
    check(&out, 0, 0, ITEMS, 4, 2, 0);
    check(&out, 1, 0, ITEMS, 0, 0, 0); /* empty, not missing */
    done(&out);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void offsets_that_lie_end_the_build(void **state)
{
    (void)state;
    const struct {
        int64_t offsets[4];
        const char *says;
    } wrong[] = {
        {{0, 2, 1, 3}, "offsets.npy: 1 comes after 2"},
        {{0, 2, 2, 4}, "offsets.npy: 4 comes after 2"},
        {{0, -1, 2, 3}, "offsets.npy: -1 comes after 0"},
        {{0, INT64_MAX, 2, 3}, "comes after 0"},
        {{0, INT64_MIN, 2, 3}, "comes after 0"},
        {{1, 2, 2, 3}, "the first offset is not 0"},
        {{0, 2, 2, 2}, "the last offset is not the end"},
    };
    for (int skip_bad = 0; skip_bad < 2; skip_bad++)
        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
            rks_ingest_options options = {.skip_bad = skip_bad};
            built out;
            add_varying(wrong[i].offsets, "4,", NULL, NULL);
            assert_fails(RKS_ERR_DATA, build_npz(&options, &out));
            assert_contains(err.text, wrong[i].says);
            done(&out);
        }
    assert_int_equal(rks_memory_in_use(), 0);
}

static void shapes_that_lie_are_malformed_rows(void **state)
{
    (void)state;
    const int64_t wrong[][6] = {
        {2, 2, 0, 2, 1, 1}, {-1, -2, 0, 2, 1, 1},       {INT64_MAX, 2, 0, 2, 1, 1},
        {1, 1, 0, 2, 1, 1}, {1ll << 32, 2, 0, 2, 1, 1}, {0, 0, 0, 2, 1, 1},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rks_ingest_options options = {.skip_bad = true};
        built out;
        add_varying(OFFSETS, "4,", wrong[i], "3, 2");
        assert_ok(build_npz(&options, &out), &err);
        assert_int_equal(out.bad, 1);
        assert_int_equal(out.samples, 2);
        assert_contains((const char *)out.bad_list.data, "a.npz: row 0: column \"v\"");
        check(&out, 1, 0, ITEMS + 2, 2, 1, 1);
        done(&out);
    }
    assert_int_equal(rks_memory_in_use(), 0);
}

static void counts_that_differ_are_named(void **state)
{
    (void)state;
    rks_ingest_options options = {0};
    built out;
    add_varying(OFFSETS, "4,", SHAPES, "2, 2");
    assert_fails(RKS_ERR_DATA, build_npz(&options, &out));
    assert_contains(err.text, "v.npy has 3 rows, v.shapes.npy 2");
    add_varying(OFFSETS, "4,", NULL, NULL);
    add("v.missing.npy", "|b1", "2,", MISSING, 2);
    assert_fails(RKS_ERR_DATA, build_npz(&options, &out));
    assert_contains(err.text, "v.npy has 3 rows, v.missing.npy 2");
    add_varying(OFFSETS, "0,", NULL, NULL);
    assert_fails(RKS_ERR_DATA, build_npz(&options, &out));
    assert_contains(err.text, "N + 1 offsets");
    add_varying(OFFSETS, "4,", NULL, NULL);
    add("w.npy", "|u1", "2,", MISSING, 2);
    assert_fails(RKS_ERR_DATA, build_npz(&options, &out));
    assert_contains(err.text, "v.npy has 3 rows, w.npy 2");
    assert_int_equal(rks_memory_in_use(), 0);
}

static void an_array_beside_one_of_several_axes_is_a_column(void **state)
{
    (void)state;
    rks_ingest_options options = {0};
    built out;
    begin();
    add("v.npy", "|u1", "2, 2", ITEMS, 4);
    add("v.offsets.npy", "<i8", "2,", OFFSETS, 16);
    assert_ok(build_npz(&options, &out), &err);
    assert_string_equal(rks_schema_text(rks_shard_schema(out.shard)),
                        "{\"v\":\"uint8[2]\",\"v.offsets\":\"int64\"}");
    done(&out);
}

/* Windows move, items stay aligned, and rows that are not taken are passed over. */
static void long_arrays_come_in_pieces(void **state)
{
    (void)state;
    enum { ROWS = 30000 };
    static double items[ROWS], seen;
    static uint8_t bytes[8 * ROOM];
    rks_input_file file = {.max_total = 1 << 20};
    rks_npz npz;
    rks_npz_items reader = {0};
    uint8_t *at = NULL;
    begin();
    for (size_t i = 0; i < ROWS; i++)
        items[i] = (double)i;
    members[count++] = (packed_member){
        .name = "x.npy", .size = npy_file(bytes, "<f8", "30000,", items, sizeof(items))};
    members[0].bytes = memcpy(malloc(sizeof(bytes)), bytes, sizeof(bytes));
    file.path = (char *)packed_archive("a.npz", -2, members, count);
    struct stat info;
    assert_int_equal(stat(file.path, &info), 0);
    file.size = (uint64_t)info.st_size;
    assert_ok(rks_npz_open(&npz, &file, &err), &err);
    assert_int_equal(npz.count, 1);
    assert_null(rks_npz_find(&npz, "x", ".offsets"));
    assert_ok(rks_npz_items_open(&reader, &npz, rks_npz_find(&npz, "x", ""), &err), &err);
    for (size_t row = 0, step = 1; row < ROWS; row += step, step = step % 9000 + 7) {
        step = step > ROWS - row ? ROWS - row : step;
        if (step % 3 == 0) {
            assert_ok(rks_npz_items_skip(&reader, step * 8, &err), &err);
            continue;
        }
        assert_ok(rks_npz_items_take(&reader, step * 8, &at, &err), &err);
        assert_int_equal((uintptr_t)at % 8, 0);
        for (size_t i = 0; i < step; i++)
            assert_true(((double *)(void *)at)[i] == items[row + i]);
        seen += (double)step;
    }
    assert_true(seen > 100);
    assert_ok(rks_npz_items_end(&reader, &err), &err);
    rks_npz_items_close(&reader);
    rks_npz_close(&npz);
    begin();
    assert_int_equal(rks_memory_in_use(), 0);
}

static void failing_allocations_are_errors(void **state)
{
    (void)state;
    rks_ingest_options options = {0};
    built out;
    add_varying(OFFSETS, "4,", SHAPES, "3, 2");
    for (long at = 1;; at++) {
        rks_memory_fail_at(at);
        rks_status status = build_npz(&options, &out);
        rks_memory_fail_at(0);
        done(&out);
        if (status == RKS_OK)
            break;
        assert_int_equal(status, RKS_ERR_MEMORY);
        assert_int_equal(rks_memory_in_use(), 0);
        assert_true(at < 2000);
    }
    begin();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_columns_of_one_axis),
        cmocka_unit_test(varying_sizes_come_by_offsets_and_shapes),
        cmocka_unit_test(offsets_that_lie_end_the_build),
        cmocka_unit_test(shapes_that_lie_are_malformed_rows),
        cmocka_unit_test(counts_that_differ_are_named),
        cmocka_unit_test(an_array_beside_one_of_several_axes_is_a_column),
        cmocka_unit_test(long_arrays_come_in_pieces),
        cmocka_unit_test(failing_allocations_are_errors),
    };
    return cmocka_run_group_tests_name("npz", tests, scratch_open, scratch_close);
}
