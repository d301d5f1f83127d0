/* SPDX-License-Identifier: Apache-2.0
 *
 * same_dataset.c: what the ranks' directories hold: the same datasets, or nothing. Each rank tells
 * what it found; those that found nothing, or an older revision, get it from the lowest rank that
 * has the last one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"
#include "store/store.h"

/* What the ranks found of one dataset. */
typedef struct found_by_all {
    uint32_t root;                     /* the lowest rank that has it, which sends it */
    rks_dataset_description described; /* by that rank */
    bool lacking;                      /* some rank found none, or an older revision */
} found_by_all;

/* Says which ranks have which datasets. If their generations differ, the older one may be in both
 * directories. */
static rks_status fail_other(const rks_agreed *agreed, const char *directory, uint32_t first,
                             const rks_dataset_description *one, uint32_t rank,
                             const rks_dataset_description *other, rks_error *err)
{
    char ids[2][RKS_DIGEST_TEXT], advice[160];
    uint64_t older = one->generation < other->generation ? one->generation : other->generation;
    rks_digest_format(one->id, ids[0]);
    rks_digest_format(other->id, ids[1]);
    if (one->generation == other->generation && rks_digest_equal(one->id, other->id))
        snprintf(advice, sizeof(advice),
                 "the same samples, cut into shards in two ways; remove one of them");
    else if (one->generation == other->generation)
        snprintf(advice, sizeof(advice), "remove the one that you do not want");
    else
        snprintf(advice, sizeof(advice),
                 "if one grew out of the other, DIR@%" PRIu64
                 " opens what both have; else remove the one that you do not want",
                 older);
    return rks_fail(err, RKS_ERR_STATE, 0,
                    "%s: rank %" PRIu32 " (%.60s) has dataset %.8s, generation %" PRIu64
                    ", rank %" PRIu32 " (%.60s) has dataset %.8s, generation %" PRIu64 "; %s",
                    directory, first, rks_group_host(agreed->group, first), ids[0], one->generation,
                    rank, rks_group_host(agreed->group, rank), ids[1], other->generation, advice);
}

bool rks_store_same_samples(const rks_dataset_description *one,
                            const rks_dataset_description *other)
{
    return rks_digest_equal(one->id, other->id) && rks_digest_equal(one->shards, other->shards) &&
           one->generation == other->generation;
}

bool rks_store_replaces(const rks_dataset_description *other, const rks_dataset_description *one)
{
    if (other->revision != one->revision)
        return other->revision > one->revision;
    return rks_dataset_compare_ids(other->digest, one->digest) < 0;
}

/* Checks that all ranks that found dataset `number` of the fact's list found the same one, and
 * chooses its last revision. */
static rks_status compare_found(const rks_agreed *agreed, size_t fact, size_t number,
                                const rks_found_dataset *mine, found_by_all *found, rks_error *err)
{
    int64_t first = -1;
    rks_dataset_description one = {0}, other;
    bool lacking = false;
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++) {
        const uint8_t *theirs = rks_agreed_get(agreed, rank, fact, NULL);
        memcpy(&other, theirs + number * sizeof(other), sizeof(other));
        lacking = lacking || other.found == 0;
        if (other.found == 0)
            continue;
        if (first < 0) {
            first = rank;
            one = other;
        } else if (rks_store_same_samples(&one, &other)) {
            lacking = lacking || !rks_digest_equal(one.digest, other.digest);
            if (rks_store_replaces(&other, &one)) {
                first = rank;
                one = other;
            }
        } else {
            return fail_other(agreed, mine->directory, (uint32_t)first, &one, rank, &other, err);
        }
    }
    if (first < 0) {
        if (err != NULL)
            *err = mine->error;
        return RKS_ERR_NOT_FOUND;
    }
    *found = (found_by_all){(uint32_t)first, one, lacking};
    return RKS_OK;
}

static rks_status decode_sent(const rks_agreed *agreed, uint32_t root, rks_found_dataset *mine,
                              rks_error *err)
{
    size_t size = 0, list_size = 0;
    const char *text = rks_agreed_get(agreed, root, 0, &size);
    const void *list = rks_agreed_get(agreed, root, 1, &list_size);
    rks_status status = rks_dataset_decode(text, size, mine->directory, &mine->dataset, err);
    if (status == RKS_OK && mine->dataset->excluded.samples > 0)
        status = rks_excluded_decode(&mine->dataset->excluded, list, list_size,
                                     rks_dataset_stored(mine->dataset), mine->directory, err);
    return status;
}

/* Frees this rank's dataset if it is an older revision than the others'. */
static rks_status drop_older(const found_by_all *found, rks_found_dataset *mine, rks_error *err)
{
    rks_digest digest;
    if (mine->dataset == NULL)
        return RKS_OK;
    rks_status status = rks_dataset_digest(mine->dataset, &digest, err);
    if (status == RKS_OK && !rks_digest_equal(digest, found->described.digest)) {
        rks_dataset_free(mine->dataset);
        mine->dataset = NULL;
    }
    return status;
}

/* COLLECTIVE. Sends the dataset, and the list of samples that it excludes, to ranks whose directory
 * holds none, or an older revision. */
