/* SPDX-License-Identifier: Apache-2.0
 *
 * earlier_keys.c: loads the key hashes beside a dataset's lists, compares them with the new
 * keys, and writes those that new lists need. */
#include "builder/earlier_keys.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"
#include "dataset/list_keys.h"

enum { NEW_KEYS_MOST = 1 << 20 }; /* keys; a larger append opens all shards */

/* ---- what is known --------------------------------------------------------------------------- */

/* The list's shards are in the order of their ids, between those of other lists. */
static rks_status load_list(rks_earlier_keys *earlier, const char *directory,
                            const rks_dataset *dataset, size_t list, rks_error *err)
{
    uint64_t count = 0, at = 0;
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (dataset->shards[i].list == list + 1)
            rks_list_keys_cover(&dataset->shards[i], &count);
    rks_status status =
        rks_list_keys_load(directory, &dataset->lists[list], count, &earlier->lists[list], err);
    const uint64_t *hashes = earlier->lists[list];
    for (size_t i = 0; hashes != NULL && i < dataset->shard_count; i++) {
        uint64_t begin = at;
        if (dataset->shards[i].list == list + 1 && rks_list_keys_cover(&dataset->shards[i], &at))
            earlier->of[i] = hashes + begin;
    }
    return status;
}

static rks_status load_known(rks_earlier_keys *earlier, const char *directory,
                             const rks_dataset *dataset, rks_error *err)
{
    earlier->of = rks_alloc(dataset->shard_count, sizeof(*earlier->of), err);
    rks_status status = earlier->of == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->list_count; i++)
        status = load_list(earlier, directory, dataset, i, err);
    return status;
}

void rks_earlier_keys_free(rks_earlier_keys *earlier)
{
    for (size_t i = 0; i < RKS_DATASET_LISTS_MAX; i++)
        rks_free(earlier->lists[i]);
    rks_free(earlier->of);
}

/* ---- which shards to look at ----------------------------------------------------------------- */

static int compare_hashes(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* Sorts the hashes of everything that this rank has sealed. */
static rks_status sort_new(const rks_parts *parts, uint64_t count, uint64_t **hashes,
                           rks_error *err)
{
    uint64_t at = 0;
    *hashes = rks_alloc_raw(count, sizeof(**hashes), err);
    rks_status status = *hashes == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < parts->sealed_count; i++) {
        uint64_t samples = rks_shard_count(parts->sealed[i]);
        status = rks_shard_copy_key_hashes(parts->sealed[i], 0, samples, *hashes + at, err);
        at += samples;
    }
    if (status == RKS_OK && count > 0)
        qsort(*hashes, count, sizeof(**hashes), compare_hashes);
    return status;
}

/* A shard that was removed must be noticed, as it is if all shards are opened. */
static bool is_there(const char *directory, const rks_dataset_shard *shard)
{
    char *manifest = rks_format(NULL, "%s/%s.json", directory, shard->name);
    char *data = rks_format(NULL, "%s/%s.rks", directory, shard->name);
    bool there =
        manifest != NULL && data != NULL && access(manifest, F_OK) == 0 && access(data, F_OK) == 0;
    rks_free(manifest);
    rks_free(data);
    return there;
}

static bool has_one_of(const uint64_t *hashes, uint64_t samples, const uint64_t *sorted,
                       uint64_t count)
{
    for (uint64_t i = 0; count > 0 && i < samples; i++)
        if (bsearch(&hashes[i], sorted, count, sizeof(*sorted), compare_hashes) != NULL)
            return true;
    return false;
}

static rks_status choose_shards(const rks_earlier_keys *earlier, const rks_parts *parts,
                                const rks_dataset *dataset, const uint64_t *sorted, uint64_t count,
                                rks_dataset **part, rks_error *err)
{
    size_t left = 0;
    bool *chosen = rks_alloc(dataset->shard_count, sizeof(*chosen), err);
    if (chosen == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        const rks_dataset_shard *shard = &dataset->shards[i];
        chosen[i] = earlier->of[i] == NULL || !is_there(parts->directory, shard) ||
                    has_one_of(earlier->of[i], shard->samples, sorted, count);
        left += !chosen[i];
    }
    rks_status status = left == 0 ? RKS_OK : rks_dataset_choose(dataset, chosen, part, err);
    rks_free(chosen);
    return status;
}

