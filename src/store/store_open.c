/* SPDX-License-Identifier: Apache-2.0
 *
 * store_open.c: from a directory's dataset to a store that serves and fetches, and back. On one
 * node that are four agreements, each with what all ranks need for their next part:
 *
 *   open: dataset      which dataset.json each rank found; sent to those that have none
 *   open: shards       who sees what, the list of samples to leave out, the node's index memory
 *   open: own shards   the node's shards are in its index; then other nodes' come by the exchange
 *   open: serving      the index is whole and sealed, and all answer each other
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "store/store.h"
#include "store/store_reads.h"

/* ---- numbers of engine services ---------------------------------------------------------- */

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static rks_store *open_stores; /* guarded by list_mutex */

enum rks_service rks_store_service(const rks_store *store, enum rks_service kind)
{
    uint32_t place = kind == RKS_SERVICE_FETCH ? 0 : kind == RKS_SERVICE_KEYS ? 1 : 2;
    return (enum rks_service)(RKS_SERVICE_STORES + 3 * store->number + place);
}

uint64_t rks_store_numbers_used(const rks_group *group)
{
    uint64_t used = 0;
    pthread_mutex_lock(&list_mutex);
    for (const rks_store *store = open_stores; store != NULL; store = store->next)
        if (store->group == group)
            used |= UINT64_C(1) << store->number;
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

/* ---- open --------------------------------------------------------------------------------- */

/* Opens the fetcher and, if there are other ranks, the server of this rank's shards. `options`
 * names the shards. */
static rks_status open_fetcher(rks_store *store, rks_fetcher_options *options, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    bool alone = rks_group_size(store->group) == 1;
    rks_engine *engine = rks_group_engine(store->group);
    options->engine = alone ? NULL : engine;
    options->service = rks_store_service(store, RKS_SERVICE_FETCH);
    options->rank = rks_group_rank(store->group);
    options->owners = (const int32_t *const *)store->owners;
    options->asks = store->asks;
    options->shard_count = dataset->shard_count;
    options->schema = dataset->schema;
    options->fits = store->fit_of;
    options->arriving = store->arriving.must_stop == NULL ? NULL : &store->arriving;
    options->check = !store->options.no_check;
    options->inflight_bytes = store->options.inflight_bytes;
    options->timeout_ms = store->options.fetch_timeout_ms;
    options->silence_ms = rks_group_silence_ms(store->group);
    options->patience_ms = rks_group_patience_ms(store->group);
    options->describe = rks_store_describe;
    options->derive_key = dataset->derived_keys ? rks_store_derive_key : NULL;
    options->user = store;
    options->release = rks_store_release;
    if (!alone) {
        rks_status status =
            rks_fetch_server_open(engine, options->service, store->shards, dataset->shard_count,
                                  rks_group_size(store->group), &store->server, err);
        if (status == RKS_OK && store->arriving.here)
            status = rks_fetch_server_expect(store->server, &store->arriving, err);
        if (status != RKS_OK)
            return status;
    }
    rks_status status = rks_fetcher_open(options, &store->fetcher, err);
    if (status == RKS_OK)
        rks_store_hold(store);
    return status;
}

static rks_status start_fetching(rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    size_t count = dataset->shard_count;
    uint32_t rank = rks_group_rank(store->group);
    rks_shard **mapped = rks_alloc(count, sizeof(*mapped), err);
    rks_digest *ids = rks_alloc(count, sizeof(*ids), err);
    uint64_t *largest = rks_alloc(count, sizeof(*largest), err);
    rks_status status = mapped == NULL || ids == NULL || largest == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        bool mine = store->owners[i][0] == (int32_t)rank;
        mapped[i] = store->options.no_share && !mine ? NULL : store->shards[i];
        ids[i] = mapped[i] == NULL ? rks_store_shard_id(store, i) : rks_shard_id(mapped[i]);
        largest[i] = dataset->shards[i].largest;
    }
    rks_fetcher_options options = {.shards = mapped, .shard_ids = ids, .largest = largest};
    if (status == RKS_OK && !store->options.no_share)
        status = rks_store_open_beside(store, mapped, err);
    if (status == RKS_OK)
        status = open_fetcher(store, &options, err);
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
        rks_store_serve_life(store);
    }
    rks_store_list(store);
    return rks_store_watch(store, err);
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
    rks_leases_end(store->leases); /* there are some only if a stretch of the opening was left */
    rks_free(store->absent);
    rks_index_close(store->index);
    rks_store_free_index_sources(store);
    for (size_t i = 0; store->shards != NULL && i < store->dataset->shard_count; i++)
        rks_shard_close(store->shards[i]);
    for (size_t i = 0; store->fits != NULL && i < store->dataset->source_count; i++)
        rks_record_fit_free(&store->fits[i]);
    rks_free(store->fits);
    rks_free(store->fit_of);
    rks_free(store->quarantined);
    rks_free(store->unit_first);
    rks_free(store->unit_number);
    for (size_t i = 0; store->beside != NULL && i < store->dataset->shard_count; i++)
        rks_shard_close(store->beside[i]);
    rks_free(store->beside);
    rks_free(store->shards);
    rks_free(store->shard_ids);
    rks_free(store->owners);
    rks_free(store->owner_room);
    rks_free(store->asks);
    rks_free(store->seers);
    rks_free(store->life);
    rks_free(store->arriving_shards);
    rks_dataset_free(store->dataset);
    rks_folders_free(&store->folders);
    rks_free(store->fitting_none);
    rks_free(store->directory);
    rks_free(store->index_dir);
    rks_free(store);
}

