/* SPDX-License-Identifier: Apache-2.0
 *
 * test_helper.c: a home that a helper reaches, which may do anything. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/error.h"
#include "base/memory.h"
#include "home/address.h"
#include "home/helper_wire.h"
#include "home/requests.h"
#include "support/check.h"
#include "support/folder.h"

enum { SIZE = 100000, LARGE = 9 << 20 };

static char place[FOLDER_PATH];
static rks_home *home;
static rks_error err;

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 7 + i / 4096);
}

static void write_file(const char *name, uint64_t size)
{
    char path[FOLDER_PATH + 32];
    snprintf(path, sizeof(path), "%s/%s", place, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (uint64_t i = 0; i < size; i++)
        putc(byte_at(i), file);
    assert_int_equal(fclose(file), 0);
}

static void open_mode(const char *mode, uint32_t timeout_ms)
{
    char url[FOLDER_PATH + 64];
    const rks_home_limits limits = {.stall_ms = 300,
                                    .timeout_ms = timeout_ms,
                                    .options = "{\"secret_key\": \"hunter2secret\"}"};
    snprintf(url, sizeof(url), "s3://%s%s", mode, place);
    rks_home_close(home);
    assert_ok(rks_home_open(url, &limits, &home, &err), &err);
}

static long starts(void)
{
    struct stat info;
    char path[FOLDER_PATH + 32];
    snprintf(path, sizeof(path), "%s/starts", place);
    return stat(path, &info) == 0 ? (long)info.st_size : 0;
}

static int make_place(void **state)
{
    (void)state;
    setenv("RKS_HOME_HELPER", getenv("TOY_HELPER"), 1);
    assert_true(folder_make(place));
    write_file("a", SIZE);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    rks_home_close(home);
    home = NULL;
    folder_remove(place);
    assert_int_equal(rks_memory_in_use(), 0);
    return 0;
}

static rks_status fetch(const char *name, uint64_t first, uint64_t end)
{
    uint8_t *bytes = malloc((size_t)(end - first) + 1);
    rks_status status = rks_home_fetch(home, name, first, end, bytes, NULL, &err);
    for (uint64_t i = first; status == RKS_OK && i < end; i++)
        if (bytes[i - first] != byte_at(i))
            fail_msg("byte %lu is wrong", (unsigned long)i);
    free(bytes);
    return status;
}

static void sizes_ranges_and_whole_files_come(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "", *bytes = NULL;
    uint64_t size = 0;
    size_t whole = 0;
    open_mode("good", 10000);
    assert_int_equal(starts(), 0); /* nothing is wanted yet */
    assert_ok(rks_home_size(home, "a", &size, version, &err), &err);
    assert_int_equal(size, SIZE);
    assert_true(version[0] == '"');
    assert_ok(fetch("a", 0, SIZE), &err);
    assert_ok(fetch("a", 17, 18), &err);
    assert_ok(rks_home_read_all(home, "a", SIZE, &bytes, &whole, version, &err), &err);
    assert_int_equal(whole, SIZE);
    rks_free(bytes);
    write_file("empty", 0);
    assert_ok(rks_home_read_all(home, "empty", 10, &bytes, &whole, NULL, &err), &err);
    assert_int_equal(whole, 0);
    rks_free(bytes);
    assert_fails(RKS_ERR_NOT_FOUND, rks_home_size(home, "b", &size, NULL, &err));
    assert_fails(RKS_ERR_CORRUPT, fetch("a", SIZE - 1, SIZE + 1));
    assert_fails(RKS_ERR_CORRUPT,
                 rks_home_read_all(home, "a", SIZE - 1, &bytes, &whole, NULL, &err));
    assert_int_equal(starts(), 1);
}

static void a_file_larger_than_a_slot_comes_in_parts_of_one_version(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "", *bytes = NULL;
    size_t size = 0;
    write_file("large", LARGE);
    open_mode("good", 10000);
    assert_ok(rks_home_read_all(home, "large", 64 << 20, &bytes, &size, version, &err), &err);
    assert_int_equal(size, LARGE);
    for (size_t i = 0; i < size; i++)
        if ((uint8_t)bytes[i] != byte_at(i))
            fail_msg("byte %zu is wrong", i);
    rks_free(bytes);
    assert_ok(fetch("large", 3, LARGE - 5), &err);
    open_mode("changes", 10000);
    assert_fails(RKS_ERR_STATE,
                 rks_home_read_all(home, "large", 64 << 20, &bytes, &size, NULL, &err));
}

static void another_version_than_the_wanted_one_is_refused(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "", byte;
    uint64_t size;
    open_mode("good", 10000);
    assert_ok(rks_home_size(home, "a", &size, version, &err), &err);
    write_file("a", SIZE + 1);
    assert_fails(RKS_ERR_STATE, rks_home_fetch(home, "a", 0, 1, &byte, version, &err));
}

static void a_helper_that_dies_is_started_again(void **state)
{
    (void)state;
    open_mode("dies", 10000);
    assert_ok(fetch("a", 0, SIZE), &err);
    assert_int_equal(starts(), 2);
}

