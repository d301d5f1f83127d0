/* SPDX-License-Identifier: Apache-2.0
 *
 * test_item_count.c: rules of `count`: how they are read, which schemas they fit, and what they
 * count. */
#include "support/check.h"

#include "base/error.h"
#include "base/memory.h"
#include "ingest/item_count.h"
#include "ingest/row.h"

static rks_error err;

static const char ROWS[] =
    "{\"labels\":\"int32[*]\",\"mel\":\"float16[2,*]\",\"big\":\"uint64[*]\",\"ok\":\"bool[*]\","
    "\"n\":\"int8\",\"half\":\"bfloat16[*]\",\"gone\":\"int64[*]?\",\"s\":\"str\",\"j\":\"json\","
    "\"z\":\"complex64\",\"two words\":\"float64[*]\"}";

static const char ROW[] =
    "{\"labels\": [-100, 5, -100, 7, 0], \"mel\": [[1, 2, 3], [4, 5, 0.5]], "
    "\"big\": [18446744073709551615, 9007199254740993, 9007199254740992], "
    "\"ok\": [true, false, true], \"n\": -3, \"half\": [0.5, 1, 2], \"s\": \"x\", \"j\": [1], "
    "\"z\": [1, 2], \"two words\": [0.1, -0.0]}";

static rks_schema *schema;
static rks_row *row;

