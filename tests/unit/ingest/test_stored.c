/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stored.c: objects of a store: patterns, listings, and reading by ranges. The helper is the
 * toy of unit/home. */
#include <inttypes.h>
#include <pthread.h>

#include "base/memory.h"
#include "ingest/ingest.h"
#include "ingest/stored_range.h"
#include "scratch.h"

enum { SIZE = 21 << 20, SOURCE = 3 };

static rks_error err;
static rks_stores *stores;
static uint8_t *content;

/* ---- names ----------------------------------------------------------------------------------- */

static void patterns_match_as_paths_do(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"a/*.jsonl", "a/b.jsonl", true},
        {"a/*.jsonl", "a/b.json", false},
        {"a/*.jsonl", "a/c/b.jsonl", false},
        {"a/*.jsonl", "a/.b.jsonl", false},
        {"*", "a", true},
        {"*", "a/b", false},
        {"a[0-3]/x", "a2/x", true},
        {"a[0-3]/x", "a4/x", false},
        {"**", "a", true},
        {"**", "a/b/c", true},
        {"a/**", "a/b/c", true},
        {"a/**", "ab/c", false},
        {"**/x", "x", true},
        {"**/x", "a/b/x", true},
        {"**/x", "a/b/xx", false},
        {"**/x", "a/.b/x", false},
        {"a/**/x.tar", "a/x.tar", true},
        {"a/**/x.tar", "a/b/c/x.tar", true},
        {"a/**/c/*.t", "a/c/c/c/1.t", true},
        {"a/**/c/*.t", "a/c/b/1.t", false},
        {"**/a/**/b", "x/a/y/z/b", true},
        {"**/a/**/b", "x/y/b", false},
        {"a/*/c", "a/b/c", true},
        {"a/*/c", "a/b/b/c", false},
        {"a//b", "a//b", true},
        {"", "", true},
        {"a", "", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (rks_stored_matches(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("%s and %s", cases[i].pattern, cases[i].name);
}

static void many_marks_end_soon(void **state)
{
    (void)state;
    char pattern[700] = "", name[700] = "";
    for (int i = 0; i < 100; i++) {
        strcat(pattern, "**/a/");
        strcat(name, "a/a/a/");
    }
    strcat(pattern, "b");
    strcat(name, "c");
    assert_false(rks_stored_matches(pattern, name));
}

static void the_plain_part_ends_with_a_folder(void **state)
{
    (void)state;
    assert_int_equal(rks_stored_plain_part("a/b/*.x"), 4);
    assert_int_equal(rks_stored_plain_part("a/b[12]/c"), 2);
    assert_int_equal(rks_stored_plain_part("*.x"), 0);
    assert_int_equal(rks_stored_plain_part("a/b.x"), 5);
}

/* ---- listings -------------------------------------------------------------------------------- */

static const rks_stored_root *root_of(const char *url)
{
    rks_stored_root *root;
    const char *name;
    assert_ok(rks_stores_root(stores, url, &root, &name, &err), &err);
    return root;
}

static rks_status recall(const char *listing, const char *url, rks_found_list *list, bool *folder)
{
    return rks_stored_recall(listing, url, root_of(url), SOURCE, list, folder, &err);
}

static void what_one_rank_has_noted_the_others_recall(void **state)
{
    (void)state;
    static const char URL[] = "s3://good/in/*", OTHER[] = "s3://good/in/*.gz";
    static const char *const objects[][2] = {{"in/a b.jsonl", "a b.jsonl"}, {"in/x/c", "in/x/c"}};
    rks_found_list list = {0}, same = {0};
    bool folder = false;
    for (int i = 0; i < 2; i++) {
        const rks_input_file file = {.path = rks_format(NULL, "s3://good/%s", objects[i][0]),
                                     .name = rks_strdup(objects[i][1], NULL),
                                     .size = UINT64_MAX - (uint64_t)i,
                                     .store = &root_of(URL)->store,
                                     .version = rks_strdup("\"v-1\"", NULL)};
        assert_ok(rks_found_add(&list, 0, &file, &err), &err);
    }
    assert_ok(rks_stored_note(stores, OTHER, false, 0, &list, 2, &err), &err);
    assert_ok(rks_stored_note(stores, URL, true, 7, &list, 0, &err), &err);
    char *text = rks_format(NULL, "format jsonl\n%.*s", (int)stores->noted.size,
                            (const char *)stores->noted.data);
    assert_ok(recall(text, URL, &same, &folder), &err);
    assert_true(folder);
    assert_int_equal(same.not_read.hidden, 7);
    assert_int_equal(same.count, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(same.found[i].file.path, list.found[i].file.path);
        assert_string_equal(same.found[i].file.name, list.found[i].file.name);
        assert_string_equal(same.found[i].file.version, list.found[i].file.version);
        assert_true(same.found[i].file.size == list.found[i].file.size);
        assert_int_equal(same.found[i].source, SOURCE);
    }
    assert_ok(recall(text, OTHER, &same, &folder), &err);
    assert_false(folder);
    assert_int_equal(same.count, 2);
    char name[8];
    assert_true(rks_listing_format(text, name, sizeof(name)));
    assert_string_equal(name, "jsonl");
    assert_false(rks_listing_format(text, name, 5));
    rks_free(text);
    rks_found_list_free(&list);
    rks_found_list_free(&same);
}

static void what_is_no_listing_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "format jsonl\n",
                                      "source 0 0 s3://good/b\n",
                                      "source 0 s3://good/a\n",
                                      "source 0 0 s3://good/ab\n",
                                      "source 0 0 s3://good/a\nx\n",
                                      "source 0 0 s3://good/a\n1 v\n",
                                      "source 0 0 s3://good/a\n1 v 0 \n",
                                      "source 0 0 s3://good/a\n1 v 1 a\n",
                                      "source 0 0 s3://good/a\n-1 v 0 a\n",
                                      "source 0 0 s3://good/a\n1  0 a\n",
                                      "source 0 0 s3://good/a\n1 v 0"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        rks_found_list list = {0};
        bool folder = false;
        if (recall(bad[i], "s3://good/a", &list, &folder) != RKS_ERR_ARGUMENT)
            fail_msg("'%s' was accepted", bad[i]);
        rks_found_list_free(&list);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The object `name`, in its version of now, in a store whose helper is of a kind. */
static rks_input_file object_of(const char *kind, const char *name)
{
    static char path[64], version[64];
    struct stat info;
    assert_int_equal(stat(scratch_path(name), &info), 0);
    snprintf(path, sizeof(path), "s3://%s/%s", kind, name);
    snprintf(version, sizeof(version), "\"%" PRIu64 "-%ld\"", (uint64_t)info.st_size,
             (long)info.st_mtim.tv_nsec);
    return (rks_input_file){.path = path,
                            .name = path,
                            .size = (uint64_t)info.st_size,
                            .store = &root_of(path)->store,
                            .version = version};
}

static void check_range(const rks_input_file *file, rks_input_handle *handle, uint64_t first,
                        size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    assert_ok(rks_input_file_read_all(file, handle, first, bytes, size, &err), &err);
    assert_memory_equal(bytes, content + first, size);
    free(bytes);
}

static void bytes_come_in_any_order(void **state)
{
    (void)state;
    const rks_input_file file = object_of("good", "a");
    rks_input_handle *handle = NULL;
    assert_ok(rks_input_file_open(&file, &handle, &err), &err);
    for (uint64_t at = 0; at < SIZE;) { /* from start to end */
        size_t size = 1 + scratch_random(1 << 20);
        size = SIZE - at < size ? (size_t)(SIZE - at) : size;
        check_range(&file, handle, at, size);
        at += size;
    }
    for (int i = 0; i < 40; i++) {
        uint64_t at = scratch_random(SIZE - 1);
        uint64_t size = 1 + scratch_random(SIZE - at < 100000 ? SIZE - at : 100000);
        check_range(&file, handle, at, (size_t)size);
    }
    uint8_t byte;
    size_t got;
    assert_int_equal(rks_input_file_read(&file, handle, SIZE, &byte, 1, &got, &err), RKS_ERR_DATA);
    rks_input_file_close(handle);
}

static void reading_may_go_on_after_its_known_end(void **state)
{
    (void)state;
    const rks_input_file file = object_of("good", "a");
    static const uint64_t ends[] = {0, 1, 100000, 5 << 20, 20 << 20, UINT64_MAX};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
        rks_input_handle *handle = NULL;
        assert_ok(rks_input_file_open(&file, &handle, &err), &err);
        rks_input_file_until(handle, ends[i]);
        check_range(&file, handle, 70000, 100000);
        check_range(&file, handle, 170000, 9 << 20);
        rks_input_file_close(handle); /* also while bytes are sent ahead */
    }
}

static void *read_in_a_thread(void *user)
{
    const rks_input_file *file = user;
    rks_input_handle *handle = NULL;
    rks_error why = {0};
    uint8_t *bytes = malloc(SIZE);
    bool good = rks_input_file_open(file, &handle, &why) == RKS_OK &&
                rks_input_file_read_all(file, handle, 0, bytes, SIZE, &why) == RKS_OK &&
                memcmp(bytes, content, SIZE) == 0;
    rks_input_file_close(handle);
    free(bytes);
    return good ? NULL : user;
}

static void readers_share_the_memory_that_they_may_use(void **state)
{
    (void)state;
    const rks_input_file file = object_of("good", "a");
    rks_range_drop_kept(stores);
    const int64_t left = stores->left;
    stores->reads_once = true;
    pthread_t threads[4];
    void *failed;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_a_thread, (void *)&file), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    assert_true(stores->left == left);
    stores->reads_once = false;
}

