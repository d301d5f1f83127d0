/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_state.h: the contents of an open shard; only shard.c, shard_open.c and shard_pages.c
 * include it. */
#ifndef RKS_SHARD_SHARD_STATE_H
#define RKS_SHARD_SHARD_STATE_H

#include "base/guarded_map.h"
#include "base/pieces.h"
#include "base/resident_pages.h"
#include "shard/block.h"
#include "shard/manifest.h"
#include "shard/shard_check.h"

/* How errors about bytes end that the storage does not give. A bad page raises SIGBUS, which has no
 * errno. */
#define UNREADABLE                                                                                 \
    " cannot be read (input/output error, or the file was cut); \"rankstore verify\" lists what "  \
    "is "                                                                                          \
    "lost"

/* The locators of RKS_SEGMENT_ROWS rows. */
typedef struct rks_locators {
    const uint8_t *bases;   /* u64 for each RKS_LOCATOR_GROUP rows; NULL if `entries` are offsets */
    const uint8_t *entries; /* u32 deltas in units of 8 bytes, or u64 offsets */
} rks_locators;

struct rks_shard {
    char *path; /* of NAME.rks */
    rks_manifest *manifest;
    rks_guarded_map *map;
    rks_resident *resident; /* which granules of the map are in memory */
    atomic_bool random;     /* records are read at random */
    rks_unit_list units;
    rks_locators *locators;        /* one for each RKS_SEGMENT_ROWS rows */
    size_t row_segments;           /* number of locators, and of segments of each kind */
    _Atomic uint8_t *segment_good; /* one for each segment of the manifest: it matched its digest */
    char *arriving_path;           /* of NAME.arriving; NULL: it was opened sealed */
    rks_pieces *pieces;            /* likewise */
    atomic_bool arriving;          /* it has not been seen sealed */
    _Atomic uint16_t *rows_here; /* by row: its record is here, whatever the pieces say, as long as
                                  * this is the number of the doubts (shard.c); 0: it is not */
};

static inline size_t rks_shard_segment_at(const rks_shard *shard, size_t part, uint64_t row)
{
    return part * shard->row_segments + (size_t)(row / RKS_SEGMENT_ROWS);
}

/* Returns the record's offset according to the locators, unchecked. */
static inline uint64_t rks_shard_locator(const rks_shard *shard, uint64_t row)
{
    const rks_locators *locators = &shard->locators[row / RKS_SEGMENT_ROWS];
    uint64_t at = row % RKS_SEGMENT_ROWS;
    if (locators->bases == NULL)
        return rks_load_u64(locators->entries + at * 8);
    return rks_load_u64(locators->bases + at / RKS_LOCATOR_GROUP * 8) +
           UINT64_C(8) * rks_load_u32(locators->entries + at * 4);
}

/* shard_pages.c: advises the kernel that records are read at random, and the index is not. */
void rks_shard_advise_random(const rks_shard *shard);

#endif
