/* SPDX-License-Identifier: Apache-2.0
 *
 * call_table.h: ids of requests that wait for a reply. */
#ifndef RKS_TRANSPORT_CALL_TABLE_H
#define RKS_TRANSPORT_CALL_TABLE_H

#include "transport/call.h"

typedef struct rks_call_entry {
    rks_call *call; /* the call that waits for its reply; NULL: free */
    uint32_t turn;  /* changes with each use, so that an old id matches no new request */
    uint32_t next;  /* number of the next free entry + 1 */
} rks_call_entry;

/* Gives the call its id and adds it to its peer's calls. Returns false if memory is short. */
bool rks_call_table_add(rks_engine *engine, rks_call *call);
void rks_call_table_remove(rks_engine *engine, rks_call *call);
/* Returns the call `id` to `rank`; NULL if no such call waits. */
rks_call *rks_call_find(rks_engine *engine, uint32_t rank, uint64_t id);

#endif
