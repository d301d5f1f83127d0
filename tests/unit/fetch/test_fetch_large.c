/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fetch_large.c: arrays of samples above 64 KiB, which are converted in the map. */
#include <fcntl.h>
#include <unistd.h>

#include "fetch/fetcher.h"
#include "world.h"

enum { BIG_ROWS = 3, BIG = 300000 };

static rks_shard *open_big(const rks_schema *schema, const uint8_t *bytes)
{
    char path[128], key[16];
    rks_shard_writer *writer = NULL;
    rks_shard *shard = NULL;
    rks_shard_options options = {.schema = schema};
    assert_ok(rks_shard_writer_open(w.directory, "big", &options, &writer, &err), &err);
    assert_ok(rks_shard_writer_begin(writer, 0, NULL, 0, &err), &err);
    for (uint32_t row = 0; row < BIG_ROWS; row++) {
        rks_value value = {.data = bytes + row, .size = BIG - row};
        snprintf(key, sizeof(key), "big%u", row);
        assert_ok(rks_shard_writer_add(writer, &value, key, 4, row, row, &err), &err);
    }
    assert_ok(rks_shard_writer_end(writer, BIG_ROWS, 0, 0, &err), &err);
    assert_ok(rks_shard_writer_seal(writer, &err), &err);
    rks_shard_writer_close(writer);
    snprintf(path, sizeof(path), "%s/big.json", w.directory);
    assert_ok(rks_shard_open(path, &shard, &err), &err);
    return shard;
}

static void spoil_byte(const rks_shard *shard, const uint8_t *bytes, uint8_t change)
{
    uint8_t found[32], byte;
    int fd = open(rks_shard_path(shard), O_RDWR);
    off_t at = 0;
    assert_true(fd >= 0);
    while (pread(fd, found, 32, at) == 32 && memcmp(found, bytes, 32) != 0)
        at += 8;
    at += 200000;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= change;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void large_samples_are_checked_where_they_lie(void **state)
{
    (void)state;
    rks_schema *schema = NULL;
    rks_collate *big = NULL;
    rks_collate_options options;
    rks_fetcher *fetcher = NULL;
    rks_arrays *arrays = NULL;
    static uint8_t bytes[BIG];
    for (size_t i = 0; i < BIG; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    rks_collate_options_default(&options);
    options.layout = "pack";
    assert_ok(rks_schema_parse("data:bytes", &schema, &err), &err);
    assert_ok(rks_collate_create(schema, &options, &big, &err), &err);
    rks_shard *shard = open_big(schema, bytes);
    rks_digest id = rks_shard_id(shard);
    uint64_t largest = rks_shard_largest(shard);
    rks_fetcher_options fetching = {.shards = &shard,
                                    .shard_ids = &id,
                                    .largest = &largest,
                                    .shard_count = 1,
                                    .schema = schema,
                                    .check = true};
    assert_ok(rks_fetcher_open(&fetching, &fetcher, &err), &err);
    rks_wanted wanted[BIG_ROWS];
    for (uint32_t i = 0; i < BIG_ROWS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "big%u", i);
        wanted[i] = (rks_wanted){.id = i, .row = i, .key_hash = rks_key_hash(key, 4), .length = i};
    }
    for (int flipped = 0; flipped < 2; flipped++) {
        assert_ok(world_collate(fetcher, wanted, BIG_ROWS, big, &arrays, &err), &err);
        const rks_array *data = rks_arrays_get(arrays, 0);
        for (uint32_t i = 0; i < BIG_ROWS; i++) {
            assert_int_equal(data->offsets[i + 1] - data->offsets[i], BIG - i);
            assert_memory_equal((const uint8_t *)data->data + data->offsets[i], bytes + i, BIG - i);
        }
        rks_arrays_free(arrays);
        spoil_byte(shard, bytes, 1);
        assert_fails(RKS_ERR_CORRUPT, world_collate(fetcher, wanted, BIG_ROWS, big, &arrays, &err));
        assert_contains(err.text, "sample 0");
        spoil_byte(shard, bytes, 1);
    }
    world_lose_page(shard, 1, 200000);
    assert_fails(RKS_ERR_IO, world_collate(fetcher, wanted, BIG_ROWS, big, &arrays, &err));
    assert_contains(err.text, "sample 1");
    assert_ok(world_collate(fetcher, wanted, 1, big, &arrays, &err), &err);
    rks_arrays_free(arrays);
    rks_fetcher_close(fetcher);
    rks_collate_release(big);
    rks_shard_close(shard);
    rks_schema_free(schema);
    static const char *const kinds[] = {"rks", "sums", "json", "lock"};
    for (size_t i = 0; i < 4; i++) {
        char path[128];
        snprintf(path, sizeof(path), "%s/big.%s", w.directory, kinds[i]);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_samples_are_checked_where_they_lie),
    };
    alarm(600); /* a wait that never ends is a failure, not a stuck job */
    return cmocka_run_group_tests_name("fetch_large", tests, world_begin, world_end);
}
