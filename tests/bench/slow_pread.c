/* SPDX-License-Identifier: Apache-2.0
 *
 * slow_pread.c: a pread for LD_PRELOAD that makes the files below SLOW_WHERE come over a link of
 * SLOW_MB megabytes a second. All processes that name the file SLOW_BUCKET share the link; their
 * reads take turns in stretches of 64 KiB. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STRETCH = 64 << 10 };

static _Atomic uint64_t *free_ns; /* when the link is free again */
static const char *where;
static double ns_a_byte;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    const char *bucket = getenv("SLOW_BUCKET"), *rate = getenv("SLOW_MB");
    where = getenv("SLOW_WHERE");
    int fd = bucket == NULL || rate == NULL || where == NULL
                 ? -1
                 : open(bucket, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(*free_ns)) != 0)
        return;
    void *map = mmap(NULL, sizeof(*free_ns), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ns_a_byte = 1e3 / atof(rate);
    free_ns = map == MAP_FAILED ? NULL : map;
}

static int is_slow(int fd)
{
    char link[64], path[4096];
    if (free_ns == NULL)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    return size >= (ssize_t)strlen(where) && memcmp(path, where, strlen(where)) == 0;
}

static void wait_for_link(uint64_t bytes)
{
    const uint64_t cost = (uint64_t)((double)bytes * ns_a_byte), now = now_ns();
    uint64_t was = atomic_load(free_ns), begins;
    do
        begins = was > now ? was : now;
    while (!atomic_compare_exchange_weak(free_ns, &was, begins + cost));
    const uint64_t ends = begins + cost;
    const struct timespec until = {(time_t)(ends / 1000000000), (long)(ends % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static ssize_t read_stretch(int fd, char *to, size_t size, off_t offset)
{
    return (ssize_t)syscall(SYS_pread64, fd, to, size, offset);
}

ssize_t pread(int fd, void *to, size_t size, off_t offset)
{
    size_t done = 0;
    if (!is_slow(fd))
        return read_stretch(fd, to, size, offset);
    while (done < size) {
        const size_t some = size - done < STRETCH ? size - done : STRETCH;
        ssize_t got = read_stretch(fd, (char *)to + done, some, offset + (off_t)done);
        if (got <= 0)
            return done > 0 ? (ssize_t)done : got;
        wait_for_link((uint64_t)got);
        done += (size_t)got;
        if ((size_t)got < some)
            break;
    }
    return (ssize_t)done;
}
