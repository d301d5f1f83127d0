/* SPDX-License-Identifier: Apache-2.0
 *
 * slow.h: storage that may hang.
 *
 * A thread that reads a page of a mapped file waits for the storage, and no signal reaches it
 * meanwhile. So a thread of the program reads only records that are in memory; a fetcher's workers
 * read the others, and the program's thread waits for them as for other ranks. */
#ifndef RKS_FETCH_SLOW_H
#define RKS_FETCH_SLOW_H

#include "fetch/fetch_tasks.h"

/* Returns true if reading the sample, or any local sample of the list, may wait for the storage;
 * otherwise the list is `ready`. Costs one load if all shards are known to be in memory. */
bool rks_fetch_may_wait(rks_fetcher *fetcher, const rks_wanted *wanted);
bool rks_fetch_list_may_wait(rks_request_list *list);

/* Says on stderr for which file, or rank, the fetch has waited. The mutex must not be held. */
void rks_fetch_say_slow(rks_fetch *fetch, uint64_t waited_ms);

#endif
