/* SPDX-License-Identifier: Apache-2.0
 *
 * duplicates.c: equal keys, looked for before the commit. Each rank takes the hashes with
 * hash % ranks == rank; equal hashes are compared by full key before anything is called a
 * duplicate. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "store/commit.h"
#include "store/store.h"

enum { SHOWN_MAX = 64 };

typedef struct comparison {
    rks_store *store;
    const rks_dataset *dataset; /* as committed: its shards are in another order */
    const uint32_t *holders;
    rks_describe_key_fn describe;
} comparison;

/* Short: the ranks' numbers come behind it, and an error has one line. */
static void describe_text(const void *key, size_t size, char *text, size_t room)
{
    bool all = size <= SHOWN_MAX;
    snprintf(text, room, "key '%.*s%s'", all ? (int)size : SHOWN_MAX, (const char *)key,
             all ? "" : "...");
}

/* The rank that wrote the sample, or took over the part with it. In a directory that ranks share
 * any of them may serve it. */
static uint32_t holder_of(const comparison *c, uint64_t id)
{
    uint32_t shard;
    uint64_t row;
    size_t at = 0;
    rks_index_locate(c->store->index, id, &shard, &row);
    while (!rks_digest_equal(c->dataset->shards[at].id, c->store->dataset->shards[shard].id))
        at++; /* it is there: the store's dataset is a copy */
    return c->holders[at];
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
        return RKS_OK; /* two keys, one hash */
    char shown[RKS_KEY_MAX + 64];
    (c->describe == NULL ? describe_text : c->describe)(first, first_size, shown, sizeof(shown));
    return rks_fail(err, RKS_ERR_DATA, 0,
                    "%s is there twice: from rank %" PRIu32 " (sample %" PRIu64
                    ") and from rank %" PRIu32 " (sample %" PRIu64 ")",
                    shown, holder_of(c, a), a, holder_of(c, b), b);
}

/* The runs, which dataset.json does not hold. */
static rks_status copy_excluded(const rks_excluded *from, rks_excluded *to, rks_error *err)
{
    if (from->samples == 0)
        return RKS_OK;
    to->runs = rks_alloc_raw(from->run_count, sizeof(*to->runs), err);
    if (to->runs == NULL)
        return RKS_ERR_MEMORY;
    memcpy(to->runs, from->runs, from->run_count * sizeof(*to->runs));
    return RKS_OK;
}

rks_status rks_commit_open(rks_group *group, const char *directory, const rks_dataset *dataset,
                           rks_store **store, rks_error *err)
{
    rks_store_options options;
    char *text = NULL;
    size_t size = 0;
    rks_dataset *copy = NULL;
    rks_store_options_default(&options);
    rks_status status = rks_dataset_encode(dataset, &text, &size, err);
    if (status == RKS_OK)
        status = rks_dataset_decode(text, size, directory, &copy, err);
    rks_release(text);
    if (status == RKS_OK)
        status = copy_excluded(&dataset->excluded, &copy->excluded, err);
    status = rks_group_agree(group, "build: look", status, err);
    if (status != RKS_OK) {
        rks_dataset_free(copy);
        return status;
    }
    return rks_store_open_dataset(group, directory, copy, &options, store, err);
}

rks_status rks_commit_check_keys(rks_group *group, const char *directory,
                                 const rks_dataset *dataset, const uint32_t *holders,
                                 rks_describe_key_fn describe, rks_error *err)
{
    rks_store *store = NULL;
    rks_status status = rks_commit_open(group, directory, dataset, &store, err);
    if (status != RKS_OK)
        return status;
    comparison c = {store, dataset, holders, describe};
    status = rks_index_equal_hashes(store->index, rks_group_rank(group), rks_group_size(group),
                                    compare_pair, &c, err);
    status = rks_group_agree(group, "build: equal keys", status, err);
    rks_store_close(store, 0);
    return status;
}
