/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_ids.c: which id a shard's records carry. Two builds of one input, cut alike, make the same
 * records, but each build gives its shards ids of its own, and a record's check covers the id. So
 * ranks may see files of one shard that differ in the id. All ranks choose the same id for each
 * shard: that of the dataset if some rank sees such a file, else the lowest rank's. A rank with
 * another id reads its own file, but does not serve it. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

/* What a rank reports of each file with another id than the dataset's:
 *
 *   0    4  number of the shard
 *   4   16  id of the file */
enum { ENTRY = 20 };

typedef struct entry {
    uint32_t shard;
    rks_digest id;
} entry;

static entry read_entry(const uint8_t *at)
{
    return (entry){rks_load_u32(at), {rks_load_u64(at + 4), rks_load_u64(at + 12)}};
}

uint64_t rks_store_other_ids_limit(const rks_store *store)
{
    return store == NULL || store->dataset == NULL ? 0 : store->dataset->shard_count * ENTRY;
}

rks_status rks_store_put_other_ids(const rks_store *store, rks_buffer *bytes, rks_error *err)
{
    rks_status status = RKS_OK;
    bytes->size = 0;
    for (size_t i = 0; status == RKS_OK && i < store->dataset->shard_count; i++) {
        uint8_t put[ENTRY];
        if (store->shards[i] == NULL ||
            rks_digest_equal(rks_shard_id(store->shards[i]), store->dataset->shards[i].id))
            continue;
        const rks_digest id = rks_shard_id(store->shards[i]);
        rks_store_u32(put, (uint32_t)i);
        rks_store_u64(put + 4, id.low);
        rks_store_u64(put + 12, id.high);
        status = rks_buffer_add(bytes, put, sizeof(put), err);
    }
    return status;
}

rks_digest rks_store_shard_id(const rks_store *store, size_t shard)
{
    return store->shard_ids == NULL ? store->dataset->shards[shard].id : store->shard_ids[shard];
}

bool rks_store_serves_shard(const rks_store *store, size_t shard)
{
    return store->shards[shard] != NULL &&
           rks_digest_equal(rks_shard_id(store->shards[shard]), rks_store_shard_id(store, shard));
}

static bool has_bit(const uint8_t *bits, size_t number)
{
    return (bits[number / 8] >> number % 8 & 1) != 0;
}

static void clear_bit(uint8_t *bits, size_t number)
{
    bits[number / 8] &= (uint8_t)~(1 << number % 8);
}

/* Clears the bits of a rank's files with other ids: of all, or of those that were not chosen. */
static rks_status clear_others(const rks_store *store, const rks_agreed *agreed, uint32_t rank,
                               bool all, uint8_t *bits, rks_error *err)
{
    size_t size = 0;
    const uint8_t *bytes = rks_agreed_get(agreed, rank, RKS_TELL_OTHER_IDS, &size);
    for (size_t at = 0; at + ENTRY <= size; at += ENTRY) {
        const entry told = read_entry(bytes + at);
        if (told.shard >= store->dataset->shard_count)
            return rks_fail(err, RKS_ERR_PEER, 0,
                            "rank %" PRIu32 " reports shard %" PRIu32 " of %zu", rank, told.shard,
                            store->dataset->shard_count);
        if (all || !rks_digest_equal(told.id, store->shard_ids[told.shard]))
            clear_bit(bits, told.shard);
    }
    return RKS_OK;
}

/* Chooses ids once bits[rank] has only files with the dataset's ids. */
static void choose_ids(rks_store *store, const rks_agreed *agreed, uint8_t *const *bits)
{
    const uint32_t ranks = rks_group_size(store->group);
    for (uint32_t rank = ranks; rank-- > 0;) { /* the lowest comes last */
        size_t size = 0;
        const uint8_t *bytes = rks_agreed_get(agreed, rank, RKS_TELL_OTHER_IDS, &size);
        for (size_t at = 0; at + ENTRY <= size; at += ENTRY) {
            const entry told = read_entry(bytes + at);
            bool original = false;
            for (uint32_t other = 0; !original && other < ranks; other++)
                original = has_bit(bits[other], told.shard);
            if (!original)
                store->shard_ids[told.shard] = told.id;
        }
    }
}

static bool all_have_the_datasets(const rks_agreed *agreed)
{
    size_t size = 0;
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++) {
        rks_agreed_get(agreed, rank, RKS_TELL_OTHER_IDS, &size);
        if (size > 0)
            return false;
    }
    return true;
}

static rks_status copy_bits(const rks_store *store, const rks_agreed *agreed, uint8_t **bits,
                            rks_error *err)
{
    const size_t size = (store->dataset->shard_count + 7) / 8;
    rks_status status = RKS_OK;
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(store->group); rank++) {
        memcpy(bits[rank], rks_agreed_get(agreed, rank, RKS_TELL_SEEN, NULL), size);
        status = clear_others(store, agreed, rank, store->shard_ids == NULL, bits[rank], err);
    }
    return status;
}

rks_status rks_store_choose_ids(rks_store *store, const rks_agreed *agreed, const uint8_t **seen,
                                uint8_t **room, rks_error *err)
{
    const uint32_t ranks = rks_group_size(store->group);
    const size_t shards = store->dataset->shard_count, size = (shards + 7) / 8;
    *room = NULL;
    for (uint32_t rank = 0; rank < ranks; rank++)
        seen[rank] = rks_agreed_get(agreed, rank, RKS_TELL_SEEN, NULL);
    if (all_have_the_datasets(agreed))
        return RKS_OK;
    uint8_t **bits = rks_alloc(ranks, sizeof(*bits), err);
    rks_digest *ids = rks_alloc(shards, sizeof(*ids), err);
    *room = rks_alloc(ranks, size, err);
    rks_status status = bits == NULL || ids == NULL || *room == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint32_t rank = 0; status == RKS_OK && rank < ranks; rank++)
        seen[rank] = bits[rank] = *room + rank * size;
    if (status == RKS_OK)
        status = copy_bits(store, agreed, bits, err);
    if (status == RKS_OK) {
        for (size_t i = 0; i < shards; i++)
            ids[i] = store->dataset->shards[i].id;
        store->shard_ids = ids;
        ids = NULL;
        choose_ids(store, agreed, bits);
        status = copy_bits(store, agreed, bits, err);
    }
    rks_free(ids);
    rks_free(bits);
    return status;
}
