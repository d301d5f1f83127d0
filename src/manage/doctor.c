/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: what this machine and job offer, each finding with what to do about it: a table of
 * probes, each of which adds its findings. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <jansson.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/c_locale.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/secret.h"
#include "base/simdjson.h"
#include "base/utf8.h"
#include "codec/archive.h"
#include "exchange/exchange.h"
#include "group/group.h"
#include "group/slurm_step.h"
#include "home/address.h"
#include "manage/store_trial.h"
#include "manage/system_calls.h"
#include "rankstore/verify.h"
#include "shard/lmdb_env.h"
#include "transport/engine.h"
#include "transport/listener.h"
#include "transport/tcp.h"

typedef struct visit {
    rks_group *group;      /* NULL: no job */
    const char *directory; /* or a store's URL; NULL: none */
    json_t *findings;
} visit;

static void add(visit *v, const char *name, bool ok, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void add(visit *v, const char *name, bool ok, const char *advice, const char *format, ...)
{
    char value[512];
    va_list arguments;
    va_start(arguments, format);
    rks_vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    /* Names of files may hold any bytes, and a cut may divide a character. */
    for (size_t bad; !rks_utf8_valid(value, strlen(value), &bad);)
        value[bad] = '?';
    json_array_append_new(v->findings,
                          json_pack("{s:s, s:b, s:s, s:s}", "name", name, "ok", ok, "value", value,
                                    "advice", advice == NULL ? "" : advice));
}

/* ---- what runs ------------------------------------------------------------------------------ */

static void probe_versions(visit *v)
{
    struct utsname machine;
    uname(&machine);
    add(v, "rankstore", true, NULL, "%s", rks_version());
    add(v, "machine", true, NULL, "%s, Linux %s, %s", machine.nodename, machine.release,
        machine.machine);
    add(v, "libraries", true, NULL,
        "LMDB %s, xxHash %s, simdjson %s, jansson %s, libuv %s, libsodium %s, glibc %s",
        rks_lmdb_version(), rks_checksum_version(), rks_simdjson_version(), jansson_version_str(),
        rks_tcp_library(), rks_secret_library(), gnu_get_libc_version());
    add(v, "archives", true, NULL, "%s", rks_archive_library());
}

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? "" : text;
}

/* Python programs look for these first. */
static bool is_torch(void)
{
    return getenv("RANK") != NULL && getenv("WORLD_SIZE") != NULL &&
           getenv("MASTER_ADDR") != NULL && getenv("MASTER_PORT") != NULL;
}

/* Adds the launcher. Returns how many ranks it started, as text; NULL: it does not say. */
static const char *add_launcher(visit *v)
{
    rks_error why;
    const char *size = NULL, *name = "none: one rank, or -j N";
    if (is_torch()) {
        name = getenv("TORCHELASTIC_RUN_ID") != NULL ? "torchrun" : "torchrun's variables";
        size = getenv("WORLD_SIZE");
    } else if (rks_mpi_detected()) {
        name = "Open MPI";
        size = getenv("OMPI_COMM_WORLD_SIZE");
    } else if (getenv("SLURM_STEP_ID") != NULL) {
        name = "srun";
        size = getenv("SLURM_STEP_NUM_TASKS");
    } else if (rks_launcher_check(&why) != RKS_OK) {
        add(v, "launcher", false,
            "in Python, also: rankstore.init(mpi4py.MPI.COMM_WORLD), a communicator of that MPI",
            "%s", why.text);
        return NULL;
    }
    add(v, "launcher", true, NULL, "%s%s%s", name,
        size == NULL ? "" : ", ranks: ", size == NULL ? "" : size);
    return size;
}

/* What a Python program will do, which this command cannot: torch's store needs torch. */
static void add_torch_ranks(visit *v, const char *size)
{
    bool one_node = strcmp(variable("LOCAL_WORLD_SIZE"), size) == 0;
    const char *listen = getenv("RKS_LISTEN");
    char interface[32];
    rks_error err;
    add(v, "ranks", true,
        "Python programs join them; this command cannot: start it with mpirun, srun or -j N",
        "rank %.20s of %.20s; they meet in torch's store at %.200s, port %.20s", variable("RANK"),
        size, variable("MASTER_ADDR"), variable("MASTER_PORT"));
    if (listen == NULL && !one_node && rks_interface_find(interface, &err) != RKS_OK)
        add(v, "transport", false, "set RKS_LISTEN on every node", "%s", err.text);
    else
        add(v, "transport", true, NULL, "samples by TCP on %s; index: %s",
            listen != NULL ? listen
            : one_node     ? "loopback"
                           : interface,
            one_node ? "shared" : "pull");
}

