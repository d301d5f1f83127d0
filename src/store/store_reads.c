/* SPDX-License-Identifier: Apache-2.0
 *
 * store_reads.c: each stretch has a state of its own, which comes back when it has ended. */
#include "store/store_reads.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

rks_status rks_store_texts_copy(rks_store_texts *texts, const char *const *all, size_t count,
                                rks_error *err)
{
    texts->all = rks_alloc(count, sizeof(*texts->all), err);
    if (texts->all == NULL)
        return RKS_ERR_MEMORY;
    texts->count = count;
    for (size_t i = 0; i < count; i++)
        if (all[i] != NULL && (texts->all[i] = rks_strdup(all[i], err)) == NULL)
            return RKS_ERR_MEMORY;
    return RKS_OK;
}

void rks_store_texts_free(rks_store_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        rks_free(texts->all[i]);
    rks_free(texts->all);
    *texts = (rks_store_texts){0};
}

rks_status rks_store_wait_for_files(rks_group *group, const rks_file_work *work, bool *left,
                                    rks_error *err)
{
    rks_status status = rks_file_wait(work, rks_group_silence_ms(group), left, err);
    if (*left)
        rks_group_outlive(group);
    return status;
}

/* ---- the datasets ---------------------------------------------------------------------------- */

enum { TEXT_LOCAL, TEXT_STORAGE, TEXT_MISSING, TEXTS };

typedef struct looking {
    rks_group *group;
    size_t count;
    rks_store_texts patterns, texts;
    rks_store_options options; /* its strings are those of `texts` */
    char **directories;
    rks_folders beside;
    rks_found_dataset *found;
} looking;

static void free_looking(void *state)
{
    looking *l = state;
    for (size_t i = 0; l->directories != NULL && i < l->count; i++)
        rks_free(l->directories[i]);
    for (size_t i = 0; l->found != NULL && i < l->count; i++) {
        rks_dataset_free(l->found[i].dataset);
        rks_home_close(l->found[i].home);
    }
    rks_folders_free(&l->beside);
    rks_store_texts_free(&l->patterns);
    rks_store_texts_free(&l->texts);
    rks_free(l->directories);
    rks_free(l->found);
    rks_free(l);
}

