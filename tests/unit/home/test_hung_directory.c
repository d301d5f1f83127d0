/* SPDX-License-Identifier: Apache-2.0
 *
 * test_hung_directory.c: calls of a home whose file system hangs: each ends, says where, and its
 * thread comes to its end when the file system answers again. A call that hangs waits in a read of
 * a pipe. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "home/home.h"
#include "support/check.h"
#include "support/folder.h"

enum { LIMIT_MS = 2500, OUTER_MS = 60000, SIZE = 3 << 20 };

static char place[FOLDER_PATH];
static void *home;
static rks_error err;
static const rks_home_ops *const ops = &rks_home_directory;
static rks_home_limits limits;
static int held[2];
static atomic_bool syncs_hang, removals_hang;
static pthread_t caller;

static void hang(void)
{
    char byte;
    while (read(held[0], &byte, 1) < 0 && errno == EINTR)
        ;
}

/* Syncs nothing: a disk that other programs keep busy would seem to hang. */
int fsync(int fd)
{
    struct stat info;
    if (atomic_load(&syncs_hang) && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        hang();
    return 0;
}

int unlink(const char *path)
{
    if (atomic_load(&removals_hang))
        hang();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static int begin(void **state)
{
    (void)state;
    assert_true(folder_make(place));
    assert_int_equal(pipe(held), 0);
    limits = (rks_home_limits){.timeout_ms = LIMIT_MS};
    rks_home_limits_fill(&limits);
    assert_ok(ops->open(place, &limits, &home, &err), &err);
    caller = pthread_self();
    return 0;
}

static void heal(void)
{
    atomic_store(&syncs_hang, false);
    atomic_store(&removals_hang, false);
    if (held[1] >= 0)
        close(held[1]);
    held[1] = -1;
}

/* The pipe's end for reading stays open: a thread that was left behind may still read it. */
static int end(void **state)
{
    (void)state;
    heal();
    if (home != NULL)
        ops->close(home, 10000);
    home = NULL;
    folder_remove(place);
    return 0;
}

static rks_status give(void *user, uint64_t first, uint8_t *to, size_t size, rks_error *why)
{
    (void)user, (void)why;
    assert_true(pthread_equal(pthread_self(), caller));
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)((first + i) * 31);
    return RKS_OK;
}

static rks_status put(const char *name)
{
    char version[RKS_HOME_VERSION] = "";
    const rks_home_bytes bytes = {.size = SIZE, .give = give};
    return ops->put(home, name, &bytes, RKS_PUT_ABSENT, version, &err);
}

static rks_status count_file(void *user, const rks_home_listed *file, rks_error *why)
{
    (void)why;
    assert_true(pthread_equal(pthread_self(), caller));
    *(size_t *)user += file->size;
    return RKS_OK;
}

static size_t listed(const char *prefix)
{
    size_t bytes = 0;
    assert_ok(ops->list(home, prefix, count_file, &bytes, &err), &err);
    return bytes;
}

static void wait_for_bytes(const char *prefix, size_t bytes)
{
    const uint64_t until = rks_now_ms() + OUTER_MS;
    while (listed(prefix) != bytes && rks_now_ms() < until)
        usleep(5000);
    assert_int_equal(listed(prefix), bytes);
}

static void a_put_that_hangs_ends_and_names_the_directory(void **state)
{
    (void)state;
    atomic_store(&syncs_hang, true);
    const uint64_t begun = rks_now_ms();
    assert_int_equal(put("a"), RKS_ERR_TIMEOUT);
    assert_true(rks_now_ms() - begun >= LIMIT_MS);
    assert_memory_equal(err.text, place, strlen(place));
    assert_non_null(strstr(err.text, ": its storage has not answered for 2.5 s; see whether `ls`"));
    assert_int_equal(listed("a."), SIZE); /* other calls go on */
    heal();
    wait_for_bytes("a.", 0); /* what was left comes to its end: under its name, and alone */
    assert_int_equal(listed("a"), SIZE);
}

static void a_call_after_one_that_hangs_waits_a_second(void **state)
{
    (void)state;
    assert_ok(put("a"), &err);
    limits.timeout_ms = 3000;
    ops->close(home, 0);
    assert_ok(ops->open(place, &limits, &home, &err), &err);
    atomic_store(&removals_hang, true);
    assert_int_equal(ops->remove(home, "a", "", &err), RKS_ERR_TIMEOUT);
    assert_non_null(strstr(err.text, "for 3.0 s"));
    assert_int_equal(ops->remove(home, "a", "", &err), RKS_ERR_TIMEOUT);
    assert_non_null(strstr(err.text, "for 1.0 s"));
    heal();
    wait_for_bytes("a", 0);
}

static void a_home_is_closed_while_its_call_hangs(void **state)
{
    (void)state;
    atomic_store(&syncs_hang, true);
    assert_int_equal(put("a"), RKS_ERR_TIMEOUT);
    ops->close(home, 0);
    assert_ok(ops->open(place, &limits, &home, &err), &err);
    heal();
    wait_for_bytes("a.", 0);
    assert_int_equal(listed("a"), SIZE);
}

static rks_status lost(void *user, rks_error *why)
{
    (void)user;
    return rks_fail(why, RKS_ERR_PEER, 0, "rank 3 is lost");
}

static int interrupt(void *user)
{
    (void)user;
    return 1;
}

static void a_lost_rank_and_an_interrupt_end_a_call_that_hangs(void **state)
{
    (void)state;
    limits.timeout_ms = OUTER_MS;
    limits.must_stop = lost;
    ops->close(home, 0);
    assert_ok(ops->open(place, &limits, &home, &err), &err);
    atomic_store(&syncs_hang, true);
    assert_int_equal(put("a"), RKS_ERR_PEER);
    assert_string_equal(err.text, "rank 3 is lost");
    rks_set_interrupt(interrupt, NULL);
    assert_int_equal(put("b"), RKS_ERR_CANCELLED);
    rks_set_interrupt(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_put_that_hangs_ends_and_names_the_directory, begin, end),
        cmocka_unit_test_setup_teardown(a_call_after_one_that_hangs_waits_a_second, begin, end),
        cmocka_unit_test_setup_teardown(a_home_is_closed_while_its_call_hangs, begin, end),
        cmocka_unit_test_setup_teardown(a_lost_rank_and_an_interrupt_end_a_call_that_hangs, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
