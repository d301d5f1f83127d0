/* SPDX-License-Identifier: Apache-2.0
 *
 * wire.h: what a request for samples and its reply look like (RKS_SERVICE_FETCH); the pictures
 * are in wire.c. Both sides take the other's bytes as hostile. */
#ifndef RKS_FETCH_WIRE_H
#define RKS_FETCH_WIRE_H

#include "base/checksum.h"
#include "shard/shard.h"

enum {
    RKS_FETCH_REQUEST_HEAD = 8,
    RKS_FETCH_GROUP_HEAD = 24,
    RKS_FETCH_REPLY_HEAD = 8,
    RKS_FETCH_ROWS_MAX = 65536,     /* in one request */
    RKS_FETCH_REPLY_MAX = 16 << 20, /* bytes of a reply, unless its first record alone is larger */
    RKS_FETCH_ALIGN = 64,           /* of the memory that a reply is received into */
};

/* ---- request ------------------------------------------------------------------------- */

typedef struct rks_fetch_group {
    rks_digest shard_id;
    uint32_t shard; /* number in the dataset's list */
    uint32_t count;
    const uint8_t *rows; /* count little-endian u32 */
} rks_fetch_group;

size_t rks_fetch_request_size(size_t groups, size_t rows);
/* Both return the place behind what they wrote. */
uint8_t *rks_fetch_put_request(uint8_t *at, uint32_t groups, uint32_t rows);
uint8_t *rks_fetch_put_group(uint8_t *at, const rks_fetch_group *group);

/* Checks all of a request; *groups and *rows say how many there are. */
rks_status rks_fetch_request_check(const uint8_t *body, size_t size, uint32_t *groups,
                                   uint32_t *rows, rks_error *err);
/* Reads the group at `at` of a checked request and returns the place of the next. */
const uint8_t *rks_fetch_get_group(const uint8_t *at, rks_fetch_group *group);

/* ---- reply --------------------------------------------------------------------------- */

/* Bytes of head and table for `served` records, with their padding. */
size_t rks_fetch_reply_table(size_t served);
/* Where a record goes whose predecessor ends at `end`: so that its payload is aligned. */
size_t rks_fetch_record_place(size_t end, const rks_record_view *view);
/* More bytes than a reply of `asked` records can have, none of them above `largest`. */
uint64_t rks_fetch_reply_limit(size_t asked, uint64_t largest);

/* Checks head and table of a reply to a request for `asked` records, at least one. */
rks_status rks_fetch_reply_check(const uint8_t *reply, size_t size, size_t asked, size_t *served,
                                 rks_error *err);
/* Record `i` of a checked reply, parsed; what it says about the sample is not checked. */
rks_status rks_fetch_reply_record(const uint8_t *reply, size_t size, size_t served, size_t i,
                                  rks_record_view *view, rks_error *err);

#endif
