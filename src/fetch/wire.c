/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.c: requests for samples, and replies. Numbers are little-endian.
 *
 *   request   offset  size  field
 *                  0     4  groups g
 *                  4     4  rows in all groups, 1 to 65,536
 *                  8        g groups, one after the other:
 *                               0     4  shard: number in the dataset's list
 *                               4    16  shard id (low half, high half)
 *                              20     4  count n, at least 1
 *                              24   4*n  rows
 *
 *   reply          0     4  records served s: the first s of those requested, in their order
 *                  4     4  flags: 1, some of the rows came from home only after they were asked
 * for 8   4*s  place of each record in the reply, in units of 8 bytes, ascending zeros up to a
 * multiple of 8 s stored records, each at its place; a record's bytes end before the next place or
 * the reply's end. Between records there may be any bytes
 *
 * A record's place makes its payload's offset in the reply a multiple of 8, or of 64 if the record
 * requires it. So a reply received at an address divisible by 64 can be used in place. An owner
 * puts at most 16 MiB into a reply unless its first record is larger, and serves at least one
 * record. The requester asks again for the rest. A row that cannot be served ends the reply before
 * it; if it is the first of a request, the answer is an error.
 *
 * The requester relies on no claim of a reply: it parses each record, and compares it with the
 * length and the key hash of its own index, the shard's id and the row it asked for. */
#include "fetch/wire.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "base/error.h"

size_t rks_fetch_request_size(size_t groups, size_t rows)
{
    return RKS_FETCH_REQUEST_HEAD + groups * RKS_FETCH_GROUP_HEAD + rows * 4;
}

uint8_t *rks_fetch_put_request(uint8_t *at, uint32_t groups, uint32_t rows)
{
    rks_store_u32(at, groups);
    rks_store_u32(at + 4, rows);
    return at + RKS_FETCH_REQUEST_HEAD;
}

uint8_t *rks_fetch_put_group(uint8_t *at, const rks_fetch_group *group)
{
    rks_store_u32(at, group->shard);
    rks_store_u64(at + 4, group->shard_id.low);
    rks_store_u64(at + 12, group->shard_id.high);
    rks_store_u32(at + 20, group->count);
    memcpy(at + RKS_FETCH_GROUP_HEAD, group->rows, (size_t)group->count * 4);
    return at + RKS_FETCH_GROUP_HEAD + (size_t)group->count * 4;
}

const uint8_t *rks_fetch_get_group(const uint8_t *at, rks_fetch_group *group)
{
    group->shard = rks_load_u32(at);
    group->shard_id.low = rks_load_u64(at + 4);
    group->shard_id.high = rks_load_u64(at + 12);
    group->count = rks_load_u32(at + 20);
    group->rows = at + RKS_FETCH_GROUP_HEAD;
    return group->rows + (size_t)group->count * 4;
}

static rks_status bad_request(rks_error *err, const char *what)
{
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "request for samples: %s", what);
}

rks_status rks_fetch_request_check(const uint8_t *body, size_t size, uint32_t *groups,
                                   uint32_t *rows, rks_error *err)
{
    if (size < RKS_FETCH_REQUEST_HEAD)
        return bad_request(err, "no head");
    uint32_t group_count = rks_load_u32(body), row_count = rks_load_u32(body + 4);
    if (row_count == 0 || row_count > RKS_FETCH_ROWS_MAX)
        return bad_request(err, "no rows, or more than 65536");
    size_t at = RKS_FETCH_REQUEST_HEAD, left = row_count;
    for (uint32_t i = 0; i < group_count; i++) {
        if (size - at < RKS_FETCH_GROUP_HEAD)
            return bad_request(err, "it ends inside a group");
        uint32_t count = rks_load_u32(body + at + 20);
        at += RKS_FETCH_GROUP_HEAD;
        if (count == 0 || count > left || count > (size - at) / 4)
            return bad_request(err, "a group's count does not fit");
        at += (size_t)count * 4;
        left -= count;
    }
    if (left != 0 || at != size)
        return bad_request(err, "its counts do not fill it");
    *groups = group_count;
    *rows = row_count;
    return RKS_OK;
}

size_t rks_fetch_reply_table(size_t served)
{
    return (size_t)rks_round_up(RKS_FETCH_REPLY_HEAD + served * 4, 8);
}

size_t rks_fetch_record_place(size_t end, const rks_record_view *view)
{
    size_t before = (size_t)(view->payload - view->record);
    return (size_t)rks_round_up(end + before, view->align) - before;
}

uint64_t rks_fetch_reply_limit(size_t asked, uint64_t largest)
{
    uint64_t records = largest > RKS_FETCH_REPLY_MAX ? largest : RKS_FETCH_REPLY_MAX;
    return records + rks_fetch_reply_table(asked) + 2 * RKS_FETCH_ALIGN;
}

static rks_status bad_reply(rks_error *err, const char *what)
{
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "reply with samples: %s", what);
}

rks_status rks_fetch_reply_check(const uint8_t *reply, size_t size, size_t asked, size_t *served,
                                 rks_error *err)
{
    if (size < RKS_FETCH_REPLY_HEAD)
        return bad_reply(err, "no head");
    size_t count = rks_load_u32(reply);
    if (count == 0 || count > asked || rks_load_u32(reply + 4) > RKS_FETCH_WAITED)
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "reply with samples: serves %zu records, not 1 to %zu", count, asked);
    size_t table = rks_fetch_reply_table(count);
    if (size < table)
        return bad_reply(err, "it ends inside its table");
    size_t end = table;
    for (size_t i = 0; i < count; i++) {
        uint64_t place = (uint64_t)rks_load_u32(reply + RKS_FETCH_REPLY_HEAD + i * 4) * 8;
        if (place < end || place >= size)
            return bad_reply(err, "a record's place is out of range");
        end = (size_t)place + 8;
    }
    *served = count;
    return RKS_OK;
}

bool rks_fetch_reply_waited(const uint8_t *reply)
{
    return rks_load_u32(reply + 4) == RKS_FETCH_WAITED;
}

rks_status rks_fetch_reply_record(const uint8_t *reply, size_t size, size_t served, size_t i,
                                  rks_record_view *view, rks_error *err)
{
    const uint8_t *table = reply + RKS_FETCH_REPLY_HEAD;
    size_t place = (size_t)rks_load_u32(table + i * 4) * 8;
    size_t end = i + 1 < served ? (size_t)rks_load_u32(table + (i + 1) * 4) * 8 : size;
    rks_record_view found;
    rks_status status = rks_record_parse(reply + place, end - place, &found, err);
    if (status != RKS_OK)
        return status;
    if ((uintptr_t)found.payload % found.align != 0)
        return bad_reply(err, "a record is not aligned");
    *view = found;
    return RKS_OK;
}
