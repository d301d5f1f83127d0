/* SPDX-License-Identifier: Apache-2.0
 *
 * staging.h: from a home to the local directories of a group's ranks: who holds what, and its
 * arrival. All ranks compute the same assignment (home/assign.h) from what each reports of its
 * directory. The ranks of a place divide its shards. */
#ifndef RKS_STAGING_STAGING_H
#define RKS_STAGING_STAGING_H

#include "home/arrivals.h"
#include "staging/place.h"

typedef struct rks_staging_options {
    const char *home; /* where the dataset is kept whole; NULL: nowhere, and copies are made of what
                       * the ranks have */
    const char *storage_options; /* of home, if it is an object store; may be NULL */
    rks_home **opened; /* home, if rks_staging_open_home has opened it: taken over, and *opened is
                        * NULL then; NULL, or one of NULL: it is opened here */
    const char *local; /* this rank's local directory, without braces */
    const char
        *folder;     /* its folder for this dataset, the same on all ranks; NULL: `local` itself */
    uint32_t copies; /* on how many nodes each shard will be; at least 1; more than there are nodes
                      * are as many as there are nodes */
    uint64_t room; /* bytes that the dataset may add to this rank's disk; 0: three quarters of what
                    * is free */
    bool everywhere; /* each node gets all shards; `copies` is ignored */
    bool on_demand;  /* only heads and what is needed; no room is taken ahead */
    bool through;    /* shards without room are not brought: rks_staging_reads_through. Needs a home
                      * that is a directory */
    bool must_copy;  /* further copies of a shard count as much as the first one */
} rks_staging_options;

/* What the ranks bring. A shard that no place has whole is brought once first; further copies of a
 * shard are made when there is nothing else to do, and may fail. */
typedef struct rks_staging_plan {
    uint32_t places;        /* local directories */
    uint64_t bytes;         /* of the dataset's shards, each once */
    uint64_t wanted;        /* bytes of all copies */
    uint64_t here;          /* of them in a local directory when it began */
    uint64_t mine;          /* bytes of the shards that this rank brings, without further copies */
    uint64_t mine_here;     /* of them here when it began */
    size_t shards;          /* that this rank brings, with further copies */
    uint64_t through_bytes; /* of the shards that no place has room for */
    size_t through_shards;
} rks_staging_plan;

typedef struct rks_staging rks_staging;

/* Opens a home as a staging of that group does, for who reads its dataset before. Does not wait. */
rks_status rks_staging_open_home(const rks_group *group, const char *home,
                                 const char *storage_options, rks_home **opened, rks_error *err);

/* COLLECTIVE. Makes the local directories, chooses what each rank brings, and starts to bring it.
 * `status` and *err: this rank's result so far, as in rks_group_agree. RKS_ERR_IO on all ranks,
 * with the numbers, if the parts do not fit. The caller owns *staging. Makes three agreements. */
rks_status rks_staging_begin(rks_group *group, rks_status status, const rks_dataset *dataset,
                             const rks_staging_options *options, rks_staging **staging,
                             rks_error *err);
/* Brings more than heads and what somebody waits for, slowly at first: batches are wanted soon.
 * rks_staging_wait does it at once, unless it waits for heads. */
void rks_staging_go(rks_staging *staging);
/* Ends the arrivals; what has come stays. NULL is accepted. */
void rks_staging_stop(rks_staging *staging);
/* The same, and frees the staging. NULL is accepted. */
void rks_staging_end(rks_staging *staging);

/* Where the dataset is kept whole; NULL: nowhere. */
const char *rks_staging_home(const rks_staging *staging);
/* Where this rank's shards are or will be. */
const char *rks_staging_directory(const rks_staging *staging);
const rks_staging_plan *rks_staging_planned(const rks_staging *staging);
/* What this rank brings; NULL: nothing. */
rks_arrivals *rks_staging_arrivals(const rks_staging *staging);
/* Returns the place of a shard in the arrivals; -1: this rank does not bring it, or
 * as a further copy, which nobody reads before it is whole. */
int64_t rks_staging_find(const rks_staging *staging, const char *shard);

/* Returns true if no place has the shard, or room for it: it is read at home. The same on all
 * ranks.
 */
bool rks_staging_reads_through(const rks_staging *staging, size_t shard);

/* COLLECTIVE. Waits until all ranks have come so far. The error of one is that of all. `progress`
 * (may be NULL) is called as in base.h. */
rks_status rks_staging_wait(rks_staging *staging, enum rks_arrivals_until until,
                            rks_progress_fn progress, void *progress_user, rks_error *err);
/* The bytes that have come from home so far, by this rank. */
uint64_t rks_staging_brought(const rks_staging *staging);

#endif
