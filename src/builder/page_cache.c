/* SPDX-License-Identifier: Apache-2.0
 *
 * page_cache.c: asks mincore() before the input is read, and drops pages with POSIX_FADV_DONTNEED
 * afterwards. */
#include "builder/page_cache.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "ingest/format.h"

enum { GRANULE = 1 << 20, RUN = 64 << 20, RUN_PAGES = RUN / 4096 };

static const uint64_t MOST_BYTES = (uint64_t)64 << 30;

/* By file, a bit for each granule: set if none of it was in memory. NULL: the file was not looked
 * at. */
struct rks_page_cache {
    size_t file_count;
    uint8_t *absent[];
};

/* Sets the bits of a run of granules. The system reports all pages as resident that this process
 * may not ask about. */
static void look_at_run(int fd, uint64_t at, size_t size, uint8_t *absent)
{
    unsigned char there[RUN_PAGES];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, (off_t)at);
    if (map == MAP_FAILED)
        return;
    bool known = mincore(map, size, there) == 0;
    for (size_t done = 0; known && done < size; done += GRANULE) {
        uint64_t granule = (at + done) / GRANULE;
        bool found = false;
        for (size_t i = done; i < size && i < done + GRANULE && !found; i += page)
            found = there[i / page] & 1;
        if (!found)
            absent[granule / 8] |= (uint8_t)(1 << granule % 8);
    }
    munmap(map, size);
}

static uint8_t *look_at_file(const rks_input_file *file)
{
    rks_input_handle *handle = NULL;
    uint8_t *absent = NULL;
    if (file->store != NULL || file->size < GRANULE ||
        rks_input_file_open(file, &handle, NULL) != RKS_OK)
        return NULL;
    absent = rks_alloc((size_t)(file->size / GRANULE / 8 + 1), 1, NULL);
    for (uint64_t at = 0; absent != NULL && at < file->size; at += RUN)
        look_at_run(handle->fd, at, file->size - at < RUN ? (size_t)(file->size - at) : RUN,
                    absent);
    rks_input_file_close(handle);
    return absent;
}

rks_page_cache *rks_page_cache_look(const rks_input *input)
{
    uint64_t looked = 0;
    rks_page_cache *made =
        rks_alloc(1, sizeof(*made) + input->file_count * sizeof(made->absent[0]), NULL);
    if (made == NULL)
        return NULL;
    made->file_count = input->file_count;
    for (size_t i = 0; i < input->file_count && looked < MOST_BYTES; i++) {
        uint64_t size = input->files[i].size;
        if (size <= MOST_BYTES - looked)
            made->absent[i] = look_at_file(&input->files[i]);
        looked += size < MOST_BYTES - looked ? size : MOST_BYTES - looked;
    }
    return made;
}

/* Drops neighbouring granules in one call: its folios may be larger than a granule. */
static void drop_range(const rks_input_file *file, const uint8_t *absent, uint64_t first,
                       uint64_t end)
{
    rks_input_handle *handle = NULL;
    if (first >= end || rks_input_file_open(file, &handle, NULL) != RKS_OK)
        return;
    while (first < end) {
        uint64_t at = first;
        for (; at < end && (absent[at / GRANULE / 8] >> at / GRANULE % 8 & 1);
             at = (at / GRANULE + 1) * GRANULE)
            ;
        uint64_t until = at < end ? at : end;
        if (until > first)
            posix_fadvise(handle->fd, (off_t)first, (off_t)(until - first), POSIX_FADV_DONTNEED);
        first = (until / GRANULE + 1) * GRANULE;
    }
    rks_input_file_close(handle);
}

void rks_page_cache_drop(const rks_page_cache *cache, const rks_input *input, size_t unit)
{
    const rks_input_unit *done = &input->units[unit];
    if (cache == NULL || input->format == &rks_format_megatron) /* units of megatron count
                                                                 * sequences, not bytes */
        return;
    for (size_t i = done->first_file; i < done->first_file + done->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        bool part = done->file_count == 1 && file->packing == RKS_PACKING_NONE;
        uint64_t first = part ? done->offset : 0;
        uint64_t end = part ? done->offset + done->size : file->size;
        if (i < cache->file_count && cache->absent[i] != NULL)
            drop_range(file, cache->absent[i], first < file->size ? first : file->size,
                       end < file->size ? end : file->size);
    }
}

void rks_page_cache_drop_all(const rks_page_cache *cache, const rks_input *input)
{
    for (size_t i = 0; cache != NULL && i < cache->file_count; i++)
        if (cache->absent[i] != NULL)
            drop_range(&input->files[i], cache->absent[i], 0, input->files[i].size);
}

void rks_page_cache_free(rks_page_cache *cache)
{
    for (size_t i = 0; cache != NULL && i < cache->file_count; i++)
        rks_free(cache->absent[i]);
    rks_free(cache);
}