static void add_ranks(visit *v, const char *size)
{
    uint32_t ranks = rks_group_size(v->group);
    bool seen = size == NULL || strtoul(size, NULL, 10) == ranks;
    add(v, "ranks", seen,
        seen ? NULL
             : "the launcher started another number of ranks than found each other: start all of "
               "them with one launcher",
        "rank %u of %u, node %u of %u (%s)", rks_group_rank(v->group), ranks,
        rks_group_node(v->group), rks_group_nodes(v->group), rks_group_bootstrap(v->group)->name);
    if (ranks == 1)
        return;
    char address[64];
    rks_address_format(rks_engine_address(rks_group_engine(v->group)), address, sizeof(address));
    add(v, "transport", true, NULL, "samples by TCP at %s, %s; index: %s", address,
        rks_group_encrypts(v->group)    ? "encrypted"
        : rks_group_nodes(v->group) > 1 ? "authenticated between hosts"
                                        : "plain on one host",
        rks_group_nodes(v->group) == 1 ? "shared" : rks_exchange_expected(v->group));
}

static void probe_launcher(visit *v)
{
    const char *size = add_launcher(v);
    if (v->group != NULL)
        add_ranks(v, size);
    else if (is_torch() && strtoul(size, NULL, 10) > 1)
        add_torch_ranks(v, size);
}

static void probe_mpi(visit *v)
{
    rks_error err;
    const rks_mpi_ops *mpi = rks_mpi_load(&err);
    char library[128];
    if (mpi != NULL) {
        mpi->library(library, sizeof(library));
        add(v, "mpi", true, NULL, "usable: %s", library);
        return;
    }
    add(v, "mpi", !rks_mpi_detected(),
        "needed under mpirun only: build with Open MPI installed, or set RKS_MPI_MODULE",
        "not usable: %s", err.text);
}

static void probe_nccl(visit *v)
{
    char text[192] = "";
    const char *advice = "not needed: the index travels by MPI or TCP then";
    bool usable = rks_exchange_nccl_usable(text);
    if (usable)
        advice = NULL;
    else if (strncmp(text, "no NCCL", 7) == 0)
        advice =
            "not needed: the index travels by MPI or TCP then; RKS_NCCL_LIBRARY names a "
            "libnccl.so.2, and NVIDIA's Python package has it in site-packages/nvidia/nccl/lib";
    add(v, "nccl", true, advice, "%s%s", usable ? "usable: " : "not usable: ", text);
}

/* ---- the network ----------------------------------------------------------------------------- */

