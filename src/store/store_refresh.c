/* SPDX-License-Identifier: Apache-2.0
 *
 * store_refresh.c: from an open store to one of the newest generation. Directories of ranks grow
 * one after the other, and a network file system may show a generation late, so the newest one is
 * the newest that all ranks see. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/build_directory.h"
#include "home/address.h"
#include "store/home_dataset.h"
#include "store/store_reads.h"

enum { LOOKS = 5 }; /* appends and prunes may come between a look and the opening */

/* The newest generation that a rank sees of a directory. */
typedef struct seen_generation {
    uint64_t number; /* 0: it sees none */
    rks_digest id;
} seen_generation;

typedef struct refreshing {
    rks_store *store;
    const char *const *patterns;
    size_t count;
    const char *storage_options; /* of those that are URLs */
    seen_generation *seen;       /* by directory */
    uint64_t *numbers;           /* chosen ones */
    uint64_t *tried;             /* those that were not found when they were opened */
    char **named;                /* "PATTERN@N" */
    const char **names;          /* of sources */
} refreshing;

static const rks_dataset *refreshed_source(const refreshing *r, size_t i)
{
    const rks_dataset *dataset = r->store->dataset;
    return dataset->source_count == 0 ? dataset : dataset->sources[i].dataset;
}

static rks_status begin_refreshing(refreshing *r, rks_error *err)
{
    r->seen = rks_alloc(r->count, sizeof(*r->seen), err);
    r->numbers = rks_alloc(r->count, sizeof(*r->numbers), err);
    r->tried = rks_alloc(r->count, sizeof(*r->tried), err);
    r->named = rks_alloc(r->count, sizeof(*r->named), err);
    r->names = rks_alloc(r->count, sizeof(*r->names), err);
    if (r->seen == NULL || r->numbers == NULL || r->tried == NULL || r->named == NULL ||
        r->names == NULL)
        return RKS_ERR_MEMORY;
    if (r->count != rks_store_sources(r->store))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                        "refresh: %zu directories, and the store is of %zu", r->count,
                        rks_store_sources(r->store));
    return RKS_OK;
}

static void free_named(refreshing *r)
{
    for (size_t i = 0; r->named != NULL && i < r->count; i++) {
        rks_free(r->named[i]);
        r->named[i] = NULL;
    }
}

static void end_refreshing(refreshing *r)
{
    free_named(r);
    rks_free(r->seen);
    rks_free(r->numbers);
    rks_free(r->tried);
    rks_free(r->named);
    rks_free(r->names);
}

/* ---- the newest generation ---------------------------------------------------------------- */

/* Looks into one of the folders of a name: they must have the same generation to be opened, so the
 * oldest counts. */
static rks_status note_generation(const char *folder, seen_generation *seen, rks_error *err)
{
    rks_dataset_summary summary;
    rks_error why;
    rks_status status = rks_dataset_summarize(folder, 0, &summary, &why);
    if (status == RKS_ERR_NOT_FOUND)
        return RKS_OK;
    if (status != RKS_OK && err != NULL)
        *err = why;
    if (status == RKS_OK && (seen->number == 0 || summary.generation < seen->number))
        *seen = (seen_generation){summary.generation, summary.id};
    return status;
}

/* Asks a home that is a store. */
static rks_status note_stored(const char *url, const char *storage_options, seen_generation *seen,
                              rks_error *err)
{
    rks_dataset *dataset = NULL;
    rks_status status = rks_home_dataset_load(url, storage_options, 0, &dataset, err);
    if (status == RKS_OK)
        *seen = (seen_generation){rks_dataset_number(dataset), dataset->id};
    rks_dataset_free(dataset);
    return status;
}

/* Notes those of one name. A store is asked by rank 0 alone. */
static rks_status note_generations(const rks_group *group, const char *pattern,
                                   const char *storage_options, seen_generation *seen,
                                   rks_error *err)
{
    rks_folders folders = {0};
    rks_home_address address = {0};
    char *name = NULL;
    *seen = (seen_generation){0};
    rks_status status = rks_directory_expand(group, pattern, &name, err);
    if (status == RKS_OK) {
        rks_file_wait_at(name);
        rks_dataset_take_generation(name);
        status = rks_home_address_of(name, &address, err);
    }
    if (status == RKS_OK && !address.stored)
        status = rks_folders_find(&folders, address.path, err);
    else if (status == RKS_OK && rks_group_rank(group) == 0)
        status = note_stored(name, storage_options, seen, err);
    for (size_t k = 0; status == RKS_OK && k < folders.count; k++)
        status = note_generation(folders.paths[k], seen, err);
    rks_folders_free(&folders);
    rks_free(name);
    return status;
}

/* The stretch that looks at all of them; it may outlive the refresh. */
typedef struct noting {
    const rks_group *group;
    rks_store_texts patterns;
    rks_store_texts storage_options; /* one */
    seen_generation *seen;
} noting;

