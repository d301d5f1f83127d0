/* SPDX-License-Identifier: Apache-2.0
 *
 * test_select.c: where, keys, lengths and callbacks. */
#include "support/check.h"

#include "base/error.h"
#include "base/memory.h"
#include "codec/number.h"
#include "ingest/row.h"
#include "ingest/sample_selection.h"
#include "codec/filter.h"

static rks_error err;

static const char SCHEMA[] =
    "{\"n\": \"int32\", \"big\": \"int64\", \"u\": \"uint64\", \"x\": \"float32\", "
    "\"h\": \"float16\", \"ok\": \"bool\", \"s\": \"str\", \"raw\": \"bytes\", \"j\": \"json\", "
    "\"ids\": \"int32[*]\", \"mel\": \"float16[2,*]\", \"m\": \"str?\", \"k\": \"int64?\", "
    "\"two words\": \"int8\", \"box\": \"float32[4]\", \"z\": \"complex64\"}";

static const char ROW[] =
    "{\"n\": -3, \"big\": 9007199254740993, \"u\": 7, \"x\": 0.1, \"h\": 1.5, \"ok\": true, "
    "\"s\": \"na\\u00efve \\u20ac\", \"raw\": \"abc\", \"j\": {\"a\": [1, 2]}, "
    "\"ids\": [1, 2, 3, 4, 5], \"mel\": [[1, 2, 3], [4, 5, 6]], \"m\": null, \"two words\": 5, "
    "\"box\": [1, 2, 3, 4], \"z\": [1, -1]}";

static rks_schema *schema;
static rks_row *row;

static int prepare(void **state)
{
    (void)state;
    return rks_schema_parse(SCHEMA, &schema, &err) != RKS_OK ||
           rks_row_create(schema, false, &row, &err) != RKS_OK ||
           rks_row_parse(row, (const uint8_t *)ROW, strlen(ROW), strlen(ROW), &err) != RKS_OK;
}

static int finish(void **state)
{
    (void)state;
    rks_row_free(row);
    rks_schema_free(schema);
    return rks_memory_in_use() != 0;
}

static rks_status apply(const rks_ingest_options *options, bool *keep, uint32_t *length,
                        char *key_text)
{
    rks_selector *selector = NULL;
    const void *key = NULL;
    size_t key_size = 0;
    rks_status status = rks_selector_create(schema, options, &selector, &err);
    if (status == RKS_OK)
        status = rks_selector_apply(selector, row->values, keep, length, &key, &key_size, &err);
    if (status == RKS_OK && *keep && key_text != NULL)
        snprintf(key_text, 64, "%.*s", (int)key_size, (const char *)key);
    rks_selector_free(selector);
    return status;
}

