/* SPDX-License-Identifier: Apache-2.0
 *
 * test_requests.c: reads of a home that fails, stalls, or never comes back. */
#include "home/requests.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "support/check.h"
#include "support/folder.h"
#include "unit/home/failing_pread.h"

enum { SIZE = 5000 };

static char place[FOLDER_PATH], path[FOLDER_PATH + 8];
static rks_home *home;
static rks_error err;
static atomic_int stop_after; /* calls of must_stop; 0: never */

static rks_status must_stop(void *user, rks_error *why)
{
    (void)user;
    if (atomic_load(&stop_after) > 0 && atomic_fetch_sub(&stop_after, 1) == 1)
        return rks_fail(why, RKS_ERR_PEER, 0, "another rank has failed");
    return RKS_OK;
}

static void open_home(uint32_t stall_ms, uint32_t tell_ms, uint32_t timeout_ms)
{
    const rks_home_limits limits = {
        .stall_ms = stall_ms, .tell_ms = tell_ms, .timeout_ms = timeout_ms, .must_stop = must_stop};
    rks_home_close(home);
    assert_ok(rks_home_open(place, &limits, &home, &err), &err);
}

static int make_place(void **state)
{
    (void)state;
    uint8_t bytes[SIZE];
    pread_set(PREAD_WORKS, 0, 0);
    atomic_store(&stop_after, 0);
    assert_true(folder_make(place));
    snprintf(path, sizeof(path), "%s/a", place);
    for (int i = 0; i < SIZE; i++)
        bytes[i] = (uint8_t)(i * 7);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, SIZE, file), SIZE);
    assert_int_equal(fclose(file), 0);
    open_home(100, 60000, 60000);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    pread_set(PREAD_WORKS, 0, 0);
    rks_home_close(home);
    home = NULL;
    folder_remove(place);
    long left;
    for (int tries = 0; (left = rks_memory_in_use()) > 0 && tries < 5000; tries++)
        usleep(1000);
    assert_int_equal(left, 0);
    return 0;
}

static rks_status fetch(uint64_t first, uint64_t end)
{
    static uint8_t bytes[2 * SIZE];
    memset(bytes, 0, sizeof(bytes));
    rks_status status = rks_home_fetch(home, "a", first, end, bytes, NULL, &err);
    for (uint64_t i = first; status == RKS_OK && i < end; i++)
        assert_int_equal(bytes[i - first], (uint8_t)(i * 7));
    return status;
}

static void sizes_files_and_ranges_come(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "", *bytes = NULL;
    uint64_t size = 0;
    size_t read = 0;
    assert_ok(rks_home_size(home, "a", &size, version, &err), &err);
    assert_int_equal(size, SIZE);
    assert_string_not_equal(version, "");
    assert_ok(rks_home_read_all(home, "a", SIZE, &bytes, &read, version, &err), &err);
    assert_int_equal(read, SIZE);
    assert_int_equal((uint8_t)bytes[SIZE - 1], (uint8_t)((SIZE - 1) * 7));
    assert_int_equal(bytes[SIZE], 0);
    rks_free(bytes);
    assert_ok(fetch(17, 4321), &err);
    assert_ok(fetch(5, 5), &err);
}

static void what_is_not_there_is_not_asked_again(void **state)
{
    (void)state;
    char version[RKS_HOME_VERSION] = "other";
    uint64_t size;
    assert_fails(RKS_ERR_NOT_FOUND, rks_home_size(home, "b", &size, NULL, &err));
    assert_contains(err.text, "/b: no such file");
    assert_fails(RKS_ERR_STATE, rks_home_size(home, "a", &size, version, &err));
    assert_fails(RKS_ERR_IO, rks_home_size(home, "../a", &size, NULL, &err));
}

static void a_short_file_is_tried_three_times(void **state)
{
    (void)state;
    char *bytes;
    size_t size;
    assert_fails(RKS_ERR_CORRUPT, fetch(0, SIZE + 1));
    assert_contains(err.text, "ends at 5000");
    assert_fails(RKS_ERR_CORRUPT, rks_home_read_all(home, "a", 100, &bytes, &size, NULL, &err));
    assert_contains(err.text, "at most 100");
    pread_set(PREAD_ENDS, 0, 2);
    assert_ok(fetch(0, SIZE), &err);
    assert_int_equal(atomic_load(&pread_calls), 3);
    pread_set(PREAD_ENDS, 0, 0);
    assert_fails(RKS_ERR_CORRUPT, fetch(0, SIZE));
    assert_int_equal(atomic_load(&pread_calls), 3);
}

static void an_error_is_tried_again(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ESTALE};
    for (size_t i = 0; i < 2; i++) {
        pread_set(errors[i], 0, 3);
        assert_ok(fetch(0, SIZE), &err);
        assert_int_equal(atomic_load(&pread_calls), 4);
    }
}

static void a_stall_is_asked_again(void **state)
{
    (void)state;
    pread_set(PREAD_HANGS, 0, 2);
    assert_ok(fetch(0, SIZE), &err);
    assert_int_equal(atomic_load(&pread_hanging), 2);
    assert_true(atomic_load(&pread_calls) >= 3);
}

