/* SPDX-License-Identifier: Apache-2.0
 *
 * available_memory.c: reads /proc and /sys/fs/cgroup, and asks statfs. */
#include "base/available_memory.h"

#include <limits.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Reads the number that follows `name` at the start of a line. An empty name means the first
 * line. */
static bool number_behind(const char *path, const char *name, uint64_t *number)
{
    char line[256];
    bool found = false;
    size_t size = strlen(name);
    FILE *file = fopen(path, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        char *end = line;
        if (strncmp(line, name, size) == 0)
            *number = strtoull(line + size, &end, 10);
        found = end > line + size;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

typedef struct version {
    const char *mark; /* marks this process's line in /proc/self/cgroup; the path follows */
    const char *folder;
    const char *limit, *usage, *cache;
    const char *in_use[2];         /* in memory.stat: what the kernel takes back if it must */
    const char *swap, *swap_usage; /* files of the group's own limit of swap; NULL: it has none */
    const char *period; /* file of the CPU limit's period; NULL if the limit's file holds it, too */
} version;

static const version memory_versions[] = {
    {.mark = "0::",
     .folder = "/sys/fs/cgroup",
     .limit = "memory.max",
     .usage = "memory.current",
     .cache = "inactive_file ",
     .in_use = {"active_file ", "slab_reclaimable "},
     .swap = "memory.swap.max",
     .swap_usage = "memory.swap.current"},
    {.mark = ":memory:",
     .folder = "/sys/fs/cgroup/memory",
     .limit = "memory.limit_in_bytes",
     .usage = "memory.usage_in_bytes",
     .cache = "total_inactive_file ",
     .in_use = {"total_active_file ", NULL}},
};

/* Finds this process's group: its path, or "" for the topmost one. */
static void find_group(const char *root, const version *v, char own[PATH_MAX])
{
    char path[PATH_MAX], line[PATH_MAX];
    own[0] = '\0';
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && own[0] == '\0' && fgets(line, sizeof(line), file) != NULL) {
        char *at = strstr(line, v->mark);
        line[strcspn(line, "\n")] = '\0';
        if (at != NULL && (v->mark[0] == ':' || at == line))
            snprintf(own, PATH_MAX, "%s", at + strlen(v->mark));
    }
    if (file != NULL)
        fclose(file);
    if (strcmp(own, "/") == 0)
        own[0] = '\0';
}

/* Reads a number of a group. Returns false if the file or the name is not there. */
static bool group_number(const char *root, const version *v, const char *group, const char *file,
                         const char *name, uint64_t *number)
{
    char path[2 * PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s%s%s/%s", root, v->folder, group, file);
    return number_behind(path, name, number);
}

static uint64_t less(uint64_t number, uint64_t by)
{
    return number - (by < number ? by : number);
}

/* Returns the bytes that one group leaves; UINT64_MAX if it sets no limit. */
static uint64_t group_leaves(const char *root, const version *v, const char *group)
{
    uint64_t limit, usage = 0, cache = 0;
    if (!group_number(root, v, group, v->limit, "", &limit)) /* also if it says "max" */
        return UINT64_MAX;
    group_number(root, v, group, v->usage, "", &usage);
    group_number(root, v, group, "memory.stat", v->cache, &cache);
    return less(limit, less(usage, cache));
}

static uint64_t free_swap(const char *root)
{
    char path[PATH_MAX];
    uint64_t kib = 0;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    number_behind(path, "SwapFree:", &kib);
    return kib << 10;
}

/* The same with what the kernel takes back before it kills a process of the group. */
static uint64_t group_can_give(const char *root, const version *v, const char *group)
{
    uint64_t leaves = group_leaves(root, v, group), swap = free_swap(root), limit, usage = 0, part;
    if (leaves == UINT64_MAX)
        return leaves;
    for (size_t i = 0; i < 2; i++)
        if (v->in_use[i] != NULL &&
            group_number(root, v, group, "memory.stat", v->in_use[i], &part))
            leaves += part;
    if (v->swap != NULL && group_number(root, v, group, v->swap, "", &limit)) {
        group_number(root, v, group, v->swap_usage, "", &usage);
        swap = less(limit, usage) < swap ? less(limit, usage) : swap;
    }
    return leaves + swap;
}

static uint64_t group_limit(const char *root, const version *v, const char *group)
{
    uint64_t limit;
    return group_number(root, v, group, v->limit, "", &limit) ? limit : UINT64_MAX;
}

/* Returns the least that this process's group and those above it give. */
static uint64_t least_of_groups(const char *root, const version *v,
                                uint64_t (*given)(const char *root, const version *v,
                                                  const char *group))
{
    char own[PATH_MAX];
    uint64_t least = UINT64_MAX;
    find_group(root, v, own);
    for (char *slash = own; slash != NULL;) {
        uint64_t one = given(root, v, own);
        least = one < least ? one : least;
        slash = strrchr(own, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    return least;
}

/* Returns the least that the groups of both versions give. */
static uint64_t least_of_versions(const char *root,
                                  uint64_t (*given)(const char *root, const version *v,
                                                    const char *group))
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof(memory_versions) / sizeof(memory_versions[0]); i++) {
        uint64_t one = least_of_groups(root, &memory_versions[i], given);
        least = one < least ? one : least;
    }
    return least;
}

/* Returns the least of what the machine and the groups give. `swap`: of the machine, to be added.
 */
static uint64_t least_memory(const char *root, uint64_t swap,
                             uint64_t (*given)(const char *root, const version *v,
                                               const char *group))
{
    char path[PATH_MAX];
    uint64_t least = least_of_versions(root, given), kib;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (number_behind(path, "MemAvailable:", &kib) && (kib << 10) + swap < least)
        least = (kib << 10) + swap;
    return least;
}

static const version process_versions[] = {
    {.mark = "0::", .folder = "/sys/fs/cgroup", .limit = "pids.max", .usage = "pids.current"},
    {.mark = ":pids:",
     .folder = "/sys/fs/cgroup/pids",
     .limit = "pids.max",
     .usage = "pids.current"},
};

static uint64_t group_starts(const char *root, const version *v, const char *group)
{
    uint64_t limit, usage = 0;
    if (!group_number(root, v, group, v->limit, "", &limit))
        return UINT64_MAX;
    group_number(root, v, group, v->usage, "", &usage);
    return less(limit, usage);
}

uint64_t rks_processes_available(const char *root)
{
    uint64_t second = least_of_groups(root, &process_versions[0], group_starts);
    uint64_t first = least_of_groups(root, &process_versions[1], group_starts);
    return second < first ? second : first;
}

uint64_t rks_memory_limit(const char *root)
{
    return least_of_versions(root, group_limit);
}

uint64_t rks_memory_available(const char *root)
{
    return least_memory(root, 0, group_leaves);
}

uint64_t rks_memory_obtainable(const char *root)
{
    return least_memory(root, free_swap(root), group_can_give);
}

static const version cpu_versions[] = {
    {.mark = ":cpu,cpuacct:",
     .folder = "/sys/fs/cgroup/cpu",
     .limit = "cpu.cfs_quota_us",
     .period = "cpu.cfs_period_us"},
    {.mark = "0::", .folder = "/sys/fs/cgroup", .limit = "cpu.max"},
};

/* Returns the cores that one group gives; UINT64_MAX if it sets no limit. */
static uint64_t group_cores(const char *root, const version *v, const char *group)
{
    char path[2 * PATH_MAX + 64], line[64] = "";
    snprintf(path, sizeof(path), "%s%s%s/%s", root, v->folder, group, v->limit);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return UINT64_MAX;
    bool read_it = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    char *end = line;
    uint64_t quota = strtoull(line, &end, 10); /* "max" and version 1's -1 are not numbers */
    if (!read_it || end == line || line[0] == '-')
        return UINT64_MAX;
    uint64_t period = strtoull(end, NULL, 10);
    if (v->period != NULL) {
        snprintf(path, sizeof(path), "%s%s%s/%s", root, v->folder, group, v->period);
        number_behind(path, "", &period);
    }
    return period == 0 ? UINT64_MAX : (quota + period / 2) / period;
}

uint32_t rks_cores_available(const char *root)
{
    cpu_set_t allowed;
    uint64_t least = UINT64_MAX;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
        least = (uint64_t)CPU_COUNT(&allowed);
    else if (sysconf(_SC_NPROCESSORS_ONLN) > 0) /* more cores than a cpu_set_t holds */
        least = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < sizeof(cpu_versions) / sizeof(cpu_versions[0]); i++) {
        uint64_t cores = least_of_groups(root, &cpu_versions[i], group_cores);
        least = cores < least ? cores : least;
    }
    return least == 0 || least == UINT64_MAX ? 1
           : least > UINT32_MAX              ? UINT32_MAX
                                             : (uint32_t)least;
}

/* FUSE counts as shared, since sshfs and mounted cloud buckets are FUSE, too. */
static const struct {
    uint32_t magic;
    const char *name;
    bool memory;
} filesystems[] = {
    {0x6969, "NFS", false},        {0x517b, "SMB", false},          {0xff534d42, "CIFS", false},
    {0xfe534d42, "SMB2", false},   {0x0bd00bd0, "Lustre", false},   {0x47504653, "GPFS", false},
    {0x5346414f, "AFS", false},    {0x6b414653, "AFS", false},      {0x00c36400, "Ceph", false},
    {0x01021997, "9P", false},     {0x01161970, "GFS2", false},     {0x7461636f, "OCFS2", false},
    {0x19830326, "BeeGFS", false}, {0x20030528, "OrangeFS", false}, {0x73757245, "Coda", false},
    {0xaad7aaea, "PanFS", false},  {0x65735546, "FUSE", false},     {0x786f4256, "vboxsf", false},
    {0x01021994, "tmpfs", true},   {0x858458f6, "ramfs", true},
};

const char *rks_shared_filesystem(const char *path, bool *memory)
{
    struct statfs kind;
    *memory = false;
    if (statfs(path, &kind) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof(filesystems) / sizeof(filesystems[0]); i++) {
        if (filesystems[i].magic == (uint32_t)kind.f_type) {
            *memory = filesystems[i].memory;
            return filesystems[i].name;
        }
    }
    return NULL;
}
