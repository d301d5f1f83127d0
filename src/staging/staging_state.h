/* SPDX-License-Identifier: Apache-2.0
 *
 * staging_state.h: what a staging consists of, and which rank brings what. For staging.c and
 * assignment.c. */
#ifndef RKS_STAGING_STAGING_STATE_H
#define RKS_STAGING_STAGING_STATE_H

#include "home/assign.h"
#include "staging/holder.h"
#include "staging/lease.h"
#include "staging/staging.h"

/* A shard that this rank's place lacks. */
typedef struct rks_staging_lacking {
    size_t shard;
    bool optional;
    int32_t holder; /* the rank that has it, or brings it, for a copy; -1: home alone */
} rks_staging_lacking;

struct rks_staging {
    rks_group *group;
    rks_home *home;
    rks_home **holders;   /* by rank: those from which copies come; NULL entry: not needed */
    rks_holding *holding; /* what this rank gives to others */
    char *directory;
    char dataset[80]; /* what errors call it */
    rks_lease *lease; /* of it; NULL: it has no home */
    rks_staging_plan plan;
    rks_staging_lacking *mine; /* what this rank brings, as the arrivals count */
    char (*names)[128];        /* of these shards */
    uint64_t samples;          /* of the dataset */
    bool *through;             /* by shard: it is read at home; NULL: none is */
    rks_arrivals *arrivals;    /* NULL: there are none */
    bool on_demand;
    rks_staging *next; /* of those that were left behind */
};

/* What is known of all places, while shards are assigned. */
typedef struct rks_staging_places {
    uint32_t *of_rank; /* rank -> place */
    uint32_t *first;   /* place -> its lowest rank */
    rks_place *list;
    uint64_t *here; /* place after place, by shard */
    uint32_t count;
} rks_staging_places;

/* Assigns the shards to places, and the shards that this rank's place lacks to its ranks. It uses
 * what all ranks have reported, so all come to the same result. Fills the plan, `mine` and
 * `through`. RKS_ERR_IO with the numbers if the places have no room. RKS_ERR_NOT_FOUND: there is no
 * home, and no place has a shard. */
rks_status rks_staging_assign(rks_staging *s, const rks_dataset *dataset,
                              const rks_staging_options *options, const rks_staging_places *p,
                              rks_error *err);

#endif
