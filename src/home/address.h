/* SPDX-License-Identifier: Apache-2.0
 *
 * address.h: the name of a home: a path, or a URL of an object store. All callers ask here which
 * kind it is. */
#ifndef RKS_HOME_ADDRESS_H
#define RKS_HOME_ADDRESS_H

#include "rankstore/base.h"

/* Returns true for SCHEME://..., file:// too. */
bool rks_home_is_url(const char *home);

typedef struct rks_home_address {
    bool stored;      /* in an object store, which a helper reaches; else a directory */
    const char *path; /* stored: the URL; else the directory's path, within the name given */
} rks_home_address;

/* Says where a home is. RKS_ERR_ARGUMENT: the name is empty, or a URL without a host, with a
 * password or with a query, which would be shown; the text does not repeat them. The helper knows
 * which schemes it serves. */
rks_status rks_home_address_of(const char *home, rks_home_address *address, rks_error *err);

#endif
