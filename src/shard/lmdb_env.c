/* SPDX-License-Identifier: Apache-2.0
 *
 * lmdb_env.c: wraps LMDB; the only file that includes lmdb.h.
 *
 * An LMDB page starts with its number (u64), two bytes of padding and its flags (u16). A value
 * above the in-page limit starts 16 bytes into a page flagged as overflow, and continues without
 * gaps over the next pages. So the page tells the value's place in the file. */
#include "shard/lmdb_env.h"

#include <stdio.h>
#include <errno.h>
#include <inttypes.h>
#include <lmdb.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"

enum { PAGE_HEADER = 16, PAGE_FLAGS_AT = 10, PAGE_OVERFLOW = 0x04 };
/* Offsets in a meta page; lmdb_check.c has all of its fields. */
enum { META_MAIN_DEPTH = 94, META_MAIN_ROOT = 128, META_TRANSACTION = 144, META_SIZE = 152 };

static const uint64_t FIRST_MAP = UINT64_C(256) << 20;
/* Room in the map for the trees' own pages, beside the values of one transaction. */
static const uint64_t MAP_SLACK = UINT64_C(32) << 20;

struct rks_lmdb {
    MDB_env *env;
    MDB_txn *txn; /* the open write transaction, or NULL */
    bool plain;
    MDB_dbi dbi[RKS_LMDB_DBS];
    char *path;
    uint64_t map_size;
    uint64_t used;    /* bytes used at the start of txn */
    uint64_t pending; /* bytes of the pages put since then */
    uint32_t page_size;
};

static rks_status lmdb_error(const rks_lmdb *env, int code, const char *doing, uint64_t needed,
                             rks_error *err)
{
    if (code == ENOMEM)
        return rks_fail_errno(err, code, "%s: %s", env->path, doing);
    if (code > 0)
        return rks_fail_write(err, code, env->path, needed);
    rks_status status = code == MDB_MAP_FULL || code == MDB_TXN_FULL ? RKS_ERR_IO : RKS_ERR_CORRUPT;
    return rks_fail(err, status, code, "%s: %s: %s", env->path, doing, mdb_strerror(code));
}

static rks_status open_databases(rks_lmdb *env, bool read_only, rks_error *err)
{
    static const char *const names[RKS_LMDB_DBS] = {"blocks", "units", "index", NULL};
    MDB_txn *txn = NULL;
    int code = mdb_txn_begin(env->env, NULL, read_only ? MDB_RDONLY : 0, &txn);
    for (int i = 0; code == 0 && !env->plain && i < RKS_LMDB_DBS; i++)
        code = mdb_dbi_open(txn, names[i], read_only || names[i] == NULL ? 0 : MDB_CREATE,
                            &env->dbi[i]);
    if (code == 0 && env->plain)
        code = mdb_dbi_open(txn, NULL, 0, &env->dbi[RKS_LMDB_PLAIN]);
    if (code == 0)
        code = mdb_txn_commit(txn); /* this keeps the handles */
    else if (txn != NULL)
        mdb_txn_abort(txn);
    if (code == MDB_NOTFOUND)
        return rks_fail(err, RKS_ERR_CORRUPT, code, "%s: is not a shard: a database is missing",
                        env->path);
    return code == 0 ? RKS_OK : lmdb_error(env, code, "opening its databases", FIRST_MAP, err);
}

/* Grows the file to the size of its pages. Reading a map beyond the file's end would raise a
 * signal. */
static rks_status check_size(rks_lmdb *env, bool read_only, rks_error *err)
{
    struct stat info;
    mdb_filehandle_t fd;
    int code = mdb_env_get_fd(env->env, &fd);
    if (code == 0 && fstat(fd, &info) != 0)
        code = errno;
    if (code != 0)
        return lmdb_error(env, code, "looking at its size", 0, err);
    uint64_t needed = rks_lmdb_file_size(env);
    if (needed > INT64_MAX / 2)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: claims %" PRIu64 " bytes", env->path, needed);
    if ((uint64_t)info.st_size >= needed)
        return RKS_OK;
    if (read_only)
        return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: %jd bytes, its pages take %" PRIu64,
                        env->path, (intmax_t)info.st_size, needed);
    if (ftruncate(fd, (off_t)needed) != 0 || fsync(fd) != 0)
        return lmdb_error(env, errno, "growing it", needed, err);
    return RKS_OK;
}

