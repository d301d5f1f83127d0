/* SPDX-License-Identifier: Apache-2.0
 *
 * scratch.h: large temporary arrays of one process. Up to 96 MiB they are plain memory. Larger ones
 * lie in an unnamed file, whose pages the kernel writes out if memory is short. So work over any
 * number of samples needs no more memory than there is. */
#ifndef RKS_BASE_SCRATCH_H
#define RKS_BASE_SCRATCH_H

#include "rankstore/base.h"

/* Start with {0}. */
typedef struct rks_scratch {
    void *bytes;
    uint64_t size;
    bool is_file;
} rks_scratch;

/* Takes room for `count` items of `size` bytes, zeroed. The file lies in TMPDIR, /tmp, /var/tmp or
 * `directory` (may be NULL): the first that is a disk of this node and has the room. If there is
 * none, uses memory after all. RKS_ERR_MEMORY names the amount. Release with rks_scratch_give. */
rks_status rks_scratch_take(uint64_t count, size_t size, const char *directory,
                            rks_scratch *scratch, rks_error *err);
void rks_scratch_give(rks_scratch *scratch); /* {0} is accepted; leaves {0} */

/* For tests: sets the size in bytes up to which arrays are memory; 0 restores 96 MiB. */
void rks_scratch_memory_max(uint64_t bytes);

#endif
