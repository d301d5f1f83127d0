/* SPDX-License-Identifier: Apache-2.0
 *
 * test_schema.c: parsing schemas and types. */
#include "support/check.h"

#include <stdlib.h>

#include "base/memory.h"
#include "shard/schema.h"

static rks_error err;

static void every_type_is_read_and_written_again(void **state)
{
    (void)state;
    static const char *const types[] = {
        "bool",          "int8",    "int16",    "int32",         "int64",       "uint8",
        "uint16",        "uint32",  "uint64",   "float16",       "float32",     "float64",
        "bfloat16",      "str",     "bytes",    "json",          "str?",        "int64?",
        "float8_e4m3fn", "json?",   "int32[*]", "float16[80,*]", "float8_e5m2", "complex64",
        "uint8[*,*,3]",  "bool[7]", "int32[*]?"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char text[64], expected[64];
        rks_schema *schema = NULL;
        snprintf(text, sizeof(text), "x:%s", types[i]);
        assert_ok(rks_schema_parse(text, &schema, &err), &err);
        assert_string_equal(rks_schema_type(schema, 0), types[i]);
        snprintf(expected, sizeof(expected), "{\"x\":\"%s\"}", types[i]);
        assert_string_equal(rks_schema_text(schema), expected);
        rks_schema_free(schema);
    }
}

