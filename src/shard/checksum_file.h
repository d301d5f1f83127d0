/* SPDX-License-Identifier: Apache-2.0
 *
 * checksum_file.h: NAME.sums holds an XXH3-128 (16 bytes: low half, high half, little-endian) of
 * each MiB of NAME.rks, of which the last may be shorter, and nothing else. */
#ifndef RKS_SHARD_CHECKSUM_FILE_H
#define RKS_SHARD_CHECKSUM_FILE_H

#include "base/checksum.h"

enum { RKS_SUMS_CHUNK = 1 << 20, RKS_SUMS_THREADS = 4 };

/* Returns the number of sums of a file of that size. */
static inline uint64_t rks_sums_count(uint64_t file_size)
{
    return file_size / RKS_SUMS_CHUNK + (file_size % RKS_SUMS_CHUNK != 0);
}

/* Reads all of `path`, which must have `file_size` bytes, and writes its sums to `sums_path`,
 * durably, on `threads` threads (0: only the caller's; at most RKS_SUMS_THREADS). *digest is the
 * XXH3-128 of the sums file. */
rks_status rks_sums_write(const char *path, uint64_t file_size, const char *sums_path,
                          uint32_t threads, rks_digest *digest, rks_error *err);
/* Loads the sums of a file of `file_size` bytes and compares them with their digest. Free *sums
 * with rks_free. */
rks_status rks_sums_load(const char *sums_path, uint64_t file_size, rks_digest digest,
                         rks_digest **sums, rks_error *err);
/* Reads all of `path` and compares it with its sums; threads as above. RKS_ERR_CORRUPT says what
 * has changed since the seal, or that the sums are missing. */
rks_status rks_sums_check(const char *path, uint64_t file_size, const char *sums_path,
                          rks_digest digest, uint32_t threads, rks_error *err);

#endif
