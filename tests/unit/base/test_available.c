/* SPDX-License-Identifier: Apache-2.0
 *
 * test_available.c: memory, processes and cores that control groups of both versions leave, from
 * files as the kernel writes them. */
#include "base/available_memory.h"

#include <sched.h>

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

static void a_group_leaves_processes_to_start(void **state)
{
    (void)state;
    assert_true(rks_processes_available(root) == UINT64_MAX);
    put("/proc/self/cgroup", "0::/job/rank\n");
    put("/sys/fs/cgroup/job/rank/pids.max", "max\n");
    put("/sys/fs/cgroup/job/rank/pids.current", "30\n");
    assert_true(rks_processes_available(root) == UINT64_MAX);
    put("/sys/fs/cgroup/job/pids.max", "100\n");
    put("/sys/fs/cgroup/job/pids.current", "90\n");
    assert_int_equal(rks_processes_available(root), 10);
    put("/proc/self/cgroup", "9:memory:/\n8:pids:/one\n0::/\n");
    put("/sys/fs/cgroup/pids/one/pids.max", "12\n");
    put("/sys/fs/cgroup/pids/one/pids.current", "15\n");
    assert_int_equal(rks_processes_available(root), 0);
}

static void the_limit_is_the_lowest_of_all_groups(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/limits/one\n0::/limits\n");
    assert_true(rks_memory_limit(root) == UINT64_MAX);
    put("/sys/fs/cgroup/memory/limits/memory.limit_in_bytes", "700000\n");
    put("/sys/fs/cgroup/memory/limits/one/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(rks_memory_limit(root), 700000);
    put("/sys/fs/cgroup/limits/memory.max", "600000\n");
    assert_int_equal(rks_memory_limit(root), 600000);
    put("/sys/fs/cgroup/limits/memory.max", "max\n");
    put("/sys/fs/cgroup/memory/limits/one/memory.limit_in_bytes", "500000\n");
    assert_int_equal(rks_memory_limit(root), 500000);
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

/* Pages of shards that are read are in use, and fill a job's group: they are no reason to refuse.
 */
static void what_the_kernel_takes_back_is_obtainable(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemAvailable:    700 kB\nSwapFree:   0 kB\n");
    put("/proc/self/cgroup", "0::/job\n");
    assert_int_equal(rks_memory_obtainable(root), 700 << 10);
    put("/sys/fs/cgroup/job/memory.max", "500000\n");
    put("/sys/fs/cgroup/job/memory.current", "499000\n");
    put("/sys/fs/cgroup/job/memory.stat", "anon 90000\ninactive_file 50000\nactive_file 300000\n"
                                          "slab_reclaimable 2000\n");
    assert_int_equal(rks_memory_available(root), 51000);
    assert_int_equal(rks_memory_obtainable(root), 353000);
    put("/proc/meminfo", "MemAvailable:    300 kB\nSwapFree:   100 kB\n");
    assert_int_equal(rks_memory_obtainable(root), 400 << 10);
    put("/proc/meminfo", "MemAvailable:    700 kB\nSwapFree:   100 kB\n");
    assert_int_equal(rks_memory_obtainable(root), 353000 + (100 << 10)); /* it may use all swap */
    put("/sys/fs/cgroup/job/memory.swap.max", "max\n");
    assert_int_equal(rks_memory_obtainable(root), 353000 + (100 << 10));
    put("/sys/fs/cgroup/job/memory.swap.max", "30000\n");
    put("/sys/fs/cgroup/job/memory.swap.current", "10000\n");
    assert_int_equal(rks_memory_obtainable(root), 373000);
    put("/sys/fs/cgroup/job/memory.swap.max", "0\n");
    assert_int_equal(rks_memory_obtainable(root), 353000);
    put("/proc/self/cgroup", "9:memory:/old\n");
    put("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "80000\n");
    put("/sys/fs/cgroup/memory/old/memory.usage_in_bytes", "79000\n");
    put("/sys/fs/cgroup/memory/old/memory.stat",
        "total_inactive_file 20000\ntotal_active_file 30000\n");
    put("/proc/meminfo", "MemAvailable:    700 kB\nSwapFree:   0 kB\n");
    assert_int_equal(rks_memory_obtainable(root), 51000);
    assert_true(rks_memory_obtainable("") > 0);
}

static void a_path_that_is_not_there_is_on_no_shared_file_system(void **state)
{
    (void)state;
    bool memory = true;
    assert_null(rks_shared_filesystem("/proc/no such file", &memory));
    assert_false(memory);
    assert_true(rks_memory_available("") > 0);
}

/* ---- cores ---- */

static uint32_t allowed_cores(void)
{
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    return (uint32_t)CPU_COUNT(&allowed);
}

static void without_groups_cores_are_those_of_the_affinity(void **state)
{
    (void)state;
    assert_int_equal(rks_cores_available(root), allowed_cores());
    put("/proc/self/cgroup", "0::/job\n4:cpu,cpuacct:/job\n");
    put("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(rks_cores_available(root), allowed_cores());
}

static void a_group_s_time_bounds_the_cores(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/job/rank\n");
    put("/sys/fs/cgroup/job/rank/cpu.max", "100000000 100000\n"); /* 1,000 cores */
    assert_int_equal(rks_cores_available(root), allowed_cores());
    put("/sys/fs/cgroup/job/cpu.max",
        "120000 100000\n"); /* the job's is smaller, and rounds down */
    assert_int_equal(rks_cores_available(root), 1);
    put("/sys/fs/cgroup/job/cpu.max", "10000 100000\n"); /* a tenth is one thread still */
    assert_int_equal(rks_cores_available(root), 1);
    put("/sys/fs/cgroup/job/cpu.max", "nonsense\n");
    assert_int_equal(rks_cores_available(root), allowed_cores());
}

static void a_group_of_version_1_bounds_them_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu,cpuacct:/job\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(rks_cores_available(root), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_limit_is_the_lowest_of_all_groups, begin, end),
        cmocka_unit_test_setup_teardown(without_groups_it_is_what_the_kernel_says, begin, end),
        cmocka_unit_test_setup_teardown(a_group_leaves_its_limit_less_what_is_in_use, begin, end),
        cmocka_unit_test_setup_teardown(a_container_sees_its_group_as_the_topmost_one, begin, end),
        cmocka_unit_test_setup_teardown(groups_of_version_1_count_too, begin, end),
        cmocka_unit_test_setup_teardown(a_group_leaves_processes_to_start, begin, end),
        cmocka_unit_test_setup_teardown(what_the_kernel_takes_back_is_obtainable, begin, end),
        cmocka_unit_test_setup_teardown(without_groups_cores_are_those_of_the_affinity, begin, end),
        cmocka_unit_test_setup_teardown(a_group_s_time_bounds_the_cores, begin, end),
        cmocka_unit_test_setup_teardown(a_group_of_version_1_bounds_them_too, begin, end),
        cmocka_unit_test(a_path_that_is_not_there_is_on_no_shared_file_system),
    };
    return cmocka_run_group_tests_name("available", tests, NULL, NULL);
}