rks_status rks_lmdb_fill_file(rks_lmdb *env, rks_error *err)
{
    rks_status status = check_size(env, false, err);
    int code = status == RKS_OK && env->plain ? mdb_env_sync(env->env, 1) : 0;
    return code == 0 ? status : lmdb_error(env, code, "syncing it", 0, err);
}

static rks_status open_env(rks_lmdb *env, bool read_only, rks_error *err)
{
    struct stat info;
    rks_hold_standard_files();
    env->map_size = FIRST_MAP;
    if (stat(env->path, &info) == 0 && info.st_size > 0)
        env->map_size = rks_round_up(2 * (uint64_t)info.st_size, FIRST_MAP);
    int code = mdb_env_create(&env->env);
    if (code == 0)
        code = mdb_env_set_maxdbs(env->env, RKS_LMDB_DBS);
    if (code == 0)
        code = mdb_env_set_mapsize(env->env, env->map_size);
    if (code == 0)
        code = mdb_env_open(env->env, env->path,
                            MDB_NOSUBDIR | MDB_NOLOCK | (read_only ? MDB_RDONLY : 0) |
                                (env->plain ? MDB_NOSYNC : 0),
                            0644);
    if (code != 0)
        return lmdb_error(env, code, "opening it", FIRST_MAP, err);
    MDB_stat stat_of;
    MDB_envinfo env_info;
    mdb_env_stat(env->env, &stat_of);
    mdb_env_info(env->env, &env_info);
    env->page_size = stat_of.ms_psize;
    env->map_size = env_info.me_mapsize;
    rks_status status = check_size(env, read_only, err);
    return status == RKS_OK ? open_databases(env, read_only, err) : status;
}

static rks_status open_path(const char *path, bool read_only, bool plain, rks_lmdb **env,
                            rks_error *err)
{
    rks_lmdb *opened = rks_alloc(1, sizeof(*opened), err);
    if (opened == NULL)
        return RKS_ERR_MEMORY;
    opened->plain = plain;
    opened->path = rks_strdup(path, err);
    rks_status status = opened->path == NULL ? RKS_ERR_MEMORY : open_env(opened, read_only, err);
    if (status == RKS_OK) {
        *env = opened;
        opened = NULL;
    }
    rks_lmdb_close(opened);
    return status;
}

rks_status rks_lmdb_open(const char *path, bool read_only, rks_lmdb **env, rks_error *err)
{
    return open_path(path, read_only, false, env, err);
}

rks_status rks_lmdb_open_plain(const char *path, rks_lmdb **env, rks_error *err)
{
    return open_path(path, false, true, env, err);
}

void rks_lmdb_close(rks_lmdb *env)
{
    if (env == NULL)
        return;
    if (env->txn != NULL)
        mdb_txn_abort(env->txn);
    if (env->env != NULL)
        mdb_env_close(env->env);
    rks_free(env->path);
    rks_free(env);
}

uint32_t rks_lmdb_page_size(const rks_lmdb *env)
{
    return env->page_size;
}

uint64_t rks_lmdb_file_size(const rks_lmdb *env)
{
    MDB_envinfo info;
    mdb_env_info(env->env, &info);
    uint64_t size;
    if (__builtin_mul_overflow((uint64_t)info.me_last_pgno + 1, env->page_size, &size))
        size = UINT64_MAX;
    return size;
}

