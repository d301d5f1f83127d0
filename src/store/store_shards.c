/* SPDX-License-Identifier: Apache-2.0
 *
 * store_shards.c: the shards that lie in this rank's directories. Each directory is listed once, as
 * most of a job's shards may lie elsewhere. Opening one takes a few reads of two files, one after
 * the other, so many are opened by several threads: a disk answers them side by side. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file_wait.h"
#include "base/memory.h"
#include "base/thread.h"
#include "store/store.h"

enum { SHARDS_A_THREAD = 128, HELPERS_MAX = 7 };

static size_t shards_a_thread = SHARDS_A_THREAD;

void rks_store_shards_a_thread(size_t shards)
{
    shards_a_thread = shards == 0 ? SHARDS_A_THREAD : shards;
}

/* Opens the shard if it lies in `directory`. *other: the file there is another dataset's shard. */
static rks_status open_if_there(rks_store *store, const char *directory, size_t number, bool *other,
                                rks_error *err)
{
    const rks_dataset_shard *named = &store->dataset->shards[number];
    char *path = rks_format(err, "%s/%s.json", directory, named->name);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    rks_error local;
    rks_shard *shard = NULL;
    rks_status status = rks_shard_open(path, &shard, &local);
    if (status == RKS_ERR_NOT_FOUND) {
        status = RKS_OK;
    } else if (status != RKS_OK) {
        if (err != NULL)
            *err = local;
    } else if (!rks_digest_equal(rks_shard_id(shard), named->id) ||
               !rks_digest_equal(rks_shard_manifest_digest(shard), named->manifest) ||
               rks_shard_count(shard) != named->samples) {
        *other = true;
        rks_shard_close(shard);
    } else {
        store->shards[number] = shard;
    }
    rks_free(path);
    return status;
}

rks_status rks_store_open_shard(rks_store *store, const char *directory, size_t number,
                                rks_error *err)
{
    bool other = false;
    rks_status status = open_if_there(store, directory, number, &other, err);
    if (status != RKS_OK || !other)
        return status;
    return rks_fail(err, RKS_ERR_CORRUPT, 0, "%s/%s.json: is not the shard that dataset.json names",
                    directory, store->dataset->shards[number].name);
}

/* ---- which are there ---------------------------------------------------------------------- */

static int by_shard_name(const void *a, const void *b)
{
    const rks_dataset_shard *left = *(const rks_dataset_shard *const *)a;
    const rks_dataset_shard *right = *(const rks_dataset_shard *const *)b;
    return strcmp(left->name, right->name);
}

static int compare_name(const void *name, const void *shard)
{
    return strcmp(name, (*(const rks_dataset_shard *const *)shard)->name);
}

/* Notes the shards whose manifest has this name: sources may share some. `sorted`: shards by
 * name. */
static void note_name(const rks_store *store, const rks_dataset_shard *const *sorted, size_t count,
                      const char *file, bool *there)
{
    static const char END[] = ".json";
    char name[256];
    size_t size = strlen(file), end = sizeof(END) - 1;
    if (size <= end || size >= sizeof(name) || strcmp(file + size - end, END) != 0)
        return;
    memcpy(name, file, size - end);
    name[size - end] = '\0';
    const rks_dataset_shard *const *found =
        bsearch(name, sorted, count, sizeof(*sorted), compare_name);
    while (found != NULL && found > sorted && strcmp(found[-1]->name, name) == 0)
        found--;
    for (; found != NULL && found < sorted + count && strcmp((*found)->name, name) == 0; found++)
        there[*found - store->dataset->shards] = true;
}

/* Lists which of the shards [first, first + count) lie in `directory`. One that cannot be listed
 * may still have them all; opening them will show. */
static rks_status list_directory(const rks_store *store, const char *directory, size_t first,
                                 size_t count, bool *there, rks_error *err)
{
    const rks_dataset_shard **sorted = rks_alloc(count, sizeof(*sorted), err);
    if (sorted == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &store->dataset->shards[first + i];
    qsort(sorted, count, sizeof(*sorted), by_shard_name);
    rks_file_wait_at(directory);
    errno = 0;
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL; errno = 0)
        note_name(store, sorted, count, entry->d_name, there);
    if (errno != 0 && errno != ENOENT && errno != ENOTDIR)
        memset(there + first, true, count);
    if (stream != NULL)
        closedir(stream);
    rks_free(sorted);
    return RKS_OK;
}

/* The same for all shards, each in its source's directory. */
static rks_status list_own(const rks_store *store, bool *there, rks_error *err)
{
    size_t shards = store->dataset->shard_count, sources = store->dataset->source_count;
    rks_status status = RKS_OK;
    for (size_t first = 0, end; status == RKS_OK && first < shards; first = end) {
        const char *directory = rks_store_directory_of(store, first);
        for (end = sources == 0 ? shards : first + 1;
             end < shards && rks_store_directory_of(store, end) == directory;)
            end++;
        if (directory != NULL)
            status = list_directory(store, directory, first, end - first, there, err);
    }
    return status;
}

