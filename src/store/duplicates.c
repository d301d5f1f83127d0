/* SPDX-License-Identifier: Apache-2.0
 *
 * duplicates.c: equal keys, looked for before the commit. Each rank takes the hashes with
 * hash % ranks == rank; equal hashes are compared by full key before anything is called a
 * duplicate. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "store/commit.h"
#include "store/store.h"

typedef struct comparison {
    rks_store *store;
    rks_describe_key_fn describe;
} comparison;

static void describe_text(const void *key, size_t size, char *text, size_t room)
{
    snprintf(text, room, "key '%.*s'", (int)size, (const char *)key);
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
                    "%s is there twice: from rank %lld (sample %" PRIu64
                    ") and from rank %lld (sample %" PRIu64 ")",
                    shown, (long long)rks_store_owner(store, a), a,
                    (long long)rks_store_owner(store, b), b);
}

rks_status rks_commit_check_keys(rks_group *group, const char *directory, rks_dataset *dataset,
                                 rks_describe_key_fn describe, rks_error *err)
{
    rks_store *store = NULL;
    rks_store_options options;
    char *text = NULL;
    size_t size = 0;
    rks_dataset *copy = NULL;
    rks_store_options_default(&options);
    rks_status status = rks_dataset_encode(dataset, &text, &size, err);
    if (status == RKS_OK)
        status = rks_dataset_decode(text, size, directory, &copy, err);
    rks_release(text);
    status = rks_group_agree(group, "build: keys", status, err);
    if (status != RKS_OK) {
        rks_dataset_free(copy);
        return status;
    }
    status = rks_store_open_dataset(group, directory, copy, &options, &store, err);
    if (status != RKS_OK)
        return status;
    comparison c = {store, describe};
    status = rks_index_equal_hashes(store->index, rks_group_rank(group), rks_group_size(group),
                                    compare_pair, &c, err);
    status = rks_group_agree(group, "build: equal keys", status, err);
    rks_store_close(store, 0);
    return status;
}
