/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_join.c: joins datasets. Sealed shards keep their own build and unit numbers. The joined
 * dataset.json says for each shard which build wrote it and what to add to its unit numbers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"

rks_digest rks_dataset_build_of(const rks_dataset *dataset, size_t shard)
{
    const rks_digest none = {0};
    return rks_digest_equal(dataset->shards[shard].build, none) ? dataset->build_id
                                                                : dataset->shards[shard].build;
}

static rks_status check_alike(const rks_dataset *a, const rks_dataset *b, rks_error *err)
{
    const char *one = rks_schema_text(a->schema), *other = rks_schema_text(b->schema);
    if (strcmp(one, other) != 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "the schemas differ: %.80s and %.80s", one,
                        other);
    if (a->derived_keys != b->derived_keys)
        return rks_fail(
            err, RKS_ERR_ARGUMENT, 0, "the keys of the first are %s, those of the second %s",
            a->derived_keys ? "derived" : "stored", b->derived_keys ? "derived" : "stored");
    bool same = a->index_count == b->index_count;
    for (size_t i = 0; same && i < a->index_count; i++)
        same = strcmp(a->index[i], b->index[i]) == 0;
    return same ? RKS_OK
                : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                           "the index columns differ: %zu, the first %s, and %zu, the first %s",
                           a->index_count, a->index_count == 0 ? "none" : a->index[0],
                           b->index_count, b->index_count == 0 ? "none" : b->index[0]);
}

/* A shard of one of the joined datasets. */
typedef struct listed {
    const rks_dataset_shard *shard;
    size_t part;
} listed;

static int by_part(const listed *a, const listed *b)
{
    return a->part < b->part ? -1 : a->part > b->part;
}

static int order_by_shard_id(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    int order = rks_dataset_compare_ids(x->shard->id, y->shard->id);
    return order != 0 ? order : by_part(x, y);
}

static int order_by_shard_name(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    int order = strcmp(x->shard->name, y->shard->name);
    return order != 0 ? order : by_part(x, y);
}

/* Finds equal neighbours, those that are earliest in the list of parts. */
static void find_equal(const listed *all, size_t count, bool ids, const listed **first,
                       const listed **second)
{
    for (size_t i = 1; i < count; i++) {
        const listed *a = &all[i - 1], *b = &all[i];
        bool equal = ids ? rks_digest_equal(a->shard->id, b->shard->id)
                         : strcmp(a->shard->name, b->shard->name) == 0;
        if (equal && (*second == NULL || b->part < (*second)->part)) {
            *first = a;
            *second = b;
        }
    }
}

/* Checks that no shard, and no name of one, is in two parts. */
static rks_status check_apart(const rks_dataset *const *parts, size_t count, size_t *which,
                              rks_error *err)
{
    size_t shards = 0, found = 0;
    const listed *first = NULL, *second = NULL;
    for (size_t part = 0; part < count; part++)
        shards += parts[part]->shard_count;
    listed *all = rks_alloc(shards, sizeof(*all), err);
    if (all == NULL)
        return RKS_ERR_MEMORY;
    for (size_t part = 0; part < count; part++)
        for (size_t i = 0; i < parts[part]->shard_count; i++)
            all[found++] = (listed){&parts[part]->shards[i], part};
    for (int ids = 0; ids < 2 && second == NULL && shards > 0; ids++) {
        qsort(all, shards, sizeof(*all), ids ? order_by_shard_id : order_by_shard_name);
        find_equal(all, shards, ids, &first, &second);
    }
    rks_status status = RKS_OK;
    if (second != NULL) {
        *which = second->part;
        status = rks_fail(err, RKS_ERR_DATA, 0, "shard %s is in both", first->shard->name);
    }
    rks_free(all);
    return status;
}

rks_status rks_dataset_append(rks_dataset *joined, const rks_dataset *whose, rks_error *err)
{
    uint64_t first_unit =
        joined->unit_count == 0 ? 0 : joined->units[joined->unit_count - 1].summary.unit + 1;
    uint32_t first_shard = (uint32_t)joined->shard_count;
    for (size_t i = 0; i < whose->shard_count; i++) {
        rks_dataset_shard *shard = &joined->shards[joined->shard_count++];
        *shard = whose->shards[i];
        shard->build = rks_dataset_build_of(whose, i);
        shard->first_unit += first_unit;
    }
    for (size_t i = 0; i < whose->unit_count; i++) {
        rks_dataset_unit *unit = &joined->units[joined->unit_count++];
        *unit = whose->units[i];
        unit->key_name = NULL;
        if (first_unit > INT64_MAX || unit->summary.unit > INT64_MAX - first_unit)
            return rks_fail(err, RKS_ERR_DATA, 0, "unit numbers end at 2^63");
        unit->summary.unit += first_unit;
        unit->shard += first_shard;
        if (whose->units[i].key_name != NULL &&
            (unit->key_name = rks_strdup(whose->units[i].key_name, err)) == NULL)
            return RKS_ERR_MEMORY;
    }
    joined->count += whose->count;
    return RKS_OK;
}

