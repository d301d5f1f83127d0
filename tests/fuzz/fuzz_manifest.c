/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_manifest.c: any text as NAME.json. What is taken can be written again, and stays the same.
 */
#include "fuzz.h"

#include "shard/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t whole = 0;
    char *text = fuzz_with_digest(data, size, &whole);
    rks_manifest *manifest = NULL;
    rks_error err;
    if (rks_manifest_decode(text, whole, "fuzz", &manifest, &err) == RKS_OK) {
        char *again = NULL;
        size_t again_size = 0;
        rks_manifest *second = NULL;
        if (rks_manifest_encode(manifest, &again, &again_size, NULL, &err) == RKS_OK) {
            FUZZ_CHECK(rks_manifest_decode(again, again_size, "again", &second, &err) == RKS_OK);
            FUZZ_CHECK(second->samples == manifest->samples);
            FUZZ_CHECK(second->segment_count == manifest->segment_count);
        }
        rks_manifest_free(second);
        rks_free(again);
    } else {
        FUZZ_CHECK(manifest == NULL && err.text[0] != '\0');
    }
    rks_manifest_free(manifest);
    free(text);
    FUZZ_CHECK(rks_memory_in_use() == 0);
    return 0;
}
