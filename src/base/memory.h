/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: all heap memory of the library, so that tests can count it and make it fail. */
#ifndef RKS_BASE_MEMORY_H
#define RKS_BASE_MEMORY_H

#include "rankstore/base.h"

/* Zeroed memory for `count` things of `size` bytes, also for 0 of them. The product is checked.
 * NULL on failure, with *err filled (RKS_ERR_MEMORY, naming the amount). */
void *rks_alloc(size_t count, size_t size, rks_error *err);

/* Like rks_alloc, but not zeroed: for buffers that are filled at once. */
void *rks_alloc_raw(size_t count, size_t size, rks_error *err);

/* Changes the room to count * size; new bytes are undefined. On failure NULL, and the old
 * memory stays. */
void *rks_realloc(void *memory, size_t count, size_t size, rks_error *err);

/* NULL is accepted. */
void rks_free(void *memory);

char *rks_strdup(const char *text, rks_error *err);
/* printf into new memory. */
char *rks_format(rks_error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For tests: the n-th allocation from now fails (1 is the next), once; 0 ends it. All threads. */
void rks_memory_fail_at(long n);
/* How many allocations are left until the one that fails; 0: it has failed, or none is to. */
long rks_memory_fail_left(void);
/* Live allocations of all threads. */
long rks_memory_in_use(void);

#endif
