/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.c: NAME.sums. */
#include "shard/sums.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

static rks_status compute(int fd, const char *path, uint64_t file_size, uint8_t *sums,
                          rks_error *err)
{
    uint8_t *chunk = rks_alloc_raw(RKS_SUMS_CHUNK, 1, err);
    if (chunk == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = RKS_OK;
    for (uint64_t at = 0; at < file_size; at += RKS_SUMS_CHUNK) {
        uint64_t left = file_size - at;
        size_t size = left < RKS_SUMS_CHUNK ? (size_t)left : RKS_SUMS_CHUNK;
        status = rks_file_read_at(fd, path, at, chunk, size, err);
        if (status == RKS_OK)
            status = rks_check_interrupt(err);
        if (status != RKS_OK)
            break;
        rks_digest sum = rks_checksum128(chunk, size);
        uint8_t *entry = sums + at / RKS_SUMS_CHUNK * RKS_DIGEST_SIZE;
        rks_store_u64(entry, sum.low);
        rks_store_u64(entry + 8, sum.high);
    }
    rks_free(chunk);
    return status;
}

rks_status rks_sums_write(const char *path, uint64_t file_size, const char *sums_path,
                          rks_digest *digest, rks_error *err)
{
    int fd = -1;
    uint8_t *sums = NULL;
    uint64_t found = 0;
    size_t size = (size_t)rks_sums_count(file_size) * RKS_DIGEST_SIZE;
    rks_status status = rks_file_open(path, &fd, &found, err);
    if (status != RKS_OK)
        return status;
    if (found != file_size)
        status = rks_fail(err, RKS_ERR_IO, 0,
                          "%s: %" PRIu64 " bytes, not %" PRIu64 ": something else writes to it",
                          path, found, file_size);
    if (status == RKS_OK) {
        sums = rks_alloc_raw(size, 1, err);
        status = sums == NULL ? RKS_ERR_MEMORY : compute(fd, path, file_size, sums, err);
    }
    if (status == RKS_OK)
        status = rks_file_replace(sums_path, sums, size, err);
    if (status == RKS_OK)
        *digest = rks_checksum128(sums, size);
    rks_free(sums);
    close(fd);
    return status;
}

rks_status rks_sums_load(const char *sums_path, uint64_t file_size, rks_digest digest,
                         rks_digest **sums, rks_error *err)
{
    char *bytes = NULL;
    rks_digest *loaded = NULL;
    size_t size = 0;
    uint64_t count = rks_sums_count(file_size);
    rks_status status =
        rks_file_load(sums_path, (size_t)count * RKS_DIGEST_SIZE, &bytes, &size, err);
    if (status != RKS_OK)
        return status;
    if (size != count * RKS_DIGEST_SIZE || !rks_digest_equal(rks_checksum128(bytes, size), digest))
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0,
                     "%s: %zu bytes that are not the sums the manifest names", sums_path, size);
    if (status == RKS_OK) {
        loaded = rks_alloc((size_t)count, sizeof(*loaded), err);
        status = loaded == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    for (uint64_t i = 0; status == RKS_OK && i < count; i++)
        loaded[i] = (rks_digest){rks_load_u64(bytes + i * RKS_DIGEST_SIZE),
                                 rks_load_u64(bytes + i * RKS_DIGEST_SIZE + 8)};
    if (status == RKS_OK) {
        *sums = loaded;
        loaded = NULL;
    }
    rks_free(loaded);
    rks_free(bytes);
    return status;
}
