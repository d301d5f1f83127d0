/* SPDX-License-Identifier: Apache-2.0
 *
 * absent_samples.c: the samples of an open store that nobody can deliver: of shards that are on no
 * rank's disk, and those in quarantine. Plans use the lengths that were sealed, and leave the
 * absent samples out of the batches (plan/absent_steps.h). Users see a copy of the lengths with the
 * absent ones marked. Of a lost shard whose index no rank has, the lengths are not known: its
 * samples are marked for plans, too. */
#include <sys/mman.h>

#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

/* Appends ids, which may meet the last run, or be in it. */
static void add_ids(rks_store *store, uint64_t first, uint64_t count)
{
    rks_absent_run *last =
        store->absent_count == 0 ? NULL : &store->absent[store->absent_count - 1];
    uint64_t end = first + count, reached = last == NULL ? 0 : (uint64_t)last->first + last->count;
    if (last == NULL || first > reached)
        store->absent[store->absent_count++] = (rks_absent_run){(uint32_t)first, (uint32_t)count};
    else if (end > reached)
        last->count += (uint32_t)(end - reached);
}

static bool is_lost(const rks_store *store, const rks_span *span)
{
    return store->owners[span->shard][0] < 0 && rks_store_index_sender(store, span->shard) >= 0;
}

/* Both lists are in the order of ids. */
static rks_status list_absent(rks_store *store, const rks_index_gather *filling, rks_error *err)
{
    size_t lost = 0, quarantined = 0;
    for (size_t i = 0; store->missing_shards > 0 && i < filling->span_count; i++)
        lost += is_lost(store, &filling->spans[i]);
    size_t most = lost + store->quarantined_count;
    if (most == 0)
        return RKS_OK;
    store->absent = rks_alloc_raw(most, sizeof(*store->absent), err);
    if (store->absent == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; lost > 0 && i < filling->span_count; i++) {
        const rks_span *span = &filling->spans[i];
        if (!is_lost(store, span))
            continue;
        while (quarantined < store->quarantined_count &&
               store->quarantined[quarantined] < span->first_id)
            add_ids(store, store->quarantined[quarantined++], 1);
        add_ids(store, span->first_id, span->count);
    }
    while (quarantined < store->quarantined_count)
        add_ids(store, store->quarantined[quarantined++], 1);
    return RKS_OK;
}

rks_status rks_store_note_absent(rks_store *store, const rks_index_gather *filling, rks_error *err)
{
    rks_status status = list_absent(store, filling, err);
    if (status != RKS_OK || store->absent_count == 0)
        return status;
    status = rks_index_copy_lengths(store->index, &store->shown, err);
    for (size_t i = 0; status == RKS_OK && i < store->absent_count; i++)
        for (uint64_t k = 0; k < store->absent[i].count; k++)
            store->shown[store->absent[i].first + k] = RKS_LENGTH_ABSENT;
    return status;
}
