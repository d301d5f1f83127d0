/* SPDX-License-Identifier: Apache-2.0
 *
 * secret.h: random bytes, keyed hashes and comparison in constant time. The only file that
 * includes sodium.h is secret.c. */
#ifndef RKS_BASE_SECRET_H
#define RKS_BASE_SECRET_H

#include <sys/uio.h>

#include "rankstore/base.h"

enum { RKS_SECRET_SIZE = 32, RKS_NONCE_SIZE = 32, RKS_PROOF_SIZE = 32, RKS_KEY_SIZE = 32 };

rks_status rks_random(void *bytes, size_t size, rks_error *err);
/* Keyed BLAKE2b of `bytes`. */
void rks_keyed_hash(const uint8_t secret[RKS_SECRET_SIZE], const void *bytes, size_t size,
                    uint8_t proof[RKS_PROOF_SIZE]);
/* An X25519 key and its public half. */
rks_status rks_key_pair(uint8_t private_key[RKS_KEY_SIZE], uint8_t public_key[RKS_KEY_SIZE],
                        rks_error *err);
/* What the owners of two keys can compute, and nobody else; equal on both sides. RKS_ERR_PEER for a
 * public key that is none. */
rks_status rks_key_agree(const uint8_t private_key[RKS_KEY_SIZE],
                         const uint8_t public_key[RKS_KEY_SIZE], uint8_t shared[RKS_KEY_SIZE],
                         rks_error *err);
/* Tags of records, by a key and the record's number, which must not be used twice. */
enum { RKS_TAG_BYTES = 16 };
void rks_authenticate(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const struct iovec *parts,
                      size_t count, uint8_t tag[RKS_TAG_BYTES]);
bool rks_tag_equal(const uint8_t a[RKS_TAG_BYTES], const uint8_t b[RKS_TAG_BYTES]);
/* The same, and `bytes` encrypted in place; `head` is authenticated only. */
void rks_encrypt(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const void *head,
                 size_t head_size, uint8_t *bytes, size_t size, uint8_t tag[RKS_TAG_BYTES]);
/* False: the tag is wrong, and the bytes are worth nothing. */
bool rks_decrypt(const uint8_t key[RKS_KEY_SIZE], uint64_t number, const void *head,
                 size_t head_size, uint8_t *bytes, size_t size, const uint8_t tag[RKS_TAG_BYTES]);
bool rks_proof_equal(const uint8_t a[RKS_PROOF_SIZE], const uint8_t b[RKS_PROOF_SIZE]);
void rks_wipe(void *bytes, size_t size);
/* The first 32 bytes of a regular file of this user that nobody else may read (mode 0600 or less).
 */
rks_status rks_secret_read(const char *path, uint8_t secret[RKS_SECRET_SIZE], rks_error *err);

/* libsodium's version. Static. */
const char *rks_secret_library(void);

#endif
