/* SPDX-License-Identifier: Apache-2.0
 *
 * store.c: the calls on an open store that wait for no other rank, and fetching by id. */
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cache_line.h"
#include "base/error.h"
#include "base/memory.h"

uint64_t rks_store_count(const rks_store *store)
{
    return store->dataset->count;
}

size_t rks_store_units(const rks_store *store, uint64_t *first_ids, size_t room)
{
    size_t units = store->dataset->unit_count;
    uint64_t next = rks_store_count(store);
    size_t with_samples = store->unit_count;
    for (size_t i = units; i-- > 0;) {
        if (with_samples > 0 && store->unit_number[with_samples - 1] == i)
            next = store->unit_first[--with_samples];
        if (i < room)
            first_ids[i] = next;
    }
    return units;
}

const char *rks_store_dataset(const rks_store *store)
{
    return store->id_text;
}

const rks_schema *rks_store_schema(const rks_store *store)
{
    return store->dataset->schema;
}

rks_group *rks_store_group(const rks_store *store)
{
    return store->group;
}

const uint32_t *rks_store_lengths(const rks_store *store)
{
    return store->shown != NULL ? store->shown : rks_index_lengths(store->index);
}

const uint32_t *rks_store_sealed_lengths(const rks_store *store)
{
    return rks_index_lengths(store->index);
}

const uint64_t *rks_store_key_hashes(const rks_store *store)
{
    return rks_index_key_hashes(store->index);
}

const void *rks_store_column(const rks_store *store, const char *name, const char **type)
{
    for (size_t i = 0; i < store->dataset->index_count; i++) {
        if (strcmp(store->dataset->index[i], name) != 0)
            continue;
        int column = rks_schema_find(store->dataset->schema, name);
        if (type != NULL)
            *type = rks_schema_type(store->dataset->schema, (uint32_t)column);
        return rks_index_column_data(store->index, i);
    }
    return NULL;
}

rks_index *rks_store_index(rks_store *store)
{
    return rks_index_share(store->index);
}

int64_t rks_store_shard(const rks_store *store, uint64_t sample_id)
{
    if (sample_id >= store->dataset->count)
        return -1;
    uint32_t shard;
    uint64_t row;
    rks_index_locate(store->index, sample_id, &shard, &row);
    return shard;
}

int64_t rks_store_owner(const rks_store *store, uint64_t sample_id)
{
    int64_t shard = rks_store_shard(store, sample_id);
    return shard < 0 || rks_store_is_quarantined(store, sample_id) ? -1 : store->owners[shard][0];
}

void rks_store_stats_get(rks_store *store, rks_store_stats *stats)
{
    size_t room = stats->struct_size;
    rks_fetch_stats fetched;
    uint64_t served_reads = 0, served_bytes = 0;
    rks_fetcher_stats(store->fetcher, &fetched);
    if (store->server != NULL)
        rks_fetch_server_disk(store->server, &served_reads, &served_bytes);
    rks_store_stats all = {
        .struct_size = room,
        .samples = fetched.samples,
        .bytes = fetched.bytes,
        .local_bytes = fetched.local_bytes,
        .remote_bytes = fetched.remote_bytes,
        .wait_ns = fetched.wait_ns,
        .peak_inflight_bytes = fetched.peak_inflight_bytes,
        .peak_batch_bytes = fetched.peak_batch_bytes,
        .served_bytes = store->server == NULL ? 0 : rks_fetch_server_bytes(store->server),
        .index_bytes_node = rks_index_bytes(store->index),
        .exchange_bytes = store->exchange_bytes,
        .quarantined = store->quarantined_count,
        .collectives = rks_group_collectives(store->group),
        .disk_bytes = fetched.disk_bytes + served_bytes,
        .disk_reads = fetched.disk_reads + served_reads,
        .shards = store->dataset->shard_count,
        .home_bytes = rks_store_home_bytes(store),
        .arriving_shards = rks_store_count_arriving(store),
        .missing_shards = store->missing_shards,
        .missing_samples = store->missing_samples,
    };
    snprintf(all.exchange, sizeof(all.exchange), "%s", store->exchange_name);
    snprintf(all.exchange_why, sizeof(all.exchange_why), "%s", store->exchange_why);
    memcpy(stats, &all, room < sizeof(all) ? room : sizeof(all));
}

