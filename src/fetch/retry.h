/* SPDX-License-Identifier: Apache-2.0
 *
 * retry.h: requests that fail, and owners that fall silent. */
#ifndef RKS_FETCH_RETRY_H
#define RKS_FETCH_RETRY_H

#include "fetch/request.h"

/* Handles a failed request: asks the same owner again or another one, or fails the fetch. The
 * caller keeps the request, and sends what is queued then. No lock may be held for these three. */
void rks_fetch_request_failed(rks_fetch_request *request, const rks_error *err);
/* Fails the fetch with this request's error. */
void rks_fetch_request_fatal(const rks_fetch_request *request, const rks_error *inner);
/* Gives up the fetch's requests whose owners have sent nothing for timeout_ms. Asks others, or
 * fails the fetch. Returns true if there were any: the caller sends what is queued. */
bool rks_fetch_give_up_silent(rks_fetch *fetch);
/* Removes an owner from the failed ones. The mutex must be held. */
void rks_fetch_owner_answers(rks_fetcher *fetcher, uint32_t owner);

#endif