/* Ends the store's work with other ranks, and its threads. If a thread hangs in the storage, what
 * it may use stays. */
static void end_store(rks_store *store)
{
    bool ended = true;
    if (store->left) {
        rks_store_stop_stagings(store);
        rks_store_release(store);
        return;
    }
    rks_metrics_end(&store->metrics_source);
    rks_store_unlist(store);
    rks_store_stop_stagings(store);
    if (store->life_ready && rks_group_size(store->group) > 1) {
        rks_engine *engine = rks_group_engine(store->group);
        rks_engine_serve(engine, rks_store_service(store, RKS_SERVICE_STORE), NULL, NULL, NULL);
        ended =
            rks_engine_serve(engine, rks_store_service(store, RKS_SERVICE_KEYS), NULL, NULL, NULL);
    }
    rks_fetcher_close(store->fetcher);
    if (!rks_fetch_server_close(store->server) || !ended)
        return;
    rks_store_end_stagings(store->stagings, store->staging_count);
    store->stagings = NULL;
    store->staging_count = 0;
    rks_leases_end(store->leases);
    store->leases = NULL;
    if (store->life_ready) {
        pthread_cond_destroy(&store->cond);
        pthread_mutex_destroy(&store->mutex);
    }
    rks_store_release(store);
}

/* Prepares how each source's records become samples of the united schema. */
static rks_status make_fits(rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    rks_status status = RKS_OK;
    if (dataset->source_count == 0)
        return RKS_OK;
    store->fits = rks_alloc(dataset->source_count, sizeof(*store->fits), err);
    store->fit_of = rks_alloc(dataset->shard_count, sizeof(*store->fit_of), err);
    if (store->fits == NULL || store->fit_of == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < dataset->source_count; i++) {
        const rks_schema *own = dataset->sources[i].dataset->schema;
        if (strcmp(rks_schema_text(own), rks_schema_text(dataset->schema)) != 0)
            status = rks_record_fit_create(own, dataset->schema, &store->fits[i], err);
    }
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++) {
        const rks_record_fit *fit = &store->fits[rks_dataset_source_of_shard(dataset, i)];
        store->fit_of[i] = fit->to == NULL ? NULL : fit;
    }
    return status;
}

static rks_status create_store(rks_group *group, const rks_loaded_dataset *loaded,
                               const rks_store_options *options, rks_store **store, rks_error *err)
{
    rks_dataset *dataset = loaded->dataset;
    rks_store *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL) {
        rks_dataset_free(dataset);
        rks_store_end_stagings(loaded->stagings, loaded->staging_count);
        return RKS_ERR_MEMORY;
    }
    atomic_init(&made->references, 1);
    made->group = group;
    made->life = rks_alloc(rks_group_size(group), sizeof(*made->life), err);
    made->options = *options;
    made->options.quarantine = NULL; /* the text belongs to the caller */
    made->options.columns = NULL;
    made->options.index_dir = NULL;
    made->options.missing = NULL;
    made->options.shards = NULL;
    made->options.local = NULL;
    made->options.room = NULL;
    made->stagings = loaded->stagings;
    made->staging_count = loaded->staging_count;
    made->dataset = dataset;
    rks_digest_format(dataset->id, made->id_text);
    *store = made;
    made->directory = rks_strdup(loaded->directory, err);
    if (made->directory == NULL || made->life == NULL)
        return RKS_ERR_MEMORY;
    rks_status read = rks_store_read_missing(options->missing, &made->opens_partly, err);
    if (read == RKS_OK && options->local == NULL &&
        (options->copies > 1 || options->local_room > 0 || options->room != NULL))
        read = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%s: needs `local`, a directory on a disk of this node",
                        options->copies > 1     ? "copies"
                        : options->room != NULL ? "room"
                                                : "local_room");
    if (read == RKS_OK)
        read = rks_store_take_folders(made, loaded->beside, err);
    if (read != RKS_OK)
        return read;
    if (options->index_dir != NULL) {
        rks_status status = rks_directory_expand(group, options->index_dir, &made->index_dir, err);
        if (status != RKS_OK)
            return status;
    }
    return make_fits(made, err);
}

