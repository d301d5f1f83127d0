/* SPDX-License-Identifier: Apache-2.0
 *
 * link_rate.h: how fast bytes come from a home, measured over the time in which some are on their
 * way. Guarded by its owner's mutex. */
#ifndef RKS_HOME_LINK_RATE_H
#define RKS_HOME_LINK_RATE_H

#include <stdint.h>

typedef struct rks_link_rate {
    double bytes_per_s; /* 0: not known yet */
    uint64_t under_way; /* bytes that were asked for and have not come */
    uint64_t since_ns;  /* when the measured stretch began */
    uint64_t came;      /* bytes since then */
} rks_link_rate;

void rks_link_rate_ask(rks_link_rate *rate, uint64_t bytes);
/* `asked` bytes are no longer on their way, and `came` of them are here. */
void rks_link_rate_end(rks_link_rate *rate, uint64_t asked, uint64_t came);
/* Returns how long `bytes` take, in seconds; a second if the rate is not known. */
double rks_link_rate_seconds(const rks_link_rate *rate, uint64_t bytes);

#endif
