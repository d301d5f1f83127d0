/* SPDX-License-Identifier: Apache-2.0
 *
 * quarantine.c: the samples that an open leaves out. A rank brings the list that it sees; all of
 * them leave out what any list names, so that every rank plans the same. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/directory.h"
#include "dataset/quarantine.h"
#include "store/store.h"

/* What a rank brings, one byte in front of its ids. */
enum { NOT_ASKED = 0, LISTED = 1, NOT_HERE = 2 };

static rks_status load_own(const rks_group *group, const char *pattern, const rks_dataset *dataset,
                           uint8_t **bytes, size_t *size, rks_error *err)
{
    char *path = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    uint8_t kind = pattern == NULL ? NOT_ASKED : LISTED;
    rks_error what = {0};
    rks_status status = RKS_OK;
    if (pattern != NULL)
        status = rks_directory_expand(group, pattern, &path, err);
    if (status == RKS_OK && pattern != NULL)
        status = rks_quarantine_load(path, dataset, &ids, &count, &what);
    if (status == RKS_ERR_CORRUPT) /* the list, not the dataset */
        status =
            rks_fail(err, RKS_ERR_DATA, 0, "%s: no list that verify --quarantine wrote", what.text);
    else if (what.status != RKS_OK && err != NULL)
        *err = what;
    if (status == RKS_ERR_NOT_FOUND) {
        kind = NOT_HERE; /* another rank may have it */
        status = RKS_OK;
    }
    if (status == RKS_OK) {
        *size = 1 + count * sizeof(*ids);
        *bytes = rks_alloc_raw(*size, 1, err);
        status = *bytes == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    if (status == RKS_OK) {
        (*bytes)[0] = kind;
        if (count > 0)
            memcpy(*bytes + 1, ids, count * sizeof(*ids));
    }
    rks_free(ids);
    rks_free(path);
    return status;
}

static int by_id(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static rks_status unite(rks_group *group, const char *pattern, const uint8_t *all,
                        const uint64_t *offsets, rks_store *store, rks_error *err)
{
    uint32_t size = rks_group_size(group);
    size_t total = 0, kept = 0;
    int64_t lacks = -1;
    bool listed = false;
    for (uint32_t rank = 0; rank < size; rank++) {
        listed = listed || all[offsets[rank]] == LISTED;
        if (all[offsets[rank]] == NOT_HERE && lacks < 0)
            lacks = rank;
        total += (size_t)(offsets[rank + 1] - offsets[rank] - 1) / sizeof(uint32_t);
    }
    if (lacks >= 0 && !listed)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no such quarantine list on any rank",
                        pattern == NULL ? "quarantine" : pattern);
    uint32_t *ids = rks_alloc_raw(total, sizeof(*ids), err);
    if (ids == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < size; rank++) {
        size_t bytes = (size_t)(offsets[rank + 1] - offsets[rank] - 1);
        memcpy((uint8_t *)ids + kept, all + offsets[rank] + 1, bytes);
        kept += bytes;
    }
    if (total > 1)
        qsort(ids, total, sizeof(*ids), by_id);
    kept = 0;
    for (size_t i = 0; i < total; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            ids[kept++] = ids[i];
    store->quarantined = ids;
    store->quarantined_count = kept;
    return RKS_OK;
}

rks_status rks_store_find_quarantined(rks_store *store, const char *pattern, rks_error *err)
{
    uint8_t *mine = NULL, *all = NULL;
    uint64_t *offsets = NULL;
    size_t size = 0;
    rks_status status = load_own(store->group, pattern, store->dataset, &mine, &size, err);
    status = rks_group_allgather(store->group, "open: quarantine", status, mine, size, &all,
                                 &offsets, err);
    if (status == RKS_OK)
        status = unite(store->group, pattern, all, offsets, store, err);
    rks_free(mine);
    rks_free(all);
    rks_free(offsets);
    return rks_group_agree(store->group, "open: quarantine known", status, err);
}

void rks_store_mark_quarantined(rks_store *store)
{
    uint32_t *lengths = rks_index_lengths(store->index);
    for (size_t i = 0; i < store->quarantined_count; i++)
        lengths[store->quarantined[i]] = RKS_LENGTH_ABSENT;
}

bool rks_store_is_quarantined(const rks_store *store, uint64_t sample_id)
{
    uint32_t id = (uint32_t)sample_id;
    return store->quarantined_count > 0 && sample_id <= UINT32_MAX &&
           bsearch(&id, store->quarantined, store->quarantined_count, sizeof(id), by_id) != NULL;
}
