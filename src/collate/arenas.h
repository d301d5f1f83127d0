/* SPDX-License-Identifier: Apache-2.0
 *
 * arenas.h: memory of the caller's in which arrays lie, one batch's after another's. Any thread.
 *
 *   caller ──add──► free ──take──► in use ──give──► free ... ──end──► done: the caller's again
 *                     └─ more than batches needed at once: done
 *
 * The library never asks the caller for memory, so no thread of it waits for the caller: where no
 * arena is free a batch takes other memory, and rks_arenas_wanted says what it lacked. */
#ifndef RKS_COLLATE_ARENAS_H
#define RKS_COLLATE_ARENAS_H

#include "rankstore/collate.h"

/* What a batch uses of the arenas, or would have used. It counts as in use until it is returned. */
typedef struct rks_lent {
    struct rks_arena *arena; /* NULL: none was free */
    uint8_t *data;           /* in the arena, aligned to RKS_BLOCK_ALIGN */
    size_t counted;          /* bytes that count as in use for this batch; 0: the arenas have
                              * ended */
} rks_lent;

void rks_arenas_hold(rks_arenas *arenas);
void rks_arenas_release(rks_arenas *arenas); /* the last call frees it; NULL is allowed */

rks_lent rks_arenas_take(rks_arenas *arenas, size_t size);
void rks_arenas_give(rks_arenas *arenas, const rks_lent *lent);

/* Call these before and after writing into an arena. NULL is allowed. */
void rks_arenas_enter(rks_arenas *arenas);
void rks_arenas_leave(rks_arenas *arenas);
/* Ends the arenas: none is taken any more. Free ones are done now, those in use when they are
 * returned. Waits for threads that have entered, so that nothing writes into an arena afterwards.
 * NULL is allowed. */
void rks_arenas_end(rks_arenas *arenas);

#endif