static rks_status note_seen(const rks_store *store, rks_own_shards *own, rks_error *err)
{
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        own->seen[i / 8] |= (uint8_t)((store->shards[i] != NULL) << i % 8);
    return rks_store_put_other_ids(store, &own->other_ids, err);
}

/* Opens this rank's shards, and begins the node's index. */
static rks_status look_at_shards(rks_store *store, const rks_store_options *options,
                                 rks_index_gather *filling, rks_own_shards *own, rks_error *err)
{
    rks_status status = rks_store_read_shards(store, options, own, err);
    if (status == RKS_OK)
        status = rks_filling_begin(filling, store, err);
    if (status != RKS_OK)
        return status;
    own->seen = rks_alloc((store->dataset->shard_count + 7) / 8, 1, err);
    own->index_files = rks_alloc(rks_store_index_files_size(store), 1, err);
    if (own->seen == NULL || own->index_files == NULL)
        return RKS_ERR_MEMORY;
    rks_store_tell_index_files(store, own->index_files);
    return note_seen(store, own, err);
}

static rks_fact other_ids(const rks_store *store, const rks_group *group, const rks_own_shards *own)
{
    return rks_fact_bytes(own->other_ids.data, own->other_ids.size,
                          rks_group_size(group) * rks_store_other_ids_limit(store));
}

/* COLLECTIVE. Sends this rank's shards, and the samples that it leaves out, to all ranks, and takes
 * theirs. Before that it stores the node's index memory, for which the node's leader waits. */
static rks_status tell_shards(rks_store *store, rks_group *group, rks_status status,
                              const rks_store_options *options, rks_index_gather *filling,
                              rks_error *err)
{
    uint64_t numbers = rks_store_numbers_used(group);
    const char *quarantine = options->quarantine;
    rks_own_shards own = {0};
    rks_agreed agreed;
    if (status == RKS_OK)
        status = look_at_shards(store, options, filling, &own, err);
    if (store != NULL && store->dataset != NULL)
        own.seen_size = (store->dataset->shard_count + 7) / 8;
    rks_fact facts[RKS_TELL_COUNT] = {
        [RKS_TELL_NUMBERS] = rks_fact_fixed(&numbers, sizeof(numbers)),
        [RKS_TELL_SEEN] = rks_fact_fixed(own.seen, own.seen_size),
        [RKS_TELL_PATH] = rks_fact_bytes(own.paths.data, own.paths.size,
                                         rks_group_size(group) * rks_store_paths_limit(store)),
        [RKS_TELL_QUARANTINE] = rks_fact_bytes(
            own.listed, own.listed_size, rks_group_size(group) * rks_store_quarantine_limit(store)),
        [RKS_TELL_INDEX] = rks_fd_offer_fact(filling->offer),
        [RKS_TELL_LATE] = rks_fact_fixed(&own.late, sizeof(own.late)),
        [RKS_TELL_INDEX_FILES] = rks_fact_fixed(own.index_files, rks_store_index_files_size(store)),
        [RKS_TELL_OTHER_IDS] = other_ids(store, group, &own),
    };
    status = rks_group_agree_on(group, "open: shards", status, facts, RKS_TELL_COUNT, &agreed, err);
    for (uint32_t looks = 0; status == RKS_OK && rks_store_should_look_again(store, &agreed, looks);
         looks++) {
        status = rks_store_look_again(store, err);
        if (status == RKS_OK)
            status = note_seen(store, &own, err);
        facts[RKS_TELL_OTHER_IDS] = other_ids(store, group, &own);
        status =
            rks_group_agree_on(group, "open: shards", status, facts, RKS_TELL_COUNT, &agreed, err);
    }
    rks_own_shards_free(&own);
    if (status != RKS_OK)
        return status;
    status = rks_filling_map(filling, store, &agreed, err);
    if (status != RKS_OK)
        return status;
    status = rks_store_choose_owners(store, &agreed, err);
    if (status == RKS_OK)
        status = rks_store_take_index_files(store, &agreed, err);
    if (status == RKS_OK)
        status = rks_store_check_missing(store, filling, err);
    return status == RKS_OK ? rks_store_take_quarantine(store, quarantine, &agreed, err) : status;
}

