/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c: a request to an owner: its samples, its bytes and its life. deal.c chooses the
 * samples; reply.c draws its way from the queue to the batch. */
#include "fetch/request.h"

#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "fetch/wire.h"

rks_fetch_request *rks_fetch_request_of(rks_call *call)
{
    return (rks_fetch_request *)(void *)call; /* its first member */
}

const rks_wanted *rks_fetch_request_wanted(const rks_fetch_request *request, size_t i)
{
    const rks_fetch *fetch = request->fetch;
    return &fetch->batch->wanted[fetch->order[request->first + i]];
}

/* Returns the end of the samples of the i-th one's shard. */
static size_t group_end(const rks_fetch_request *request, size_t i)
{
    uint32_t shard = rks_fetch_request_wanted(request, i)->shard;
    while (i < request->count && rks_fetch_request_wanted(request, i)->shard == shard)
        i++;
    return i;
}

static void write_body(const rks_fetch_request *request, uint32_t groups, uint8_t *body)
{
    uint8_t rows[RKS_FETCH_REQUEST_ROWS * 4];
    uint8_t *to = rks_fetch_put_request(body, groups, (uint32_t)request->count);
    for (size_t i = 0, end; i < request->count; i = end) {
        uint32_t shard = rks_fetch_request_wanted(request, i)->shard;
        end = group_end(request, i);
        for (size_t k = i; k < end; k++)
            rks_store_u32(rows + 4 * (k - i), (uint32_t)rks_fetch_request_wanted(request, k)->row);
        rks_fetch_group group = {request->fetch->fetcher->shard_ids[shard], shard,
                                 (uint32_t)(end - i), rows};
        to = rks_fetch_put_group(to, &group);
    }
}

static void set_limits(rks_fetch_request *request)
{
    uint64_t largest = 0;
    uint64_t sum = rks_fetch_reply_table(request->count) + 2 * RKS_FETCH_ALIGN;
    for (size_t i = 0; i < request->count; i++) {
        uint64_t record =
            request->fetch->fetcher->largest[rks_fetch_request_wanted(request, i)->shard];
        largest = record > largest ? record : largest;
        sum += record + RKS_FETCH_ALIGN;
    }
    request->limit = rks_fetch_reply_limit(request->count, largest);
    request->need = sum < request->limit ? sum : request->limit;
}

rks_status rks_fetch_request_make(rks_fetch *fetch, uint32_t owner, size_t first, size_t count,
                                  rks_fetch_request **made, rks_error *err)
{
    rks_fetch_request key = {.fetch = fetch, .first = first, .count = count};
    uint32_t groups = 0;
    for (size_t i = 0; i < count; i = group_end(&key, i))
        groups++;
    size_t size = rks_fetch_request_size(groups, count);
    rks_fetch_request *request = rks_alloc_raw(sizeof(*request) + size, 1, err);
    if (request == NULL)
        return RKS_ERR_MEMORY;
    memset(request, 0, sizeof(*request));
    request->fetch = fetch;
    request->first = first;
    request->count = count;
    request->call = (rks_call){.phase = "fetch",
                               .body = request->body,
                               .size = size,
                               .peer = owner,
                               .service = (uint16_t)fetch->fetcher->options.service};
    atomic_init(&request->holds, 1);
    atomic_init(&request->state, RKS_REQUEST_WAITS);
    set_limits(request);
    write_body(request, groups, request->body);
    atomic_fetch_add(&fetch->references, 1);
    *made = request;
    return RKS_OK;
}

void rks_fetch_request_drop(rks_fetch_request *request)
{
    if (atomic_fetch_sub(&request->holds, 1) != 1)
        return;
    rks_fetch *fetch = request->fetch;
    rks_blocks_give(fetch->fetcher->pool, request->reply);
    rks_free(request);
    rks_fetch_release(fetch);
}

void rks_fetch_request_free(rks_fetch_request *list)
{
    while (list != NULL) {
        rks_fetch_request *next = list->next;
        rks_fetch_request_drop(list);
        list = next;
    }
}
