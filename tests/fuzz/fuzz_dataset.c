/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_dataset.c: any text as dataset.json, and joined with another one of its kind; any bytes as
 * the list of excluded samples. */
#include "fuzz.h"

#include "base/bytes.h"

#include "dataset/dataset.h"

/* `other` becomes one whose shards are not those of `dataset`, and nothing is excluded in either.
 */
static void fuzz_join(rks_dataset *dataset, rks_dataset *other)
{
    rks_dataset *joined = NULL, *again = NULL;
    rks_dataset *const both[] = {dataset, other};
    rks_error err;
    char *text = NULL;
    size_t size = 0;
    for (size_t i = 0; i < 2; i++) {
        both[i]->count = rks_dataset_stored(both[i]);
        both[i]->excluded = (rks_excluded){0};
    }
    for (size_t i = 0; i < other->shard_count; i++) {
        other->shards[i].id.high ^= UINT64_C(1) << 63;
        other->shards[i].name[0] = other->shards[i].name[0] == 'z' ? 'y' : 'z';
    }
    rks_status status = rks_dataset_join(dataset, other, &joined, &err);
    if (status == RKS_OK && rks_dataset_encode(joined, &text, &size, &err) == RKS_OK) {
        FUZZ_CHECK(joined->count == 2 * dataset->count);
        FUZZ_CHECK(rks_dataset_decode(text, size, "joined", &again, &err) == RKS_OK);
        FUZZ_CHECK(rks_digest_equal(again->id, joined->id));
        for (size_t i = 0; i < again->unit_count; i++)
            FUZZ_CHECK(again->units[i].summary.unit >=
                       again->shards[again->units[i].shard].first_unit);
    }
    rks_free(text);
    rks_dataset_free(joined);
    rks_dataset_free(again);
}

static void fuzz_excluded(const uint8_t *data, size_t size)
{
    rks_error err;
    rks_buffer bytes = {0};
    rks_excluded excluded = {.run_count = size < 16 ? 1 : (size - 16) / 8,
                             .digest = rks_checksum128(data, size)};
    for (uint64_t i = 0; size >= 16 && i < excluded.run_count; i++)
        excluded.samples += rks_load_u32(data + 16 + 8 * i + 4);
    if (rks_excluded_decode(&excluded, data, size, UINT32_MAX, "fuzz", &err) == RKS_OK) {
        FUZZ_CHECK(rks_excluded_encode(&excluded, &bytes, &err) == RKS_OK);
        FUZZ_CHECK(bytes.size == size && memcmp(bytes.data, data, size) == 0);
    }
    rks_buffer_free(&bytes);
    rks_free(excluded.runs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t whole = 0;
    fuzz_excluded(data, size);
    char *text = fuzz_with_digest(data, size, &whole);
    rks_dataset *dataset = NULL;
    rks_error err;
    if (rks_dataset_decode(text, whole, "fuzz", &dataset, &err) == RKS_OK) {
        char *again = NULL;
        size_t again_size = 0;
        rks_dataset *second = NULL;
        for (size_t i = 0; i < dataset->unit_count; i++)
            FUZZ_CHECK(dataset->units[i].shard < dataset->shard_count);
        for (size_t i = 0; i < dataset->shard_count; i++)
            FUZZ_CHECK(strchr(dataset->shards[i].name, '/') == NULL);
        FUZZ_CHECK(rks_dataset_encode(dataset, &again, &again_size, &err) == RKS_OK);
        FUZZ_CHECK(rks_dataset_decode(again, again_size, "again", &second, &err) == RKS_OK);
        FUZZ_CHECK(rks_digest_equal(second->id, dataset->id));
        fuzz_join(dataset, second);
        rks_dataset_free(second);
        rks_free(again);
    } else {
        FUZZ_CHECK(dataset == NULL && err.text[0] != '\0');
    }
    rks_dataset_free(dataset);
    free(text);
    FUZZ_CHECK(rks_memory_in_use() == 0);
    return 0;
}
