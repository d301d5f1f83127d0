/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.h: XXH3, the only checksum of the formats and the wire. It detects accidents. It does
 * not protect against an attacker. */
#ifndef RKS_BASE_CHECKSUM_H
#define RKS_BASE_CHECKSUM_H

#include "rankstore/base.h"

enum { RKS_DIGEST_SIZE = 16, RKS_DIGEST_TEXT = 33 };

/* 128 bits as two little-endian halves: bytes 0..7 low, 8..15 high. */
typedef struct rks_digest {
    uint64_t low;
    uint64_t high;
} rks_digest;

/* Hash `size` bytes at once. `bytes` may be NULL if size is 0. */
uint64_t rks_checksum64(const void *bytes, size_t size);
rks_digest rks_checksum128(const void *bytes, size_t size);

/* Computes a digest over several pieces. Reset it to use it again. */
typedef struct rks_digester rks_digester;
rks_digester *rks_digester_create(rks_error *err); /* ready for the first update */
void rks_digester_reset(rks_digester *digester);
void rks_digester_update(rks_digester *digester, const void *bytes, size_t size);
rks_digest rks_digester_result(const rks_digester *digester);
void rks_digester_free(rks_digester *digester); /* NULL is accepted */

/* Adds modulo 2^128, so that the order of the digests does not matter. (Exclusive-or would lose
 * equal pairs.) */
rks_digest rks_digest_add(rks_digest a, rks_digest b);
bool rks_digest_equal(rks_digest a, rks_digest b);
/* Prints 32 hexadecimal digits, high half first. */
void rks_digest_format(rks_digest digest, char text[RKS_DIGEST_TEXT]);
bool rks_digest_parse(const char *text, rks_digest *digest); /* exactly 32 lower-case digits */

/* Hashes of the same library that other programs write (named_hash.h). */
typedef enum rks_xxhash_kind { RKS_XXH3_64, RKS_XXH3_128, RKS_XXH64, RKS_XXH32 } rks_xxhash_kind;
typedef struct rks_xxhash rks_xxhash;
rks_xxhash *rks_xxhash_create(rks_xxhash_kind kind, rks_error *err);
void rks_xxhash_update(rks_xxhash *hash, const void *bytes, size_t size);
/* Prints lower-case digits, the highest first. */
void rks_xxhash_result(const rks_xxhash *hash, char text[RKS_DIGEST_TEXT]);
void rks_xxhash_free(rks_xxhash *hash); /* NULL is accepted */

/* Returns xxHash's version, such as "0.8.1"; valid until this thread calls it again. */
const char *rks_checksum_version(void);

#endif
