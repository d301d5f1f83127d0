/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_digest.h: the digest of a unit: of keys, lengths and contents, in row order (FORMAT.md). A
 * writer computes it while it writes; a check computes it of samples that are not written, to
 * compare them with a unit that is there. */
#ifndef RKS_SHARD_UNIT_DIGEST_H
#define RKS_SHARD_UNIT_DIGEST_H

#include "shard/shard_writer.h"

enum { RKS_DIGEST_TUPLE = 24, RKS_DIGEST_TUPLES = 128 };

typedef struct rks_unit_digest {
    rks_digester *digester;
    uint8_t tuples[RKS_DIGEST_TUPLE * RKS_DIGEST_TUPLES]; /* not in the digester yet */
    size_t tuple_count;
} rks_unit_digest;

rks_status rks_unit_digest_begin(rks_unit_digest *digest, rks_error *err);
void rks_unit_digest_add(rks_unit_digest *digest, uint64_t payload_hash, uint64_t key_hash,
                         uint32_t length, uint32_t size);
rks_digest rks_unit_digest_end(rks_unit_digest *digest);
void rks_unit_digest_free(rks_unit_digest *digest);

typedef struct rks_unit_check rks_unit_check;

/* `key_name`: what derived keys start with; NULL: keys are given. Both are borrowed. */
rks_status rks_unit_check_create(const rks_schema *schema, const char *key_name,
                                 uint64_t max_sample, rks_unit_check **check, rks_error *err);
/* Takes a sample as rks_unit_writer_add does; `key` is not used if keys are derived. */
rks_status rks_unit_check_add(rks_unit_check *check, const rks_value *values, const void *key,
                              size_t key_size, uint32_t length, uint32_t source_row,
                              rks_error *err);
/* Returns true if the samples are those of the unit. */
bool rks_unit_check_is(rks_unit_check *check, const rks_unit_summary *unit);
void rks_unit_check_free(rks_unit_check *check); /* NULL is accepted */

#endif
