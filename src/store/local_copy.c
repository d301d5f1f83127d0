/* SPDX-License-Identifier: Apache-2.0
 *
 * local_copy.c: a dataset that is kept at a home, and opened from local directories. Rank 0 alone
 * reads the dataset's description at home; a shard is read there by the rank that brings it. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/available_memory.h"
#include "base/error.h"
#include "base/file_wait.h"
#include "base/log.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "dataset/home_file.h"
#include "home/address.h"
#include "store/home_dataset.h"
#include "store/store.h"

/* Copies the id of the dataset's first generation, so that later generations find what is there. */
static rks_status name_folder(const rks_dataset *dataset, char folder[RKS_DIGEST_TEXT],
                              rks_error *err)
{
    rks_generation *earlier = NULL;
    size_t count = 0;
    rks_status status = rks_store_earlier_of(dataset, &earlier, &count, err);
    if (status != RKS_OK)
        return status;
    if (count == 0)
        rks_digest_format(dataset->id, folder);
    else
        memcpy(folder, earlier[0].dataset, RKS_DIGEST_TEXT);
    rks_release(earlier);
    return RKS_OK;
}

/* ---- home is away ---------------------------------------------------------------------------- */

/* Returns when the dataset of LOCAL/FOLDER was opened last, in ns, if it came from this home; else
 * 0. */
static uint64_t last_use(const char *local, const char *folder, const char *home)
{
    struct stat info;
    char *said = NULL, *path = rks_format(NULL, "%s/%s", local, folder);
    char *file = path == NULL ? NULL : rks_format(NULL, "%s/home.json", path);
    bool is = file != NULL && rks_home_file_read(path, &said, NULL) == RKS_OK && said != NULL &&
              strcmp(said, home) == 0 && stat(file, &info) == 0;
    rks_free(said);
    rks_free(file);
    rks_free(path);
    return is ? (uint64_t)info.st_mtim.tv_sec * 1000000000 + (uint64_t)info.st_mtim.tv_nsec : 0;
}

/* Loads the dataset that was opened last from this home into `found`. */
static void look_at_copies(const char *local, const char *home, uint64_t generation,
                           rks_found_dataset *found)
{
    char *name = rks_place_home_name(home, NULL), *newest = NULL;
    DIR *stream = name == NULL ? NULL : opendir(local);
    uint64_t last = 0;
    for (struct dirent *entry; stream != NULL && (entry = readdir(stream)) != NULL;) {
        uint64_t used = entry->d_name[0] == '.' ? 0 : last_use(local, entry->d_name, name);
        if (used <= last)
            continue;
        last = used;
        rks_free(newest);
        newest = rks_format(NULL, "%s/%s", local, entry->d_name);
    }
    if (stream != NULL)
        closedir(stream);
    rks_free(name);
    if (newest != NULL &&
        rks_dataset_load_generation(newest, generation, &found->dataset, NULL) == RKS_OK) {
        rks_log("%s; what %s holds of it opens", found->error.text, newest);
        found->status = RKS_OK;
    }
    rks_free(newest);
}

/* ---- opening --------------------------------------------------------------------------------- */

rks_status rks_store_choose_local(const char **directory, rks_store_options *options,
                                  rks_error *err)
{
    rks_home_address address;
    if (!rks_home_is_url(*directory))
        return RKS_OK;
    rks_status status = rks_home_address_of(*directory, &address, err);
    if (status != RKS_OK)
        return status;
    *directory = address.path;
    const char *named = getenv("RKS_LOCAL");
    if (!address.stored || options->local != NULL)
        return RKS_OK;
    if (named == NULL || named[0] == '\0')
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "%s: a dataset in an object store opens from local directories: give one "
                        "on a disk of each node, local= (--local on the command line), or name it "
                        "in the variable RKS_LOCAL",
                        *directory);
    options->local = named;
    return RKS_OK;
}

static rks_status check_local_options(const rks_store_options *options, rks_error *err)
{
    if (options->room != NULL && strcmp(options->room, "through") != 0 &&
        strcmp(options->room, "error") != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "room: \"%.40s\" is not known; \"error\" or \"through\"", options->room);
    if (options->shard_count > 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "local: goes without `shards`: what is not local comes from home");
    if (options->missing != NULL && strcmp(options->missing, "fetch") != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "missing: \"%.40s\" goes without `local`; with it, it is \"fetch\"",
                        options->missing);
    return RKS_OK;
}

/* Keeps the home open for the staging: its helper needs a moment to start. The other ranks wait in
 * the next agreement, so one that has failed ends this; what the home is read for later may go on
 * after an agreement that failed. */
