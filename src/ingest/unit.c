/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.c: lists the sources' files, cuts them into units and deals the units to ranks.
 *
 * The digest is XXH3-128 over, little-endian:
 *   u64 files; each: u64 format, u64 size, u64 bytes of the name, name; of an object in a store
 *       then: u64 bytes of the version, version
 *   u64 units; each: u64 first file, u64 files, u64 offset, u64 size */
#include "ingest/unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "home/address.h"
#include "ingest/format.h"
#include "ingest/stored.h"
#include "ingest/window.h"

enum { FILE_WEIGHT = 4096, FORMAT_NAME = 32, DEAL_FILES = 4 };

/* The default: the input's size / UNITS_WANTED in whole steps. */
static const uint64_t UNITS_WANTED = 64, UNIT_STEP = (uint64_t)1 << 20,
                      UNIT_MOST = (uint64_t)64 << 20;
static const uint64_t DEFAULT_MAX_TOTAL = (uint64_t)1 << 40;
static const uint64_t DEFAULT_MAX_SAMPLE = (uint64_t)1 << 30;

static void digest_number(rks_digester *digester, uint64_t value)
{
    uint8_t bytes[8];
    rks_store_u64(bytes, value);
    rks_digester_update(digester, bytes, sizeof(bytes));
}

static rks_status digest_input(rks_input *input, rks_error *err)
{
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    digest_number(digester, input->file_count);
    for (size_t i = 0; i < input->file_count; i++) {
        const rks_input_file *file = &input->files[i];
        digest_number(digester, rks_format_number(input->format));
        digest_number(digester, file->size);
        digest_number(digester, strlen(file->name));
        rks_digester_update(digester, file->name, strlen(file->name));
        if (file->version == NULL)
            continue;
        digest_number(digester, strlen(file->version));
        rks_digester_update(digester, file->version, strlen(file->version));
    }
    digest_number(digester, input->unit_count);
    for (size_t i = 0; i < input->unit_count; i++) {
        const rks_input_unit *unit = &input->units[i];
        digest_number(digester, unit->first_file);
        digest_number(digester, unit->file_count);
        digest_number(digester, unit->offset);
        digest_number(digester, unit->size);
    }
    input->digest = rks_digester_result(digester);
    rks_digester_free(digester);
    return RKS_OK;
}

/* Moves the files out of the list. */
static rks_status move_files(rks_input *input, rks_found_list *list, rks_error *err)
{
    input->files = rks_alloc(list->count, sizeof(*input->files), err);
    if (input->files == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < list->count; i++) {
        input->files[i] = list->found[i].file;
        if (__builtin_add_overflow(input->bytes, input->files[i].size, &input->bytes))
            input->bytes = UINT64_MAX;
    }
    input->file_count = list->count;
    input->not_read = list->not_read;
    list->count = 0;
    return RKS_OK;
}

typedef struct source_list {
    const char **paths; /* each source's path, or what it stands for; of a store: its URL */
    char **found;       /* paths that missing sources stand for */
    bool *folders;
    size_t count;
    const rks_ingest_options *options;
    const char *asked;  /* the format, or NULL */
    rks_stores *stores; /* of URLs, once there is one; not the list's own */
} source_list;

static void free_sources(source_list *all)
{
    for (size_t i = 0; all->found != NULL && i < all->count; i++)
        rks_free(all->found[i]);
    rks_free(all->found);
    rks_free(all->paths);
    rks_free(all->folders);
}

/* A file:// URL is a path; another one needs a store. */
static rks_status walk_url(const char *url, size_t source, source_list *all, rks_found_list *list,
                           rks_error *err)
{
    rks_home_address address;
    rks_status status = rks_home_address_of(url, &address, err);
    all->paths[source] = status == RKS_OK ? address.path : url;
    if (status == RKS_OK && !address.stored)
        return rks_walk(address.path, source, list, &all->folders[source], err);
    if (status == RKS_OK && all->stores == NULL)
        status = rks_stores_create(all->options->storage_options, all->options->listing,
                                   all->options->input_bytes, &all->stores, err);
    return status == RKS_OK ? rks_stores_list(all->stores, url, source, all->asked, list,
                                              &all->folders[source], err)
                            : status;
}

