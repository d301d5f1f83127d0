/* SPDX-License-Identifier: Apache-2.0
 *
 * deal.c: turns the samples of a fetch into requests: at most 128 rows of one owner each, in order
 * of shard and row. An owner that failed is asked after others. */
#include "fetch/deal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

enum { FEW = 128 };

typedef struct spot {
    uint32_t owner, shard, row, at;
} spot;

static int compare_spots(const void *a, const void *b)
{
    const spot *x = a, *y = b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    return x->row == y->row ? 0 : x->row < y->row ? -1 : 1;
}

/* Sorts samples of one shard, as most small batches have. qsort would take as long as sending the
 * request. */
static void sort_few_rows(spot *spots, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        spot one = spots[i];
        size_t k = i;
        for (; k > 0 && spots[k - 1].row > one.row; k--)
            spots[k] = spots[k - 1];
        spots[k] = one;
    }
}

static bool one_shard(const spot *spots, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (spots[i].owner != spots[0].owner || spots[i].shard != spots[0].shard)
            return false;
    return true;
}

static void sort_spots(spot *spots, size_t count)
{
    if (count <= FEW && one_shard(spots, count))
        sort_few_rows(spots, count);
    else
        qsort(spots, count, sizeof(*spots), compare_spots);
}

bool rks_fetch_owners_have(const rks_fetch_owners *list, uint32_t rank)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->ranks[i] == rank)
            return true;
    return false;
}

/* Chooses the rank to ask for the samples of a shard. Ranks are proposed in turn; the first one
 * that was not tried wins, preferably one that has not failed recently. */
typedef struct choice {
    const rks_fetcher *fetcher;
    const rks_fetch_owners *tried, *failed;
    int64_t rank, second; /* -1: none */
} choice;

static void propose(choice *c, uint32_t rank)
{
    if (c->rank >= 0 || rank == c->fetcher->options.rank || rks_fetch_owners_have(c->tried, rank))
        return;
    if (!rks_fetch_owners_have(c->failed, rank))
        c->rank = rank;
    else if (c->second < 0)
        c->second = rank;
}

/* Returns the rank to ask; -1 if none is left. */
static int64_t choose_owner(const rks_fetcher *fetcher, uint32_t shard,
                            const rks_fetch_owners *tried, const rks_fetch_owners *failed)
{
    choice c = {fetcher, tried, failed, -1, -1};
    const uint32_t *asks = fetcher->options.asks;
    const int32_t *owner = fetcher->options.owners[shard];
    for (; owner != NULL && *owner >= 0 && c.rank < 0; owner++) {
        if (asks != NULL)
            propose(&c, asks[*owner]);
        propose(&c, (uint32_t)*owner);
    }
    return c.rank >= 0 ? c.rank : c.second;
}

static rks_status find_spots(rks_fetch *fetch, const uint32_t *order, size_t count,
                             const rks_fetch_owners *tried, spot *spots, rks_error *err)
{
    rks_fetcher *fetcher = fetch->fetcher;
    rks_fetch_owners failed = {0};
    if (atomic_load_explicit(&fetcher->some_failed, memory_order_relaxed)) {
        pthread_mutex_lock(&fetcher->mutex);
        failed = fetcher->failed;
        pthread_mutex_unlock(&fetcher->mutex);
    }
    uint32_t shard = UINT32_MAX;
    int64_t owner = -1;
    for (size_t i = 0; i < count; i++) {
        const rks_wanted *wanted = &fetch->batch->wanted[order[i]];
        if (wanted->shard != shard)
            owner = choose_owner(fetcher, wanted->shard, tried, &failed);
        shard = wanted->shard;
        if (owner < 0) {
            rks_error inner;
            rks_fail(&inner, RKS_ERR_NOT_FOUND, 0, "no rank serves shard %" PRIu32, shard);
            return rks_fetcher_blame(fetcher, wanted, &inner, err);
        }
        spots[i] = (spot){(uint32_t)owner, shard, (uint32_t)wanted->row, order[i]};
    }
    return RKS_OK;
}

/* Orders the samples of order[first, first + count) so that each owner's are together. owners[i]
 * becomes the owner of the i-th; it has room for one a sample. */
static rks_status sort_by_owner(rks_fetch *fetch, size_t first, size_t count,
                                const rks_fetch_owners *tried, uint32_t *owners, rks_error *err)
{
    uint32_t *order = fetch->order + first;
    spot few[FEW], *spots = count <= FEW ? few : rks_alloc_raw(count, sizeof(*spots), err);
    if (spots == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = find_spots(fetch, order, count, tried, spots, err);
    if (status == RKS_OK) {
        sort_spots(spots, count);
        for (size_t i = 0; i < count; i++) {
            order[i] = spots[i].at;
            owners[i] = spots[i].owner;
        }
    }
    if (spots != few)
        rks_free(spots);
    return status;
}

rks_status rks_fetch_deal(rks_fetch *fetch, size_t first, size_t count,
                          const rks_fetch_owners *tried, rks_fetch_request **list, size_t *made,
                          rks_error *err)
{
    uint32_t few[FEW], *owners = count <= FEW ? few : rks_alloc_raw(count, sizeof(*owners), err);
    if (owners == NULL)
        return RKS_ERR_MEMORY;
    rks_fetch_request *planned = NULL, **end = &planned;
    size_t requests = 0;
    rks_status status = sort_by_owner(fetch, first, count, tried, owners, err);
    for (size_t i = 0, many; status == RKS_OK && i < count; i += many) {
        for (many = 1; many < RKS_FETCH_REQUEST_ROWS && i + many < count; many++)
            if (owners[i + many] != owners[i])
                break;
        status = rks_fetch_request_make(fetch, owners[i], first + i, many, end, err);
        if (status != RKS_OK)
            break;
        (*end)->tried = *tried;
        end = &(*end)->next;
        requests++;
    }
    if (owners != few)
        rks_free(owners);
    if (status != RKS_OK) {
        rks_fetch_request_free(planned);
        return status;
    }
    *list = planned;
    *made = requests;
    return RKS_OK;
}

rks_status rks_fetch_deal_all(rks_fetch *fetch, size_t remote, rks_fetch_request **list,
                              size_t *made, rks_error *err)
{
    static const rks_fetch_owners none = {0};
    const rks_fetcher *fetcher = fetch->fetcher;
    if (fetcher->options.engine == NULL)
        return rks_fail(err, RKS_ERR_STATE, 0,
                        "the sample is on another rank, and there is no connection to it");
    for (size_t i = 0, found = 0; found < remote; i++) {
        fetch->order[found] = (uint32_t)i;
        found += !rks_request_list_is_local(fetch->batch->list, i);
    }
    return rks_fetch_deal(fetch, 0, remote, &none, list, made, err);
}