static rks_status send_dataset(rks_group *group, const found_by_all *found, rks_found_dataset *mine,
                               rks_error *err)
{
    const rks_dataset_description *described = &found->described;
    const uint32_t root = found->root;
    bool sends = rks_group_rank(group) == root;
    char *text = NULL;
    size_t size = 0;
    rks_buffer list = {0};
    rks_agreed agreed;
    rks_status status = drop_older(found, mine, err);
    if (status == RKS_OK && sends)
        status = rks_dataset_encode(mine->dataset, &text, &size, err);
    if (status == RKS_OK && sends && mine->dataset->excluded.samples > 0)
        status = rks_excluded_encode(&mine->dataset->excluded, &list, err);
    const rks_fact facts[] = {
        rks_fact_bytes(text, size, RKS_DATASET_MAX),
        rks_fact_bytes(list.data, list.size, rks_excluded_size(described->runs))};
    status = rks_group_agree_on(group, "open: dataset sent", status, facts, 2, &agreed, err);
    rks_free(text);
    rks_buffer_free(&list);
    if (status != RKS_OK)
        return status;
    if (mine->dataset == NULL)
        status = decode_sent(&agreed, root, mine, err);
    return rks_group_agree(group, "open: dataset known", status, err);
}

void rks_store_look(const char *directory, uint64_t generation, rks_found_dataset *looked)
{
    *looked = (rks_found_dataset){.directory = directory};
    rks_file_wait_at(directory);
    looked->status =
        rks_dataset_load_generation(directory, generation, &looked->dataset, &looked->error);
}

rks_status rks_store_dataset_description(const rks_found_dataset *looked,
                                         rks_dataset_description *described, rks_error *err)
{
    rks_digest digest;
    if (looked->status == RKS_ERR_NOT_FOUND)
        return RKS_OK;
    if (looked->status != RKS_OK) {
        if (err != NULL)
            *err = looked->error;
        return looked->status;
    }
    rks_digest shards;
    rks_status status = rks_dataset_digest(looked->dataset, &digest, err);
    if (status == RKS_OK)
        status = rks_dataset_places_digest(looked->dataset, &shards, err);
    if (status == RKS_OK)
        *described = (rks_dataset_description){
            .shards = shards,
            .digest = digest,
            .found = 1,
            .runs = looked->dataset->excluded.run_count,
            .id = looked->dataset->id,
            .generation = rks_dataset_number(looked->dataset),
            .revision = looked->dataset->revision,
        };
    return status;
}

/* COLLECTIVE, after the agreement. `found`: room for `count`, allocated before the agreement, since
 * after it a rank must not fail alone. */
static rks_status settle_found(rks_group *group, const rks_agreed *agreed,
                               rks_found_dataset *looked, size_t count, found_by_all *found,
                               rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = compare_found(agreed, 0, i, &looked[i], &found[i], err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        if (found[i].lacking)
            status = send_dataset(group, &found[i], &looked[i], err);
    return status;
}

bool rks_store_none_found(const rks_group *group, const rks_agreed *agreed, size_t fact)
{
    rks_dataset_description described;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        memcpy(&described, rks_agreed_get(agreed, rank, fact, NULL), sizeof(described));
        if (described.found > 0)
            return false;
    }
    return true;
}

rks_status rks_store_settle_found(rks_group *group, const rks_agreed *agreed, size_t fact,
                                  rks_found_dataset *looked, rks_dataset **dataset, rks_error *err)
{
    found_by_all found = {0};
    rks_status status = compare_found(agreed, fact, 0, looked, &found, err);
    if (status == RKS_OK && found.lacking)
        status = send_dataset(group, &found, looked, err);
    if (status == RKS_OK)
        *dataset = looked->dataset;
    else
        rks_dataset_free(looked->dataset);
    looked->dataset = NULL;
    return status;
}

rks_status rks_store_agree_datasets(rks_group *group, const char *exchange,
                                    rks_found_dataset *looked, size_t count, rks_dataset **datasets,
                                    rks_error *err)
{
    rks_agreed agreed;
    rks_dataset_description *mine = rks_alloc(count, sizeof(*mine), err);
    found_by_all *found = rks_alloc(count, sizeof(*found), err);
    rks_status status = mine != NULL && found != NULL ? RKS_OK : RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = rks_store_dataset_description(&looked[i], &mine[i], err);
    const rks_fact facts[] = {rks_fact_fixed(mine, count * sizeof(*mine)),
                              rks_fact_same_shown("exchange", exchange)};
    status = rks_group_agree_on(group, "open: dataset", status, facts, 2, &agreed, err);
    if (status == RKS_OK)
        status = settle_found(group, &agreed, looked, count, found, err);
    for (size_t i = 0; i < count; i++) {
        datasets[i] = status == RKS_OK ? looked[i].dataset : NULL;
        if (status != RKS_OK)
            rks_dataset_free(looked[i].dataset);
        looked[i].dataset = NULL;
    }
    rks_free(found);
    rks_free(mine);
    return status;
}

rks_status rks_store_agree_dataset(rks_group *group, const char *exchange,
                                   rks_found_dataset *looked, rks_dataset **dataset, rks_error *err)
{
    rks_dataset *agreed = NULL;
    rks_status status = rks_store_agree_datasets(group, exchange, looked, 1, &agreed, err);
    if (status == RKS_OK)
        *dataset = agreed;
    return status;
}
