/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_digest.c: digests tuples of hashes; a check makes the tuples as unit_writer.c does. */
#include "shard/unit_digest.h"

#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "shard/block.h"
#include "shard/record.h"
#include "shard/shard.h"

rks_status rks_unit_digest_begin(rks_unit_digest *digest, rks_error *err)
{
    digest->tuple_count = 0;
    digest->digester = rks_digester_create(err);
    return digest->digester == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

void rks_unit_digest_add(rks_unit_digest *digest, uint64_t payload_hash, uint64_t key_hash,
                         uint32_t length, uint32_t size)
{
    uint8_t *tuple = digest->tuples + RKS_DIGEST_TUPLE * digest->tuple_count++;
    rks_store_u64(tuple, payload_hash);
    rks_store_u64(tuple + 8, key_hash);
    rks_store_u32(tuple + 16, length);
    rks_store_u32(tuple + 20, size);
    if (digest->tuple_count == RKS_DIGEST_TUPLES) {
        rks_digester_update(digest->digester, digest->tuples, sizeof(digest->tuples));
        digest->tuple_count = 0;
    }
}

rks_digest rks_unit_digest_end(rks_unit_digest *digest)
{
    rks_digester_update(digest->digester, digest->tuples, RKS_DIGEST_TUPLE * digest->tuple_count);
    digest->tuple_count = 0;
    return rks_digester_result(digest->digester);
}

void rks_unit_digest_free(rks_unit_digest *digest)
{
    rks_digester_free(digest->digester);
    digest->digester = NULL;
}

/* ---- checks ---------------------------------------------------------------------------------- */

struct rks_unit_check {
    const rks_schema *schema;
    const char *key_name;
    uint64_t max_sample;
    uint64_t samples;
    rks_unit_digest digest;
    rks_buffer payload;
};

rks_status rks_unit_check_create(const rks_schema *schema, const char *key_name,
                                 uint64_t max_sample, rks_unit_check **check, rks_error *err)
{
    rks_unit_check *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->schema = schema;
    made->key_name = key_name;
    made->max_sample = max_sample;
    rks_status status = rks_unit_digest_begin(&made->digest, err);
    if (status != RKS_OK) {
        rks_free(made);
        return status;
    }
    *check = made;
    return RKS_OK;
}

static uint64_t key_hash_of(const rks_unit_check *check, const void *key, size_t key_size,
                            uint32_t source_row)
{
    char derived[RKS_KEY_MAX + 1];
    if (check->key_name == NULL)
        return rks_key_hash(key, key_size);
    return rks_key_hash(
        derived, rks_key_derive(check->key_name, strlen(check->key_name), source_row, derived));
}

rks_status rks_unit_check_add(rks_unit_check *check, const rks_value *values, const void *key,
                              size_t key_size, uint32_t length, uint32_t source_row, rks_error *err)
{
    uint64_t size = 0, plain = 0;
    uint32_t align = 0;
    rks_status status = rks_record_measure(check->schema, values, &size, &align, &plain, err);
    if (status != RKS_OK)
        return status;
    if (size > check->max_sample)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "a sample of %" PRIu64 " bytes, at most %" PRIu64 " are allowed", size,
                        check->max_sample);
    check->payload.size = 0;
    status = rks_buffer_reserve(&check->payload, (size_t)size, err);
    if (status != RKS_OK)
        return status;
    rks_record_write(check->schema, values, check->payload.data);
    rks_unit_digest_add(&check->digest, rks_checksum64(check->payload.data, (size_t)size),
                        key_hash_of(check, key, key_size, source_row), length, (uint32_t)size);
    check->samples++;
    return RKS_OK;
}

bool rks_unit_check_is(rks_unit_check *check, const rks_unit_summary *unit)
{
    return check->samples == unit->samples &&
           rks_digest_equal(rks_unit_digest_end(&check->digest), unit->digest);
}

void rks_unit_check_free(rks_unit_check *check)
{
    if (check == NULL)
        return;
    rks_unit_digest_free(&check->digest);
    rks_buffer_free(&check->payload);
    rks_free(check);
}