rks_status rks_lmdb_main_page(rks_lmdb *env, uint64_t *offset, rks_error *err)
{
    MDB_envinfo info;
    mdb_filehandle_t fd;
    uint8_t meta[META_SIZE];
    mdb_env_info(env->env, &info);
    int code = mdb_env_get_fd(env->env, &fd);
    if (code != 0)
        return lmdb_error(env, code, "finding its file", 0, err);
    for (uint64_t page = 0; page < 2; page++) {
        rks_status status =
            rks_file_read_at(fd, env->path, page * env->page_size, meta, sizeof(meta), err);
        if (status != RKS_OK)
            return status;
        uint64_t root = rks_load_u64(meta + META_MAIN_ROOT);
        if (rks_load_u64(meta + META_TRANSACTION) != info.me_last_txnid ||
            root > info.me_last_pgno || rks_load_u16(meta + META_MAIN_DEPTH) != 1)
            continue;
        *offset = root * env->page_size;
        return RKS_OK;
    }
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: its current meta page names no main database",
                    env->path);
}

uint64_t rks_lmdb_count(rks_lmdb *env, rks_lmdb_db db)
{
    MDB_txn *txn = NULL;
    MDB_stat found = {0};
    if (mdb_txn_begin(env->env, NULL, MDB_RDONLY, &txn) != 0)
        return 0;
    mdb_stat(txn, env->dbi[db], &found);
    mdb_txn_abort(txn);
    return found.ms_entries;
}

uint64_t rks_lmdb_pending(const rks_lmdb *env)
{
    return env->pending;
}

/* Begins a write transaction with room in the map for `needed` bytes. No transaction may be
 * open. */
static rks_status begin_write(rks_lmdb *env, uint64_t needed, rks_error *err)
{
    env->used = rks_lmdb_file_size(env);
    env->pending = 0;
    uint64_t wanted = env->used + needed + 2 * MAP_SLACK;
    if (wanted > env->map_size) {
        uint64_t grown = rks_round_up(wanted + wanted / 2, FIRST_MAP);
        int code = mdb_env_set_mapsize(env->env, grown);
        if (code != 0)
            return lmdb_error(env, code, "growing its map", grown, err);
        env->map_size = grown;
    }
    int code = mdb_txn_begin(env->env, NULL, 0, &env->txn);
    if (code != 0)
        env->txn = NULL;
    return code == 0 ? RKS_OK : lmdb_error(env, code, "beginning a transaction", needed, err);
}

rks_status rks_lmdb_put(rks_lmdb *env, rks_lmdb_db db, const rks_lmdb_entry *entry, bool append,
                        rks_error *err)
{
    uint64_t room = rks_round_up(entry->size + PAGE_HEADER, env->page_size) + env->page_size;
    rks_status status = RKS_OK;
    /* A unit's record may use more of the slack, so that it stays in the transaction of its last
     * block. */
    uint64_t slack = db == RKS_LMDB_UNITS ? MAP_SLACK / 2 : MAP_SLACK;
    if (env->txn != NULL && env->used + env->pending + room + slack > env->map_size)
        status = rks_lmdb_commit(env, err);
    if (status == RKS_OK && env->txn == NULL)
        status = begin_write(env, room, err);
    if (status != RKS_OK)
        return status;
    MDB_val mdb_key = {entry->key_size, (void *)(uintptr_t)entry->key};
    MDB_val mdb_value = {entry->size, (void *)(uintptr_t)entry->value};
    int code = mdb_put(env->txn, env->dbi[db], &mdb_key, &mdb_value,
                       append       ? MDB_APPEND
                       : env->plain ? MDB_NOOVERWRITE
                                    : 0);
    env->pending += room;
    return code == 0 ? RKS_OK : lmdb_error(env, code, "putting a value", env->pending, err);
}

rks_status rks_lmdb_put_text(rks_lmdb *env, rks_lmdb_db db, const char *key, const void *value,
                             size_t size, rks_error *err)
{
    const rks_lmdb_entry entry = {
        .key = (const uint8_t *)key, .key_size = strlen(key), .value = value, .size = size};
    return rks_lmdb_put(env, db, &entry, false, err);
}

rks_status rks_lmdb_commit(rks_lmdb *env, rks_error *err)
{
    if (env->txn == NULL)
        return RKS_OK;
    int code = mdb_txn_commit(env->txn);
    uint64_t written = env->pending;
    env->txn = NULL; /* LMDB frees it also on failure */
    env->pending = 0;
    return code == 0 ? RKS_OK : lmdb_error(env, code, "committing", written, err);
}

