/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.c: where the shards of a dataset lie: by shard, which directories hold how much of it.
 * A place is a directory: that of a rank, or of several ranks of a node. */
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/home_file.h"
#include "group/agreement.h"
#include "rankstore/manage.h"
#include "store/store.h"

/* ---- as JSON --------------------------------------------------------------------------------- */

typedef struct placement {
    const rks_dataset *dataset;
    json_t *places, *shards;
    char *home; /* of the first place that names one */
} placement;

/* Names may hold any bytes. */
static json_t *name_json(const char *name)
{
    json_t *text = json_string(name);
    return text != NULL ? text : json_string("?");
}

static rks_status begin_placement(placement *p, const rks_dataset *dataset, rks_error *err)
{
    *p = (placement){.dataset = dataset, .places = json_array(), .shards = json_array()};
    for (size_t i = 0; i < dataset->shard_count; i++) {
        const rks_dataset_shard *shard = &dataset->shards[i];
        char id[RKS_DIGEST_TEXT];
        rks_digest_format(shard->id, id);
        json_array_append_new(
            p->shards,
            json_pack("{s:s, s:s, s:I, s:o, s:[]}", "name", shard->name, "id", id, "bytes",
                      (json_int_t)shard->file_bytes, "built",
                      shard->origin[0] == '\0' ? json_null() : name_json(shard->origin), "places"));
    }
    return json_array_size(p->shards) == dataset->shard_count
               ? RKS_OK
               : rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: the places of shards");
}

/* A directory. `home` may be empty. */
typedef struct place_names {
    uint32_t node;
    const char *host, *directory, *home;
} place_names;

/* Adds a place, whose entries are `size` bytes. Takes `ranks` over. */
static void add_place(placement *p, const place_names *names, json_t *ranks, const uint8_t *entries,
                      size_t size)
{
    const char *home = names->home;
    const json_int_t number = (json_int_t)json_array_size(p->places);
    json_int_t bytes = 0, whole = 0;
    for (size_t at = 0; at + RKS_PLACE_ENTRY <= size; at += RKS_PLACE_ENTRY) {
        const uint64_t shard = rks_load_u64(entries + at), here = rks_load_u64(entries + at + 8);
        json_t *list = json_object_get(json_array_get(p->shards, shard), "places");
        if (shard >= p->dataset->shard_count)
            continue;
        json_array_append_new(list,
                              json_pack("{s:I, s:I}", "place", number, "bytes", (json_int_t)here));
        bytes += (json_int_t)here;
        whole += here >= p->dataset->shards[shard].file_bytes;
    }
    json_array_append_new(p->places,
                          json_pack("{s:I, s:o, s:o, s:o, s:o, s:I, s:I}", "node",
                                    (json_int_t)names->node, "host", name_json(names->host),
                                    "directory", name_json(names->directory), "home",
                                    home[0] == '\0' ? json_null() : name_json(home), "ranks", ranks,
                                    "whole", whole, "bytes", bytes));
    if (p->home == NULL && home[0] != '\0')
        p->home = rks_strdup(home, NULL);
}

/* Frees the placement. `status`: so far. */
static rks_status end_placement(placement *p, rks_status status, char **json, rks_error *err)
{
    json_t *all = NULL;
    char *text = NULL;
    if (status == RKS_OK) {
        char id[RKS_DIGEST_TEXT];
        rks_digest_format(p->dataset->id, id);
        all = json_pack("{s:i, s:s, s:I, s:o, s:O, s:O}", "schema_version", 1, "dataset", id,
                        "generation", (json_int_t)rks_dataset_number(p->dataset), "home",
                        p->home == NULL ? json_null() : name_json(p->home), "places", p->places,
                        "shards", p->shards);
        text = all == NULL ? NULL : json_dumps(all, JSON_INDENT(2));
        *json = text == NULL ? NULL : rks_strdup(text, err);
        if (*json == NULL)
            status = rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: the places of shards");
    }
    free(text);
    json_decref(all);
    json_decref(p->places);
    json_decref(p->shards);
    rks_free(p->home);
    return status;
}

/* ---- what lies here -------------------------------------------------------------------------- */

static rks_status look_in_directory(const rks_dataset *dataset, const char *directory,
                                    rks_buffer *entries, rks_error *err)
{
    uint64_t *here = rks_alloc(dataset->shard_count, sizeof(*here), err);
    if (here == NULL)
        return RKS_ERR_MEMORY;
    rks_place_look(directory, dataset, here);
    rks_status status = rks_place_put(here, dataset->shard_count, entries, err);
    rks_free(here);
    return status;
}

static uint64_t look_for(const rks_dataset_shard *shard, const char *directory)
{
    return rks_arrival_look(directory, shard->name, shard->manifest, shard->file_bytes);
}

/* The same for a store, whose sources have a directory each, and which may have further folders. */
static rks_status look_in_store(const rks_store *store, rks_buffer *entries, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    uint64_t *here = rks_alloc(dataset->shard_count, sizeof(*here), err);
    if (here == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < dataset->shard_count; i++) {
        here[i] = look_for(&dataset->shards[i], rks_store_directory_of(store, i));
        for (size_t k = 0; here[i] == 0 && k < store->folders.count; k++)
            here[i] = look_for(&dataset->shards[i], store->folders.paths[k]);
    }
    rks_status status = rks_place_put(here, dataset->shard_count, entries, err);
    rks_free(here);
    return status;
}

/* Writes "DIRECTORY\0HOME\0". */
static rks_status put_names(const char *directory, rks_buffer *names, rks_error *err)
{
    char path[PATH_MAX], *home = NULL;
    const char *shown = realpath(directory, path) == NULL ? directory : path;
    (void)rks_home_file_read(directory, &home, NULL);
    rks_status status = rks_buffer_add(names, shown, strlen(shown) + 1, err);
    if (status == RKS_OK)
        status = rks_buffer_add(names, home == NULL ? "" : home,
                                home == NULL ? 1 : strlen(home) + 1, err);
    rks_free(home);
    return status;
}

