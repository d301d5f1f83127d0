/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_copies.c: shards under names that the dataset does not have. A lost shard that is built
 * again keeps its id and its units, so its records are the same bit for bit; name and manifest are
 * new. If the lost one comes back, either file serves. A shard of another build of the same input
 * has the same units, too, but an id of its own, which each record's check covers. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset.h"
#include "shard/shard.h"

/* Names of one build's parts begin alike: "part-" and 16 digits of the build. */
enum { PART_FRONT = 21 };

/* The shards that are sought, by name. */
typedef struct sought {
    const rks_dataset *dataset;
    const rks_dataset_shard **shards;
    size_t count;
} sought;

static int by_sought_name(const void *a, const void *b)
{
    const rks_dataset_shard *left = *(const rks_dataset_shard *const *)a;
    const rks_dataset_shard *right = *(const rks_dataset_shard *const *)b;
    return strcmp(left->name, right->name);
}

static int compare_front(const void *name, const void *shard)
{
    return strncmp(name, (*(const rks_dataset_shard *const *)shard)->name, PART_FRONT);
}

static bool is_of_a_build(const sought *s, const char *name)
{
    return strlen(name) > PART_FRONT && s->count > 0 &&
           bsearch(name, s->shards, s->count, sizeof(*s->shards), compare_front) != NULL;
}

static const rks_dataset_unit *unit_by_number(const rks_dataset *dataset, uint64_t number)
{
    size_t first = 0, end = dataset->unit_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (dataset->units[middle].summary.unit < number)
            first = middle + 1;
        else
            end = middle;
    }
    bool found = first < dataset->unit_count && dataset->units[first].summary.unit == number;
    return found ? &dataset->units[first] : NULL;
}

static bool same_units(const rks_dataset *dataset, size_t number, const rks_shard *shard)
{
    const rks_dataset_shard *named = &dataset->shards[number];
    size_t count = 0;
    uint64_t row = 0;
    const rks_unit_summary *units = rks_shard_units(shard, &count);
    for (size_t i = 0; i < count; i++) {
        const rks_dataset_unit *unit =
            units[i].unit > INT64_MAX ? NULL
                                      : unit_by_number(dataset, units[i].unit + named->first_unit);
        const char *name = rks_shard_unit_name(shard, i);
        if (unit == NULL || unit->shard != number || unit->first_row != row ||
            unit->summary.samples != units[i].samples ||
            !rks_digest_equal(unit->summary.digest, units[i].digest) ||
            (name == NULL) != (unit->key_name == NULL) ||
            (name != NULL && strcmp(name, unit->key_name) != 0))
            return false;
        row += units[i].samples;
    }
    return row == named->samples;
}

/* Returns the number of the shard that it is a copy of; SIZE_MAX: none. */
static size_t copy_of(const sought *s, const rks_shard *shard)
{
    for (size_t i = 0; i < s->count; i++) {
        size_t number = (size_t)(s->shards[i] - s->dataset->shards);
        if (rks_digest_equal(rks_dataset_build_of(s->dataset, number), rks_shard_build_id(shard)) &&
            rks_shard_largest(shard) <= s->shards[i]->largest &&
            same_units(s->dataset, number, shard))
            return number;
    }
    return SIZE_MAX;
}

static bool has_named_id(const rks_dataset *dataset, size_t number, const rks_shard *shard)
{
    return rks_digest_equal(dataset->shards[number].id, rks_shard_id(shard));
}

/* Takes the copy, or closes it. One with the dataset's id replaces another. */
static void prefer_copy(const rks_dataset *dataset, size_t number, rks_shard *shard,
                        rks_shard **taken)
{
    if (*taken != NULL &&
        (has_named_id(dataset, number, *taken) || !has_named_id(dataset, number, shard))) {
        rks_shard_close(shard);
        return;
    }
    rks_shard_close(*taken);
    *taken = shard;
}

