/* SPDX-License-Identifier: Apache-2.0
 *
 * assign.h: which local directories hold which shards of a dataset that has a home. A pure
 * function: every rank computes the same from what all have reported.
 *
 * Laws. The order of shards and of places does not count. A place that has a shard whole keeps it.
 * A shard that has begun to arrive goes on where most of it lies. A lost place moves what it held
 * and no more; a new place moves nothing. Copies lie on different nodes. New bytes fit into the
 * room of the disk, which several places may share. Where room is no limit, loads differ by at most
 * a sixteenth of a share and one shard. Ties go by a hash of shard and place, so a little noise in
 * `room` moves nothing that has begun. */
#ifndef RKS_HOME_ASSIGN_H
#define RKS_HOME_ASSIGN_H

#include "base/checksum.h"

typedef struct rks_assign_shard {
    rks_digest id;
    uint64_t bytes;
} rks_assign_shard;

/* A local directory, as all ranks see it. */
typedef struct rks_place {
    uint64_t id;          /* a hash of what names it across jobs: host and path */
    uint32_t node;        /* copies lie on different nodes */
    uint64_t disk;        /* of that node: places of one disk share its room */
    uint64_t room;        /* bytes that may be added to the disk */
    const uint64_t *here; /* by shard: bytes of it that lie here */
} rks_place;

typedef struct rks_cluster {
    const rks_assign_shard *shards;
    size_t shard_count;
    const rks_place *places;
    size_t place_count;
    uint32_t copies; /* of each shard; more than there are nodes are not made; at least 1 */
} rks_cluster;

/* Chooses the places of each shard: holders[shard * copies] and those after it are places, those
 * that have it whole first; -1 where no place has room. *lacking: the bytes that found no room. */
rks_status rks_assign(const rks_cluster *cluster, int32_t *holders, uint64_t *lacking,
                      rks_error *err);

#endif
