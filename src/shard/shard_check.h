/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_check.h: what a search for damage sees of a shard: its files piece by piece, where the
 * reader (shard.h) sees samples. */
#ifndef RKS_SHARD_SHARD_CHECK_H
#define RKS_SHARD_SHARD_CHECK_H

#include "base/guarded_map.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/shard.h"

/* Hears of damage that reading can go past; `offset` is in NAME.rks. */
typedef void (*rks_shard_damage_fn)(void *user, uint64_t offset, const rks_error *what);

/* rks_shard_open, where `damage` (may be NULL: all of it is an error) hears of a longer file, of
 * other first pages or another main page, and of a wrong unit list, and the shard opens all the same;
 * its unit list may then be empty. */
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

/* The manifest's number of the segment that holds a row of `part`. */
size_t rks_shard_segment_of(const rks_shard *shard, size_t part, uint64_t row);
/* Compares a segment with its digest, each time; one that is good is not compared again before it
 * is copied. */
rks_status rks_shard_check_segment(const rks_shard *shard, size_t segment, rks_error *err);

/* Was it compared, and good? */
bool rks_shard_segment_good(const rks_shard *shard, size_t segment);

/* Where in NAME.rks the row's own entry of the locators lies. */
uint64_t rks_shard_place(const rks_shard *shard, uint64_t row);
/* Where in NAME.rks the locators say that a row's record lies, unchecked. */
uint64_t rks_shard_offset(const rks_shard *shard, uint64_t row);

#endif
