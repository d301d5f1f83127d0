/* SPDX-License-Identifier: Apache-2.0
 *
 * index_find.c: ids by key hash, and hashes that occur more than once.
 *
 * Both take hashes as they come: a stranger's shard may hold any number of equal ones, so neither
 * building nor sorting depends on how they spread. */
#include "index/index_layout.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/sort_pairs.h"
#include "base/scratch.h"
#include "base/memory_usage.h"

/* The ids, ordered by the top bits of their hashes: those of bucket b are ids[first[b]..first[b +
 * 1]), ascending. A bucket has 2 to 4 ids: that is 4 bytes a sample for `ids` and 1 to 2 for
 * `first`. With many samples both lie in a file whose pages the kernel may write back and free. */
struct rks_index_table {
    uint32_t bits;
    uint64_t bytes; /* what is counted as used; 0 before */
    uint32_t *first;
    uint32_t *ids;
    rks_scratch scratch; /* holds both arrays */
};

void rks_index_table_free(rks_index_table *table)
{
    if (table == NULL)
        return;
    rks_scratch_give(&table->scratch);
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
    rks_status status =
        rks_scratch_take(buckets + 2 + index->count, sizeof(uint32_t), NULL, &built->scratch, err);
    if (status != RKS_OK) {
        rks_index_table_free(built);
        return status;
    }
    built->first = built->scratch.bytes;
    built->ids = built->first + buckets + 2;
    built->bytes = built->scratch.size;
    rks_usage_add(RKS_MEMORY_INDEX_OWN, built->bytes);
    /* Counts are stored two places up, so that first[b + 1] is the end of b once the ids are in
     * place. */
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

enum { DIGIT = 16, DIGITS = 64 / DIGIT, BUCKETS = 1 << DIGIT };

static size_t entries_max = 16u << 20;

void rks_index_entries_max(size_t entries)
{
    entries_max = entries;
}

typedef struct equal_search {
    const uint64_t *hashes;
    uint64_t count;
    uint32_t part, parts;
    rks_status (*pair)(void *user, uint64_t a, uint64_t b, rks_error *err);
    void *user;
    rks_pair *entries;
    size_t room;
} equal_search;

static bool is_in_part(const equal_search *s, uint64_t hash)
{
    return s->parts == 1 || hash % s->parts == s->part;
}

/* Finds the pairs among hashes from first to last. There is room for all of these hashes. */
static rks_status pair_range(equal_search *s, uint64_t first, uint64_t last, rks_error *err)
{
    size_t filled = 0;
    for (uint64_t id = 0; id < s->count && filled < s->room; id++)
        if (s->hashes[id] - first <= last - first && is_in_part(s, s->hashes[id]))
            s->entries[filled++] = (rks_pair){s->hashes[id], id};
    rks_pairs_sort(s->entries, filled);
    rks_status status = RKS_OK;
    for (size_t i = 1; i < filled && status == RKS_OK; i++)
        if (s->entries[i].first == s->entries[i - 1].first)
            status = s->pair(s->user, s->entries[i - 1].second, s->entries[i].second, err);
    return status;
}

/* Finds the pairs of one hash that more samples have than there is room for. They need no
 * sorting. */
static rks_status pair_one_hash(const equal_search *s, uint64_t hash, rks_error *err)
{
    uint64_t before = UINT64_MAX;
    rks_status status = RKS_OK;
    for (uint64_t id = 0; id < s->count && status == RKS_OK; id++) {
        if (s->hashes[id] != hash)
            continue;
        if (before != UINT64_MAX)
            status = s->pair(s->user, before, id, err);
        before = id;
    }
    return status;
}

/* Counts the hashes that begin with the digits of `prefix` by their next digit. */
static void count_digits(const equal_search *s, uint64_t prefix, int digit, uint32_t *counts)
{
    int shift = 64 - DIGIT * (digit + 1);
    for (uint64_t id = 0; id < s->count; id++) {
        uint64_t hash = s->hashes[id];
        bool begins = digit == 0 || (hash ^ prefix) >> (shift + DIGIT) == 0;
        if (begins && is_in_part(s, hash))
            counts[hash >> shift & (BUCKETS - 1)]++;
    }
}

/* Finds the pairs among hashes that begin with the digits of `prefix`, as many at a time as there
 * is room for. A foreign shard may hold any hashes, so hashes that do not fit under one digit are
 * divided by the next one. */
static rks_status pair_parts(equal_search *s, uint64_t prefix, int digit, rks_error *err)
{
    int shift = 64 - DIGIT * (digit + 1);
    uint32_t *counts = rks_alloc(BUCKETS, sizeof(*counts), err);
    if (counts == NULL)
        return RKS_ERR_MEMORY;
    count_digits(s, prefix, digit, counts);
    rks_status status = RKS_OK;
    for (uint64_t bucket = 0, end; status == RKS_OK && bucket < BUCKETS; bucket = end) {
        uint64_t first = prefix | bucket << shift, sum = counts[bucket];
        for (end = bucket + 1; end < BUCKETS && sum + counts[end] <= s->room; end++)
            sum += counts[end];
        uint64_t last = (prefix | (end - 1) << shift) | (((uint64_t)1 << shift) - 1);
        if (sum > s->room && digit + 1 == DIGITS)
            status = pair_one_hash(s, first, err);
        else if (sum > s->room)
            status = pair_parts(s, first, digit + 1, err);
        else if (sum > 1)
            status = pair_range(s, first, last, err);
    }
    rks_free(counts);
    return status;
}

rks_status rks_index_equal_hashes(const rks_index *index, uint32_t part, uint32_t parts,
                                  rks_status (*pair)(void *user, uint64_t a, uint64_t b,
                                                     rks_error *err),
                                  void *user, rks_error *err)
{
    if (part >= parts)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "equal hashes: part %u of %u", part, parts);
    equal_search s = {
        .hashes = (const uint64_t *)(const void *)(index->map + index->hashes_at),
        .count = index->count,
        .part = part,
        .parts = parts,
        .pair = pair,
        .user = user,
    };
    uint64_t wanted = 0;
    for (uint64_t id = 0; id < s.count; id++)
        wanted += is_in_part(&s, s.hashes[id]);
    s.room = wanted < entries_max ? (size_t)wanted : entries_max;
    s.entries = rks_alloc_raw(s.room, sizeof(*s.entries), err);
    if (s.entries == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        wanted <= s.room ? pair_range(&s, 0, UINT64_MAX, err) : pair_parts(&s, 0, 0, err);
    rks_free(s.entries);
    return status;
}