static rks_status make_looking(rks_group *group, const char *const *patterns, size_t count,
                               const rks_store_options *options, looking **made, rks_error *err)
{
    looking *l = rks_alloc(1, sizeof(*l), err);
    if (l == NULL)
        return RKS_ERR_MEMORY;
    *made = l; /* freed by its owner, also after a failure */
    *l = (looking){.group = group, .count = count, .options = *options};
    const char *const texts[TEXTS] = {
        [TEXT_LOCAL] = options->local,
        [TEXT_STORAGE] = options->storage_options,
        [TEXT_MISSING] = options->missing,
    };
    rks_status status = rks_store_texts_copy(&l->patterns, patterns, count, err);
    if (status == RKS_OK)
        status = rks_store_texts_copy(&l->texts, texts, TEXTS, err);
    if (status != RKS_OK)
        return status;
    l->options.local = l->texts.all[TEXT_LOCAL];
    l->options.storage_options = l->texts.all[TEXT_STORAGE];
    l->options.missing = l->texts.all[TEXT_MISSING];
    l->directories = rks_alloc(count, sizeof(*l->directories), err);
    l->found = rks_alloc(count, sizeof(*l->found), err);
    return l->directories == NULL || l->found == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

static rks_status look_for_each(void *state, rks_error *err)
{
    looking *l = state;
    (void)err; /* each look has its own */
    for (size_t i = 0; i < l->count; i++) {
        const char *pattern = l->patterns.all[i];
        rks_file_wait_at(pattern);
        if (l->options.local != NULL)
            rks_store_look_home(l->group, pattern, &l->options, &l->directories[i], &l->found[i]);
        else
            rks_store_look_for(l->group, pattern, &l->directories[i], &l->beside, &l->found[i]);
    }
    return RKS_OK;
}

/* Gives the caller what was found. */
static void take_looked(looking *l, const char *const *patterns, char **directories,
                        rks_folders *beside, rks_found_dataset *found)
{
    *beside = l->beside;
    l->beside = (rks_folders){0};
    for (size_t i = 0; i < l->count; i++) {
        directories[i] = l->directories[i];
        found[i] = l->found[i];
        if (found[i].directory == l->patterns.all[i])
            found[i].directory = patterns[i];
        l->directories[i] = NULL;
        l->found[i].dataset = NULL;
        l->found[i].home = NULL;
    }
}

void rks_store_look_for_all(rks_group *group, const char *const *patterns, size_t count,
                            const rks_store_options *options, char **directories,
                            rks_folders *beside, rks_found_dataset *found)
{
    rks_error why = {0};
    looking *l = NULL;
    bool left = false;
    rks_status status = make_looking(group, patterns, count, options, &l, &why);
    if (status == RKS_OK) {
        const rks_file_work work = {.run = look_for_each, .drop = free_looking, .state = l};
        status = rks_store_wait_for_files(group, &work, &left, &why);
    }
    if (status == RKS_OK)
        take_looked(l, patterns, directories, beside, found);
    for (size_t i = 0; status != RKS_OK && i < count; i++)
        found[i] = (rks_found_dataset){.directory = patterns[i], .status = status, .error = why};
    if (l != NULL && !left)
        free_looking(l);
}

/* ---- the shards ------------------------------------------------------------------------------ */

enum { OTHER_PATHS_MAX = PATH_MAX }; /* bytes of paths of other folders, from one rank */

static rks_status put_other_paths(const rks_store *store, rks_buffer *paths, rks_error *err)
{
    size_t room = OTHER_PATHS_MAX;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < store->folders.count; i++) {
        char path[PATH_MAX];
        if (realpath(store->folders.paths[i], path) == NULL)
            continue;
        size_t size = strlen(path) + 1;
        if (size > room)
            break;
        room -= size;
        status = rks_buffer_add(paths, path, size, err);
    }
    return status;
}

/* Appends the paths of all sources, one after another, then those of other folders. */
static rks_status put_paths(const rks_store *store, rks_buffer *paths, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && (i == 0 || i < dataset->source_count); i++) {
        const char *directory =
            dataset->source_count == 0 ? store->directory : dataset->sources[i].directory;
        char path[PATH_MAX] = "";
        if (directory == NULL || realpath(directory, path) == NULL)
            path[0] = '\0';
        status = rks_buffer_add(paths, path, strlen(path) + 1, err);
    }
    return status == RKS_OK ? put_other_paths(store, paths, err) : status;
}

uint64_t rks_store_paths_limit(const rks_store *store)
{
    size_t sources = store == NULL || store->dataset == NULL ? 0 : store->dataset->source_count;
    return (sources == 0 ? 1 : sources) * (uint64_t)PATH_MAX + OTHER_PATHS_MAX;
}

void rks_own_shards_free(rks_own_shards *own)
{
    rks_free(own->seen);
    rks_free(own->listed);
    rks_free(own->index_files);
    rks_buffer_free(&own->other_ids);
    rks_buffer_free(&own->paths);
    *own = (rks_own_shards){0};
}

/* A stretch that uses a store: it has one of the store's references. */
typedef struct reading {
    rks_store *store;
    rks_store_texts shards, quarantine;
    rks_own_shards own;
    rks_index_gather filling;
} reading;

static void free_reading(void *state)
{
    reading *r = state;
    rks_store_texts_free(&r->shards);
    rks_store_texts_free(&r->quarantine);
    rks_own_shards_free(&r->own);
    rks_store_release(r->store);
    rks_free(r);
}

static void drop_reading(void *state)
{
    reading *r = state;
    rks_filling_end(&r->filling, r->store); /* otherwise the caller does */
    free_reading(r);
}

