/* SPDX-License-Identifier: Apache-2.0
 *
 * who.c: which rank sees and serves which shard. Every rank tells the others what lies on its disk;
 * all compute the same owners from it. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

/* The shard that the dataset names, if it lies in `directory`: the same id and manifest. A file of
 * that name with other contents is an error, not a missing shard. */
static rks_status open_shard(rks_store *store, const char *directory, size_t number, rks_error *err)
{
    const rks_dataset_shard *named = &store->dataset->shards[number];
    char *path = rks_format(err, "%s/%s.json", directory, named->name);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_error local;
    rks_shard *shard = NULL;
    rks_status status = RKS_OK;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        goto out;
    status = rks_shard_open(path, &shard, &local);
    if (status == RKS_ERR_NOT_FOUND) {
        status = RKS_OK;
    } else if (status != RKS_OK) {
        if (err != NULL)
            *err = local;
    } else if (!rks_digest_equal(rks_shard_id(shard), named->id) ||
               !rks_digest_equal(rks_shard_manifest_digest(shard), named->manifest) ||
               rks_shard_count(shard) != named->samples) {
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: is not the shard that dataset.json names", path);
        rks_shard_close(shard);
    } else {
        store->shards[number] = shard;
    }
out:
    rks_free(path);
    return status;
}

rks_status rks_store_open_shards(rks_store *store, rks_error *err)
{
    store->shards = rks_alloc(store->dataset->shard_count, sizeof(*store->shards), err);
    rks_status status = store->shards == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < store->dataset->shard_count; i++)
        status = open_shard(store, rks_store_directory_of(store, i), i, err);
    return status;
}

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
            bool wanted = store->shards[i] == NULL && store->seen[rank * shards + i] != 0;
            const char *directory = wanted ? told_directory(store, paths, size, i) : NULL;
            if (directory != NULL)
                open_shard(store, directory, i, NULL);
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
        const void *seen = rks_agreed_get(agreed, rank, RKS_TELL_SEEN, NULL);
        used |= rks_load_u64(rks_agreed_get(agreed, rank, RKS_TELL_SLOTS, NULL));
        if (shards > 0)
            memcpy(store->seen + rank * shards, seen, shards);
    }
    if (used == UINT64_MAX)
        return rks_fail(err, RKS_ERR_STATE, 0, "%d stores are open on this group; close one first",
                        RKS_STORE_SLOTS);
    store->slot = (uint32_t)__builtin_ctzll(~used);
    return RKS_OK;
}

/* Entries of the owners' table: each shard's ranks and an end. */
static size_t count_owners(const rks_store *store)
{
    size_t shards = store->dataset->shard_count, count = shards;
    for (size_t i = 0; i < shards * rks_group_size(store->group); i++)
        count += store->seen[i] != 0;
    return count;
}

/* Of the ranks that see a shard the one with the fewest bytes so far owns it, the lowest at a tie;
 * the others follow as stand-ins. Deterministic: all ranks know the same. Returns how many they are. */
static uint32_t choose_owner(rks_store *store, size_t shard, uint64_t *load, int32_t *owners)
{
    size_t shards = store->dataset->shard_count;
    uint32_t ranks = rks_group_size(store->group), count = 0;
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (store->seen[rank * shards + shard] != 0)
            owners[count++] = (int32_t)rank;
    owners[count] = -1;
    uint32_t best = 0;
    for (uint32_t i = 1; i < count; i++)
        if (load[owners[i]] < load[owners[best]])
            best = i;
    if (count > 0) {
        int32_t owner = owners[best];
        memmove(owners + 1, owners, best * sizeof(*owners));
        owners[0] = owner;
        load[owner] += store->dataset->shards[shard].bytes + 1;
    }
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
        "%s: shard %s (%zu of %zu missing) is on no rank's disk; bring it, or open what is "
        "there with --partial, where that is taken",
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
    uint64_t *load = rks_alloc(ranks, sizeof(*load), err);
    store->owners = rks_alloc(shards, sizeof(*store->owners), err);
    store->owner_room = rks_alloc(count_owners(store), sizeof(*store->owner_room), err);
    status = load == NULL || store->owners == NULL || store->owner_room == NULL ? RKS_ERR_MEMORY
                                                                                : RKS_OK;
    int32_t *next = store->owner_room;
    for (size_t i = 0; status == RKS_OK && i < shards; i++) {
        store->owners[i] = next;
        next += choose_owner(store, i, load, next) + 1;
    }
    if (status == RKS_OK)
        status = check_missing(store, err);
    rks_free(load);
    return status;
}