/* Reads the first bytes of an object as a look does, which knows where it ends. */
static void look_at(const rks_input_file *file, uint64_t until, size_t size)
{
    rks_input_handle *handle = NULL;
    assert_ok(rks_input_file_open(file, &handle, &err), &err);
    rks_input_file_until(handle, until);
    check_range(file, handle, 0, size);
    rks_input_file_close(handle);
}

static const rks_stored_root *root_of_file(const rks_input_file *file)
{
    return (const rks_stored_root *)file->store;
}

static void what_was_looked_at_is_not_asked_for_again(void **state)
{
    (void)state;
    scratch_bytes("c", content, 300000);
    const rks_input_file file = object_of("good", "c");
    rks_range_drop_kept(stores);
    look_at(&file, 100000, 10);
    look_at(&file, 200000, 150000); /* goes on where the first look has ended */
    assert_true(rks_range_is_kept(root_of_file(&file), &file, 0));
    assert_true(rks_range_is_kept(root_of_file(&file), &file, 100000));
    assert_int_equal(unlink(scratch_path("c")), 0); /* nothing more can come */
    look_at(&file, 200000, 200000);
    stores->reads_once = true;
    look_at(&file, 200000, 200000);
    stores->reads_once = false;
    assert_false(rks_range_is_kept(root_of_file(&file), &file, 0));
    assert_null(stores->kept);
    assert_true(stores->left == (int64_t)stores->input_bytes);
}

