/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_record.c: any bytes as a block, as a record, as a payload. The first byte chooses which, and
 * the schema. */
#include "fuzz.h"

#include "shard/block.h"

static const char *const SCHEMAS[] = {
    "data:bytes,id:int64,wide:float32[*]?",
    "a:uint8[*,*,3],b:str?,c:json",
    "flag:bool,x:float16[80,*],y:complex64[*,*]?,z:int16?",
    "one:int32",
};
enum { SCHEMA_COUNT = sizeof(SCHEMAS) / sizeof(SCHEMAS[0]), COLUMNS = 4 };

static rks_schema *schemas[SCHEMA_COUNT];
static long schema_memory;

static void decode(const rks_schema *schema, const uint8_t *payload, size_t size)
{
    rks_value values[COLUMNS];
    if (rks_record_decode(schema, payload, size, values, NULL) != RKS_OK)
        return;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < rks_schema_columns(schema); i++)
        for (uint64_t at = 0; values[i].data != NULL && at < values[i].size; at++)
            sum += ((const uint8_t *)values[i].data)[at];
    FUZZ_CHECK(sum < UINT64_MAX);
}

static void walk_block(const rks_schema *schema, uint8_t *block, size_t size)
{
    rks_block_info info = {0};
    rks_error err;
    if (size < RKS_BLOCK_HEADER)
        return;
    /* Right hashes and magic, so that only the structure stands in the way. */
    rks_store_u32(block, 0x42534b52);
    rks_store_u64(block + 48, rks_checksum64(block + RKS_BLOCK_HEADER, size - RKS_BLOCK_HEADER));
    rks_store_u64(block + 56, rks_checksum64(block, 56));
    bool sound = rks_block_check(block, size, "fuzz", 16, &info, &err) == RKS_OK;
    if (!sound && rks_block_open(block, size, "fuzz", 16, &info, &err) != RKS_OK)
        return;
    size_t at = RKS_BLOCK_HEADER;
    for (uint32_t i = 0; i < info.count; i++) {
        rks_record_view view;
        rks_status status = rks_block_next(block, size, &at, &view, &err);
        FUZZ_CHECK(!sound || status == RKS_OK);
        if (status != RKS_OK)
            break;
        FUZZ_CHECK(at <= size && view.record + view.record_size <= block + size);
        decode(schema, view.payload, view.payload_size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (schemas[0] == NULL) {
        for (size_t i = 0; i < SCHEMA_COUNT; i++)
            FUZZ_CHECK(rks_schema_parse(SCHEMAS[i], &schemas[i], NULL) == RKS_OK);
        schema_memory = rks_memory_in_use();
    }
    if (size < 1)
        return 0;
    const rks_schema *schema = schemas[data[0] % SCHEMA_COUNT];
    unsigned what = data[0] / SCHEMA_COUNT % 3;
    size--;
    /* In memory of exactly this size, so that one byte too far is seen. */
    uint8_t *bytes = malloc(size + (size == 0));
    FUZZ_CHECK(bytes != NULL);
    memcpy(bytes, data + 1, size);
    if (what == 0) {
        walk_block(schema, bytes, size);
    } else if (what == 1) {
        decode(schema, bytes, size);
    } else {
        rks_record_view view;
        if (rks_record_parse(bytes, size, &view, NULL) == RKS_OK) {
            FUZZ_CHECK(view.record_size <= size);
            (void)rks_record_check(&view, (rks_digest){1, 2}, 3, 4, view.length, NULL);
            decode(schema, view.payload, view.payload_size);
        }
    }
    free(bytes);
    FUZZ_CHECK(rks_memory_in_use() == schema_memory);
    return 0;
}
