/* SPDX-License-Identifier: Apache-2.0
 *
 * pages.h: which pages of a file are in memory. */
#ifndef RKS_TESTS_PAGES_H
#define RKS_TESTS_PAGES_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of the file that are in memory; UINT64_MAX: that is not to be known. */
static inline uint64_t pages_resident(const char *path)
{
    struct stat info;
    uint64_t found = UINT64_MAX;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size == 0) {
        if (fd >= 0)
            close(fd);
        return found;
    }
    size_t size = (size_t)info.st_size, pages = (size + page - 1) / page;
    unsigned char *there = malloc(pages);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED && there != NULL && mincore(map, size, there) == 0) {
        found = 0;
        for (size_t i = 0; i < pages; i++)
            found += (there[i] & 1) * page;
    }
    if (map != MAP_FAILED)
        munmap(map, size);
    free(there);
    close(fd);
    return found;
}

/* Writes the file's pages and drops them; false: some stay, as on a file system in memory. */
static inline bool pages_drop(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool done = fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    close(fd);
    return done && pages_resident(path) == 0;
}

#endif
