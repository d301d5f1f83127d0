/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h: NAME.sums: an XXH3-128 (16 bytes: low half, high half, little-endian) of each MiB of
 * NAME.rks, the last one perhaps shorter; nothing else. */
#ifndef RKS_SHARD_SUMS_H
#define RKS_SHARD_SUMS_H

#include "base/checksum.h"

enum { RKS_SUMS_CHUNK = 1 << 20, RKS_SUMS_THREADS = 4 };

/* How many sums a file of that size has. */
static inline uint64_t rks_sums_count(uint64_t file_size)
{
    return file_size / RKS_SUMS_CHUNK + (file_size % RKS_SUMS_CHUNK != 0);
}

/* Reads all of `path`, which must be `file_size` bytes, and writes its sums to `sums_path`,
 * durably; by so many threads (0: the caller's alone), RKS_SUMS_THREADS at most. *digest is the
 * XXH3-128 of that file. */
rks_status rks_sums_write(const char *path, uint64_t file_size, const char *sums_path,
                          uint32_t threads, rks_digest *digest, rks_error *err);
/* Loads sums of a file of `file_size` bytes, compared with their digest. rks_free(*sums). */
rks_status rks_sums_load(const char *sums_path, uint64_t file_size, rks_digest digest,
                         rks_digest **sums, rks_error *err);
/* Reads all of `path` and compares it with its sums; threads as above. RKS_ERR_CORRUPT: what is not
 * as it was sealed, or that the sums are missing. */
rks_status rks_sums_check(const char *path, uint64_t file_size, const char *sums_path,
                          rks_digest digest, uint32_t threads, rks_error *err);

#endif
