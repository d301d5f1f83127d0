/* SPDX-License-Identifier: Apache-2.0
 *
 * test_scratch.c: large arrays in files without a name. */
#include "base/scratch.h"

#include <dirent.h>
#include <sys/resource.h>

#include "base/available_memory.h"
#include "base/memory.h"
#include "support/check.h"
#include "support/folder.h"

enum { COUNT = 100000 };

static char folder[FOLDER_PATH];
static rks_error err;

static int begin(void **state)
{
    (void)state;
    rks_scratch_memory_max(4096);
    return folder_make(folder) ? setenv("TMPDIR", folder, 1) : -1;
}

static int end(void **state)
{
    (void)state;
    rks_scratch_memory_max(0);
    return folder_remove(folder);
}

static size_t files_in(const char *path)
{
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count - 2;
}

static void use(const rks_scratch *scratch)
{
    uint64_t *numbers = scratch->bytes;
    assert_int_equal(scratch->size, COUNT * sizeof(*numbers));
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(numbers[i] == 0);
        numbers[i] = i * i;
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_true(numbers[i] == i * i);
}

static void large_arrays_lie_in_a_file_that_nobody_sees(void **state)
{
    (void)state;
    bool is_memory = false;
    rks_scratch scratch;
    long before = rks_memory_in_use();
    assert_ok(rks_scratch_take(COUNT, sizeof(uint64_t), NULL, &scratch, &err), &err);
    if (rks_shared_filesystem(folder, &is_memory) == NULL)
        assert_true(scratch.is_file);
    if (scratch.is_file)
        assert_int_equal(rks_memory_in_use(), before);
    assert_int_equal(files_in(folder), 0);
    use(&scratch);
    rks_scratch_give(&scratch);
    assert_null(scratch.bytes);
    assert_int_equal(rks_memory_in_use(), before);
    rks_scratch_give(&scratch); /* nothing is left to give */
}

static void small_ones_are_memory(void **state)
{
    (void)state;
    rks_scratch scratch;
    long before = rks_memory_in_use();
    assert_ok(rks_scratch_take(512, sizeof(uint64_t), folder, &scratch, &err), &err);
    assert_false(scratch.is_file);
    assert_int_equal(rks_memory_in_use(), before + 1);
    rks_scratch_give(&scratch);
    assert_ok(rks_scratch_take(0, sizeof(uint64_t), folder, &scratch, &err), &err);
    assert_non_null(scratch.bytes);
    rks_scratch_give(&scratch);
    assert_int_equal(rks_memory_in_use(), before);
}

/* As on a full disk. */
static void without_room_in_any_directory_it_is_memory(void **state)
{
    (void)state;
    rks_scratch scratch;
    struct rlimit was, few = {4096, RLIM_INFINITY};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    few.rlim_max = was.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    rks_status status = rks_scratch_take(COUNT, sizeof(uint64_t), folder, &scratch, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_ok(status, &err);
    assert_false(scratch.is_file);
    use(&scratch);
    rks_scratch_give(&scratch);
    assert_fails(RKS_ERR_MEMORY, rks_scratch_take(UINT64_MAX, 16, folder, &scratch, &err));
    assert_null(scratch.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_arrays_lie_in_a_file_that_nobody_sees),
        cmocka_unit_test(small_ones_are_memory),
        cmocka_unit_test(without_room_in_any_directory_it_is_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