static rks_status walk_sources(const char *const *given, source_list *all, rks_found_list *list,
                               rks_error *err)
{
    rks_status status = RKS_OK;
    all->paths = rks_alloc(all->count, sizeof(*all->paths), err);
    all->found = rks_alloc(all->count, sizeof(*all->found), err);
    all->folders = rks_alloc(all->count, sizeof(*all->folders), err);
    if (all->paths == NULL || all->found == NULL || all->folders == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; status == RKS_OK && i < all->count; i++) {
        if (rks_home_is_url(given[i])) {
            status = walk_url(given[i], i, all, list, err);
            continue;
        }
        if (access(given[i], F_OK) != 0)
            all->found[i] = rks_format_find_source(given[i], all->asked);
        all->paths[i] = all->found[i] != NULL ? all->found[i] : given[i];
        status = rks_walk(all->paths[i], i, list, &all->folders[i], err);
    }
    rks_walk_sort(list);
    return status;
}

/* Finds the files of all sources, their names and their format. */
static rks_status find_files(const char *const *given, size_t count,
                             const rks_ingest_options *options, rks_stores **stores,
                             rks_found_list *list, const rks_input_format **format, rks_error *err)
{
    source_list all = {.count = count, .options = options};
    all.asked = options->format == NULL && options->json_path != NULL ? "json" : options->format;
    char listed[FORMAT_NAME];
    rks_status status = walk_sources(given, &all, list, err);
    *stores = all.stores;
    if (all.asked == NULL && options->listing != NULL &&
        rks_listing_format(options->listing, listed, sizeof(listed)))
        all.asked = listed;
    for (size_t i = 0; i < list->count; i++)
        list->found[i].file.max_total =
            options->max_total != 0 ? options->max_total : DEFAULT_MAX_TOTAL;
    if (status == RKS_OK)
        status = rks_format_find(list, all.paths, all.folders, count, all.asked, format, err);
    if (status == RKS_OK)
        status = rks_walk_name(all.paths, count, all.folders, list, err);
    free_sources(&all);
    return status;
}

uint64_t rks_unit_size_for(uint64_t bytes)
{
    if (bytes >= UNITS_WANTED * UNIT_MOST)
        return UNIT_MOST;
    uint64_t steps = (bytes / UNITS_WANTED + UNIT_STEP - 1) / UNIT_STEP;
    return steps == 0 ? UNIT_STEP : steps * UNIT_STEP;
}

static void drop_units(rks_input *input)
{
    if (input->cut != NULL)
        input->format->free_cut(input);
    input->cut = NULL;
    rks_free(input->units);
    input->units = NULL;
    input->unit_count = input->unit_room = 0;
}

rks_status rks_input_cut(rks_input *input, uint64_t unit_size, rks_error *err)
{
    drop_units(input);
    input->unit_size = unit_size;
    rks_status status = input->format->cut(input, unit_size, err);
    if (status == RKS_OK)
        status = digest_input(input, err);
    if (status != RKS_OK) {
        drop_units(input);
        input->unit_size = 0; /* it has no units until it is cut again */
    }
    return status;
}

rks_status rks_input_refuse_options(const rks_ingest_options *options,
                                    const rks_input_format *format, rks_error *err)
{
    bool keeps_extra = options->extra != NULL && strcmp(options->extra, "json") == 0;
    if (options->columns != NULL && !format->takes_columns)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "columns: for csv and tsv without a header, and this input is %s",
                        format->name);
    if (options->json_path != NULL && format != &rks_format_json)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "json_path: for json, and this input is %s",
                        format->name);
    if (options->dtype != NULL && format != &rks_format_raw)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "dtype: for raw, and this input is %s",
                        format->name);
    if (options->flatten && !format->has_objects)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "flatten: for json and jsonl, and this input is %s", format->name);
    if (keeps_extra && !format->has_objects)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "extra: \"json\" is for json and jsonl, and this input is %s",
                        format->name);
    return RKS_OK;
}

