/* SPDX-License-Identifier: Apache-2.0
 *
 * test_ingest.c: files through the real writer into a sealed shard, and back. */
#include "built.h"

#include <time.h>

#include <jansson.h>

/* Key, length and one str column of a row. */
static void check_row(const built *out, uint64_t row, const char *key, uint32_t length,
                      uint32_t column, const char *text, size_t size)
{
    rks_record_view view;
    rks_value values[8];
    uint8_t found[RKS_KEY_MAX];
    size_t found_size = 0;
    assert_ok(rks_shard_locate(out->shard, row, &view, &err), &err);
    assert_ok(rks_record_decode(rks_shard_schema(out->shard), view.payload, view.payload_size,
                                values, &err),
              &err);
    assert_int_equal(view.length, length);
    assert_int_equal(values[column].size, size);
    assert_memory_equal(values[column].data, text, size);
    assert_ok(rks_shard_key(out->shard, row, found, &found_size, &err), &err);
    assert_int_equal(found_size, strlen(key));
    assert_memory_equal(found, key, found_size);
}

static void jsonl_becomes_samples_with_derived_keys(void **state)
{
    (void)state;
    built out;
    rks_ingest_options options = {0};
    const char *path = scratch_file("a.jsonl", "\xef\xbb\xbf{\"t\": \"one\", \"n\": 1}\r\n"
                                               "\n"
                                               "  \r\n"
                                               "{\"n\": 2, \"t\": \"t\\u0000wo\"}\n"
                                               "{\"t\": \"\", \"n\": 3}");
    assert_ok(build(path, &options, &out), &err);
    assert_int_equal(out.samples, 3);
    assert_int_equal(out.seen, 5);
    assert_int_equal(out.filtered + out.bad, 0);
    check_row(&out, 0, "a.jsonl:0", 3, 0, "one", 3);
    check_row(&out, 1, "a.jsonl:3", 4, 0, "t\0wo", 4);
    check_row(&out, 2, "a.jsonl:4", 0, 0, "", 0);
    assert_true(out.ticks > 0);
    done(&out);
}

static void text_lines_become_samples_empty_ones_too(void **state)
{
    (void)state;
    built out;
    rks_ingest_options options = {0};
    assert_ok(build(scratch_file("b.txt", "\xef\xbb\xbf"
                                          "one\r\n\ntwo\r\n"),
                    &options, &out),
              &err);
    assert_int_equal(out.samples, 3);
    check_row(&out, 0, "b.txt:0", 3, 0, "one", 3);
    check_row(&out, 1, "b.txt:1", 0, 0, "", 0);
    check_row(&out, 2, "b.txt:2", 3, 0, "two", 3);
    done(&out);
    options.schema = "line:bytes";
    assert_ok(build(scratch_file("c.txt", "\xff\xfe\n"), &options, &out), &err);
    check_row(&out, 0, "c.txt:0", 2, 0, "\xff\xfe", 2);
    done(&out);
}

static void files_of_a_folder_become_samples_with_their_path_as_key(void **state)
{
    (void)state;
    built out;
    rks_ingest_options options = {0};
    scratch_file("folder/b/x.txt", "text x");
    scratch_file("folder/a.txt", "");
    assert_ok(build(scratch_path("folder"), &options, &out), &err);
    assert_int_equal(out.samples, 2);
    check_row(&out, 0, "a.txt", 0, 0, "", 0);
    check_row(&out, 1, "b/x.txt", 6, 0, "text x", 6);
    check_row(&out, 1, "b/x.txt", 6, 1, "b/x.txt", 7);
    done(&out);
    options.schema = "path:str,data:bytes";
    options.length = "data";
    options.unit_size = 1;
    assert_ok(build(scratch_path("folder"), &options, &out), &err);
    check_row(&out, 1, "b/x.txt", 6, 1, "text x", 6);
    done(&out);
}

static void units_of_any_size_give_the_same_rows(void **state)
{
    (void)state;
    char text[4096] = "", key[32], value[32];
    for (int i = 0; i < 60; i++)
        sprintf(text + strlen(text), i % 7 == 0 ? "\n" : "{\"t\": \"row %d\"}\n", i);
    const char *path = scratch_file("units.jsonl", text);
    for (uint64_t unit_size = 1; unit_size < 1200; unit_size += 1 + unit_size / 3) {
        built out;
        rks_ingest_options options = {.unit_size = unit_size, .schema = "t:str"};
        assert_ok(build(path, &options, &out), &err);
        assert_int_equal(out.seen, 60);
        uint64_t row = 0;
        for (int i = 0; i < 60; i++) {
            if (i % 7 == 0)
                continue;
            snprintf(key, sizeof(key), "units.jsonl:%d", i);
            snprintf(value, sizeof(value), "row %d", i);
            check_row(&out, row++, key, (uint32_t)strlen(value), 0, value, strlen(value));
        }
        assert_int_equal(out.samples, row);
        done(&out);
    }
}

