/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_flock.h: a flock of the test's own. Include it in one file of a test. Directories are
 * locked as ever. */
#ifndef RKS_TESTS_FAILING_FLOCK_H
#define RKS_TESTS_FAILING_FLOCK_H

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { FLOCK_WORKS = 0, FLOCK_ALWAYS_GOOD = -1 };

/* An errno; FLOCK_ALWAYS_GOOD: as if each process had its own locks. */
static atomic_int flock_fails_with;

int flock(int fd, int operation)
{
    struct stat info;
    int error = atomic_load(&flock_fails_with);
    if (error == FLOCK_WORKS || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        int (*real)(int, int);
        *(void **)&real = dlsym(RTLD_NEXT, "flock");
        return real(fd, operation);
    }
    if (error == FLOCK_ALWAYS_GOOD)
        return 0;
    errno = error;
    return -1;
}

#endif
