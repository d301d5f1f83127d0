/* SPDX-License-Identifier: Apache-2.0
 *
 * shared_memory.c: memory that the ranks of a node share by descriptor: a memfd, or a file without
 * a name, also in place of a memfd that may not be made. Neither remains after the processes end,
 * however they end.
 *
 * All pages are allocated at once: a full disk or exhausted memory is an error here, not a SIGBUS
 * in whoever writes to the map. A memfd cannot change its size after that. */
#include "base/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/error.h"
#include "base/file_room.h"
#include "base/forbidden_call.h"
#include "base/log.h"
#include "base/memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const uint64_t MEMFD_MAX = (uint64_t)1 << 30;
static const uint64_t GROWS_MAYBE = (uint64_t)1 << 30; /* of memory that will grow */
static const uint64_t ASK_MIN = (uint64_t)16
                                << 20;  /* less does not matter, and asking takes time */
static atomic_uint_least64_t memfd_max; /* 0: MEMFD_MAX */

static rks_status fill_stretch(int fd, uint64_t at, uint64_t bytes, const char *what,
                               const char *where, rks_error *err)
{
    struct rlimit limit;
    int error = rks_file_take_room(fd, at, bytes);
    if (error == 0)
        return RKS_OK;
    if (error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0)
        return rks_fail(err, RKS_ERR_IO, EFBIG,
                        "%s in %s: %" PRIu64 " bytes are above the limit on a file's size "
                        "(ulimit -f), %" PRIu64,
                        what, where, at + bytes, (uint64_t)limit.rlim_cur);
    if (error == ENOSPC)
        return rks_fail(err, RKS_ERR_IO, error, "%s in %s: no room for %" PRIu64 " bytes", what,
                        where, bytes);
    return rks_fail_errno(err, error, "%s in %s: %" PRIu64 " bytes", what, where, bytes);
}

/* Opens an unnamed file; not every file system has O_TMPFILE. Returns -1 with errno set, or with
 * errno 0 if memory is short. */
static int open_unnamed(const char *directory, rks_error *err)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    char *path = rks_format(err, "%s/.rankstore-XXXXXX", directory);
    errno = 0;
    if (path == NULL)
        return -1;
    fd = mkostemp(path, O_CLOEXEC);
    int error = errno;
    if (fd >= 0)
        unlink(path);
    rks_free(path);
    errno = error;
    return fd;
}

static rks_status fill_file(const char *what, uint64_t bytes, const char *directory, int made,
                            int *fd, rks_error *err)
{
    rks_status status = fill_stretch(made, 0, bytes, what, directory, err);
    if (status == RKS_OK)
        *fd = made;
    else
        close(made);
    return status;
}

rks_status rks_shared_file(const char *what, uint64_t bytes, const char *directory, int *fd,
                           rks_error *err)
{
    int made = open_unnamed(directory, err);
    if (made < 0)
        return errno == 0 ? RKS_ERR_MEMORY
                          : rks_fail_errno(err, errno, "%s in %s", what, directory);
    return fill_file(what, bytes, directory, made, fd, err);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Finds the place for memory without memfd_create: /dev/shm, or a temporary directory on a disk of
 * this node or in memory; the first with that many bytes free, after that the one with most. Adds
 * to `skip` the one that it returns; NULL: none is left. */
static const char *place_instead(uint64_t bytes, unsigned *skip)
{
    const char *const places[] = {"/dev/shm", getenv("TMPDIR"), "/tmp", "/var/tmp"};
    size_t best = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && most < bytes; i++) {
        struct statvfs room;
        bool memory;
        if ((*skip >> i & 1) != 0 || places[i] == NULL || places[i][0] == '\0' ||
            (rks_shared_filesystem(places[i], &memory) != NULL && !memory) ||
            statvfs(places[i], &room) != 0 || (uint64_t)room.f_bavail * room.f_frsize <= most)
            continue;
        most = (uint64_t)room.f_bavail * room.f_frsize;
        best = i;
    }
    *skip |= 1U << best;
    return most == 0 ? NULL : places[best];
}

/* Makes memory of `bytes` in the place of a memfd; *where names it. 0 bytes: it will grow. */
static rks_status make_instead(const char *what, uint64_t bytes, int error, int *fd,
                               const char **where, rks_error *err)
{
    unsigned skip = 0;
    rks_error why = {.text = "no /dev/shm and no TMPDIR"};
    while ((*where = place_instead(bytes == 0 ? GROWS_MAYBE : bytes, &skip)) != NULL)
        if (rks_shared_file(what, bytes, *where, fd, &why) == RKS_OK)
            return RKS_OK;
    return rks_fail_errno(err, error,
                          "%s: allow memfd_create, which a container's filter forbids, or mount a "
                          "tmpfs with room at /dev/shm (%s): memfd_create",
                          what, why.text);
}

