/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.h: how much memory this process holds, by what it is for; rks_memory_use_get() of the
 * public header reads it. Who takes memory of a kind says so, and says so again when it gives it
 * back.
 *
 * The counters are the process's, not a store's: memory is what a process runs out of, and much of
 * it (batches, a shared index) outlives the store it came from. Ranks that are threads of one
 * process have them in common. Any thread. */
#ifndef RKS_BASE_USAGE_H
#define RKS_BASE_USAGE_H

#include "rankstore/base.h"

/* Not for RKS_MEMORY_RESIDENT, which the kernel counts. */
void rks_usage_add(enum rks_memory_kind kind, uint64_t bytes);
/* At most what was added. */
void rks_usage_sub(enum rks_memory_kind kind, uint64_t bytes);

#endif