static reading *make_reading(rks_store *store, rks_error *err)
{
    reading *r = rks_alloc(1, sizeof(*r), err);
    if (r == NULL)
        return NULL;
    r->store = store;
    r->filling.fd = -1;
    rks_store_hold(store);
    return r;
}

/* Runs a stretch. *r becomes NULL if it was given up. */
static rks_status run_reading(reading **r, rks_status (*run)(void *state, rks_error *err),
                              rks_error *err)
{
    rks_store *store = (*r)->store;
    const rks_file_work work = {.run = run, .drop = drop_reading, .state = *r};
    bool left = false;
    rks_status status = rks_store_wait_for_files(store->group, &work, &left, err);
    if (left) {
        store->left = true;
        *r = NULL;
    }
    return status;
}

static rks_status read_shards(void *state, rks_error *err)
{
    reading *r = state;
    rks_store *store = r->store;
    rks_file_wait_at(store->directory);
    rks_status status =
        rks_store_find_folders(store, (const char *const *)r->shards.all, r->shards.count, err);
    if (status == RKS_OK)
        status = rks_store_take_leases(store, err);
    if (status == RKS_OK)
        status = rks_store_open_shards(store, err);
    if (status == RKS_OK)
        status = rks_store_open_arriving(store, err);
    if (status == RKS_OK)
        status = rks_store_open_through(store, err);
    if (status == RKS_OK)
        status = rks_store_open_copies(store, err);
    if (status == RKS_OK)
        status = rks_store_load_quarantine(store, r->quarantine.all[0], &r->own.listed,
                                           &r->own.listed_size, err);
    if (status == RKS_OK)
        status = rks_store_look_at_index_files(store, err);
    if (status == RKS_OK)
        status = put_paths(store, &r->own.paths, err);
    if (status == RKS_OK)
        r->own.late = rks_store_looks_late(store);
    return status;
}

rks_status rks_store_read_shards(rks_store *store, const rks_store_options *options,
                                 rks_own_shards *own, rks_error *err)
{
    reading *r = make_reading(store, err);
    if (r == NULL)
        return RKS_ERR_MEMORY;
    rks_status status =
        rks_store_texts_copy(&r->shards, options->shards, options->shard_count, err);
    if (status == RKS_OK)
        status = rks_store_texts_copy(&r->quarantine, &options->quarantine, 1, err);
    if (status == RKS_OK)
        status = run_reading(&r, read_shards, err);
    if (r == NULL)
        return status;
    *own = r->own;
    r->own = (rks_own_shards){0};
    free_reading(r);
    return status;
}

static rks_status read_shards_again(void *state, rks_error *err)
{
    reading *r = state;
    rks_status status = rks_store_open_shards(r->store, err);
    return status == RKS_OK ? rks_store_open_copies(r->store, err) : status;
}

rks_status rks_store_read_shards_again(rks_store *store, rks_error *err)
{
    reading *r = make_reading(store, err);
    if (r == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = run_reading(&r, read_shards_again, err);
    if (r != NULL)
        free_reading(r);
    return status;
}

static rks_status read_index(void *state, rks_error *err)
{
    reading *r = state;
    rks_file_wait_at(r->store->directory);
    return rks_filling_copy(&r->filling, r->store, err);
}

rks_status rks_store_read_index(rks_store *store, rks_index_gather *filling, rks_error *err)
{
    reading *r = make_reading(store, err);
    if (r == NULL)
        return RKS_ERR_MEMORY;
    rks_fd_offer *offer = filling->offer; /* the caller ends these, whatever comes */
    const int fd = filling->fd;
    r->filling = *filling;
    r->filling.offer = NULL;
    r->filling.fd = -1;
    rks_status status = run_reading(&r, read_index, err);
    *filling = r == NULL ? (rks_index_gather){0} : r->filling;
    filling->offer = offer;
    filling->fd = fd;
    if (r != NULL)
        free_reading(r);
    return status;
}