static rks_status load_stored(rks_group *group, const char *home, const char *storage_options,
                              uint64_t generation, rks_found_dataset *found)
{
    rks_error *err = &found->error;
    rks_status status = rks_staging_open_home(group, home, storage_options, &found->home, err);
    if (status != RKS_OK)
        return status;
    found->home->limits.must_stop = rks_group_hear;
    found->home->limits.user = group;
    status = rks_home_dataset_load_from(found->home, generation, &found->dataset, err);
    found->home->limits.must_stop = NULL;
    return status;
}

void rks_store_look_home(rks_group *group, const char *pattern, const rks_store_options *options,
                         char **home, rks_found_dataset *found)
{
    char *local = NULL;
    *found = (rks_found_dataset){.directory = pattern};
    rks_error *why = &found->error;
    rks_status status = check_local_options(options, why);
    if (status == RKS_OK)
        status = rks_directory_expand(group, pattern, home, why);
    if (status == RKS_OK)
        status = rks_directory_expand(group, options->local, &local, why);
    uint64_t generation = status == RKS_OK ? rks_dataset_take_generation(*home) : 0;
    found->status = status;
    if (status == RKS_OK && rks_group_rank(group) == 0) {
        if (rks_home_is_url(*home))
            found->status = load_stored(group, *home, options->storage_options, generation, found);
        else
            rks_store_look(*home, generation, found);
        if (found->status != RKS_OK && rks_group_must_stop(group, NULL) == RKS_OK)
            look_at_copies(local, *home, generation, found);
    } else if (status == RKS_OK) {
        found->status = rks_fail(why, RKS_ERR_NOT_FOUND, 0, "%s: no dataset here", *home);
    }
    rks_free(local);
}

rks_status rks_store_make_local(rks_group *group, const rks_dataset *dataset, const char *home,
                                const rks_staging_options *options, rks_staging **staging,
                                rks_error *err)
{
    rks_staging_options wanted = *options;
    char folder[RKS_DIGEST_TEXT], *local = NULL;
    rks_status status = name_folder(dataset, folder, err);
    if (status == RKS_OK)
        status = rks_directory_expand_target(group, options->local, &local, err);
    wanted.home = home;
    wanted.local = local;
    wanted.folder = folder;
    status = rks_staging_begin(group, status, dataset, &wanted, staging, err);
    rks_free(local);
    return status;
}

rks_status rks_store_take_local(rks_group *group, const rks_dataset *dataset, const char *home,
                                rks_home **opened, const rks_store_options *options,
                                rks_staging **staging, rks_error *err)
{
    rks_staging *begun = NULL;
    const rks_staging_options wanted = {.local = options->local,
                                        .copies = options->copies,
                                        .room = options->local_room,
                                        .storage_options = options->storage_options,
                                        .opened = opened,
                                        .on_demand = options->on_demand,
                                        .through = options->room != NULL &&
                                                   strcmp(options->room, "through") == 0};
    rks_status status = rks_store_make_local(group, dataset, home, &wanted, &begun, err);
    if (status == RKS_OK)
        status = rks_staging_wait(begun, RKS_ARRIVALS_HEADS, NULL, NULL, err);
    if (status != RKS_OK) {
        rks_staging_end(begun);
        return status;
    }
    *staging = begun;
    return RKS_OK;
}

/* Takes over the staging, if `status` is RKS_OK; else frees the dataset. */
static rks_status take_staging(rks_status status, rks_staging *staging, rks_loaded_dataset *loaded,
                               rks_error *err)
{
    if (status != RKS_OK) {
        rks_dataset_free(loaded->dataset);
        return status;
    }
    loaded->stagings = rks_alloc(1, sizeof(*loaded->stagings), err);
    if (loaded->stagings == NULL) {
        rks_staging_end(staging);
        loaded->status = RKS_ERR_MEMORY; /* the next agreement tells the others */
        return RKS_OK;
    }
    loaded->stagings[0] = staging;
    loaded->staging_count = 1;
    loaded->directory = rks_staging_directory(staging);
    return RKS_OK;
}

rks_status rks_store_load_local(rks_group *group, const char *home, rks_home **opened,
                                const rks_store_options *options, rks_loaded_dataset *loaded,
                                rks_error *err)
{
    rks_staging *staging = NULL;
    rks_status status =
        rks_store_take_local(group, loaded->dataset, home, opened, options, &staging, err);
    return take_staging(status, staging, loaded, err);
}

/* ---- a local copy by its own name ------------------------------------------------------------ */

enum { HOME_NAME_MAX = 64 << 10 };

