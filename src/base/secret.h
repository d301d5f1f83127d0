/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.h: random bytes, keyed hashes, key agreement, encryption and comparison in constant time;
 * base64. Only secret.c includes sodium.h. */
#ifndef RKS_BASE_SECRET_H
#define RKS_BASE_SECRET_H

#include <sys/uio.h>

#include "base/buffer.h"

enum { RKS_SECRET_SIZE = 32, RKS_NONCE_SIZE = 32, RKS_PROOF_SIZE = 32, RKS_KEY_SIZE = 32 };

/* Fills `bytes` with random bytes from the system. */
rks_status rks_random(void *bytes, size_t size, rks_error *err);
/* Computes the keyed BLAKE2b hash of `bytes`. */
void rks_keyed_hash(const uint8_t secret[RKS_SECRET_SIZE], const void *bytes, size_t size,
                    uint8_t proof[RKS_PROOF_SIZE]);
/* Draws an X25519 private key and computes its public key. */
rks_status rks_key_pair(uint8_t private_key[RKS_KEY_SIZE], uint8_t public_key[RKS_KEY_SIZE],
                        rks_error *err);
/* Computes the X25519 shared key, which is equal on both sides and which only the owners of the two
 * private keys can compute. RKS_ERR_PEER if the public key is not valid. */
rks_status rks_key_agree(const uint8_t private_key[RKS_KEY_SIZE],
                         const uint8_t public_key[RKS_KEY_SIZE], uint8_t shared[RKS_KEY_SIZE],
                         rks_error *err);
/* Computes a record's tag from a key and the record's number. Never use a number twice with one
 * key. */
enum { RKS_TAG_BYTES = 16 };
void rks_authenticate(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const struct iovec *parts,
                      size_t count, uint8_t tag[RKS_TAG_BYTES]);
bool rks_tag_equal(const uint8_t a[RKS_TAG_BYTES], const uint8_t b[RKS_TAG_BYTES]);
/* Encrypts `bytes` in place (ChaCha20-Poly1305) and computes the tag. `head` is authenticated but
 * not encrypted. */
void rks_encrypt(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const void *head,
                 size_t head_size, uint8_t *bytes, size_t size, uint8_t tag[RKS_TAG_BYTES]);
/* Decrypts `bytes` in place. Returns false if the tag is wrong; do not use the bytes then. */
bool rks_decrypt(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const void *head,
                 size_t head_size, uint8_t *bytes, size_t size, const uint8_t tag[RKS_TAG_BYTES]);
/* Compares in constant time. */
bool rks_proof_equal(const uint8_t a[RKS_PROOF_SIZE], const uint8_t b[RKS_PROOF_SIZE]);
/* Zeroes secrets; the compiler cannot remove this call. */
void rks_wipe(void *bytes, size_t size);
/* Reads the first 32 bytes of a regular file that this user owns and nobody else may access (mode
 * 0600 or less). */
rks_status rks_secret_read(const char *path, uint8_t secret[RKS_SECRET_SIZE], rks_error *err);

/* Appends base64 text (RFC 4648, section 4, with padding), without a NUL. */
rks_status rks_base64_encode(const void *bytes, size_t size, rks_buffer *text, rks_error *err);
/* Decodes `text` and appends the bytes. If it is not base64, sets *good to false and appends
 * nothing. Fails only if memory is short. */
rks_status rks_base64_decode(const char *text, size_t size, rks_buffer *bytes, bool *good,
                             rks_error *err);

/* Returns libsodium's version, a static string. */
const char *rks_secret_library(void);

#endif
