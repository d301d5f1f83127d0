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

/* What a batch has of arenas, or would have had: all of them count as in use until they are given. */
typedef struct rks_lent {
    struct rks_arena *arena; /* NULL: none was free */
    uint8_t *data;           /* of it, aligned to RKS_BLOCK_ALIGN */
    size_t counted;          /* what the batch counts as in use; 0: the arenas have ended */
} rks_lent;

void rks_arenas_hold(rks_arenas *arenas);
void rks_arenas_release(rks_arenas *arenas); /* the last one frees it; NULL is accepted */

rks_lent rks_arenas_take(rks_arenas *arenas, size_t size);
void rks_arenas_give(rks_arenas *arenas, const rks_lent *lent);

/* Around whatever writes into an arena. NULL is accepted. */
void rks_arenas_enter(rks_arenas *arenas);
void rks_arenas_leave(rks_arenas *arenas);
/* No arena is taken any more. Those that are free are done; those in use are when they are given.
 * Waits for who has entered: then nothing writes into an arena any more. NULL is accepted. */
void rks_arenas_end(rks_arenas *arenas);

#endif