static void
one_that_always_dies_is_started_five_times_at_most_and_its_last_words_are_told(void **state)
{
    (void)state;
    open_mode("always-dies", 5000);
    assert_fails(RKS_ERR_TIMEOUT, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "no such region"));
    assert_non_null(strstr(err.text, "exit status 3"));
    assert_null(strstr(err.text, "hunter2secret"));
    assert_in_range(starts(), 2, 5);
}

static void one_that_hangs_does_not_keep_the_read(void **state)
{
    (void)state;
    open_mode("hangs", 1000);
    assert_fails(RKS_ERR_TIMEOUT, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "no byte came"));
}

static void half_a_secret_is_not_shown(void **state)
{
    (void)state;
    open_mode("talks", 300);
    assert_fails(RKS_ERR_TIMEOUT, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "it said: "));
    assert_null(strstr(err.text, "secret"));
}

static void what_is_no_answer_ends_the_helper(void **state)
{
    (void)state;
    static const char *const modes[] = {"unknown-id",     "garbage", "long",
                                        "too-many-bytes", "huge",    "at-beyond"};
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        open_mode(modes[i], 300);
        assert_fails(RKS_ERR_TIMEOUT, fetch("a", 0, SIZE));
    }
}

static void answers_that_may_pass_are_tried_again(void **state)
{
    (void)state;
    static const char *const modes[] = {"busy", "odd-kind", "short", "shrinks"};
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        open_mode(modes[i], 20000);
        assert_ok(fetch("a", 0, SIZE), &err);
    }
}

static void what_would_fail_again_is_told_at_once_without_secrets(void **state)
{
    (void)state;
    open_mode("denied", 20000);
    assert_fails(RKS_ERR_IO, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "/a, bytes 0 to "));
    assert_non_null(strstr(err.text, ": 403 for key ***"));
    open_mode("bad", 20000);
    assert_fails(RKS_ERR_IO, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "looked in the environment"));
    setenv("RKS_HOME_HELPER", "/no/such/program", 1);
    open_mode("good", 20000);
    assert_fails(RKS_ERR_IO, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "/no/such/program"));
    unsetenv("RKS_HOME_HELPER");
    open_mode("good", 20000);
    assert_fails(RKS_ERR_IO, fetch("a", 0, SIZE));
    assert_non_null(strstr(err.text, "RKS_HOME_HELPER"));
}

/* ---- put, list, remove ----------------------------------------------------------------------- */

static uint64_t fails_at = UINT64_MAX;

static rks_status give(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *why)
{
    (void)user;
    for (size_t i = 0; i < size; i++)
        to[i] = byte_at(first + i);
    return first < fails_at ? RKS_OK : rks_fail(why, RKS_ERR_CORRUPT, 0, "a bad piece");
}

static rks_status put(const char *name, uint64_t size, enum rks_put_rule rule, char *version)
{
    const rks_home_bytes bytes = {.size = size, .give = give};
    return home->ops->put(home->state, name, &bytes, rule, version, &err);
}

static void files_are_put_on_a_condition(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "", older[RKS_HOME_VERSION];
    open_mode("good", 10000);
    assert_ok(put("b", LARGE, RKS_PUT_ABSENT, version), &err);
    assert_ok(fetch("b", 0, LARGE), &err);
    assert_fails(RKS_ERR_STATE, put("b", 5, RKS_PUT_ABSENT, version));
    strcpy(older, version);
    assert_ok(put("b", 5, RKS_PUT_SAME, version), &err);
    assert_string_not_equal(older, version);
    assert_fails(RKS_ERR_STATE, put("b", 6, RKS_PUT_SAME, older));
    assert_ok(put("empty", 0, RKS_PUT_ABSENT, version), &err);
    open_mode("dies-in-put", 10000); /* it is another start of the toy: the second put works */
    assert_ok(put("c", LARGE, RKS_PUT_ABSENT, version), &err);
    assert_ok(fetch("c", 0, LARGE), &err);
}

static void a_put_that_fails_leaves_nothing(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "";
    char path[FOLDER_PATH + 32];
    open_mode("good", 10000);
    fails_at = 6 << 20;
    assert_fails(RKS_ERR_CORRUPT, put("b", LARGE, RKS_PUT_ABSENT, version));
    fails_at = UINT64_MAX;
    assert_string_equal(err.text, "a bad piece");
    snprintf(path, sizeof(path), "%s/b.putting", place);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_ok(fetch("a", 0, SIZE), &err); /* the helper goes on */
}

static rks_status count_file(void *user, const rks_home_listed *file, rks_error *why)
{
    (void)why;
    char *names = user;
    sprintf(names + strlen(names), "%s:%d:%d:%s;", file->name, (int)file->size, (int)file->age_s,
            file->version);
    return RKS_OK;
}