static void free_noting(void *state)
{
    noting *n = state;
    rks_store_texts_free(&n->patterns);
    rks_store_texts_free(&n->storage_options);
    rks_free(n->seen);
    rks_free(n);
}

static rks_status note_all(void *state, rks_error *err)
{
    noting *n = state;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < n->patterns.count; i++)
        status = note_generations(n->group, n->patterns.all[i], n->storage_options.all[0],
                                  &n->seen[i], err);
    return status;
}

/* Fills r->seen. */
static rks_status look_at_generations(refreshing *r, rks_error *err)
{
    rks_group *group = r->store->group;
    bool left = false;
    noting *n = rks_alloc(1, sizeof(*n), err);
    if (n == NULL)
        return RKS_ERR_MEMORY;
    n->group = group;
    n->seen = rks_alloc(r->count, sizeof(*n->seen), err);
    rks_status status = n->seen == NULL
                            ? RKS_ERR_MEMORY
                            : rks_store_texts_copy(&n->patterns, r->patterns, r->count, err);
    if (status == RKS_OK)
        status = rks_store_texts_copy(&n->storage_options, &r->storage_options, 1, err);
    if (status == RKS_OK) {
        const rks_file_work work = {.run = note_all, .drop = free_noting, .state = n};
        status = rks_store_wait_for_files(group, &work, &left, err);
    }
    if (left)
        return status;
    if (status == RKS_OK)
        memcpy(r->seen, n->seen, r->count * sizeof(*r->seen));
    free_noting(n);
    return status;
}

static rks_status fail_replaced(const refreshing *r, size_t i, const seen_generation *seen,
                                rks_error *err)
{
    char ids[2][RKS_DIGEST_TEXT];
    rks_digest_format(refreshed_source(r, i)->id, ids[0]);
    rks_digest_format(seen->id, ids[1]);
    return rks_fail(err, RKS_ERR_STATE, 0,
                    "refresh: %s now has dataset %.8s, generation %" PRIu64
                    ", which did not grow out of dataset %.8s, generation %" PRIu64
                    ", that is open; close that and open it anew",
                    r->patterns[i], ids[1], seen->number, ids[0],
                    rks_dataset_number(refreshed_source(r, i)));
}

/* Returns true if the store's dataset has grown out of this one: a directory that lags behind. */
static bool is_earlier(const refreshing *r, size_t i, const seen_generation *seen)
{
    rks_generation *earlier = NULL;
    size_t count = 0;
    char id[RKS_DIGEST_TEXT];
    bool found = false;
    rks_digest_format(seen->id, id);
    if (rks_store_earlier_of(refreshed_source(r, i), &earlier, &count, NULL) != RKS_OK)
        return false;
    for (size_t k = 0; k < count; k++)
        found = found || strcmp(earlier[k].dataset, id) == 0;
    rks_release(earlier);
    return found;
}

/* Chooses the newest generation of a directory that all ranks see which see any. */
static rks_status choose_generation(refreshing *r, const rks_agreed *agreed, size_t i,
                                    rks_error *err)
{
    const rks_dataset *open = refreshed_source(r, i);
    const uint64_t ours = rks_dataset_number(open);
    r->numbers[i] = 0;
    for (uint32_t rank = 0; rank < rks_group_size(agreed->group); rank++) {
        seen_generation seen;
        const uint8_t *theirs = rks_agreed_get(agreed, rank, 0, NULL);
        memcpy(&seen, theirs + i * sizeof(seen), sizeof(seen));
        if (seen.number == 0)
            continue;
        bool same = seen.number == ours && rks_digest_equal(seen.id, open->id);
        if (seen.number <= ours && !same && !is_earlier(r, i, &seen))
            return fail_replaced(r, i, &seen, err);
        uint64_t number = seen.number < ours ? ours : seen.number;
        if (r->numbers[i] == 0 || number < r->numbers[i])
            r->numbers[i] = number;
    }
    if (r->numbers[i] == 0)
        return rks_fail(err, RKS_ERR_NOT_FOUND, 0, "refresh: %s: no dataset here", r->patterns[i]);
    return RKS_OK;
}

/* COLLECTIVE. *grown: some directory has a later generation than the store. */
static rks_status find_newest(refreshing *r, rks_status status, bool *grown, rks_error *err)
{
    rks_agreed agreed;
    *grown = false;
    if (status == RKS_OK)
        status = look_at_generations(r, err);
    const rks_fact fact = rks_fact_fixed(r->seen, r->count * sizeof(*r->seen));
    status =
        rks_group_agree_on(r->store->group, "refresh: generations", status, &fact, 1, &agreed, err);
    for (size_t i = 0; status == RKS_OK && i < r->count; i++) {
        status = choose_generation(r, &agreed, i, err);
        *grown = *grown || r->numbers[i] > rks_dataset_number(refreshed_source(r, i));
    }
    return status;
}