void rks_input_take_options(rks_input *input, const rks_ingest_options *options,
                            const rks_input_format *format)
{
    input->max_sample = options->max_sample != 0 ? options->max_sample : DEFAULT_MAX_SAMPLE;
    input->skip_bad = options->skip_bad;
    input->unchecked = options->unchecked;
    input->columns = options->columns;
    input->json_path = options->json_path;
    input->flatten = options->flatten;
    input->dtype = options->dtype;
    input->infer_all = options->infer_all;
    input->infer_rows = options->infer_all ? UINT64_MAX : RKS_INFER_ROWS;
    input->infer_bytes = options->infer_all ? INT64_MAX : RKS_INFER_BYTES;
    input->format = format;
}

/* Takes the files that were found and cuts them into units. */
static rks_status set_up_input(rks_input *input, const rks_ingest_options *options,
                               const rks_input_format *format, rks_found_list *list, rks_error *err)
{
    rks_input_take_options(input, options, format);
    rks_status status = move_files(input, list, err);
    if (status != RKS_OK)
        return status;
    status = rks_input_refuse_options(options, format, err);
    if (status != RKS_OK)
        return status;
    uint64_t asked = options->unit_size;
    return rks_input_cut(input, asked != 0 ? asked : rks_unit_size_for(input->bytes), err);
}

rks_status rks_input_open(const char *const *sources, size_t count,
                          const rks_ingest_options *options, rks_input **input, rks_error *err)
{
    rks_error unseen;
    if (err == NULL)
        err = &unseen;
    rks_found_list list = {0};
    const rks_input_format *format = NULL;
    if (count == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "no sources were given");
    rks_input *opened = rks_alloc(1, sizeof(*opened), err);
    rks_status status =
        opened == NULL ? RKS_ERR_MEMORY
                       : find_files(sources, count, options, &opened->stores, &list, &format, err);
    if (status == RKS_OK)
        status = set_up_input(opened, options, format, &list, err);
    if (status == RKS_OK)
        *input = opened;
    else
        rks_input_free(opened); /* the list's files may lie in its stores, but are not open */
    rks_found_list_free(&list);
    return status;
}

void rks_input_free(rks_input *input)
{
    if (input == NULL)
        return;
    drop_units(input);
    for (size_t i = 0; i < input->file_count; i++) {
        rks_free(input->files[i].path);
        rks_free(input->files[i].name);
        rks_free(input->files[i].version);
    }
    rks_free(input->files);
    rks_stores_free(input->stores);
    rks_free(input);
}

rks_digest rks_input_digest(const rks_input *input)
{
    return input->digest;
}

void rks_input_options(const rks_input *input, rks_ingest_options *options)
{
    options->format = input->format->name;
    if (options->key == NULL && input->format->named_only)
        options->key = input->format->key;
    else if (options->key != NULL && options->key[0] == '\0') /* keys are made of name and row */
        options->key = NULL;
}

typedef struct weighed {
    uint64_t weight;
    size_t unit;   /* or file; the first one of several */
    uint32_t rank; /* that gets it */
} weighed;

static int by_weight(const void *a, const void *b)
{
    const weighed *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight < y->weight ? 1 : -1; /* largest first */
    return (x->unit > y->unit) - (x->unit < y->unit);
}

typedef struct load {
    uint64_t weight;
    uint32_t rank;
} load;

static bool less(load a, load b)
{
    return a.weight != b.weight ? a.weight < b.weight : a.rank < b.rank;
}

