/* SPDX-License-Identifier: Apache-2.0
 *
 * test_schema.c: parsing schemas and types. */
#include "support/check.h"

#include <stdlib.h>

#include "base/memory.h"
#include "shard/schema.h"
#include "shard/utf8.h"

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

static void utf8_is_told_from_what_is_not(void **state)
{
    (void)state;
    static const char *const good[] = {"",
                                       "plain ascii, longer than 8 bytes",
                                       "\xc3\xa4",
                                       "\xe2\x82\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xf4\x8f\xbf\xbf",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "1234567\xc3\xa4"};
    static const char *const bad[] = {"\x80",
                                      "\xc3",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xe2\x82",
                                      "\xff",
                                      "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(rks_utf8_valid(good[i], strlen(good[i]), NULL));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char text[32] = "twelve bytes";
        size_t at = 0;
        strcat(text, bad[i]);
        assert_false(rks_utf8_valid(text, strlen(text), &at));
        assert_int_equal(at, 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read_and_written_again),
        cmocka_unit_test(columns_keep_their_order_and_are_found_by_name),
        cmocka_unit_test(canonical_text_gives_the_same_schema),
        cmocka_unit_test(what_is_no_schema_is_refused_naming_the_column),
        cmocka_unit_test(names_and_columns_have_limits),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(utf8_is_told_from_what_is_not),
    };
    return cmocka_run_group_tests_name("schema", tests, NULL, NULL);
}
