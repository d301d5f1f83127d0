/* SPDX-License-Identifier: Apache-2.0
 *
 * test_row.c: lines of JSON to values. */
#include "scratch.h"

#include <math.h>

#include "base/memory.h"
#include "ingest/row.h"

static rks_error err;

/* Parses one line; the caller frees row and schema. */
static rks_status parse(const char *types, bool inferred, const char *line, size_t size,
                        rks_schema **schema, rks_row **row)
{
    rks_status status = rks_schema_parse(types, schema, &err);
    if (status == RKS_OK)
        status = rks_row_create(*schema, inferred, row, &err);
    if (status == RKS_OK)
        status = rks_row_parse(*row, (const uint8_t *)line, size, size, &err);
    return status;
}

static void every_type_takes_what_fits_it(void **state)
{
    (void)state;
    const struct {
        const char *type, *json, *bytes;
        size_t size;
        uint32_t dims[3];
    } cases[] = {
        {"bool", "true", "\1", 1, {0}},
        {"bool", "false", "\0", 1, {0}},
        {"int8", "-128", "\x80", 1, {0}},
        {"int16", "-2", "\xfe\xff", 2, {0}},
        {"int32", "2147483647", "\xff\xff\xff\x7f", 4, {0}},
        {"int64", "-9223372036854775808", "\0\0\0\0\0\0\0\x80", 8, {0}},
        {"uint8", "255", "\xff", 1, {0}},
        {"uint16", "65535", "\xff\xff", 2, {0}},
        {"uint32", "4294967295", "\xff\xff\xff\xff", 4, {0}},
        {"uint64", "9223372036854775807", "\xff\xff\xff\xff\xff\xff\xff\x7f", 8, {0}},
        {"uint64", "18446744073709551615", "\xff\xff\xff\xff\xff\xff\xff\xff", 8, {0}},
        {"uint64", "\"18446744073709551615\"", "\xff\xff\xff\xff\xff\xff\xff\xff", 8, {0}},
        {"uint64[*]", "[9223372036854775808]", "\0\0\0\0\0\0\0\x80", 8, {1}},
        {"float64", "9223372036854775808", "\0\0\0\0\0\0\xe0\x43", 8, {0}},
        {"float32", "18446744073709551615", "\0\0\x80\x5f", 4, {0}}, /* asked for, so rounded */
        {"json", "[18446744073709551615]", "[18446744073709551615]", 22, {22}},
        {"float16", "1.5", "\x00\x3e", 2, {0}},
        {"float16", "65504", "\xff\x7b", 2, {0}},
        {"bfloat16", "-1", "\x80\xbf", 2, {0}},
        {"float8_e4m3fn", "448", "\x7e", 1, {0}},
        {"float8_e5m2", "0.25", "\x34", 1, {0}},
        {"float32", "0.1", "\xcd\xcc\xcc\x3d", 4, {0}},
        {"float64", "1e400e", NULL, 0, {0}}, /* no JSON */
        {"float64", "9007199254740994", "\1\0\0\0\0\0\x40\x43", 8, {0}},
        {"float64", "9007199254740993.0", "\0\0\0\0\0\0\x40\x43", 8, {0}}, /* a real is rounded */
        {"float64", "-9223372036854775808", "\0\0\0\0\0\0\xe0\xc3", 8, {0}},
        {"float32", "16777217", "\0\0\x80\x4b", 4, {0}}, /* asked for, so rounded */
        {"float64", "3", "\0\0\0\0\0\0\x08\x40", 8, {0}},
        {"float64", "NaN", "\0\0\0\0\0\0\xf8\x7f", 8, {0}},
        {"float32", "-Infinity", "\0\0\x80\xff", 4, {0}},
        {"float16?", "Infinity", "\0\x7c", 2, {0}},
        {"float32[*]", "[1, NaN,Infinity]", "\0\0\x80\x3f\0\0\xc0\x7f\0\0\x80\x7f", 12, {3}},
        {"complex64", "[1, -2.0]", "\0\0\x80\x3f\0\0\0\xc0", 8, {0}},
        {"str", "\"a\\u0000\\u00e9\"", "a\0\xc3\xa9", 4, {4}},
        {"str", "\"\"", "", 0, {0}},
        {"bytes", "\"\xc3\xa9\"", "\xc3\xa9", 2, {2}},
        {"int16[*]", "[1, 2, -1]", "\1\0\2\0\xff\xff", 6, {3}},
        {"int16[*]", "[]", "", 0, {0}},
        {"int8[*,2]", "[[1,2],[3,4],[5,6]]", "\1\2\3\4\5\6", 6, {3, 2}},
        {"int8[*,2]", "[]", "", 0, {0, 2}},
        {"int8[2,*]", "[[1,2,3],[4,5,6]]", "\1\2\3\4\5\6", 6, {2, 3}},
        {"int8[2,*]", "[[],[]]", "", 0, {2, 0}},
        {"int8[*,*,1]", "[[[1],[2]],[[3],[4]]]", "\1\2\3\4", 4, {2, 2, 1}},
        {"bool[3]", "[true,false,true]", "\1\0\1", 3, {3}},
        {"complex64[*]", "[[0,0],[1,1]]", "\0\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\x80\x3f", 16, {2}},
        {"json",
         "{\"b\": [1, 2.50, \"x\"], \"a\": null}",
         "{\"b\":[1,2.5,\"x\"],\"a\":null}",
         26,
         {26}},
        {"json", "null", "null", 4, {4}},
        {"int32?", "null", NULL, 0, {0}},
        {"json?", "null", NULL, 0, {0}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char types[64], line[256];
        rks_schema *schema = NULL;
        rks_row *row = NULL;
        snprintf(types, sizeof(types), "v:%s", cases[i].type);
        snprintf(line, sizeof(line), "{\"v\": %s}", cases[i].json);
        rks_status status = parse(types, true, line, strlen(line), &schema, &row);
        if (strstr(cases[i].json, "e400e") != NULL) {
            assert_fails(RKS_ERR_DATA, status);
        } else {
            assert_ok(status, &err);
            const rks_value *value = &row->values[0];
            if (cases[i].bytes == NULL) {
                assert_null(value->data);
            } else {
                assert_non_null(value->data);
                if (value->size != cases[i].size ||
                    memcmp(value->data, cases[i].bytes, cases[i].size) != 0)
                    fail_msg("%s %s: wrong bytes", cases[i].type, cases[i].json);
                assert_memory_equal(value->dims, cases[i].dims, sizeof(cases[i].dims));
            }
        }
        rks_row_free(row);
        rks_schema_free(schema);
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    const char *const cases[][3] = {
        {"bool", "1", "column \"v\": 1 does not fit bool"},
        {"int8", "NaN", "column \"v\": NaN does not fit int8"},
        {"bool", "-Infinity", "column \"v\": -Infinity does not fit bool"},
        {"str", "NaN", "column \"v\": NaN does not fit str"},
        {"float8_e4m3fn", "Infinity", "column \"v\": Infinity does not fit float8_e4m3fn"},
        {"json", "{\"a\": [NaN]}", "column \"v\": not a JSON value: NaN and infinity"},
        {"int8", "128", "column \"v\": 128 does not fit int8"},
        {"uint8", "-1", "-1 does not fit uint8"},
        {"uint32", "4294967296", "does not fit uint32"},
        {"int32", "1.0", "column \"v\": 1.0 does not fit int32"},
        {"int32", "0.1", "column \"v\": 0.1 does not fit int32"},
        {"int32", "\"1\"", "a string does not fit int32"},
        {"int64", "9223372036854775808", "column \"v\": 9223372036854775808 does not fit int64"},
        {"uint64", "-1", "column \"v\": -1 does not fit uint64"},
        {"uint64", "18446744073709551616",
         "too big integer at byte 7, 18446744073709551616: integers"},
        {"uint64", "18446744073709551616", "-2^63 to 2^64 - 1"},
        {"json", "[18446744073709551615, -9223372036854775809]", "byte 30, -9223372036854775809: "},
        {"int64", "18446744073709551615, \"w\": nan", "invalid JSON at byte"},
        {"float64", "18446744073709551615", "float64 would round 18446744073709551615 to"},
        {"float64", "1e999", "64-bit floats"},
        {"float32", "1e39", "does not fit float32"},
        {"float64", "9007199254740993", "float64 would round 9007199254740993 to 9007199254740992"},
        {"float64", "9223372036854775807", "float64 would round 9223372036854775807 to"},
        {"float64?", "-9007199254740993", "give schema"},
        {"float64[*]", "[1.5, 9007199254740993]", "column \"v\": float64 would round"},
        {"float16", "65520", "65520 does not fit float16"},
        {"float8_e4m3fn", "-500", "-500 does not fit float8_e4m3fn"},
        {"float64", "\"nan\"", "a string does not fit float64"},
        {"str", "5", "an integer does not fit str"},
        {"bytes", "[1]", "a list does not fit bytes"},
        {"str", "null", "null does not fit str"},
        {"int32", "null", "null does not fit int32"},
        {"complex64", "[1]", "a list does not fit complex64"},
        {"complex64", "1", "1 does not fit complex64"},
        {"int32[*]", "5", "column \"v\": 5 does not fit int32[*]"},
        {"int32[*]", "[1, \"a\"]", "a string does not fit int32[*]"},
        {"int32[*]", "[[1]]", "a list does not fit int32[*]"},
        {"int32[*]", "{}", "an object does not fit int32[*]"},
        {"int32[3]", "[1, 2]", "a list of 2 items where 3 are needed for int32[3]"},
        {"int8[*,2]", "[[1,2],[3]]", "a list of 1 items where 2 are needed"},
        {"int8[*,*]", "[[1,2],[3]]", "a list of 1 items where 2 are needed"},
        {"int8[*,*]", "[[],[3]]", "a list of 1 items where 0 are needed"},
        {"int8[*,*]", "[[1],3]", "3 does not fit int8[*,*]"},
        {"int8[2,*]", "[]", "a list of 0 items where 2 are needed"},
        {"float32[100000000]", "[1]", "a list of 1 items where 100000000 are needed"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char types[64], line[256];
        rks_schema *schema = NULL;
        rks_row *row = NULL;
        snprintf(types, sizeof(types), "v:%s", cases[i][0]);
        snprintf(line, sizeof(line), "{\"v\": %s}", cases[i][1]);
        assert_fails(RKS_ERR_DATA, parse(types, false, line, strlen(line), &schema, &row));
        assert_contains(err.text, cases[i][2]);
        rks_row_free(row);
        rks_schema_free(schema);
    }
}

static void malformed_lines_are_refused(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"{\"v\": 1", "invalid JSON at byte"},
        {"{\"v\": 1} x", "invalid JSON at byte"},
        {"{'v': 1}", "invalid JSON at byte"},
        {"{\"v\": 01}", "invalid JSON at byte"},
        {"{\"v\": 1, \"v\": 2}", "duplicate object key"},
        {"{\"w\": {\"a\": 1, \"a\": 2}}", "duplicate object key"},
        {"{\"v\\u0000\": 1}", "NUL byte in object key"},
        {"{\"v\": \"\xff\"}", "invalid JSON at byte"},
        {"{\"v\": \"\xed\xa0\x80\"}", "invalid JSON at byte"},
        {"{\"v\": \"\\ud800\"}", "invalid JSON at byte"},
        {"{\"v\": \"\\ud800\\u0041\"}", "invalid JSON at byte"},
        {"{\"v\": \"\\ud800\\ud800\"}", "invalid JSON at byte"},
        {"{\"v\": NaN, \"v\": 1}", "duplicate object key"},
        {"{\"v\": NaN, \"w\": nan}", "invalid JSON at byte"},
        {"{\"v\": NaNNaN}", "invalid JSON at byte"},
        {"{\"v\": +Infinity}", "invalid JSON at byte"},
        {"{NaN: 1}", "invalid JSON at byte"},
        {"{\"ab\": 1, \"v\": 1, \"ab\": 1}", "invalid JSON at byte"},
        {"{\"abcde\": 1, \"v\": 1, \"abcdf\": 1, \"abcde\": 1}", "invalid JSON at byte"},
        {"{\"abcde\": 1, \"abcdf\": 1, \"abc\": 1}", "column \"v\" (int64) is missing"},
        {"{\"\": 1, \"a\": 1}", "column \"v\" (int64) is missing"},
        {"{\"\": 1, \"\": 1}", "invalid JSON at byte"},
        {"[1, 2]", "a list where a JSON object must be"},
        {"5", "an integer where a JSON object must be"},
        {"null", "null where a JSON object must be"},
        {"{}", "column \"v\" (int64) is missing"},
        {"{\"w\": 1}", "column \"v\" (int64) is missing"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_schema *schema = NULL;
        rks_row *row = NULL;
        assert_fails(RKS_ERR_DATA,
                     parse("v:int64", false, cases[i][0], strlen(cases[i][0]), &schema, &row));
        assert_contains(err.text, cases[i][1]);
        rks_row_free(row);
        rks_schema_free(schema);
    }
    static const char nul[] = "{\"v\": 1\0}";
    rks_schema *nul_schema = NULL;
    rks_row *nul_row = NULL;
    assert_fails(RKS_ERR_DATA,
                 parse("v:int64", false, nul, sizeof(nul) - 1, &nul_schema, &nul_row));
    assert_contains(err.text, "invalid JSON at byte 8: a NUL byte");
    rks_row_free(nul_row);
    rks_schema_free(nul_schema);
    /* deeper than any stack should follow */
    char *deep = malloc(200001);
    memset(deep, '[', 200000);
    memcpy(deep, "{\"v\":", 5);
    rks_schema *schema = NULL;
    rks_row *row = NULL;
    assert_fails(RKS_ERR_DATA, parse("v:json", false, deep, 200000, &schema, &row));
    assert_contains(err.text, "depth");
    rks_row_free(row);
    rks_schema_free(schema);
    /* lists that multiply to more than memory */
    size_t size = (size_t)sprintf(deep, "{\"v\": [[");
    for (int i = 0; i < 40000; i++)
        size += (size_t)sprintf(deep + size, "%s1", i == 0 ? "" : ",");
    deep[size++] = ']';
    for (int i = 0; i < 30000; i++)
        size += (size_t)sprintf(deep + size, ",[]");
    size += (size_t)sprintf(deep + size, "]}");
    assert_fails(RKS_ERR_DATA, parse("v:float64[*,*]", false, deep, size, &schema, &row));
    assert_contains(err.text, "lists of unequal sizes");
    rks_row_free(row);
    rks_schema_free(schema);
    free(deep);
}

static void bare_specials_are_found_wherever_they_stand(void **state)
{
    (void)state;
    const char *const lines[] = {
        "{\"v\": NaN}",
        "{\"w\": Infinity, \"v\": NaN}",
        "{\"v\":NaN,\"w\":[NaN,{\"v\":-Infinity}]}",
        "{\"\\\"NaN, \": [[], {}, \"NaN\", 1, -2.5, 18446744073709551615, true], \"v\": NaN }",
        "{\"NaN\": \"\\\\\", \"v\"\t:\tNaN\t, \"x\": null}",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        rks_schema *schema = NULL;
        rks_row *row = NULL;
        double real = 0;
        assert_ok(parse("v:float64", false, lines[i], strlen(lines[i]), &schema, &row), &err);
        memcpy(&real, row->values[0].data, sizeof(real));
        assert_true(isnan(real));
        const char *plain = "{\"v\": \"x\", \"v\": 1}"; /* nothing of the line before stays */
        assert_fails(RKS_ERR_DATA, rks_row_parse(row, (const uint8_t *)plain, strlen(plain),
                                                 strlen(plain), &err));
        plain = "{\"v\": 2.5}";
        assert_ok(rks_row_parse(row, (const uint8_t *)plain, strlen(plain), strlen(plain), &err),
                  &err);
        memcpy(&real, row->values[0].data, sizeof(real));
        assert_true(real == 2.5);
        rks_row_free(row);
        rks_schema_free(schema);
    }
}

static void members_come_in_any_order_and_strange_ones_only_with_a_given_schema(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    rks_row *row = NULL;
    const char *line = "{\"c\": 3, \"strange\": {}, \"a\": 1}";
    assert_ok(parse("a:int8,b:int8?,c:int8", false, line, strlen(line), &schema, &row), &err);
    assert_int_equal(*(const int8_t *)row->values[0].data, 1);
    assert_null(row->values[1].data);
    assert_int_equal(*(const int8_t *)row->values[2].data, 3);
    line = "{\"a\": 4, \"b\": 5, \"c\": 6}"; /* the row is used again */
    assert_ok(rks_row_parse(row, (const uint8_t *)line, strlen(line), strlen(line), &err), &err);
    assert_int_equal(*(const int8_t *)row->values[1].data, 5);
    rks_row_free(row);
    rks_schema_free(schema);
    line = "{\"a\": 1, \"strange\": 2}";
    assert_fails(RKS_ERR_DATA, parse("a:int8", true, line, strlen(line), &schema, &row));
    assert_contains(err.text, "column \"strange\" is not in the schema inferred");
    assert_contains(err.text, "give schema");
    rks_row_free(row);
    rks_schema_free(schema);
    line = "{\"a\": 1}"; /* inferred json takes what is not there as null */
    assert_ok(parse("a:int8,j:json", true, line, strlen(line), &schema, &row), &err);
    assert_memory_equal(row->values[1].data, "null", 4);
    rks_row_free(row);
    rks_schema_free(schema);
}

static void json_is_printed_short_and_reads_back(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"0.1", "0.1"},
        {"1e22", "1e22"},
        {"1.0", "1.0"},
        {"-0.0", "-0.0"},
        {"123456789.123456789", "123456789.12345679"},
        {"5e-324", "4.94065645841247e-324"},
        {"0.30000000000000004", "0.30000000000000004"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"\"\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\/\\u007f\"",
         "\"\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f\\\"\\\\/\x7f\""},
        {"[ ]", "[]"},
        {"{ }", "{}"},
        {"[true, false, null, [[]], {\"z\": {}, \"a\": 1}]",
         "[true,false,null,[[]],{\"z\":{},\"a\":1}]"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_buffer text = {0};
        rks_json_parser parser = {0};
        rks_json parsed = {0};
        size_t size = strlen(cases[i][0]);
        json_t *value = json_loads(cases[i][0], JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        assert_ok(rks_json_read(&parser, (const uint8_t *)cases[i][0], size, size, &parsed, &err),
                  &err);
        assert_ok(rks_json_print(parsed, &text, &err), &err);
        rks_json_parser_free(&parser);
        assert_int_equal(text.size, strlen(cases[i][1]));
        assert_memory_equal(text.data, cases[i][1], text.size);
        json_t *back = json_loadb((char *)text.data, text.size, JSON_DECODE_ANY, NULL);
        assert_true(json_equal(value, back));
        json_decref(back);
        json_decref(value);
        rks_buffer_free(&text);
    }
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const char *line = "{\"a\": [1, 2, NaN], \"j\": {\"x\": [0.1, \"y\"]}, \"s\": \"text\"}";
    long before = rks_memory_in_use();
    for (long nth = 1;; nth++) {
        rks_schema *schema = NULL;
        rks_row *row = NULL;
        rks_memory_fail_at(nth);
        rks_status status =
            parse("a:float64[*],j:json,s:str", true, line, strlen(line), &schema, &row);
        rks_memory_fail_at(0);
        rks_row_free(row);
        rks_schema_free(schema);
        assert_int_equal(rks_memory_in_use(), before);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
    }
}

static void damaged_lines_never_do_harm(void **state)
{
    (void)state;
    scratch_seed_print();
    const char good[] = "{\"a\": [[1, 2], [3, 4]], \"f\": 1.5e3, \"s\": \"\\u20ac x\", \"n\": "
                        "NaN, \"j\": {\"k\": [null, true]}, \"b\": false, \"z\": [1, 2]}";
    rks_schema *schema = NULL;
    rks_row *row = NULL;
    assert_ok(parse("a:int8[*,*],f:float16,s:str,n:float32,j:json,b:bool?,z:complex64", true, good,
                    strlen(good), &schema, &row),
              &err);
    for (size_t size = 0; size < strlen(good); size++)
        assert_fails(RKS_ERR_DATA, rks_row_parse(row, (const uint8_t *)good, size, size, &err));
    for (int round = 0; round < 20000; round++) {
        uint8_t line[sizeof(good)];
        memcpy(line, good, sizeof(good));
        for (uint64_t n = 1 + scratch_random(4); n > 0; n--)
            line[scratch_random(sizeof(good) - 1)] = (uint8_t)scratch_random(256);
        rks_status status = rks_row_parse(row, line, strlen(good), strlen(good), &err);
        assert_true(status == RKS_OK || status == RKS_ERR_DATA);
    }
    rks_row_free(row);
    rks_schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_takes_what_fits_it),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(malformed_lines_are_refused),
        cmocka_unit_test(bare_specials_are_found_wherever_they_stand),
        cmocka_unit_test(members_come_in_any_order_and_strange_ones_only_with_a_given_schema),
        cmocka_unit_test(json_is_printed_short_and_reads_back),
        cmocka_unit_test(survives_each_failing_allocation),
        cmocka_unit_test(damaged_lines_never_do_harm),
    };
    return cmocka_run_group_tests_name("ingest_row", tests, NULL, NULL);
}
