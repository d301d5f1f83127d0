/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lock_file.c: who holds a lock is named, and what the file system lacks is not taken for a
 * holder. */
#include "base/lock_file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "support/check.h"
#include "support/failing_flock.h"
#include "support/folder.h"

static char place[FOLDER_PATH], path[FOLDER_PATH + 16];
static rks_error err;

static atomic_int synced_files, synced_directories;

int fsync(int fd)
{
    struct stat of;
    if (fstat(fd, &of) == 0)
        atomic_fetch_add(S_ISDIR(of.st_mode) ? &synced_directories : &synced_files, 1);
    return (int)syscall(SYS_fsync, fd);
}

static int make_place(void **state)
{
    (void)state;
    atomic_store(&flock_fails_with, FLOCK_WORKS);
    assert_true(folder_make(place));
    snprintf(path, sizeof(path), "%s/a.lock", place);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    atomic_store(&flock_fails_with, FLOCK_WORKS);
    folder_remove(place);
    return 0;
}

static rks_lock_wish wish_of(bool optional)
{
    return (rks_lock_wish){.path = path, .held = "another test runs here", .optional = optional};
}

static rks_lock_file *must_take(bool optional)
{
    const rks_lock_wish wish = wish_of(optional);
    rks_lock_file *lock = NULL;
    assert_ok(rks_lock_file_take(&wish, &lock, &err), &err);
    return lock;
}

static void expect_refused(rks_status status, bool optional)
{
    const rks_lock_wish wish = wish_of(optional);
    rks_lock_file *lock = NULL;
    assert_fails(status, rks_lock_file_take(&wish, &lock, &err));
    assert_null(lock);
    assert_contains(err.text, path);
}

/* Another node asks whether the holder is of its job: on NFS it must see the file's name, too. */
static void a_lock_of_many_nodes_is_there_by_name_and_text(void **state)
{
    (void)state;
    rks_lock_wish wish = wish_of(false);
    rks_lock_file *lock = NULL;
    rks_lock_file_release(must_take(false)); /* of one process: its text alone */
    assert_int_equal(atomic_exchange(&synced_directories, 0), 0);
    atomic_store(&synced_files, 0);
    wish.job = 7;
    assert_ok(rks_lock_file_take(&wish, &lock, &err), &err);
    assert_int_equal(atomic_load(&synced_files), 1);
    assert_int_equal(atomic_load(&synced_directories), 1);
    rks_lock_file_release(lock);
}

static void a_holder_is_named(void **state)
{
    (void)state;
    char who[64];
    rks_lock_file *lock = must_take(false);
    expect_refused(RKS_ERR_STATE, false);
    snprintf(who, sizeof(who), "another test runs here (pid %ld on ", (long)getpid());
    assert_contains(err.text, who);
    expect_refused(RKS_ERR_STATE, true); /* what is held is held */
    rks_lock_file_release(lock);
    assert_int_not_equal(access(path, F_OK), 0);
    rks_lock_file_release(must_take(false));
    rks_lock_file_release(NULL);
}

static void what_a_killed_holder_left_is_taken_over(void **state)
{
    (void)state;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++)
        fputs("pid 1 on elsewhere\n", file);
    assert_int_equal(fclose(file), 0);
    rks_lock_file *lock = must_take(false);
    assert_true(rks_lock_file_is_ours(lock));
    rks_lock_file_release(lock);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void a_file_system_without_locks_is_named(void **state)
{
    (void)state;
    static const int errors[] = {ENOLCK, ENOSYS, EOPNOTSUPP};
    for (size_t i = 0; i < 3; i++) {
        atomic_store(&flock_fails_with, errors[i]);
        expect_refused(RKS_ERR_UNSUPPORTED, false);
        assert_int_equal(err.cause, errors[i]);
        assert_contains(err.text, "this file system has no locks");
        assert_contains(err.text, "no_lock");
        assert_null(strstr(err.text, "another"));
    }
}