/* *shard: NULL if the part is not sealed, or cannot be read: then it is no copy, only a leftover.
 */
static rks_status open_part(const char *directory, const char *name, rks_shard **shard,
                            rks_error *err)
{
    *shard = NULL;
    char *path = rks_format(err, "%s/%s.json", directory, name);
    rks_status status = path == NULL ? RKS_ERR_MEMORY : rks_shard_open(path, shard, NULL);
    rks_free(path);
    if (status == RKS_ERR_MEMORY)
        return rks_fail(err, status, 0, "out of memory: %s/%s", directory, name);
    return RKS_OK;
}

/* Seeks those of [first, first + count) that are not open, by name; `shards` NULL: all, in no
 * order. */
static rks_status seek(sought *s, const rks_dataset *dataset, size_t first, size_t count,
                       rks_shard *const *shards, rks_error *err)
{
    *s = (sought){.dataset = dataset, .shards = rks_alloc(count, sizeof(*s->shards), err)};
    if (s->shards == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (shards == NULL || shards[i] == NULL)
            s->shards[s->count++] = &dataset->shards[first + i];
    if (shards != NULL && s->count > 0)
        qsort(s->shards, s->count, sizeof(*s->shards), by_sought_name);
    return RKS_OK;
}

rks_status rks_dataset_open_copies(const rks_dataset *dataset, const char *directory, size_t first,
                                   size_t count, rks_shard **shards, rks_error *err)
{
    sought s;
    char **names = NULL;
    size_t name_count = 0;
    rks_shard_names named = {0};
    rks_status status = seek(&s, dataset, first, count, shards, err);
    /* A directory that cannot be listed has no copies that anybody could use. */
    if (status != RKS_OK || s.count == 0 ||
        rks_dataset_parts(directory, &names, &name_count, NULL) != RKS_OK) {
        rks_free(s.shards);
        return status;
    }
    status = rks_shard_names_add(&named, dataset, err);
    for (size_t i = 0; status == RKS_OK && i < name_count; i++) {
        rks_shard *shard = NULL;
        if (!is_of_a_build(&s, names[i]) || rks_shard_names_have(&named, names[i]))
            continue;
        status = open_part(directory, names[i], &shard, err);
        size_t number = shard == NULL ? SIZE_MAX : copy_of(&s, shard);
        if (number == SIZE_MAX)
            rks_shard_close(shard);
        else
            prefer_copy(dataset, number, shard, &shards[number - first]);
    }
    rks_shard_names_free(&named);
    rks_dataset_parts_free(names, name_count);
    rks_free(s.shards);
    return status;
}

/* Returns true if the shard that the dataset names lies in the directory. */
static bool has_named(const char *directory, const rks_dataset_shard *named)
{
    rks_shard *shard = NULL;
    open_part(directory, named->name, &shard, NULL);
    bool has = shard != NULL && rks_digest_equal(rks_shard_id(shard), named->id) &&
               rks_digest_equal(rks_shard_manifest_digest(shard), named->manifest);
    rks_shard_close(shard);
    return has;
}

bool rks_dataset_is_copy(const rks_dataset *dataset, const char *directory, const char *name)
{
    sought s;
    rks_shard *shard = NULL;
    if (seek(&s, dataset, 0, dataset->shard_count, NULL, NULL) != RKS_OK)
        return true; /* what may be a copy is not removed */
    bool is = false;
    for (size_t i = 0; !is && strlen(name) > PART_FRONT && i < s.count; i++)
        is = compare_front(name, &s.shards[i]) == 0;
    if (is) {
        rks_status status = open_part(directory, name, &shard, NULL);
        size_t number = shard == NULL ? SIZE_MAX : copy_of(&s, shard);
        is = status != RKS_OK ||
             (number != SIZE_MAX && (has_named_id(dataset, number, shard) ||
                                     !has_named(directory, &dataset->shards[number])));
        rks_shard_close(shard);
    }
    rks_free(s.shards);
    return is;
}
