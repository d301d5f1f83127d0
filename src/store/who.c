/* SPDX-License-Identifier: Apache-2.0
 *
 * who.c: which rank sees and serves which shard. Every rank tells the others what lies on its disk;
 * all compute the same owners from it. */
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

const char *rks_store_directory_of(const rks_store *store, size_t shard)
{
    const rks_dataset *dataset = store->dataset;
    if (dataset->source_count == 0)
        return store->directory;
    return dataset->sources[rks_dataset_source_of_shard(dataset, shard)].directory;
}

/* The directory of the shard as the rank reported it; NULL: it did not. */
static const char *told_directory(const rks_store *store, const char *paths, size_t size,
                                  size_t shard)
{
    const rks_dataset *dataset = store->dataset;
    size_t skip = dataset->source_count == 0 ? 0 : rks_dataset_source_of_shard(dataset, shard);
    const char *at = paths, *end = paths + size;
    if (size == 0 || end[-1] != '\0')
        return NULL;
    for (; at < end && skip > 0; skip--)
        at += strlen(at) + 1;
    return at < end && *at != '\0' ? at : NULL;
}

int64_t rks_store_first_to_see(const rks_store *store, uint32_t node, size_t shard)
{
    for (uint32_t place = 0; place < rks_group_node_size(store->group, node); place++) {
        uint32_t rank = rks_group_at_place(store->group, node, place);
        if (rks_store_sees(store, rank, shard))
            return rank;
    }
    return -1;
}

/* Shards of other ranks' directories on this node are mapped too: no message is then needed for
 * their samples. What cannot be opened (another user's, a container's own disk) is asked from its
 * owner. */
static void open_neighbours(rks_store *store, const rks_agreed *agreed)
{
    size_t shards = store->dataset->shard_count;
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++) {
        size_t size = 0;
        const char *paths = rks_agreed_get(agreed, rank, RKS_TELL_PATH, &size);
        if (rks_group_node_of(store->group, rank) != rks_group_node(store->group))
            continue;
        for (size_t i = 0; i < shards; i++) {
            bool wanted = store->shards[i] == NULL && rks_store_sees(store, rank, i);
            const char *directory = wanted ? told_directory(store, paths, size, i) : NULL;
            if (directory != NULL)
                rks_store_open_shard(store, directory, i, NULL);
        }
    }
}

static rks_status take_told(rks_store *store, const rks_agreed *agreed, rks_error *err)
{
    size_t shards = store->dataset->shard_count;
    uint32_t ranks = rks_group_size(store->group);
    uint64_t used = 0;
    store->seen = rks_alloc(shards, ranks, err);
    if (store->seen == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const uint8_t *seen = rks_agreed_get(agreed, rank, RKS_TELL_SEEN, NULL);
        used |= rks_load_u64(rks_agreed_get(agreed, rank, RKS_TELL_SLOTS, NULL));
        for (size_t i = 0; i < shards; i++)
            store->seen[i * ranks + rank] = seen[i];
    }
    if (used == UINT64_MAX)
        return rks_fail(err, RKS_ERR_STATE, 0, "%d stores are open on this group; close one first",
                        RKS_STORE_SLOTS);
    store->slot = (uint32_t)__builtin_ctzll(~used);
    return RKS_OK;
}

/* What the choice of owners looks at. Of the shard at hand: the ranks that see it, and of each node
 * the one with the least load, the lowest at a tie. */
typedef struct candidates {
    uint64_t *load; /* by rank: bytes that it owns so far */
    uint32_t *seers, count;
    int32_t *best; /* by node; of those that see it */
} candidates;

static bool is_lighter(const candidates *c, uint32_t rank, int32_t other)
{
    return other < 0 || c->load[rank] < c->load[other];
}

static void find_candidates(const rks_store *store, size_t shard, candidates *c)
{
    c->count = 0;
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++) {
        if (!rks_store_sees(store, rank, shard))
            continue;
        c->seers[c->count++] = rank;
        c->best[rks_group_node_of(store->group, rank)] = -1;
    }
    for (uint32_t i = 0; i < c->count; i++) {
        int32_t *best = &c->best[rks_group_node_of(store->group, c->seers[i])];
        if (is_lighter(c, c->seers[i], *best))
            *best = (int32_t)c->seers[i];
    }
}

