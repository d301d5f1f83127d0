/* SPDX-License-Identifier: Apache-2.0
 *
 * test_json.c: arrays of JSON objects: where items begin and end, in any units; flattened rows. */
#include "scratch.h"

#include "base/error.h"
#include "base/memory.h"
#include "ingest/format.h"
#include "ingest/ingest.h"
#include "ingest/json_items.h"
#include "ingest/row.h"

static rks_error err;

static rks_status open_input(const char *path, const char *json_path, uint64_t unit_size,
                             rks_input **input)
{
    const rks_ingest_options options = {
        .format = "json", .unit_size = unit_size, .json_path = json_path};
    return rks_input_open(&path, 1, &options, input, &err);
}

/* The items of all units, a newline after each. */
static rks_status read_items(const char *path, const char *json_path, uint64_t unit_size,
                             rks_buffer *all)
{
    rks_input *input = NULL;
    rks_status status = open_input(path, json_path, unit_size, &input);
    for (size_t unit = 0; status == RKS_OK && unit < input->unit_count; unit++) {
        const rks_input_unit *at = &input->units[unit];
        rks_json_items items;
        rks_line item = {0};
        uint64_t position = 0, rows = 0, counted = 0;
        status = rks_json_items_open(&items, input->files, at->offset, at->size, 1 << 20, json_path,
                                     &err);
        while (status == RKS_OK) {
            status = rks_json_items_next(&items, &item, &position, &err);
            if (status != RKS_OK || item.text == NULL)
                break;
            assert_true(position >= at->offset && position < at->offset + at->size);
            assert_true(item.readable >= item.size + RKS_SIMDJSON_PADDING);
            assert_ok(rks_buffer_add(all, item.text, item.size, &err), &err);
            assert_ok(rks_buffer_add(all, "\n", 1, &err), &err);
            rows++;
        }
        rks_json_items_close(&items);
        if (status == RKS_OK) {
            assert_ok(rks_unit_count_rows(input, unit, &counted, &err), &err);
            assert_int_equal(counted, rows);
        }
    }
    rks_input_free(input);
    return status;
}

static void check_items(const char *text, const char *json_path, const char *expected)
{
    rks_buffer all = {0};
    assert_ok(read_items(scratch_file("a.json", text), json_path, 4096, &all), &err);
    assert_int_equal(all.size, strlen(expected));
    assert_memory_equal(all.data == NULL ? (const uint8_t *)"" : all.data, expected, all.size);
    rks_buffer_free(&all);
}

static void items_end_where_their_brackets_close(void **state)
{
    (void)state;
    check_items("\xef\xbb\xbf [ {\"a\": \"]}\\\"\"} ,\n{}\t]\n", NULL, "{\"a\": \"]}\\\"\"}\n{}\n");
    check_items("[1,\"x\\\\\",[[]],null ]", NULL, "1\n\"x\\\\\"\n[[]]\nnull\n");
    check_items("[]", NULL, "");
    check_items("{\"b\": {\"d\": [0]}, \"d\": [{}, {\"d\": 1}], \"c\": \"d\"}", "d",
                "{}\n{\"d\": 1}\n");
    check_items("{\"o\": {\"x\": \"}\", \"d\\u0061ta\": [1, 2], \"y\": []}, \"data\": 3}", "o.data",
                "1\n2\n");
}

static void an_array_that_is_malformed_is_named_by_its_byte(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"", NULL, NULL},
        {" ", NULL, "at byte 1: the file ends here"},
        {"[", NULL, "at byte 1: the file ends here"},
        {"[1,]", NULL, "at byte 3: expected an item"},
        {"[,1]", NULL, "at byte 1: expected an item"},
        {"[1 2]", NULL, "at byte 3: neither ',' nor ']' after an item"},
        {"[1}", NULL, "at byte 2: neither ',' nor ']'"},
        {"[{\"a\": \"]", NULL, "at byte 1: the file ends within a value"},
        {"[1] 2", NULL, "at byte 4: bytes after the array's end"},
        {"5", NULL, "at byte 0: not an array"},
        {"{\"d\": [1], \"d\": [2]}", "d", "this member appears twice"},
        {"{\"d\": [1]", "d", "the file ends here"},
        {"{\"d\" [1]}", "d", "no ':' after a name"},
        {"{d: [1]}", "d", "not a member's name"},
        {"{\"d\": {}}", "d", "not an array"},
        {"[1]", "d", "not an object, which json_path needs"},
        {"{}", "d", "there is no member \"d\"; the object has none"},
        {"{\"a\": 1, \"b\": [2]}", NULL, "its members that are arrays: b;"},
        {"{\"a\": 1}", NULL, "none of its members is an array"},
        {"{\"d\": [1]}", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q", "more than 16 names"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_buffer all = {0};
        rks_status status =
            read_items(scratch_file("m.json", cases[i][0]), cases[i][1], 4096, &all);
        rks_buffer_free(&all);
        assert_int_equal(status == RKS_OK, cases[i][2] == NULL);
        if (cases[i][2] != NULL)
            assert_contains(err.text, cases[i][2]);
    }
}

