/* SPDX-License-Identifier: Apache-2.0
 *
 * index_files.c: the index of shards that a node does not see, from the files that a dataset's
 * commit wrote beside dataset.json. Each rank says which of its sources have their files here. What
 * no rank of a node can read comes by the exchange, from a rank that sees the shard or has the
 * files. A damaged file counts as missing. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "store/store.h"

/* Source `at` of the store: the dataset itself if it is not united. */
typedef struct rks_index_source {
    const rks_dataset *dataset;
    const char *directory;
    uint64_t first; /* its first sample id */
    rks_index_items items;
    rks_index_reader *readers[RKS_INDEX_FILES_MAX]; /* open if this rank has all of them */
    bool here;
} rks_index_source;

struct rks_index_sources {
    rks_index_source *all;
    size_t count;
    uint8_t *here; /* by rank, a byte for each source */
};

static size_t count_sources(const rks_store *store)
{
    return store->dataset->source_count == 0 ? 1 : store->dataset->source_count;
}

static void close_readers(rks_index_source *source)
{
    for (size_t i = 0; i < RKS_INDEX_FILES_MAX; i++) {
        rks_index_reader_close(source->readers[i]);
        source->readers[i] = NULL;
    }
    source->here = false;
}

void rks_store_free_index_sources(rks_store *store)
{
    rks_index_sources *sources = store->index_sources;
    if (sources == NULL)
        return;
    for (size_t i = 0; i < sources->count; i++) {
        close_readers(&sources->all[i]);
        rks_free((void *)(uintptr_t)sources->all[i].items.sizes);
    }
    rks_free(sources->all);
    rks_free(sources->here);
    rks_free(sources);
    store->index_sources = NULL;
}

/* Says once why a file is not used; a missing one is nothing to talk about. */
static void tell_unusable(rks_status status, const rks_error *why)
{
    if (status != RKS_ERR_NOT_FOUND)
        rks_log("open: %s; the index comes from the shards instead", why->text);
}

static rks_status open_source(rks_index_source *source, rks_error *err)
{
    const rks_dataset *dataset = source->dataset;
    rks_error why = {0};
    rks_status status = rks_dataset_index_items(dataset, &source->items, err);
    if (status != RKS_OK)
        return status;
    source->here = dataset->index_file_count > 0 && source->directory != NULL;
    for (size_t i = 0; source->here && i < dataset->index_file_count; i++) {
        status = rks_index_reader_open(source->directory, &dataset->index_files[i], source->items,
                                       &source->readers[i], &why);
        if (status == RKS_OK)
            continue;
        if (status == RKS_ERR_MEMORY)
            return rks_fail(err, status, 0, "%s", why.text);
        tell_unusable(status, &why);
        close_readers(source);
    }
    return RKS_OK;
}

rks_status rks_store_look_at_index_files(rks_store *store, rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    rks_index_sources *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    store->index_sources = made;
    made->all = rks_alloc(count_sources(store), sizeof(*made->all), err);
    if (made->all == NULL)
        return RKS_ERR_MEMORY;
    made->count = count_sources(store);
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < made->count; i++) {
        rks_index_source *source = &made->all[i];
        bool united = dataset->source_count > 0;
        source->dataset = united ? dataset->sources[i].dataset : dataset;
        source->directory = united ? dataset->sources[i].directory : store->directory;
        source->first = united ? dataset->sources[i].first : 0;
        status = open_source(source, err);
    }
    return status;
}

size_t rks_store_index_files_size(const rks_store *store)
{
    return store == NULL || store->dataset == NULL ? 0 : count_sources(store);
}

void rks_store_tell_index_files(const rks_store *store, uint8_t *here)
{
    for (size_t i = 0; i < store->index_sources->count; i++)
        here[i] = store->index_sources->all[i].here;
}

rks_status rks_store_take_index_files(rks_store *store, const rks_agreed *agreed, rks_error *err)
{
    rks_index_sources *sources = store->index_sources;
    uint32_t ranks = rks_group_size(store->group);
    sources->here = rks_alloc(ranks, sources->count, err);
    if (sources->here == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t rank = 0; rank < ranks; rank++)
        memcpy(sources->here + rank * sources->count,
               rks_agreed_get(agreed, rank, RKS_TELL_INDEX_FILES, NULL), sources->count);
    return RKS_OK;
}

void rks_store_drop_index_files(rks_store *store)
{
    rks_index_sources *sources = store->index_sources;
    memset(sources->here, 0, rks_group_size(store->group) * sources->count);
    for (size_t i = 0; i < sources->count; i++)
        close_readers(&sources->all[i]);
}

/* ---- who has the files of a shard -------------------------------------------------------- */

static size_t source_of_shard(const rks_store *store, size_t shard)
{
    return store->dataset->source_count == 0 ? 0
                                             : rks_dataset_source_of_shard(store->dataset, shard);
}

static bool has_files(const rks_store *store, uint32_t rank, size_t source)
{
    const rks_index_sources *sources = store->index_sources;
    return sources->here[rank * sources->count + source] != 0;
}

bool rks_store_node_has_index(const rks_store *store, uint32_t node, size_t shard)
{
    size_t source = source_of_shard(store, shard);
    for (uint32_t at = 0; at < rks_group_node_size(store->group, node); at++)
        if (has_files(store, rks_group_at_place(store->group, node, at), source))
            return true;
    return false;
}

