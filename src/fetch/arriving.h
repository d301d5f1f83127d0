/* SPDX-License-Identifier: Apache-2.0
 *
 * arriving.h: samples of this rank whose records have not come from home yet. Callers and workers
 * wait for them; the server puts their requests aside, so that no I/O thread waits. */
#ifndef RKS_FETCH_ARRIVING_H
#define RKS_FETCH_ARRIVING_H

#include <stdatomic.h>

#include "home/arrivals.h"
#include "shard/shard.h"

/* Where a shard of the dataset arrives. */
typedef struct rks_arriving_shard {
    rks_arrivals *set; /* of this rank; NULL: it brings none of it */
    size_t number;     /* in the set */
    bool beside; /* another rank of this node brings it, and is asked for rows that are not here */
    atomic_bool sealed; /* its files have been seen whole */
} rks_arriving_shard;

typedef struct rks_arriving {
    const rks_arriving_shard *shards; /* as the dataset counts; NULL: none arrives */
    rks_shard *const *maps;           /* likewise, of those that arrive at this rank */
    uint32_t rank;                    /* this one */
    bool here, beside; /* some arrive at this rank; at other ranks of its node, and are mapped */
    /* Asked every 100 ms by those who wait for rows, here or at their owner: anything but RKS_OK
     * ends the wait with it. Any thread. NULL: not asked. */
    rks_status (*must_stop)(void *user, rks_error *err);
    void *user;
} rks_arriving;

/* Returns true if the row is mapped here, but has to be asked of the rank that brings it. */
bool rks_arriving_is_elsewhere(const rks_arriving *arriving, uint32_t shard, const rks_shard *map,
                               uint64_t row);

typedef struct rks_arriving_row {
    uint32_t shard;
    uint64_t row;
} rks_arriving_row;

/* Who wants rows. `come` is called once, when all are here or one cannot come: *err says so by its
 * status. On a thread of the arrivals, which must not wait. */
typedef struct rks_arriving_asker {
    uint32_t rank;
    void (*come)(void *user, const rks_error *err);
    void *user;
} rks_arriving_asker;

/* What must_stop says; `arriving` may be NULL. */
rks_status rks_arriving_must_stop(const rks_arriving *arriving, rks_error *err);
/* Returns true if some of the rows are not here. */
bool rks_arriving_lacks(const rks_arriving *arriving, const rks_arriving_row *rows, size_t count);
/* Wants those of the rows that are not here. *lacking: there are some, and `come` will be called
 * (perhaps before this returns); else it is not. Never waits. RKS_ERR_MEMORY. */
rks_status rks_arriving_want(const rks_arriving *arriving, const rks_arriving_row *rows,
                             size_t count, const rks_arriving_asker *asker, bool *lacking,
                             rks_error *err);
/* Waits until all rows are here. *waited: some were not. Hears interrupts and must_stop. */
rks_status rks_arriving_wait(const rks_arriving *arriving, const rks_arriving_row *rows,
                             size_t count, bool *waited, rks_error *err);

#endif