/* Lists the numbers of the shards that are not open yet and may be in `folder`; NULL: in their
 * sources' directories. */
static rks_status list_shards(const rks_store *store, const char *folder, size_t **numbers,
                              size_t *count, rks_error *err)
{
    size_t shards = store->dataset->shard_count;
    rks_status status = RKS_ERR_MEMORY;
    bool *there = rks_alloc(shards, sizeof(*there), err);
    *numbers = rks_alloc(shards, sizeof(**numbers), err);
    *count = 0;
    if (there != NULL && *numbers != NULL)
        status = folder == NULL ? list_own(store, there, err)
                                : list_directory(store, folder, 0, shards, there, err);
    for (size_t i = 0; status == RKS_OK && i < shards; i++)
        if (there[i] && store->shards[i] == NULL)
            (*numbers)[(*count)++] = i;
    rks_free(there);
    return status;
}

/* Opens copies of the shards of a dataset, of which shards[0] is the first one's, in all folders.
 */
static rks_status open_copies(const rks_store *store, const rks_dataset *dataset,
                              const char *directory, rks_shard **shards, rks_error *err)
{
    rks_status status = RKS_OK;
    if (directory != NULL)
        status = rks_dataset_open_copies(dataset, directory, 0, dataset->shard_count, shards, err);
    for (size_t i = 0; status == RKS_OK && i < store->folders.count; i++)
        status = rks_dataset_open_copies(dataset, store->folders.paths[i], 0, dataset->shard_count,
                                         shards, err);
    return status;
}

rks_status rks_store_open_copies(rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    rks_status status = RKS_OK;
    if (dataset->source_count == 0)
        return open_copies(store, dataset, store->directory, store->shards, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->source_count; i++) {
        const rks_dataset_source *source = &dataset->sources[i];
        status = open_copies(store, source->dataset, source->directory,
                             store->shards + source->first_shard, err);
    }
    return status;
}

/* ---- opening them -------------------------------------------------------------------------- */

typedef struct opening {
    rks_store *store;
    const char *folder;     /* NULL: the directories of their sources */
    size_t *numbers, count; /* numbers of shards */
    atomic_size_t next;     /* index into `numbers` */
    rks_file_job *job;      /* that this is a part of */
    pthread_mutex_t mutex;
    size_t failed; /* place of the first one that could not be opened */
    rks_status status;
    rks_error err;
} opening;

static rks_status open_one(const opening *o, size_t number, rks_error *err)
{
    bool other = false;
    if (o->folder == NULL)
        return rks_store_open_shard(o->store, rks_store_directory_of(o->store, number), number,
                                    err);
    return open_if_there(o->store, o->folder, number, &other, err);
}

static void open_some(opening *o)
{
    size_t at;
    while ((at = atomic_fetch_add(&o->next, 1)) < o->count) {
        rks_error why;
        rks_status status = open_one(o, o->numbers[at], &why);
        if (status == RKS_OK)
            continue;
        pthread_mutex_lock(&o->mutex);
        if (at < o->failed) { /* those before it are open, or another thread opens them */
            o->failed = at;
            o->status = status;
            o->err = why;
        }
        pthread_mutex_unlock(&o->mutex);
        atomic_store(&o->next, o->count);
    }
}

static void *help(void *user)
{
    opening *o = user;
    rks_file_wait_enter(o->job);
    open_some(o);
    rks_file_wait_leave(o->job);
    return NULL;
}

static size_t start_helpers(opening *o, pthread_t *helpers)
{
    size_t count = 0, wanted = o->count / shards_a_thread;
    while (count < wanted && count < HELPERS_MAX &&
           rks_thread_start_reader(&helpers[count], help, o) == 0)
        count++;
    return count;
}

rks_status rks_store_open_folder(rks_store *store, const char *folder, rks_error *err)
{
    pthread_t helpers[HELPERS_MAX];
    opening o = {.store = store, .folder = folder, .failed = SIZE_MAX, .job = rks_file_wait_job()};
    rks_status status = list_shards(store, folder, &o.numbers, &o.count, err);
    if (status != RKS_OK) {
        rks_free(o.numbers);
        return status;
    }
    pthread_mutex_init(&o.mutex, NULL);
    size_t count = start_helpers(&o, helpers);
    open_some(&o);
    for (size_t i = 0; i < count; i++)
        pthread_join(helpers[i], NULL);
    pthread_mutex_destroy(&o.mutex);
    rks_free(o.numbers);
    if (o.status != RKS_OK && err != NULL)
        *err = o.err;
    return o.status;
}

rks_status rks_store_open_shards(rks_store *store, rks_error *err)
{
    if (store->shards == NULL)
        store->shards = rks_alloc(store->dataset->shard_count, sizeof(*store->shards), err);
    if (store->shards == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = rks_store_open_folder(store, NULL, err);
    for (size_t i = 0; status == RKS_OK && i < store->folders.count; i++)
        status = rks_store_open_folder(store, store->folders.paths[i], err);
    return status;
}
