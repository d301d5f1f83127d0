/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h: the local directory of a rank, where the shards of a dataset arrive from its home:
 *
 *   LOCAL/DATASET-ID/           the id of the dataset's first generation
 *       home.json               where the dataset is kept whole
 *       dataset.json            the newest generation that was opened here
 *       NAME.rks .sums .json    shards that are here
 *       NAME.arriving ...       those that still come (home/arrival.h)
 *   LOCAL/speech/               the same dataset where this node built it: its shards are linked
 *                               (adopt.h)
 *
 * Ranks whose directories are one directory, by node, device and inode, share a place. */
#ifndef RKS_STAGING_PLACE_H
#define RKS_STAGING_PLACE_H

#include "base/buffer.h"
#include "dataset/dataset.h"
#include "group/agreement.h"

/* What a rank tells the others of its directory. All fields are set, none is padding. */
typedef struct rks_place_told {
    uint64_t name;   /* hash of host and path: the same in each job */
    uint64_t device; /* with the node it names the disk */
    uint64_t inode;
    uint64_t room; /* bytes that may be added */
} rks_place_told;

/* Makes the directory LOCAL/FOLDER and looks at it. `folder` NULL: LOCAL itself, where the dataset
 * was built. `room`: bytes that the dataset may add to its
 * disk; 0: three quarters of what is free. RKS_ERR_ARGUMENT if it is on a network file system: its
 * nodes have no common page cache. */
rks_status rks_place_make(const rks_group *group, const char *local, const char *folder,
                          uint64_t room, char **directory, rks_place_told *told, rks_error *err);

/* Writes home.json, if it does not say that already and `home` is not NULL, and the dataset as
 * dataset.json, unless that or a later generation is there. RKS_ERR_STATE: the directory has
 * another dataset. */
rks_status rks_place_describe(const char *directory, const char *home, const rks_dataset *dataset,
                              rks_error *err);

/* Returns the home's name for home.json: an absolute path. Free it with rks_free. */
char *rks_place_home_name(const char *home, rks_error *err);
/* Appends an entry for each shard of which something is here: its number and the bytes, 8 bytes
 * each. */
enum { RKS_PLACE_ENTRY = 16 };
rks_status rks_place_put(const uint64_t *here, size_t shards, rks_buffer *entries, rks_error *err);

/* By shard, the bytes that lie in the directory. */
void rks_place_look(const char *directory, const rks_dataset *dataset, uint64_t *here);

#endif
