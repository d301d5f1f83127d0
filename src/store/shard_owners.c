/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_owners.c: which rank sees and serves which shard. Every rank tells the others what lies on
 * its disk; all compute the same owners from it. */
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

/* Returns the directory of the shard as the rank reported it; NULL if it did not. */
static const char *reported_directory(const rks_store *store, const char *paths, size_t size,
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
    return store->seers[shard * rks_group_nodes(store->group) + node];
}

/* The ranks' reports, by rank: a bit for each shard. */
typedef struct reports {
    const uint8_t **seen;
    uint8_t *room; /* what `seen` may point into */
} reports;

static bool sees(const reports *r, uint32_t rank, size_t shard)
{
    return (r->seen[rank][shard / 8] >> shard % 8 & 1) != 0;
}

static bool has_wanted(const rks_store *store, const reports *r, uint32_t rank)
{
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        if (store->shards[i] == NULL && sees(r, rank, i))
            return true;
    return false;
}

/* Maps shards of the folders that a rank reported beside its sources' directories. */
static void open_other_folders(rks_store *store, const reports *r, uint32_t rank, const char *paths,
                               size_t size)
{
    size_t skip = store->dataset->source_count == 0 ? 1 : store->dataset->source_count;
    if (size == 0 || paths[size - 1] != '\0')
        return;
    for (const char *at = paths; at < paths + size; at += strlen(at) + 1) {
        if (skip > 0)
            skip--;
        else if (*at != '\0' && has_wanted(store, r, rank))
            rks_store_open_folder(store, at, NULL);
    }
}

/* Maps shards of other ranks' directories on this node, too: then no message is needed for their
 * samples. Shards that cannot be opened (another user's, a container's own disk) are requested from
 * their owner. */
static void open_neighbours(rks_store *store, const rks_agreed *agreed, const reports *r)
{
    uint32_t node = rks_group_node(store->group);
    for (uint32_t place = 0; place < rks_group_node_size(store->group, node); place++) {
        size_t size = 0;
        uint32_t rank = rks_group_at_place(store->group, node, place);
        const char *paths = rks_agreed_get(agreed, rank, RKS_TELL_PATH, &size);
        for (size_t i = 0; i < store->dataset->shard_count; i++) {
            bool wanted = store->shards[i] == NULL && sees(r, rank, i);
            const char *directory = wanted ? reported_directory(store, paths, size, i) : NULL;
            if (directory != NULL)
                rks_store_open_shard(store, directory, i, NULL);
        }
        open_other_folders(store, r, rank, paths, size);
    }
}

static rks_status choose_number(rks_store *store, const rks_agreed *agreed, rks_error *err)
{
    uint64_t used = 0;
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++)
        used |= rks_load_u64(rks_agreed_get(agreed, rank, RKS_TELL_NUMBERS, NULL));
    if (used == UINT64_MAX)
        return rks_fail(err, RKS_ERR_STATE, 0, "%d stores are open on this group; close one first",
                        RKS_STORE_NUMBERS);
    store->number = (uint32_t)__builtin_ctzll(~used);
    return RKS_OK;
}

static void find_seers(rks_store *store, const reports *r)
{
    size_t shards = store->dataset->shard_count;
    uint32_t nodes = rks_group_nodes(store->group);
    for (size_t i = 0; i < shards * nodes; i++)
        store->seers[i] = -1;
    for (uint32_t node = 0; node < nodes; node++)
        for (uint32_t place = rks_group_node_size(store->group, node); place-- > 0;) {
            uint32_t rank = rks_group_at_place(store->group, node, place);
            for (size_t i = 0; i < shards; i++)
                if (sees(r, rank, i))
                    store->seers[i * nodes + node] = (int32_t)rank;
        }
}

/* Input for the choice of owners. For the current shard: of each node the rank with the least load
 * that sees it, the lowest if several have it; -1: none does. */
typedef struct candidates {
    const reports *reports;
    uint64_t *load; /* by rank: bytes that it owns so far */
    int32_t *best;  /* by node */
} candidates;

static bool is_lighter(const candidates *c, int32_t rank, int32_t other)
{
    return other < 0 || c->load[rank] < c->load[other] ||
           (c->load[rank] == c->load[other] && rank < other);
}