static void malformed_rows_are_errors_naming_file_and_line(void **state)
{
    (void)state;
    const struct {
        const char *text, *schema, *key, *length, *expected;
        uint64_t max_sample;
    } cases[] = {
        {"{\"a\": 1}\n{\"a\"\n", "a:int64", NULL, NULL, "bad.jsonl:2: invalid JSON at byte", 0},
        {"{\"a\": 1}\n[1]\n", "a:int64", NULL, NULL, "bad.jsonl:2: a list where", 0},
        {"\n\n{\"a\": 300}", "a:int8", NULL, NULL, "bad.jsonl:3: column \"a\": 300 does not", 0},
        {"{\"a\": 1}\r\n{}\r\n", "a:int64", NULL, NULL, ":2: column \"a\" (int64) is missing", 0},
        {"{\"a\": \"\xff\"}\n", "a:str", NULL, NULL, "bad.jsonl:1: invalid JSON", 0},
        {"{\"a\": \"\"}\n", "a:str", "a", NULL, "bad.jsonl:1: column \"a\": the key is empty", 0},
        {"{\"a\": -1}\n", "a:int64", NULL, "a", "bad.jsonl:1: column \"a\": a length of -1", 0},
        {"{\"a\": \"0123456789012345\"}\n", "a:str", NULL, NULL, "bad.jsonl:1: 25 bytes, above",
         20},
        {"{\"a\": 1}\n{\"a\": \"x\"}\n", "a:int64", NULL, NULL, ":2: column \"a\": a string", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        built out;
        rks_ingest_options options = {.schema = cases[i].schema,
                                      .key = cases[i].key,
                                      .length = cases[i].length,
                                      .max_sample = cases[i].max_sample};
        const char *path = scratch_file("bad.jsonl", cases[i].text);
        for (options.unit_size = 0; options.unit_size < 10; options.unit_size += 9) {
            assert_fails(RKS_ERR_DATA, build(path, &options, &out));
            assert_contains(err.text, cases[i].expected);
            done(&out);
        }
    }
    built out;
    rks_ingest_options options = {0};
    assert_fails(RKS_ERR_DATA, build(scratch_file("bad.txt", "a\nb\xff\n"), &options, &out));
    assert_contains(err.text, "bad.txt:2: column \"text\": byte 1 is not UTF-8");
    done(&out);
    scratch_file("badf/x", "a\xff");
    options.schema = "path:str,text:str";
    assert_fails(RKS_ERR_DATA, build(scratch_path("badf"), &options, &out));
    assert_contains(err.text, "badf/x: column \"text\": byte 1 is not UTF-8");
    done(&out);
    options.max_sample = 1;
    assert_fails(RKS_ERR_DATA, build(scratch_path("badf"), &options, &out));
    assert_contains(err.text, "badf/x: 2 bytes, above max_sample (1)");
    done(&out);
}

static void a_member_that_inference_never_saw_is_malformed(void **state)
{
    (void)state;
    built out;
    rks_ingest_options options = {.unit_size = 9};
    const char *path = scratch_file("new.jsonl", "{\"a\": 1}\n{\"a\": 1, \"b\": 2}\n");
    assert_fails(RKS_ERR_DATA, build(path, &options, &out));
    assert_contains(err.text, "new.jsonl:2: column \"b\" is not in the schema inferred");
    done(&out);
    options.schema = "a:int64";
    assert_ok(build(path, &options, &out), &err);
    assert_int_equal(out.samples, 2);
    done(&out);
}

static void skip_bad_counts_and_lists(void **state)
{
    (void)state;
    built out;
    rks_ingest_options options = {.skip_bad = true, .where = "a > 1", .unit_size = 20};
    const char *path =
        scratch_file("skip.jsonl", "{\"a\": 1}\n{\"a\"\n\n{\"a\": 2}\n{\"a\": \"x\"}\n"
                                   "{\"a\": 3}\n{\"c\": 3}\n{\"a\": 4}\n");
    options.schema = "a:int64";
    assert_ok(build(path, &options, &out), &err);
    assert_int_equal(out.seen, 8);
    assert_int_equal(out.samples, 3);
    assert_int_equal(out.filtered, 1);
    assert_int_equal(out.bad, 3);
    rks_buffer_add(&out.bad_list, "", 1, NULL);
    const char *list = (const char *)out.bad_list.data;
    assert_contains(list, "skip.jsonl:2: invalid JSON");
    assert_contains(list, "skip.jsonl:5: column \"a\": a string does not fit int64\n");
    assert_contains(list, "skip.jsonl:7: column \"a\" (int64) is missing\n");
    done(&out);
    /* the list stays small, the count goes on */
    static char many[100000];
    memset(many, 'x', sizeof(many) - 1);
    for (size_t i = 1; i < sizeof(many); i += 20)
        many[i] = '\n';
    options.unit_size = 0;
    assert_ok(build(scratch_file("many.jsonl", many), &options, &out), &err);
    assert_int_equal(out.bad, 5001);
    assert_true(out.bad_list.size <= 64 << 10);
    assert_true(out.bad_list.size > 60 << 10);
    done(&out);
}

static int refuse(void *user, const rks_sample *sample, rks_error *error)
{
    (void)sample;
    if (++*(int *)user < 3)
        return *(int *)user % 2;
    rks_fail(error, RKS_ERR_DATA, 0, "the tokenizer is gone");
    return -1;
}

static void a_failing_callback_ends_the_build_in_spite_of_skip_bad(void **state)
{
    (void)state;
    built out;
    int calls = 0;
    rks_ingest_options options = {.skip_bad = true, .filter = refuse, .callback_user = &calls};
    assert_fails(RKS_ERR_DATA, build(scratch_file("cb.txt", "1\n2\n3\n4\n"), &options, &out));
    assert_contains(err.text, "cb.txt:3: filter: the tokenizer is gone");
    assert_int_equal(calls, 3);
    done(&out);
}

static rks_status comes_at_once(void *user, uint64_t *first_row, rks_error *error)
{
    (void)user, (void)error;
    *first_row = 0;
    return RKS_OK;
}

static bool has_not_come(void *user)
{
    (void)user;
    return false;
}

/* A unit whose turn comes at its bad row, and whose blocks the shard refuses then. */
static void a_turn_that_fails_at_a_bad_row_says_why(void **state)
{
    (void)state;
    static const char *const names[] = {"turn.csv", "turn.json", "turn.jsonl"};
    static const char *const texts[] = {"n\n1\nx\n", "[{\"n\": 1}, {\"n\": \"x\"}]",
                                        "{\"n\": 1}\n{\"n\": \"x\"}\n"};
    const rks_ingest_turn turn = {comes_at_once, has_not_come, NULL};
    for (int i = 0; i < 3; i++) {
        const char *path = scratch_file(names[i], texts[i]);
        rks_ingest_options chosen = {.schema = "n:int64", .skip_bad = true};
        rks_shard_options shard = {.derived_keys = true};
        rks_input *input = NULL;
        rks_schema *schema = NULL;
        rks_selector *selector = NULL;
        rks_shard_writer *writer = NULL;
        rks_buffer bad = {0};
        assert_ok(rks_input_open(&path, 1, &chosen, &input, &err), &err);
        assert_ok(rks_schema_parse(chosen.schema, &schema, &err), &err);
        assert_ok(rks_selector_create(schema, &chosen, &selector, &err), &err);
        shard.schema = schema;
        assert_ok(rks_shard_writer_open(scratch_dir, names[i], &shard, &writer, &err), &err);
        const rks_ingest_reading with = {input, schema, &chosen, selector, &bad};
        assert_ok(rks_ingest_unit(&with, 0, 0, writer, NULL, &turn, &err), &err);
        assert_fails(RKS_ERR_STATE, rks_ingest_unit(&with, 0, 0, writer, NULL, &turn, &err));
        assert_contains(err.text, "unit 0 is already in the shard");
        rks_shard_writer_close(writer);
        rks_buffer_free(&bad);
        rks_selector_free(selector);
        rks_schema_free(schema);
        rks_input_free(input);
    }
}

static void schemas_that_the_format_cannot_fill_are_refused(void **state)
{
    (void)state;
    built out;
    rks_ingest_options options = {.schema = "a:str,b:str"};
    assert_fails(RKS_ERR_ARGUMENT, build(scratch_file("s.txt", "1\n"), &options, &out));
    assert_contains(err.text, "lines of text make one column");
    options.schema = "a:int8";
    assert_fails(RKS_ERR_ARGUMENT, build(scratch_path("s.txt"), &options, &out));
    scratch_file("s/x", "1");
    options.schema = "path:str,other:str";
    assert_fails(RKS_ERR_ARGUMENT, build(scratch_path("s"), &options, &out));
    assert_contains(err.text, "a folder makes path:str and data:bytes or text:str");
    done(&out);
}

static int interrupt(void *user)
{
    return ++*(int *)user > 2;
}

static void interrupts_are_noticed(void **state)
{
    (void)state;
    built out;
    int asked = 0;
    rks_ingest_options options = {.unit_size = 64 << 20};
    char *text = malloc(5 << 20);
    memset(text, 'x', 5 << 20);
    for (size_t i = 99; i < 5 << 20; i += 100)
        text[i] = '\n';
    const char *path = scratch_bytes("long.txt", text, 5 << 20);
    free(text);
    rks_set_interrupt(interrupt, &asked);
    rks_status status = build(path, &options, &out);
    rks_set_interrupt(NULL, NULL);
    assert_fails(RKS_ERR_CANCELLED, status);
    done(&out);
    assert_ok(build(path, &options, &out), &err);
    assert_true(out.ticks >= 4 && out.ticks <= 6);
    assert_int_equal(out.last_tick, 5 << 20);
    done(&out);
}

static void real_questions_arrive_whole(void **state)
{
    (void)state;
    built out;
    char path[512];
    const char *shared = getenv("RKS_SHARED_DATA");
    snprintf(path, sizeof(path), "%s/gsm8k/train.jsonl",
             shared != NULL ? shared : RKS_SOURCE_ROOT "/../shared/data");
    if (access(path, R_OK) != 0)
        skip();
    rks_ingest_options options = {.unit_size = 1 << 20, .length = "chars:question"};
    struct timespec begin, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    assert_ok(build(path, &options, &out), &err);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    double seconds =
        (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    print_message("built at %.0f MB/s of this thread\n", 4.166206 / seconds);
    assert_int_equal(out.samples, 7473);
    assert_int_equal(rks_shard_count(out.shard), 7473);
    const rks_schema *schema = rks_shard_schema(out.shard);
    assert_string_equal(rks_schema_text(schema), "{\"question\":\"str\",\"answer\":\"str\"}");
    FILE *file = fopen(path, "r");
    char *line = NULL, key[64];
    size_t room = 0;
    ssize_t size;
    for (uint64_t row = 0; (size = getline(&line, &room, file)) > 0; row++) {
        json_t *json = json_loadb(line, (size_t)size, 0, NULL);
        const char *question = json_string_value(json_object_get(json, "question"));
        uint32_t characters = 0;
        for (const char *at = question; *at != '\0'; at++)
            characters += (*at & 0xc0) != 0x80;
        snprintf(key, sizeof(key), "train.jsonl:%llu", (unsigned long long)row);
        check_row(&out, row, key, characters, 0, question, strlen(question));
        const char *answer = json_string_value(json_object_get(json, "answer"));
        check_row(&out, row, key, characters, 1, answer, strlen(answer));
        json_decref(json);
    }
    free(line);
    fclose(file);
    done(&out);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const char *path =
        scratch_file("mem.jsonl", "{\"a\": [1, 2], \"s\": \"x\"}\nbad\n"
                                  "{\"a\": [], \"s\": \"y\", \"j\": {\"k\": 0.5}}\n");
    rks_ingest_options options = {.schema = "a:int16[*],s:str,j:json?",
                                  .skip_bad = true,
                                  .where = "s != 'z'",
                                  .unit_size = 30};
    long before = rks_memory_in_use();
    for (long nth = 1;; nth++) {
        built out;
        assert_true(nth < 2000);
        rks_memory_fail_at(nth);
        rks_status status = build(path, &options, &out);
        rks_memory_fail_at(0);
        done(&out);
        assert_int_equal(rks_memory_in_use(), before);
        if (status == RKS_OK)
            break;
        assert_fails(RKS_ERR_MEMORY, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jsonl_becomes_samples_with_derived_keys),
        cmocka_unit_test(text_lines_become_samples_empty_ones_too),
        cmocka_unit_test(files_of_a_folder_become_samples_with_their_path_as_key),
        cmocka_unit_test(units_of_any_size_give_the_same_rows),
        cmocka_unit_test(malformed_rows_are_errors_naming_file_and_line),
        cmocka_unit_test(a_member_that_inference_never_saw_is_malformed),
        cmocka_unit_test(skip_bad_counts_and_lists),
        cmocka_unit_test(a_failing_callback_ends_the_build_in_spite_of_skip_bad),
        cmocka_unit_test(a_turn_that_fails_at_a_bad_row_says_why),
        cmocka_unit_test(schemas_that_the_format_cannot_fill_are_refused),
        cmocka_unit_test(interrupts_are_noticed),
        cmocka_unit_test(real_questions_arrive_whole),
        cmocka_unit_test(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("ingest", tests, scratch_open, scratch_close);
}
