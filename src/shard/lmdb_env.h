/* SPDX-License-Identifier: Apache-2.0
 *
 * lmdb_env.h: the LMDB environment of a shard's file: three named databases, one write transaction
 * at a time, commits with LMDB's default sync. lmdb_env.c is the only file that includes lmdb.h.
 * One thread at a time; it may change between calls. No lock of LMDB's own is taken. */
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
    RKS_LMDB_PLAIN = 0 /* of an environment without named ones */
} rks_lmdb_db;

/* The entry of the main database that says whose data the file holds: the shard id, 16 bytes. */
#define RKS_MAIN_SHARD_KEY "shard"

typedef struct rks_lmdb_entry {
    const uint8_t *key;
    size_t key_size;
    const uint8_t *value; /* until the visit ends */
    size_t size;
    uint64_t offset; /* of the value in the file; UINT64_MAX for one of a page or less, which a
                      * commit may move */
} rks_lmdb_entry;

/* For writing, the file is made where it is missing. Read-only never writes; a file that is
 * shorter than its own page count is RKS_ERR_CORRUPT there. LMDB trusts what it reads: a file from
 * elsewhere is opened only in a process that may die. */
rks_status rks_lmdb_open(const char *path, bool read_only, rks_lmdb **env, rks_error *err);
/* A new environment of the default database alone, for other readers of LMDB; keys as they are, in
 * any order, each once. The file must not be there. It is durable, and whole, after
 * rks_lmdb_fill_file alone. */
rks_status rks_lmdb_open_plain(const char *path, rks_lmdb **env, rks_error *err);
/* What was not committed is gone. NULL is accepted. */
void rks_lmdb_close(rks_lmdb *env);

uint32_t rks_lmdb_page_size(const rks_lmdb *env);
/* Bytes that the pages in use take: the file must not be shorter. After a commit. */
uint64_t rks_lmdb_file_size(const rks_lmdb *env);
uint64_t rks_lmdb_count(rks_lmdb *env, rks_lmdb_db db);

/* Puts one entry into the open write transaction, or a new one. Commits by itself only where the
 * map must grow first. `append`: the key is above all others of the database. */
rks_status rks_lmdb_put(rks_lmdb *env, rks_lmdb_db db, const void *key, size_t key_size,
                        const void *value, size_t size, bool append, rks_error *err);
uint64_t rks_lmdb_pending(const rks_lmdb *env); /* bytes put and not committed */
/* Durable when it returns. Without an open transaction it does nothing. */
rks_status rks_lmdb_commit(rks_lmdb *env, rks_error *err);

/* What LMDB's current meta page says: the file offset of the main database's only page. No
 * transaction is open. RKS_ERR_CORRUPT if there is no such page. */
rks_status rks_lmdb_main_page(rks_lmdb *env, uint64_t *offset, rks_error *err);

/* LMDB need not write the file's last pages where it has freed them again; this makes the file as
 * long as its pages. */
rks_status rks_lmdb_fill_file(rks_lmdb *env, rks_error *err);

/* The rest reads, or deletes, what was committed; no write transaction may be open. */

/* Calls `visit` for each entry at or above `from` (NULL: all), until it sets *stop or fails. */
typedef rks_status (*rks_lmdb_visit_fn)(void *user, const rks_lmdb_entry *entry, bool *stop,
                                        rks_error *err);
rks_status rks_lmdb_walk(rks_lmdb *env, rks_lmdb_db db, const void *from, size_t from_size,
                         rks_lmdb_visit_fn visit, void *user, rks_error *err);
/* Deletes each entry at or above `from`, durably. */
rks_status rks_lmdb_delete_from(rks_lmdb *env, rks_lmdb_db db, const void *from, size_t from_size,
                                rks_error *err);

/* LMDB's version; valid until the thread asks again. */
const char *rks_lmdb_version(void);

#endif
