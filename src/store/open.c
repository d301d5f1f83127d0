/* SPDX-License-Identifier: Apache-2.0
 *
 * open.c: from a directory to a store that serves and fetches, and back. Each phase ends with an
 * agreement, so that a failure on one rank ends the open on all. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/directory.h"
#include "store/store.h"

void rks_store_options_default(rks_store_options *options)
{
    *options = (rks_store_options){
        .struct_size = sizeof(*options),
        .exchange = "auto",
        .inflight_bytes = 256u << 20,
    };
}

/* ---- slots of engine services ---------------------------------------------------------- */

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static rks_store *open_stores; /* guarded by list_mutex */

enum rks_service rks_store_service(const rks_store *store, enum rks_service kind)
{
    uint32_t place = kind == RKS_SERVICE_FETCH ? 0 : kind == RKS_SERVICE_KEYS ? 1 : 2;
    return (enum rks_service)(RKS_SERVICE_SLOTS + 3 * store->slot + place);
}

uint64_t rks_store_slots_used(const rks_group *group)
{
    uint64_t used = 0;
    pthread_mutex_lock(&list_mutex);
    for (const rks_store *store = open_stores; store != NULL; store = store->next)
        if (store->group == group)
            used |= UINT64_C(1) << store->slot;
    pthread_mutex_unlock(&list_mutex);
    return used;
}

void rks_store_list(rks_store *store)
{
    pthread_mutex_lock(&list_mutex);
    store->next = open_stores;
    open_stores = store;
    store->listed = true;
    pthread_mutex_unlock(&list_mutex);
}

void rks_store_unlist(rks_store *store)
{
    if (!store->listed)
        return;
    pthread_mutex_lock(&list_mutex);
    rks_store **at = &open_stores;
    while (*at != store)
        at = &(*at)->next;
    *at = store->next;
    store->listed = false;
    pthread_mutex_unlock(&list_mutex);
}

/* ---- life: rank 0 counts who has closed ------------------------------------------------- */

enum { LIFE_CLOSED = 1, LIFE_ALL_CLOSED = 2 };

static void tell_all_closed(rks_store *store)
{
    uint8_t note = LIFE_ALL_CLOSED;
    for (uint32_t rank = 1; rank < rks_group_size(store->group); rank++)
        rks_engine_note(rks_group_engine(store->group), rank,
                        rks_store_service(store, RKS_SERVICE_STORE), &note, 1, NULL);
}

static void count_closed(rks_store *store)
{
    pthread_mutex_lock(&store->mutex);
    bool all = ++store->closed == rks_group_size(store->group);
    if (all) {
        store->all_closed = true;
        pthread_cond_broadcast(&store->cond);
    }
    pthread_mutex_unlock(&store->mutex);
    if (all)
        tell_all_closed(store);
}

static void on_life(void *user, uint32_t from, const uint8_t *body, size_t size)
{
    rks_store *store = user;
    if (size != 1)
        return;
    if (body[0] == LIFE_CLOSED && rks_group_rank(store->group) == 0) {
        count_closed(store);
    } else if (body[0] == LIFE_ALL_CLOSED && from == 0) {
        pthread_mutex_lock(&store->mutex);
        store->all_closed = true;
        pthread_cond_broadcast(&store->cond);
        pthread_mutex_unlock(&store->mutex);
    }
}

static void wait_all_closed(rks_store *store, uint32_t timeout_ms)
{
    rks_engine *engine = rks_group_engine(store->group);
    uint8_t note = LIFE_CLOSED;
    if (rks_group_rank(store->group) == 0)
        count_closed(store);
    else
        rks_engine_note(engine, 0, rks_store_service(store, RKS_SERVICE_STORE), &note, 1, NULL);
    uint64_t until = rks_now_ms() + timeout_ms;
    pthread_mutex_lock(&store->mutex);
    while (!store->all_closed && rks_now_ms() < until && !rks_group_failed(store->group) &&
           rks_check_interrupt(NULL) == RKS_OK)
        rks_cond_wait_ms(&store->cond, &store->mutex, RKS_WAIT_SLICE_MS);
    pthread_mutex_unlock(&store->mutex);
}