static void where_keeps_what_it_says(void **state)
{
    (void)state;
    const struct {
        const char *where;
        bool keep;
    } cases[] = {
        {"n == -3", true},
        {"n == -3.0", true},
        {"n != -3", false},
        {"n<-2", true},
        {"n <= -3", true},
        {"n > -3", false},
        {"n >= -3", true},
        {"n > -3.5", true},
        {"n < 18446744073709551615", true},
        {"n < 1e300", true},
        {"n > -1e300", true},
        {"big == 9007199254740993", true},
        {"big == 9007199254740992", false},
        {"big > 9007199254740992.0", true}, /* as doubles they are equal */
        {"big == 9007199254740992.0", false},
        {"u == 7", true},
        {"u > -1", true},
        {"x == 0.1", false}, /* a float32 is not the double */
        {"x > 0.1", true},
        {"x < 0.11", true},
        {"h == 1.5", true},
        {"h == 1", false},
        {"h >= 1", true},
        {"ok == true", true},
        {"ok != true", false},
        {"ok == false", false},
        {"s == 'na\xc3\xafve \xe2\x82\xac'", true},
        {"s > na", true},
        {"s < nb", true},
        {"s >= \"\"", true},
        {"s > '5'", true}, /* as text */
        {"s > 2024-01-31", true},
        {"s != 5", true},
        {"s == 5", false},
        {"s == ''", false},
        {"raw == abc", true},
        {"raw == \"a\\bc\"", true},
        {"raw < abcd", true},
        {"raw > ab", true},
        {"raw != 'null'", true},
        {"m == null", true},
        {"m != null", false},
        {"m == 'x'", false},
        {"m != 'x'", true}, /* a missing value differs from every value */
        {"m < 'x'", false},
        {"m >= 'x'", false},
        {"k == null", true}, /* not in the line */
        {"k == 0", false},
        {"k != 0", true},
        {"s != null", true},
        {"j != null", true},
        {"ids != null and mel != null", true},
        {"'two words' == 5", true},
        {"\"two words\"<6 and n==-3", true},
        {"n == -3 and ok == false", false},
        {"n == 0 and ok == true", false},
        {"s>='a'and n<0 AND x>0", true},
        {"  n\t==\n-3  ", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_ingest_options options = {.where = cases[i].where};
        bool keep = !cases[i].keep;
        uint32_t length;
        assert_ok(apply(&options, &keep, &length, NULL), &err);
        if (keep != cases[i].keep)
            fail_msg("%s: keep %d", cases[i].where, keep);
    }
}

static void a_wrong_where_says_what_and_where(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"", "a column expected at 1"},
        {"n", "expected at 2"},
        {"n = 3", "one of == != < <= > >= expected at 3, not \"= 3\""},
        {"n === 3", "expected at 3"},
        {"n ==", "a value expected at 5"},
        {"n == 3 or u == 2", "\"and\" expected at 8, not \"or u == 2\""},
        {"n == 3 and", "a column expected at 11"},
        {"n == 3 4", "\"and\" expected at 8"},
        {"n == '3'", "at 6: column \"n\" is int32"},
        {"n == three", "a number is expected"},
        {"n == 3x", "a number is expected"},
        {"n == 18446744073709551616", "a number is expected"},
        {"n == nan", "a number is expected"},
        {"n == 1e999", "a number is expected"},
        {"n < null", "null allows only == and !="},
        {"s == 'abc", "the quote at 6 has no end"},
        {"s == 'abc\\", "the quote at 6 has no end"},
        {"s > 5",
         "at 5: column \"s\" is str and cannot be compared with 5; quote the value to compare "
         "as text: > \"5\""},
        {"raw <= -1.5e3", "column \"raw\" is bytes"},
        {"s < 99999999999999999999", "as text: < \"99999999999999999999\""},
        {"s >= .5", "as text: >= \".5\""},
        {"ok == 1", "say == true or == false"},
        {"ok < true", "say == true or == false"},
        {"ids == 3", "only == null and != null are allowed"},
        {"j == 3", "only == null and != null are allowed"},
        {"z == 3", "only == null and != null are allowed"},
        {"nn == 3", "no column \"nn\"; nearest: \"n\""},
        {"two_words == 3", "nearest: \"two words\""},
        {"3 == n", "no column \"3\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_ingest_options options = {.where = cases[i][0]};
        bool keep;
        uint32_t length;
        assert_fails(RKS_ERR_ARGUMENT, apply(&options, &keep, &length, NULL));
        assert_contains(err.text, cases[i][1]);
        assert_contains(err.text, "where");
    }
}

static void lengths_are_items_bytes_characters_or_values(void **state)
{
    (void)state;
    const struct {
        const char *length;
        uint32_t unit, expected;
    } cases[] = {
        {NULL, 0, 5}, /* ids: the first array with a variable dimension */
        {"s", 0, 10},  {"chars:s", 0, 7}, {"chars:s", 2, 4}, {"raw", 1, 3},
        {"j", 0, 11},  {"ids", 0, 5},     {"ids", 2, 3},     {"ids", 5, 1},
        {"ids", 6, 1}, {"mel", 0, 3}, /* not the fixed 2 */
        {"box", 0, 4}, {"u", 0, 7},       {"u", 7, 1},       {"two words", 3, 2},
        {"m", 0, 0},   {"chars:m", 0, 0}, {"k", 0, 0},       {"big", 4194304, 2147483649},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_ingest_options options = {.length = cases[i].length, .length_unit = cases[i].unit};
        bool keep = false;
        uint32_t length = 0;
        assert_ok(apply(&options, &keep, &length, NULL), &err);
        if (length != cases[i].expected)
            fail_msg("%s / %u: %u", cases[i].length, cases[i].unit, length);
    }
    const struct {
        const char *length, *text;
        rks_status status;
    } wrong[] = {
        {"x", "column \"x\" is float32; a length is", RKS_ERR_ARGUMENT},
        {"ok", "column \"ok\" is bool", RKS_ERR_ARGUMENT},
        {"z", "column \"z\" is complex64", RKS_ERR_ARGUMENT},
        {"chars:raw", "chars: counts the characters of str", RKS_ERR_ARGUMENT},
        {"chars:q", "length: no column \"q\"", RKS_ERR_ARGUMENT},
        {"id", "length: no column \"id\"; nearest: \"ids\"", RKS_ERR_ARGUMENT},
        {"n", "column \"n\": a length of -3", RKS_ERR_DATA},
        {"big", "a length of 9007199254740993, at most 4294967294", RKS_ERR_DATA},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rks_ingest_options options = {.length = wrong[i].length};
        bool keep = false;
        uint32_t length = 0;
        assert_fails(wrong[i].status, apply(&options, &keep, &length, NULL));
        assert_contains(err.text, wrong[i].text);
    }
}