rks_status rks_store_place(const rks_store *store, uint64_t sample_id, const char **path,
                           uint64_t *offset, uint64_t *size, rks_error *err)
{
    uint32_t shard = 0;
    uint64_t row = 0, first = 0, end = 0;
    if (sample_id >= store->dataset->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "sample %" PRIu64 " is out of range: the dataset has %" PRIu64, sample_id,
                        store->dataset->count);
    rks_index_locate(store->index, sample_id, &shard, &row);
    if (store->shards[shard] == NULL)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                        "sample %" PRIu64 " lies in shard %s, which is not on this node", sample_id,
                        store->dataset->shards[shard].name);
    if (!rks_shard_extent(store->shards[shard], row, &first, &end))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "sample %" PRIu64 ": the index of %s is damaged",
                        sample_id, rks_shard_path(store->shards[shard]));
    *path = rks_shard_path(store->shards[shard]);
    *offset = first;
    *size = end - first;
    return RKS_OK;
}

void rks_store_drop_cache(rks_store *store, rks_cache_report *report)
{
    size_t room = report == NULL ? 0 : report->struct_size;
    rks_cache_report found = {.struct_size = room};
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        if (store->shards[i] != NULL)
            rks_shard_drop(store->shards[i]);
    for (size_t i = 0; i < store->dataset->shard_count; i++) {
        uint64_t bytes = 0;
        if (store->shards[i] == NULL)
            continue;
        found.file_bytes += rks_shard_file_bytes(store->shards[i]);
        if (found.cached_bytes != UINT64_MAX)
            found.cached_bytes = rks_shard_resident_bytes(store->shards[i], &bytes)
                                     ? found.cached_bytes + bytes
                                     : UINT64_MAX;
    }
    rks_fetcher_forget_cache(store->fetcher);
    if (store->server != NULL)
        rks_fetch_server_forget_cache(store->server);
    if (report != NULL)
        memcpy(report, &found, room < sizeof(found) ? room : sizeof(found));
}

static rks_status cannot_be_had(const rks_store *store, uint64_t id, uint32_t shard, rks_error *err)
{
    if (id >= store->dataset->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "sample %" PRIu64 " is out of range: the dataset has %" PRIu64, id,
                        store->dataset->count);
    if (store->owners[shard][0] < 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                        "sample %" PRIu64 " lies in shard %s, which is on no rank's disk", id,
                        store->dataset->shards[shard].name);
    return rks_fail(err, RKS_ERR_NOT_FOUND, 0,
                    "sample %" PRIu64 " is in quarantine: the list that the store was opened with "
                    "leaves it out",
                    id);
}

/* Collects what the fetcher needs to know about a sample, from the index. */
static inline rks_status want(const rks_store *store, uint64_t id, rks_wanted *wanted,
                              rks_error *err)
{
    if (id >= store->dataset->count)
        return cannot_be_had(store, id, 0, err);
    wanted->id = id;
    rks_index_locate(store->index, id, &wanted->shard, &wanted->row);
    wanted->length = rks_index_lengths(store->index)[id];
    /* only the check of a sample needs it */
    wanted->key_hash = store->options.no_check ? 0 : rks_index_key_hashes(store->index)[id];
    if (store->owners[wanted->shard][0] < 0 ||
        (store->quarantined_count != 0 && rks_store_is_quarantined(store, id)))
        return cannot_be_had(store, id, wanted->shard, err);
    return RKS_OK;
}

enum { AHEAD = 16 }; /* how many samples of a list are prefetched */

/* Prefetches what `want` will read of a large index. An id out of range is left to `want`. */
static void prefetch_entry(const rks_store *store, uint64_t id)
{
    if (id >= store->dataset->count)
        return;
    rks_prefetch(&rks_index_lengths(store->index)[id]);
    if (!store->options.no_check)
        rks_prefetch(&rks_index_key_hashes(store->index)[id]);
}

/* Lists samples by their ids, of 64 bits if `wide`, else of 32. Inline, so that each caller has a
 * loop without that question. */
