/* SPDX-License-Identifier: Apache-2.0
 *
 * disk_reader.c: asks the disk for records, and notices if it should have been asked. */
#include "fetch/disk_reader.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    LOOK_A_CALL = 16,     /* granules that a batch's own thread checks */
    LOOK_AT_ONCE = 256,   /* granules that a thread of its own checks before it reads `stop` */
    LOOK_AGAIN_MS = 1000, /* after a granule was missing */
    MERGE_GAP = 4096,     /* bytes: reading one more page costs less than another request */
    IDLE_MOST = 64 << 20, /* bytes: more than the system reads ahead of a stream */
};

void rks_disk_reader_begin(rks_disk_reader *disk, rks_shard *const *shards, size_t count)
{
    disk->shards = shards;
    disk->count = count;
    for (size_t i = 0; i < count; i++)
        if (shards[i] != NULL)
            rks_shard_expect_random(shards[i]);
}

static rks_resident_state look(rks_disk_reader *disk, size_t *budget)
{
    for (size_t i = 0; i < disk->count; i++) {
        if (disk->shards[i] == NULL)
            continue;
        rks_resident_state found = rks_shard_scan(disk->shards[i], budget);
        if (found == RKS_RESIDENT_SOME)
            atomic_store(&disk->scan_ms, rks_now_ms() + LOOK_AGAIN_MS);
        if (found != RKS_RESIDENT_ALL)
            return found;
    }
    atomic_store(&disk->warm, true);
    return RKS_RESIDENT_ALL;
}

bool rks_disk_reader_is_warm(rks_disk_reader *disk)
{
    size_t budget = LOOK_A_CALL;
    if (atomic_load_explicit(&disk->warm, memory_order_relaxed))
        return true;
    if (rks_now_ms() < atomic_load_explicit(&disk->scan_ms, memory_order_relaxed))
        return false;
    return look(disk, &budget) == RKS_RESIDENT_ALL;
}

bool rks_disk_reader_scan(rks_disk_reader *disk, const atomic_bool *stop)
{
    rks_resident_state found = RKS_RESIDENT_UNKNOWN;
    if (atomic_load_explicit(&disk->warm, memory_order_relaxed))
        return true;
    if (rks_now_ms() < atomic_load_explicit(&disk->scan_ms, memory_order_relaxed))
        return false;
    while (found == RKS_RESIDENT_UNKNOWN && !atomic_load(stop)) {
        size_t budget = LOOK_AT_ONCE;
        found = look(disk, &budget);
    }
    return found == RKS_RESIDENT_ALL;
}

bool rks_disk_reader_is_cold(const rks_disk_reader *disk)
{
    return !atomic_load_explicit(&disk->warm, memory_order_relaxed) &&
           atomic_load_explicit(&disk->scan_ms, memory_order_relaxed) != 0;
}

/* Finds the range of a record. Returns false if it is not on this node or its place is unknown. */
static bool find_extent(const rks_disk_reader *disk, uint32_t shard, uint64_t row, rks_range *range)
{
    if (shard >= disk->count || disk->shards[shard] == NULL ||
        !rks_shard_extent(disk->shards[shard], row, &range->first, &range->end))
        return false;
    range->file = shard;
    return true;
}

static bool in_memory(const rks_disk_reader *disk, const rks_range *range)
{
    return rks_shard_in_memory(disk->shards[range->file], range->first, range->end);
}

bool rks_disk_reader_range(const rks_disk_reader *disk, uint32_t shard, uint64_t row,
                           rks_range *range)
{
    return find_extent(disk, shard, row, range) && !in_memory(disk, range);
}

const rks_range *rks_disk_window_add(const rks_disk_reader *disk, rks_disk_window *window,
                                     uint32_t shard, uint64_t row)
{
    rks_range *range = &window->all[window->count];
    if (!find_extent(disk, shard, row, range) || range->first >= range->end)
        return NULL;
    window->count++;
    if (!in_memory(disk, range))
        window->missing[window->missing_count++] = *range;
    return range;
}

static void count_reads(rks_disk_reader *disk, uint64_t requests, uint64_t bytes)
{
    atomic_fetch_add_explicit(&disk->disk_reads, requests, memory_order_relaxed);
    atomic_fetch_add_explicit(&disk->disk_bytes, bytes, memory_order_relaxed);
}

/* Bytes that this thread has read from disks and counted, by asking or by faults. */
static __thread struct {
    bool known;
    uint64_t bytes;
} counted;

static void count_all_so_far(void)
{
    counted.known = rks_disk_bytes_of_thread(&counted.bytes);
}

