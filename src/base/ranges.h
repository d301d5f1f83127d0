/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges.h: sorts the parts of files that are wanted from the disk, and merges neighbours. */
#ifndef RKS_BASE_RANGES_H
#define RKS_BASE_RANGES_H

#include <stddef.h>
#include <stdint.h>

/* Bytes [first, end) of file number `file`. */
typedef struct rks_range {
    uint64_t first, end;
    uint32_t file;
} rks_range;

/* Widens each range to whole pages (`page` is a power of two), sorts them by file and place, and
 * merges those that overlap or lie at most `gap` bytes apart. Drops empty ranges. Works in place
 * and returns how many ranges remain; no byte is in two of them. */
size_t rks_ranges_merge(rks_range *ranges, size_t count, uint64_t page, uint64_t gap);

#endif