static int prepare(void **state)
{
    (void)state;
    return rks_schema_parse(ROWS, &schema, &err) != RKS_OK ||
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

static rks_status compile(const char *const *rules, size_t count, rks_schema **whole,
                          rks_item_counts **counts)
{
    rks_status status = rks_item_counts_schema(schema, rules, count, whole, &err);
    return status == RKS_OK ? rks_item_counts_create(*whole, rules, count, counts, &err) : status;
}

static int64_t count(const char *rule)
{
    rks_schema *whole = NULL;
    rks_item_counts *counts = NULL;
    assert_ok(compile(&rule, 1, &whole, &counts), &err);
    uint32_t columns = rks_schema_columns(schema);
    assert_string_equal(rks_schema_text(rks_item_counts_rows(counts)), rks_schema_text(schema));
    assert_int_equal(rks_schema_columns(whole), columns + 1);
    const rks_value *values = rks_item_counts_apply(counts, row->values);
    int64_t found;
    assert_int_equal(values[columns].size, sizeof(found));
    memcpy(&found, values[columns].data, sizeof(found));
    assert_memory_equal(values, row->values, columns * sizeof(*values));
    rks_item_counts_free(counts);
    rks_schema_free(whole);
    return found;
}

static void a_rule_counts_the_items_that_hold(void **state)
{
    (void)state;
    const struct {
        const char *rule;
        int64_t found;
    } cases[] = {
        {"c = labels != -100", 3},
        {"c=labels==-100", 2},
        {"c = labels < 0.5", 3},
        {"c = labels <= 5", 4},
        {"c = labels > 5", 1},
        {"c = labels >= 5", 2},
        {"c = labels < 1e300", 5},
        {"c = mel > 1", 4},                /* of all dimensions */
        {"c = big > 9007199254740992", 2}, /* exactly: as doubles two are equal */
        {"c = big == 18446744073709551615", 1},
        {"c = ok == 1", 2},
        {"c = n < 0", 1}, /* a number is one item */
        {"c = n > 0", 0},
        {"c = half >= 1", 2},
        {"c = gone != 0", 0}, /* a missing value has no items */
        {"'a name' = 'two words' > 0", 1},
        {"\"a\\\"b\" = \"two words\" == 0", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t found = count(cases[i].rule);
        if (found != cases[i].found)
            fail_msg("%s: %d", cases[i].rule, (int)found);
    }
}

static void rules_that_cannot_be_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *rule, *says;
    } cases[] = {
        {"", "count: a name expected at 1, not \"\""},
        {"c", "count: = expected at 2"},
        {"c == labels > 1", "count: = expected at 3"},
        {"c = ", "count: a column expected at 5"},
        {"c = labels", "count: one of == != < <= > >= expected at 11"},
        {"c = labels = 1", "count: one of == != < <= > >= expected at 12"},
        {"c = labels > ", "count: a number expected at 14"},
        {"c = labels > x", "count: a number expected at 14, not \"x\"; a rule is NAME = COLUMN"},
        {"c = labels > '1'", "count: a number expected at 14"},
        {"c = labels > null", "count: a number expected at 14, not \"null\""},
        {"c = labels > nan", "count: a number expected at 14, not \"nan\""},
        {"c = labels > 99999999999999999999", "count: a number expected at 14"},
        {"c = labels > 1 and n > 1", "count: nothing expected at 16, not \"and n > 1\""},
        {"c = 'labels > 1", "count: the quote at 5 has no end"},
        {"c = label > 1", "count: no column \"label\"; nearest: \"labels\""},
        {"c = c > 1", "count: no column \"c\""}, /* nothing counts a count */
        {"c = s != 1", "count: \"c\" counts numbers of \"s\", which is str"},
        {"c = j != 1", "count: \"c\" counts numbers of \"j\", which is json"},
        {"c = z != 1", "count: \"c\" counts numbers of \"z\", which is complex64"},
        {"n = labels > 1", "column \"n\" appears twice"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_schema *whole = NULL;
        rks_item_counts *counts = NULL;
        assert_fails(RKS_ERR_ARGUMENT, compile(&cases[i].rule, 1, &whole, &counts));
        if (strstr(err.text, cases[i].says) == NULL)
            fail_msg("%s: %s", cases[i].rule, err.text);
        rks_schema_free(whole);
    }
}

static void several_rules_keep_their_order(void **state)
{
    (void)state;
    const char *const rules[] = {"b = labels > 0", "a = ok == 0"};
    rks_schema *whole = NULL;
    rks_item_counts *counts = NULL;
    assert_ok(compile(rules, 2, &whole, &counts), &err);
    uint32_t columns = rks_schema_columns(schema);
    assert_string_equal(rks_schema_name(whole, columns), "b");
    assert_string_equal(rks_schema_name(whole, columns + 1), "a");
    const rks_value *values = rks_item_counts_apply(counts, row->values);
    assert_int_equal(*(const int64_t *)values[columns].data, 2);
    assert_int_equal(*(const int64_t *)values[columns + 1].data, 1);
    rks_item_counts_free(counts);
    const char *const turned[] = {rules[1], rules[0]};
    assert_fails(RKS_ERR_ARGUMENT, rks_item_counts_create(whole, turned, 2, &counts, &err));
    assert_contains(err.text, "count: \"a\" is not at its place in the schema");
    assert_fails(RKS_ERR_ARGUMENT, rks_item_counts_create(schema, rules, 2, &counts, &err));
    assert_contains(err.text, "count: the dataset has no column \"b\", and an append adds none");
    rks_schema_free(whole);
}

static void source_of(const char *text, bool inferred, rks_status wanted, const char *says)
{
    const char *const rules[] = {"c = labels > 0"};
    rks_schema *given = NULL, *source = NULL;
    assert_ok(rks_schema_parse(text, &given, &err), &err);
    rks_status status = rks_item_counts_source(given, rules, 1, inferred, &source, &err);
    assert_int_equal(status, wanted);
    assert_contains(status == RKS_OK ? rks_schema_text(source) : err.text, says);
    rks_schema_free(source);
    rks_schema_free(given);
}

static void rows_do_not_have_the_counts(void **state)
{
    (void)state;
    source_of("c:int64,labels:int32[*]", false, RKS_OK, "{\"labels\":\"int32[*]\"}");
    source_of("labels:int32[*]", true, RKS_OK, "{\"labels\":\"int32[*]\"}");
    source_of("c:int64,labels:int32[*]", true, RKS_ERR_ARGUMENT,
              "count: the samples have a column \"c\" already; choose another name");
    source_of("c:int32,labels:int32[*]", false, RKS_ERR_ARGUMENT,
              "count: \"c\" is int32 in the schema; a count is int64");
    source_of("c:int64", false, RKS_ERR_ARGUMENT, "no columns");
}

static void rules_are_equal_however_they_are_written(void **state)
{
    (void)state;
    const char *const plain[] = {"c = labels != -100", "d = n > 1.0"};
    const char *const quoted[] = {"\"c\"='labels'   !=-100 ", "d = n > 1"};
    const char *const other[] = {"c = labels != -100", "d = n >= 1"};
    const char *const wrong[] = {"c"};
    bool equal = false;
    assert_ok(rks_item_counts_equal(plain, 2, quoted, 2, &equal, &err), &err);
    assert_true(equal);
    assert_ok(rks_item_counts_equal(plain, 2, other, 2, &equal, &err), &err);
    assert_false(equal);
    assert_ok(rks_item_counts_equal(plain, 2, plain, 1, &equal, &err), &err);
    assert_false(equal);
    assert_fails(RKS_ERR_ARGUMENT, rks_item_counts_equal(plain, 2, wrong, 1, &equal, &err));
    assert_false(equal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_counts_the_items_that_hold),
        cmocka_unit_test(rules_that_cannot_be_are_refused),
        cmocka_unit_test(several_rules_keep_their_order),
        cmocka_unit_test(rows_do_not_have_the_counts),
        cmocka_unit_test(rules_are_equal_however_they_are_written),
    };
    return cmocka_run_group_tests_name("ingest_item_count", tests, prepare, finish);
}