/* Makes a memfd, or what takes its place where it is forbidden. */
static rks_status make_memory(const char *what, uint64_t bytes, unsigned flags, int *fd,
                              const char **where, rks_error *err)
{
    *where = "memory";
    *fd = memfd_create("rankstore", flags);
    if (*fd >= 0)
        return RKS_OK;
    int error = errno;
    return rks_call_is_forbidden(error)
               ? make_instead(what, bytes, error, fd, where, err)
               : rks_fail_errno(err, error, "%s in memory: memfd_create", what);
}

/* Returns true for a memfd whose seals may still be set, not for files, tmpfs's among them. */
static bool takes_seals(int fd)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SEAL) == 0;
}

rks_status rks_shared_memfd(const char *what, uint64_t bytes, int *fd, rks_error *err)
{
    int made = -1;
    const char *where;
    rks_status status =
        make_memory(what, bytes, MFD_CLOEXEC | MFD_ALLOW_SEALING, &made, &where, err);
    if (status != RKS_OK)
        return status;
    if (takes_seals(made)) {
        status = fill_stretch(made, 0, bytes, what, where, err);
        if (status == RKS_OK && fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
            status = rks_fail_errno(err, errno, "%s in memory: seal of its size", what);
    }
    if (status != RKS_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return RKS_OK;
}

rks_status rks_shared_growing(const char *what, int *fd, rks_error *err)
{
    const char *where;
    return make_memory(what, 0, MFD_CLOEXEC, fd, &where, err);
}

rks_status rks_shared_grow(const char *what, int fd, uint64_t at, uint64_t bytes, rks_error *err)
{
    return fill_stretch(fd, at, bytes, what, "memory", err);
}

/* Makes a file in the first temporary directory that is a disk of this node. */
static rks_status temporary_file(const char *what, uint64_t bytes, uint64_t available, int *fd,
                                 rks_error *err)
{
    const char *const places[] = {getenv("TMPDIR"), "/tmp", "/var/tmp"};
    char why[96] = "";
    rks_error failed;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        bool memory;
        if (places[i] == NULL || places[i][0] == '\0')
            continue;
        const char *shared = rks_shared_filesystem(places[i], &memory);
        if (shared == NULL && rks_shared_file(what, bytes, places[i], fd, &failed) == RKS_OK) {
            rks_log("%s: %" PRIu64 " MB are too much for the available memory, %" PRIu64
                    " MB, and go to an unnamed file in %s; index_dir names another directory",
                    what, bytes / 1000000, available / 1000000, places[i]);
            return RKS_OK;
        }
        size_t used = strlen(why);
        snprintf(why + used, sizeof(why) - used, "%s%s: %s", used == 0 ? "" : ", ", places[i],
                 shared != NULL      ? shared
                 : failed.cause != 0 ? strerror((int)failed.cause)
                                     : "out of memory");
    }
    return rks_fail(err, RKS_ERR_IO, 0,
                    "%s: no memory and no local disk for %" PRIu64
                    " MB (%s); name a directory with "
                    "index_dir",
                    what, bytes / 1000000, why);
}

/* Small memory goes to a file only if the kernel would otherwise end a process: a control group
 * may leave less than the index takes. */
rks_status rks_shared_memory(const char *what, uint64_t bytes, const char *directory, int *fd,
                             rks_error *err)
{
    uint64_t max = atomic_load(&memfd_max);
    bool small = bytes <= (max == 0 ? MEMFD_MAX : max);
    if (small && bytes < ASK_MIN)
        return rks_shared_memfd(what, bytes, fd, err);
    if (!small && directory != NULL)
        return rks_shared_file(what, bytes, directory, fd, err);
    uint64_t available = rks_memory_available("");
    if (bytes < available / (small ? 2 : 4))
        return rks_shared_memfd(what, bytes, fd, err);
    return directory != NULL ? rks_shared_file(what, bytes, directory, fd, err)
                             : temporary_file(what, bytes, available, fd, err);
}

void rks_shared_memory_memfd_max(uint64_t bytes)
{
    atomic_store(&memfd_max, bytes);
}

rks_status rks_shared_memory_seal(const char *what, int fd, rks_error *err)
{
    if (!takes_seals(fd))
        return RKS_OK;
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    /* F_SEAL_WRITE would be refused while another rank's map is still writable. */
    if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) == 0)
        return RKS_OK;
    if (errno == EINVAL && fcntl(fd, F_ADD_SEALS, seals) == 0)
        return RKS_OK; /* before Linux 5.1 */
    return rks_fail_errno(err, errno, "%s in memory: seal", what);
}