/* A value of JSON, of at most so many levels. */
static void add_value(rks_buffer *text, int levels)
{
    static const char *const SCALARS[] = {"1",     "-2.5e3",    "true",       "null",
                                          "\"]\"", "\"a\\\\\"", "\"\\\"[{\"", "\"\""};
    uint64_t kind = scratch_random(levels > 0 ? 3 : 1), count = scratch_random(4);
    if (kind == 0) {
        const char *scalar = SCALARS[scratch_random(8)];
        assert_ok(rks_buffer_add(text, scalar, strlen(scalar), &err), &err);
        return;
    }
    assert_ok(rks_buffer_add(text, kind == 1 ? "[" : "{", 1, &err), &err);
    for (uint64_t i = 0; i < count; i++) {
        if (kind == 2)
            assert_ok(rks_buffer_print(text, &err, "\"k%d]\": ", (int)i), &err);
        add_value(text, levels - 1);
        if (i + 1 < count)
            assert_ok(rks_buffer_add(text, " , ", scratch_random(2) ? 3 : 2, &err), &err);
    }
    assert_ok(rks_buffer_add(text, kind == 1 ? "]" : "}", 1, &err), &err);
}

static void units_hold_each_item_once_wherever_they_begin(void **state)
{
    (void)state;
    scratch_seed_print();
    for (int turn = 0; turn < 6; turn++) {
        rks_buffer text = {0}, expected = {0}, whole = {0}, cut = {0};
        assert_ok(rks_buffer_print(&text, &err, "{\"x\": [[]], \"data\": ["), &err);
        for (int i = 0; i < 4000; i++) {
            size_t begin = text.size;
            add_value(&text, 4);
            assert_ok(rks_buffer_add(&expected, text.data + begin, text.size - begin, &err), &err);
            assert_ok(rks_buffer_add(&expected, "\n", 1, &err), &err);
            assert_ok(rks_buffer_print(&text, &err, "%s", i + 1 < 4000 ? ",\n  " : "]}"), &err);
        }
        const char *path = scratch_bytes("r.json", text.data, text.size);
        assert_ok(read_items(path, "data", UINT64_C(1) << 30, &whole), &err);
        assert_ok(read_items(path, "data", 1 + scratch_random(20000), &cut), &err);
        assert_int_equal(whole.size, expected.size);
        assert_memory_equal(whole.data, expected.data, expected.size);
        assert_int_equal(cut.size, expected.size);
        assert_memory_equal(cut.data, expected.data, expected.size);
        rks_buffer_free(&text), rks_buffer_free(&expected);
        rks_buffer_free(&whole), rks_buffer_free(&cut);
    }
}

/* Cut short anywhere, and with any byte changed, it ends with an error or with items, and frees
 * all.
 */
static void damage_anywhere_ends_with_an_error_at_most(void **state)
{
    (void)state;
    static const char TEXT[] =
        "{\"i\": {\"x\": \"\\\"\"}, \"d\": [{\"a\": [1, \"]\"]}, 2], \"e\": 3}";
    for (size_t i = 0; i < sizeof(TEXT) - 1; i++)
        for (int byte = -1; byte < 8; byte++) {
            char text[sizeof(TEXT)];
            memcpy(text, TEXT, sizeof(TEXT));
            if (byte >= 0)
                text[i] = "\"\\[]{},:"[byte];
            rks_buffer all = {0};
            const char *path = scratch_bytes("d.json", text, byte < 0 ? i : sizeof(TEXT) - 1);
            rks_status status = read_items(path, "d", 8, &all);
            assert_true(status == RKS_OK || status == RKS_ERR_DATA);
            rks_buffer_free(&all);
        }
}

