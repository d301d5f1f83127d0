/* SPDX-License-Identifier: Apache-2.0
 *
 * test_available.c: memory that control groups of both versions leave, from files as the kernel
 * writes them. */
#include "base/available.h"

#include "support/check.h"
#include "support/folder.h"

static char root[FOLDER_PATH];

/* Below the root; makes the folders. */
static void put(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int begin(void **state)
{
    (void)state;
    return folder_make(root) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return folder_remove(root);
}

static void without_groups_it_is_what_the_kernel_says(void **state)
{
    (void)state;
    assert_true(rks_memory_available(root) == UINT64_MAX);
    put("/proc/meminfo", "MemTotal:       1000 kB\nMemFree:   10 kB\nMemAvailable:    700 kB\n");
    assert_int_equal(rks_memory_available(root), 700 << 10);
}

static void a_group_leaves_its_limit_less_what_is_in_use(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:    700 kB\n");
    put("/proc/self/cgroup", "0::/job/rank\n");
    put("/sys/fs/cgroup/job/rank/memory.max", "max\n");
    assert_int_equal(rks_memory_available(root), 700 << 10);
    put("/sys/fs/cgroup/job/rank/memory.max", "500000\n");
    put("/sys/fs/cgroup/job/rank/memory.current", "300000\n");
    assert_int_equal(rks_memory_available(root), 200000);
    put("/sys/fs/cgroup/job/rank/memory.stat", "anon 1\nactive_file 7\ninactive_file 50000\n");
    assert_int_equal(rks_memory_available(root), 250000);
    put("/sys/fs/cgroup/job/memory.max", "400000\n"); /* of the job, which has other ranks */
    put("/sys/fs/cgroup/job/memory.current", "399000\n");
    assert_int_equal(rks_memory_available(root), 1000);
    put("/sys/fs/cgroup/job/memory.current", "450000\n"); /* the limit was lowered */
    assert_int_equal(rks_memory_available(root), 0);
}

static void a_container_sees_its_group_as_the_topmost_one(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/memory.max", "90000\n");
    put("/sys/fs/cgroup/memory.current", "30000\n");
    assert_int_equal(rks_memory_available(root), 60000);
}

static void groups_of_version_1_count_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "80000\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "30000\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.stat",
        "inactive_file 1\ntotal_inactive_file 20000\n");
    assert_int_equal(rks_memory_available(root), 70000);
}

static void a_path_that_is_not_there_is_on_no_shared_file_system(void **state)
{
    (void)state;
    bool memory = true;
    assert_null(rks_shared_filesystem("/proc/no such file", &memory));
    assert_false(memory);
    assert_true(rks_memory_available("") > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_groups_it_is_what_the_kernel_says, begin, end),
        cmocka_unit_test_setup_teardown(a_group_leaves_its_limit_less_what_is_in_use, begin, end),
        cmocka_unit_test_setup_teardown(a_container_sees_its_group_as_the_topmost_one, begin, end),
        cmocka_unit_test_setup_teardown(groups_of_version_1_count_too, begin, end),
        cmocka_unit_test(a_path_that_is_not_there_is_on_no_shared_file_system),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