static rks_status count_pair(void *user, uint64_t one, uint64_t other, rks_error *err)
{
    (void)one, (void)other, (void)err;
    ++*(uint64_t *)user;
    return RKS_OK;
}

/* Counts this rank's share of the pairs. On one node the index is complete before the last
 * agreement. */
static rks_status count_pairs(const rks_store *store, uint64_t *pairs, rks_error *err)
{
    *pairs = 0;
    if (rks_filling_travels(store))
        return RKS_OK;
    return rks_index_equal_hashes(store->index, rks_group_rank(store->group),
                                  rks_group_size(store->group), count_pair, pairs, err);
}

/* COLLECTIVE. Fills the index with what this node has. If an index file is damaged, it is filled
 * once more without them. */
static rks_status fill_own(rks_store *store, rks_group *group, rks_status status,
                           rks_index_gather *filling, rks_error *err)
{
    rks_agreed agreed;
    bool again = false;
    do {
        if (status == RKS_OK)
            status = rks_store_read_index(store, filling, err);
        const uint8_t told[] = {status == RKS_OK && rks_store_serves_node(store), filling->damaged,
                                filling->note};
        const rks_fact fact = rks_fact_fixed(told, sizeof(told));
        status = rks_group_agree_on(group, "open: own shards", status, &fact, 1, &agreed, err);
        if (status != RKS_OK)
            return status;
        again = false;
        for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
            const uint8_t *theirs = rks_agreed_get(&agreed, rank, 0, NULL);
            again = again || theirs[1] != 0;
            filling->noted = filling->noted || theirs[2] != 0;
        }
        if (again)
            rks_store_drop_index_files(store);
    } while (again);
    rks_store_choose_rails(store, &agreed, 0);
    return RKS_OK;
}

/* COLLECTIVE. Once owners are chosen: fills the index and starts to serve, until all ranks may use
 * the store. */
static rks_status fill_and_serve(rks_store *store, rks_group *group, rks_status status,
                                 rks_index_gather *filling, uint64_t *pairs, rks_error *err)
{
    uint64_t counted = 0;
    rks_agreed agreed;
    status = fill_own(store, group, status, filling, err);
    if (status != RKS_OK)
        return status;
    if (rks_filling_travels(store))
        status = rks_filling_exchange(filling, store, err);
    if (status == RKS_OK)
        status = rks_filling_seal(filling, store, err);
    if (status == RKS_OK)
        status = start_serving(store, err);
    if (status == RKS_OK && pairs != NULL)
        status = count_pairs(store, &counted, err);
    const uint64_t come[3] = {filling->taken, filling->wanted, filling->received};
    const rks_fact facts[] = {rks_fact_fixed(come, sizeof(come)), rks_fact_sum(&counted, 1)};
    status = rks_group_agree_on(group, "open: serving", status, facts, 2, &agreed, err);
    if (status == RKS_OK)
        status = rks_filling_check(store, &agreed, 0, err);
    if (status == RKS_OK && pairs != NULL)
        *pairs = rks_filling_travels(store) ? UINT64_MAX : counted;
    return status;
}

rks_status rks_store_open_dataset(rks_group *group, const rks_loaded_dataset *loaded,
                                  const rks_store_options *options, uint64_t *pairs,
                                  rks_store **store, rks_error *err)
{
    rks_status status = loaded->status;
    rks_store *opened = NULL;
    rks_index_gather filling = {.fd = -1, .note = loaded->note};
    if (status == RKS_OK)
        status = create_store(group, loaded, options, &opened, err);
    else {
        rks_dataset_free(loaded->dataset);
        rks_store_end_stagings(loaded->stagings, loaded->staging_count);
    }
    status = tell_shards(opened, group, status, options, &filling, err);
    status = fill_and_serve(opened, group, status, &filling, pairs, err);
    rks_filling_end(&filling, opened);
    if (status != RKS_OK) {
        if (opened != NULL)
            end_store(opened);
        return status;
    }
    for (size_t i = 0; i < opened->staging_count; i++)
        rks_staging_go(opened->stagings[i]);
    if (loaded->noted != NULL)
        *loaded->noted = filling.noted;
    *store = opened;
    return RKS_OK;
}

void rks_store_end_reads(rks_store *store)
{
    rks_fetcher_end_waits(store->fetcher);
}

void rks_store_close(rks_store *store, uint32_t timeout_ms)
{
    if (store == NULL)
        return;
    if (!rks_store_leave(store, timeout_ms == 0 ? rks_group_silence_ms(store->group) : timeout_ms))
        rks_store_give_up(store);
    end_store(store);
}
