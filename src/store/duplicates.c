/* SPDX-License-Identifier: Apache-2.0
 *
 * duplicates.c: equal keys, looked for before the commit. Each rank takes the hashes with
 * hash % ranks == rank; equal hashes are compared by full key before anything is called a
 * duplicate. */
#include "store/duplicates.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "fetch/batch.h"
#include "store/store.h"

enum { PLACE_SIZE = 80 };

typedef struct comparison {
    rks_store *store;
    const rks_dataset *dataset; /* as it is committed: its shards are in another order than the
                                 * store's */
    const uint32_t *holders;
    rks_key_words words;
} comparison;

static void describe_text(const void *key, size_t size, char *text, size_t room)
{
    char shown[RKS_SHOWN_ROOM];
    snprintf(text, room, "key '%s'", rks_text_shown(key, size, shown));
}

/* Returns the rank that wrote the sample, or took over the part with it. In a directory that ranks
 * share any of them may serve it. */
static uint32_t holder_of(const comparison *c, uint64_t id)
{
    uint32_t shard;
    uint64_t row;
    size_t at = 0;
    rks_index_locate(c->store->index, id, &shard, &row);
    while (!rks_digest_equal(c->dataset->shards[at].id, c->store->dataset->shards[shard].id))
        at++; /* found for sure, since the store's dataset is a copy */
    return c->holders[at];
}

/* "row 7 of more.jsonl (rank 2)" */
static rks_status describe_place(const comparison *c, uint64_t id, char *text, size_t room,
                                 rks_error *err)
{
    rks_batch *batch = NULL;
    char place[PLACE_SIZE] = "", rank[24] = "";
    rks_status status = rks_store_fetch(c->store, &id, 1, &batch, err);
    if (status != RKS_OK)
        return status;
    size_t unit = rks_store_unit_of(c->store, id);
    uint64_t row = batch->views[0].source_row;
    rks_batch_free(batch);
    if (c->words.place != NULL)
        c->words.place(c->words.user, c->store->dataset, unit, row, place, sizeof(place));
    else
        snprintf(place, sizeof(place), "row %" PRIu64 " of unit %" PRIu64, row,
                 c->store->dataset->units[unit].summary.unit);
    if (c->holders != NULL)
        snprintf(rank, sizeof(rank), "rank %" PRIu32, holder_of(c, id));
    bool both = place[0] != '\0' && rank[0] != '\0';
    snprintf(text, room, both ? "%s (%s)" : "%s%s", place, rank);
    return RKS_OK;
}

static rks_status compare_pair(void *user, uint64_t a, uint64_t b, rks_error *err)
{
    const comparison *c = user;
    rks_store *store = c->store;
    uint8_t first[RKS_KEY_MAX], second[RKS_KEY_MAX];
    size_t first_size = 0, second_size = 0;
    rks_status status = rks_store_key(store, a, first, &first_size, err);
    if (status == RKS_OK)
        status = rks_store_key(store, b, second, &second_size, err);
    if (status != RKS_OK)
        return status;
    if (first_size != second_size || memcmp(first, second, first_size) != 0)
        return RKS_OK; /* two different keys have one hash */
    char shown[RKS_KEY_MAX + 64], one[PLACE_SIZE + 24], other[PLACE_SIZE + 24];
    (c->words.key == NULL ? describe_text : c->words.key)(first, first_size, shown, sizeof(shown));
    status = describe_place(c, a, one, sizeof(one), err);
    if (status == RKS_OK)
        status = describe_place(c, b, other, sizeof(other), err);
    if (status != RKS_OK)
        return status;
    return rks_fail(err, RKS_ERR_DATA, 0, "%s appears twice: %s and %s%s%s", shown, one, other,
                    c->words.advice == NULL ? "" : "; ",
                    c->words.advice == NULL ? "" : c->words.advice);
}

rks_status rks_commit_open(rks_group *group, const rks_sealed_dataset *sealed, uint64_t *pairs,
                           rks_store **store, rks_error *err)
{
    rks_store_options options;
    rks_dataset *copy = NULL;
    rks_status status = sealed->status;
    rks_store_options_default(&options);
    options.missing = sealed->missing;
    options.shards = sealed->shards;
    options.shard_count = sealed->shard_count;
    if (status == RKS_OK)
        status = rks_dataset_copy(sealed->dataset, &copy, err);
    const rks_loaded_dataset loaded = {.directory = sealed->directory,
                                       .status = status,
                                       .dataset = copy,
                                       .note = sealed->note,
                                       .noted = sealed->noted};
    return rks_store_open_dataset(group, &loaded, &options, pairs, store, err);
}

rks_status rks_commit_compare_keys(rks_store *store, uint64_t pairs, const rks_dataset *dataset,
                                   const uint32_t *holders, const rks_key_words *words,
                                   rks_error *err)
{
    rks_group *group = store->group;
    comparison c = {store, dataset, holders, words == NULL ? (rks_key_words){0} : *words};
    if (pairs == 0)
        return RKS_OK;
    rks_status status = rks_index_equal_hashes(store->index, rks_group_rank(group),
                                               rks_group_size(group), compare_pair, &c, err);
    return rks_group_agree(group, "build: equal keys", status, err);
}
