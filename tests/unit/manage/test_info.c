/* SPDX-License-Identifier: Apache-2.0
 *
 * test_info.c: the description of a dataset that is not opened. */
#include "unit/dataset/dataset_fixture.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "rankstore/manage.h"

enum { GENERATIONS = 5 };

static rks_schema *schema;

/* Commits `count` generations; from the fourth on, shards and units are in a list. */
static void commit(uint64_t count, const char *options)
{
    for (uint64_t number = 1; number <= count; number++) {
        fixture f;
        rks_dataset *base = NULL, *joined = NULL;
        good_fixture(&f, schema);
        f.dataset.build_id = (rks_digest){number, 77};
        f.dataset.build_options = (char *)options;
        snprintf(f.dataset.made_from, sizeof(f.dataset.made_from), "rule:%d", (int)number);
        for (size_t i = 0; i < 2; i++) {
            f.shards[i].id = (rks_digest){1000 * (i + 1) + number, number};
            snprintf(f.shards[i].name, sizeof(f.shards[i].name), "part-%d-%zu", (int)number, i);
        }
        if (number > 1) {
            assert_ok(rks_dataset_load(test_directory, &base, &err), &err);
            assert_ok(rks_dataset_join(base, &f.dataset, &joined, &err), &err);
            memcpy(joined->made_from, f.dataset.made_from, sizeof(joined->made_from));
        }
        assert_ok(rks_dataset_commit(test_directory, number == 1 ? &f.dataset : joined, &err),
                  &err);
        rks_dataset_free(base);
        rks_dataset_free(joined);
    }
}

static json_t *described(const char *directory)
{
    char *text = NULL;
    assert_ok(rks_dataset_info_json(directory, &text, &err), &err);
    json_t *info = json_loads(text, 0, NULL);
    assert_non_null(info);
    rks_release(text);
    return info;
}

static void expect_number(const json_t *info, const char *name, json_int_t expected)
{
    assert_true(json_is_integer(json_object_get(info, name)));
    assert_int_equal(json_integer_value(json_object_get(info, name)), expected);
}

static void expect_text(const json_t *info, const char *name, const char *expected)
{
    const char *text = json_string_value(json_object_get(info, name));
    assert_int_equal(text == NULL, expected == NULL);
    if (text != NULL)
        assert_string_equal(text, expected);
}

static void it_says_what_was_committed(void **state)
{
    (void)state;
    char older[sizeof(test_directory) + 4];
    rks_dataset *dataset = NULL;
    char id[RKS_DIGEST_TEXT];
    directory_begin();
    commit(GENERATIONS, "{\"where\": \"n > 3\"}");
    assert_ok(rks_dataset_load(test_directory, &dataset, &err), &err);
    assert_true(dataset->list_count > 0);
    rks_digest_format(dataset->id, id);
    rks_dataset_free(dataset);
    json_t *info = described(test_directory);
    expect_number(info, "schema_version", 1);
    expect_text(info, "directory", test_directory);
    expect_text(info, "dataset", id);
    expect_text(info, "keys", "derived");
    expect_text(info, "made_from", "rule:5");
    expect_number(info, "generation", GENERATIONS);
    expect_number(info, "samples", GENERATIONS * 11);
    expect_number(info, "bytes", GENERATIONS * 110);
    expect_number(info, "file_bytes", GENERATIONS * 17000);
    expect_number(info, "units", GENERATIONS * 4);
    expect_number(info, "filtered", GENERATIONS);
    expect_number(info, "bad", GENERATIONS * 2);
    expect_number(info, "duplicates", 0);
    expect_number(info, "sampled_out", 0);
    assert_null(json_object_get(info, "unit_size"));
    char *text = json_dumps(json_object_get(info, "schema"), JSON_COMPACT);
    assert_string_equal(text, rks_schema_text(schema));
    free(text);
    assert_int_equal(json_array_size(json_object_get(info, "index")), 1);
    expect_text(json_object_get(info, "build"), "where", "n > 3");
    json_decref(info);
    snprintf(older, sizeof(older), "%s@2", test_directory);
    info = described(older);
    expect_number(info, "generation", 2);
    expect_number(info, "samples", 22);
    expect_text(info, "directory", test_directory);
    json_decref(info);
    directory_end();
}