static void probe_interfaces(visit *v)
{
    const char *listen = getenv("RKS_LISTEN");
    struct ifaddrs *interfaces = NULL;
    char text[400] = "";
    size_t used = 0;
    bool found = listen == NULL;
    if (getifaddrs(&interfaces) != 0) {
        add(v, "interfaces", false, "ranks on other nodes cannot be reached", "%s",
            strerror(errno));
        return;
    }
    for (struct ifaddrs *one = interfaces; one != NULL; one = one->ifa_next) {
        char address[INET6_ADDRSTRLEN];
        if (one->ifa_addr == NULL || (one->ifa_flags & IFF_UP) == 0 ||
            (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
            continue;
        const void *ip =
            one->ifa_addr->sa_family == AF_INET
                ? (const void *)&((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr
                : &((const struct sockaddr_in6 *)(const void *)one->ifa_addr)->sin6_addr;
        inet_ntop(one->ifa_addr->sa_family, ip, address, sizeof(address));
        found = found || strcmp(listen, one->ifa_name) == 0 || strcmp(listen, address) == 0;
        if (used < sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s",
                                     used == 0 ? "" : ", ", one->ifa_name, address);
    }
    freeifaddrs(interfaces);
    add(v, "interfaces", used > 0, used > 0 ? NULL : "bring a network interface up", "%s", text);
    if (listen != NULL)
        add(v, "RKS_LISTEN", found,
            found ? NULL : "name one of the interfaces or addresses above, or unset it", "%s",
            listen);
}

static void probe_secret(visit *v)
{
    const char *path = getenv("RKS_SECRET_FILE"), *directory = getenv("RKS_JOB_DIR");
    uint8_t secret[RKS_SECRET_SIZE];
    rks_error err;
    if (path == NULL) {
        add(v, "secret", true,
            directory != NULL
                ? NULL
                : "they stop strangers, and those who read the launcher's store, not somebody who "
                  "can "
                  "write it; for that set RKS_SECRET_FILE to a 0600 file of 32 random bytes, or "
                  "RKS_JOB_DIR to a directory that all ranks see",
            "%s", directory != NULL ? directory : "none; ranks trust the keys of the launcher");
        return;
    }
    bool ok = rks_secret_read(path, secret, &err) == RKS_OK;
    rks_wipe(secret, sizeof(secret));
    add(v, "secret", ok, ok ? NULL : "head -c 32 /dev/urandom > FILE; chmod 600 FILE", "%s",
        ok ? path : err.text);
}

/* ---- limits ---------------------------------------------------------------------------------- */

enum { PROCESSES_MIN = 256 }; /* threads count */

/* `least` 0: any value is enough. */
static void add_limit(visit *v, const char *name, int resource, uint64_t least, const char *unit,
                      const char *advice)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0)
        return;
    bool free = limit.rlim_cur == RLIM_INFINITY;
    bool ok = free || (uint64_t)limit.rlim_cur >= least;
    if (free)
        add(v, name, true, NULL, "unlimited");
    else
        add(v, name, ok, ok ? NULL : advice, "%" PRIu64 "%s", (uint64_t)limit.rlim_cur, unit);
}

static void probe_limits(visit *v)
{
    add_limit(v, "open files", RLIMIT_NOFILE, 1024, "",
              "a rank needs a few descriptors for each shard and peer: ulimit -n 4096");
    add_limit(v, "processes", RLIMIT_NPROC, PROCESSES_MIN, "",
              "ranks and their threads count: ulimit -u 4096");
    add_limit(v, "address space", RLIMIT_AS, UINT64_MAX, " bytes",
              "shards are mapped whole: ulimit -v unlimited");
    add_limit(v, "file size", RLIMIT_FSIZE, UINT64_MAX, " bytes",
              "a shard is one file: ulimit -f unlimited");
    add_limit(v, "locked memory", RLIMIT_MEMLOCK, 0, " bytes", NULL);
    add(v, "cores", true, NULL, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    add(v, "memory", true, NULL, "%ld MiB",
        sysconf(_SC_PHYS_PAGES) / 1024 * sysconf(_SC_PAGESIZE) / 1024);
}

static void probe_system_calls(visit *v)
{
    rks_system_calls found;
    rks_system_calls_try(&found);
    add(v, "system calls", !found.bad, found.instead, "%s%s",
        found.forbidden[0] == '\0' ? "none that is needed is forbidden" : "forbidden: ",
        found.forbidden);
    bool there = access("/proc/self/fd", F_OK) == 0;
    add(v, "/proc", there,
        there ? NULL
              : "mount it: without it each rank keeps its own copy of the index and of epochs, and "
                "limits of control groups are not seen",
        there ? "mounted" : "not mounted");
}

static void probe_cgroup(visit *v)
{
    uint64_t least = rks_memory_limit("");
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    bool bounded = least < all, ok = !bounded || least >= UINT64_C(1) << 30;
    if (bounded)
        add(v, "cgroup memory", ok,
            ok ? NULL
               : "batches ahead (1 GiB by default) need more: raise it, or set prefetch_bytes",
            "%" PRIu64 " MiB", least >> 20);
    else
        add(v, "cgroup memory", true, NULL, "no limit below the machine's");
}

static void probe_processes(visit *v)
{
    uint64_t left = rks_processes_available("");
    if (left == UINT64_MAX)
        add(v, "cgroup processes", true, NULL, "no limit");
    else
        add(v, "cgroup processes", left >= PROCESSES_MIN,
            left >= PROCESSES_MIN ? NULL : "ranks and their threads count: raise pids.max",
            "%" PRIu64 " more", left);
}

/* ---- places ---------------------------------------------------------------------------------- */

static void add_place(visit *v, const char *name, const char *path, uint64_t least,
                      const char *advice)
{
    struct statvfs room;
    if (statvfs(path, &room) != 0 || access(path, W_OK | X_OK) != 0) {
        add(v, name, false, advice, "%s: %s", path, strerror(errno));
        return;
    }
    uint64_t bytes = (uint64_t)room.f_bavail * room.f_frsize;
    add(v, name, bytes >= least, bytes >= least ? NULL : advice, "%s: %" PRIu64 " MiB free", path,
        bytes >> 20);
}

static void probe_temporary(visit *v)
{
    const char *path = getenv("TMPDIR");
    struct statvfs room;
    rks_system_calls found;
    rks_system_calls_try(&found);
    const char *need = strstr(found.forbidden, "memfd_create") == NULL
                           ? "Rankstore needs none of it; data loaders with worker processes do"
                           : "memory that ranks share lies there if it has room, else in TMPDIR";
    if (statvfs("/dev/shm", &room) == 0)
        add(v, "/dev/shm", true, need, "%" PRIu64 " MiB free",
            ((uint64_t)room.f_bavail * room.f_frsize) >> 20);
    else
        add(v, "/dev/shm", true, need, "%s", strerror(errno));
    add_place(v, "TMPDIR", path == NULL ? "/tmp" : path, UINT64_C(64) << 20,
              "gathers write their results there: set TMPDIR to a directory with room");
}

enum { TRIAL = 32 << 20 };

/* Writes 32 MiB and syncs them. Returns how many seconds it took. */
static rks_status time_writing(int fd, const char *directory, const uint8_t *bytes, double *seconds,
                               rks_error *err)
{
    uint64_t begun = rks_now_ns();
    rks_status status = rks_file_write(fd, directory, bytes, TRIAL, err);
    if (status == RKS_OK && fdatasync(fd) != 0)
        status = rks_fail_errno(err, errno, "%s", directory);
    *seconds = (double)(rks_now_ns() - begun) / 1e9;
    return status;
}

/* Reads them back, from the disk if the page cache drops them. */
static rks_status time_reading(int fd, const char *directory, uint8_t *bytes, double *seconds,
                               rks_error *err)
{
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    uint64_t begun = rks_now_ns();
    rks_status status = rks_file_read_at(fd, directory, 0, bytes, TRIAL, err);
    *seconds = (double)(rks_now_ns() - begun) / 1e9;
    return status;
}

/* Tries the disk with a file without a name. */
static void try_disk(visit *v, const char *directory)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        add(v, "disk speed", false, "a build needs a directory that it may write to", "%s: %s",
            directory, strerror(errno));
        return;
    }
    rks_error err;
    uint8_t *bytes = rks_alloc(TRIAL, 1, &err);
    if (bytes != NULL && rks_random(bytes, 1 << 20, &err) == RKS_OK) {
        double writing = 0, reading = 0;
        rks_status status = time_writing(fd, directory, bytes, &writing, &err);
        if (status == RKS_OK)
            status = time_reading(fd, directory, bytes, &reading, &err);
        if (status == RKS_OK)
            add(v, "disk speed", true, NULL, "%.0f MB/s written and synced, %.0f MB/s read back",
                TRIAL / 1e6 / writing, TRIAL / 1e6 / reading);
        else
            add(v, "disk speed", false, "make room, or build elsewhere", "%s", err.text);
    }
    rks_free(bytes);
    close(fd);
}

static void add_trial(void *user, const char *name, bool ok, const char *advice, const char *value)
{
    add(user, name, ok, advice, "%s", value);
}

static void probe_directory(visit *v)
{
    struct statfs kind;
    rks_home_address address;
    rks_error err = {0};
    if (v->directory == NULL)
        return;
    if (rks_home_address_of(v->directory, &address, &err) != RKS_OK) {
        add(v, "store", false, "name it as s3://bucket/folder", "%s", err.text);
        return;
    }
    if (address.stored) {
        rks_store_try(address.path, add_trial, v);
        return;
    }
    v->directory = address.path;
    if (statfs(v->directory, &kind) != 0) {
        add(v, "directory", false, "make it, or name another one", "%s: %s", v->directory,
            strerror(errno));
        return;
    }
    add_place(v, "free space", v->directory, UINT64_C(1) << 30,
              "a build needs about the size of its input: make room, or name another directory");
    bool memory, network = rks_shared_filesystem(v->directory, &memory) != NULL && !memory;
    add(v, "file system", !network, network ? "shards belong on a disk of the node" : NULL,
        network ? "network" : "local");
    try_disk(v, v->directory);
}

/* In the order in which a person would look. */
static void (*const probes[])(visit *v) = {
    probe_versions,   probe_launcher,  probe_mpi,       probe_nccl,
    probe_interfaces, probe_secret,    probe_limits,    probe_system_calls,
    probe_cgroup,     probe_processes, probe_temporary, probe_directory,
};

rks_status rks_doctor_json(rks_group *group, const char *directory, char **json, rks_error *err)
{
    visit v = {.group = group, .directory = directory, .findings = json_array()};
    for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++)
        probes[i](&v);
    char *text = json_dumps(v.findings, JSON_INDENT(2));
    json_decref(v.findings);
    if (text == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: findings");
    *json = rks_strdup(text, err);
    free(text);
    return *json == NULL ? RKS_ERR_MEMORY : RKS_OK;
}
