/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h: the wire form of frames and of the handshake. Little-endian.
 *
 * A stream is a row of frames: a header, then `size` bytes of body.
 *
 *   offset  size  field
 *        0     8  body size
 *        8     8  id: a request's, repeated in its reply or error; else 0
 *       16     2  type (enum rks_frame_type)
 *       18     2  service of a request or note; else 0
 *       20     4  check: low half of XXH3-64 of the 20 bytes before it, plus, where the
 *                 body is not a reply's, XXH3-64 of the body
 *
 *   type     body
 *   hello    below; the first frame in each direction
 *   proof    32 bytes; the second
 *   ping     none; answered by pong
 *   pong     none
 *   request  what the service defines
 *   reply    what the service defines; its own layer checks it
 *   error    rks_error as it lies in memory, 256 bytes; id 0 speaks of the connection
 *   note     what the service defines
 *   bye      none; the sender closes in order and sends nothing after it
 *   keep     none; the sender will beat on this connection, and wants to hear of its end
 *
 * The body of a hello has 64 bytes, in all versions of the protocol:
 *
 *        0     8  magic "RKSWIRE" and NUL
 *        8     4  protocol version
 *       12     4  feature bits
 *       16     4  rank of the sender
 *       20     4  rank that it wants to reach, or answers as
 *       24    32  nonce, fresh for each connection
 *       56     8  tag: the sender knows the key of the two ranks
 *
 * The side that connected says hello first and proves first. Tags and proofs are the keyed BLAKE2b,
 * by the key of the two ranks, of what both sides must agree on; of a tag, the first 8 bytes:
 *
 *        0     8  magic
 *        8     4  what for: 1 proof of the side that connected, 2 of the side that accepted;
 *                 3 and 4 the tags of their hellos; 5 and 6 the keys of what they send
 *                 behind the proofs, if either wants that by its feature bits
 *       12     4  protocol version
 *       16     4  feature bits of the side that connected
 *       20     4  feature bits of the side that accepted
 *       24     4  rank of the side that connected
 *       28     4  rank of the side that accepted
 *       32    16  session
 *       48    32  nonce of the side that connected
 *       80    32  nonce of the side that accepted
 *      112    20  where the side that connected listens: u8 kind, u8 0, u16 port, 16 bytes IP
 *      132    20  where the side that accepted listens
 *
 * In what the first tag covers, feature bits and nonce of the side that accepted are zero. Each
 * side takes its own address from its socket and the other's from the bootstrap: one that stands
 * between them at an address of its own is refused.
 */
#ifndef RKS_TRANSPORT_FRAME_H
#define RKS_TRANSPORT_FRAME_H

#include "base/secret.h"

enum {
    RKS_FRAME_HEADER = 24,
    RKS_HELLO_BODY = 64,
    RKS_PROTOCOL = 3,
    RKS_FEATURE_AUTHENTICATE = 1, /* the sender wants records with tags behind the proofs: seal.c */
    RKS_FEATURE_ENCRYPT = 2,      /* and encrypted ones */
    RKS_PLACE_SIZE = 20,
    RKS_TAG_SIZE = 8,
};

enum rks_frame_type {
    RKS_FRAME_HELLO = 1,
    RKS_FRAME_PROOF = 2,
    RKS_FRAME_PING = 3,
    RKS_FRAME_PONG = 4,
    RKS_FRAME_REQUEST = 5,
    RKS_FRAME_REPLY = 6,
    RKS_FRAME_ERROR = 7,
    RKS_FRAME_NOTE = 8,
    RKS_FRAME_BYE = 9,
    RKS_FRAME_KEEP = 10,
};

typedef struct rks_frame_header {
    uint64_t size;
    uint64_t id;
    uint16_t type;
    uint16_t service;
    uint32_t check;
} rks_frame_header;

/* `body` may be NULL where the type is reply or the size 0. */
void rks_frame_encode(const rks_frame_header *header, const void *body,
                      uint8_t bytes[RKS_FRAME_HEADER]);
/* Everything that can be said of a header without its body: type, its size rules, max_frame; and
 * the check where it doesn't cover a body. */
rks_status rks_frame_decode(const uint8_t bytes[RKS_FRAME_HEADER], uint64_t max_frame,
                            rks_frame_header *header, rks_error *err);
/* The check of a frame whose body has come. */
bool rks_frame_body_good(const uint8_t bytes[RKS_FRAME_HEADER], const void *body, size_t size);

/* ---- handshake: bytes only, no sockets ---------------------------------------------------- */

/* One side of one connection. Up to `connected`, and from `key` to `peer_place`, the fields are the
 * caller's. The side that accepts learns `peer_rank` from the hello, and sets `key` and
 * `peer_place` then. */
typedef struct rks_hello {
    const uint8_t *session; /* 16 bytes; outlives the handshake */
    uint32_t ranks;         /* how many ranks the job has */
    uint32_t own_rank;
    uint32_t peer_rank;
    uint32_t own_features;
    bool connected; /* this side connected */
    bool heard;     /* the peer's hello was taken */
    uint32_t peer_features;
    uint8_t key[RKS_SECRET_SIZE]; /* of the two ranks */
    uint8_t own_place[RKS_PLACE_SIZE];
    uint8_t peer_place[RKS_PLACE_SIZE];
    uint8_t own_nonce[RKS_NONCE_SIZE];
    uint8_t peer_nonce[RKS_NONCE_SIZE];
    uint8_t peer_tag[RKS_TAG_SIZE];
} rks_hello;

/* Draws the nonce. */
rks_status rks_hello_start(rks_hello *hello, rks_error *err);
void rks_hello_encode(const rks_hello *hello, uint8_t body[RKS_HELLO_BODY]);
/* RKS_ERR_UNSUPPORTED for another version, RKS_ERR_PEER for anything else that is wrong. After
 * RKS_ERR_UNSUPPORTED an answer may still be encoded, so that the peer can name both versions. */
rks_status rks_hello_take(rks_hello *hello, const uint8_t body[RKS_HELLO_BODY], rks_error *err);
/* After rks_hello_take: the tag is right. One that was recorded may be repeated: it tells strangers
 * who know nothing, and only a proof opens a connection. */
bool rks_hello_trusted(const rks_hello *hello);
/* After rks_hello_take. */
void rks_hello_prove(const rks_hello *hello, uint8_t proof[RKS_PROOF_SIZE]);
/* After the proofs: of what this side sends, and of what it receives. */
void rks_hello_frame_keys(const rks_hello *hello, uint8_t out[RKS_KEY_SIZE],
                          uint8_t in[RKS_KEY_SIZE]);
bool rks_hello_proved(const rks_hello *hello, const uint8_t proof[RKS_PROOF_SIZE]);

#endif
