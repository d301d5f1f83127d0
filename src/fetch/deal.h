/* SPDX-License-Identifier: Apache-2.0
 *
 * deal.h: which requests a fetch makes, and to whom. */
#ifndef RKS_FETCH_DEAL_H
#define RKS_FETCH_DEAL_H

#include "fetch/request.h"

/* Makes the list of requests for the `remote` samples of the fetch whose shards are not mapped;
 * *made is their number. No lock may be held. */
rks_status rks_fetch_deal_all(rks_fetch *fetch, size_t remote, rks_fetch_request **list,
                              size_t *made, rks_error *err);
/* Does the same for the samples at order[first, first + count), among owners that have not been
 * tried. */
rks_status rks_fetch_deal(rks_fetch *fetch, size_t first, size_t count,
                          const rks_fetch_owners *tried, rks_fetch_request **list, size_t *made,
                          rks_error *err);
/* Returns true if `rank` is in the list. */
bool rks_fetch_owners_have(const rks_fetch_owners *list, uint32_t rank);

#endif