/* ---- directories of this machine ------------------------------------------------------------- */

static rks_status add_directory(placement *p, const char *directory, rks_error *err)
{
    char host[65] = "?";
    rks_buffer names = {0}, entries = {0};
    rks_dataset_summary summary;
    gethostname(host, sizeof(host) - 1);
    rks_status status = rks_dataset_summarize(directory, 0, &summary, err);
    if (status == RKS_OK && summary.generation == rks_dataset_number(p->dataset) &&
        !rks_digest_equal(summary.id, p->dataset->id))
        status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                          "%s: holds another dataset than the first directory", directory);
    if (status == RKS_OK)
        status = look_in_directory(p->dataset, directory, &entries, err);
    if (status == RKS_OK)
        status = put_names(directory, &names, err);
    if (status == RKS_OK) {
        const char *path = (const char *)names.data;
        const place_names place = {0, host, path, path + strlen(path) + 1};
        add_place(p, &place, json_array(), entries.data, entries.size);
    }
    rks_buffer_free(&names);
    rks_buffer_free(&entries);
    return status;
}

rks_status rks_placement_json(const char *const *directories, size_t count, char **json,
                              rks_error *err)
{
    placement p = {0};
    rks_dataset *dataset = NULL;
    if (count == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no directory given");
    rks_status status = rks_dataset_load(directories[0], &dataset, err);
    if (status == RKS_OK)
        status = begin_placement(&p, dataset, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = add_directory(&p, directories[i], err);
    status = end_placement(&p, status, json, err);
    rks_dataset_free(dataset);
    return status;
}

/* ---- an open store --------------------------------------------------------------------------- */

/* By which ranks know that their directories are one. */
typedef struct reported_directory {
    uint64_t node, device, inode;
} reported_directory;

static reported_directory reported_by(const rks_agreed *agreed, uint32_t rank)
{
    reported_directory told;
    memcpy(&told, rks_agreed_get(agreed, rank, 0, NULL), sizeof(told));
    return told;
}

/* Returns the lowest rank of that rank's place. */
static uint32_t first_of(const rks_agreed *agreed, uint32_t rank)
{
    const reported_directory mine = reported_by(agreed, rank);
    for (uint32_t other = 0; other < rank; other++) {
        const reported_directory theirs = reported_by(agreed, other);
        if (memcmp(&mine, &theirs, sizeof(mine)) == 0)
            return other;
    }
    return rank;
}

/* Once all ranks' words are there. `first`: by rank, the lowest rank of its place. */
static void add_ranks(placement *p, const rks_store *store, const rks_agreed *agreed,
                      const uint32_t *first)
{
    rks_group *group = store->group;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        size_t size = 0, entries_size = 0;
        const char *path = rks_agreed_get(agreed, rank, 0, &size);
        const uint8_t *entries = rks_agreed_get(agreed, rank, 1, &entries_size);
        if (first[rank] != rank || size < 2 || path[size - 1] != '\0')
            continue;
        const size_t length = strlen(path) + 1;
        json_t *ranks = json_array();
        for (uint32_t other = rank; other < rks_group_size(group); other++)
            if (first[other] == rank)
                json_array_append_new(ranks, json_integer(other));
        const place_names place = {rks_group_node_of(group, rank), rks_group_host(group, rank),
                                   path, length < size ? path + length : ""};
        add_place(p, &place, ranks, entries, entries_size);
    }
}

rks_status rks_store_placement_json(rks_store *store, char **json, rks_error *err)
{
    rks_group *group = store->group;
    const uint32_t ranks = rks_group_size(group), mine = rks_group_rank(group);
    const char *directory =
        store->dataset->shard_count > 0 ? rks_store_directory_of(store, 0) : store->directory;
    reported_directory told = {.node = rks_group_node(group), .inode = UINT64_MAX - mine};
    struct stat info;
    placement p = {0};
    rks_buffer names = {0}, entries = {0};
    rks_agreed agreed;
    if (stat(directory, &info) == 0) {
        told.device = (uint64_t)info.st_dev;
        told.inode = (uint64_t)info.st_ino;
    }
    uint32_t *first = rks_alloc(ranks, sizeof(*first), err);
    const rks_fact where = rks_fact_fixed(&told, sizeof(told));
    rks_status status =
        rks_group_agree_on(group, "placement: directories", first == NULL ? RKS_ERR_MEMORY : RKS_OK,
                           &where, 1, &agreed, err);
    for (uint32_t rank = 0; status == RKS_OK && rank < ranks; rank++)
        first[rank] = first_of(&agreed, rank);
    if (status == RKS_OK) {
        if (first[mine] == mine)
            status = look_in_store(store, &entries, err);
        if (status == RKS_OK)
            status = put_names(directory, &names, err);
        const rks_fact facts[] = {
            rks_fact_bytes(names.data, names.size, (uint64_t)ranks * 2 * PATH_MAX),
            rks_fact_bytes(entries.data, entries.size,
                           (uint64_t)RKS_PLACE_ENTRY * store->dataset->shard_count * ranks)};
        status = rks_group_agree_on(group, "placement: shards", status, facts, 2, &agreed, err);
    }
    if (status == RKS_OK)
        status = begin_placement(&p, store->dataset, err);
    if (status == RKS_OK)
        add_ranks(&p, store, &agreed, first);
    status = end_placement(&p, status, json, err);
    rks_buffer_free(&names);
    rks_buffer_free(&entries);
    rks_free(first);
    return status;
}