static void what_is_sent_ahead_waits_for_its_reader(void **state)
{
    (void)state;
    const rks_input_file file = object_of("good", "a");
    rks_range_drop_kept(stores);
    rks_input_file_ahead(&file, 0, 100000);
    rks_input_file_ahead(&file, 0, 100000); /* it is there */
    assert_true(rks_range_is_kept(root_of_file(&file), &file, 0));
    assert_int_equal(stores->kept_bytes, 100000);
    rks_input_file_ahead(&file, 0, 150000); /* what lacks of it */
    assert_true(rks_range_is_kept(root_of_file(&file), &file, 100000));
    assert_int_equal(stores->kept_bytes, 150000);
    rks_input_file_ahead(&file, 0, 16 << 20); /* there is no room */
    assert_int_equal(stores->kept_bytes, 150000);
    stores->reads_once = true;
    look_at(&file, SIZE, 1 << 20);
    stores->reads_once = false;
    assert_null(stores->kept);
    assert_true(stores->left == (int64_t)stores->input_bytes);
}

static void a_failure_of_what_was_sent_ahead_is_its_readers(void **state)
{
    (void)state;
    scratch_bytes("c", content, 3000);
    const rks_input_file file = object_of("good", "c");
    scratch_bytes("c", content, 1000); /* its size differs */
    rks_range_drop_kept(stores);
    rks_input_file_ahead(&file, 0, 3000);
    rks_input_handle *handle = NULL;
    uint8_t bytes[100];
    assert_ok(rks_input_file_open(&file, &handle, &err), &err);
    assert_int_equal(rks_input_file_read_all(&file, handle, 0, bytes, sizeof(bytes), &err),
                     RKS_ERR_DATA);
    assert_non_null(strstr(err.text, "s3://good/c: changed during the build"));
    rks_input_file_close(handle);
    assert_null(stores->kept);
}

