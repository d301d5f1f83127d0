/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.c: encodes and decodes frame headers. The bytes come from a peer, so each value is checked
 * before use. */
#include "transport/frame.h"

#include <inttypes.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/error.h"

enum { CHECKED = 20 };

static uint32_t check_of(const uint8_t *header, const void *body, size_t size)
{
    uint64_t sum = rks_checksum64(header, CHECKED);
    if (size > 0)
        sum += rks_checksum64(body, size);
    return (uint32_t)sum;
}

void rks_frame_encode(const rks_frame_header *header, const void *body,
                      uint8_t bytes[RKS_FRAME_HEADER])
{
    rks_store_u64(bytes, header->size);
    rks_store_u64(bytes + 8, header->id);
    rks_store_u16(bytes + 16, header->type);
    rks_store_u16(bytes + 18, header->service);
    size_t covered = header->type == RKS_FRAME_REPLY ? 0 : header->size;
    rks_store_u32(bytes + CHECKED, check_of(bytes, body, covered));
}

bool rks_frame_body_good(const uint8_t bytes[RKS_FRAME_HEADER], const void *body, size_t size)
{
    return rks_load_u32(bytes + CHECKED) == check_of(bytes, body, size);
}

/* Finds the size that a body of this type must have; UINT64_MAX means any. Returns false for an
 * unknown type. */
static bool size_of_type(uint16_t type, uint64_t *size)
{
    switch (type) {
    case RKS_FRAME_HELLO:
        *size = RKS_HELLO_BODY;
        return true;
    case RKS_FRAME_PROOF:
        *size = RKS_PROOF_SIZE;
        return true;
    case RKS_FRAME_RESUME:
        *size = RKS_RESUME_BODY;
        return true;
    case RKS_FRAME_ERROR:
        *size = sizeof(rks_error);
        return true;
    case RKS_FRAME_PING:
    case RKS_FRAME_PONG:
    case RKS_FRAME_BYE:
    case RKS_FRAME_KEEP:
    case RKS_FRAME_ACK:
        *size = 0;
        return true;
    case RKS_FRAME_REQUEST:
    case RKS_FRAME_REPLY:
    case RKS_FRAME_NOTE:
        *size = UINT64_MAX;
        return true;
    default:
        return false;
    }
}

rks_status rks_frame_decode(const uint8_t bytes[RKS_FRAME_HEADER], uint64_t max_frame,
                            rks_frame_header *header, rks_error *err)
{
    rks_frame_header got = {.size = rks_load_u64(bytes),
                            .id = rks_load_u64(bytes + 8),
                            .type = rks_load_u16(bytes + 16),
                            .service = rks_load_u16(bytes + 18),
                            .check = rks_load_u32(bytes + CHECKED)};
    uint64_t size;
    if (!size_of_type(got.type, &size))
        return rks_fail(err, RKS_ERR_PEER, 0, "frame of unknown type %u", got.type);
    if (size != UINT64_MAX && got.size != size)
        return rks_fail(err, RKS_ERR_PEER, 0,
                        "frame of type %u has %" PRIu64 " bytes, not %" PRIu64, got.type, got.size,
                        size);
    if (got.size > max_frame)
        return rks_fail(err, RKS_ERR_PEER, 0,
                        "frame of %" PRIu64 " bytes, above the limit of %" PRIu64, got.size,
                        max_frame);
    if ((got.size == 0 || got.type == RKS_FRAME_REPLY) && !rks_frame_body_good(bytes, NULL, 0))
        return rks_fail(err, RKS_ERR_PEER, 0, "frame header that fails its check");
    *header = got;
    return RKS_OK;
}
