/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_fsync.h: an fsync of the test's own. Include it in one file of a test. Directories are
 * synced as ever. */
#ifndef RKS_TESTS_FAILING_FSYNC_H
#define RKS_TESTS_FAILING_FSYNC_H

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int fsync_fails; /* so many calls fail with EIO */
static atomic_int fsync_calls;

int fsync(int fd)
{
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        atomic_fetch_add(&fsync_calls, 1);
        if (atomic_load(&fsync_fails) > 0) {
            atomic_fetch_sub(&fsync_fails, 1);
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_fsync, fd);
}

#endif