static bool is_best(const rks_store *store, const candidates *c, uint32_t rank)
{
    return c->best[rks_group_node_of(store->group, rank)] == (int32_t)rank;
}

/* Room for the owners' table: of each shard one rank of each node that sees it, another one of the
 * owner's node, and an end. */
static size_t count_owners(const rks_store *store, candidates *c)
{
    size_t count = 0;
    for (size_t shard = 0; shard < store->dataset->shard_count; shard++) {
        find_candidates(store, shard, c);
        count += c->count == 0 ? 1 : 2;
        for (uint32_t i = 0; i < c->count; i++)
            count += is_best(store, c, c->seers[i]);
    }
    return count;
}

/* Of the ranks that see a shard the one with the fewest bytes so far owns it, the lowest at a tie.
 * Another rank of its node follows, then one of each other node that sees the shard: they stand in
 * for it. Deterministic: all ranks know the same. Returns how many they are. */
static uint32_t choose_owner(rks_store *store, size_t shard, candidates *c, int32_t *owners)
{
    int32_t owner = -1, second = -1;
    uint32_t count = 0;
    find_candidates(store, shard, c);
    for (uint32_t i = 0; i < c->count; i++)
        if (is_lighter(c, c->seers[i], owner))
            owner = (int32_t)c->seers[i];
    uint32_t node = owner < 0 ? 0 : rks_group_node_of(store->group, (uint32_t)owner);
    for (uint32_t i = 0; i < c->count; i++)
        if ((int32_t)c->seers[i] != owner &&
            rks_group_node_of(store->group, c->seers[i]) == node &&
            is_lighter(c, c->seers[i], second))
            second = (int32_t)c->seers[i];
    if (owner >= 0)
        owners[count++] = owner;
    if (second >= 0)
        owners[count++] = second;
    for (uint32_t i = 0; i < c->count; i++)
        if (is_best(store, c, c->seers[i]) && (int32_t)c->seers[i] != owner)
            owners[count++] = (int32_t)c->seers[i];
    owners[count] = -1;
    if (owner >= 0)
        c->load[owner] += store->dataset->shards[shard].bytes + 1;
    return count;
}

static rks_status check_missing(const rks_store *store, rks_error *err)
{
    size_t shards = store->dataset->shard_count, missing = 0, first = 0;
    for (size_t i = shards; i-- > 0;)
        if (store->owners[i][0] < 0) {
            missing++;
            first = i;
        }
    if (missing == 0 || store->options.partial)
        return RKS_OK;
    return rks_fail(
        err, RKS_ERR_NOT_FOUND, 0,
        "%s: shard %s (%zu of %zu missing) is on no rank's disk; bring it, or open the rest with "
        "--partial",
        rks_store_directory_of(store, first), store->dataset->shards[first].name, missing, shards);
}

rks_status rks_store_choose_owners(rks_store *store, const rks_agreed *agreed, rks_error *err)
{
    size_t shards = store->dataset->shard_count;
    uint32_t ranks = rks_group_size(store->group);
    rks_status status = take_told(store, agreed, err);
    if (status != RKS_OK)
        return status;
    if (!store->options.no_share)
        open_neighbours(store, agreed);
    candidates c = {.load = rks_alloc(ranks, sizeof(*c.load), err),
                    .seers = rks_alloc(ranks, sizeof(*c.seers), err),
                    .best = rks_alloc(rks_group_nodes(store->group), sizeof(*c.best), err)};
    store->owners = rks_alloc(shards, sizeof(*store->owners), err);
    store->asks = rks_alloc(ranks, sizeof(*store->asks), err);
    bool room = c.load != NULL && c.seers != NULL && c.best != NULL && store->owners != NULL &&
                store->asks != NULL;
    status = room ? RKS_OK : RKS_ERR_MEMORY;
    if (status == RKS_OK) {
        store->owner_room = rks_alloc(count_owners(store, &c), sizeof(*store->owner_room), err);
        status = store->owner_room == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    int32_t *next = store->owner_room;
    for (size_t i = 0; status == RKS_OK && i < shards; i++) {
        store->owners[i] = next;
        next += choose_owner(store, i, &c, next) + 1;
    }
    if (status == RKS_OK)
        status = check_missing(store, err);
    rks_free(c.load);
    rks_free(c.seers);
    rks_free(c.best);
    return status;
}
