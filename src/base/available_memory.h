/* SPDX-License-Identifier: Apache-2.0
 *
 * available_memory.h: reports what this node has left: memory, cores, processes, and disks of
 * its own. */
#ifndef RKS_BASE_AVAILABLE_MEMORY_H
#define RKS_BASE_AVAILABLE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Returns how many bytes of memory this process may still take: MemAvailable, or less if a control
 * group (version 1 or 2; this process's own or one above it) leaves less. Pages of files that were
 * not used recently count as free. `root` is "", or a folder that stands for / in tests. Returns
 * UINT64_MAX if nothing is known. */
uint64_t rks_memory_available(const char *root);

/* Returns how many bytes the kernel can give this process before it kills one: the same, and pages
 * of files that are in use (of shards that are read, for example), and swap. A process that asks
 * for more is refused for good reason. */
uint64_t rks_memory_obtainable(const char *root);

/* Returns the lowest limit of memory that this process's control group or one above it sets;
 * UINT64_MAX if none does. `root`: as above. */
uint64_t rks_memory_limit(const char *root);

/* Returns how many cores this process may use, at least 1: those of its affinity, or fewer if a
 * control group (version 1 or 2) gives it less time. `root`: as above. */
uint32_t rks_cores_available(const char *root);

/* Returns how many processes and threads the control groups (version 1 or 2, pids.max) let this
 * process start; UINT64_MAX if they set no limit. `root`: as above. */
uint64_t rks_processes_available(const char *root);

/* Returns the name of `path`'s file system if other nodes may share it ("NFS", "Lustre", ...) or if
 * it lies in memory (then *memory is true). Returns NULL for a disk of this node, and if `path`
 * does not exist. The name is static. */
const char *rks_shared_filesystem(const char *path, bool *memory);

#endif
