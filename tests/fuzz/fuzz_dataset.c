/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_dataset.c: any text as dataset.json. */
#include "fuzz.h"

#include "shard/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t whole = 0;
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
