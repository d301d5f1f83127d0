/* SPDX-License-Identifier: Apache-2.0
 *
 * scratch.h: large arrays of one process for a while. Up to 96 MiB they are plain memory. Above that
 * they lie in a file without a name, whose pages the kernel writes out when memory is short, so that
 * work over any number of samples needs no more memory than there is. */
#ifndef RKS_BASE_SCRATCH_H
#define RKS_BASE_SCRATCH_H

#include "rankstore/base.h"

/* Begin with {0}. */
typedef struct rks_scratch {
    void *bytes;
    uint64_t size;
    bool is_file;
} rks_scratch;

/* `count` things of `size` bytes, zeroed. The file is in TMPDIR, /tmp, /var/tmp or `directory` (NULL:
 * none), the first one that is a disk of this node and has the room; if there is none, it is memory
 * after all. RKS_ERR_MEMORY names the amount. */
rks_status rks_scratch_take(uint64_t count, size_t size, const char *directory,
                            rks_scratch *scratch, rks_error *err);
void rks_scratch_give(rks_scratch *scratch); /* {0} is accepted, and left */

/* For tests: arrays up to this size are memory; 0: 96 MiB again. */
void rks_scratch_memory_max(uint64_t bytes);

#endif
