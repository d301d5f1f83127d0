/* SPDX-License-Identifier: Apache-2.0
 *
 * request_sender.h: passes requests to the engine. */
#ifndef RKS_FETCH_REQUEST_SENDER_H
#define RKS_FETCH_REQUEST_SENDER_H

#include "fetch/request.h"

/* Send requests. No lock may be held for these two. */
void rks_fetch_send(rks_fetch_request *list);
void rks_fetch_send_queued(rks_fetcher *fetcher);

#endif