static void types_are_described(void **state)
{
    (void)state;
    static const struct {
        const char *type, *item, *numpy;
        rks_item_class item_class;
        uint32_t size, dim_count, variable_dims, unit;
        uint32_t dims[3];
        bool nullable;
    } cases[] = {
        {"bool", "bool", "|b1", RKS_CLASS_BOOL, 1, 0, 0, 1, {0}, false},
        {"int8?", "int8", "|i1", RKS_CLASS_INT, 1, 0, 0, 1, {0}, true},
        {"uint32", "uint32", "<u4", RKS_CLASS_UINT, 4, 0, 0, 4, {0}, false},
        {"float16[80,*]?", "float16", "<f2", RKS_CLASS_FLOAT, 2, 2, 1, 160, {80, 0}, true},
        {"uint8[*,*,3]", "uint8", "|u1", RKS_CLASS_UINT, 1, 3, 2, 3, {0, 0, 3}, false},
        {"bfloat16[4]", "bfloat16", "<u2", RKS_CLASS_FLOAT, 2, 1, 0, 8, {4}, false},
        {"float8_e5m2", "float8_e5m2", "|u1", RKS_CLASS_FLOAT, 1, 0, 0, 1, {0}, false},
        {"complex64", "complex64", "<c8", RKS_CLASS_COMPLEX, 8, 0, 0, 8, {0}, false},
        {"str", "str", "|u1", RKS_CLASS_STR, 1, 1, 1, 1, {0}, false},
        {"bytes?", "bytes", "|u1", RKS_CLASS_BYTES, 1, 1, 1, 1, {0}, true},
        {" json ", "json", "|u1", RKS_CLASS_JSON, 1, 1, 1, 1, {0}, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_type_info info = {.struct_size = sizeof(info)};
        assert_ok(rks_type_describe(cases[i].type, &info, &err), &err);
        assert_string_equal(info.item, cases[i].item);
        assert_string_equal(info.numpy, cases[i].numpy);
        assert_int_equal(info.item_class, cases[i].item_class);
        assert_int_equal(info.item_size, cases[i].size);
        assert_int_equal(info.dim_count, cases[i].dim_count);
        assert_int_equal(info.variable_dims, cases[i].variable_dims);
        assert_int_equal(info.unit, cases[i].unit);
        for (uint32_t d = 0; d < RKS_DIMS_MAX; d++)
            assert_int_equal(info.dims[d], d < 3 ? cases[i].dims[d] : 0);
        assert_int_equal(info.nullable, cases[i].nullable);
    }
}

static void integers_may_stand_for_times(void **state)
{
    (void)state;
    static const char *const types[] = {"int32(date)", "int64(timestamp_us_utc)?",
                                        "int64(duration_ns)[*,2]?"};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char text[64];
        rks_schema *schema = NULL;
        snprintf(text, sizeof(text), "x:%s,y:int8", types[i]);
        assert_ok(rks_schema_parse(text, &schema, &err), &err);
        assert_string_equal(rks_schema_type(schema, 0), types[i]);
        rks_schema_free(schema);
    }
    rks_type_info info = {.struct_size = sizeof(info)};
    assert_ok(rks_type_describe("int64 (timestamp_us) [*]?", &info, &err), &err);
    assert_string_equal(info.item, "int64");
    assert_string_equal(info.meaning, "timestamp_us");
    assert_int_equal(info.dim_count, 1);
    assert_true(info.nullable);
    assert_ok(rks_type_describe("int64", &info, &err), &err);
    assert_null(info.meaning);
    static const char *const wrong[] = {"int64(us)", "int32(time_us)", "int64(time_us", "int64()",
                                        "int64[*](time_us)"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_fails(RKS_ERR_ARGUMENT, rks_type_describe(wrong[i], &info, &err));
}

static void what_is_no_type_is_not_described(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",        "int33",     "int32[", "str[3]",
                                        "x:int32", "int32[*]x", "int32,", "int32??"};
    rks_type_info info = {.struct_size = sizeof(info)}, before = info;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_fails(RKS_ERR_ARGUMENT, rks_type_describe(wrong[i], &info, &err));
        assert_contains(err.text, wrong[i]);
    }
    assert_fails(RKS_ERR_ARGUMENT, rks_type_describe(NULL, &info, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_type_describe("int8", NULL, &err));
    assert_memory_equal(&info, &before, sizeof(info));
    info.struct_size = 0;
    assert_fails(RKS_ERR_ARGUMENT, rks_type_describe("int8", &info, &err));
}

static void a_shorter_struct_of_a_type_is_not_overrun(void **state)
{
    (void)state;
    rks_type_info info;
    memset(&info, 0xa5, sizeof(info));
    info.struct_size = offsetof(rks_type_info, nullable);
    assert_ok(rks_type_describe("int16[7]?", &info, &err), &err);
    assert_int_equal(info.struct_size, offsetof(rks_type_info, nullable));
    assert_int_equal(info.unit, 14);
    assert_int_equal(*(const uint8_t *)&info.nullable, 0xa5);
}

/* The list names each item type once, and each has a place among NumPy's. */
static void all_item_types_are_listed(void **state)
{
    (void)state;
    size_t count = 0;
    for (const char *item; (item = rks_type_item(count)) != NULL; count++) {
        rks_type_info info = {.struct_size = sizeof(info)};
        rks_kind kind;
        assert_ok(rks_type_describe(item, &info, &err), &err);
        assert_string_equal(info.item, item);
        assert_int_equal(strtoul(info.numpy + 2, NULL, 10), info.item_size);
        assert_int_equal(info.numpy[0], info.item_size == 1 ? '|' : '<');
        assert_true(rks_kind_find(item, strlen(item), &kind));
        assert_int_equal(kind, count);
    }
    assert_int_equal(count, 19);
    assert_null(rks_type_item(SIZE_MAX));
}

static void single_numbers_that_are_never_missing_can_be_in_the_index(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        bool can;
    } cases[] = {{"int8", true},     {"uint64", true},  {"float32", true}, {"float8_e5m2", true},
                 {"bfloat16", true}, {"bool", false},   {"str", false},    {"complex64", false},
                 {"int8?", false},   {"int8[1]", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[64];
        rks_schema *schema = NULL;
        snprintf(text, sizeof(text), "x:%s", cases[i].type);
        assert_ok(rks_schema_parse(text, &schema, &err), &err);
        assert_int_equal(rks_column_indexable(rks_schema_column(schema, 0)), cases[i].can);
        rks_schema_free(schema);
    }
}

static void lengths_count_a_column_that_varies_if_there_is_one(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *key, *column, *unrecorded;
    } cases[] = {
        {"a:int32,b:str,c:int8[*]", NULL, "c", "b"},
        {"a:int32,b:str,c:int8[*]", "b", "c", "c"},
        {"a:int32,b:str,c:int8[*]", "c", "b", "b"},
        {"j:json,b:bytes,s:str,m:bool[*],c:int8[*]", NULL, "m", "j"},
        {"f:int8[3],g:int8[4],v:json?", NULL, "v", "v"},
        {"f:int8[3],g:int8[4]", NULL, "f", "f"},
        {"f:int8[3],g:int8[4]", "f", "g", "g"},
        {"__key__:str,v:bytes", NULL, "v", "v"},
        {"__key__:str,f:int8[3]", NULL, "f", "f"},
        {"n:int8,__key__:str", NULL, "__key__", "__key__"},
        {"n:int8,__key__:str", "__key__", NULL, NULL},
        {"n:int8", NULL, NULL, NULL},
        {"__key__:int8,f:float16[2,*]", NULL, "f", "f"},
        {"f:int8[2],v:float16[2,*]", "x", "v", "v"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_schema *schema = NULL;
        assert_ok(rks_schema_parse(cases[i].schema, &schema, &err), &err);
        const rks_column *column = rks_schema_length(schema, cases[i].key);
        assert_int_equal(column == NULL, cases[i].column == NULL);
        if (column != NULL)
            assert_string_equal(column->name, cases[i].column);
        column = rks_schema_unrecorded_length(schema, cases[i].key);
        assert_int_equal(column == NULL, cases[i].unrecorded == NULL);
        if (column != NULL)
            assert_string_equal(column->name, cases[i].unrecorded);
        rks_schema_free(schema);
    }
}

static void columns_keep_their_order_and_are_found_by_name(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    assert_ok(rks_schema_parse("ids:int32[*], mel: float16[ 80 , * ]? ,a:b:str", &schema, &err),
              &err);
    assert_int_equal(rks_schema_columns(schema), 3);
    assert_string_equal(rks_schema_name(schema, 0), "ids");
    assert_string_equal(rks_schema_type(schema, 1), "float16[80,*]?");
    assert_string_equal(rks_schema_name(schema, 2), "a:b");
    assert_int_equal(rks_schema_find(schema, "mel"), 1);
    assert_int_equal(rks_schema_find(schema, "none"), -1);
    assert_null(rks_schema_name(schema, 3));
    const rks_column *mel = rks_schema_column(schema, 1);
    assert_int_equal(mel->kind, RKS_KIND_FLOAT16);
    assert_int_equal(mel->item_size, 2);
    assert_int_equal(mel->dim_count, 2);
    assert_int_equal(mel->dims[0], 80);
    assert_int_equal(mel->dims[1], 0);
    assert_int_equal(mel->variable_dims, 1);
    assert_true(mel->nullable);
    rks_schema_free(schema);
}

static void canonical_text_gives_the_same_schema(void **state)
{
    (void)state;
    const char *text = "{\"a \\\"quoted\\\" \\\\ name\":\"str\",\"\xc3\xa4\":\"int8[*]\"}";
    rks_schema *schema = NULL, *again = NULL;
    assert_ok(rks_schema_parse(text, &schema, &err), &err);
    assert_string_equal(rks_schema_text(schema), text);
    assert_ok(rks_schema_parse(rks_schema_text(schema), &again, &err), &err);
    assert_string_equal(rks_schema_text(again), text);
    rks_schema_free(schema);
    rks_schema_free(again);
}

static void what_is_no_schema_is_refused_naming_the_column(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *named;
    } wrong[] = {
        {"", "name:type"},
        {"{}", "no columns"},
        {"x", "x"},
        {"x:", "\"x\""},
        {"x:int33", "\"x\""},
        {"x:str[3]", "\"x\""},
        {"x:int32[]", "\"x\""},
        {"x:int32[0]", "\"x\""},
        {"x:int32[01]", "\"x\""},
        {"x:int32[-1]", "\"x\""},
        {"x:int32[4294967296]", "\"x\""},
        {"x:int64[4294967295]", "\"x\""},
        {"x:int32[3", "\"x\""},
        {"x:int32[3]]", "\"x\""},
        {"x:int32??", "\"x\""},
        {"x:int8[1,1,1,1,1,1,1,1,1]", "\"x\""},
        {":int32", "name"},
        {"x:int32,x:str", "twice"},
        {"x:int32,", "name:type"},
        {"{\"x\":3}", "\"x\""},
        {"{\"x\":\"str\",\"x\":\"str\"}", "uplicate"},
        {"{\"\":\"str\"}", "name"},
        {"{\"a\\nb\":\"str\"}", "name"},
        {"{\"x\":\"str\"", "line 1"},
        {"[\"x\"]", "name:type"},
        {"\xff:str", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rks_schema *schema = NULL;
        assert_fails(RKS_ERR_ARGUMENT, rks_schema_parse(wrong[i].text, &schema, &err));
        assert_null(schema);
        assert_contains(err.text, wrong[i].named);
    }
}

static void names_and_columns_have_limits(void **state)
{
    (void)state;
    char text[2 + RKS_COLUMNS_MAX * 16];
    rks_schema *schema = NULL;
    memset(text, 'n', 256);
    strcpy(text + 256, ":str");
    assert_fails(RKS_ERR_ARGUMENT, rks_schema_parse(text, &schema, &err));
    assert_ok(rks_schema_parse(text + 1, &schema, &err), &err);
    rks_schema_free(schema);
    schema = NULL;
    size_t at = 0;
    for (int i = 0; i <= RKS_COLUMNS_MAX; i++) {
        if (i == RKS_COLUMNS_MAX) {
            assert_ok(rks_schema_parse(text, &schema, &err), &err);
            rks_schema_free(schema);
            schema = NULL;
        }
        at += (size_t)sprintf(text + at, "%sc%d:int8", i == 0 ? "" : ",", i);
    }
    assert_fails(RKS_ERR_ARGUMENT, rks_schema_parse(text, &schema, &err));
    assert_contains(err.text, "c1024");
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    long before = rks_memory_in_use();
    rks_status status = RKS_ERR_MEMORY;
    for (long nth = 1; status != RKS_OK; nth++) {
        rks_schema *schema = NULL;
        rks_memory_fail_at(nth);
        status = rks_schema_parse("a:str,b:int32[*],c:json?", &schema, &err);
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_int_equal(status, RKS_ERR_MEMORY);
        rks_schema_free(schema);
        assert_int_equal(rks_memory_in_use(), before);
        assert_true(nth < 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read_and_written_again),
        cmocka_unit_test(types_are_described),
        cmocka_unit_test(integers_may_stand_for_times),
        cmocka_unit_test(what_is_no_type_is_not_described),
        cmocka_unit_test(a_shorter_struct_of_a_type_is_not_overrun),
        cmocka_unit_test(all_item_types_are_listed),
        cmocka_unit_test(single_numbers_that_are_never_missing_can_be_in_the_index),
        cmocka_unit_test(lengths_count_a_column_that_varies_if_there_is_one),
        cmocka_unit_test(columns_keep_their_order_and_are_found_by_name),
        cmocka_unit_test(canonical_text_gives_the_same_schema),
        cmocka_unit_test(what_is_no_schema_is_refused_naming_the_column),
        cmocka_unit_test(names_and_columns_have_limits),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