void rks_disk_reader_follow(rks_disk_reader *disk, const rks_range *range)
{
    if (!counted.known)
        count_all_so_far();
    uint64_t bytes = rks_shard_follow(disk->shards[range->file], range->first, range->end);
    uint64_t now = 0;
    if (bytes == 0)
        return;
    if (counted.known && rks_disk_bytes_of_thread(&now)) { /* some may have been in memory */
        bytes = now - counted.bytes;
        counted.bytes = now;
    }
    count_reads(disk, bytes != 0, bytes);
}

bool rks_disk_stream_follows(rks_disk_stream *stream, rks_disk_window *window, uint32_t readers)
{
    rks_range last = stream->last, *ranges = window->all;
    bool missing = window->missing_count > 0;
    uint64_t sum = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (last.end == 0 && !missing)
        return false;
    stream->last = (rks_range){0};
    size_t count = rks_ranges_merge(ranges, window->count, page, MERGE_GAP);
    window->count = count;
    if (count == 0 || ranges[0].file != ranges[count - 1].file)
        return false;
    rks_range stretch = {ranges[0].first, ranges[count - 1].end, ranges[0].file};
    for (size_t i = 0; i < count; i++)
        sum += ranges[i].end - ranges[i].first;
    stream->idle = missing ? 0 : stream->idle + (stretch.end - stretch.first);
    if (sum < (stretch.end - stretch.first) / readers || stream->idle > IDLE_MOST)
        return false;
    stream->last = stretch;
    uint64_t gap = MERGE_GAP + (readers - 1) * (last.end - last.first);
    if (last.end == 0 || last.file != stretch.file || stretch.first < last.first ||
        stretch.end <= last.end || (stretch.first > last.end && stretch.first - last.end > gap))
        return false;
    stretch.first = last.end;
    ranges[0] = stretch;
    window->count = 1;
    return true;
}

void rks_disk_reader_stream(rks_disk_reader *disk, rks_disk_stream *stream, rks_range *stretch,
                            const atomic_bool *stop)
{
    uint64_t before = 0, after = 0;
    bool known = rks_disk_bytes_of_thread(&before);
    if (!rks_shard_stream_to(&stream->file, disk->shards[stretch->file], stretch->first,
                             stretch->end, stop)) {
        rks_disk_reader_ask(disk, stretch, 1, stop);
        return;
    }
    uint64_t bytes = stretch->end - stretch->first;
    if (known && rks_disk_bytes_of_thread(&after)) {
        bytes = after - before;
        counted.bytes += bytes;
    }
    count_reads(disk, bytes != 0, bytes);
}

void rks_disk_reader_ask(rks_disk_reader *disk, rks_range *ranges, size_t count,
                         const atomic_bool *stop)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = 0, after = 0, bytes = 0, asked = 0;
    size_t merged = rks_ranges_merge(ranges, count, page, MERGE_GAP);
    if (merged == 0)
        return;
    bool known = rks_disk_bytes_of_thread(&before);
    for (; asked < merged && (stop == NULL || !atomic_load(stop)); asked++) {
        const rks_range *range = &ranges[asked];
        rks_shard_ask(disk->shards[range->file], range->first, range->end);
        bytes += range->end - range->first;
    }
    if (known && rks_disk_bytes_of_thread(&after)) {
        bytes = after - before;
        counted.bytes += bytes;
    }
    /* Ranges that were in memory needed no read. */
    uint64_t most = (bytes + page - 1) / page;
    count_reads(disk, asked < most ? asked : most, bytes);
}

long rks_disk_faults(bool exact)
{
    static __thread struct {
        int64_t at_ns;
        long faults;
    } last;
    struct timespec now;
    struct rusage usage;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    int64_t at_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if ((at_ns == last.at_ns && !exact) || getrusage(RUSAGE_THREAD, &usage) != 0)
        return 0;
    if (last.at_ns == 0)
        count_all_so_far();
    long faults = last.at_ns == 0 ? 0 : usage.ru_majflt - last.faults;
    last.at_ns = at_ns;
    last.faults = usage.ru_majflt;
    return faults;
}

size_t rks_disk_reader_waited(rks_disk_reader *disk, long faults)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), now = 0;
    size_t pages = (size_t)faults;
    if (counted.known && rks_disk_bytes_of_thread(&now)) {
        pages = (size_t)((now - counted.bytes + page - 1) / page);
        counted.bytes = now;
    }
    if (pages == 0)
        return 0;
    rks_disk_reader_rescan(disk);
    count_reads(disk, pages, pages * page);
    return pages;
}

void rks_disk_reader_rescan(rks_disk_reader *disk)
{
    atomic_store(&disk->warm, false);
    atomic_store(&disk->scan_ms, 0);
}

void rks_disk_reader_forget(const rks_disk_reader *disk)
{
    for (size_t i = 0; i < disk->count; i++)
        if (disk->shards[i] != NULL)
            rks_shard_forget(disk->shards[i], 0, UINT64_MAX);
}