static inline rks_status list_samples(rks_store *store, const void *ids, bool wide, size_t count,
                                      rks_request_list **list, rks_error *err)
{
    const uint64_t *ids64 = ids;
    const uint32_t *ids32 = ids;
    rks_request_list *made = NULL;
    rks_status status = rks_request_list_create(store->fetcher, count, &made, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        if (i + AHEAD < count)
            prefetch_entry(store, wide ? ids64[i + AHEAD] : ids32[i + AHEAD]);
        status = want(store, wide ? ids64[i] : ids32[i], &made->wanted[i], err);
    }
    if (status != RKS_OK) {
        rks_request_list_free(made);
        return status;
    }
    *list = made;
    return RKS_OK;
}

rks_status rks_store_list32(rks_store *store, const uint32_t *ids, size_t count,
                            rks_request_list **list, rks_error *err)
{
    return list_samples(store, ids, false, count, list, err);
}

static rks_status list64(rks_store *store, const uint64_t *ids, size_t count,
                         rks_request_list **list, rks_error *err)
{
    if (count > 0 && ids == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "sample_ids is NULL");
    if (count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%zu samples in a fetch are too many", count);
    return list_samples(store, ids, true, count, list, err);
}

rks_status rks_store_fetch_start(rks_store *store, const uint64_t *sample_ids, size_t count,
                                 rks_fetch **fetch, rks_error *err)
{
    rks_request_list *list = NULL;
    rks_status status = list64(store, sample_ids, count, &list, err);
    if (status != RKS_OK)
        return status;
    status = rks_fetcher_start(store->fetcher, list, fetch, err);
    if (status != RKS_OK)
        rks_request_list_free(list);
    return status;
}

rks_status rks_store_fetch(rks_store *store, const uint64_t *sample_ids, size_t count,
                           rks_batch **batch, rks_error *err)
{
    rks_request_list *list = NULL;
    rks_status status = list64(store, sample_ids, count, &list, err);
    if (status != RKS_OK)
        return status;
    status = rks_fetcher_fetch(store->fetcher, list, batch, err);
    return rks_group_explain(store->group, status, err);
}

rks_status rks_store_view(rks_store *store, uint64_t sample_id, rks_view **view, rks_error *err)
{
    rks_wanted wanted;
    rks_status status = want(store, sample_id, &wanted, err);
    if (status != RKS_OK)
        return status;
    status = rks_fetcher_view(store->fetcher, &wanted, view, err);
    return rks_group_explain(store->group, status, err);
}

rks_status rks_store_read_now(rks_store *store, uint64_t sample_id, void *to, size_t room,
                              rks_value *values, bool *done, rks_error *err)
{
    rks_wanted wanted;
    *done = false;
    rks_status status = want(store, sample_id, &wanted, err);
    if (status != RKS_OK)
        return status;
    return rks_fetcher_read_now(store->fetcher, &wanted, to, room, values, done, err);
}

rks_status rks_store_collate(rks_store *store, const uint64_t *sample_ids, size_t count,
                             const rks_collate_options *options, rks_arrays **arrays,
                             rks_error *err)
{
    const rks_planned_batch batch = {
        .struct_size = sizeof(batch), .sample_ids = sample_ids, .count = count};
    return rks_store_collate_planned(store, &batch, options, arrays, err);
}

rks_status rks_store_collate_planned(rks_store *store, const rks_planned_batch *given,
                                     const rks_collate_options *options, rks_arrays **arrays,
                                     rks_error *err)
{
    rks_planned_batch batch = {0};
    size_t known = given->struct_size;
    memcpy(&batch, given, known < sizeof(batch) ? known : sizeof(batch));
    rks_collate *collate = NULL;
    rks_request_list *list = NULL;
    rks_status status = rks_collate_create(rks_store_schema(store), options, &collate, err);
    if (status != RKS_OK)
        return status;
    status = list64(store, batch.sample_ids, batch.count, &list, err);
    if (status == RKS_OK)
        status = rks_request_list_set_pieces(list, batch.pieces, batch.piece_count, err);
    if (status == RKS_OK && batch.bounds != NULL)
        status = rks_request_list_set_bins(list, batch.bounds, batch.bins, err);
    if (status == RKS_OK)
        status = rks_fetcher_collate(store->fetcher, list, collate, arrays, err);
    else
        rks_request_list_free(list);
    rks_collate_release(collate);
    return status;
}
