/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c: gives the kernel advice for a file that is read in order, granule by granule. */
#include "base/stream.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/resident_pages.h"

/* In granules. LOOK is larger than the system's own read-ahead usually is. */
enum { GRANULE = RKS_RESIDENT_GRANULE, AHEAD = 8, LOOK = 32, MOST_PAGES = GRANULE / 4096 };

void rks_stream_begin(rks_stream *stream, const char *path, uint64_t size)
{
    uint64_t there = 0;
    *stream = (rks_stream){.fd = -1};
    if (rks_file_open(path, &stream->fd, &there, NULL) != RKS_OK)
        return;
    stream->size = size = size < there ? size : there; /* the manifest's size is not trusted */
    if (rks_resident_may_ask(stream->fd, path))
        stream->there = rks_alloc((size_t)(size / GRANULE / 8 + 1), 1, NULL);
    if (stream->there == NULL) {
        close(stream->fd);
        stream->fd = -1;
    }
    uint64_t memory = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    stream->large = size > memory / 4;
}

static bool some_are_there(const rks_stream *stream, uint64_t at, size_t size)
{
    unsigned char there[MOST_PAGES];
    bool found = false;
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, stream->fd, (off_t)at);
    if (map == MAP_FAILED)
        return true;
    bool answered = mincore(map, size, there) == 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; answered && i < (size + page - 1) / page && !found; i++)
        found = there[i] & 1;
    munmap(map, size);
    return !answered || found;
}

static size_t granule_size(const rks_stream *stream, uint64_t at)
{
    return stream->size - at < GRANULE ? (size_t)(stream->size - at) : GRANULE;
}

/* Drops neighbours in one call: the system's own units may be larger than a granule. */
static void drop_behind(rks_stream *stream, uint64_t until)
{
    uint64_t first = stream->left;
    for (; stream->left < stream->size && stream->left + GRANULE <= until;
         stream->left += GRANULE) {
        uint64_t granule = stream->left / GRANULE;
        if ((stream->there[granule / 8] >> granule % 8 & 1) == 0)
            continue;
        if (first < stream->left)
            posix_fadvise(stream->fd, (off_t)first, (off_t)(stream->left - first),
                          POSIX_FADV_DONTNEED);
        first = stream->left + GRANULE;
    }
    if (first < stream->left)
        posix_fadvise(stream->fd, (off_t)first, (off_t)(stream->left - first), POSIX_FADV_DONTNEED);
}

static void look_until(rks_stream *stream, uint64_t until)
{
    for (; stream->looked < stream->size && stream->looked < until; stream->looked += GRANULE) {
        uint64_t granule = stream->looked / GRANULE;
        if (some_are_there(stream, stream->looked, granule_size(stream, stream->looked)))
            stream->there[granule / 8] |= (uint8_t)(1 << granule % 8);
    }
}

void rks_stream_look(rks_stream *stream)
{
    if (stream->fd >= 0)
        look_until(stream, stream->size);
}

void rks_stream_reach(rks_stream *stream, uint64_t offset)
{
    uint64_t at = offset / GRANULE * GRANULE;
    if (stream->fd < 0)
        return;
    look_until(stream, at + (uint64_t)LOOK * GRANULE);
    for (; stream->asked < stream->size && stream->asked < at + (uint64_t)AHEAD * GRANULE;
         stream->asked += GRANULE)
        posix_fadvise(stream->fd, (off_t)stream->asked, (off_t)granule_size(stream, stream->asked),
                      POSIX_FADV_WILLNEED);
    if (stream->large)
        drop_behind(stream, at);
}

void rks_stream_end(rks_stream *stream)
{
    if (stream->fd < 0)
        return;
    stream->left = 0;
    drop_behind(stream, stream->looked);
    close(stream->fd);
    rks_free(stream->there);
    stream->fd = -1;
}
