/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: what this machine and job offer, each finding with what to do about it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <jansson.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"
#include "group/group.h"

static void add(json_t *list, const char *name, bool ok, const char *advice, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

static void add(json_t *list, const char *name, bool ok, const char *advice, const char *format,
                ...)
{
    char value[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s}", "name", name, "ok", ok, "value",
                                          value, "advice", advice == NULL ? "" : advice));
}

static void add_launcher(json_t *list, rks_group *group)
{
    if (group != NULL) {
        add(list, "ranks", true, NULL, "rank %u of %u, node %u of %u (%s)", rks_group_rank(group),
            rks_group_size(group), rks_group_node(group), rks_group_nodes(group),
            rks_group_bootstrap(group)->name);
        return;
    }
    const char *launcher = rks_mpi_detected()                      ? "Open MPI"
                           : getenv("TORCHELASTIC_RUN_ID") != NULL ? "torchrun"
                           : getenv("SLURM_STEP_ID") != NULL       ? "srun"
                                                                   : "none: one rank, or -j N";
    add(list, "launcher", true, NULL, "%s", launcher);
}

static void add_mpi(json_t *list)
{
    rks_error err;
    if (rks_mpi_load(&err) != NULL)
        add(list, "mpi", true, NULL, "usable");
    else
        add(list, "mpi", !rks_mpi_detected(),
            "needed under mpirun only; build with Open MPI installed, or set RKS_MPI_MODULE",
            "not usable: %s", err.text);
}

static void add_interfaces(json_t *list)
{
    struct ifaddrs *interfaces = NULL;
    char text[400] = "";
    size_t used = 0;
    if (getifaddrs(&interfaces) != 0) {
        add(list, "interfaces", false, "ranks on other nodes cannot be reached", "%s",
            strerror(errno));
        return;
    }
    for (struct ifaddrs *one = interfaces; one != NULL; one = one->ifa_next) {
        char address[INET6_ADDRSTRLEN];
        if (one->ifa_addr == NULL || (one->ifa_flags & IFF_UP) == 0 ||
            one->ifa_addr->sa_family != AF_INET)
            continue;
        const struct sockaddr_in *ip = (const struct sockaddr_in *)(const void *)one->ifa_addr;
        inet_ntop(AF_INET, &ip->sin_addr, address, sizeof(address));
        if (used < sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s",
                                     used == 0 ? "" : ", ", one->ifa_name, address);
    }
    freeifaddrs(interfaces);
    add(list, "interfaces", used > 0, used > 0 ? NULL : "bring a network interface up", "%s", text);
}

static void add_limits(json_t *list)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    add(list, "open files", limit.rlim_cur >= 1024,
        limit.rlim_cur >= 1024
            ? NULL
            : "a rank needs a few descriptors for each shard and peer: ulimit -n 4096",
        "%" PRIu64, (uint64_t)limit.rlim_cur);
    getrlimit(RLIMIT_AS, &limit);
    add(list, "address space", limit.rlim_cur == RLIM_INFINITY,
        limit.rlim_cur == RLIM_INFINITY ? NULL : "shards are mapped whole: ulimit -v unlimited",
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : "%" PRIu64 " bytes",
        (uint64_t)limit.rlim_cur);
    getrlimit(RLIMIT_MEMLOCK, &limit);
    add(list, "locked memory", true, NULL,
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : "%" PRIu64 " bytes",
        (uint64_t)limit.rlim_cur);
    static const char *const files[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(files[i], "re");
        char text[64] = "";
        if (file == NULL)
            continue;
        if (fgets(text, sizeof(text), file) != NULL) {
            text[strcspn(text, "\n")] = '\0';
            add(list, "cgroup memory", true, NULL, "%s", text);
        }
        fclose(file);
    }
    add(list, "cores", true, NULL, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    add(list, "memory", true, NULL, "%ld MiB",
        sysconf(_SC_PHYS_PAGES) / 1024 * sysconf(_SC_PAGESIZE) / 1024);
}

static void add_secret(json_t *list)
{
    const char *path = getenv("RKS_SECRET_FILE");
    uint8_t secret[RKS_SECRET_SIZE];
    rks_error err;
    if (path == NULL) {
        add(list, "secret", true,
            "it stops strangers and scanners, not somebody who can read the launcher's store; for "
            "that set "
            "RKS_SECRET_FILE to a 0600 file of 32 random bytes",
            "drawn by rank 0 and handed round by the launcher");
        return;
    }
    bool ok = rks_secret_read(path, secret, &err) == RKS_OK;
    rks_wipe(secret, sizeof(secret));
    add(list, "secret", ok, ok ? NULL : "head -c 32 /dev/urandom > FILE; chmod 600 FILE", "%s",
        ok ? path : err.text);
}

enum { TRIAL = 32 << 20 };

/* Writes 32 MiB, synced, into a file without a name, and reads it back. */
static void try_disk(json_t *list, const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        add(list, "disk speed", false, "a build needs a directory that it may write to", "%s: %s",
            directory, strerror(errno));
        return;
    }
    rks_error err;
    uint8_t *bytes = rks_alloc(TRIAL, 1, &err);
    if (bytes != NULL && rks_random(bytes, 1 << 20, &err) == RKS_OK) {
        uint64_t begun = rks_now_ns();
        rks_status status = rks_file_write(fd, directory, bytes, TRIAL, &err);
        if (status == RKS_OK && fdatasync(fd) != 0)
            status = rks_fail_errno(&err, errno, "%s", directory);
        double seconds = (double)(rks_now_ns() - begun) / 1e9;
        if (status == RKS_OK)
            add(list, "disk speed", true, NULL, "%.0f MB/s written and synced",
                TRIAL / 1e6 / seconds);
        else
            add(list, "disk speed", false, "make room, or build elsewhere", "%s", err.text);
    }
    rks_free(bytes);
    close(fd);
}

static void add_directory(json_t *list, const char *directory)
{
    struct statvfs room;
    struct statfs kind;
    if (statvfs(directory, &room) != 0 || statfs(directory, &kind) != 0) {
        add(list, "directory", false, "make it, or name another one", "%s: %s", directory,
            strerror(errno));
        return;
    }
    uint64_t bytes = (uint64_t)room.f_bavail * room.f_frsize;
    add(list, "free space", bytes > UINT64_C(1) << 30,
        bytes > UINT64_C(1) << 30 ? NULL : "a build needs about the size of its input",
        "%" PRIu64 " MiB", bytes >> 20);
    bool network = kind.f_type == 0x6969 || kind.f_type == 0x0bd00bd0 || kind.f_type == 0xff534d42;
    add(list, "file system", !network, network ? "shards belong on a disk of the node" : NULL,
        network ? "network" : "local");
    try_disk(list, directory);
}

rks_status rks_doctor_json(rks_group *group, const char *directory, char **json, rks_error *err)
{
    struct utsname machine;
    json_t *list = json_array();
    uname(&machine);
    add(list, "rankstore", true, NULL, "%s", rks_version());
    add(list, "machine", true, NULL, "%s, Linux %s", machine.nodename, machine.release);
    add_launcher(list, group);
    add_mpi(list);
    add_interfaces(list);
    add_limits(list);
    add_secret(list);
    if (directory != NULL)
        add_directory(list, directory);
    char *text = json_dumps(list, JSON_INDENT(2));
    json_decref(list);
    if (text == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: findings");
    *json = rks_strdup(text, err);
    free(text);
    return *json == NULL ? RKS_ERR_MEMORY : RKS_OK;
}
