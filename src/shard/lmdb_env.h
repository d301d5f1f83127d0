/* SPDX-License-Identifier: Apache-2.0
 *
 * lmdb_env.h: the LMDB environment of a shard's file: three named databases, one write transaction
 * at a time, commits with LMDB's default sync. Only lmdb_env.c includes lmdb.h. One thread at a
 * time may use it, not always the same one. LMDB's own lock is not used. */
#ifndef RKS_SHARD_LMDB_ENV_H
#define RKS_SHARD_LMDB_ENV_H

#include "base/buffer.h"

typedef struct rks_lmdb rks_lmdb;

typedef enum rks_lmdb_db {
    RKS_LMDB_BLOCKS, /* key: block number, u64 big-endian */
    RKS_LMDB_UNITS,  /* key: position in the file, u64 big-endian */
    RKS_LMDB_INDEX,  /* key: text */
    RKS_LMDB_MAIN,   /* LMDB's list of these three, and RKS_MAIN_SHARD_KEY */
    RKS_LMDB_DBS,
    RKS_LMDB_PLAIN = 0 /* the only one of a plain environment */
} rks_lmdb_db;

/* The main database's entry that names the file's shard: the shard id, 16 bytes. */
#define RKS_MAIN_SHARD_KEY "shard"

typedef struct rks_lmdb_entry {
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value; /* valid until the visit ends */
    size_t size;
    uint64_t offset; /* of the value in the file; UINT64_MAX if it has a page or less, since a
                      * commit may move it */
} rks_lmdb_entry;

/* Opens the file. For writing, creates it if it is missing. Read-only never writes; it returns
 * RKS_ERR_CORRUPT if the file is shorter than its page count. LMDB trusts what it reads: open a
 * file from elsewhere only in a process that may die. */
rks_status rks_lmdb_open(const char *path, bool read_only, rks_lmdb **env, rks_error *err);
/* Makes a new environment with the default database alone, for other readers of LMDB. Keys are
 * stored as they are, in any order, each at most once. The file must not exist. It is durable and
 * whole only after rks_lmdb_fill_file. */
rks_status rks_lmdb_open_plain(const char *path, rks_lmdb **env, rks_error *err);
/* Closes it and drops what was not committed. NULL is accepted. */
void rks_lmdb_close(rks_lmdb *env);

uint32_t rks_lmdb_page_size(const rks_lmdb *env);
/* Returns the bytes that the used pages take; the file must not be shorter. Call it after a
 * commit. */
uint64_t rks_lmdb_file_size(const rks_lmdb *env);
uint64_t rks_lmdb_count(rks_lmdb *env, rks_lmdb_db db);

/* Puts one entry, whose offset is not used, into the open write transaction, or begins one. Commits
 * by itself only if the map must grow first. `append` means that the key is above all others of the
 * database. */
rks_status rks_lmdb_put(rks_lmdb *env, rks_lmdb_db db, const rks_lmdb_entry *entry, bool append,
                        rks_error *err);
/* The same for a key that is text, in any order of keys. */
rks_status rks_lmdb_put_text(rks_lmdb *env, rks_lmdb_db db, const char *key, const void *value,
                             size_t size, rks_error *err);
uint64_t rks_lmdb_pending(const rks_lmdb *env); /* bytes put and not committed */
/* Commits; the data is durable when it returns. Does nothing without an open transaction. */
rks_status rks_lmdb_commit(rks_lmdb *env, rks_error *err);

/* Finds the file offset of the main database's only page, from LMDB's current meta page. No
 * transaction may be open. RKS_ERR_CORRUPT if there is no such page. */
rks_status rks_lmdb_main_page(rks_lmdb *env, uint64_t *offset, rks_error *err);

/* Makes the file as long as its pages: LMDB need not write the last pages if it has freed them
 * again. */
rks_status rks_lmdb_fill_file(rks_lmdb *env, rks_error *err);

/* The rest reads or deletes what was committed. No write transaction may be open. */

/* Calls `visit` for each entry at or above `from` (NULL: all), until it sets *stop or fails. */
typedef rks_status (*rks_lmdb_visit_fn)(void *user, const rks_lmdb_entry *entry, bool *stop,
                                        rks_error *err);
rks_status rks_lmdb_walk(rks_lmdb *env, rks_lmdb_db db, const void *from, size_t from_size,
                         rks_lmdb_visit_fn visit, void *user, rks_error *err);
/* Deletes every entry at or above `from`, durably. */
rks_status rks_lmdb_delete_from(rks_lmdb *env, rks_lmdb_db db, const void *from, size_t from_size,
                                rks_error *err);

/* Returns LMDB's version; valid until this thread calls it again. */
const char *rks_lmdb_version(void);

#endif