/* Positions count stored samples: those of each part come after those of the parts before it. */
static rks_status join_excluded(rks_dataset *joined, const rks_dataset *const *parts, size_t count,
                                rks_error *err)
{
    rks_excluded *made = &joined->excluded;
    uint64_t before = 0, samples = 0, runs = 0;
    rks_buffer bytes = {0};
    for (size_t part = 0; part < count; part++) {
        samples += parts[part]->excluded.samples;
        runs += parts[part]->excluded.run_count;
    }
    if (samples == 0)
        return RKS_OK;
    made->runs = rks_alloc_raw(runs, sizeof(*made->runs), err);
    if (made->runs == NULL)
        return RKS_ERR_MEMORY;
    for (size_t part = 0; part < count; part++) {
        const rks_excluded *one = &parts[part]->excluded;
        for (uint64_t i = 0; i < one->run_count; i++)
            made->runs[made->run_count++] =
                (rks_excluded_run){(uint32_t)(one->runs[i].first + before), one->runs[i].count};
        made->bytes += one->bytes;
        made->duplicates += one->duplicates;
        before += rks_dataset_stored(parts[part]);
    }
    rks_status status = rks_excluded_settle(made->runs, &made->run_count, err);
    if (status == RKS_OK) /* copies its name, counts and digest */
        status = rks_excluded_encode(made, &bytes, err);
    rks_buffer_free(&bytes);
    return status;
}

/* Copies what is not inside the struct itself, with room for so many shards and units. */
static rks_status copy_parts(rks_dataset *joined, const rks_dataset *a, size_t shards, size_t units,
                             rks_error *err)
{
    joined->derived_keys = a->derived_keys;
    joined->index = rks_alloc(a->index_count, sizeof(char *), err);
    joined->shards = rks_alloc(shards, sizeof(*joined->shards), err);
    joined->units = rks_alloc(units, sizeof(*joined->units), err);
    joined->build_options = rks_strdup(a->build_options == NULL ? "{}" : a->build_options, err);
    if (joined->index == NULL || joined->shards == NULL || joined->units == NULL ||
        joined->build_options == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < a->index_count; i++) {
        if ((joined->index[i] = rks_strdup(a->index[i], err)) == NULL)
            return RKS_ERR_MEMORY;
        joined->index_count++;
    }
    return rks_schema_parse(rks_schema_text(a->schema), &joined->schema, err);
}

/* Copies a text; NULL stays NULL. */
static rks_status copy_text(const char *text, char **copy, rks_error *err)
{
    *copy = text == NULL ? NULL : rks_strdup(text, err);
    return text != NULL && *copy == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

static rks_status copy_top(rks_dataset *joined, const rks_dataset *const *parts, size_t count,
                           rks_error *err)
{
    const rks_dataset *first = parts[0];
    size_t shards = 0, units = 0;
    for (size_t part = 0; part < count; part++) {
        shards += parts[part]->shard_count;
        units += parts[part]->unit_count;
    }
    joined->build_id = parts[count - 1]->build_id;
    joined->unit_size = parts[count - 1]->unit_size;
    memcpy(joined->lists, first->lists, sizeof(joined->lists));
    joined->list_count = first->list_count;
    joined->generation = rks_dataset_number(first) + 1;
    const rks_dataset *last = parts[count - 1];
    rks_status status =
        copy_text(last->added_options != NULL ? last->added_options : last->build_options,
                  &joined->added_options, err);
    return status != RKS_OK ? status : copy_parts(joined, first, shards, units, err);
}

static rks_status copy_excluded(const rks_excluded *from, rks_excluded *to, rks_error *err)
{
    *to = *from;
    to->runs = NULL;
    if (from->samples == 0)
        return RKS_OK;
    to->runs = rks_alloc_raw(from->run_count, sizeof(*to->runs), err);
    if (to->runs == NULL)
        return RKS_ERR_MEMORY;
    memcpy(to->runs, from->runs, from->run_count * sizeof(*to->runs));
    return RKS_OK;
}

rks_status rks_dataset_copy(const rks_dataset *dataset, rks_dataset **copy, rks_error *err)
{
    rks_status status = rks_dataset_check(dataset, RKS_DATASET_FILE, RKS_ERR_ARGUMENT, err);
    if (status != RKS_OK)
        return status;
    rks_dataset *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->id = dataset->id;
    made->build_id = dataset->build_id;
    made->unit_size = dataset->unit_size;
    made->generation = dataset->generation;
    made->revision = dataset->revision;
    memcpy(made->made_from, dataset->made_from, sizeof(made->made_from));
    memcpy(made->index_files, dataset->index_files, sizeof(made->index_files));
    made->index_file_count = dataset->index_file_count;
    status = copy_parts(made, dataset, dataset->shard_count, dataset->unit_count, err);
    if (status == RKS_OK)
        status = copy_text(dataset->added_options, &made->added_options, err);
    if (status == RKS_OK)
        status = rks_dataset_append(made, dataset, err);
    made->count = dataset->count;
    for (size_t i = 0; status == RKS_OK && i < made->shard_count; i++) {
        made->shards[i].build = dataset->shards[i].build; /* zeros stay zeros: they mean the
                                                           * dataset's own build */
        made->shards[i].list = 0;
    }
    if (status == RKS_OK)
        status = copy_excluded(&dataset->excluded, &made->excluded, err);
    if (status == RKS_OK)
        status = rks_dataset_order_shards(made, RKS_DATASET_FILE, err);
    if (status != RKS_OK) {
        rks_dataset_free(made);
        return status;
    }
    *copy = made;
    return RKS_OK;
}

/* Checks each part by itself, and against the first one. */
static rks_status check_fit(const rks_dataset *const *parts, size_t count, size_t *which,
                            rks_error *err)
{
    uint64_t stored = 0;
    for (size_t part = 0; part < count; part++) {
        *which = part;
        stored += rks_dataset_stored(parts[part]);
        rks_status status = check_alike(parts[0], parts[part], err);
        if (status == RKS_OK && stored > UINT32_MAX)
            status = rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                              "%" PRIu64 " stored samples together; a dataset has fewer than 2^32",
                              stored);
        if (status != RKS_OK)
            return status;
    }
    return check_apart(parts, count, which, err);
}

