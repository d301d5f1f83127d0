/* SPDX-License-Identifier: Apache-2.0
 *
 * test_infer.c: schemas from rows, and their union. */
#include "scratch.h"

#include "base/memory.h"
#include "ingest/ingest.h"

static rks_error err;

static rks_status infer_file(const char *path, const char *format, uint64_t unit_size, size_t unit,
                             bool skip_bad, char **text)
{
    rks_ingest_options options = {.format = format, .unit_size = unit_size, .skip_bad = skip_bad};
    rks_input *input = NULL;
    rks_status status = rks_input_open(&path, 1, &options, &input, &err);
    if (status == RKS_OK)
        status = rks_ingest_infer(input, unit, text, &err);
    rks_input_free(input);
    return status;
}

static void rows_make_a_schema(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"{\"a\": 1, \"b\": \"x\"}\n", "{\"a\":\"int64\",\"b\":\"str\"}"},
        {"{\"a\": 1}\n{\"a\": 2.5}\n{\"a\": 3}", "{\"a\":\"float64\"}"},
        {"{\"a\": 18446744073709551615}\n{\"a\": 5}\n", "{\"a\":\"uint64\"}"},
        {"{\"a\": [1]}\n{\"a\": [5, 9223372036854775808]}\n{}\n", "{\"a\":\"uint64[*]?\"}"},
        {"{\"a\": [[1], [9223372036854775808]]}\n{\"a\": [[5]]}\n", "{\"a\":\"uint64[*,1]\"}"},
        {"{\"a\": 18446744073709551615}\n{\"a\": -5}\n{\"a\": 0.5}\n", "{\"a\":\"float64\"}"},
        {"{\"a\": NaN}\n{\"a\": 1}\n{\"b\": [-Infinity, 1]}\n",
         "{\"a\":\"float64?\",\"b\":\"float64[*]?\"}"},
        {"{\"a\": true}\n{\"a\": null}\n", "{\"a\":\"bool?\"}"},
        {"{\"a\": 1}\n{}\n", "{\"a\":\"int64?\"}"},
        {"{}\n{\"a\": 1}\n", "{\"a\":\"int64?\"}"},
        {"\n{\"a\": 1}\n  \n", "{\"a\":\"int64\"}"}, /* blank lines are no samples */
        {"{\"a\": [1, 2]}\n{\"a\": []}\n", "{\"a\":\"int64[*]\"}"},
        {"{\"a\": []}\n{\"a\": [0.5]}\n{\"a\": [1]}\n", "{\"a\":\"float64[*]\"}"},
        {"{\"a\": [1, 2.5]}\n", "{\"a\":\"float64[*]\"}"},
        {"{\"a\": [[1, 2], [3, 4]]}\n{\"a\": [[5, 6]]}\n", "{\"a\":\"int64[*,2]\"}"},
        {"{\"a\": [[1, 2]]}\n{\"a\": [[1.5]]}\n", "{\"a\":\"float64[*,*]\"}"},
        {"{\"a\": []}\n{\"a\": [[1]]}\n{\"a\": null}\n", "{\"a\":\"int64[*,1]?\"}"},
        {"{\"a\": [[1], [2, 3]]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [[1], 2]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [[[1]]]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [[]]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [\"x\"]}\n{\"a\": []}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [true]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": {}}\n{\"a\": null}\n{}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [1]}\n{\"a\": [1, \"x\"]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": [1]}\n{\"a\": [[1]]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": {}}\n{\"a\": [1]}\n", "{\"a\":\"json\"}"},
        {"{\"a\": null}\n{\"a\": []}\n", "{\"a\":\"json?\"}"}, /* nothing is known */
        {"{\"a\": null}\n{\"a\": \"x\"}\n", "{\"a\":\"str?\"}"},
        {"{\"q\\\"\\\\ \xc3\xa9\": 1}\n", "{\"q\\\"\\\\ \xc3\xa9\":\"int64\"}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = NULL;
        rks_schema *schema = NULL;
        const char *path = scratch_file("rows.jsonl", cases[i][0]);
        assert_ok(infer_file(path, NULL, 0, 0, false, &text), &err);
        assert_string_equal(text, cases[i][1]);
        assert_ok(rks_schema_parse(text, &schema, &err), &err);
        assert_string_equal(rks_schema_text(schema), text); /* canonical already */
        rks_schema_free(schema);
        rks_free(text);
    }
}

