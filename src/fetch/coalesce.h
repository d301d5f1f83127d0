/* SPDX-License-Identifier: Apache-2.0
 *
 * coalesce.h: several small requests to one owner as one.
 *
 * Framing joins what it can join without knowing what it carries: requests that are posted together
 * to one peer leave in one write, and so do replies that are ready together (engine.h). Joined here
 * are rows, which only this layer knows. The owner checks one list of them, finds their places
 * together, so that its cache misses overlap, asks once whether pages were missing, and makes one
 * table. Requests with frames of their own in the same writes cost 1.25 times the processor time of
 * a whole epoch (8 ranks on one machine, batches of 8, records of 0.5 KB, no sharing): a good third
 * of the difference are those steps of the owner, and no framing can save them. */
#ifndef RKS_FETCH_COALESCE_H
#define RKS_FETCH_COALESCE_H

#include "fetch/request.h"

/* Makes the engine's calls, linked by `next`, for a list of requests to send, each with its `ops`.
 * A call for several gets `joint`. Each request gets a hold for the engine. */
rks_call *rks_fetch_coalesce(rks_fetcher *fetcher, rks_fetch_request *list,
                             const rks_call_ops *joint);
/* Ends a joint call that was not sent, and calls `each` for each of its requests. */
void rks_fetch_separate(rks_call *call,
                        void (*each)(rks_fetch_request *request, const rks_error *err),
                        const rks_error *err);

/* Of a joint call: rks_call_ops. A joint call holds the fetcher until it is over. */
void *rks_fetch_joint_place(rks_call *call, size_t size);
void rks_fetch_joint_comes(rks_call *call);
/* Returns as rks_fetch_reply_done. */
rks_fetch_request *rks_fetch_joint_done(rks_call *call, const rks_error *err);
void rks_fetch_joint_over(rks_call *call);

#endif
