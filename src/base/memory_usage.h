/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_usage.h: counts how much memory this process holds, by kind; rks_memory_use_get() of the
 * public header reads the counts. Code that allocates memory of a kind adds it here, and subtracts
 * it when it frees it.
 *
 * The counters belong to the process, not to a store: a process is what runs out of memory, and
 * much of it (batches, a shared index) outlives its store. Ranks that are threads of one process
 * share the counters. Any thread may call this. */
#ifndef RKS_BASE_MEMORY_USAGE_H
#define RKS_BASE_MEMORY_USAGE_H

#include "rankstore/base.h"

/* Adds. Not for RKS_MEMORY_RESIDENT, which the kernel counts. */
void rks_usage_add(enum rks_memory_kind kind, uint64_t bytes);
/* Subtracts; never more than was added. */
void rks_usage_sub(enum rks_memory_kind kind, uint64_t bytes);

#endif