static void what_is_kept_makes_room_for_readers(void **state)
{
    (void)state;
    const rks_input_file file = object_of("good", "a");
    rks_range_drop_kept(stores);
    look_at(&file, 500000, 500000);
    look_at(&file, UINT64_MAX, 10);
    assert_true(stores->kept_bytes > 0 && stores->kept_bytes <= stores->input_bytes / 2);
    rks_input_handle *handle = NULL;
    assert_ok(rks_input_file_open(&file, &handle, &err), &err);
    rks_input_file_until(handle, SIZE);
    check_range(&file, handle, 3 << 20, 6 << 20);
    assert_null(stores->kept);
    stores->reads_once = true;
    rks_input_file_close(handle);
    stores->reads_once = false;
    assert_true(stores->left == (int64_t)stores->input_bytes);
}

static void a_replaced_object_is_an_error_that_says_so(void **state)
{
    (void)state;
    const rks_input_file file = object_of("good", "b");
    rks_input_handle *handle = NULL;
    uint8_t bytes[100];
    assert_ok(rks_input_file_open(&file, &handle, &err), &err);
    scratch_bytes("b", content, 1000); /* its size differs */
    assert_int_equal(rks_input_file_read_all(&file, handle, 0, bytes, sizeof(bytes), &err),
                     RKS_ERR_DATA);
    assert_non_null(strstr(err.text, "s3://good/b: changed during the build"));
    rks_input_file_close(handle);
}

/* ---- samples that wait ----------------------------------------------------------------------- */

typedef struct waited {
    rks_stores *of;
    uint64_t read, at; /* bytes of the unit: now, and when it waited for its turn */
    int64_t least;     /* room that was left */
    int times;
} waited;

static rks_status note_bytes(void *user, uint64_t bytes, uint64_t samples, rks_error *error)
{
    waited *w = user;
    (void)samples, (void)error;
    w->read = bytes;
    pthread_mutex_lock(&w->of->mutex);
    w->least = w->of->left < w->least ? w->of->left : w->least;
    pthread_mutex_unlock(&w->of->mutex);
    return RKS_OK;
}

static rks_status turn_comes(void *user, uint64_t *first_row, rks_error *error)
{
    waited *w = user;
    (void)error;
    w->at = w->read;
    w->times++;
    *first_row = 0;
    return RKS_OK;
}

static bool turn_is_far(void *user)
{
    (void)user;
    return false;
}

