/* SPDX-License-Identifier: Apache-2.0
 *
 * named_hash.h: hashes of files by other programs' names for them, to check what these wrote.
 * Nothing of ours is hashed by them. */
#ifndef RKS_BASE_NAMED_HASH_H
#define RKS_BASE_NAMED_HASH_H

#include "rankstore/base.h"

typedef struct rks_named_hash rks_named_hash;
enum { RKS_NAMED_HASH_TEXT = 65 };

/* Returns the name of hash `i`, the fastest first: "xxh3_64", ... "sha1". NULL after the last. */
const char *rks_named_hash_name(size_t i);
/* Begins a hash. `name` is one of these. Returns NULL if memory lacks. */
rks_named_hash *rks_named_hash_create(const char *name, rks_error *err);
void rks_named_hash_update(rks_named_hash *hash, const void *bytes, size_t size);
/* Ends it. Prints lower-case digits, as Python's hexdigest(). */
void rks_named_hash_result(rks_named_hash *hash, char text[RKS_NAMED_HASH_TEXT]);
void rks_named_hash_free(rks_named_hash *hash); /* NULL is accepted */

#endif
