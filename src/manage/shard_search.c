/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_search.c: finds a listed shard that is not in its directory in the other directories that
 * are verified together. */
#include "manage/verify.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "dataset/dataset.h"
#include "shard/shard.h"

/* Checks that the directory holds the dataset. A damaged one is a finding of its own
 * verification. */
static bool holds(const char *directory, uint64_t generation, const rks_dataset *dataset)
{
    rks_dataset *other = NULL;
    bool same = rks_dataset_load_generation(directory, generation, &other, NULL) == RKS_OK &&
                other != NULL && rks_digest_equal(other->id, dataset->id) &&
                rks_digest_equal(other->build_id, dataset->build_id);
    rks_dataset_free(other);
    return same;
}

static bool is_same_place(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    bool same = real_a != NULL && real_b != NULL && strcmp(real_a, real_b) == 0;
    free(real_a);
    free(real_b);
    return same;
}

rks_status rks_verify_beside_open(const char *const *paths, size_t count, const char *directory,
                                  uint64_t generation, const rks_dataset *dataset,
                                  rks_verify_beside *beside, rks_error *err)
{
    *beside = (rks_verify_beside){.first = true};
    beside->directories = rks_alloc(count, sizeof(*beside->directories), err);
    if (beside->directories == NULL)
        return RKS_ERR_MEMORY;
    bool before = true;
    for (size_t i = 0; i < count; i++) {
        char *other = rks_strdup(paths[i], err);
        if (other == NULL)
            return RKS_ERR_MEMORY;
        uint64_t named = rks_dataset_take_generation(other);
        bool same = named == generation && is_same_place(other, directory);
        before = before && !same;
        if (same || !holds(other, named, dataset)) {
            rks_free(other);
            continue;
        }
        beside->directories[beside->count++] = other;
        beside->first = beside->first && !before;
    }
    return RKS_OK;
}

/* *has: the directory has the shard's data, or a copy. */
static rks_status look_in(const char *directory, const rks_dataset *dataset, size_t shard,
                          bool *has, rks_error *err)
{
    rks_shard *copy = NULL;
    char *data = rks_format(err, "%s/%s.rks", directory, dataset->shards[shard].name);
    if (data == NULL)
        return RKS_ERR_MEMORY;
    *has = access(data, F_OK) == 0;
    rks_free(data);
    if (*has)
        return RKS_OK;
    rks_status status = rks_dataset_open_copies(dataset, directory, shard, 1, &copy, err);
    *has = copy != NULL;
    rks_shard_close(copy);
    return status;
}

rks_status rks_verify_beside_has(const rks_verify_beside *beside, const rks_dataset *dataset,
                                 size_t shard, bool *found, rks_error *err)
{
    rks_status status = RKS_OK;
    *found = false;
    for (size_t i = 0; status == RKS_OK && i < beside->count && !*found; i++)
        status = look_in(beside->directories[i], dataset, shard, found, err);
    return status;
}

void rks_verify_beside_close(rks_verify_beside *beside)
{
    for (size_t i = 0; i < beside->count; i++)
        rks_free(beside->directories[i]);
    rks_free(beside->directories);
}
