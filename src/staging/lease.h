/* SPDX-License-Identifier: Apache-2.0
 *
 * lease.h: who uses a local copy, a directory with home.json. Each process that has it open, or
 * brings shards to it, shares the lock of its file open.lock (flock); who removes shards from it
 * has the lock alone. The file stays. It holds "pid 123 on HOST" of the process that opened it
 * last, to name it in messages. */
#ifndef RKS_STAGING_LEASE_H
#define RKS_STAGING_LEASE_H

#include "rankstore/base.h"

#define RKS_LEASE_FILE "open.lock"

typedef struct rks_lease rks_lease;

/* Puts one more lease in front of *leases, which is NULL if there are none: for as long as shards
 * of the directory are used. Waits while another process removes shards, at most a minute:
 * RKS_ERR_STATE. Adds none if this user may not write there, or if the file system has no locks. */
rks_status rks_lease_share(const char *directory, rks_lease **leases, rks_error *err);
/* The same, alone, without a wait. RKS_ERR_STATE: somebody shares it; names the one that came last.
 * RKS_ERR_UNSUPPORTED: the file system has no locks. */
rks_status rks_lease_take_alone(const char *directory, rks_lease **leases, rks_error *err);
/* Ends all of them. In a forked child, those of its parent go on. NULL is accepted. */
void rks_leases_end(rks_lease *leases);

#endif