static void what_cannot_be_inferred_says_where(void **state)
{
    (void)state;
    const char *const cases[][2] = {
        {"{\"a\": 1}\n\n{\"a\": \"x\"}\n",
         "e.jsonl:3: column \"a\" is str here and int64 2 lines before; give schema"},
        {"{\"a\": null}\n{\"a\": true}\n{\"a\": 1}\n", ":3: column \"a\" is int64 here and bool"},
        {"{\"a\": [1]}\n{\"a\": 1}\n", "e.jsonl:2: column \"a\" is int64 here and int64[*] 1"},
        {"{\"a\": 1}\n{\"a\": {}}\n", "e.jsonl:2: column \"a\" is json here and int64 1"},
        {"{\"a\": [-5]}\n{\"a\": [18446744073709551615]}\n",
         "column \"a\" has -5 and 18446744073709551615, which no integer type holds together; give "
         "schema with json"},
        {"{\"a\": 1}\n{\"a\": 1\n", "e.jsonl:2: invalid JSON at byte"},
        {"{}\n{}\n", "objects without a member"},
        {"{\"\": 1}\n", "a name is 1 to 255 bytes"},
        {"{\"a\\nb\": 1}\n", "without control characters"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = NULL;
        const char *path = scratch_file("e.jsonl", cases[i][0]);
        assert_fails(RKS_ERR_DATA, infer_file(path, NULL, 0, 0, false, &text));
        assert_contains(err.text, cases[i][1]);
        assert_null(text);
    }
    char many[20000] = "{";
    for (int i = 0; i < 1025; i++)
        sprintf(many + strlen(many), "%s\"c%d\": 1", i == 0 ? "" : ",", i);
    strcat(many, "}");
    char *text = NULL;
    assert_fails(RKS_ERR_DATA, infer_file(scratch_file("e.jsonl", many), NULL, 0, 0, false, &text));
    assert_contains(err.text, "more than 1024 different names, at \"c1024\"");
}

static void a_later_unit_names_the_line_of_the_file(void **state)
{
    (void)state;
    char *text = NULL;
    const char *path = scratch_file("later.jsonl", "{\"a\":1}\n{\"a\":2}\n{\"a\":3}\nbad\n");
    assert_fails(RKS_ERR_DATA, infer_file(path, NULL, 8, 3, false, &text));
    assert_contains(err.text, "later.jsonl:4: invalid JSON");
    assert_ok(infer_file(path, NULL, 8, 3, true, &text), &err); /* skip_bad */
    assert_null(text);
    assert_ok(infer_file(path, NULL, 16, 1, true, &text), &err);
    assert_string_equal(text, "{\"a\":\"int64\"}");
    rks_free(text);
    assert_fails(RKS_ERR_ARGUMENT, infer_file(path, NULL, 8, 4, false, &text));
}

static void only_the_first_thousand_rows_are_looked_at(void **state)
{
    (void)state;
    static char many[64 * 1100];
    size_t size = 0;
    for (int i = 0; i < 1000; i++)
        size += (size_t)sprintf(many + size, "{\"a\": %d}\n", i);
    strcpy(many + size, "{\"a\": \"x\"}\n");
    char *text = NULL;
    assert_ok(infer_file(scratch_file("many.jsonl", many), NULL, 0, 0, false, &text), &err);
    assert_string_equal(text, "{\"a\":\"int64\"}");
    rks_free(text);
}

static void text_and_folders_have_fixed_schemas(void **state)
{
    (void)state;
    char *text = NULL;
    assert_ok(infer_file(scratch_file("t.txt", "\n"), NULL, 0, 0, false, &text), &err);
    assert_string_equal(text, "{\"text\":\"str\"}");
    rks_free(text);
    text = NULL;
    scratch_file("f/a", "plain");
    scratch_file("f/b", "");
    assert_ok(infer_file(scratch_path("f"), NULL, 0, 0, false, &text), &err);
    assert_string_equal(text, "{\"text\":\"str\",\"path\":\"str\"}");
    rks_free(text);
    text = NULL;
    scratch_bytes("f/c", "a\0b", 3);
    assert_ok(infer_file(scratch_path("f"), NULL, 0, 0, false, &text), &err);
    assert_string_equal(text, "{\"data\":\"bytes\",\"path\":\"str\"}");
    rks_free(text);
    scratch_file("f/c", "\xff");
    text = NULL;
    assert_ok(infer_file(scratch_path("f"), NULL, 0, 0, false, &text), &err);
    assert_string_equal(text, "{\"data\":\"bytes\",\"path\":\"str\"}");
    rks_free(text);
}

static void schemas_are_merged(void **state)
{
    (void)state;
    const char *const cases[][3] = {
        {"a:int64", "a:int64", "{\"a\":\"int64\"}"},
        {"a:int64", "a:float64?", "{\"a\":\"float64?\"}"},
        {"a:int64,b:str", "c:bool,a:int64", "{\"a\":\"int64\",\"b\":\"str?\",\"c\":\"bool?\"}"},
        {"a:json?", "a:str", "{\"a\":\"str?\"}"},
        {"a:int64[*]", "a:json?", "{\"a\":\"int64[*]?\"}"},
        {"a:json?", "a:json", "{\"a\":\"json\"}"},
        {"a:json?", "a:json?", "{\"a\":\"json?\"}"},
        {"a:json", "b:json?", "{\"a\":\"json\",\"b\":\"json?\"}"},
        {"a:int64[*]", "a:float64[*]", "{\"a\":\"float64[*]\"}"},
        {"a:int64[*,2]", "a:float64[*,3]", "{\"a\":\"float64[*,*]\"}"},
        {"a:int64[*,2]", "a:int64[*]", "{\"a\":\"json\"}"},
        {"a:int8", "a:int8", "{\"a\":\"int8\"}"},
        {"a:float32[*,3]", "a:float32[*,4]?", "{\"a\":\"float32[*,*]?\"}"},
        {"a:uint8[*,3,2]", "a:json?", "{\"a\":\"uint8[*,3,2]?\"}"},
        {"a:json", "a:int64[*]?", "{\"a\":\"json\"}"},
        {"data:bytes,path:str", "text:str,path:str", "{\"data\":\"bytes\",\"path\":\"str\"}"},
        {"text:str,path:str", "data:bytes,path:str", "{\"data\":\"bytes\",\"path\":\"str\"}"},
        {"text:str,path:str", "text:str,path:str", "{\"text\":\"str\",\"path\":\"str\"}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *merged = NULL;
        assert_ok(rks_ingest_merge(cases[i][0], cases[i][1], &merged, &err), &err);
        assert_string_equal(merged, cases[i][2]);
        rks_free(merged);
    }
    const char *const wrong[][3] = {
        {"a:int64", "a:str", "column \"a\" is str here and int64 in another part"},
        {"a:bool", "a:int64", "column \"a\" is int64 here and bool"},
        {"a:json", "a:str", "is str here and json"},
        {"a:int8", "a:int16", "is int16 here and int8"},
        {"a:int8[*]", "a:int8", "is int8 here and int8[*]"},
        {"a:int64[*]", "a:int64", "is int64 here and int64[*]"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *merged = NULL;
        assert_fails(RKS_ERR_DATA, rks_ingest_merge(wrong[i][0], wrong[i][1], &merged, &err));
        assert_contains(err.text, wrong[i][2]);
        assert_contains(err.text, "give schema");
        assert_null(merged);
    }
    char *merged = NULL;
    assert_fails(RKS_ERR_ARGUMENT, rks_ingest_merge("a:what", "a:int64", &merged, &err));
}

/* NULL for a conflict. */
static char *merge(const char *a, const char *b)
{
    char *merged = NULL;
    if (a == NULL || b == NULL)
        return NULL;
    rks_status status = rks_ingest_merge(a, b, &merged, &err);
    if (status != RKS_OK)
        assert_fails(RKS_ERR_DATA, status);
    return merged;
}

static void merging_does_not_depend_on_grouping(void **state)
{
    (void)state;
    const char *const types[] = {
        "a:bool",      "a:bool?",      "a:int64",        "a:int64?",     "a:float64",
        "a:str",       "a:json",       "a:json?",        "a:int64[*]",   "a:float64[*]",
        "a:int64[*]?", "a:int64[*,2]", "a:float64[*,3]", "a:int64[*,*]", "b:int64",
        "a:uint64",    "a:uint64[*]",
    };
    enum { COUNT = sizeof(types) / sizeof(types[0]) };
    for (size_t i = 0; i < COUNT * COUNT * COUNT; i++) {
        const char *a = types[i / COUNT / COUNT], *b = types[i / COUNT % COUNT],
                   *c = types[i % COUNT];
        char *ab = merge(a, b), *bc = merge(b, c);
        char *left = merge(ab, c), *right = merge(a, bc);
        if ((left == NULL) != (right == NULL) || (left != NULL && strcmp(left, right) != 0))
            fail_msg("%s, %s, %s: %s or %s", a, b, c, left, right);
        rks_free(ab);
        rks_free(bc);
        rks_free(left);
        rks_free(right);
    }
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const char *path = scratch_file("mem.jsonl", "{\"a\": 1, \"b\": [1]}\n{\"a\": null}\n");
    long before = rks_memory_in_use();
    for (long nth = 1;; nth++) {
        char *text = NULL, *merged = NULL;
        assert_true(nth < 1000);
        rks_memory_fail_at(nth);
        rks_status status = infer_file(path, NULL, 0, 0, false, &text);
        if (status == RKS_OK)
            status = rks_ingest_merge(text, "{\"c\": \"str\"}", &merged, &err);
        rks_memory_fail_at(0);
        rks_free(text);
        rks_free(merged);
        assert_int_equal(rks_memory_in_use(), before);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_make_a_schema),
        cmocka_unit_test(what_cannot_be_inferred_says_where),
        cmocka_unit_test(a_later_unit_names_the_line_of_the_file),
        cmocka_unit_test(only_the_first_thousand_rows_are_looked_at),
        cmocka_unit_test(text_and_folders_have_fixed_schemas),
        cmocka_unit_test(schemas_are_merged),
        cmocka_unit_test(merging_does_not_depend_on_grouping),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("ingest_infer", tests, scratch_open, scratch_close);
}
