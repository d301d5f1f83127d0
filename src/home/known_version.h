/* SPDX-License-Identifier: Apache-2.0
 *
 * known_version.h: ranges of a file whose bytes are checked by sums: each names the version that
 * the first one read, so that a home does not mix two. If the file was replaced, which a shard
 * never should be, the range is read from the new one: its sums decide. */
#ifndef RKS_HOME_KNOWN_VERSION_H
#define RKS_HOME_KNOWN_VERSION_H

#include "home/requests.h"

/* Start with {0}. Any thread. */
typedef struct rks_known_version {
    char text[RKS_HOME_VERSION]; /* "": not known */
} rks_known_version;

/* As rks_home_borrow. */
rks_status rks_known_version_borrow(rks_known_version *known, rks_home *home, const char *name,
                                    uint64_t first, uint64_t end, rks_home_loan *loan,
                                    rks_error *err);

#endif