static void files_are_listed_and_removed(void **state)
{
    (void)state;
    char names[200] = "";
    open_mode("good", 10000);
    assert_ok(home->ops->list(home->state, "x-", count_file, names, &err), &err);
    assert_string_equal(names, "x-one:12:3600:v1;x-two words:7:0:;");
    assert_ok(home->ops->remove(home->state, "a", "", &err), &err);
    open_mode("changes", 10000);
    assert_fails(RKS_ERR_STATE, home->ops->remove(home->state, "a", "v", &err));
}

/* An answer that only a put may get is none, and another helper is asked. */
static void only_a_put_is_asked_for_more(void **state)
{
    (void)state;
    char names[200] = "";
    open_mode("more", 20000);
    assert_ok(home->ops->remove(home->state, "a", "", &err), &err);
    assert_int_equal(starts(), 2);
    remove_place(state);
    make_place(state);
    open_mode("more", 20000);
    assert_ok(home->ops->list(home->state, "x-", count_file, names, &err), &err);
    assert_string_equal(names, "x-one:12:3600:v1;x-two words:7:0:;");
    assert_int_equal(starts(), 2);
}

/* ---- forks, addresses, lines ----------------------------------------------------------------- */

static void a_forked_process_leaves_the_helper_alone(void **state)
{
    (void)state;
    open_mode("good", 10000);
    assert_ok(fetch("a", 0, 5), &err);
    pid_t child = fork();
    if (child == 0) {
        char byte;
        bool good = rks_home_fetch(home, "a", 0, 1, &byte, NULL, &err) != RKS_OK;
        home->ops->close(home->state, 0);
        _exit(good ? 0 : 1);
    }
    int how = -1;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    assert_ok(fetch("a", 0, SIZE), &err);
    assert_int_equal(starts(), 1);
}

static void names_mean_directories_or_stores(void **state)
{
    (void)state;
    rks_home_address address;
    assert_ok(rks_home_address_of("a/b", &address, &err), &err);
    assert_false(address.stored);
    assert_ok(rks_home_address_of("file:///a/b", &address, &err), &err);
    assert_false(address.stored);
    assert_string_equal(address.path, "/a/b");
    assert_ok(rks_home_address_of("gs://bucket/x", &address, &err), &err);
    assert_true(address.stored);
    assert_fails(RKS_ERR_ARGUMENT, rks_home_address_of("", &address, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_home_address_of("s3:///x", &address, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_home_address_of("file://host/x", &address, &err));
    assert_fails(RKS_ERR_ARGUMENT, rks_home_address_of("https://me:word@host/x", &address, &err));
    assert_null(strstr(err.text, "word@"));
    assert_fails(RKS_ERR_ARGUMENT, rks_home_address_of("https://host/x?sig=abc", &address, &err));
    assert_null(strstr(err.text, "abc"));
    const rks_home_limits limits = {.options = "[1]"};
    assert_fails(RKS_ERR_ARGUMENT, rks_home_open("s3://bucket", &limits, &home, &err));
    home = NULL;
}

static void lines_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "ok",
                                      "ok 1",
                                      "ok 1 2 v",
                                      "ok 1 2 v 3 4",
                                      "ok -1 2 v 3",
                                      "ok  2",
                                      "ok 1 2 v ",
                                      "at 1",
                                      "at 1 x",
                                      "ready 2",
                                      "ready",
                                      "more",
                                      "item 1 2 3 v ",
                                      "okay 1 2 v 3",
                                      "fail 1",
                                      "fail x missing",
                                      "get 1 2 3 4 v n"};
    rks_helper_line line;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        if (strcmp(bad[i], "fail 1") != 0)
            assert_false(rks_helper_read_line(bad[i], strlen(bad[i]), &line));
    assert_false(rks_helper_read_line("item 1 2 3 v a\0b", 16, &line));
    assert_true(rks_helper_read_line("fail 1 busy=2500 slow\tdown", 26, &line));
    assert_int_equal(line.kind, RKS_HOME_BUSY);
    assert_int_equal(line.busy_ms, 2500);
    assert_string_equal(line.text, "slow?down");
    assert_true(rks_helper_read_line("item 1 2 3 - a b", 16, &line));
    assert_string_equal(line.name, "a b");
    assert_string_equal(line.version, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)
        TEST(sizes_ranges_and_whole_files_come),
        TEST(a_file_larger_than_a_slot_comes_in_parts_of_one_version),
        TEST(another_version_than_the_wanted_one_is_refused),
        TEST(a_helper_that_dies_is_started_again),
        TEST(one_that_always_dies_is_started_five_times_at_most_and_its_last_words_are_told),
        TEST(one_that_hangs_does_not_keep_the_read),
        TEST(half_a_secret_is_not_shown),
        TEST(what_is_no_answer_ends_the_helper),
        TEST(answers_that_may_pass_are_tried_again),
        TEST(what_would_fail_again_is_told_at_once_without_secrets),
        TEST(files_are_put_on_a_condition),
        TEST(a_put_that_fails_leaves_nothing),
        TEST(files_are_listed_and_removed),
        TEST(only_a_put_is_asked_for_more),
        TEST(a_forked_process_leaves_the_helper_alone),
        TEST(names_mean_directories_or_stores),
        TEST(lines_that_are_none_are_refused),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
