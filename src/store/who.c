/* SPDX-License-Identifier: Apache-2.0
 *
 * who.c: which rank sees and serves which shard. Every rank tells the others what lies on its disk;
 * all compute the same owners from it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

static rks_status open_shards(rks_store *store, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < store->dataset->shard_count; i++)
        status = open_shard(store, store->directory, i, err);
    return status;
}

/* Shards of other ranks' directories on this node are mapped too: no message is then needed for
 * their samples. What cannot be opened (another user's, a container's own disk) is asked from its
 * owner. */
static void open_neighbours(rks_store *store, const uint8_t *all, const uint64_t *offsets)
{
    size_t shards = store->dataset->shard_count;
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++) {
        const char *directory = (const char *)all + offsets[rank] + 8 + shards;
        if (rks_group_node_of(store->group, rank) != rks_group_node(store->group))
            continue;
        for (size_t i = 0; i < shards; i++)
            if (store->shards[i] == NULL && store->seen[rank * shards + i] != 0)
                open_shard(store, directory, i, NULL);
    }
}

/* What a rank tells: slots in use (8 bytes), a byte for each shard, then its directory's full path
 * and a NUL. */
static rks_status tell_source(rks_store *store, rks_status status, rks_error *err)
{
    size_t shards = store->dataset->shard_count;
    uint32_t ranks = rks_group_size(store->group);
    uint8_t *mine = NULL, *all = NULL;
    uint64_t *offsets = NULL;
    char path[PATH_MAX];
    if (realpath(store->directory, path) == NULL)
        path[0] = '\0';
    size_t size = 8 + shards + strlen(path) + 1;
    if (status == RKS_OK) {
        mine = rks_alloc(size, 1, err);
        store->seen = rks_alloc(shards, ranks, err);
        status = mine == NULL || store->seen == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK) {
        rks_store_u64(mine, rks_store_slots_used(store->group));
        for (size_t i = 0; i < shards; i++)
            mine[8 + i] = store->shards[i] != NULL;
        memcpy(mine + 8 + shards, path, strlen(path) + 1);
    }
    status = rks_group_allgather(store->group, "open: who sees what", status, mine, size, &all,
                                 &offsets, err);
    for (uint32_t rank = 0; status == RKS_OK && rank < ranks; rank++)
        if (offsets[rank + 1] - offsets[rank] < 8 + shards + 1 || all[offsets[rank + 1] - 1] != 0)
            status = rks_fail(err, RKS_ERR_PEER, 0, "rank %u told nothing of its shards", rank);
    if (status == RKS_OK) {
        uint64_t used = 0;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            used |= rks_load_u64(all + offsets[rank]);
            memcpy(store->seen + rank * shards, all + offsets[rank] + 8, shards);
        }
        if (used == UINT64_MAX)
            status = rks_fail(err, RKS_ERR_STATE, 0,
                              "%d stores are open on this group; close one first", RKS_STORE_SLOTS);
        else
            store->slot = (uint32_t)__builtin_ctzll(~used);
        if (status == RKS_OK && !store->options.no_share)
            open_neighbours(store, all, offsets);
    }
    rks_free(mine);
    rks_free(all);
    rks_free(offsets);
    return status;
}

/* Of the ranks that see a shard the one with the fewest bytes so far owns it, the lowest at a tie;
 * the others follow as stand-ins. Deterministic: all ranks know the same. */
static void choose_owner(rks_store *store, size_t shard, uint64_t *load, int32_t *owners)
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
        store->directory, store->dataset->shards[first].name, missing, shards);
}

rks_status rks_store_find_owners(rks_store *store, rks_error *err)
{
    size_t shards = store->dataset->shard_count;
    uint32_t ranks = rks_group_size(store->group);
    uint64_t *load = NULL;
    store->shards = rks_alloc(shards, sizeof(*store->shards), err);
    rks_status status = store->shards == NULL ? RKS_ERR_MEMORY : open_shards(store, err);
    status = tell_source(store, status, err);
    if (status != RKS_OK)
        return status;
    load = rks_alloc(ranks, sizeof(*load), err);
    store->owners = rks_alloc(shards, sizeof(*store->owners), err);
    store->owner_room = rks_alloc(shards, (ranks + 1) * sizeof(*store->owner_room), err);
    status = load == NULL || store->owners == NULL || store->owner_room == NULL ? RKS_ERR_MEMORY
                                                                                : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < shards; i++) {
        store->owners[i] = store->owner_room + i * (ranks + 1);
        choose_owner(store, i, load, store->owners[i]);
    }
    if (status == RKS_OK)
        status = check_missing(store, err);
    rks_free(load);
    return rks_group_agree(store->group, "open: owners", status, err);
}