/* Finds the value's place in the file. Returns false if its page is not an overflow page. */
static bool locate(const rks_lmdb *env, const MDB_val *value, uint64_t *offset)
{
    *offset = UINT64_MAX;
    if (value->mv_size <= env->page_size)
        return true;
    const uint8_t *page = (const uint8_t *)value->mv_data - PAGE_HEADER;
    uint64_t number = rks_load_u64(page);
    if ((rks_load_u16(page + PAGE_FLAGS_AT) & PAGE_OVERFLOW) == 0 ||
        number > rks_lmdb_file_size(env) / env->page_size)
        return false;
    *offset = number * env->page_size + PAGE_HEADER;
    return true;
}

static rks_status visit_all(rks_lmdb *env, MDB_cursor *cursor, MDB_val *key,
                            rks_lmdb_visit_fn visit, void *user, rks_error *err)
{
    MDB_val value;
    bool stop = false;
    int code =
        mdb_cursor_get(cursor, key, &value, key->mv_data == NULL ? MDB_FIRST : MDB_SET_RANGE);
    while (code == 0 && !stop) {
        rks_lmdb_entry entry = {.key = key->mv_data,
                                .key_size = key->mv_size,
                                .value = value.mv_data,
                                .size = value.mv_size};
        if (!locate(env, &value, &entry.offset))
            return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: a value lies outside its pages",
                            env->path);
        rks_status status = visit(user, &entry, &stop, err);
        if (status != RKS_OK)
            return status;
        if (!stop)
            code = mdb_cursor_get(cursor, key, &value, MDB_NEXT);
    }
    return code == 0 || code == MDB_NOTFOUND ? RKS_OK : lmdb_error(env, code, "reading", 0, err);
}

rks_status rks_lmdb_walk(rks_lmdb *env, rks_lmdb_db db, const void *from, size_t from_size,
                         rks_lmdb_visit_fn visit, void *user, rks_error *err)
{
    MDB_txn *txn = NULL;
    MDB_cursor *cursor = NULL;
    MDB_val key = {from_size, (void *)from};
    int code = mdb_txn_begin(env->env, NULL, MDB_RDONLY, &txn);
    if (code == 0)
        code = mdb_cursor_open(txn, env->dbi[db], &cursor);
    rks_status status = code == 0 ? visit_all(env, cursor, &key, visit, user, err)
                                  : lmdb_error(env, code, "beginning to read", 0, err);
    if (cursor != NULL)
        mdb_cursor_close(cursor);
    if (txn != NULL)
        mdb_txn_abort(txn);
    return status;
}

rks_status rks_lmdb_delete_from(rks_lmdb *env, rks_lmdb_db db, const void *from, size_t from_size,
                                rks_error *err)
{
    rks_status status = begin_write(env, 0, err);
    if (status != RKS_OK)
        return status;
    MDB_cursor *cursor = NULL;
    MDB_val key = {from_size, (void *)from}, value;
    int code = mdb_cursor_open(env->txn, env->dbi[db], &cursor);
    if (code == 0)
        code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    bool changed = code == 0;
    while (code == 0) {
        code = mdb_cursor_del(cursor, 0);
        if (code == 0) /* the cursor now stands on the next entry, or after the last */
            code = mdb_cursor_get(cursor, &key, &value, MDB_GET_CURRENT);
        if (code == EINVAL)
            code = MDB_NOTFOUND;
    }
    if (cursor != NULL)
        mdb_cursor_close(cursor);
    if (code == MDB_NOTFOUND && changed)
        return rks_lmdb_commit(env, err);
    mdb_txn_abort(env->txn);
    env->txn = NULL;
    return code == MDB_NOTFOUND ? RKS_OK : lmdb_error(env, code, "deleting", MAP_SLACK, err);
}

const char *rks_lmdb_version(void)
{
    static _Thread_local char text[40];
    int major, minor, patch;
    mdb_version(&major, &minor, &patch);
    snprintf(text, sizeof(text), "%d.%d.%d", major, minor, patch);
    return text;
}
