/* SPDX-License-Identifier: Apache-2.0
 *
 * store_quarantine.c: the samples that an open leaves out. A rank brings the list that it sees; all
 * of them leave out what any list names, so that every rank plans the same. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "dataset/quarantine.h"
#include "store/store.h"

/* What a rank brings: one of these in a byte, then its ids. */
enum { NOT_ASKED = 0, LISTED = 1, NOT_HERE = 2 };

static bool same_dataset(const rks_dataset *a, const rks_dataset *b)
{
    return rks_digest_equal(a->id, b->id) && a->count == b->count;
}

/* Adds the list of one dataset for each source that is this dataset; there may be several. */
static rks_status list_for_sources(const rks_dataset *dataset, const rks_dataset *listed,
                                   const uint32_t *own, size_t own_count, uint32_t **ids,
                                   size_t *count, rks_error *err)
{
    size_t copies = 0, at = 0;
    for (size_t i = 0; i < dataset->source_count; i++)
        copies += same_dataset(dataset->sources[i].dataset, listed);
    uint32_t *all = rks_alloc(own_count, copies * sizeof(*all), err);
    if (all == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->source_count; i++) {
        if (!same_dataset(dataset->sources[i].dataset, listed))
            continue;
        for (size_t k = 0; k < own_count; k++)
            all[at++] = own[k] + (uint32_t)dataset->sources[i].first;
    }
    *ids = all;
    *count = at;
    return RKS_OK;
}

static rks_status load_list(const rks_store *store, const char *path, uint32_t **ids, size_t *count,
                            rks_error *err)
{
    const rks_dataset *dataset = store->dataset, *listed = NULL;
    uint32_t *own = NULL;
    size_t own_count = 0;
    rks_status status = RKS_ERR_DATA;
    if (dataset->source_count == 0)
        return rks_quarantine_load(path, dataset, ids, count, err);
    for (size_t i = 0; status == RKS_ERR_DATA && i < dataset->source_count; i++) {
        listed = dataset->sources[i].dataset;
        status = rks_quarantine_load(path, listed, &own, &own_count, err);
    }
    if (status == RKS_OK)
        status = list_for_sources(dataset, listed, own, own_count, ids, count, err);
    rks_free(own);
    return status;
}

rks_status rks_store_load_quarantine(const rks_store *store, const char *pattern, uint8_t **bytes,
                                     size_t *size, rks_error *err)
{
    char *path = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    uint8_t kind = pattern == NULL ? NOT_ASKED : LISTED;
    rks_error what = {0};
    rks_status status = RKS_OK;
    if (pattern != NULL)
        status = rks_directory_expand(store->group, pattern, &path, err);
    if (status == RKS_OK && pattern != NULL)
        status = load_list(store, path, &ids, &count, &what);
    if (status == RKS_ERR_CORRUPT) /* the list, not the dataset */
        status = rks_fail(err, RKS_ERR_DATA, 0,
                          "%s: not a list that rankstore verify --quarantine wrote", what.text);
    else if (status != RKS_OK && what.status != RKS_OK && err != NULL)
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

uint64_t rks_store_quarantine_limit(const rks_store *store)
{
    uint64_t count = store == NULL || store->dataset == NULL ? 0 : store->dataset->count;
    return 1 + sizeof(uint32_t) * (count < RKS_QUARANTINE_IDS_MAX ? count : RKS_QUARANTINE_IDS_MAX);
}

static int by_id(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* Returns the kind; *ids are the ids after it. */
static uint8_t described(const rks_agreed *agreed, uint32_t rank, const uint8_t **ids, size_t *size)
{
    const uint8_t *bytes = rks_agreed_get(agreed, rank, RKS_TELL_QUARANTINE, size);
    if (*size == 0)
        return NOT_ASKED;
    *ids = bytes + 1;
    *size -= 1;
    return bytes[0];
}

rks_status rks_store_take_quarantine(rks_store *store, const char *pattern,
                                     const rks_agreed *agreed, rks_error *err)
{
    uint32_t ranks = rks_group_size(store->group);
    const uint8_t *from = NULL;
    size_t bytes = 0, total = 0, kept = 0;
    bool listed = false, lacks = false;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint8_t kind = described(agreed, rank, &from, &bytes);
        listed = listed || kind == LISTED;
        lacks = lacks || kind == NOT_HERE;
        total += bytes / sizeof(uint32_t);
    }
    if (lacks && !listed)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "%s: no such quarantine list on any rank",
                        pattern == NULL ? "quarantine" : pattern);
    uint32_t *ids = rks_alloc_raw(total, sizeof(*ids), err);
    if (ids == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        described(agreed, rank, &from, &bytes);
        size_t count = bytes / sizeof(*ids);
        if (count > 0)
            memcpy(ids + kept, from, count * sizeof(*ids));
        kept += count;
    }
    if (total > 1)
        qsort(ids, total, sizeof(*ids), by_id);
    if (total > 0 && ids[total - 1] >= store->dataset->count) {
        rks_status status = rks_fail(
            err, RKS_ERR_PEER, 0, "quarantine: another rank lists sample %" PRIu32 " of %" PRIu64,
            ids[total - 1], store->dataset->count);
        rks_free(ids);
        return status;
    }
    kept = 0;
    for (size_t i = 0; i < total; i++)
        if (i == 0 || ids[i] != ids[i - 1])
            ids[kept++] = ids[i];
    store->quarantined = ids;
    store->quarantined_count = kept;
    return RKS_OK;
}

bool rks_store_is_quarantined(const rks_store *store, uint64_t sample_id)
{
    uint32_t id = (uint32_t)sample_id;
    return store->quarantined_count > 0 && sample_id <= UINT32_MAX &&
           bsearch(&id, store->quarantined, store->quarantined_count, sizeof(id), by_id) != NULL;
}
