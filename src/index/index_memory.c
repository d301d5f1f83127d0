/* SPDX-License-Identifier: Apache-2.0
 *
 * index_memory.c: memory that the ranks of a node share by descriptor: a memfd, or a file without a
 * name. Neither leaves anything behind, however the processes end.
 *
 * All pages are allocated at once, so that a full disk or an exhausted memory is an error here and
 * not a SIGBUS in whoever writes to the map. A memfd can't change its size from then on. */
#include "index/index_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const uint64_t MEMFD_MAX = (uint64_t)1 << 30;

static rks_status fill(int fd, uint64_t bytes, const char *where, rks_error *err)
{
    /* Past this limit the kernel would send SIGXFSZ. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes)
        return rks_fail(err, RKS_ERR_IO, EFBIG,
                        "index in %s: %" PRIu64 " bytes are above the limit on a file's size "
                        "(ulimit -f), %" PRIu64,
                        where, bytes, (uint64_t)limit.rlim_cur);
    int error;
    do
        error = posix_fallocate(fd, 0, (off_t)bytes);
    while (error == EINTR);
    if (error == ENOSPC)
        return rks_fail(err, RKS_ERR_IO, error, "index in %s: no room for %" PRIu64 " bytes", where,
                        bytes);
    if (error != 0)
        return rks_fail_errno(err, error, "index in %s: %" PRIu64 " bytes", where, bytes);
    return RKS_OK;
}

rks_status rks_index_memfd(uint64_t bytes, int *fd, rks_error *err)
{
    int made = memfd_create("rankstore-index", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return rks_fail_errno(err, errno, "index in memory: memfd_create");
    rks_status status = fill(made, bytes, "memory", err);
    if (status == RKS_OK && fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        status = rks_fail_errno(err, errno, "index in memory: seal of its size");
    if (status != RKS_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return RKS_OK;
}

/* Not every file system has O_TMPFILE. */
static int open_unnamed(const char *directory, rks_error *err)
{
    int fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
        rks_fail_errno(err, errno, "index in %s", directory);
        return -1;
    }
    char *path = rks_format(err, "%s/.rankstore-index-XXXXXX", directory);
    if (path == NULL)
        return -1;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        rks_fail_errno(err, errno, "index in %s", directory);
    else
        unlink(path);
    rks_free(path);
    return fd;
}

rks_status rks_index_unnamed_file(uint64_t bytes, const char *directory, int *fd, rks_error *err)
{
    rks_error local;
    if (err == NULL)
        err = &local;
    int made = open_unnamed(directory, err);
    if (made < 0)
        return (rks_status)err->status;
    rks_status status = fill(made, bytes, directory, err);
    if (status != RKS_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return RKS_OK;
}

rks_status rks_index_memory(const rks_index_layout *layout, const char *directory, int *fd,
                            rks_error *err)
{
    uint64_t bytes;
    rks_status status = rks_index_size(layout, &bytes, err);
    if (status != RKS_OK)
        return status;
    if (bytes <= MEMFD_MAX || directory == NULL)
        return rks_index_memfd(bytes, fd, err);
    return rks_index_unnamed_file(bytes, directory, fd, err);
}

rks_status rks_index_memory_seal(int fd, rks_error *err)
{
    if (fcntl(fd, F_GET_SEALS) < 0)
        return RKS_OK; /* a file */
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    /* F_SEAL_WRITE would be refused while another rank's map is still writable. */
    if (fcntl(fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) == 0)
        return RKS_OK;
    if (errno == EINVAL && fcntl(fd, F_ADD_SEALS, seals) == 0)
        return RKS_OK; /* before Linux 5.1 */
    return rks_fail_errno(err, errno, "index in memory: seal");
}
