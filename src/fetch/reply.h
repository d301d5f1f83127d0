/* SPDX-License-Identifier: Apache-2.0
 *
 * reply.h: handles what the engine reports of a request. */
#ifndef RKS_FETCH_REPLY_H
#define RKS_FETCH_REPLY_H

#include "fetch/request.h"

/* Of the engine's call of one request: rks_call_ops. */
void *rks_fetch_reply_place(rks_call *call, size_t size);
void rks_fetch_reply_comes(rks_call *call);
/* Ends a request with its reply, if err is NULL, or with an error. Returns the requests that have
 * room now, to be sent at once. Engine thread; the caller holds the fetcher. */
rks_fetch_request *rks_fetch_reply_done(rks_fetch_request *request, const rks_error *err);
/* Makes a request of its own for one that a joint request did not serve. Engine thread. */
void rks_fetch_request_alone(rks_fetch_request *request);
void rks_fetch_owner_heard(rks_fetcher *fetcher, uint32_t owner); /* part of a reply came */
void rks_fetch_count_inflight(rks_fetcher *fetcher, const rks_block *reply);
/* Parses and checks the records of a reply; *bytes counts columns and keys. */
rks_status rks_fetch_check_reply(rks_fetch_request *request, uint64_t *bytes, rks_error *err);

#endif