rks_status rks_earlier_keys_narrow(rks_earlier_keys *earlier, const rks_parts *parts,
                                   const rks_dataset *dataset, rks_dataset **part, rks_error *err)
{
    uint64_t *sorted = NULL, count = 0;
    *part = NULL;
    if (parts->base == NULL || rks_group_size(parts->group) > 1 || dataset->excluded.samples > 0)
        return RKS_OK;
    earlier->used = true;
    rks_status status = load_known(earlier, parts->directory, dataset, err);
    for (size_t i = 0; i < parts->sealed_count; i++)
        count += rks_shard_count(parts->sealed[i]);
    if (status != RKS_OK || count > NEW_KEYS_MOST)
        return status;
    status = sort_new(parts, count, &sorted, err);
    if (status == RKS_OK)
        status = choose_shards(earlier, parts, dataset, sorted, count, part, err);
    rks_free(sorted);
    return status;
}

/* ---- for the next append --------------------------------------------------------------------- */

static bool is_known(const rks_earlier_keys *earlier, const rks_dataset *dataset,
                     const rks_dataset_list *list)
{
    for (size_t i = 0; i < dataset->list_count; i++)
        if (rks_digest_equal(dataset->lists[i].digest, list->digest))
            return earlier->lists[i] != NULL;
    return false;
}

/* Finds known hashes by shard id; NULL: not known. The base's shards come before the new ones, in
 * the order of their ids. */
static const uint64_t *known_of(const rks_earlier_keys *earlier, const rks_parts *parts,
                                const rks_dataset *dataset, rks_digest id)
{
    size_t low = 0, high = parts->base->shard_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (rks_dataset_compare_ids(dataset->shards[middle].id, id) <= 0)
            low = middle;
        else
            high = middle;
    }
    bool found = low < high && rks_digest_equal(dataset->shards[low].id, id);
    return found ? earlier->of[low] : NULL;
}

static rks_status read_hashes(const rks_parts *parts, const rks_dataset_shard *named,
                              uint64_t *hashes)
{
    rks_shard *shard = NULL;
    char *path = rks_format(NULL, "%s/%s.json", parts->directory, named->name);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_shard_open(path, &shard, NULL);
    bool same = status == RKS_OK && rks_digest_equal(rks_shard_id(shard), named->id) &&
                rks_digest_equal(rks_shard_manifest_digest(shard), named->manifest) &&
                rks_shard_count(shard) == named->samples;
    if (status == RKS_OK)
        status = same ? rks_shard_copy_key_hashes(shard, 0, named->samples, hashes, NULL)
                      : RKS_ERR_CORRUPT;
    rks_shard_close(shard);
    rks_free(path);
    return status;
}

/* Collects all that the list's file must hold. Free *hashes with rks_free, also after an error. */
static rks_status collect_hashes(const rks_earlier_keys *earlier, const rks_parts *parts,
                                 const rks_dataset *dataset, const rks_dataset *named,
                                 uint64_t **hashes, uint64_t *count)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; i < named->shard_count; i++)
        rks_list_keys_cover(&named->shards[i], count);
    *hashes = rks_alloc_raw(*count, sizeof(**hashes), NULL);
    if (*hashes == NULL)
        return RKS_ERR_MEMORY;
    *count = 0;
    for (size_t i = 0; status == RKS_OK && i < named->shard_count; i++) {
        uint64_t *at = *hashes + *count;
        if (!rks_list_keys_cover(&named->shards[i], count))
            continue;
        const uint64_t *known = known_of(earlier, parts, dataset, named->shards[i].id);
        if (known != NULL)
            memcpy(at, known, named->shards[i].samples * sizeof(*at));
        else
            status = read_hashes(parts, &named->shards[i], at);
    }
    return status;
}

static void keep_list(const rks_earlier_keys *earlier, const rks_parts *parts,
                      const rks_dataset *dataset, const rks_dataset_list *list)
{
    uint64_t *hashes = NULL, count = 0;
    const rks_list_source lists = rks_lists_in(parts->directory);
    rks_dataset *named = rks_alloc(1, sizeof(*named), NULL);
    if (named != NULL && rks_dataset_list_load(&lists, list, 1, named, NULL) == RKS_OK &&
        collect_hashes(earlier, parts, dataset, named, &hashes, &count) == RKS_OK)
        rks_list_keys_save(parts->directory, list, hashes, count, NULL);
    rks_free(hashes);
    rks_dataset_free(named);
}

void rks_earlier_keys_keep(const rks_earlier_keys *earlier, const rks_parts *parts,
                           const rks_dataset *dataset)
{
    rks_dataset_summary made;
    if (!earlier->used || rks_dataset_summarize(parts->directory, 0, &made, NULL) != RKS_OK)
        return;
    for (size_t i = 0; i < made.list_count; i++)
        if (!is_known(earlier, dataset, &made.lists[i]))
            keep_list(earlier, parts, dataset, &made.lists[i]);
}
