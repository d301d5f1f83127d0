/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_scan.c: reads samples in id order, in batches. A batch holds samples of one shard, so the
 * shard's largest record bounds its memory. */
#include "manage/sample_scan.h"

#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

enum { BATCH_SAMPLES = 512, BATCH_BYTES = 32 << 20 };

typedef struct walk {
    const rks_scan *scan;
    uint64_t next, end; /* ids that are not requested yet */
    uint64_t ids[BATCH_SAMPLES];
    rks_value *values;
    uint32_t shard; /* of the last batch: its shard and end */
    uint64_t left;
} walk;

static bool wanted(const rks_scan *scan, uint64_t id)
{
    int64_t owner = rks_store_owner(scan->store, id);
    return scan->owner < 0 ? owner >= 0 : owner == scan->owner;
}

/* Requests the next batch; *fetch stays NULL after the last sample. */
static rks_status ask_next_batch(walk *w, rks_fetch **fetch, rks_error *err)
{
    const rks_scan *scan = w->scan;
    size_t count = 0, room = BATCH_SAMPLES;
    uint32_t batch_shard = UINT32_MAX;
    *fetch = NULL;
    for (; w->next < w->end && count < room; w->next++) {
        uint32_t shard;
        uint64_t row;
        if (!wanted(scan, w->next))
            continue;
        rks_index_locate(scan->store->index, w->next, &shard, &row);
        if (count > 0 && shard != batch_shard)
            break;
        batch_shard = shard;
        uint64_t largest = scan->store->dataset->shards[shard].largest;
        if (largest > BATCH_BYTES / BATCH_SAMPLES)
            room = largest >= BATCH_BYTES ? 1 : (size_t)(BATCH_BYTES / largest);
        w->ids[count++] = w->next;
    }
    return count == 0 ? RKS_OK : rks_store_fetch_start(scan->store, w->ids, count, fetch, err);
}

static rks_status visit_batch(walk *w, rks_batch *batch, rks_error *err)
{
    const rks_schema *schema = w->scan->store->dataset->schema;
    rks_status status = rks_group_must_stop(w->scan->store->group, err);
    if (status == RKS_OK)
        status = rks_check_interrupt(err);
    for (size_t i = 0; status == RKS_OK && i < rks_batch_count(batch); i++) {
        size_t size = 0;
        rks_batch_payload(batch, i, &size);
        rks_sample sample = {.schema = schema, .values = w->values};
        sample.key = rks_batch_key(batch, i, &sample.key_size);
        sample.length = rks_batch_length(batch, i);
        status = sample.key == NULL ? rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory for a key")
                                    : rks_batch_decode(batch, i, w->values, err);
        if (status == RKS_OK)
            status = w->scan->visit(w->scan->user, rks_batch_id(batch, i), &sample,
                                    size + sample.key_size, err);
    }
    return status;
}

/* Lets memory go after a batch: each sample is read once, so what was not in memory before need not
 * stay. */
static void leave_batch(walk *w, const rks_batch *batch)
{
    enum { KEPT = 2 << 20 }; /* bytes after it are kept, since a block may be read again */
    uint32_t shard = 0;
    uint64_t row = 0, first = 0, end = 0;
    if (rks_batch_count(batch) == 0)
        return;
    rks_index_locate(w->scan->store->index, rks_batch_id(batch, rks_batch_count(batch) - 1), &shard,
                     &row);
    const rks_shard *at = w->scan->store->shards[shard];
    if (at == NULL || !rks_shard_extent(at, row, &first, &end))
        return;
    if (shard != w->shard)
        w->left = 0;
    w->shard = shard;
    if (end < w->left + 2 * (uint64_t)KEPT)
        return;
    rks_shard_leave(at, w->left, end - KEPT);
    w->left = (end - KEPT) / RKS_RESIDENT_GRANULE * RKS_RESIDENT_GRANULE;
}

rks_status rks_store_scan(const rks_scan *scan, uint64_t first, uint64_t end, rks_error *err)
{
    rks_fetch *fetch = NULL;
    walk *w = rks_alloc(1, sizeof(*w), err);
    if (w == NULL)
        return RKS_ERR_MEMORY;
    *w = (walk){.scan = scan, .next = first, .end = end, .shard = UINT32_MAX};
    w->values =
        rks_alloc(rks_schema_columns(scan->store->dataset->schema), sizeof(*w->values), err);
    rks_status status = w->values == NULL ? RKS_ERR_MEMORY : ask_next_batch(w, &fetch, err);
    while (status == RKS_OK && fetch != NULL) {
        rks_fetch *ahead = NULL;
        rks_batch *batch = NULL;
        status = ask_next_batch(w, &ahead, err);
        if (status == RKS_OK)
            status = rks_fetch_wait(fetch, &batch, err);
        else
            rks_fetch_cancel(fetch);
        fetch = ahead;
        if (status == RKS_OK)
            status = visit_batch(w, batch, err);
        if (status == RKS_OK)
            leave_batch(w, batch);
        rks_batch_free(batch);
    }
    rks_fetch_cancel(fetch);
    rks_free(w->values);
    rks_free(w);
    return status;
}
