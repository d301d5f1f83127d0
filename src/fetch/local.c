/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c: locates samples in maps of this node, copies them into one allocation, and checks them.
 *
 * It reads the sizes of a record once, in the map. It checks and returns the copied bytes, so a
 * file that changes in between does no harm. */
#include "fetch/local.h"

#include <string.h>

#include "base/cache_line.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/trace.h"
#include "fetch/readahead.h"
#include "fetch/wire.h"

enum { AHEAD = 4, PREFETCH_RECORD = 1024, LOCATE_MOST = 64 };
/* MERGE_GAP: most bytes between records that are read from the disk together. FAULTS_MOST: if a
 * batch itself had to read more pages, all that was known to be in memory may be gone. */
enum { MERGE_GAP = 4096, FAULTS_MOST = 4 };

void rks_fetch_prefetch_local(const rks_batch *batch, size_t i)
{
    if (i + AHEAD >= batch->count || !rks_request_list_is_local(batch->list, i + AHEAD))
        return;
    const rks_record_view *view = &batch->views[i + AHEAD];
    size_t size = view->record_size < PREFETCH_RECORD ? view->record_size : PREFETCH_RECORD;
    for (size_t at = 2 * RKS_CACHE_LINE; at < size; at += RKS_CACHE_LINE)
        rks_prefetch(view->record + at);
}

/* ---- the disk ------------------------------------------------------------------------------ */

void rks_fetch_ask_disk(rks_request_list *list)
{
    rks_disk_reader *disk = &list->fetcher->disk;
    /* Asking might wait for a thread that reads ahead, and so for the storage. */
    if (list->asked || list->ready || rks_disk_reader_is_warm(disk) ||
        (list->ahead != NULL && !rks_readahead_claim(list->ahead, list->ahead_end, list->count)))
        return;
    rks_range few[LOCATE_MOST], *ranges = few;
    size_t room = LOCATE_MOST, count = 0;
    list->asked = true;
    if (list->count > LOCATE_MOST) {
        ranges = rks_alloc_raw(list->count, sizeof(*ranges), NULL);
        room = ranges == NULL ? LOCATE_MOST : list->count;
    }
    ranges = ranges == NULL ? few : ranges;
    for (size_t i = 0; i < list->count; i++) {
        const rks_wanted *wanted = &list->wanted[i];
        count += rks_disk_reader_range(disk, wanted->shard, wanted->row, &ranges[count]);
        if (count == room && i + 1 < list->count) {
            rks_disk_reader_ask(disk, ranges, count, NULL);
            count = 0;
        }
    }
    count = rks_ranges_merge(ranges, count, 1, MERGE_GAP);
    if (count == 1)
        rks_disk_reader_follow(disk, ranges);
    else
        rks_disk_reader_ask(disk, ranges, count, NULL);
    if (ranges != few)
        rks_free(ranges);
}

bool rks_fetch_notice_faults(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count)
{
    rks_disk_reader *disk = &fetcher->disk;
    long faults = rks_disk_faults(false);
    size_t pages = faults <= 0 ? 0 : rks_disk_reader_waited(disk, faults);
    if (pages > FAULTS_MOST)
        rks_disk_reader_forget(disk);
    for (size_t i = 0; pages > 0 && pages <= FAULTS_MOST && i < count; i++) {
        uint64_t first = 0, end = 0;
        const rks_shard *shard = fetcher->shards[wanted[i].shard];
        if (shard != NULL && rks_shard_extent(shard, wanted[i].row, &first, &end))
            rks_shard_forget(shard, first, end);
    }
    return pages > FAULTS_MOST;
}

void rks_fetch_notice_batch_faults(const rks_batch *batch)
{
    if (rks_fetch_notice_faults(batch->fetcher, batch->wanted, batch->count) &&
        batch->list->ahead != NULL && !batch->list->asked)
        rks_readahead_lost(batch->list->ahead);
}

/* ---- samples ------------------------------------------------------------------------------- */

/* Finds the sample of the group that cannot be read, and its error. */
__attribute__((cold)) static rks_status find_unreadable(const rks_batch *batch, size_t first,
                                                        uint64_t same, const rks_error *known,
                                                        rks_error *err)
{
    for (; same != 0; same &= same - 1) {
        const rks_wanted *wanted = &batch->wanted[first + (size_t)__builtin_ctzll(same)];
        rks_error inner;
        rks_record_view view;
        if (rks_shard_locate(batch->fetcher->shards[wanted->shard], wanted->row, &view, &inner) !=
            RKS_OK)
            return rks_fetcher_blame(batch->fetcher, wanted, &inner, err);
    }
    if (err != NULL)
        *err = *known; /* it can be read now */
    return (rks_status)known->status;
}

/* Locates the samples of [first, first + LOCATE_MOST) whose bits are in `todo`, shard by shard. */
static rks_status locate_some(rks_batch *batch, size_t first, uint64_t todo, rks_error *err)
{
    while (todo != 0) {
        uint64_t rows[LOCATE_MOST], same = 0;
        rks_record_view views[LOCATE_MOST];
        rks_error inner;
        size_t count = 0;
        uint32_t shard = batch->wanted[first + (size_t)__builtin_ctzll(todo)].shard;
        for (uint64_t left = todo; left != 0; left &= left - 1) {
            size_t i = (size_t)__builtin_ctzll(left);
            if (batch->wanted[first + i].shard != shard)
                continue;
            rows[count++] = batch->wanted[first + i].row;
            same |= left & -left;
        }
        /* Usually all are of one shard and side by side in the batch. */
        bool together = (same & (same + 1)) == 0;
        rks_status status = rks_shard_locate_many(batch->fetcher->shards[shard], rows, count,
                                                  together ? &batch->views[first] : views, &inner);
        if (status != RKS_OK)
            return find_unreadable(batch, first, same, &inner, err);
        todo &= ~same;
        if (together)
            continue;
        for (size_t i = 0; same != 0; same &= same - 1)
            batch->views[first + (size_t)__builtin_ctzll(same)] = views[i++];
    }
    return RKS_OK;
}

