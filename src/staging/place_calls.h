/* SPDX-License-Identifier: Apache-2.0
 *
 * place_calls.h: what a rank does in its local directory before shards arrive there (place.h,
 * adopt.h, lease.h), each on a thread of its own. If the storage does not answer, the thread is
 * left behind with what it uses (base/file_wait.h), and the call is RKS_ERR_TIMEOUT, which names
 * the directory.
 *
 * Looks have the group's silence limit. A description waits for a sync, which other programs may
 * hold up for long on a disk that they keep busy: it has the limit of a local file system
 * (home/patience.h), a line says what is waited for, and a rank that fails meanwhile ends it. */
#ifndef RKS_STAGING_PLACE_CALLS_H
#define RKS_STAGING_PLACE_CALLS_H

#include "home/patience.h"
#include "staging/lease.h"
#include "staging/place.h"

typedef struct rks_place_wish {
    const char *local;
    const char *folder; /* of `local`; NULL: `local` itself */
    uint64_t room;      /* as in rks_place_make */
    bool shares;        /* takes a lease */
} rks_place_wish;

typedef struct rks_place_made {
    char *directory; /* the caller's, as the lease */
    rks_place_told told;
    rks_lease *lease; /* NULL: none */
} rks_place_made;

/* Makes the directory, looks at it, and takes its lease. */
rks_status rks_place_call_make(rks_group *group, const rks_place_wish *wish, rks_place_made *made,
                               rks_error *err);
/* Links shards from other folders, if it is a folder of `local`, then looks at each shard. Writes
 * the bytes that are here by shard. Free *here with rks_free. */
rks_status rks_place_call_look(rks_group *group, const rks_place_wish *wish,
                               const rks_dataset *dataset, uint64_t **here, rks_error *err);
/* rks_place_describe. `limits` may have zeros. */
rks_status rks_place_call_describe(rks_group *group, const rks_home_limits *limits,
                                   const char *directory, const char *home,
                                   const rks_dataset *dataset, rks_error *err);

#endif
