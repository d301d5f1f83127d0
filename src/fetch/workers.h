/* SPDX-License-Identifier: Apache-2.0
 *
 * workers.h: the threads of a fetcher that work on fetches started ahead. */
#ifndef RKS_FETCH_WORKERS_H
#define RKS_FETCH_WORKERS_H

#include "fetch/fetcher.h"

/* Starts the threads, unless they have started. They call `work_on_next`. */
rks_status rks_fetcher_start_workers(rks_fetcher *fetcher, rks_work_fn work_on_next,
                                     rks_error *err);
/* Wakes a worker for a queued fetch, or two if records come from the disk: while one waits for a
 * page, the other copies. The mutex must be held. */
void rks_fetcher_wake_workers(rks_fetcher *fetcher);
/* Wakes those that the call above left until rks_fetcher_gather ends. The mutex must be held. */
void rks_fetcher_wake_gathered(rks_fetcher *fetcher);
/* Waits for the end of the threads. `closing` must be set. A thread that hangs keeps a reference to
 * the fetcher. */
void rks_fetcher_join_workers(rks_fetcher *fetcher);

#endif