/* Restores the heap after its root changed. */
static void sift(load *heap, uint32_t count)
{
    for (size_t at = 0;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            return;
        if (child + 1 < count && less(heap[child + 1], heap[child]))
            child++;
        if (!less(heap[child], heap[at]))
            return;
        load moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

/* Deals, heaviest first to the least loaded, and sets the ranks. */
static rks_status deal_heaviest_first(weighed *order, size_t count, uint32_t ranks,
                                      uint64_t *largest, rks_error *err)
{
    load *heap = rks_alloc(ranks, sizeof(*heap), err);
    if (heap == NULL)
        return RKS_ERR_MEMORY;
    qsort(order, count, sizeof(*order), by_weight);
    for (uint32_t rank = 0; rank < ranks; rank++)
        heap[rank].rank = rank; /* equal loads in rank order are a heap */
    *largest = 0;
    for (size_t i = 0; i < count; i++) {
        order[i].rank = heap[0].rank;
        heap[0].weight += order[i].weight;
        *largest = heap[0].weight > *largest ? heap[0].weight : *largest;
        sift(heap, ranks);
    }
    rks_free(heap);
    return RKS_OK;
}

rks_status rks_input_choose_deal(rks_input *input, uint32_t ranks, rks_error *err)
{
    uint64_t largest = 0;
    input->deals_files = false;
    if (input->stores == NULL || ranks == 0)
        return RKS_OK;
    weighed *order = rks_alloc(input->file_count, sizeof(*order), err);
    if (order == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->file_count; i++)
        order[i] = (weighed){.weight = input->files[i].size, .unit = i};
    rks_status status = deal_heaviest_first(order, input->file_count, ranks, &largest, err);
    uint64_t share = input->bytes / ranks;
    input->deals_files = status == RKS_OK && largest - share <= share / DEAL_FILES;
    rks_free(order);
    return status;
}

/* Lists what is dealt, by its first unit. Returns how many there are. */
static size_t list_dealt(const rks_input *input, const bool *done, weighed *order)
{
    size_t count = 0;
    bool goes_on = false; /* the file that was listed last */
    for (size_t i = 0; i < input->unit_count; i++) {
        const rks_input_unit *unit = &input->units[i];
        uint64_t weight = unit->size + FILE_WEIGHT * (uint64_t)unit->file_count;
        goes_on = goes_on && !unit->first_of_file;
        if (done != NULL && done[i])
            continue;
        if (input->deals_files && goes_on)
            order[count - 1].weight += weight;
        else
            order[count++] = (weighed){.weight = weight, .unit = i};
        goes_on = true;
    }
    return count;
}

/* Gives what was listed to its rank: the rest of the unit's file, or the unit. */
static void give(const rks_input *input, const bool *done, const weighed *dealt, uint32_t *owners)
{
    for (size_t i = dealt->unit; i < input->unit_count; i++) {
        if (i > dealt->unit && (!input->deals_files || input->units[i].first_of_file))
            break;
        owners[i] = done != NULL && done[i] ? UINT32_MAX : dealt->rank;
    }
}

rks_status rks_input_deal(const rks_input *input, uint32_t ranks, const bool *done,
                          uint32_t *owners, rks_error *err)
{
    if (ranks == 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "units cannot be dealt to no ranks");
    weighed *order = rks_alloc(input->unit_count, sizeof(*order), err);
    if (order == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < input->unit_count; i++)
        owners[i] = UINT32_MAX;
    uint64_t largest = 0;
    const size_t count = list_dealt(input, done, order);
    rks_status status = deal_heaviest_first(order, count, ranks, &largest, err);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        give(input, done, &order[i], owners);
    rks_free(order);
    return status;
}

void rks_unit_ahead(const rks_input *input, size_t unit, uint64_t most)
{
    if (input->stores == NULL || input->format->reads == RKS_READS_ANYWHERE)
        return;
    const rks_input_unit *at = &input->units[unit];
    const rks_input_file *files = &input->files[at->first_file];
    for (size_t i = 0; at->file_count > 1 && i < at->file_count && i < RKS_FILES_AHEAD; i++)
        rks_input_file_ahead(&files[i], 0, files[i].size);
    if (at->file_count > 1)
        return;
    bool before = input->format->reads == RKS_READS_LINES && at->offset > 0;
    uint64_t size = at->size < most ? at->size : most;
    rks_input_file_ahead(files, at->offset - before, at->offset + size + RKS_WINDOW_OVERLAP);
}

rks_status rks_unit_count_rows(const rks_input *input, size_t unit, uint64_t *rows, rks_error *err)
{
    if (unit >= input->unit_count)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "unit %zu of %zu", unit, input->unit_count);
    return input->format->count_rows(input, unit, rows, err);
}
