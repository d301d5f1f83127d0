/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h: the format of a request for samples and its reply (RKS_SERVICE_FETCH); wire.c draws both.
 * Each side treats the other's bytes as hostile. */
#ifndef RKS_FETCH_WIRE_H
#define RKS_FETCH_WIRE_H

#include "base/checksum.h"
#include "shard/shard.h"

enum {
    RKS_FETCH_REQUEST_HEAD = 8,
    RKS_FETCH_GROUP_HEAD = 24,
    RKS_FETCH_REPLY_HEAD = 8,
    RKS_FETCH_ROWS_MAX = 65536,     /* most rows of a request */
    RKS_FETCH_REPLY_MAX = 16 << 20, /* most bytes of a reply, unless its first record alone is
                                     * larger */
    RKS_FETCH_WAITED = 1,           /* a flag of a reply: its rows had to come from home first */
    RKS_FETCH_ALIGN = 64,           /* alignment of the memory that receives a reply */
};

/* ---- request ------------------------------------------------------------------------- */

typedef struct rks_fetch_group {
    rks_digest shard_id;
    uint32_t shard; /* number in the dataset's list */
    uint32_t count;
    const uint8_t *rows; /* count little-endian u32 */
} rks_fetch_group;

/* Returns the bytes of a request. */
size_t rks_fetch_request_size(size_t groups, size_t rows);
/* Write a part of a request. Return the address after it. */
uint8_t *rks_fetch_put_request(uint8_t *at, uint32_t groups, uint32_t rows);
uint8_t *rks_fetch_put_group(uint8_t *at, const rks_fetch_group *group);

/* Checks a whole request, and sets *groups and *rows to their numbers. RKS_ERR_ARGUMENT if it is
 * malformed. */
rks_status rks_fetch_request_check(const uint8_t *body, size_t size, uint32_t *groups,
                                   uint32_t *rows, rks_error *err);
/* Reads the group at `at` of a checked request. Returns the address of the next one. */
const uint8_t *rks_fetch_get_group(const uint8_t *at, rks_fetch_group *group);

/* ---- reply --------------------------------------------------------------------------- */

/* Returns the bytes of head and table for `served` records, with their padding. */
size_t rks_fetch_reply_table(size_t served);
/* Returns the offset of a record after one that ends at `end`, so that its payload is aligned. */
size_t rks_fetch_record_place(size_t end, const rks_record_view *view);
/* Returns an upper bound for the bytes of a reply of `asked` records, each of at most `largest`
 * bytes. */
uint64_t rks_fetch_reply_limit(size_t asked, uint64_t largest);

/* Checks head and table of a reply to a request for `asked` records, at least one. RKS_ERR_CORRUPT
 * if they are malformed. */
rks_status rks_fetch_reply_check(const uint8_t *reply, size_t size, size_t asked, size_t *served,
                                 rks_error *err);
/* Returns true if rows of a checked reply had to come from home after they were asked for. */
bool rks_fetch_reply_waited(const uint8_t *reply);
/* Parses record `i` of a checked reply. Does not check whether it is the right sample. */
rks_status rks_fetch_reply_record(const uint8_t *reply, size_t size, size_t served, size_t i,
                                  rks_record_view *view, rks_error *err);

#endif
