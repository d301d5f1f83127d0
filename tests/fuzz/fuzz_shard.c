/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_shard.c: a sealed shard with bytes changed and every digest made right again, read and
 * verified. Input: edits of 5 bytes: which part (u16: a block's header, a record, a segment of the
 * index, or all of the file), where in it (u16), the new value. */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "rankstore/verify.h"
#include "shard/shard_check.h"
#include "shard/checksum_file.h"
#include "support/shards.h"

enum { EDITS_MOST = 64, EDIT_SIZE = 5 };

static char *directory;
static uint8_t *sealed;
static size_t sealed_size;
static rks_manifest *manifest;
static char paths[3][256]; /* .json .rks .sums */
static long memory;

typedef struct part {
    size_t offset;
    size_t size;
} part;
enum { RECORDS = 100, PARTS_MOST = RECORDS + 20 };
static part parts[PARTS_MOST];
static size_t part_count;

static void clean_up(void)
{
    for (int i = 0; i < 3; i++)
        unlink(paths[i]);
    rmdir(directory);
}

static void begin(void)
{
    static const char *const endings[] = {"json", "rks", "sums"};
    shards_recipe recipe = {
        .samples = RECORDS, .units = 3, .size_most = 60, .index = true, .derived_keys = true};
    directory = shards_directory();
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/a.%s", directory, endings[i]);
    atexit(clean_up);
    shards_write(directory, "a", &recipe);
    sealed = shards_load(directory, "a.rks", &sealed_size);
    FUZZ_CHECK(rks_manifest_load(paths[0], &manifest, NULL) == RKS_OK);
    memory = rks_memory_in_use();
    parts[part_count++] = (part){0, sealed_size};
    for (size_t i = 0; i < manifest->segment_count && part_count < 20; i++)
        parts[part_count++] = (part){manifest->segments[i].offset, manifest->segments[i].size};
    rks_shard *shard = shards_open(directory, "a");
    for (uint64_t row = 0; row < RECORDS; row++) { /* with what stands before it: block headers */
        uint64_t offset = rks_shard_offset(shard, row) - RKS_BLOCK_HEADER;
        parts[part_count++] = (part){offset, RKS_BLOCK_HEADER + 100};
    }
    rks_shard_close(shard);
}

static void seal_again(uint8_t *bytes)
{
    char *text = NULL;
    size_t size = 0;
    uint8_t sums[64 * RKS_DIGEST_SIZE];
    uint64_t pieces = rks_sums_count(sealed_size);
    FUZZ_CHECK(pieces <= 64);
    for (uint64_t i = 0; i < pieces; i++) {
        size_t at = (size_t)i * RKS_SUMS_CHUNK;
        size_t left = sealed_size - at < RKS_SUMS_CHUNK ? sealed_size - at : RKS_SUMS_CHUNK;
        rks_digest sum = rks_checksum128(bytes + at, left);
        rks_store_u64(sums + i * RKS_DIGEST_SIZE, sum.low);
        rks_store_u64(sums + i * RKS_DIGEST_SIZE + 8, sum.high);
    }
    for (size_t i = 0; i < manifest->segment_count; i++)
        manifest->segments[i].check =
            rks_checksum64(bytes + manifest->segments[i].offset, manifest->segments[i].size);
    manifest->head = rks_checksum128(bytes, 2 * (size_t)manifest->page_size);
    manifest->main = rks_checksum128(bytes + manifest->main_page, manifest->page_size);
    manifest->sums = rks_checksum128(sums, pieces * RKS_DIGEST_SIZE);
    FUZZ_CHECK(rks_manifest_encode(manifest, &text, &size, NULL, NULL) == RKS_OK);
    shards_store(directory, "a.rks", bytes, sealed_size);
    shards_store(directory, "a.sums", sums, pieces * RKS_DIGEST_SIZE);
    shards_store(directory, "a.json", text, size);
    rks_free(text);
}

static void read_all(void)
{
    rks_shard *shard = NULL;
    if (rks_shard_open(paths[0], &shard, NULL) != RKS_OK)
        return;
    for (uint64_t row = 0; row < rks_shard_count(shard); row++) {
        rks_record_view view;
        uint8_t key[RKS_KEY_MAX];
        size_t key_size = 0;
        (void)rks_shard_key(shard, row, key, &key_size, NULL);
        if (rks_shard_locate(shard, row, &view, NULL) != RKS_OK)
            continue;
        FUZZ_CHECK(view.record_size <= rks_shard_largest(shard));
        rks_value values[3];
        (void)rks_record_check(&view, rks_shard_id(shard), row, 0, view.length, NULL);
        (void)rks_record_decode(rks_shard_schema(shard), view.payload, view.payload_size, values,
                                NULL);
    }
    rks_shard_close(shard);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (directory == NULL)
        begin();
    uint8_t *bytes = malloc(sealed_size);
    FUZZ_CHECK(bytes != NULL);
    memcpy(bytes, sealed, sealed_size);
    for (size_t at = 0; at + EDIT_SIZE <= size && at < EDITS_MOST * EDIT_SIZE; at += EDIT_SIZE) {
        const part *in = &parts[rks_load_u16(data + at) % part_count];
        bytes[in->offset + rks_load_u16(data + at + 2) * (in->size / 65536 + 1) % in->size] =
            data[at + 4];
    }
    seal_again(bytes);
    free(bytes);
    read_all();
    uint64_t samples = 0;
    uint64_t findings = 0;
    FUZZ_CHECK(rks_verify(paths[1], RKS_VERIFY_FULL, NULL, NULL, &samples, &findings, NULL) ==
               RKS_OK);
    FUZZ_CHECK(rks_memory_in_use() == memory);
    return 0;
}