/* A unit larger than input_bytes waits as soon as its samples have taken what was left. */
static void samples_that_wait_for_their_turn_count(void **state)
{
    (void)state;
    enum { BYTES = 12 << 20, LINE = 4096 };
    static const char *const URL = "s3://good/wait.txt";
    char *text = malloc(BYTES);
    memset(text, 'x', BYTES);
    for (size_t i = LINE; i <= BYTES; i += LINE)
        text[i - 1] = '\n';
    scratch_bytes("wait.txt", text, BYTES);
    free(text);
    const rks_ingest_options options = {
        .schema = "text:str", .input_bytes = 3 << 20, .unit_size = 64 << 20};
    rks_shard_options shard = {.derived_keys = true};
    rks_input *input = NULL;
    rks_schema *schema = NULL;
    rks_selector *selector = NULL;
    rks_shard_writer *writer = NULL;
    rks_buffer bad = {0};
    assert_ok(rks_input_open(&URL, 1, &options, &input, &err), &err);
    assert_int_equal(input->unit_count, 1);
    assert_ok(rks_schema_parse(options.schema, &schema, &err), &err);
    assert_ok(rks_selector_create(schema, &options, &selector, &err), &err);
    shard.schema = schema;
    assert_ok(rks_shard_writer_open(scratch_dir, "wait", &shard, &writer, &err), &err);
    waited w = {.of = input->stores, .least = INT64_MAX};
    const rks_ingest_progress progress = {.tick = note_bytes, .user = &w};
    const rks_ingest_turn turn = {turn_comes, turn_is_far, &w};
    const rks_ingest_reading with = {input, schema, &options, selector, &bad};
    assert_ok(rks_ingest_unit(&with, 0, 0, writer, &progress, &turn, &err), &err);
    assert_int_equal(w.times, 1);
    assert_true(w.at <= 5 << 20); /* its block and its window are beside them */
    assert_true(w.least >= -(int64_t)RKS_RANGE_LEAST);
    rks_range_drop_kept(input->stores);
    assert_true(input->stores->left == 3 << 20);
    rks_shard_writer_close(writer);
    rks_selector_free(selector);
    rks_schema_free(schema);
    rks_input_free(input);
}

static int make_stores(void **state)
{
    if (scratch_open(state) != 0)
        return -1;
    setenv("RKS_HOME_HELPER", getenv("TOY_HELPER"), 1);
    setenv("TOY_PLACE", scratch_dir, 1);
    scratch_seed_print();
    content = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (uint8_t)(i * 7 + i / 4096 + i / 65536);
    scratch_bytes("a", content, SIZE);
    scratch_bytes("b", content, 5000);
    return rks_stores_create(NULL, NULL, 1 << 20, &stores, &err) == RKS_OK ? 0 : -1;
}

static int free_stores(void **state)
{
    rks_stores_free(stores);
    stores = NULL;
    free(content);
    assert_int_equal(rks_memory_in_use(), 0);
    return scratch_close(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_as_paths_do),
        cmocka_unit_test(many_marks_end_soon),
        cmocka_unit_test(the_plain_part_ends_with_a_folder),
        cmocka_unit_test(what_one_rank_has_noted_the_others_recall),
        cmocka_unit_test(what_is_no_listing_is_refused),
        cmocka_unit_test(bytes_come_in_any_order),
        cmocka_unit_test(reading_may_go_on_after_its_known_end),
        cmocka_unit_test(readers_share_the_memory_that_they_may_use),
        cmocka_unit_test(what_was_looked_at_is_not_asked_for_again),
        cmocka_unit_test(what_is_sent_ahead_waits_for_its_reader),
        cmocka_unit_test(a_failure_of_what_was_sent_ahead_is_its_readers),
        cmocka_unit_test(what_is_kept_makes_room_for_readers),
        cmocka_unit_test(a_replaced_object_is_an_error_that_says_so),
        cmocka_unit_test(samples_that_wait_for_their_turn_count),
    };
    return cmocka_run_group_tests(tests, make_stores, free_stores);
}