/* ---- open --------------------------------------------------------------------------------- */

static rks_status start_fetching(rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    size_t count = dataset->shard_count;
    uint32_t rank = rks_group_rank(store->group);
    bool alone = rks_group_size(store->group) == 1;
    rks_shard **mapped = rks_alloc(count, sizeof(*mapped), err);
    rks_digest *ids = rks_alloc(count, sizeof(*ids), err);
    uint64_t *largest = rks_alloc(count, sizeof(*largest), err);
    rks_status status = mapped == NULL || ids == NULL || largest == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        bool mine = store->owners[i][0] == (int32_t)rank;
        mapped[i] = store->options.no_share && !mine ? NULL : store->shards[i];
        ids[i] = dataset->shards[i].id;
        largest[i] = dataset->shards[i].largest;
    }
    rks_engine *engine = rks_group_engine(store->group);
    if (status == RKS_OK && !alone)
        status = rks_fetch_server_open(engine, rks_store_service(store, RKS_SERVICE_FETCH),
                                       store->shards, count, &store->server, err);
    if (status == RKS_OK) {
        rks_fetcher_options options = {
            .engine = alone ? NULL : engine,
            .service = rks_store_service(store, RKS_SERVICE_FETCH),
            .rank = rank,
            .shards = mapped,
            .shard_ids = ids,
            .largest = largest,
            .owners = (const int32_t *const *)store->owners,
            .shard_count = count,
            .schema = dataset->schema,
            .check = !store->options.no_check,
            .inflight_bytes = store->options.inflight_bytes,
            .timeout_ms = store->options.fetch_timeout_ms,
            .describe = rks_store_describe,
            .derive_key = dataset->derived_keys ? rks_store_derive_key : NULL,
            .user = store,
            .release = rks_store_release,
        };
        status = rks_fetcher_open(&options, &store->fetcher, err);
        if (status == RKS_OK)
            rks_store_hold(store);
    }
    rks_free(mapped);
    rks_free(ids);
    rks_free(largest);
    return status;
}

static rks_status start_serving(rks_store *store, rks_error *err)
{
    if (pthread_mutex_init(&store->mutex, NULL) != 0)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: mutex");
    if (rks_cond_init(&store->cond) != 0) {
        pthread_mutex_destroy(&store->mutex);
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: condition variable");
    }
    store->life_ready = true;
    rks_status status = start_fetching(store, err);
    if (status != RKS_OK)
        return status;
    if (rks_group_size(store->group) > 1) {
        rks_store_serve_keys(store);
        rks_engine_serve(rks_group_engine(store->group),
                         rks_store_service(store, RKS_SERVICE_STORE), NULL, on_life, store);
    }
    rks_store_list(store);
    return RKS_OK;
}

void rks_store_hold(rks_store *store)
{
    atomic_fetch_add(&store->references, 1);
}

void rks_store_release(void *user)
{
    rks_store *store = user;
    if (atomic_fetch_sub(&store->references, 1) != 1)
        return;
    rks_index_close(store->index);
    for (size_t i = 0; store->shards != NULL && i < store->dataset->shard_count; i++)
        rks_shard_close(store->shards[i]);
    rks_free(store->quarantined);
    rks_free(store->unit_first);
    rks_free(store->unit_number);
    rks_free(store->shards);
    rks_free(store->owners);
    rks_free(store->owner_room);
    rks_free(store->seen);
    rks_dataset_free(store->dataset);
    rks_free(store->directory);
    rks_free(store);
}

/* Ends what it does with other ranks, and its threads. */
static void end_store(rks_store *store)
{
    rks_store_unlist(store);
    if (store->life_ready && rks_group_size(store->group) > 1) {
        rks_engine *engine = rks_group_engine(store->group);
        rks_engine_serve(engine, rks_store_service(store, RKS_SERVICE_STORE), NULL, NULL, NULL);
        rks_engine_serve(engine, rks_store_service(store, RKS_SERVICE_KEYS), NULL, NULL, NULL);
    }
    rks_fetcher_close(store->fetcher);
    rks_fetch_server_close(store->server);
    if (store->life_ready) {
        pthread_cond_destroy(&store->cond);
        pthread_mutex_destroy(&store->mutex);
    }
    rks_store_release(store);
}

