/* SPDX-License-Identifier: Apache-2.0
 *
 * test_npy.c: headers of .npy files, and items in other orders. */
#include "scratch.h"

#include "base/memory.h"
#include "codec/npy.h"

static rks_error err;

static size_t header(uint8_t *bytes, int version, const char *dictionary)
{
    size_t size = strlen(dictionary), begin = version == 1 ? 10 : 12;
    memcpy(bytes, "\x93NUMPY", 6);
    bytes[6] = (uint8_t)version;
    bytes[7] = 0;
    memset(bytes + 8, 0, 4);
    bytes[8] = (uint8_t)size;
    bytes[9] = (uint8_t)(size >> 8);
    memcpy(bytes + begin, dictionary, size);
    return begin + size;
}

static void reads_what_numpy_writes(void **state)
{
    (void)state;
    const struct {
        const char *dictionary, *type;
        uint64_t size;
        bool fortran, swapped;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n", "float32[*,4]", 48, 0,
         0},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }", "uint8[*]", 7, 0, 0},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (), }", "int64", 8, 0, 0},
        {"{'descr': '>i2', 'fortran_order': True, 'shape': (2, 0, 3), }", "int16[*,*,3]", 0, 1, 1},
        {"{'shape':(5,),'fortran_order':False,'descr':'|b1'}", "bool[*]", 5, 0, 0},
        {"{\"descr\": \"<c8\", \"fortran_order\": False, \"shape\": (1,)}", "complex64[*]", 8, 0,
         0},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (1, 2, 3, 4, 5, 6, 7, 8), }",
         "float16[*,2,3,4,5,6,7,8]", 80640, 0, 0},
    };
    uint8_t bytes[256];
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            rks_npy npy;
            char type[128];
            size_t size = header(bytes, version, cases[i].dictionary);
            assert_ok(rks_npy_parse(bytes, size, &npy, &err), &err);
            rks_npy_type(&npy, type);
            assert_string_equal(type, cases[i].type);
            assert_int_equal(npy.size, cases[i].size);
            assert_int_equal(npy.begin, size);
            assert_int_equal(npy.fortran, cases[i].fortran);
            assert_int_equal(npy.swapped, cases[i].swapped);
        }
}

static void types_with_all_their_dimensions_fit_columns(void **state)
{
    (void)state;
    uint8_t bytes[256];
    rks_npy npy;
    char type[128];
    rks_schema *schema = NULL;
    size_t size = header(bytes, 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }");
    assert_ok(rks_npy_parse(bytes, size, &npy, &err), &err);
    rks_npy_fixed_type(&npy, type);
    assert_string_equal(type, "int32[3,4]");
    assert_ok(rks_schema_parse("a:int32[3,4],b:int32[*,4],c:int32[3,5],d:int32[3],e:int64[3,4]",
                               &schema, &err),
              &err);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(rks_npy_fits(&npy, rks_schema_column(schema, i)), i < 2);
    rks_schema_free(schema);
}

static void refuses_what_it_is_not(void **state)
{
    (void)state;
    const char *const wrong[] = {
        "{'descr': '|O', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f16', 'fortran_order': False, 'shape': (3,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f4', 'fortran_order': None, 'shape': (3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3",
        "{'descr': '<f4",
        "{",
        "",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 3, }",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'other': 1, 'fortran_order': False, 'shape': (3,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000, 4000000000, 4000000000), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
    };
    uint8_t bytes[256];
    rks_npy npy;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        size_t size = header(bytes, 1, wrong[i]);
        if (rks_npy_parse(bytes, size, &npy, &err) != RKS_ERR_DATA)
            fail_msg("%s", wrong[i]);
        assert_contains(err.text, "npy");
    }
    size_t size = header(bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }");
    for (size_t cut = 0; cut < size; cut++)
        assert_fails(RKS_ERR_DATA, rks_npy_parse(bytes, cut, &npy, &err));
    bytes[6] = 4;
    assert_fails(RKS_ERR_DATA, rks_npy_parse(bytes, size, &npy, &err));
}

static void brings_items_into_our_order(void **state)
{
    (void)state;
    rks_npy npy = {.kind = RKS_KIND_INT16,
                   .item_size = 2,
                   .swapped = true,
                   .fortran = true,
                   .dim_count = 3,
                   .dims = {2, 3, 2},
                   .size = 24};
    uint8_t items[24];
    /* Item (i, j, k) is 100 i + 10 j + k, the first index running fastest. */
    for (int k = 0, at = 0; k < 2; k++)
        for (int j = 0; j < 3; j++)
            for (int i = 0; i < 2; i++, at += 2) {
                items[at] = 0;
                items[at + 1] = (uint8_t)(100 * i + 10 * j + k);
            }
    assert_ok(rks_npy_arrange(&npy, items, &err), &err);
    for (int i = 0, at = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 2; k++, at += 2)
                assert_int_equal(items[at] | items[at + 1] << 8, 100 * i + 10 * j + k);
    assert_int_equal(rks_memory_in_use(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_numpy_writes),
        cmocka_unit_test(types_with_all_their_dimensions_fit_columns),
        cmocka_unit_test(refuses_what_it_is_not),
        cmocka_unit_test(brings_items_into_our_order),
    };
    return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
