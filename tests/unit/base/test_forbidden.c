/* SPDX-License-Identifier: Apache-2.0
 *
 * test_forbidden.c: shared memory, and room for files, where memfd_create and fallocate are
 * forbidden. Each test is a forked child's, whose filters end with it. */
#include "support/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file_room.h"
#include "base/shared_memory.h"
#include "support/folder.h"
#include "support/forbid.h"

enum { NO_FILTERS = 77, PAGE = 4096, HELD = 4 * PAGE };

static char folder[FOLDER_PATH];
static rks_error err;

/* In a child: ends it with the line of what is not so. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__ % 70 + 1;                                                              \
    } while (0)

static void in_a_child(int (*test)(void))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(test());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_FILTERS)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int begin(void **state)
{
    (void)state;
    return folder_make(folder) ? setenv("TMPDIR", folder, 1) : -1;
}

static int end(void **state)
{
    (void)state;
    return folder_remove(folder);
}

static int64_t blocks_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 ? (int64_t)info.st_blocks * 512 : -1;
}

/* Holes get zeros, what is there stays, and so does the position. */
static int fill(void)
{
    char bytes[5] = "";
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || !forbid(SYS_fallocate, ENOSYS))
        return NO_FILTERS;
    HOLDS(pwrite(fd, "here", 4, 2 * PAGE) == 4);
    HOLDS(lseek(fd, 17, SEEK_SET) == 17);
    HOLDS(rks_file_take_room(fd, 0, HELD) == 0);
    HOLDS(lseek(fd, 0, SEEK_END) == HELD && blocks_of(fd) >= HELD);
    HOLDS(lseek(fd, 17, SEEK_SET) == 17);
    HOLDS(rks_file_take_room(fd, PAGE, HELD) == 0); /* behind its end, too */
    HOLDS(lseek(fd, 0, SEEK_CUR) == 17 && lseek(fd, 0, SEEK_END) == HELD + PAGE);
    HOLDS(pread(fd, bytes, 4, 2 * PAGE) == 4 && strcmp(bytes, "here") == 0);
    HOLDS(rks_file_take_room(fd, 0, 0) == 0);
    return 0;
}

static void room_is_made_of_zeros_without_fallocate(void **state)
{
    (void)state;
    in_a_child(fill);
}

static int pass_the_limit(void)
{
    const struct rlimit limit = {HELD, HELD};
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    HOLDS(fd >= 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
    HOLDS(rks_file_may_have(HELD) && !rks_file_may_have(HELD + 1));
    HOLDS(rks_file_take_room(fd, 1, HELD) == EFBIG && rks_file_take_room(fd, 0, HELD) == 0);
    return 0;
}

static void room_past_a_limit_is_an_error_and_no_signal(void **state)
{
    (void)state;
    in_a_child(pass_the_limit);
}

static int share(void)
{
    int fd = -1, growing = -1;
    if (!forbid(SYS_memfd_create, EPERM) || !forbid(SYS_fallocate, EPERM))
        return NO_FILTERS;
    HOLDS(rks_shared_memory("index", HELD, NULL, &fd, &err) == RKS_OK);
    HOLDS(blocks_of(fd) >= HELD);
    char *map = mmap(NULL, HELD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    HOLDS(map != MAP_FAILED && map[HELD - 1] == 0);
    HOLDS(rks_shared_memory_seal("index", fd, &err) == RKS_OK); /* there is nothing to seal */
    HOLDS(rks_shared_growing("epochs", &growing, &err) == RKS_OK);
    HOLDS(rks_shared_grow("epochs", growing, 16 * PAGE, HELD, &err) == RKS_OK);
    HOLDS(rks_shared_grow("epochs", growing, 0, PAGE, &err) == RKS_OK);
    HOLDS(blocks_of(growing) >= HELD + PAGE && lseek(growing, 0, SEEK_END) == 20 * PAGE);
    struct stat info;
    HOLDS(fstat(fd, &info) == 0 && info.st_nlink == 0); /* it has no name */
    return 0;
}

static void memory_is_an_unnamed_file_without_memfd_create(void **state)
{
    (void)state;
    in_a_child(share);
}

/* No file can be as large, so there is no place. */
static int share_too_much(void)
{
    const struct rlimit limit = {PAGE, PAGE};
    int fd = -1;
    if (!forbid(SYS_memfd_create, ENOSYS))
        return NO_FILTERS;
    HOLDS(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    HOLDS(rks_shared_memory("index", HELD, NULL, &fd, &err) == RKS_ERR_IO);
    HOLDS(err.cause == ENOSYS && strstr(err.text, "memfd_create") != NULL);
    HOLDS(strstr(err.text, "mount a tmpfs with room at /dev/shm") != NULL);
    return 0;
}

static void without_any_place_the_error_names_the_call(void **state)
{
    (void)state;
    in_a_child(share_too_much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_made_of_zeros_without_fallocate),
        cmocka_unit_test(room_past_a_limit_is_an_error_and_no_signal),
        cmocka_unit_test(memory_is_an_unnamed_file_without_memfd_create),
        cmocka_unit_test(without_any_place_the_error_names_the_call),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
