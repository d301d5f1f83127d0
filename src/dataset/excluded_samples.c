/* SPDX-License-Identifier: Apache-2.0
 *
 * excluded_samples.c: excluded-DIGITS.runs, the list of positions that do not count:
 *
 *   offset  size  field
 *        0     4  magic "RKSX"
 *        4     4  version, 1
 *        8     8  n, runs
 *       16   8*n  u32 first position, u32 count of each, ascending, none next to another
 *
 * DIGITS are the first 16 of its digest, so that another list is another file. */
#include "dataset/excluded_samples.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"

enum { HEAD = 16, RUN = 8, VERSION = 1 };
static const uint32_t MAGIC = 0x58534b52; /* "RKSX" */

uint64_t rks_excluded_size(uint64_t run_count)
{
    return HEAD + RUN * run_count;
}

static int by_first(const void *a, const void *b)
{
    const rks_excluded_run *left = a, *right = b;
    return left->first < right->first ? -1 : left->first > right->first;
}

rks_status rks_excluded_settle(rks_excluded_run *runs, uint64_t *count, rks_error *err)
{
    uint64_t kept = 0;
    if (*count > 0)
        qsort(runs, (size_t)*count, sizeof(*runs), by_first);
    for (uint64_t i = 0; i < *count; i++) {
        uint64_t end = kept == 0 ? 0 : (uint64_t)runs[kept - 1].first + runs[kept - 1].count;
        if (runs[i].count == 0)
            continue;
        if (runs[i].first < end)
            return rks_fail(err, RKS_ERR_DATA, 0, "sample %" PRIu32 " is excluded twice",
                            runs[i].first);
        if (kept > 0 && runs[i].first == end)
            runs[kept - 1].count += runs[i].count;
        else
            runs[kept++] = runs[i];
    }
    *count = kept;
    return RKS_OK;
}

rks_status rks_excluded_encode(rks_excluded *excluded, rks_buffer *bytes, rks_error *err)
{
    uint8_t head[HEAD], run[RUN];
    size_t begin = bytes->size;
    char digits[RKS_DIGEST_TEXT];
    rks_store_u32(head, MAGIC);
    rks_store_u32(head + 4, VERSION);
    rks_store_u64(head + 8, excluded->run_count);
    rks_status status = rks_buffer_add(bytes, head, sizeof(head), err);
    excluded->samples = 0;
    for (uint64_t i = 0; status == RKS_OK && i < excluded->run_count; i++) {
        rks_store_u32(run, excluded->runs[i].first);
        rks_store_u32(run + 4, excluded->runs[i].count);
        excluded->samples += excluded->runs[i].count;
        status = rks_buffer_add(bytes, run, sizeof(run), err);
    }
    if (status != RKS_OK)
        return status;
    excluded->digest = rks_checksum128(bytes->data + begin, bytes->size - begin);
    rks_digest_format(excluded->digest, digits);
    snprintf(excluded->name, sizeof(excluded->name), "excluded-%.16s.runs", digits);
    return RKS_OK;
}

static rks_status check_bytes(const rks_excluded *excluded, const uint8_t *bytes, size_t size,
                              const char *path, rks_error *err)
{
    if (size != rks_excluded_size(excluded->run_count))
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: %zu bytes, a list of %" PRIu64 " runs has %" PRIu64, path, size,
                        excluded->run_count, rks_excluded_size(excluded->run_count));
    if (!rks_digest_equal(rks_checksum128(bytes, size), excluded->digest))
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: does not match its digest in dataset.json",
                        path);
    if (rks_load_u32(bytes) != MAGIC || rks_load_u32(bytes + 4) != VERSION ||
        rks_load_u64(bytes + 8) != excluded->run_count)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: not a list of excluded samples", path);
    return RKS_OK;
}

rks_status rks_excluded_decode(rks_excluded *excluded, const void *bytes, size_t size,
                               uint64_t stored, const char *path, rks_error *err)
{
    const uint8_t *at = (const uint8_t *)bytes + HEAD;
    rks_status status = check_bytes(excluded, bytes, size, path, err);
    if (status != RKS_OK)
        return status;
    rks_excluded_run *runs = rks_alloc_raw(excluded->run_count, sizeof(*runs), err);
    if (runs == NULL)
        return RKS_ERR_MEMORY;
    uint64_t next = 0, samples = 0;
    bool good = true;
    for (uint64_t i = 0; good && i < excluded->run_count; i++, at += RUN) {
        runs[i] = (rks_excluded_run){rks_load_u32(at), rks_load_u32(at + 4)};
        good = runs[i].count > 0 && (i == 0 || runs[i].first > next);
        next = (uint64_t)runs[i].first + runs[i].count;
        good = good && next <= stored;
        samples += runs[i].count;
    }
    if (!good || samples != excluded->samples) {
        rks_free(runs);
        return rks_fail(err, RKS_ERR_CORRUPT, 0,
                        "%s: its runs are not %" PRIu64 " of %" PRIu64 " samples", path,
                        excluded->samples, stored);
    }
    rks_free(excluded->runs);
    excluded->runs = runs;
    return RKS_OK;
}
