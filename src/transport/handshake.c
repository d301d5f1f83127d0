/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake.c: both sides of a connection prove that they have the key of their two ranks. The role
 * in the proof prevents reflection, and the fresh nonces prevent replay. The ranks keep one rank
 * from posing as another, and the addresses keep out a relay. The layouts are in frame.h. */
#include "transport/frame.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"

static const uint8_t MAGIC[8] = "RKSWIRE";

enum { PROVEN_SIZE = 152 };

enum purpose {
    PROOF_CONNECTED = 1,
    PROOF_ACCEPTED = 2,
    TAG_CONNECTED = 3,
    TAG_ACCEPTED = 4,
    FRAMES_CONNECTED = 5,
    FRAMES_ACCEPTED = 6
};

rks_status rks_hello_start(rks_hello *hello, rks_error *err)
{
    hello->heard = false;
    hello->peer_features = 0;
    memset(hello->peer_nonce, 0, sizeof(hello->peer_nonce));
    memset(hello->peer_tag, 0, sizeof(hello->peer_tag));
    return rks_random(hello->own_nonce, sizeof(hello->own_nonce), err);
}

static void hash_for(const rks_hello *hello, enum purpose purpose, uint8_t hash[RKS_PROOF_SIZE])
{
    uint8_t bytes[PROVEN_SIZE] = {0};
    bool own = hello->connected; /* this side is the one that connected */
    memcpy(bytes, MAGIC, sizeof(MAGIC));
    rks_store_u32(bytes + 8, purpose);
    rks_store_u32(bytes + 12, RKS_PROTOCOL);
    rks_store_u32(bytes + 16, own ? hello->own_features : hello->peer_features);
    rks_store_u32(bytes + 24, own ? hello->own_rank : hello->peer_rank);
    rks_store_u32(bytes + 28, own ? hello->peer_rank : hello->own_rank);
    memcpy(bytes + 32, hello->session, 16);
    memcpy(bytes + 48, own ? hello->own_nonce : hello->peer_nonce, RKS_NONCE_SIZE);
    if (purpose != TAG_CONNECTED) { /* the first tag precedes these values */
        rks_store_u32(bytes + 20, own ? hello->peer_features : hello->own_features);
        memcpy(bytes + 80, own ? hello->peer_nonce : hello->own_nonce, RKS_NONCE_SIZE);
    }
    memcpy(bytes + 112, own ? hello->own_place : hello->peer_place, RKS_PLACE_SIZE);
    memcpy(bytes + 132, own ? hello->peer_place : hello->own_place, RKS_PLACE_SIZE);
    rks_keyed_hash(hello->key, bytes, sizeof(bytes), hash);
}

void rks_hello_encode(const rks_hello *hello, uint8_t body[RKS_HELLO_BODY])
{
    uint8_t hash[RKS_PROOF_SIZE];
    memset(body, 0, RKS_HELLO_BODY);
    memcpy(body, MAGIC, sizeof(MAGIC));
    rks_store_u32(body + 8, RKS_PROTOCOL);
    rks_store_u32(body + 12, hello->own_features);
    rks_store_u32(body + 16, hello->own_rank);
    rks_store_u32(body + 20, hello->peer_rank);
    memcpy(body + 24, hello->own_nonce, RKS_NONCE_SIZE);
    hash_for(hello, hello->connected ? TAG_CONNECTED : TAG_ACCEPTED, hash);
    memcpy(body + 56, hash, RKS_TAG_SIZE);
}

rks_status rks_hello_receive(rks_hello *hello, const uint8_t body[RKS_HELLO_BODY], rks_error *err)
{
    if (memcmp(body, MAGIC, sizeof(MAGIC)) != 0)
        return rks_fail(err, RKS_ERR_PEER, 0, "hello with a wrong magic");
    uint32_t version = rks_load_u32(body + 8);
    uint32_t from = rks_load_u32(body + 16);
    uint32_t to = rks_load_u32(body + 20);
    if (from >= hello->ranks)
        return rks_fail(err, RKS_ERR_PEER, 0,
                        "hello from rank %" PRIu32 " in a job of %" PRIu32 " ranks", from,
                        hello->ranks);
    if (to != hello->own_rank)
        return rks_fail(err, RKS_ERR_PEER, 0,
                        "hello for rank %" PRIu32 ", but this is rank %" PRIu32, to,
                        hello->own_rank);
    if (hello->connected && from != hello->peer_rank)
        return rks_fail(err, RKS_ERR_PEER, 0,
                        "rank %" PRIu32 " answered, but rank %" PRIu32 " was expected", from,
                        hello->peer_rank);
    hello->peer_rank = from;
    if (version != RKS_PROTOCOL)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, version,
                        "speaks protocol version %" PRIu32
                        ", this side %d; use the same rankstore release on all ranks",
                        version, RKS_PROTOCOL);
    hello->peer_features = rks_load_u32(body + 12);
    memcpy(hello->peer_nonce, body + 24, RKS_NONCE_SIZE);
    memcpy(hello->peer_tag, body + 56, RKS_TAG_SIZE);
    hello->heard = true;
    return RKS_OK;
}

bool rks_hello_trusted(const rks_hello *hello)
{
    uint8_t expected[RKS_PROOF_SIZE], got[RKS_PROOF_SIZE];
    hash_for(hello, hello->connected ? TAG_ACCEPTED : TAG_CONNECTED, expected);
    memcpy(got, expected, sizeof(got));
    memcpy(got, hello->peer_tag, RKS_TAG_SIZE);
    bool equal = hello->heard && rks_proof_equal(expected, got);
    rks_wipe(expected, sizeof(expected));
    return equal;
}

void rks_hello_prove(const rks_hello *hello, uint8_t proof[RKS_PROOF_SIZE])
{
    hash_for(hello, hello->connected ? PROOF_CONNECTED : PROOF_ACCEPTED, proof);
}

void rks_hello_frame_keys(const rks_hello *hello, uint8_t out[RKS_KEY_SIZE],
                          uint8_t in[RKS_KEY_SIZE])
{
    hash_for(hello, hello->connected ? FRAMES_CONNECTED : FRAMES_ACCEPTED, out);
    hash_for(hello, hello->connected ? FRAMES_ACCEPTED : FRAMES_CONNECTED, in);
}

bool rks_hello_proved(const rks_hello *hello, const uint8_t proof[RKS_PROOF_SIZE])
{
    uint8_t expected[RKS_PROOF_SIZE];
    hash_for(hello, hello->connected ? PROOF_ACCEPTED : PROOF_CONNECTED, expected);
    bool equal = hello->heard && rks_proof_equal(expected, proof);
    rks_wipe(expected, sizeof(expected));
    return equal;
}