static void failing_allocations_fail_and_leave_nothing(void **state)
{
    (void)state;
    const char *path = scratch_file("f.json", "{\"a\": 1, \"d\": [{\"a\": 1}, {\"a\": 2}]}");
    size_t before = rks_memory_in_use();
    rks_status status = RKS_ERR_MEMORY;
    for (uint64_t n = 1; status != RKS_OK; n++) {
        rks_input *input = NULL;
        char *schema = NULL;
        assert_true(n < 1000);
        rks_memory_fail_at(n);
        status = open_input(path, "d", 8, &input);
        if (status == RKS_OK)
            status = rks_ingest_infer(input, 0, &schema, &err);
        rks_memory_fail_at(0);
        assert_true(status == RKS_OK || status == RKS_ERR_MEMORY);
        rks_free(schema);
        rks_input_free(input);
        assert_int_equal(rks_memory_in_use(), before);
    }
}

static void lines_are_told_from_one_value(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool items;
    } cases[] = {
        {"[{\"a\": 1}]", true},    {" \n[\n {", true},
        {"{\n \"data\": [", true}, {"{\"a\": [\n{", true},
        {"{\"a\": \"\n", false},   {"{\"a\": 1}\n{\"a\": 2}\n", false},
        {"{\"a\": 1}", false},     {"{\"a\": 1\n{\"a\"", false},
        {"[1, 2]", false},         {"[]", true}, /* an array without items */
        {" [ ]\n", true},          {"[]\n[]\n", false},
        {"text", false},           {"", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(
            rks_bytes_are_json_items((const uint8_t *)cases[i].text, strlen(cases[i].text)),
            cases[i].items);
}

static rks_row *parse_flat(const char *schema_text, const char *line, rks_schema **schema,
                           rks_schema_from from, rks_status *status)
{
    rks_row *row = NULL;
    assert_ok(rks_schema_parse(schema_text, schema, &err), &err);
    assert_ok(rks_row_create(*schema, from, &row, &err), &err);
    row->flatten = true;
    *status = rks_row_parse(row, (const uint8_t *)line, strlen(line), strlen(line), &err);
    return row;
}

static void flattened_objects_are_columns(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *line;
        rks_schema_from from;
        const char *error;
    } cases[] = {
        {"a.b:int64,a.c.d:str", "{\"a\": {\"c\": {\"d\": \"x\"}, \"b\": 1}}", RKS_SCHEMA_INFERRED,
         NULL},
        {"a.b:int64?", "{\"a\": null}", RKS_SCHEMA_INFERRED, NULL},
        {"a.b:int64?", "{\"a\": {}}", RKS_SCHEMA_INFERRED, NULL},
        {"a.b:int64?", "{\"c\": null}", RKS_SCHEMA_INFERRED, "column \"c\" is not in the schema"},
        {"a.b:int64", "{\"a.b\": 1, \"a\": {\"b\": 2}}", RKS_SCHEMA_INFERRED, "appears twice"},
        {"a:json", "{\"a\": {\"b\": 2}}", RKS_SCHEMA_GIVEN, NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rks_schema *schema = NULL;
        rks_status status;
        rks_row *row = parse_flat(cases[i].schema, cases[i].line, &schema, cases[i].from, &status);
        assert_int_equal(status == RKS_OK, cases[i].error == NULL);
        if (cases[i].error != NULL)
            assert_contains(err.text, cases[i].error);
        rks_row_free(row);
        rks_schema_free(schema);
    }
}

static void a_flattened_name_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char line[4096] = "";
    for (int i = 0; i < 100; i++)
        strcat(line, "{\"outer\":");
    strcat(line, "1");
    for (int i = 0; i < 100; i++)
        strcat(line, "}");
    rks_schema *schema = NULL;
    rks_status status;
    rks_row *row = parse_flat("a:int64?", line, &schema, RKS_SCHEMA_INFERRED, &status);
    assert_int_equal(status, RKS_ERR_DATA);
    assert_contains(err.text, "a column's name of more than 255 bytes");
    rks_row_free(row);
    rks_schema_free(schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_end_where_their_brackets_close),
        cmocka_unit_test(an_array_that_is_malformed_is_named_by_its_byte),
        cmocka_unit_test(units_hold_each_item_once_wherever_they_begin),
        cmocka_unit_test(damage_anywhere_ends_with_an_error_at_most),
        cmocka_unit_test(failing_allocations_fail_and_leave_nothing),
        cmocka_unit_test(lines_are_told_from_one_value),
        cmocka_unit_test(flattened_objects_are_columns),
        cmocka_unit_test(a_flattened_name_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_open, scratch_close);
}
