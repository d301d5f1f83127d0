/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c: the map, and where samples lie.
 *
 * The shared memory holds nothing but arrays of `count` entries, each at a multiple of 64 bytes:
 *
 *   lengths (4)   key hashes (8)   column 0 (its item size)   column 1   ...
 *
 * Runs of ids (who holds them) are each process's own: they come from the dataset, not from other
 * ranks. */
#include "index/index_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/shared_memory.h"
#include "base/memory_usage.h"

enum {
    ARRAY_ALIGN = 64,
    PAGE = 4096, /* so that an empty index has something to map */
    COLUMNS_MAX = 1024,
    ITEM_MAX = 64,
    LINEAR_MAX = 8, /* up to so many runs are searched one by one */
};

static rks_status check_index_columns(const rks_index_layout *layout, rks_error *err)
{
    if (layout->column_count > COLUMNS_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "index: %zu columns, at most %d",
                        layout->column_count, COLUMNS_MAX);
    for (size_t i = 0; i < layout->column_count; i++) {
        const rks_index_column *column = &layout->columns[i];
        if (column->item_size == 0 || column->item_size > ITEM_MAX)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "index column %s: items of %" PRIu32 " bytes",
                            column->name, column->item_size);
    }
    return RKS_OK;
}

/* Checks that the spans follow each other and hold all ids. */
static rks_status check_spans(const rks_index_layout *layout, rks_error *err)
{
    uint64_t next = 0;
    for (size_t i = 0; i < layout->span_count; i++) {
        const rks_span *span = &layout->spans[i];
        if (span->first_id != next)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "index: span %zu begins at id %" PRIu64 ", not %" PRIu64, i,
                            span->first_id, next);
        if (span->count == 0 || span->count > layout->count - next ||
            span->first_row > UINT64_MAX - span->count)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "index: span %zu has %" PRIu64 " samples from row %" PRIu64 "; %" PRIu64
                            " of %" PRIu64 " are left",
                            i, span->count, span->first_row, layout->count - next, layout->count);
        next += span->count;
    }
    if (next != layout->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "index: spans hold %" PRIu64 " of %" PRIu64 " samples", next,
                        layout->count);
    return RKS_OK;
}

/* Sets the offset of each array: lengths, hashes, columns. Returns the size of all. */
static uint64_t place_arrays(const rks_index_layout *layout, uint64_t *hashes_at,
                             uint64_t *column_at)
{
    uint64_t at = rks_round_up(layout->count * sizeof(uint32_t), ARRAY_ALIGN);
    *hashes_at = at;
    at += rks_round_up(layout->count * sizeof(uint64_t), ARRAY_ALIGN);
    for (size_t i = 0; i < layout->column_count; i++) {
        if (column_at != NULL)
            column_at[i] = at;
        at += rks_round_up(layout->count * layout->columns[i].item_size, ARRAY_ALIGN);
    }
    return at == 0 ? PAGE : rks_round_up(at, PAGE);
}

rks_status rks_index_size(const rks_index_layout *layout, uint64_t *bytes, rks_error *err)
{
    if (layout->count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "index of %" PRIu64 " samples: a dataset holds at most %" PRIu32,
                        layout->count, UINT32_MAX);
    rks_status status = check_index_columns(layout, err);
    if (status != RKS_OK)
        return status;
    uint64_t hashes_at;
    *bytes = place_arrays(layout, &hashes_at, NULL);
    return RKS_OK;
}

static int compare_by_row(const void *left, const void *right, void *user)
{
    const rks_index_run *runs = user;
    const rks_index_run *a = &runs[*(const uint32_t *)left];
    const rks_index_run *b = &runs[*(const uint32_t *)right];
    if (a->shard != b->shard)
        return a->shard < b->shard ? -1 : 1;
    return a->first_row < b->first_row ? -1 : a->first_row > b->first_row;
}

static int compare_by_id(const void *left, const void *right, void *user)
{
    const rks_index_run *runs = user;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (runs[a].shard != runs[b].shard)
        return runs[a].shard < runs[b].shard ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Refuses a row that lies in two runs. `order` has the numbers of the runs, and is sorted. */
static rks_status refuse_overlaps(const rks_index *index, uint32_t *order, rks_error *err)
{
    size_t count = index->run_count;
    qsort_r(order, count, sizeof(*order), compare_by_row, index->runs);
    for (size_t i = 1; i < count; i++) {
        const rks_index_run *before = &index->runs[order[i - 1]], *run = &index->runs[order[i]];
        if (run->shard == before->shard &&
            run->first_row - before->first_row < rks_index_run_count(index, order[i - 1]))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "index: row %" PRIu64 " of shard %" PRIu32 " is in two spans",
                            run->first_row, run->shard);
    }
    return RKS_OK;
}

