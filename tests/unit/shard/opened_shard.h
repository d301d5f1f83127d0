/* SPDX-License-Identifier: Apache-2.0
 *
 * opened_shard.h: a sealed shard as a reader sees it, sample by sample. */
#ifndef RKS_TESTS_OPENED_SHARD_H
#define RKS_TESTS_OPENED_SHARD_H

#include <stdlib.h>

#include "shard/shard.h"
#include "support/check.h"
#include "support/shards.h"

static rks_error err;

/* The whole way of a reader: the record into memory of its own, then all checks on the copy.
 * RKS_OK only with the right bytes in hand. */
static inline rks_status read_row(rks_shard *shard, uint64_t row, const uint64_t *hashes,
                                  const uint32_t *lengths, uint8_t **copy, rks_record_view *view)
{
    rks_status status = rks_shard_locate(shard, row, view, &err);
    if (status != RKS_OK)
        return status;
    *copy = malloc(view->record_size);
    assert_non_null(*copy);
    memcpy(*copy, view->record, view->record_size);
    if (rks_shard_faulted(shard, view->record, view->record_size))
        return rks_shard_read_failed(shard, row, view, &err);
    status = rks_record_parse(*copy, view->record_size, view, &err);
    return status != RKS_OK
               ? status
               : rks_record_check(view, rks_shard_id(shard), row, hashes[row], lengths[row], &err);
}

typedef struct open_shard {
    rks_shard *shard;
    shards_recipe recipe;
    uint64_t *hashes;
    uint32_t *lengths;
    bool index_good;
} open_shard;

static inline bool begin_reading(open_shard *reading, const char *name, const shards_recipe *recipe)
{
    *reading = (open_shard){.recipe = *recipe};
    char file[64];
    snprintf(file, sizeof(file), "%s.json", name);
    if (rks_shard_open(shards_path(file), &reading->shard, &err) != RKS_OK)
        return false;
    uint64_t count = rks_shard_count(reading->shard);
    reading->hashes = malloc(8 * count + 1);
    reading->lengths = malloc(4 * count + 1);
    reading->index_good =
        rks_shard_copy_lengths(reading->shard, 0, count, reading->lengths, &err) == RKS_OK &&
        rks_shard_copy_key_hashes(reading->shard, 0, count, reading->hashes, &err) == RKS_OK;
    return true;
}

static inline void end_reading(open_shard *reading)
{
    rks_shard_close(reading->shard);
    free(reading->hashes);
    free(reading->lengths);
}

/* Every sample is right or refused; how many are refused. */
static inline uint64_t refused_samples(const char *name, const shards_recipe *recipe)
{
    open_shard reading;
    if (!begin_reading(&reading, name, recipe))
        return UINT64_MAX;
    uint64_t refused = reading.index_good ? 0 : UINT64_MAX;
    for (uint64_t row = 0; reading.index_good && row < rks_shard_count(reading.shard); row++) {
        uint8_t *copy = NULL;
        rks_record_view view;
        if (read_row(reading.shard, row, reading.hashes, reading.lengths, &copy, &view) == RKS_OK) {
            char key[RKS_KEY_MAX + 1];
            size_t key_size = shards_key(recipe, row, key);
            assert_true(shards_payload_right(recipe, rks_shard_schema(reading.shard), row,
                                             view.payload, view.payload_size));
            assert_int_equal(view.length, shards_length(recipe->first + row));
            assert_int_equal(reading.hashes[row], rks_key_hash(key, key_size));
            if (!recipe->derived_keys)
                assert_memory_equal(view.key, key, key_size);
        } else {
            refused++;
        }
        free(copy);
    }
    end_reading(&reading);
    return refused;
}

#define SHARD_TEST(name) cmocka_unit_test_setup_teardown(name, shards_begin, shards_end)

#endif
