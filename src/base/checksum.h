/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum.h: XXH3, the only checksum of the formats and the wire. It finds accidents;
 * it is no defence against somebody who means harm. */
#ifndef RKS_BASE_CHECKSUM_H
#define RKS_BASE_CHECKSUM_H

#include "rankstore/base.h"

enum { RKS_DIGEST_SIZE = 16, RKS_DIGEST_TEXT = 33 };

/* 128 bits as two little-endian halves: bytes 0..7 low, 8..15 high. */
typedef struct rks_digest {
    uint64_t low;
    uint64_t high;
} rks_digest;

uint64_t rks_checksum64(const void *bytes, size_t size);
rks_digest rks_checksum128(const void *bytes, size_t size);

/* A digest over pieces. reset before the first update. */
typedef struct rks_digester rks_digester;
rks_digester *rks_digester_create(rks_error *err); /* ready for the first update */
void rks_digester_reset(rks_digester *digester);
void rks_digester_update(rks_digester *digester, const void *bytes, size_t size);
rks_digest rks_digester_result(const rks_digester *digester);
void rks_digester_free(rks_digester *digester); /* NULL is accepted */

/* Order-independent folding: addition modulo 2^128 (not exclusive-or, which loses pairs). */
rks_digest rks_digest_add(rks_digest a, rks_digest b);
bool rks_digest_equal(rks_digest a, rks_digest b);
/* 32 hexadecimal digits, high half first. */
void rks_digest_format(rks_digest digest, char text[RKS_DIGEST_TEXT]);
bool rks_digest_parse(const char *text, rks_digest *digest); /* exactly 32 lower-case digits */

/* "0.8.1": xxHash's version; valid until the thread asks again. */
const char *rks_checksum_version(void);

#endif
