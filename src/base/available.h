/* SPDX-License-Identifier: Apache-2.0
 *
 * available.h: what this node has: memory for one more thing, and disks of its own. */
#ifndef RKS_BASE_AVAILABLE_H
#define RKS_BASE_AVAILABLE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes of memory that this process may still take: MemAvailable, or less if a control group
 * (version 1 or 2, this process's own or one above it) leaves less. Pages of files that were not
 * used of late count as free. `root`: "", or a folder that stands for / in tests. UINT64_MAX if
 * nothing is known. */
uint64_t rks_memory_available(const char *root);

/* Cores that this process may use, at least 1: those of its affinity, or fewer if a control group
 * (version 1 or 2) gives it less time. `root`: as above. */
uint32_t rks_cores_available(const char *root);

/* The name of the file system of `path` if other nodes may share it ("NFS", "Lustre", ...) or if it
 * is memory (`*memory`); NULL for a disk of the node and for a path that is not there. */
const char *rks_shared_filesystem(const char *path, bool *memory);

#endif