static void lengths_out_of_the_limits_are_left_out(void **state)
{
    (void)state;
    const struct {
        uint32_t min, max, unit;
        bool kept;
    } cases[] = {{0, 0, 1, true}, {5, 5, 1, true},  {6, 0, 1, false}, {0, 4, 1, false},
                 {0, 3, 2, true}, {4, 9, 2, false}, {0, 2, 2, false}, {1, UINT32_MAX, 1, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_ingest_options options = {.length = "ids", /* 5 of them */
                                      .length_unit = cases[i].unit,
                                      .min_length = cases[i].min,
                                      .max_length = cases[i].max};
        bool keep = !cases[i].kept;
        uint32_t length = 0;
        assert_ok(apply(&options, &keep, &length, NULL), &err);
        assert_int_equal(keep, cases[i].kept);
    }
}

static void the_default_length_is_not_the_keys(void **state)
{
    (void)state;
    const struct {
        const char *schema, *key;
        uint32_t expected;
    } cases[] = {
        {"name:str,ids:int32[*]", NULL, 2},     {"name:str,ids:int32[*]", "name", 2},
        {"ids:int32[*],name:str", "name", 2},   {"name:str,n:int32[2]", "name", 2},
        {"name:bytes,ids:int32[*]", "name", 2}, {"name:str,n:int32[2]", NULL, 5},
        {"__key__:str,ids:int32[*]", NULL, 2},  {"__key__:str,n:int32[2]", NULL, 2},
        {"__key__:str,x:int64", NULL, 5},       {"__key__:str,x:int64", "__key__", 1},
    };
    static const int32_t numbers[2] = {1, 2};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_schema *other = NULL;
        rks_selector *selector = NULL;
        rks_value values[2] = {{.data = "five5", .size = 5}, {.data = numbers, .size = 8}};
        if (cases[i].schema[0] == 'i')
            values[1] = values[0], values[0] = (rks_value){.data = numbers, .size = 8};
        rks_ingest_options options = {.key = cases[i].key};
        bool keep = false;
        uint32_t length = 0;
        const void *key = NULL;
        size_t key_size = 0;
        assert_ok(rks_schema_parse(cases[i].schema, &other, &err), &err);
        assert_ok(rks_selector_create(other, &options, &selector, &err), &err);
        assert_ok(rks_selector_apply(selector, values, &keep, &length, &key, &key_size, &err),
                  &err);
        assert_int_equal(length, cases[i].expected);
        rks_selector_free(selector);
        rks_schema_free(other);
    }
}

static void a_length_with_nothing_variable_is_one(void **state)
{
    (void)state;
    rks_schema *plain = NULL;
    rks_selector *selector = NULL;
    rks_ingest_options options = {0};
    float number = 1;
    rks_value value = {.data = &number, .size = sizeof(number)};
    bool keep = false;
    uint32_t length = 0;
    const void *key = NULL;
    size_t key_size = 0;
    assert_ok(rks_schema_parse("x:float32", &plain, &err), &err);
    assert_ok(rks_selector_create(plain, &options, &selector, &err), &err);
    assert_true(rks_selector_derived_keys(selector));
    assert_ok(rks_selector_apply(selector, &value, &keep, &length, &key, &key_size, &err), &err);
    assert_int_equal(length, 1);
    assert_null(key);
    assert_int_equal(key_size, 0);
    /* A key of the caller's own stays. */
    key = &number;
    key_size = 4;
    assert_ok(rks_selector_apply(selector, &value, &keep, &length, &key, &key_size, &err), &err);
    assert_ptr_equal(key, &number);
    assert_int_equal(key_size, 4);
    rks_selector_free(selector);
    rks_schema_free(plain);
}