static void without_locks_the_last_one_who_came_has_the_file(void **state)
{
    (void)state;
    atomic_store(&flock_fails_with, ENOLCK);
    rks_lock_file *first = must_take(true);
    assert_true(rks_lock_file_is_ours(first));
    rks_lock_file *second = must_take(true);
    assert_false(rks_lock_file_is_ours(first));
    assert_true(rks_lock_file_is_ours(second));
    rks_lock_file_release(first);
    assert_int_equal(access(path, F_OK), 0); /* the second's */
    rks_lock_file_release(second);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void another_error_is_told_with_the_path(void **state)
{
    (void)state;
    for (int optional = 0; optional < 2; optional++) {
        atomic_store(&flock_fails_with, EIO);
        expect_refused(RKS_ERR_IO, optional == 1);
        assert_int_equal(err.cause, EIO);
        assert_contains(err.text, strerror(EIO));
        assert_null(strstr(err.text, "another"));
    }
}

static void the_job_of_a_holder_is_found(void **state)
{
    (void)state;
    rks_lock_wish wish = wish_of(false);
    rks_lock_file *lock = NULL;
    wish.job = UINT64_C(0xfedcba9876543210);
    assert_fails(RKS_ERR_STATE, rks_lock_file_check_job(&wish, &err));
    assert_contains(err.text, "has just ended");
    assert_ok(rks_lock_file_take(&wish, &lock, &err), &err);
    assert_ok(rks_lock_file_check_job(&wish, &err), &err);
    wish.job++;
    assert_fails(RKS_ERR_STATE, rks_lock_file_check_job(&wish, &err));
    assert_contains(err.text, "another test runs here (pid ");
    wish.job = 0;
    assert_fails(RKS_ERR_STATE, rks_lock_file_check_job(&wish, &err));
    rks_lock_file_release(lock);
}

static void the_umask_counts_and_links_are_not_followed(void **state)
{
    (void)state;
    static const mode_t masks[] = {022, 077};
    for (size_t i = 0; i < 2; i++) {
        struct stat info;
        mode_t before = umask(masks[i]);
        rks_lock_file *lock = must_take(false);
        umask(before);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0644 & ~masks[i]);
        rks_lock_file_release(lock);
    }
    assert_int_equal(symlink("elsewhere", path), 0);
    expect_refused(RKS_ERR_IO, false);
}

static void survives_each_failing_allocation(void **state)
{
    (void)state;
    const rks_lock_wish wish = wish_of(false);
    for (int nth = 1; nth <= 2; nth++) {
        rks_lock_file *lock = NULL;
        rks_memory_fail_at(nth);
        assert_fails(RKS_ERR_MEMORY, rks_lock_file_take(&wish, &lock, &err));
        rks_memory_fail_at(0);
        assert_null(lock);
    }
}

static void *try_often(void *user)
{
    (void)user;
    const rks_lock_wish wish = wish_of(false);
    rks_error why;
    for (int i = 0; i < 3000; i++) {
        rks_lock_file *lock = NULL;
        if (rks_lock_file_take(&wish, &lock, &why) == RKS_OK)
            abort(); /* there are no locks */
    }
    return NULL;
}

/* One of them makes the file and removes it; another one that finds it gone does not make it anew
 * and leave it. */
static void many_that_are_refused_leave_no_file(void **state)
{
    (void)state;
    pthread_t threads[4];
    atomic_store(&flock_fails_with, ENOLCK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, try_often, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
#define WITH_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, remove_place)
    const struct CMUnitTest tests[] = {
        WITH_PLACE(a_holder_is_named),
        WITH_PLACE(a_lock_of_many_nodes_is_there_by_name_and_text),
        WITH_PLACE(what_a_killed_holder_left_is_taken_over),
        WITH_PLACE(a_file_system_without_locks_is_named),
        WITH_PLACE(without_locks_the_last_one_who_came_has_the_file),
        WITH_PLACE(another_error_is_told_with_the_path),
        WITH_PLACE(the_job_of_a_holder_is_found),
        WITH_PLACE(the_umask_counts_and_links_are_not_followed),
        WITH_PLACE(survives_each_failing_allocation),
        WITH_PLACE(many_that_are_refused_leave_no_file),
    };
    return cmocka_run_group_tests_name("lock_file", tests, NULL, NULL);
}