rks_status rks_store_agree_home(rks_group *group, const char *directory, char **home,
                                rks_error *err)
{
    char *mine = NULL;
    bool memory = false;
    rks_agreed agreed;
    rks_status status = RKS_OK;
    *home = NULL;
    /* A copy on a file system of several nodes was put there by hand. One whose home cannot be read
     * fails as it did. */
    if (directory != NULL && (rks_shared_filesystem(directory, &memory) == NULL || memory))
        (void)rks_home_file_read(directory, &mine, NULL);
    const size_t size = mine == NULL ? 0 : strlen(mine) + 1;
    const rks_fact fact =
        rks_fact_bytes(mine, size, (uint64_t)HOME_NAME_MAX * rks_group_size(group));
    status = rks_group_agree_on(group, "open: home", status, &fact, 1, &agreed, err);
    for (uint32_t rank = 0; status == RKS_OK && *home == NULL && rank < rks_group_size(group);
         rank++) {
        size_t told = 0;
        const char *name = rks_agreed_get(&agreed, rank, 0, &told);
        if (told > 1 && name[told - 1] == '\0')
            *home = rks_strdup(name, err);
    }
    rks_free(mine);
    return status;
}

rks_status rks_store_load_copy(rks_group *group, const char *directory, const char *home,
                               const rks_store_options *options, rks_loaded_dataset *loaded,
                               rks_error *err)
{
    rks_staging *staging = NULL;
    const rks_staging_options wanted = {
        .home = home, .storage_options = options->storage_options, .local = directory, .copies = 1};
    rks_status status = rks_staging_begin(group, RKS_OK, loaded->dataset, &wanted, &staging, err);
    if (status == RKS_OK)
        status = rks_staging_wait(staging, RKS_ARRIVALS_HEADS, NULL, NULL, err);
    if (status != RKS_OK)
        rks_staging_end(staging);
    return take_staging(status, staging, loaded, err);
}

/* ---- the store's part ------------------------------------------------------------------------ */

static const char *name_of(const rks_store *store, size_t shard)
{
    return store->dataset->shards[shard].name;
}

static size_t staging_of(const rks_store *store, size_t shard)
{
    return store->dataset->source_count == 0 ? 0
                                             : rks_dataset_source_of_shard(store->dataset, shard);
}

/* Opens one that arrives at this rank, if it does. */
static rks_status open_arriving(rks_store *store, size_t shard, rks_error *err)
{
    const rks_staging *staging = store->stagings[staging_of(store, shard)];
    int64_t number = rks_staging_find(staging, name_of(store, shard));
    if (number < 0 || store->shards[shard] != NULL)
        return RKS_OK;
    rks_arrivals *set = rks_staging_arrivals(staging);
    rks_arrival *arrival = rks_arrivals_get(set, (size_t)number);
    if (arrival == NULL || !rks_arrival_has_head(arrival))
        return RKS_OK; /* sealed meanwhile: below; or a further copy */
    char *path = rks_arrival_path(arrival, err);
    rks_status status = path == NULL ? RKS_ERR_MEMORY
                                     : rks_shard_open_arriving(path, rks_arrival_pieces(arrival),
                                                               &store->shards[shard], err);
    rks_free(path);
    store->arriving_shards[shard].set = set;
    store->arriving_shards[shard].number = (size_t)number;
    return status;
}

/* A rank is lost: what this one waits for may come, but the job cannot go on. */
static rks_status hear_group(void *user, rks_error *err)
{
    const rks_store *store = user;
    return rks_group_failed(store->group)
               ? rks_group_failure(store->group, "samples that come from home", err)
               : RKS_OK;
}

rks_status rks_store_open_arriving(rks_store *store, rks_error *err)
{
    const size_t count = store->dataset->shard_count;
    bool brings = false;
    for (size_t i = 0; i < store->staging_count; i++)
        brings = brings || rks_staging_arrivals(store->stagings[i]) != NULL;
    store->arriving.here = brings;
    if (store->staging_count > 0) {
        store->arriving.must_stop = hear_group;
        store->arriving.user = store;
    }
    store->arriving.rank = rks_group_rank(store->group);
    if (!brings)
        return RKS_OK;
    store->arriving_shards = rks_alloc(count, sizeof(*store->arriving_shards), err);
    rks_status status = store->arriving_shards == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = open_arriving(store, i, err);
    if (status == RKS_OK)
        status = rks_store_open_shards(store, err); /* those that were sealed in between */
    store->arriving.shards = store->arriving_shards;
    store->arriving.maps = store->shards;
    return status;
}

rks_status rks_store_open_through(rks_store *store, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < store->dataset->shard_count; i++) {
        const size_t of = staging_of(store, i);
        const size_t first =
            store->dataset->source_count == 0 ? 0 : store->dataset->sources[of].first_shard;
        if (of >= store->staging_count || store->shards[i] != NULL ||
            !rks_staging_reads_through(store->stagings[of], i - first))
            continue;
        rks_file_wait_at(rks_staging_home(store->stagings[of]));
        status = rks_store_open_shard(store, rks_staging_home(store->stagings[of]), i, err);
    }
    return status;
}