/* Makes the order of the runs by shard. */
static rks_status sort_runs(rks_index *index, rks_error *err)
{
    size_t count = index->run_count;
    for (size_t i = 0; i < count; i++)
        index->by_id[i] = (uint32_t)i;
    rks_status status = refuse_overlaps(index, index->by_id, err);
    if (status != RKS_OK)
        return status;
    qsort_r(index->by_id, count, sizeof(*index->by_id), compare_by_id, index->runs);
    for (size_t i = 1; i < count; i++) {
        uint32_t last = index->by_id[i - 1];
        bool same = index->runs[index->by_id[i]].shard == index->runs[last].shard;
        index->position[i] = same ? index->position[i - 1] + rks_index_run_count(index, last) : 0;
    }
    return RKS_OK;
}

/* Returns the shift for about four blocks a run. The search in a block is then short, unless runs
 * are very uneven. */
static uint32_t block_shift(uint64_t count, size_t run_count)
{
    uint32_t shift = 0;
    while ((count >> shift) / 4 > (uint64_t)run_count + 16)
        shift++;
    return shift;
}

static void fill_blocks(rks_index *index, size_t block_count)
{
    uint32_t run = 0;
    for (size_t block = 0; block < block_count; block++) {
        while (run + 1 < index->run_count && index->runs[run + 1].first_id <= (uint64_t)block
                                                                                  << index->shift)
            run++;
        index->blocks[block] = run;
    }
}

static rks_status copy_layout(rks_index *index, const rks_index_layout *layout, rks_error *err)
{
    size_t runs = layout->span_count;
    index->count = layout->count;
    index->run_count = runs;
    index->column_count = layout->column_count;
    index->shift = block_shift(layout->count, runs);
    size_t blocks = (size_t)(layout->count >> index->shift) + 2;
    if ((index->runs = rks_alloc(runs + 1, sizeof(*index->runs), err)) == NULL ||
        (index->by_id = rks_alloc(runs, sizeof(*index->by_id), err)) == NULL ||
        (index->position = rks_alloc(runs, sizeof(*index->position), err)) == NULL ||
        (index->blocks = rks_alloc(blocks, sizeof(*index->blocks), err)) == NULL ||
        (index->column_at = rks_alloc(layout->column_count, sizeof(uint64_t), err)) == NULL ||
        (index->item_sizes = rks_alloc(layout->column_count, sizeof(uint32_t), err)) == NULL)
        return RKS_ERR_MEMORY;
    index->own_bytes = (runs + 1) * sizeof(*index->runs) + blocks * sizeof(*index->blocks) +
                       runs * (sizeof(*index->by_id) + sizeof(*index->position));
    rks_usage_add(RKS_MEMORY_INDEX_OWN, index->own_bytes);
    for (size_t i = 0; i < runs; i++) {
        const rks_span *span = &layout->spans[i];
        index->runs[i] = (rks_index_run){(uint32_t)span->first_id, span->shard, span->first_row};
    }
    index->runs[runs].first_id = (uint32_t)layout->count;
    index->row_size = sizeof(uint32_t) + sizeof(uint64_t);
    for (size_t i = 0; i < layout->column_count; i++) {
        index->item_sizes[i] = layout->columns[i].item_size;
        index->row_size += layout->columns[i].item_size;
    }
    index->bytes = place_arrays(layout, &index->hashes_at, index->column_at);
    fill_blocks(index, blocks);
    return sort_runs(index, err);
}

static rks_status map_memory(rks_index *index, int fd, rks_error *err)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return rks_fail_errno(err, errno, "index: its memory");
    if (stat.st_size < 0 || (uint64_t)stat.st_size != index->bytes)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "index: memory of %jd bytes, %" PRIu64 " belong to this dataset",
                        (intmax_t)stat.st_size, index->bytes);
    /* A descriptor that was sent by another rank has lost this flag. */
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    void *map = mmap(NULL, index->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "index: map of %" PRIu64 " bytes", index->bytes);
    rks_usage_add(RKS_MEMORY_INDEX, index->bytes);
    index->map = map;
    index->fd = fd;
    return RKS_OK;
}

rks_status rks_index_memory(const rks_index_layout *layout, const char *directory, int *fd,
                            rks_error *err)
{
    uint64_t bytes;
    rks_status status = rks_index_size(layout, &bytes, err);
    return status == RKS_OK ? rks_shared_memory("index", bytes, directory, fd, err) : status;
}

