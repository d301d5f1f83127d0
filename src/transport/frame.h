/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h: the wire format of frames and of the handshake. Little-endian.
 *
 * A stream is a sequence of frames: a header, then `size` bytes of body.
 *
 *   offset  size  field
 *        0     8  body size
 *        8     8  id: a request's, repeated in its reply or error; the number of a note or an ack;
 *                 else 0
 *       16     2  type (enum rks_frame_type)
 *       18     2  service of a request or note; else 0
 *       20     4  check: low half of the sum of XXH3-64 of the 20 bytes before it and, unless
 *                 the frame is a reply or empty, XXH3-64 of the body
 *
 *   type     body
 *   hello    below; the first frame in each direction
 *   proof    32 bytes; the second
 *   ping     none; answered by pong
 *   pong     none
 *   request  what the service defines
 *   reply    what the service defines; the service checks it
 *   error    rks_error as in memory, 512 bytes; id 0 means the connection
 *   note     what the service defines. Notes of one rank to another are numbered from 1, over all
 *            their connections
 *   ack      none; the sender has taken the peer's notes up to this number
 *   resume   u64 a number that the process has drawn, u64 the peer's last note that it has taken;
 *            the first frame after the proofs, in each direction
 *   bye      none; the sender closes in order and sends nothing after it
 *   keep     none; the sender will ping this connection, and wants a report when it ends
 *
 * The body of a hello has 64 bytes in all versions of the protocol:
 *
 *        0     8  magic "RKSWIRE" and NUL
 *        8     4  protocol version
 *       12     4  feature bits
 *       16     4  rank of the sender
 *       20     4  rank that it wants to reach, or rank of the peer that it answers
 *       24    32  nonce, fresh for each connection
 *       56     8  tag: shows that the sender knows the key of the two ranks
 *
 * The side that connected sends the first hello and the first proof. A proof is the keyed BLAKE2b,
 * by the key of the two ranks, of the values that both sides must agree on. A tag is the first 8
 * bytes of such a hash:
 *
 *        0     8  magic
 *        8     4  purpose: 1 proof of the side that connected, 2 of the side that accepted;
 *                 3 and 4 the tags of their hellos; 5 and 6 the keys of the records that each
 *                 sends after the proofs, if a side asks for records by its feature bits
 *       12     4  protocol version
 *       16     4  feature bits of the side that connected
 *       20     4  feature bits of the side that accepted
 *       24     4  rank of the side that connected
 *       28     4  rank of the side that accepted
 *       32    16  session
 *       48    32  nonce of the side that connected
 *       80    32  nonce of the side that accepted
 *      112    20  listening address of the side that connected: u8 kind, u8 0, u16 port, 16
 *                 bytes IP
 *      132    20  listening address of the side that accepted
 *
 * For the first tag, feature bits and nonce of the side that accepted are zero. Each side takes its
 * own address from its socket and the other's from the bootstrap. So it refuses a relay between
 * them, which has an address of its own.
 */
#ifndef RKS_TRANSPORT_FRAME_H
#define RKS_TRANSPORT_FRAME_H

#include "base/secret.h"

enum {
    RKS_FRAME_HEADER = 24,
    RKS_HELLO_BODY = 64,
    RKS_RESUME_BODY = 16,
    RKS_PROTOCOL = 5,
    RKS_FEATURE_AUTHENTICATE = 1, /* the sender wants authenticated records after the proofs:
                                   * record_layer.c */
    RKS_FEATURE_ENCRYPT = 2,      /* and wants them encrypted */
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
    RKS_FRAME_ACK = 11,
    RKS_FRAME_RESUME = 12,
};

typedef struct rks_frame_header {
    uint64_t size;
    uint64_t id;
    uint16_t type;
    uint16_t service;
    uint32_t check;
} rks_frame_header;

/* Encodes a header and its check. `body` may be NULL if the type is reply or the size is 0. */
void rks_frame_encode(const rks_frame_header *header, const void *body,
                      uint8_t bytes[RKS_FRAME_HEADER]);
/* Decodes a header and checks all that does not need the body: the type, the size that the type
 * requires, max_frame, and the check if it does not cover a body. Returns RKS_ERR_PEER if one of
 * them is wrong. */
rks_status rks_frame_decode(const uint8_t bytes[RKS_FRAME_HEADER], uint64_t max_frame,
                            rks_frame_header *header, rks_error *err);
/* Returns true if the check of a frame fits its body. */
bool rks_frame_body_good(const uint8_t bytes[RKS_FRAME_HEADER], const void *body, size_t size);

/* ---- handshake: bytes only, no sockets ---------------------------------------------------- */

/* One side of one connection. The caller sets the fields up to `connected`, and those from `key` to
 * `peer_place`. The side that accepts learns `peer_rank` from the hello, and sets `key` and
 * `peer_place` then. */
typedef struct rks_hello {
    const uint8_t *session; /* 16 bytes; outlives the handshake */
    uint32_t ranks;         /* number of ranks of the job */
    uint32_t own_rank;
    uint32_t peer_rank;
    uint32_t own_features;
    bool connected; /* this side connected */
    bool heard;     /* rks_hello_receive has accepted the peer's hello */
    uint32_t peer_features;
    uint8_t key[RKS_SECRET_SIZE]; /* of the two ranks */
    uint8_t own_place[RKS_PLACE_SIZE];
    uint8_t peer_place[RKS_PLACE_SIZE];
    uint8_t own_nonce[RKS_NONCE_SIZE];
    uint8_t peer_nonce[RKS_NONCE_SIZE];
    uint8_t peer_tag[RKS_TAG_SIZE];
} rks_hello;

/* Draws the nonce, and clears what the peer's hello will set. */
rks_status rks_hello_start(rks_hello *hello, rks_error *err);
/* Encodes this side's hello. */
void rks_hello_encode(const rks_hello *hello, uint8_t body[RKS_HELLO_BODY]);
/* Reads the peer's hello. Returns RKS_ERR_UNSUPPORTED for another protocol version, and
 * RKS_ERR_PEER for any other fault. After RKS_ERR_UNSUPPORTED the caller may still encode an
 * answer, so that the peer can name both versions. */
rks_status rks_hello_receive(rks_hello *hello, const uint8_t body[RKS_HELLO_BODY], rks_error *err);
/* Returns true if the tag in the peer's hello is right; call it after rks_hello_receive. A recorded
 * hello can be replayed. So the tag only rejects strangers who know nothing; only a proof opens a
 * connection. */
bool rks_hello_trusted(const rks_hello *hello);
/* Computes this side's proof; call it after rks_hello_receive. */
void rks_hello_prove(const rks_hello *hello, uint8_t proof[RKS_PROOF_SIZE]);
/* Computes the keys of the records that this side sends and receives; call it after the proofs. */
void rks_hello_frame_keys(const rks_hello *hello, uint8_t out[RKS_KEY_SIZE],
                          uint8_t in[RKS_KEY_SIZE]);
/* Returns true if the peer's proof is right. */
bool rks_hello_proved(const rks_hello *hello, const uint8_t proof[RKS_PROOF_SIZE]);

#endif