static bool arrives(const rks_fetcher *fetcher, const rks_wanted *wanted)
{
    const rks_shard *shard = fetcher->shards[wanted->shard];
    return shard != NULL && rks_shard_arrives(shard);
}

rks_status rks_fetch_wait_arriving(rks_fetcher *fetcher, const rks_wanted *wanted, size_t count,
                                   rks_error *err)
{
    const rks_arriving *arriving = fetcher->options.arriving;
    if (arriving == NULL || !arriving->here || count == 0)
        return RKS_OK;
    size_t local = 0;
    while (local < count && !arrives(fetcher, &wanted[local]))
        local++;
    if (local == count) /* also when all has come: this is all that it costs then */
        return RKS_OK;
    rks_arriving_row *rows = rks_alloc_raw(count, sizeof(*rows), err);
    if (rows == NULL)
        return RKS_ERR_MEMORY;
    local = 0;
    for (size_t i = 0; i < count; i++)
        if (arrives(fetcher, &wanted[i]))
            rows[local++] = (rks_arriving_row){wanted[i].shard, wanted[i].row};
    bool waited = false;
    rks_status status = rks_arriving_wait(arriving, rows, local, &waited, err);
    if (waited)
        rks_fetcher_note_home_wait(fetcher);
    rks_free(rows);
    return status;
}

rks_status rks_fetch_locate_local(rks_batch *batch, size_t *size, rks_error *err)
{
    size_t end = 0;
    rks_status here = rks_fetch_wait_arriving(batch->fetcher, batch->wanted, batch->count, err);
    if (here != RKS_OK)
        return here;
    for (size_t first = 0; first < batch->count; first += LOCATE_MOST) {
        size_t many = batch->count - first < LOCATE_MOST ? batch->count - first : LOCATE_MOST;
        uint64_t local = 0;
        for (size_t i = 0; i < many; i++)
            local |= (uint64_t)rks_request_list_is_local(batch->list, first + i) << i;
        rks_status status = locate_some(batch, first, local, err);
        if (status != RKS_OK)
            return status;
        for (; local != 0; local &= local - 1) {
            const rks_record_view *view = &batch->views[first + (size_t)__builtin_ctzll(local)];
            size_t place = rks_fetch_record_place(end, view);
            if (place < end || __builtin_add_overflow(place, view->record_size, &end))
                return rks_fail(err, RKS_ERR_MEMORY, 0,
                                "the samples of the batch exceed the memory; use smaller batches");
        }
    }
    *size = end;
    return RKS_OK;
}

rks_status rks_fetch_check_faults(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, rks_error *err)
{
    const rks_shard *shard = fetcher->shards[wanted->shard];
    rks_error inner;
    if (!rks_shard_faulted(shard, in_map->record, in_map->record_size))
        return RKS_OK;
    rks_shard_read_failed(shard, wanted->row, in_map, &inner);
    return rks_fetcher_blame(fetcher, wanted, &inner, err);
}

rks_status rks_fetch_copy_checked(const rks_fetcher *fetcher, const rks_wanted *wanted,
                                  const rks_record_view *in_map, uint8_t *to, rks_record_view *copy,
                                  rks_error *err)
{
    memcpy(to, in_map->record, in_map->record_size);
    *copy = *in_map;
    copy->record = to;
    copy->payload = to + (in_map->payload - in_map->record);
    copy->key = to + (in_map->key_size == 0 ? 0 : in_map->key - in_map->record);
    rks_status status = rks_fetch_check_faults(fetcher, wanted, in_map, err);
    return status == RKS_OK && fetcher->options.check
               ? rks_fetcher_check(fetcher, wanted, copy, err)
               : status;
}

static rks_status copy_all(rks_batch *batch, uint8_t *data, uint64_t *bytes, rks_error *err)
{
    const rks_fetcher *fetcher = batch->fetcher;
    uint64_t sum = 0;
    size_t end = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const rks_wanted *wanted = &batch->wanted[i];
        if (!rks_request_list_is_local(batch->list, i))
            continue;
        rks_fetch_prefetch_local(batch, i);
        rks_record_view *view = &batch->views[i], in_map = *view;
        size_t place = rks_fetch_record_place(end, view);
        rks_status status =
            rks_fetch_copy_checked(fetcher, wanted, &in_map, data + place, view, err);
        if (status != RKS_OK)
            return status;
        sum += rks_payload_bytes(fetcher->layouts.of[wanted->shard], view);
        end = place + in_map.record_size;
    }
    *bytes = sum;
    return RKS_OK;
}

rks_status rks_fetch_copy_local(rks_batch *batch, rks_block **block, uint64_t *bytes,
                                rks_error *err)
{
    size_t size = 0;
    uint64_t begun = rks_trace_begin();
    rks_fetch_ask_disk(batch->list);
    rks_status status = rks_fetch_locate_local(batch, &size, err);
    if (status != RKS_OK)
        return status;
    rks_block *copies = rks_blocks_take(batch->fetcher->pool, size, err);
    if (copies == NULL)
        return RKS_ERR_MEMORY;
    status = copy_all(batch, copies->data, bytes, err);
    rks_fetch_notice_batch_faults(batch);
    if (status != RKS_OK) {
        rks_blocks_give(batch->fetcher->pool, copies);
        return status;
    }
    *block = copies;
    rks_trace_end(begun, RKS_TRACE_COPY, -1, 0, *bytes);
    return RKS_OK;
}
