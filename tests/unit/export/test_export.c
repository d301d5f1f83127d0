/* SPDX-License-Identifier: Apache-2.0
 *
 * test_export.c: names from hostile keys; a sample of every type in each format. */
#include "export/export.h"

#include "support/check.h"
#include "support/seed.h"

#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "ingest/job.h"
#include "ingest/row.h"

static rks_error err;

/* ---- names -------------------------------------------------------------------------------- */

static const char *name_of(const char *key, size_t size, bool dots, bool wide)
{
    static char text[2048];
    rks_buffer name = {0};
    assert_ok(rks_export_name(key, size, dots, wide, &name, &err), &err);
    assert_int_equal(strlen((const char *)name.data), name.size);
    snprintf(text, sizeof(text), "%s", (const char *)name.data);
    rks_buffer_free(&name);
    return text;
}

static void hostile_keys_become_names_that_stay_below(void **state)
{
    (void)state;
    assert_string_equal(name_of("a/b.txt:1", 9, false, false), "a/b%2Etxt:1");
    assert_string_equal(name_of("a/b.txt", 7, true, false), "a/b.txt");
    assert_string_equal(name_of("../x", 4, true, true), "%2E./x");
    assert_string_equal(name_of("a/../x", 6, true, true), "a/%2E./x");
    assert_string_equal(name_of(".hidden", 7, true, true), "%2Ehidden");
    assert_string_equal(name_of("/abs", 4, true, true), "%2Fabs");
    assert_string_equal(name_of("a//b/", 5, true, true), "a%2F%2Fb%2F");
    assert_string_equal(name_of("a\0b\n%", 5, true, true), "a%00b%0A%25");
    assert_string_equal(name_of("\xff", 1, true, true), "%FF");
    char deep[500];
    memset(deep, 'd', sizeof(deep));
    for (size_t i = 1; i < sizeof(deep); i += 2)
        deep[i] = '/';
    deep[sizeof(deep) - 1] = 'd';
    assert_true(strlen(name_of(deep, sizeof(deep), false, false)) <= 230);
    assert_string_equal(name_of("\xc3\xbc", 2, true, true), "\xc3\xbc");
    assert_string_equal(name_of("\xc3\xbc", 2, true, false), "%C3%BC");
}

/* Whatever the bytes: no empty part, no ".", no "..", short parts, and other keys other names. */
static void any_key_makes_a_good_name(void **state)
{
    (void)state;
    srand((unsigned)test_seed(0));
    for (int round = 0; round < 20000; round++) {
        char key[RKS_KEY_MAX], before[2048];
        size_t size = 1 + (size_t)rand() % (round % 2 == 0 ? 8 : sizeof(key));
        for (size_t i = 0; i < size; i++)
            key[i] = round % 3 == 0 ? (char)rand() : "./a\xc3\xa4%"[rand() % 6];
        bool dots = round % 5 == 0, wide = round % 7 == 0;
        snprintf(before, sizeof(before), "%s", name_of(key, size, dots, wide));
        for (const char *part = before;; part = strchr(part, '/') + 1) {
            size_t length = strcspn(part, "/");
            assert_true(length > 0 && length <= 200);
            assert_false(part[0] == '.');
            if (part[length] == '\0')
                break;
        }
        key[(size_t)rand() % size] ^= 1;
        assert_string_not_equal(before, name_of(key, size, dots, wide));
    }
}

/* ---- samples ------------------------------------------------------------------------------- */

static const char SCHEMA[] = "b:bool,i1:int8,i8:int64,u8:uint64,f2:float16,bf:bfloat16,f4:float32,"
                             "f8:float64,e4:float8_e4m3fn,e5:float8_e5m2,c:complex64,s:str,y:bytes,"
                             "j:json,v:int16[*],m:float32[2,*],n:int32?";
/* As the exporter must write it, down to the digits. */
static const char *const LINES[] = {
    "{\"__key__\":\"k\",\"b\":true,\"i1\":-128,\"i8\":-9223372036854775808,\"u8\":"
    "\"18446744073709551615\",\"f2\":0.099975586,\"bf\":1.0,\"f4\":0.1,\"f8\":0.1,\"e4\":448.0,"
    "\"e5\":\"-Infinity\",\"c\":[1.5,\"NaN\"],\"s\":\"a\\\"\\u0000\xc3\xbc\",\"y\":{\"base64\":"
    "\"AP8=\"},\"j\":{\"x\":[1,null]},\"v\":[1,-2,3],\"m\":[[1.0,2.0],[3.0,4.0]],\"n\":null}",
    "{\"__key__\":\"k\",\"b\":false,\"i1\":127,\"i8\":9223372036854775807,\"u8\":"
    "9223372036854775807,"
    "\"f2\":\"NaN\",\"bf\":\"NaN(ff81)\",\"f4\":3.4028235e+38,\"f8\":4.94065645841247e-324,\"e4\":"
    "\"NaN\","
    "\"e5\":\"NaN\",\"c\":[\"NaN(ffc00000)\",-0.0],\"s\":\"\",\"y\":{\"base64\":\"\"},\"j\":1.5,"
    "\"v\":[],"
    "\"m\":[[],[]],\"n\":-7}",
};