rks_status rks_store_open_dataset(rks_group *group, const char *directory, rks_dataset *dataset,
                                  const rks_store_options *options, rks_store **store,
                                  rks_error *err)
{
    rks_store *opened = rks_alloc(1, sizeof(*opened), err);
    rks_status status = RKS_ERR_MEMORY;
    if (opened == NULL) {
        rks_dataset_free(dataset);
    } else {
        atomic_init(&opened->references, 1);
        opened->group = group;
        opened->options = *options;
        opened->options.quarantine = NULL; /* the caller's text */
        opened->dataset = dataset;
        opened->directory = rks_strdup(directory, err);
        rks_digest_format(dataset->id, opened->id_text);
        status = opened->directory == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    status = rks_group_agree(group, "open", status, err);
    if (status == RKS_OK)
        status = rks_store_find_owners(opened, err);
    if (status == RKS_OK)
        status = rks_store_find_quarantined(opened, options->quarantine, err);
    if (status == RKS_OK)
        status = rks_store_fill_index(opened, err);
    if (status == RKS_OK)
        status = rks_group_agree(group, "open: serving", start_serving(opened, err), err);
    if (status != RKS_OK) {
        if (opened != NULL)
            end_store(opened);
        return status;
    }
    *store = opened;
    return RKS_OK;
}

/* ---- the dataset of all ranks -------------------------------------------------------------- */

/* What a rank found: nothing, or dataset.json with this digest and size. */
typedef struct found {
    rks_digest digest;
    uint64_t size;
} found;

/* All that found a dataset found the same one; *root is the lowest rank that has it. */
static rks_status compare_found(rks_group *group, const uint8_t *all, const char *directory,
                                rks_error *none, uint32_t *root, rks_error *err)
{
    int64_t first = -1;
    found one = {0};
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        found other;
        memcpy(&other, all + rank * sizeof(other), sizeof(other));
        if (other.size == 0)
            continue;
        if (first < 0) {
            first = rank;
            one = other;
        } else if (one.size != other.size || !rks_digest_equal(one.digest, other.digest)) {
            return rks_fail(err, RKS_ERR_STATE, 0, "%s: rank %u has another dataset than rank %lld",
                            directory, rank, (long long)first);
        }
    }
    if (first < 0) {
        if (err != NULL)
            *err = *none;
        return RKS_ERR_NOT_FOUND;
    }
    *root = (uint32_t)first;
    return RKS_OK;
}

/* COLLECTIVE. The list of excluded samples, for ranks that have no directory to read it from. */
static rks_status share_excluded(rks_group *group, const uint8_t *all, uint32_t root,
                                 const char *directory, rks_dataset *dataset, rks_error *err)
{
    rks_excluded *excluded = &dataset->excluded;
    rks_buffer bytes = {0};
    bool lacking = false;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        found other;
        memcpy(&other, all + rank * sizeof(other), sizeof(other));
        lacking = lacking || other.size == 0;
    }
    if (!lacking || excluded->samples == 0)
        return RKS_OK;
    size_t size = (size_t)rks_excluded_size(excluded->run_count);
    rks_status status = excluded->runs == NULL ? rks_buffer_reserve(&bytes, size, err)
                                               : rks_excluded_encode(excluded, &bytes, err);
    status = rks_group_agree(group, "open: excluded samples", status, err);
    if (status == RKS_OK)
        status =
            rks_group_broadcast(group, "open: excluded samples sent", root, bytes.data, size, err);
    if (status == RKS_OK && excluded->runs == NULL)
        status = rks_excluded_decode(excluded, bytes.data, size, rks_dataset_stored(dataset),
                                     directory, err);
    rks_buffer_free(&bytes);
    return status;
}

rks_status rks_store_load_dataset(rks_group *group, const char *directory, uint64_t generation,
                                  rks_dataset **dataset, rks_error *err)
{
    rks_error none = {0};
    rks_dataset *loaded = NULL;
    rks_status status = rks_dataset_load_generation(directory, generation, &loaded, &none);
    return rks_store_agree_dataset(group, directory, status, loaded, &none, dataset, err);
}