static rks_status join_parts(rks_dataset *made, const rks_dataset *const *parts, size_t count,
                             rks_error *err)
{
    rks_status status = copy_top(made, parts, count, err);
    for (size_t part = 0; status == RKS_OK && part < count; part++)
        status = rks_dataset_append(made, parts[part], err);
    if (status != RKS_OK)
        return status;
    for (size_t i = parts[0]->shard_count; i < made->shard_count; i++)
        made->shards[i].list = 0; /* the lists of its directory are not those of the first */
    return join_excluded(made, parts, count, err);
}

rks_status rks_dataset_join_all(const rks_dataset *const *parts, size_t count, rks_dataset **joined,
                                size_t *which, rks_error *err)
{
    rks_status status = check_fit(parts, count, which, err);
    if (status != RKS_OK)
        return status;
    rks_dataset *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    status = join_parts(made, parts, count, err);
    if (status != RKS_OK) {
        rks_dataset_free(made);
        return status;
    }
    made->id = rks_dataset_id(made);
    *joined = made;
    return RKS_OK;
}

rks_status rks_dataset_join(const rks_dataset *a, const rks_dataset *b, rks_dataset **joined,
                            rks_error *err)
{
    const rks_dataset *const parts[] = {a, b};
    size_t which = 0;
    return rks_dataset_join_all(parts, 2, joined, &which, err);
}

rks_status rks_dataset_choose(const rks_dataset *dataset, const bool *chosen, rks_dataset **made,
                              rks_error *err)
{
    rks_dataset *part = rks_alloc(1, sizeof(*part), err);
    uint32_t *place = part == NULL ? NULL : rks_alloc(dataset->shard_count, sizeof(*place), err);
    rks_status status = place == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = copy_parts(part, dataset, dataset->shard_count, dataset->unit_count, err);
    if (status == RKS_OK)
        status = copy_text(dataset->added_options, &part->added_options, err);
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++) {
        place[i] = (uint32_t)part->shard_count;
        if (chosen[i])
            part->shards[part->shard_count++] = dataset->shards[i];
    }
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++) {
        const rks_dataset_unit *from = &dataset->units[i];
        if (!chosen[from->shard])
            continue;
        rks_dataset_unit *unit = &part->units[part->unit_count++];
        *unit = *from;
        unit->shard = place[from->shard];
        part->count += from->summary.samples;
        if (from->key_name != NULL && (unit->key_name = rks_strdup(from->key_name, err)) == NULL)
            status = RKS_ERR_MEMORY;
    }
    rks_free(place);
    if (status != RKS_OK) {
        rks_dataset_free(part);
        return status;
    }
    part->build_id = dataset->build_id;
    part->unit_size = dataset->unit_size;
    part->generation = dataset->generation;
    part->revision = dataset->revision;
    for (size_t i = 0; i < part->shard_count; i++)
        part->shards[i].list = 0;
    part->id = rks_dataset_id(part);
    *made = part;
    return RKS_OK;
}
