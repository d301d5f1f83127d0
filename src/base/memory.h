/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: allocates all heap memory of the library, so that tests can count it and make it
 * fail.
 *
 * Linux promises more memory than it has, and kills a process that uses what is not there. So
 * allocations of RKS_MEMORY_LARGE bytes and more are compared with what the machine and the
 * process's control groups leave (base/available_memory.h), and refused with both numbers; what
 * several allocations take together is compared by rks_memory_check (rankstore/base.h). */
#ifndef RKS_BASE_MEMORY_H
#define RKS_BASE_MEMORY_H

#include "rankstore/base.h"

enum { RKS_MEMORY_LARGE = 256 << 20 }; /* looking costs 0.1 ms, so many bytes 50 ms */

/* Returns zeroed memory for `count` items of `size` bytes; never NULL for 0 items. Checks the
 * product for overflow. On failure returns NULL and fills *err (RKS_ERR_MEMORY, with the
 * amount). */
void *rks_alloc(size_t count, size_t size, rks_error *err);

/* Like rks_alloc, but not zeroed: for buffers that are filled at once. */
void *rks_alloc_raw(size_t count, size_t size, rks_error *err);

/* Resizes `memory` (or NULL) to count * size bytes; new bytes are undefined. On failure returns
 * NULL, fills *err and leaves `memory` as it was. */
void *rks_realloc(void *memory, size_t count, size_t size, rks_error *err);

/* NULL is accepted. */
void rks_free(void *memory);

char *rks_strdup(const char *text, rks_error *err);
/* Like printf, into new memory. NULL on failure, with *err filled. */
char *rks_format(rks_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For tests: makes the n-th allocation from now fail once (1 is the next), in any thread. 0 turns
 * it off. */
void rks_memory_fail_at(long n);
/* Returns how many allocations are left until the one that fails; 0 if it has failed or none is
 * set. */
long rks_memory_fail_left(void);
/* Returns the number of live allocations of all threads. */
long rks_memory_in_use(void);

#endif
