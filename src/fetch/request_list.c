/* SPDX-License-Identifier: Apache-2.0
 *
 * request_list.c: lists of wanted samples, in one allocation each. */
#include "fetch/request_list.h"

#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "fetch/fetcher.h"
#include "fetch/readahead.h"

rks_status rks_request_list_create(rks_fetcher *fetcher, size_t count, rks_request_list **list,
                                   rks_error *err)
{
    size_t bytes;
    if (count > UINT32_MAX || __builtin_mul_overflow(count, sizeof(rks_wanted), &bytes) ||
        __builtin_add_overflow(bytes, sizeof(rks_request_list), &bytes))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a batch of %zu samples is too large", count);
    rks_request_list *made = rks_alloc_raw(bytes, 1, err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    *made = (rks_request_list){.fetcher = fetcher, .count = count, .bytes = bytes};
    atomic_fetch_add(&fetcher->references, 1);
    rks_blocks_count(fetcher->pool, (int64_t)bytes);
    *list = made;
    return RKS_OK;
}

void rks_request_list_free(rks_request_list *list)
{
    if (list == NULL)
        return;
    rks_fetcher *fetcher = list->fetcher;
    rks_blocks_count(fetcher->pool, -(int64_t)list->bytes);
    rks_readahead_release(list->ahead);
    rks_free(list->pieces);
    rks_free(list->bins);
    rks_free(list->elsewhere);
    rks_free(list);
    rks_fetcher_release(fetcher);
}

/* Rows that come after this are asked for all the same. */
static rks_status look_elsewhere(rks_request_list *list, rks_error *err)
{
    const rks_fetcher *fetcher = list->fetcher;
    const rks_arriving *arriving = fetcher->options.arriving;
    if (arriving == NULL || !arriving->beside)
        return RKS_OK;
    for (size_t i = 0; i < list->count; i++) {
        const rks_wanted *wanted = &list->wanted[i];
        const rks_shard *map = fetcher->shards[wanted->shard];
        if (map == NULL || !rks_arriving_is_elsewhere(arriving, wanted->shard, map, wanted->row))
            continue;
        if (list->elsewhere == NULL)
            list->elsewhere = rks_alloc(list->count / 8 + 1, 1, err);
        if (list->elsewhere == NULL)
            return RKS_ERR_MEMORY;
        list->elsewhere[i / 8] |= (uint8_t)(1u << i % 8);
    }
    return RKS_OK;
}

rks_status rks_request_list_look(rks_request_list *list, size_t *remote, rks_error *err)
{
    const rks_fetcher *fetcher = list->fetcher;
    for (size_t i = 0; i < list->count; i++) {
        const rks_wanted *wanted = &list->wanted[i];
        if (wanted->shard >= fetcher->options.shard_count || wanted->row > UINT32_MAX)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "sample %" PRIu64 ": row %" PRIu64 " of shard %" PRIu32
                            " is out of range; there are %zu shards",
                            wanted->id, wanted->row, wanted->shard, fetcher->options.shard_count);
    }
    rks_status status = look_elsewhere(list, err);
    if (status != RKS_OK)
        return status;
    *remote = 0;
    for (size_t i = 0; i < list->count; i++)
        *remote += !rks_request_list_is_local(list, i);
    return RKS_OK;
}

rks_status rks_request_list_set_pieces(rks_request_list *list, const rks_piece *pieces,
                                       size_t count, rks_error *err)
{
    if (count == 0)
        return RKS_OK;
    for (size_t i = 0; i < count; i++) {
        const rks_piece *piece = &pieces[i];
        uint32_t length = piece->place < list->count ? list->wanted[piece->place].length : 0;
        if ((i > 0 && piece->place <= pieces[i - 1].place) || piece->start > length ||
            piece->count > length - piece->start)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "piece %zu: items %" PRIu32 " to %" PRIu64
                            " of the sample at place %" PRIu32 ", which has %" PRIu32
                            "; pieces must fit their samples, and their places must ascend",
                            i, piece->start, (uint64_t)piece->start + piece->count, piece->place,
                            length);
    }
    list->pieces = rks_alloc_raw(count, sizeof(*pieces), err);
    if (list->pieces == NULL)
        return RKS_ERR_MEMORY;
    memcpy(list->pieces, pieces, count * sizeof(*pieces));
    list->piece_count = count;
    return RKS_OK;
}

rks_status rks_request_list_set_bins(rks_request_list *list, const uint32_t *bounds, size_t bins,
                                     rks_error *err)
{
    if (bins == 0 || bounds[bins] - bounds[0] != list->count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "bins: their bounds must cover the %zu samples of the batch", list->count);
    list->bins = rks_alloc_raw(bins + 1, sizeof(*bounds), err);
    if (list->bins == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i <= bins; i++)
        list->bins[i] = bounds[i] - bounds[0];
    list->bin_count = bins;
    return RKS_OK;
}