static rks_schema *schema_of(void)
{
    rks_schema *schema = NULL;
    assert_ok(rks_schema_parse(SCHEMA, &schema, &err), &err);
    return schema;
}

/* A line is read, written, and read again: text and values are the same. */
static void lines_of_every_type_come_back_exactly(void **state)
{
    (void)state;
    rks_schema *schema = schema_of();
    uint32_t columns[32], count = rks_schema_columns(schema);
    for (uint32_t i = 0; i < count; i++)
        columns[i] = i;
    rks_export_job job = {.schema = schema,
                          .columns = columns,
                          .column_count = count,
                          .keys_apart = true,
                          .key_column = -1};
    for (size_t l = 0; l < sizeof(LINES) / sizeof(LINES[0]); l++) {
        rks_row *row = NULL;
        rks_buffer text = {0};
        assert_ok(rks_row_create(schema, false, &row, &err), &err);
        assert_ok(
            rks_row_parse(row, (const uint8_t *)LINES[l], strlen(LINES[l]), strlen(LINES[l]), &err),
            &err);
        rks_sample sample = {.schema = schema, .values = row->values, .key = "k", .key_size = 1};
        assert_ok(rks_export_object(&job, &sample, &text, &err), &err);
        assert_ok(rks_buffer_add(&text, "", 1, &err), &err);
        assert_string_equal((const char *)text.data, LINES[l]);
        rks_buffer_free(&text);
        rks_row_free(row);
    }
    rks_schema_free(schema);
    assert_int_equal(rks_memory_in_use(), 0);
}

static void other_objects_and_words_are_no_bytes_and_numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"y\":{\"base64\":\"A\"},\"f\":1,\"u\":1}",
        "{\"y\":{\"base64\":1},\"f\":1,\"u\":1}",
        "{\"y\":{},\"f\":1,\"u\":1}",
        "{\"y\":{\"base64\":\"\",\"x\":1},\"f\":1,\"u\":1}",
        "{\"y\":\"\",\"f\":\"nan\",\"u\":1}",
        "{\"y\":\"\",\"f\":\"1\",\"u\":1}",
        "{\"y\":\"\",\"f\":\"NaN(7e)\",\"u\":1}",
        "{\"y\":\"\",\"f\":\"NaN(00ff)\",\"u\":1}",
        "{\"y\":\"\",\"f\":\"NaN(ff\",\"u\":1}",
        "{\"y\":\"\",\"f\":\"NaN(FF)\",\"u\":1}",
        "{\"y\":\"\",\"f\":\"NaN()\",\"u\":1}",
        "{\"y\":\"\",\"f\":1,\"u\":\"18446744073709551616\"}",
        "{\"y\":\"\",\"f\":1,\"u\":\"-1\"}",
        "{\"y\":\"\",\"f\":1,\"u\":\"\"}",
        "{\"y\":\"\",\"f\":\"Infinity\",\"u\":1}",
    };
    rks_schema *schema = NULL;
    rks_row *row = NULL;
    assert_ok(rks_schema_parse("y:bytes,f:float8_e4m3fn,u:uint64", &schema, &err), &err);
    assert_ok(rks_row_create(schema, false, &row, &err), &err);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_fails(RKS_ERR_DATA, rks_row_parse(row, (const uint8_t *)bad[i], strlen(bad[i]),
                                                 strlen(bad[i]), &err));
    rks_row_free(row);
    rks_schema_free(schema);
}

/* ---- what is refused, and what is counted -------------------------------------------------- */

static rks_status add_text(const char *type, const char *text, rks_export_format format,
                           uint64_t *respelled, rks_buffer *line)
{
    rks_schema *schema = NULL;
    uint32_t column = 0;
    rks_value value = rks_blob_value(text, text == NULL ? 0 : strlen(text));
    assert_ok(rks_schema_parse(type, &schema, &err), &err);
    rks_export_job job = {.format = format,
                          .schema = schema,
                          .columns = &column,
                          .column_count = 1,
                          .key_column = -1,
                          .respelled = respelled};
    rks_sample sample = {.schema = schema, .values = &value, .key = "k", .key_size = 1};
    rks_status status = rks_export_object(&job, &sample, line, &err);
    rks_schema_free(schema);
    return status;
}