/* ---- opening it ---------------------------------------------------------------------------- */

static rks_status name_generations(refreshing *r, rks_error *err)
{
    free_named(r);
    for (size_t i = 0; i < r->count; i++) {
        char *name = rks_strdup(r->patterns[i], err);
        if (name == NULL)
            return RKS_ERR_MEMORY;
        rks_dataset_take_generation(name);
        r->named[i] = rks_format(err, "%s@%" PRIu64, name, r->numbers[i]);
        rks_free(name);
        if (r->named[i] == NULL)
            return RKS_ERR_MEMORY;
        if (r->store->dataset->source_count > 0)
            r->names[i] = r->store->dataset->sources[i].name;
    }
    return RKS_OK;
}

/* COLLECTIVE. */
static rks_status open_named(refreshing *r, const rks_store_options *options, rks_store **newer,
                             rks_error *err)
{
    rks_status status = name_generations(r, err);
    status = rks_group_agree(r->store->group, "refresh", status, err);
    if (status != RKS_OK)
        return status;
    const char *const *named = (const char *const *)r->named;
    if (r->store->dataset->source_count == 0)
        return rks_store_open(r->store->group, named[0], options, newer, err);
    return rks_store_open_many(r->store->group, named, r->names, r->count, options, newer, err);
}

static bool same_excluded(const rks_excluded *one, const rks_excluded *other, uint64_t stored)
{
    uint64_t i;
    for (i = 0; i < one->run_count; i++) {
        if (i >= other->run_count || one->runs[i].first != other->runs[i].first)
            return false;
        uint64_t end = (uint64_t)other->runs[i].first + other->runs[i].count;
        if ((end < stored ? end : stored) != (uint64_t)one->runs[i].first + one->runs[i].count)
            return false;
    }
    return i >= other->run_count || other->runs[i].first >= stored;
}

/* Returns true if `later` begins with the samples of `earlier`, so that their ids are the same. */
static bool grew_out_of(const rks_dataset *later, const rks_dataset *earlier)
{
    uint64_t stored = rks_dataset_stored(earlier);
    bool same = later->unit_count >= earlier->unit_count &&
                strcmp(rks_schema_text(later->schema), rks_schema_text(earlier->schema)) == 0;
    for (size_t i = 0; same && i < earlier->unit_count; i++) {
        const rks_unit_summary *one = &earlier->units[i].summary;
        const rks_unit_summary *other = &later->units[i].summary;
        same = one->samples == other->samples && rks_digest_equal(one->digest, other->digest);
    }
    return same && same_excluded(&earlier->excluded, &later->excluded, stored);
}

static rks_status check_grown(const refreshing *r, const rks_store *newer, rks_error *err)
{
    const refreshing made = {.store = (rks_store *)(uintptr_t)newer};
    for (size_t i = 0; i < r->count; i++) {
        const rks_dataset *now = refreshed_source(&made, i);
        const seen_generation seen = {rks_dataset_number(now), now->id};
        if (!grew_out_of(now, refreshed_source(r, i)))
            return fail_replaced(r, i, &seen, err);
    }
    return RKS_OK;
}

rks_status rks_store_refresh(rks_store *store, const char *const *directories, size_t count,
                             const rks_store_options *options, rks_store **newer, rks_error *err)
{
    refreshing r = {.store = store, .patterns = directories, .count = count};
    if (options != NULL && options->struct_size > offsetof(rks_store_options, storage_options))
        r.storage_options = options->storage_options;
    rks_store *opened = NULL;
    bool grown = false;
    rks_error why;
    rks_status status = begin_refreshing(&r, err), tried = RKS_OK;
    for (int looks = 0; looks < LOOKS; looks++) {
        status = find_newest(&r, status, &grown, err);
        if (status != RKS_OK || !grown)
            break;
        if (looks > 0 && memcmp(r.numbers, r.tried, count * sizeof(*r.tried)) == 0) {
            status = tried; /* they are there still, so it is something else that is not */
            break;
        }
        tried = open_named(&r, options, &opened, &why);
        status = tried == RKS_ERR_NOT_FOUND && looks + 1 < LOOKS ? RKS_OK : tried;
        if (tried != RKS_ERR_NOT_FOUND)
            break;
        memcpy(r.tried, r.numbers, count * sizeof(*r.tried));
    }
    if (tried != RKS_OK && status == tried && err != NULL)
        *err = why;
    if (status == RKS_OK && opened != NULL)
        status = check_grown(&r, opened, err);
    if (status == RKS_OK) {
        *newer = opened;
        opened = NULL;
    }
    rks_store_close(opened, 0);
    end_refreshing(&r);
    return status;
}