rks_status rks_store_agree_dataset(rks_group *group, const char *directory, rks_status status,
                                   rks_dataset *loaded, rks_error *none, rks_dataset **dataset,
                                   rks_error *err)
{
    found mine = {0};
    char *text = NULL;
    size_t size = 0;
    uint32_t root = 0;
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    if (status == RKS_OK) {
        status = rks_dataset_encode(loaded, &text, &size, err);
        mine = (found){rks_checksum128(text, size), size};
    } else if (status == RKS_ERR_NOT_FOUND) {
        status = RKS_OK;
    } else if (err != NULL) {
        *err = *none;
    }
    status = rks_group_allgather(group, "open: dataset", status, &mine, sizeof(mine), &all,
                                 &offsets, err);
    if (status == RKS_OK)
        status = compare_found(group, all, directory, none, &root, err);
    if (status == RKS_OK) {
        memcpy(&mine, all + root * sizeof(mine), sizeof(mine));
        if (text == NULL && (text = rks_alloc_raw(mine.size, 1, err)) == NULL)
            status = RKS_ERR_MEMORY;
    }
    status = rks_group_agree(group, "open: dataset read", status, err);
    if (status == RKS_OK)
        status = rks_group_broadcast(group, "open: dataset sent", root, text, mine.size, err);
    if (status == RKS_OK && loaded == NULL)
        status = rks_dataset_decode(text, mine.size, directory, &loaded, err);
    status = rks_group_agree(group, "open: dataset known", status, err);
    if (status == RKS_OK)
        status = rks_group_agree(group, "open: excluded samples known",
                                 share_excluded(group, all, root, directory, loaded, err), err);
    rks_free(text);
    rks_free(all);
    rks_free(offsets);
    if (status != RKS_OK) {
        rks_dataset_free(loaded);
        return status;
    }
    *dataset = loaded;
    return RKS_OK;
}

/* COLLECTIVE. Ranks that exchange in different ways would wait for each other. */
static rks_status agree_exchange(rks_group *group, const char *name, rks_status status,
                                 rks_error *err)
{
    uint8_t *all = NULL;
    uint64_t *offsets = NULL;
    if (name == NULL)
        name = "auto";
    status = rks_group_allgather(group, "open: options", status, name, strlen(name), &all, &offsets,
                                 err);
    for (uint32_t rank = 1; status == RKS_OK && rank < rks_group_size(group); rank++) {
        uint64_t size = offsets[rank + 1] - offsets[rank];
        if (size != offsets[1] || memcmp(all, all + offsets[rank], size) != 0)
            status =
                rks_fail(err, RKS_ERR_ARGUMENT, 0,
                         "exchange differs: rank 0 has %.*s, rank %u has %.*s", (int)offsets[1],
                         (const char *)all, rank, (int)size, (const char *)all + offsets[rank]);
    }
    rks_free(all);
    rks_free(offsets);
    return status;
}

rks_status rks_store_open(rks_group *group, const char *directory, const rks_store_options *options,
                          rks_store **store, rks_error *err)
{
    rks_store_options chosen;
    rks_store_options_default(&chosen);
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    if (chosen.inflight_bytes == 0)
        chosen.inflight_bytes = 256u << 20;
    char *expanded = NULL;
    uint64_t generation = 0;
    rks_dataset *dataset = NULL;
    rks_status status = rks_directory_expand(group, directory, &expanded, err);
    if (status == RKS_OK)
        generation = rks_dataset_take_generation(expanded);
    status = agree_exchange(group, chosen.exchange, status, err);
    if (status == RKS_OK)
        status = rks_store_load_dataset(group, expanded, generation, &dataset, err);
    if (status == RKS_OK)
        status = rks_store_open_dataset(group, expanded, dataset, &chosen, store, err);
    rks_free(expanded);
    return status;
}

void rks_store_close(rks_store *store, uint32_t timeout_ms)
{
    if (store == NULL)
        return;
    if (rks_group_size(store->group) > 1)
        wait_all_closed(store, timeout_ms == 0 ? rks_group_silence_ms(store->group) : timeout_ms);
    end_store(store);
}
