/* SPDX-License-Identifier: Apache-2.0
 *
 * request_queue.h: requests that wait for room, and those that were sent. */
#ifndef RKS_FETCH_REQUEST_QUEUE_H
#define RKS_FETCH_REQUEST_QUEUE_H

#include "fetch/request.h"

/* Tries to move the request from RKS_REQUEST_SENT to `state`. Returns true for the one thread that
 * succeeds, which then handles the request. */
bool rks_fetch_request_claim(rks_fetch_request *request, int state);
/* Removes a request from its fetch's sent list, if it is there. The mutex must be held for these
 * two. */
void rks_fetch_request_unlink(rks_fetch_request *request);
void rks_fetch_enqueue(rks_fetcher *fetcher, rks_fetch_request *list);
/* Returns the request's share of inflight_bytes. Needs no lock. */
void rks_fetch_request_unreserve(rks_fetch_request *request);
/* Takes the requests of a fetch (NULL: of all) out of the queue. The mutex must be held for these
 * two. */
rks_fetch_request *rks_fetch_unqueue(rks_fetcher *fetcher, const rks_fetch *fetch);
/* Takes the requests that inflight_bytes has room for out of the queue. The caller must send them
 * at once. */
rks_fetch_request *rks_fetch_next_to_send(rks_fetcher *fetcher);
/* Does the same without the mutex. */
rks_fetch_request *rks_fetch_pop_queued(rks_fetcher *fetcher);

#endif