static void json_is_checked_and_what_is_spelled_anew_is_counted(void **state)
{
    (void)state;
    rks_buffer line = {0};
    uint64_t respelled = 0;
    assert_ok(add_text("j:json", "{\n\t\"a\": 1e2 }", RKS_EXPORT_JSONL, &respelled, &line), &err);
    assert_ok(add_text("j:json", "[1]", RKS_EXPORT_JSONL, &respelled, &line), &err);
    assert_ok(add_text("j:json", "null", RKS_EXPORT_JSONL, &respelled, &line), &err);
    assert_ok(add_text("j:json?", NULL, RKS_EXPORT_JSONL, &respelled, &line), &err);
    assert_ok(rks_buffer_add(&line, "", 1, &err), &err);
    assert_string_equal((char *)line.data,
                        "{\"j\":{\"a\":100.0}}{\"j\":[1]}{\"j\":null}{\"j\":null}");
    assert_int_equal(respelled, 1);
    static const char *const bad[] = {"", "{", "1 2", "nul", "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_fails(RKS_ERR_DATA, add_text("j:json", bad[i], RKS_EXPORT_JSONL, &respelled, &line));
        assert_non_null(strstr(err.text, "column \"j\""));
    }
    assert_fails(RKS_ERR_DATA, add_text("j:json?", "null", RKS_EXPORT_JSONL, NULL, &line));
    assert_non_null(strstr(err.text, "missing"));
    rks_buffer_free(&line);
    assert_int_equal(rks_memory_in_use(), 0);
}

/* ---- each format, with each allocation failing ---------------------------------------------- */

static void remove_tree(const char *path)
{
    char command[200];
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static rks_status write_one(rks_export_format format, const char *path, const rks_schema *schema,
                            const rks_sample *sample)
{
    uint32_t columns[32], count = rks_schema_columns(schema);
    for (uint32_t i = 0; i < count; i++)
        columns[i] = i;
    rks_export_job job = {.format = format,
                          .path = path,
                          .schema = schema,
                          .columns = columns,
                          .column_count = count,
                          .keys_apart = true,
                          .key_column = -1};
    rks_exporter *exporter = NULL;
    rks_status status = rks_exporter_open(&job, &exporter, &err);
    if (status == RKS_OK)
        status = rks_exporter_add(exporter, sample, &err);
    if (status == RKS_OK)
        status = rks_exporter_finish(exporter, &err);
    rks_exporter_close(exporter);
    return status;
}

static void each_failing_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    char path[64] = "/tmp/rks-export-XXXXXX", target[80];
    assert_non_null(mkdtemp(path));
    snprintf(target, sizeof(target), "%s/t", path);
    rks_schema *schema = schema_of();
    rks_row *row = NULL;
    assert_ok(rks_row_create(schema, false, &row, &err), &err);
    assert_ok(
        rks_row_parse(row, (const uint8_t *)LINES[0], strlen(LINES[0]), strlen(LINES[0]), &err),
        &err);
    rks_sample sample = {.schema = schema, .values = row->values, .key = "k", .key_size = 1};
    long before = rks_memory_in_use();
    for (int format = RKS_EXPORT_JSONL; format <= RKS_EXPORT_LMDB; format++) {
        rks_status status = RKS_ERR_MEMORY;
        long nth = 1;
        for (; status != RKS_OK && nth < 500; nth++) {
            rks_memory_fail_at(nth);
            status = write_one((rks_export_format)format, target, schema, &sample);
            rks_memory_fail_at(0);
            assert_true(status == RKS_OK || status == RKS_ERR_MEMORY || status == RKS_ERR_IO);
            assert_int_equal(rks_memory_in_use(), before);
            remove_tree(target);
        }
        assert_true(status == RKS_OK && nth > 3);
    }
    rks_row_free(row);
    rks_schema_free(schema);
    remove_tree(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_keys_become_names_that_stay_below),
        cmocka_unit_test(any_key_makes_a_good_name),
        cmocka_unit_test(lines_of_every_type_come_back_exactly),
        cmocka_unit_test(other_objects_and_words_are_no_bytes_and_numbers),
        cmocka_unit_test(json_is_checked_and_what_is_spelled_anew_is_counted),
        cmocka_unit_test(each_failing_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests_name("export", tests, NULL, NULL);
}
