/* SPDX-License-Identifier: Apache-2.0
 *
 * file_room.c: fallocate, else zeros in the place of holes. */
#include "base/file_room.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/forbidden_call.h"

/* Finds the first hole of [at, end) and where it ends. False: there is none. A file system that
 * does not know its holes says that the file is whole. */
static bool find_hole(int fd, uint64_t at, uint64_t end, uint64_t file_end, uint64_t *hole,
                      uint64_t *hole_end)
{
    *hole = file_end > at ? file_end : at;
    *hole_end = end;
    if (at < file_end) {
        off_t found = lseek(fd, (off_t)at, SEEK_HOLE);
        if (found >= 0)
            *hole = (uint64_t)found;
        off_t data = *hole < file_end ? lseek(fd, (off_t)*hole, SEEK_DATA) : -1;
        if (data >= 0 && (uint64_t)data < end)
            *hole_end = (uint64_t)data;
    }
    return *hole < end;
}

static int write_zeros(int fd, uint64_t at, uint64_t end)
{
    static const uint8_t zeros[64 << 10];
    while (at < end) {
        size_t size = end - at < sizeof(zeros) ? (size_t)(end - at) : sizeof(zeros);
        ssize_t put = pwrite(fd, zeros, size, (off_t)at);
        if (put < 0 && errno != EINTR)
            return errno;
        if (put == 0)
            return ENOSPC;
        at += put > 0 ? (uint64_t)put : 0;
    }
    return 0;
}

static int fill_holes(int fd, uint64_t at, uint64_t end)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return errno;
    off_t before = lseek(fd, 0, SEEK_CUR); /* which looking for holes moves */
    int error = 0;
    for (uint64_t hole, hole_end;
         error == 0 && find_hole(fd, at, end, (uint64_t)info.st_size, &hole, &hole_end);
         at = hole_end)
        error = write_zeros(fd, hole, hole_end);
    if (before >= 0)
        (void)lseek(fd, before, SEEK_SET);
    return error;
}

bool rks_file_may_have(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           limit.rlim_cur >= bytes;
}

int rks_file_take_room(int fd, uint64_t at, uint64_t bytes)
{
    int error;
    if (bytes == 0)
        return 0;
    if (!rks_file_may_have(at + bytes))
        return EFBIG;
    do
        error = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    while (error == EINTR);
    return rks_call_is_forbidden(error) ? fill_holes(fd, at, at + bytes) : error;
}