/* Opens the files of a shard that another rank brings, perhaps sealed by now. */
static rks_shard *open_files_beside(const char *path, const rks_dataset_shard *named)
{
    rks_pieces *pieces = NULL;
    rks_shard *map = NULL;
    char *marks = rks_format(NULL, "%s.pieces", path), *sealed = rks_format(NULL, "%s.json", path);
    if (marks != NULL && rks_pieces_follow(marks, named->manifest, &pieces, NULL) == RKS_OK)
        (void)rks_shard_open_arriving(path, pieces, &map, NULL);
    else if (sealed != NULL)
        (void)rks_shard_open(sealed, &map, NULL);
    rks_pieces_close(pieces);
    rks_free(sealed);
    rks_free(marks);
    return map;
}

/* Maps a shard that another rank brings. One that cannot be mapped is asked of that rank. */
static rks_shard *open_one_beside(const rks_store *store, size_t shard)
{
    const rks_dataset_shard *named = &store->dataset->shards[shard];
    char *path = rks_format(NULL, "%s/%s", rks_store_directory_of(store, shard), named->name);
    rks_shard *map = path == NULL ? NULL : open_files_beside(path, named);
    rks_free(path);
    if (map != NULL && (!rks_digest_equal(rks_shard_manifest_digest(map), named->manifest) ||
                        !rks_digest_equal(rks_shard_id(map), rks_store_shard_id(store, shard)))) {
        rks_shard_close(map);
        map = NULL;
    }
    return map;
}

rks_status rks_store_open_beside(rks_store *store, rks_shard **maps, rks_error *err)
{
    const size_t count = store->dataset->shard_count;
    const uint32_t node = rks_group_node(store->group);
    if (store->staging_count == 0)
        return RKS_OK;
    store->beside = rks_alloc(count, sizeof(*store->beside), err);
    if (store->arriving_shards == NULL)
        store->arriving_shards = rks_alloc(count, sizeof(*store->arriving_shards), err);
    store->arriving.shards = store->arriving_shards;
    if (store->beside == NULL || store->arriving_shards == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (store->shards[i] != NULL || rks_store_first_to_see(store, node, i) < 0)
            continue;
        store->beside[i] = open_one_beside(store, i);
        maps[i] = store->beside[i];
        store->arriving_shards[i].beside = maps[i] != NULL;
        store->arriving.beside = store->arriving.beside || maps[i] != NULL;
    }
    return RKS_OK;
}

static rks_status take_lease(rks_store *store, const char *directory, rks_error *err)
{
    char *home = NULL;
    (void)rks_home_file_read(directory, &home, NULL);
    rks_status status = home == NULL ? RKS_OK : rks_lease_share(directory, &store->leases, err);
    rks_free(home);
    return status;
}

rks_status rks_store_take_leases(rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    rks_status status =
        dataset->source_count == 0 ? take_lease(store, store->directory, err) : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->source_count; i++)
        if (dataset->sources[i].directory != NULL)
            status = take_lease(store, dataset->sources[i].directory, err);
    for (size_t i = 0; status == RKS_OK && i < store->folders.count; i++)
        status = take_lease(store, store->folders.paths[i], err);
    return status;
}

void rks_store_stop_stagings(rks_store *store)
{
    for (size_t i = 0; i < store->staging_count; i++)
        rks_staging_stop(store->stagings[i]);
}

void rks_store_end_stagings(rks_staging **stagings, size_t count)
{
    for (size_t i = 0; stagings != NULL && i < count; i++)
        rks_staging_end(stagings[i]);
    rks_free(stagings);
}

/* Looks for its manifest, which comes last. */
static bool is_sealed(const rks_store *store, size_t shard)
{
    char *path =
        rks_format(NULL, "%s/%s.json", rks_store_directory_of(store, shard), name_of(store, shard));
    bool sealed = path != NULL && access(path, F_OK) == 0;
    rks_free(path);
    return sealed;
}

uint64_t rks_store_count_arriving(const rks_store *store)
{
    uint64_t count = 0;
    for (size_t i = 0; store->arriving_shards != NULL && i < store->dataset->shard_count; i++) {
        rks_arriving_shard *shard = &store->arriving_shards[i];
        if ((shard->set == NULL && !shard->beside) || atomic_load(&shard->sealed))
            continue;
        if (is_sealed(store, i))
            atomic_store(&shard->sealed, true);
        else
            count++;
    }
    return count;
}

bool rks_store_expects(const rks_store *store)
{
    for (size_t i = 0; i < store->staging_count; i++) {
        const rks_staging_plan *plan = rks_staging_planned(store->stagings[i]);
        if (plan->here < plan->wanted)
            return true;
    }
    return false;
}

uint64_t rks_store_home_bytes(const rks_store *store)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < store->staging_count; i++)
        bytes += rks_staging_brought(store->stagings[i]);
    return bytes;
}