static void keys_are_bytes_or_digits(void **state)
{
    (void)state;
    const char *const good[][2] = {
        {"s", "na\xc3\xafve \xe2\x82\xac"}, {"raw", "abc"}, {"n", "-3"},
        {"big", "9007199254740993"},        {"u", "7"},     {"two words", "5"},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        rks_ingest_options options = {.key = good[i][0]};
        bool keep = false;
        uint32_t length;
        char key[64];
        assert_ok(apply(&options, &keep, &length, key), &err);
        assert_string_equal(key, good[i][1]);
    }
    const struct {
        const char *key, *text;
        rks_status status;
    } wrong[] = {
        {"x", "key: column \"x\" is float32", RKS_ERR_ARGUMENT},
        {"ids", "key: column \"ids\" is int32[*]", RKS_ERR_ARGUMENT},
        {"j", "key: column \"j\" is json", RKS_ERR_ARGUMENT},
        {"S", "key: no column \"S\"; nearest: ", RKS_ERR_ARGUMENT},
        {"m", "column \"m\": the key is missing", RKS_ERR_DATA},
        {"k", "column \"k\": the key is missing", RKS_ERR_DATA},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rks_ingest_options options = {.key = wrong[i].key};
        bool keep = false;
        uint32_t length;
        assert_fails(wrong[i].status, apply(&options, &keep, &length, NULL));
        assert_contains(err.text, wrong[i].text);
    }
}

static void keys_have_1_to_511_bytes(void **state)
{
    (void)state;
    static char text[600];
    rks_schema *one = NULL;
    rks_selector *selector = NULL;
    rks_ingest_options options = {.key = "s"};
    bool keep = false;
    uint32_t length;
    const void *key = NULL;
    size_t key_size = 0;
    assert_ok(rks_schema_parse("s:str", &one, &err), &err);
    assert_ok(rks_selector_create(one, &options, &selector, &err), &err);
    rks_value value = {.data = text, .size = 511};
    assert_ok(rks_selector_apply(selector, &value, &keep, &length, &key, &key_size, &err), &err);
    assert_int_equal(key_size, 511);
    value.size = 512;
    assert_fails(RKS_ERR_DATA,
                 rks_selector_apply(selector, &value, &keep, &length, &key, &key_size, &err));
    assert_contains(err.text, "a key of 512 bytes");
    value.size = 0;
    assert_fails(RKS_ERR_DATA,
                 rks_selector_apply(selector, &value, &keep, &length, &key, &key_size, &err));
    assert_contains(err.text, "empty");
    rks_selector_free(selector);
    rks_schema_free(one);
}

static void index_columns_are_single_numbers(void **state)
{
    (void)state;
    const char *const good[] = {"n", "x", "h", "u"};
    rks_ingest_options options = {.index = good, .index_count = 4};
    bool keep;
    uint32_t length;
    assert_ok(apply(&options, &keep, &length, NULL), &err);
    const char *const wrong[][2] = {
        {"s", "index: column \"s\" is str"},    {"ids", "index: column \"ids\" is int32[*]"},
        {"k", "index: column \"k\" is int64?"}, {"z", "index: column \"z\" is complex64"},
        {"ok", "index: column \"ok\" is bool"}, {"w", "index: no column \"w\""},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        options = (rks_ingest_options){.index = &wrong[i][0], .index_count = 1};
        assert_fails(RKS_ERR_ARGUMENT, apply(&options, &keep, &length, NULL));
        assert_contains(err.text, wrong[i][1]);
    }
    const char *const twice[] = {"n", "n"};
    options = (rks_ingest_options){.index = twice, .index_count = 2};
    assert_fails(RKS_ERR_ARGUMENT, apply(&options, &keep, &length, NULL));
    assert_contains(err.text, "twice");
}

typedef struct asked {
    int answer;
    uint64_t length;
    int calls;
    size_t key_size;
} asked;

static int filter(void *user, const rks_sample *sample, rks_error *error)
{
    asked *at = user;
    at->calls++;
    at->key_size = sample->key_size;
    assert_int_equal(sample->length, 0);
    assert_ptr_equal(sample->schema, schema);
    if (at->answer == -2)
        rks_fail(error, RKS_ERR_IO, 5, "tokenizer is gone");
    return at->answer;
}

static rks_status measure(void *user, const rks_sample *sample, uint64_t *length, rks_error *error)
{
    (void)sample;
    asked *at = user;
    *length = at->length;
    return at->length == 99 ? rks_fail(error, RKS_ERR_DATA, 0, "no such voice") : RKS_OK;
}

