/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_check.h: what a search for damage sees of a shard: its files granule by granule, whereas
 * the reader (shard.h) sees samples. */
#ifndef RKS_SHARD_SHARD_CHECK_H
#define RKS_SHARD_SHARD_CHECK_H

#include "base/guarded_map.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/shard.h"

/* Receives damage that does not stop the reader; `offset` is in NAME.rks. */
typedef void (*rks_shard_damage_fn)(void *user, uint64_t offset, const rks_error *what);

/* Like rks_shard_open, but reports some damage to `damage` and opens the shard all the same: a file
 * that is too long, changed first pages or main page, and a wrong unit list (the list may then be
 * empty). If `damage` is NULL, all damage is an error. */
rks_status rks_shard_open_damaged(const char *path, rks_shard_damage_fn damage, void *user,
                                  rks_shard **shard, rks_error *err);

/* The next three live as long as the shard. */
const rks_manifest *rks_shard_manifest(const rks_shard *shard);
const rks_unit_list *rks_shard_unit_list(const rks_shard *shard);
const rks_guarded_map *rks_shard_map(const rks_shard *shard); /* of NAME.rks */

/* Segments of one kind follow each other: lengths, key hashes, locators, columns. */
typedef enum rks_shard_part {
    RKS_SHARD_LENGTHS,
    RKS_SHARD_KEY_HASHES,
    RKS_SHARD_LOCATORS,
    RKS_SHARD_COLUMNS, /* + number of the index column */
} rks_shard_part;

/* Returns the manifest's number of the segment that holds a row of `part`. */
size_t rks_shard_segment_of(const rks_shard *shard, size_t part, uint64_t row);
/* Compares a segment with its digest, every time. A segment that matched is not compared again
 * before it is copied. */
rks_status rks_shard_check_segment(const rks_shard *shard, size_t segment, rks_error *err);

/* Returns true if the segment was compared and matched. */
bool rks_shard_segment_good(const rks_shard *shard, size_t segment);

/* Returns where in NAME.rks the row's own entry of the locators lies. */
uint64_t rks_shard_place(const rks_shard *shard, uint64_t row);
/* Returns where in NAME.rks the row's record lies according to the locators, unchecked. */
uint64_t rks_shard_offset(const rks_shard *shard, uint64_t row);

#endif
