/* SPDX-License-Identifier: Apache-2.0
 *
 * die.c: loaded before the C library, it counts the calls that change what is on a disk. DIE_AT=N:
 * the process is killed in front of the N-th. FULL_AT=N: from the N-th on those that need room find
 * the disk full. UNSYNCED=NAME: once NAME has been renamed into place no sync of a directory
 * succeeds; UNSYNCED=. : none at all. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static long number_of(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : strtol(text, NULL, 10);
}

/* False: there is no room for it. */
static bool may(bool needs_room)
{
    static long calls;
    long call = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST), full = number_of("FULL_AT");
    if (call == number_of("DIE_AT"))
        kill(getpid(), SIGKILL);
    if (!needs_room || full == 0 || call < full)
        return true;
    errno = ENOSPC;
    return false;
}

static bool is_file(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t size)
{
    return is_file(fd) && !may(true) ? -1 : REAL(write)(fd, bytes, size);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    return is_file(fd) && !may(true) ? -1 : REAL(pwrite)(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    return is_file(fd) && !may(true) ? -1 : REAL(pwrite64)(fd, bytes, size, at);
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    return is_file(fd) && !may(true) ? -1 : REAL(writev)(fd, pieces, count);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at)
{
    return is_file(fd) && !may(true) ? -1 : REAL(pwritev)(fd, pieces, count, at);
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t at)
{
    return is_file(fd) && !may(true) ? -1 : REAL(pwritev64)(fd, pieces, count, at);
}

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t size,
                        unsigned flags)
{
    return may(true) ? REAL(copy_file_range)(from, from_at, to, to_at, size, flags) : -1;
}

int ftruncate(int fd, off_t size)
{
    return may(false) ? REAL(ftruncate)(fd, size) : -1;
}

int ftruncate64(int fd, off64_t size)
{
    return may(false) ? REAL(ftruncate64)(fd, size) : -1;
}

static bool is_unsynced;

static void note_rename(const char *to)
{
    const char *name = getenv("UNSYNCED"), *slash = strrchr(to, '/');
    if (name != NULL && strcmp(slash == NULL ? to : slash + 1, name) == 0)
        is_unsynced = true;
}

int fsync(int fd)
{
    const char *name = getenv("UNSYNCED");
    struct stat info;
    bool never = is_unsynced || (name != NULL && strcmp(name, ".") == 0);
    if (never && fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        errno = EIO;
        return -1;
    }
    return may(true) ? REAL(fsync)(fd) : -1;
}

int fdatasync(int fd)
{
    return may(true) ? REAL(fdatasync)(fd) : -1;
}

int rename(const char *from, const char *to)
{
    int failed = may(true) ? REAL(rename)(from, to) : -1;
    if (failed == 0)
        note_rename(to);
    return failed;
}

int renameat2(int at, const char *from, int there, const char *to, unsigned flags)
{
    int failed = may(true) ? REAL(renameat2)(at, from, there, to, flags) : -1;
    if (failed == 0)
        note_rename(to);
    return failed;
}

int link(const char *from, const char *to)
{
    return may(true) ? REAL(link)(from, to) : -1;
}

int unlink(const char *path)
{
    return may(false) ? REAL(unlink)(path) : -1;
}

int mkdir(const char *path, mode_t mode)
{
    return may(true) ? REAL(mkdir)(path, mode) : -1;
}

static mode_t mode_of(int flags, va_list list)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return (flags & O_CREAT) != 0 && !may(true) ? -1 : REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = mode_of(flags, list);
    va_end(list);
    return (flags & O_CREAT) != 0 && !may(true) ? -1 : REAL(open64)(path, flags, mode);
}
