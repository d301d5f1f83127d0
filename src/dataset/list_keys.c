/* SPDX-License-Identifier: Apache-2.0
 *
 * list_keys.c: list-DIGITS.keys. Numbers are little-endian.
 *
 *   offset  size  field
 *        0     4  magic "RKSK"
 *        4     4  version, 1
 *        8    16  digest of list-DIGITS.units
 *       24     8  n, hashes
 *       32   8*n  the key hashes: of each shard that is in it, in the order of their ids, row by
 * row
 *          +  16  XXH3-128 of all before it
 *
 * A shard is in it if it has at most 4,096 samples, and its own and those of the shards before it
 * that are in it are at most 524,288 together. */
#include "dataset/list_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum { KEYS_HEAD = 32, KEYS_VERSION = 1 };
static const uint32_t KEYS_MAGIC = 0x4b534b52; /* "RKSK" */

bool rks_list_keys_cover(const rks_dataset_shard *shard, uint64_t *hashes)
{
    if (shard->samples > RKS_LIST_KEYS_SHARD || shard->samples > RKS_LIST_KEYS_MAX - *hashes)
        return false;
    *hashes += shard->samples;
    return true;
}

void rks_list_keys_name(const rks_dataset_list *list, char name[64])
{
    char digits[RKS_DIGEST_TEXT];
    rks_digest_format(list->digest, digits);
    snprintf(name, 64, "list-%.16s.keys", digits);
}

static char *keys_path(const char *directory, const rks_dataset_list *list, rks_error *err)
{
    char name[64];
    rks_list_keys_name(list, name);
    return rks_format(err, "%s/%s", directory, name);
}

static void put_head(const rks_dataset_list *list, uint64_t count, uint8_t head[KEYS_HEAD])
{
    rks_store_u32(head, KEYS_MAGIC);
    rks_store_u32(head + 4, KEYS_VERSION);
    rks_store_u64(head + 8, list->digest.low);
    rks_store_u64(head + 16, list->digest.high);
    rks_store_u64(head + 24, count);
}

/* Checks the head, all of which is known. */
static bool is_good(const rks_dataset_list *list, const char *bytes, size_t size, uint64_t count)
{
    uint8_t head[KEYS_HEAD];
    size_t hashed = KEYS_HEAD + (size_t)count * sizeof(uint64_t);
    put_head(list, count, head);
    if (size != hashed + RKS_DIGEST_SIZE || memcmp(bytes, head, KEYS_HEAD) != 0)
        return false;
    rks_digest digest = rks_checksum128(bytes, hashed);
    return rks_load_u64(bytes + hashed) == digest.low &&
           rks_load_u64(bytes + hashed + 8) == digest.high;
}

rks_status rks_list_keys_load(const char *directory, const rks_dataset_list *list, uint64_t count,
                              uint64_t **hashes, rks_error *err)
{
    char *bytes = NULL, *path = keys_path(directory, list, err);
    size_t size = 0, most = KEYS_HEAD + (size_t)count * sizeof(uint64_t) + RKS_DIGEST_SIZE;
    *hashes = NULL;
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_file_load(path, most, &bytes, &size, NULL);
    rks_free(path);
    if (status == RKS_ERR_MEMORY)
        return rks_fail(err, status, 0, "out of memory: key hashes of %s", list->name);
    if (status != RKS_OK)
        return RKS_OK;
    if (is_good(list, bytes, size, count)) {
        memmove(bytes, bytes + KEYS_HEAD, (size_t)count * sizeof(uint64_t));
        *hashes = (uint64_t *)(void *)bytes; /* aligned, since it comes from the allocator */
        bytes = NULL;
    }
    rks_free(bytes);
    return RKS_OK;
}

rks_status rks_list_keys_save(const char *directory, const rks_dataset_list *list,
                              const uint64_t *hashes, uint64_t count, rks_error *err)
{
    size_t hashed = KEYS_HEAD + (size_t)count * sizeof(uint64_t);
    uint8_t *bytes = rks_alloc_raw(hashed + RKS_DIGEST_SIZE, 1, err);
    char *path = bytes == NULL ? NULL : keys_path(directory, list, err);
    rks_status status = RKS_ERR_MEMORY;
    if (path != NULL) {
        put_head(list, count, bytes);
        memcpy(bytes + KEYS_HEAD, hashes, (size_t)count * sizeof(uint64_t));
        rks_digest digest = rks_checksum128(bytes, hashed);
        rks_store_u64(bytes + hashed, digest.low);
        rks_store_u64(bytes + hashed + 8, digest.high);
        status = rks_file_replace(path, bytes, hashed + RKS_DIGEST_SIZE, err);
    }
    rks_free(bytes);
    rks_free(path);
    return status;
}
