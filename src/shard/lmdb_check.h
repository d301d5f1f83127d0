/* SPDX-License-Identifier: Apache-2.0
 *
 * lmdb_check.h: checks whether an LMDB file is safe to open with LMDB. LMDB trusts what it reads: a
 * wrong page number, size or flag ends the process with a signal, or makes it copy bytes that do
 * not exist. This code walks the same pages without LMDB, with plain reads, and trusts nothing. */
#ifndef RKS_SHARD_LMDB_CHECK_H
#define RKS_SHARD_LMDB_CHECK_H

#include "rankstore/base.h"

/* One entry of a named database, in key order, or an entry of the main database that is not a named
 * database. */
typedef struct rks_lmdb_found {
    const char *db; /* "blocks", ...; "" is the main database */
    const uint8_t *key;
    size_t key_size;
    uint64_t offset; /* of the value in the file */
    size_t size;     /* of the value, in bytes */
} rks_lmdb_found;

typedef rks_status (*rks_lmdb_found_fn)(void *user, const rks_lmdb_found *found, rks_error *err);

/* Checks all that LMDB 0.9 would use of the file `fd`: both meta pages, and from the newer one
 * every page of every tree (bounds, kind, order of keys, counts, no page used twice) and the lists
 * of free pages. Calls `visit` for each entry of the named databases. The file must not change
 * meanwhile. Needs a bit of memory for each page, and a page for each level. RKS_ERR_CORRUPT names
 * `path`, the place and what is wrong. */
rks_status rks_lmdb_check(int fd, const char *path, rks_lmdb_found_fn visit, void *user,
                          rks_error *err);

/* Finds the value of `key` in a page, whose bytes may be hostile. The result points into the page;
 * NULL if the page is not a leaf or has no such value of `size` bytes. */
const uint8_t *rks_lmdb_leaf_find(const uint8_t *page, size_t page_size, const char *key,
                                  size_t size);
/* Copies the value of `key` in the main database of a file, whose bytes may be hostile. Returns
 * false if there is no such value of `size` bytes, or the file cannot be read. */
bool rks_lmdb_main_find(int fd, const char *path, const char *key, void *value, size_t size);

#endif