static void callbacks_decide_after_where(void **state)
{
    (void)state;
    asked at = {.answer = 1, .length = 41};
    rks_ingest_options options = {.filter = filter,
                                  .length_fn = measure,
                                  .length_unit = 10,
                                  .callback_user = &at,
                                  .key = "raw"};
    bool keep = false;
    uint32_t length = 0;
    assert_ok(apply(&options, &keep, &length, NULL), &err);
    assert_true(keep);
    assert_int_equal(length, 5);
    assert_int_equal(at.key_size, 3);
    at.answer = 0;
    assert_ok(apply(&options, &keep, &length, NULL), &err);
    assert_false(keep);
    at.answer = -1;
    assert_fails(RKS_ERR_DATA, apply(&options, &keep, &length, NULL));
    assert_contains(err.text, "without a word");
    at.answer = -2;
    assert_fails(RKS_ERR_IO, apply(&options, &keep, &length, NULL));
    assert_contains(err.text, "filter: tokenizer is gone");
    assert_int_equal(err.cause, 5);
    at.answer = 1;
    at.length = 99;
    rks_selector *selector = NULL;
    const void *key = NULL;
    size_t key_size;
    assert_ok(rks_selector_create(schema, &options, &selector, &err), &err);
    assert_fails(RKS_ERR_DATA,
                 rks_selector_apply(selector, row->values, &keep, &length, &key, &key_size, &err));
    assert_true(rks_selector_callback_failed(selector));
    at.length = 1;
    assert_ok(rks_selector_apply(selector, row->values, &keep, &length, &key, &key_size, &err),
              &err);
    assert_false(rks_selector_callback_failed(selector));
    rks_selector_free(selector);
    at.calls = 0;
    options.where = "n > 0";
    assert_ok(apply(&options, &keep, &length, NULL), &err);
    assert_false(keep);
    assert_int_equal(at.calls, 0);
}

static void values_from_memory_may_have_any_size(void **state)
{
    (void)state;
    rks_schema *loose = NULL;
    assert_ok(rks_schema_parse("n:int64,m:float32[3,*],w:int8[*,*]", &loose, &err), &err);
    char bytes[64] = {0};
    rks_value values[3] = {{.data = bytes, .size = 3}, {.data = bytes, .size = 48}, {0}};
    const char *const lengths[] = {"n", "m", "w"};
    const uint32_t expected[] = {0, 4, 0};
    for (size_t i = 0; i < 3; i++) {
        rks_ingest_options options = {.length = lengths[i]};
        rks_selector *selector = NULL;
        bool keep;
        uint32_t length = 77;
        const void *key = NULL;
        size_t key_size;
        assert_ok(rks_selector_create(loose, &options, &selector, &err), &err);
        rks_status status =
            rks_selector_apply(selector, values, &keep, &length, &key, &key_size, &err);
        if (i == 0) {
            assert_fails(RKS_ERR_DATA, status);
            assert_contains(err.text, "column \"n\": 3 bytes are not a value of int64");
        } else {
            assert_ok(status, &err);
            assert_int_equal(length, expected[i]);
        }
        rks_selector_free(selector);
    }
    rks_ingest_options options = {.where = "n > 3"};
    rks_selector *selector = NULL;
    bool keep;
    uint32_t length;
    const void *key = NULL;
    size_t key_size;
    assert_ok(rks_selector_create(loose, &options, &selector, &err), &err);
    assert_fails(RKS_ERR_DATA,
                 rks_selector_apply(selector, values, &keep, &length, &key, &key_size, &err));
    rks_selector_free(selector);
    rks_schema_free(loose);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    long before = rks_memory_in_use();
    rks_ingest_options options = {.where = "s == 'abc' and n > 3 and raw != x", .key = "s"};
    for (long nth = 1;; nth++) {
        assert_true(nth < 100);
        rks_selector *selector = NULL;
        rks_memory_fail_at(nth);
        rks_status status = rks_selector_create(schema, &options, &selector, &err);
        rks_memory_fail_at(0);
        rks_selector_free(selector);
        assert_int_equal(rks_memory_in_use(), before);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_keeps_what_it_says),
        cmocka_unit_test(a_wrong_where_says_what_and_where),
        cmocka_unit_test(lengths_are_items_bytes_characters_or_values),
        cmocka_unit_test(lengths_out_of_the_limits_are_left_out),
        cmocka_unit_test(the_default_length_is_not_the_keys),
        cmocka_unit_test(a_length_with_nothing_variable_is_one),
        cmocka_unit_test(keys_are_bytes_or_digits),
        cmocka_unit_test(keys_have_1_to_511_bytes),
        cmocka_unit_test(index_columns_are_single_numbers),
        cmocka_unit_test(callbacks_decide_after_where),
        cmocka_unit_test(values_from_memory_may_have_any_size),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("ingest_select", tests, prepare, finish);
}