int64_t rks_store_index_sender(const rks_store *store, size_t shard)
{
    size_t source = source_of_shard(store, shard);
    if (store->owners[shard][0] >= 0)
        return store->owners[shard][0];
    for (uint32_t rank = 0; rank < rks_group_size(store->group); rank++)
        if (has_files(store, rank, source))
            return rank;
    return -1;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* A file that is read for the spans whose shards no rank of this node sees. */
typedef struct reading {
    rks_store *store;
    const rks_index_source *source;
    const rks_index_reader *reader;
    uint64_t first; /* id of the file's first sample */
    uint8_t *bytes; /* room for a segment */
} reading;

/* Returns the store's array for an array of the source's file; NULL: the store has no such column,
 * since not all sources have it. */
static uint8_t *array_of(const reading *r, size_t array)
{
    const rks_dataset *own = r->source->dataset, *dataset = r->store->dataset;
    if (array == 0)
        return (uint8_t *)rks_index_lengths(r->store->index);
    if (array == 1)
        return (uint8_t *)rks_index_key_hashes(r->store->index);
    const char *name = own->index[array - RKS_INDEX_FILE_ARRAYS];
    for (size_t i = 0; i < dataset->index_count; i++)
        if (strcmp(dataset->index[i], name) == 0)
            return rks_index_column_data(r->store->index, i);
    return NULL;
}

static bool is_wanted(const rks_store *store, const rks_span *span)
{
    uint32_t node = rks_group_node(store->group);
    return rks_store_first_to_see(store, node, span->shard) < 0;
}

/* Returns the first span that ends after `id`. */
static size_t span_after(const rks_index_gather *filling, uint64_t id)
{
    size_t low = 0, high = filling->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (filling->spans[middle].first_id + filling->spans[middle].count <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Reads a segment, if a wanted span has some of it, and copies those. */
static rks_status read_segment(const reading *r, const rks_index_gather *filling, uint64_t number,
                               rks_error *err)
{
    const rks_index_segment segment = rks_index_reader_segment(r->reader, number);
    uint64_t begin = r->first + segment.first, end = begin + segment.count;
    uint8_t *to = array_of(r, segment.array);
    uint32_t item = r->source->items.sizes[segment.array];
    bool is_read = false;
    rks_status status = RKS_OK;
    for (size_t i = span_after(filling, begin);
         to != NULL && i < filling->span_count && filling->spans[i].first_id < end; i++) {
        const rks_span *span = &filling->spans[i];
        if (!is_wanted(r->store, span))
            continue;
        if (!is_read)
            status = rks_index_reader_read(r->reader, number, r->bytes, err);
        is_read = true;
        if (status != RKS_OK)
            return status;
        uint64_t from = span->first_id > begin ? span->first_id : begin;
        uint64_t until = span->first_id + span->count;
        until = until < end ? until : end;
        memcpy(to + from * item, r->bytes + (from - begin) * item, (size_t)((until - from) * item));
    }
    return RKS_OK;
}

/* Returns which of the node's ranks with the source's files this is; they share the reading.
 * *places: how many they are. */
static uint64_t place_among(const rks_store *store, size_t source, uint64_t *places)
{
    uint32_t node = rks_group_node(store->group);
    uint64_t place = 0;
    *places = 0;
    for (uint32_t at = 0; at < rks_group_node_size(store->group, node); at++) {
        uint32_t rank = rks_group_at_place(store->group, node, at);
        if (rank == rks_group_rank(store->group))
            place = *places;
        *places += has_files(store, rank, source);
    }
    return place;
}

/* Reads this rank's share of the segments of a source's files. */
static rks_status read_source(rks_store *store, size_t number, const rks_index_gather *filling,
                              rks_error *err)
{
    const rks_index_source *source = &store->index_sources->all[number];
    uint64_t places, first = source->first, turn = 0;
    const uint64_t place = place_among(store, number, &places);
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < source->dataset->index_file_count; i++) {
        reading r = {store, source, source->readers[i], first, NULL};
        first += source->dataset->index_files[i].samples;
        r.bytes = rks_alloc_raw(rks_index_reader_room(r.reader), 1, err);
        if (r.bytes == NULL)
            return RKS_ERR_MEMORY;
        uint64_t segments = rks_index_reader_segments(r.reader);
        for (uint64_t k = 0; status == RKS_OK && k < segments; k++)
            if (turn++ % places == place)
                status = read_segment(&r, filling, k, err);
        rks_free(r.bytes);
    }
    return status;
}

rks_status rks_store_read_index_files(rks_store *store, const rks_index_gather *filling,
                                      bool *damaged, rks_error *err)
{
    const rks_index_sources *sources = store->index_sources;
    rks_error why = {0};
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < sources->count; i++)
        if (has_files(store, rks_group_rank(store->group), i))
            status = read_source(store, i, filling, &why);
    *damaged = status != RKS_OK && status != RKS_ERR_MEMORY;
    if (*damaged) {
        tell_unusable(status, &why);
        return RKS_OK;
    }
    if (status != RKS_OK && err != NULL)
        *err = why;
    return status;
}