/* Returns the rank of a node with the least load that sees the shard, except `without` (-1: any);
 * -1 if none does. */
static int32_t lightest(const rks_store *store, const candidates *c, uint32_t node, size_t shard,
                        int32_t without)
{
    int32_t best = -1;
    if (rks_store_first_to_see(store, node, shard) < 0)
        return -1;
    for (uint32_t place = 0; place < rks_group_node_size(store->group, node); place++) {
        uint32_t rank = rks_group_at_place(store->group, node, place);
        if ((int32_t)rank != without && sees(c->reports, rank, shard) &&
            is_lighter(c, (int32_t)rank, best))
            best = (int32_t)rank;
    }
    return best;
}

/* Counts the places in the owners' table: for each shard one rank of each node that sees it,
 * another one of the owner's node, and an end. */
static size_t count_owners(const rks_store *store)
{
    size_t places = store->dataset->shard_count * rks_group_nodes(store->group);
    size_t count = 2 * store->dataset->shard_count;
    for (size_t i = 0; i < places; i++)
        count += store->seers[i] >= 0;
    return count;
}

/* Chooses a shard's owner: of the ranks that see it, the one with the fewest bytes so far, the
 * lowest if several have as few. After it come another rank of its node, then one of each other
 * node that sees the shard: they replace it if it fails. All ranks choose the same, since they know
 * the same. Returns how many ranks are listed. */
static uint32_t choose_owner(rks_store *store, size_t shard, candidates *c, int32_t *owners)
{
    uint32_t count = 0, nodes = rks_group_nodes(store->group);
    int32_t owner = -1;
    for (uint32_t node = 0; node < nodes; node++) {
        c->best[node] = lightest(store, c, node, shard, -1);
        if (c->best[node] >= 0 && is_lighter(c, c->best[node], owner))
            owner = c->best[node];
    }
    if (owner >= 0) {
        uint32_t node = rks_group_node_of(store->group, (uint32_t)owner);
        int32_t second = lightest(store, c, node, shard, owner);
        owners[count++] = owner;
        if (second >= 0)
            owners[count++] = second;
        c->load[owner] += store->dataset->shards[shard].bytes + 1;
    }
    for (uint32_t node = 0; node < nodes; node++)
        if (c->best[node] >= 0 && c->best[node] != owner)
            owners[count++] = c->best[node];
    owners[count] = -1;
    return count;
}

static rks_status make_tables(rks_store *store, const rks_agreed *agreed, reports *r,
                              rks_error *err)
{
    uint32_t ranks = rks_group_size(store->group);
    size_t places = store->dataset->shard_count * rks_group_nodes(store->group);
    r->seen = rks_alloc(ranks, sizeof(*r->seen), err);
    store->seers = rks_alloc(places, sizeof(*store->seers), err);
    store->owners = rks_alloc(store->dataset->shard_count, sizeof(*store->owners), err);
    store->asks = rks_alloc(ranks, sizeof(*store->asks), err);
    if (r->seen == NULL || store->seers == NULL || store->owners == NULL || store->asks == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_store_choose_ids(store, agreed, r->seen, &r->room, err);
    if (status != RKS_OK)
        return status;
    find_seers(store, r);
    store->owner_room = rks_alloc(count_owners(store), sizeof(*store->owner_room), err);
    return store->owner_room == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_store_choose_owners(rks_store *store, const rks_agreed *agreed, rks_error *err)
{
    reports r = {NULL, NULL};
    candidates c = {.reports = &r,
                    .load = rks_alloc(rks_group_size(store->group), sizeof(*c.load), err),
                    .best = rks_alloc(rks_group_nodes(store->group), sizeof(*c.best), err)};
    rks_status status = c.load == NULL || c.best == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = choose_number(store, agreed, err);
    if (status == RKS_OK)
        status = make_tables(store, agreed, &r, err);
    if (status == RKS_OK && !store->options.no_share)
        open_neighbours(store, agreed, &r);
    int32_t *next = store->owner_room;
    for (size_t i = 0; status == RKS_OK && i < store->dataset->shard_count; i++) {
        store->owners[i] = next;
        next += choose_owner(store, i, &c, next) + 1;
    }
    rks_free(r.seen);
    rks_free(r.room);
    rks_free(c.load);
    rks_free(c.best);
    return status;
}