rks_status rks_index_open(const rks_index_layout *layout, int fd, rks_index **index, rks_error *err)
{
    rks_index *opened = NULL;
    uint64_t bytes;
    rks_status status = rks_index_size(layout, &bytes, err);
    if (status == RKS_OK)
        status = check_spans(layout, err);
    if (status != RKS_OK)
        return status;
    opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->fd = -1;
    atomic_init(&opened->owners, 1);
    pthread_mutex_init(&opened->mutex, NULL);
    status = copy_layout(opened, layout, err);
    if (status == RKS_OK)
        status = map_memory(opened, fd, err);
    if (status == RKS_OK) {
        *index = opened;
        opened = NULL; /* the caller owns it now */
    }
    rks_index_close(opened);
    return status;
}

rks_status rks_index_seal(rks_index *index, bool leader, rks_error *err)
{
    if (mprotect(index->map, index->bytes, PROT_READ) != 0)
        return rks_fail_errno(err, errno, "index: making it read-only");
    return leader ? rks_shared_memory_seal("index", index->fd, err) : RKS_OK;
}

rks_index *rks_index_share(rks_index *index)
{
    atomic_fetch_add(&index->owners, 1);
    return index;
}

const void *rks_index_order(const rks_index *index)
{
    return index->order;
}

void rks_index_keep_order(rks_index *index, void *map, uint64_t bytes)
{
    rks_usage_add(RKS_MEMORY_INDEX, bytes);
    index->order = map;
    index->order_bytes = bytes;
}

void rks_index_close(rks_index *index)
{
    if (index == NULL || atomic_fetch_sub(&index->owners, 1) > 1)
        return;
    if (index->order != NULL) {
        munmap(index->order, index->order_bytes);
        rks_usage_sub(RKS_MEMORY_INDEX, index->order_bytes);
    }
    if (index->copied != NULL)
        munmap(index->copied, index->hashes_at);
    if (index->map != NULL) {
        munmap(index->map, index->bytes);
        rks_usage_sub(RKS_MEMORY_INDEX, index->bytes);
    }
    if (index->fd >= 0)
        close(index->fd);
    rks_index_table_free(atomic_load(&index->table));
    rks_index_sums_free(atomic_load(&index->sums));
    rks_usage_sub(RKS_MEMORY_INDEX_OWN, index->own_bytes);
    pthread_mutex_destroy(&index->mutex);
    rks_free(index->runs);
    rks_free(index->by_id);
    rks_free(index->position);
    rks_free(index->blocks);
    rks_free(index->column_at);
    rks_free(index->item_sizes);
    rks_free(index);
}

uint64_t rks_index_count(const rks_index *index)
{
    return index->count;
}

uint32_t *rks_index_lengths(rks_index *index)
{
    return (uint32_t *)(void *)(index->map + index->lengths_at);
}

/* Lengths come first in the memory. */
rks_status rks_index_copy_lengths(rks_index *index, uint32_t **lengths, rks_error *err)
{
    void *map = mmap(NULL, index->hashes_at, PROT_READ | PROT_WRITE, MAP_PRIVATE, index->fd, 0);
    if (map == MAP_FAILED)
        return rks_fail_errno(err, errno, "index: a copy of %" PRIu64 " bytes", index->hashes_at);
    *lengths = index->copied = map;
    return RKS_OK;
}

uint64_t *rks_index_key_hashes(rks_index *index)
{
    return (uint64_t *)(void *)(index->map + index->hashes_at);
}

void *rks_index_column_data(rks_index *index, size_t column)
{
    return index->map + index->column_at[column];
}

uint64_t rks_index_bytes(const rks_index *index)
{
    return index->bytes;
}

void rks_index_locate(const rks_index *index, uint64_t id, uint32_t *shard, uint64_t *row)
{
    uint64_t block = id >> index->shift;
    size_t low = index->blocks[block], high = index->blocks[block + 1];
    const rks_index_run *runs = index->runs;
    while (high - low > LINEAR_MAX) {
        size_t middle = low + (high - low) / 2;
        if (runs[middle].first_id <= id)
            low = middle;
        else
            high = middle;
    }
    while (low < high && runs[low + 1].first_id <= id)
        low++;
    *shard = runs[low].shard;
    *row = runs[low].first_row + (id - runs[low].first_id);
}

/* Returns the first place in by_id whose shard is not below `shard`. */
static size_t lower_bound(const rks_index *index, uint64_t shard)
{
    size_t low = 0, high = index->run_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->runs[index->by_id[middle]].shard < shard)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void rks_index_runs_of(const rks_index *index, uint32_t shard, size_t *first, size_t *end)
{
    *first = lower_bound(index, shard);
    *end = lower_bound(index, (uint64_t)shard + 1);
}