enum { CALLERS = 48 };

static void *fetch_one(void *user)
{
    uint8_t bytes[100];
    rks_error why;
    *(rks_status *)user = rks_home_fetch(home, "a", 0, sizeof(bytes), bytes, NULL, &why);
    return NULL;
}

/* A slow home is not asked again for what waits for others: it would only get slower. */
static void what_waits_for_others_does_not_stall(void **state)
{
    (void)state;
    pthread_t threads[CALLERS];
    rks_status ends[CALLERS];
    open_home(200, 60000, 60000);
    pread_set(PREAD_SLOW, 0, 0);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fetch_one, &ends[i]), 0);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(ends[i], RKS_OK);
    }
    assert_int_equal(atomic_load(&pread_calls), CALLERS);
}

static void what_never_comes_is_an_error_that_names_it(void **state)
{
    (void)state;
    open_home(100, 60000, 500);
    for (int hangs = 0; hangs < 2; hangs++) {
        pread_set(hangs ? PREAD_HANGS : EIO, 0, 0);
        assert_fails(RKS_ERR_TIMEOUT, fetch(0, SIZE));
        assert_contains(err.text, place);
        assert_contains(err.text, ": a did not come within");
        assert_contains(err.text, " tries; the last: ");
        assert_contains(err.text, hangs ? "no byte came" : strerror(EIO));
    }
}

static void a_line_names_the_home(void **state)
{
    (void)state;
    char text[4096], log[FOLDER_PATH + 8];
    snprintf(log, sizeof(log), "%s/log", place);
    int before = dup(2), to = open(log, O_CREAT | O_RDWR, 0644);
    assert_true(before >= 0 && to >= 0 && dup2(to, 2) == 2);
    open_home(10000, 100, 60000);
    pread_set(EIO, 0, 4);
    rks_status status = fetch(0, SIZE);
    dup2(before, 2);
    close(before);
    assert_ok(status, &err);
    ssize_t size = (ssize_t)syscall(SYS_pread64, to, text, sizeof(text) - 1, 0);
    close(to);
    assert_true(size > 0);
    text[size] = '\0';
    assert_contains(text, place);
    assert_contains(text, " s for a, try ");
    assert_contains(text, strerror(EIO));
}

static int say_stop(void *user)
{
    (void)user;
    return atomic_load(&pread_hanging) > 0;
}

static void a_caller_can_leave(void **state)
{
    (void)state;
    open_home(60000, 60000, 60000);
    pread_set(PREAD_HANGS, 0, 0);
    atomic_store(&stop_after, 2);
    assert_fails(RKS_ERR_PEER, fetch(0, SIZE));
    rks_set_interrupt(say_stop, NULL);
    assert_fails(RKS_ERR_CANCELLED, fetch(0, SIZE));
    rks_set_interrupt(NULL, NULL);
    pread_set(EIO, 0, 0); /* and in the pause between two tries */
    atomic_store(&stop_after, 2);
    assert_fails(RKS_ERR_PEER, fetch(0, SIZE));
}

static void a_name_without_a_home_is_refused(void **state)
{
    (void)state;
    rks_home *other = NULL;
    assert_fails(RKS_ERR_ARGUMENT, rks_home_open("s3://user:word@host/x", NULL, &other, &err));
    assert_null(strstr(err.text, "word@"));
    assert_fails(RKS_ERR_ARGUMENT, rks_home_open("", NULL, &other, &err));
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    assert_ok(fetch(0, SIZE), &err); /* its threads run */
    for (int nth = 1; nth < 10; nth++) {
        char *bytes = NULL;
        size_t size;
        rks_memory_fail_at(nth);
        rks_status status = rks_home_read_all(home, "a", SIZE, &bytes, &size, NULL, &err);
        rks_memory_fail_at(0);
        if (status != RKS_OK)
            assert_fails(RKS_ERR_MEMORY, status);
        rks_free(bytes);
    }
    for (int nth = 1; nth <= 3; nth++) {
        rks_home *other = NULL;
        rks_memory_fail_at(nth);
        assert_fails(RKS_ERR_MEMORY, rks_home_open(place, NULL, &other, &err));
        rks_memory_fail_at(0);
    }
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(sizes_files_and_ranges_come),
        WITH_PLACE(what_is_not_there_is_not_asked_again),
        WITH_PLACE(a_short_file_is_tried_three_times),
        WITH_PLACE(an_error_is_tried_again),
        WITH_PLACE(a_stall_is_asked_again),
        WITH_PLACE(what_waits_for_others_does_not_stall),
        WITH_PLACE(what_never_comes_is_an_error_that_names_it),
        WITH_PLACE(a_line_names_the_home),
        WITH_PLACE(a_caller_can_leave),
        WITH_PLACE(a_name_without_a_home_is_refused),
        WITH_PLACE(survives_each_failing_allocation),
    };
    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
