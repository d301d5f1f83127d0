/* SPDX-License-Identifier: Apache-2.0
 *
 * test_json_text.c: strings and values of columns as JSON text, whatever stands where. */
#include "codec/json.h"
#include "rankstore.h"
#include "support/check.h"

#include <math.h>
#include <stdio.h>

static rks_error err;

/* One byte after the other. */
static size_t print_slowly(const uint8_t *at, size_t size, char *out)
{
    char *to = out;
    *to++ = '"';
    for (size_t i = 0; i < size; i++) {
        const char *shorts = "\bb\tt\nn\ff\rr\"\"\\\\", *found = NULL;
        for (const char *pair = shorts; *pair != '\0' && found == NULL; pair += 2)
            if ((uint8_t)*pair == at[i])
                found = pair + 1;
        if (found != NULL)
            to += sprintf(to, "\\%c", *found);
        else if (at[i] < 0x20)
            to += sprintf(to, "\\u%04x", at[i]);
        else
            *to++ = (char)at[i];
    }
    *to++ = '"';
    return (size_t)(to - out);
}

static void every_byte_at_every_place_is_escaped_where_it_must_be(void **state)
{
    (void)state;
    uint8_t text[27];
    char expected[7 * sizeof(text)];
    rks_buffer made = {0};
    for (size_t size = 1; size <= sizeof(text); size++)
        for (size_t at = 0; at < size; at++)
            for (int byte = 0; byte < 256; byte++) {
                memset(text, byte % 2 == 0 ? 'a' : 0xc3, sizeof(text));
                text[at] = (uint8_t)byte;
                text[size - 1 - at / 2] = (uint8_t)(byte * 7);
                made.size = 0;
                assert_ok(rks_json_print_string((char *)text, size, &made, &err), &err);
                size_t wanted = print_slowly(text, size, expected);
                assert_int_equal(made.size, wanted);
                assert_memory_equal(made.data, expected, wanted);
            }
    rks_buffer_free(&made);
}

/* A value of the one column, as JSON. */
static void expect(const char *type, const void *data, size_t size, uint32_t dim, const char *json)
{
    char text[64], *made = NULL;
    rks_schema *schema = NULL;
    const rks_value value = {.data = data, .size = size, .dims = {dim, 2}};
    snprintf(text, sizeof(text), "a:%s", type);
    assert_ok(rks_schema_parse(text, &schema, &err), &err);
    assert_ok(rks_value_json(schema, 0, &value, &made, &err), &err);
    assert_string_equal(made, json);
    rks_release(made);
    rks_schema_free(schema);
}

static void values_of_columns_are_json(void **state)
{
    (void)state;
    const int32_t numbers[] = {1, -2, 3, 4};
    const uint64_t large = UINT64_MAX;
    const double reals[] = {0.5, 1e300, -0.0, INFINITY};
    const float pair[] = {1.5f, -2};
    const uint8_t yes = 1;
    const uint32_t odd_nan = 0xffc00000;
    expect("str", "a\"\n\xc3\xa4", 5, 5, "\"a\\\"\\n\xc3\xa4\"");
    expect("str", "\xff", 1, 1, "{\"base64\":\"/w==\"}");
    expect("bytes", "ab", 2, 2, "{\"base64\":\"YWI=\"}");
    expect("json", "{ \"b\" : [1, 2.50] }", 19, 19, "{\"b\":[1,2.5]}");
    expect("str?", NULL, 0, 0, "null");
    expect("bool", &yes, 1, 0, "true");
    expect("uint64", &large, 8, 0, "\"18446744073709551615\"");
    expect("int32[*]", numbers, 16, 4, "[1,-2,3,4]");
    expect("int32[*]", numbers, 0, 0, "[]");
    expect("int32[*,2]", numbers, 16, 2, "[[1,-2],[3,4]]");
    expect("float64", &reals[0], 8, 0, "0.5");
    expect("float64", &reals[1], 8, 0, "1e+300");
    expect("float64", &reals[2], 8, 0, "-0.0");
    expect("complex64", pair, 8, 0, "[1.5,-2.0]");
    expect("float32", &odd_nan, 4, 0, "\"NaN(ffc00000)\"");
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    char *made = NULL;
    rks_schema *schema = NULL;
    const int32_t numbers[2] = {1, 2};
    const rks_value cut = {.data = numbers, .size = 8, .dims = {3}};
    const rks_value vast = {.data = numbers, .size = 8, .dims = {UINT32_MAX, UINT32_MAX}};
    const rks_value text = {.data = "{\"a\":", .size = 5, .dims = {5}};
    assert_ok(rks_schema_parse("a:int32[*],b:int32[*,*],c:json", &schema, &err), &err);
    assert_int_equal(rks_value_json(schema, 0, &cut, &made, &err), RKS_ERR_ARGUMENT);
    assert_contains(err.text, "column \"a\": 8 bytes do not fit its dims");
    assert_int_equal(rks_value_json(schema, 1, &vast, &made, &err), RKS_ERR_ARGUMENT);
    assert_int_equal(rks_value_json(schema, 2, &text, &made, &err), RKS_ERR_DATA);
    assert_contains(err.text, "column \"c\": invalid JSON");
    assert_int_equal(rks_value_json(schema, 3, &cut, &made, &err), RKS_ERR_ARGUMENT);
    assert_contains(err.text, "column 3 is out of range: there are 3");
    assert_null(made);
    rks_schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_at_every_place_is_escaped_where_it_must_be),
        cmocka_unit_test(values_of_columns_are_json),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("json_text", tests, NULL, NULL);
}
