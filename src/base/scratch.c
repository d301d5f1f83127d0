/* SPDX-License-Identifier: Apache-2.0
 *
 * scratch.c: takes memory, or maps an unnamed file. */
#include "base/scratch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/shared_memory.h"

static const uint64_t MEMORY_MAX = (uint64_t)96 << 20;
static atomic_uint_least64_t memory_max; /* 0: MEMORY_MAX */

void rks_scratch_memory_max(uint64_t bytes)
{
    atomic_store(&memory_max, bytes);
}

/* Maps a file that has all its blocks from the start: a full disk fails here, not at a later
 * write. */
static bool map_file(const char *directory, rks_scratch *scratch)
{
    bool is_memory = false;
    int fd = -1;
    if (directory == NULL || directory[0] == '\0' ||
        rks_shared_filesystem(directory, &is_memory) != NULL ||
        rks_shared_file("scratch", scratch->size, directory, &fd, NULL) != RKS_OK)
        return false;
    void *map = mmap(NULL, scratch->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    scratch->is_file = map != MAP_FAILED;
    scratch->bytes = scratch->is_file ? map : NULL;
    return scratch->is_file;
}

rks_status rks_scratch_take(uint64_t count, size_t size, const char *directory,
                            rks_scratch *scratch, rks_error *err)
{
    const char *const places[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", directory};
    uint64_t max = atomic_load(&memory_max);
    *scratch = (rks_scratch){0};
    if (__builtin_mul_overflow(count, (uint64_t)size, &scratch->size))
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: too many entries");
    bool is_small = scratch->size <= (max == 0 ? MEMORY_MAX : max);
    for (size_t i = 0; !is_small && i < sizeof(places) / sizeof(places[0]); i++)
        if (map_file(places[i], scratch))
            return RKS_OK;
    scratch->bytes = rks_alloc((size_t)count, size, err);
    return scratch->bytes == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

void rks_scratch_give(rks_scratch *scratch)
{
    if (scratch->is_file)
        munmap(scratch->bytes, scratch->size);
    else
        rks_free(scratch->bytes);
    *scratch = (rks_scratch){0};
}