static void it_says_what_lengths_count(void **state)
{
    (void)state;
    static const struct {
        const char *options, *column, *words;
        json_int_t unit;
    } cases[] = {
        {"{}", "t", "bytes of t", 1},
        {"{\"key\": \"t\"}", "v", "items of v", 1},
        {"{\"length\": \"n\", \"length_unit\": 4}", "n", "the number in n / 4, rounded up", 4},
        {"{\"length\": \"chars:t\"}", "chars:t", "characters of t", 1},
        {"{\"length_fn\": true, \"length_unit\": 2}", NULL, "what a function said / 2, rounded up",
         2},
    };
    rks_schema *whole = schema;
    schema = NULL;
    assert_ok(rks_schema_parse("n:int64,t:str,v:int8[*]", &schema, &err), &err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        directory_begin();
        commit(1, cases[i].options);
        json_t *info = described(test_directory);
        expect_text(info, "length_column", cases[i].column);
        assert_non_null(json_object_get(info, "length_column"));
        expect_text(info, "length", cases[i].words);
        expect_number(info, "length_unit", cases[i].unit);
        json_decref(info);
        directory_end();
    }
    rks_schema_free(schema);
    schema = whole;
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    char *text = NULL, other[sizeof(test_directory) + 8];
    directory_begin();
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_info_json(test_directory, &text, &err));
    commit(2, "{}");
    snprintf(other, sizeof(other), "%s@7", test_directory);
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_info_json(other, &text, &err));
    snprintf(other, sizeof(other), "%s/none", test_directory);
    assert_fails(RKS_ERR_NOT_FOUND, rks_dataset_info_json(other, &text, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_dataset_info_json(NULL, &text, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_dataset_info_json(test_directory, NULL, &err));
    assert_null(text);
    directory_end();
}

/* Not durable: a replacement that is costs a millisecond each. */
static void write_file(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

/* Of dataset.json and of a list: each truncation, and each byte turned over. */
static void a_damaged_file_is_refused(void **state)
{
    (void)state;
    directory_begin();
    commit(GENERATIONS, "{}");
    rks_dataset *dataset = NULL;
    assert_ok(rks_dataset_load(test_directory, &dataset, &err), &err);
    char list[64];
    snprintf(list, sizeof(list), "%s", dataset->lists[0].name);
    rks_dataset_free(dataset);
    long before = rks_memory_in_use();
    const char *const names[] = {"dataset.json", list};
    for (size_t file = 0; file < 2; file++) {
        char path[sizeof(test_directory) + 80], *good = NULL, *text = NULL;
        size_t size = 0;
        snprintf(path, sizeof(path), "%s/%s", test_directory, names[file]);
        assert_ok(rks_file_load(path, 1 << 20, &good, &size, &err), &err);
        for (size_t at = 0; at < size; at++) {
            write_file(path, good, at);
            assert_int_not_equal(rks_dataset_info_json(test_directory, &text, &err), RKS_OK);
            assert_contains(err.text, names[file]);
        }
        for (size_t at = 0; at < size; at++) {
            good[at] ^= 0x40;
            write_file(path, good, size);
            good[at] ^= 0x40;
            assert_int_not_equal(rks_dataset_info_json(test_directory, &text, &err), RKS_OK);
        }
        assert_null(text);
        write_file(path, good, size);
        rks_free(good);
    }
    json_decref(described(test_directory));
    assert_int_equal(rks_memory_in_use(), before);
    directory_end();
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    directory_begin();
    commit(GENERATIONS, "{}");
    long before = rks_memory_in_use();
    rks_status status = RKS_ERR_MEMORY;
    for (long nth = 1; status != RKS_OK; nth++) {
        char *text = NULL;
        rks_memory_fail_at(nth);
        status = rks_dataset_info_json(test_directory, &text, &err);
        rks_memory_fail_at(0);
        if (status != RKS_OK) {
            assert_int_equal(status, RKS_ERR_MEMORY);
            assert_null(text);
        }
        rks_release(text);
        assert_int_equal(rks_memory_in_use(), before);
        assert_true(nth < 1000);
    }
    directory_end();
}

static int begin(void **state)
{
    (void)state;
    return rks_schema_parse("n:int64,x:bytes", &schema, &err);
}

static int end(void **state)
{
    (void)state;
    rks_schema_free(schema);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_was_committed),
        cmocka_unit_test(it_says_what_lengths_count),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(a_damaged_file_is_refused),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("info", tests, begin, end);
}
