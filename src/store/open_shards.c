/* SPDX-License-Identifier: Apache-2.0
 *
 * open_shards.c: the shards that lie in this rank's directories. Opening one takes a few reads of two
 * files, one after the other, so many are opened by several threads: a disk answers them side by
 * side. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "store/store.h"

enum { SHARDS_A_THREAD = 128, HELPERS_MAX = 7 };

static size_t shards_a_thread = SHARDS_A_THREAD;

void rks_store_shards_a_thread(size_t shards)
{
    shards_a_thread = shards == 0 ? SHARDS_A_THREAD : shards;
}

rks_status rks_store_open_shard(rks_store *store, const char *directory, size_t number,
                                rks_error *err)
{
    const rks_dataset_shard *named = &store->dataset->shards[number];
    char *path = rks_format(err, "%s/%s.json", directory, named->name);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_error local;
    rks_shard *shard = NULL;
    rks_status status = RKS_OK;
    if (access(path, F_OK) != 0 && errno == ENOENT)
        goto out;
    status = rks_shard_open(path, &shard, &local);
    if (status == RKS_ERR_NOT_FOUND) {
        status = RKS_OK;
    } else if (status != RKS_OK) {
        if (err != NULL)
            *err = local;
    } else if (!rks_digest_equal(rks_shard_id(shard), named->id) ||
               !rks_digest_equal(rks_shard_manifest_digest(shard), named->manifest) ||
               rks_shard_count(shard) != named->samples) {
        status =
            rks_fail(err, RKS_ERR_CORRUPT, 0, "%s: is not the shard that dataset.json names", path);
        rks_shard_close(shard);
    } else {
        store->shards[number] = shard;
    }
out:
    rks_free(path);
    return status;
}

typedef struct opening {
    rks_store *store;
    atomic_size_t next;
    pthread_mutex_t mutex;
    size_t failed; /* the first shard that could not be opened */
    rks_status status;
    rks_error err;
} opening;

static void *open_some(void *user)
{
    opening *o = user;
    size_t count = o->store->dataset->shard_count, at;
    while ((at = atomic_fetch_add(&o->next, 1)) < count) {
        rks_error why;
        rks_status status =
            rks_store_open_shard(o->store, rks_store_directory_of(o->store, at), at, &why);
        if (status == RKS_OK)
            continue;
        pthread_mutex_lock(&o->mutex);
        if (at < o->failed) { /* those before it are open, or with another thread */
            o->failed = at;
            o->status = status;
            o->err = why;
        }
        pthread_mutex_unlock(&o->mutex);
        atomic_store(&o->next, count);
    }
    return NULL;
}

/* Signals are for the program's own threads, but for a fault in a map. */
static size_t start_helpers(opening *o, pthread_t *helpers)
{
    size_t count = 0, wanted = o->store->dataset->shard_count / shards_a_thread;
    sigset_t mask, before;
    sigfillset(&mask);
    sigdelset(&mask, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &mask, &before);
    while (count < wanted && count < HELPERS_MAX &&
           pthread_create(&helpers[count], NULL, open_some, o) == 0)
        count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return count;
}

rks_status rks_store_open_shards(rks_store *store, rks_error *err)
{
    pthread_t helpers[HELPERS_MAX];
    opening o = {.store = store, .failed = SIZE_MAX};
    store->shards = rks_alloc(store->dataset->shard_count, sizeof(*store->shards), err);
    if (store->shards == NULL)
        return RKS_ERR_MEMORY;
    pthread_mutex_init(&o.mutex, NULL);
    size_t count = start_helpers(&o, helpers);
    open_some(&o);
    for (size_t i = 0; i < count; i++)
        pthread_join(helpers[i], NULL);
    pthread_mutex_destroy(&o.mutex);
    if (o.status != RKS_OK && err != NULL)
        *err = o.err;
    return o.status;
}
