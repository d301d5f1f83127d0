/* SPDX-License-Identifier: Apache-2.0
 *
 * index_find.c: ids by key hash, and hashes that occur more than once.
 *
 * Both take hashes as they come: a stranger's shard may hold any number of equal ones, so neither
 * building nor sorting depends on how they spread. */
#include "index/index_internal.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/pairs.h"
#include "base/usage.h"

/* The ids ordered by the top bits of their hashes: those of bucket b are
 * ids[first[b]..first[b + 1]), ascending. 2 to 4 ids a bucket: 4 bytes a sample for ids and 1 to 2
 * for first. */
struct rks_index_table {
    uint32_t bits;
    uint64_t bytes; /* as counted; 0 before */
    uint32_t *first;
    uint32_t *ids;
};

void rks_index_table_free(rks_index_table *table)
{
    if (table == NULL)
        return;
    rks_free(table->first);
    rks_free(table->ids);
    rks_usage_sub(RKS_MEMORY_INDEX_OWN, table->bytes);
    rks_free(table);
}

static uint64_t bucket_of(const rks_index_table *table, uint64_t hash)
{
    return table->bits == 0 ? 0 : hash >> (64 - table->bits);
}

static rks_status build_table(rks_index *index, rks_index_table **table, rks_error *err)
{
    rks_index_table *built = rks_alloc(1, sizeof(*built), err);
    if (built == NULL)
        return RKS_ERR_MEMORY;
    while (index->count >> built->bits >= 4)
        built->bits++;
    size_t buckets = (size_t)1 << built->bits;
    if ((built->first = rks_alloc(buckets + 2, sizeof(uint32_t), err)) == NULL ||
        (built->ids = rks_alloc_raw(index->count, sizeof(uint32_t), err)) == NULL) {
        rks_index_table_free(built);
        return RKS_ERR_MEMORY;
    }
    built->bytes = (buckets + 2 + index->count) * sizeof(uint32_t);
    rks_usage_add(RKS_MEMORY_INDEX_OWN, built->bytes);
    /* Counted two places up, so that after the ids are put in first[b + 1] is where b ends. */
    const uint64_t *hashes = rks_index_key_hashes(index);
    uint32_t *next = built->first + 1;
    for (uint64_t id = 0; id < index->count; id++)
        next[bucket_of(built, hashes[id]) + 1]++;
    for (size_t bucket = 1; bucket <= buckets; bucket++)
        next[bucket] += next[bucket - 1];
    for (uint64_t id = 0; id < index->count; id++)
        built->ids[next[bucket_of(built, hashes[id])]++] = (uint32_t)id;
    *table = built;
    return RKS_OK;
}

static rks_status table_of(rks_index *index, rks_index_table **table, rks_error *err)
{
    *table = atomic_load_explicit(&index->table, memory_order_acquire);
    if (*table != NULL)
        return RKS_OK;
    rks_status status = RKS_OK;
    pthread_mutex_lock(&index->mutex);
    *table = atomic_load_explicit(&index->table, memory_order_relaxed);
    if (*table == NULL) {
        status = build_table(index, table, err);
        if (status == RKS_OK)
            atomic_store_explicit(&index->table, *table, memory_order_release);
    }
    pthread_mutex_unlock(&index->mutex);
    return status;
}

rks_status rks_index_find(rks_index *index, uint64_t hash, bool (*visit)(void *user, uint64_t id),
                          void *user, rks_error *err)
{
    rks_index_table *table;
    rks_status status = table_of(index, &table, err);
    if (status != RKS_OK)
        return status;
    const uint64_t *hashes = rks_index_key_hashes(index);
    uint64_t bucket = bucket_of(table, hash);
    for (uint32_t i = table->first[bucket]; i < table->first[bucket + 1]; i++)
        if (hashes[table->ids[i]] == hash && !visit(user, table->ids[i]))
            break;
    return RKS_OK;
}

/* ---- equal hashes -------------------------------------------------------------------------- */

rks_status rks_index_equal_hashes(const rks_index *index, uint32_t part, uint32_t parts,
                                  rks_status (*pair)(void *user, uint64_t a, uint64_t b,
                                                     rks_error *err),
                                  void *user, rks_error *err)
{
    if (part >= parts)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "equal hashes: part %u of %u", part, parts);
    const uint64_t *hashes = (const uint64_t *)(const void *)(index->map + index->hashes_at);
    size_t count = 0;
    for (uint64_t id = 0; id < index->count; id++)
        count += hashes[id] % parts == part;
    rks_pair *entries = rks_alloc_raw(count, sizeof(*entries), err);
    if (entries == NULL)
        return RKS_ERR_MEMORY;
    size_t filled = 0;
    for (uint64_t id = 0; id < index->count && filled < count; id++)
        if (hashes[id] % parts == part)
            entries[filled++] = (rks_pair){hashes[id], id};
    rks_pairs_sort(entries, filled);
    rks_status status = RKS_OK;
    for (size_t i = 1; i < filled && status == RKS_OK; i++)
        if (entries[i].first == entries[i - 1].first)
            status = pair(user, entries[i - 1].second, entries[i].second, err);
    rks_free(entries);
    return status;
}
