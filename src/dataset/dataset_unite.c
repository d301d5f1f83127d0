/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_unite.c: makes one dataset of several, in memory. Nothing is copied or written: shards
 * stay where they are, and their records are read as samples of the united schema. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "dataset/dataset_json.h"
#include "shard/json_text.h"

typedef struct uniting {
    rks_dataset **datasets;
    const char *const *names;
    size_t count;
    const char *const *columns; /* NULL: all */
    size_t column_count;
} uniting;

/* ---- the schema ----------------------------------------------------------------------------- */

static const rks_column *source_column(const uniting *u, size_t source, const char *name)
{
    const rks_schema *schema = u->datasets[source]->schema;
    int found = rks_schema_find(schema, name);
    return found < 0 ? NULL : rks_schema_column(schema, (uint32_t)found);
}

static bool is_asked(const uniting *u, const char *name)
{
    for (size_t i = 0; u->columns != NULL && i < u->column_count; i++)
        if (strcmp(u->columns[i], name) == 0)
            return true;
    return u->columns == NULL;
}

/* Returns the size of the type's text without the `?` after it. */
static size_t type_size(const rks_column *column)
{
    return strlen(column->type) - column->nullable;
}

/* Adds a column that `source` is the first to have, with a type that fits all later sources. */
static rks_status put_column(const uniting *u, size_t source, const rks_column *column,
                             rks_buffer *json, rks_error *err)
{
    bool nullable = source > 0 || column->nullable;
    size_t size = type_size(column);
    for (size_t i = source + 1; i < u->count; i++) {
        const rks_column *other = source_column(u, i, column->name);
        nullable = nullable || other == NULL || other->nullable;
        if (other != NULL &&
            (type_size(other) != size || memcmp(other->type, column->type, size) != 0))
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "dataset %s: column \"%s\" is %s, but %s in dataset %s; leave it out "
                            "with `columns`",
                            u->names[i], column->name, other->type, column->type, u->names[source]);
    }
    rks_status status = rks_buffer_print(json, err, "%s", json->size == 1 ? "" : ",");
    if (status == RKS_OK)
        status = rks_json_put_string(json, column->name, err);
    return status == RKS_OK ? rks_buffer_print(json, err, ":\"%.*s%s\"", (int)size, column->type,
                                               nullable ? "?" : "")
                            : status;
}

static bool is_new(const uniting *u, size_t source, const char *name)
{
    for (size_t i = 0; i < source; i++)
        if (source_column(u, i, name) != NULL)
            return false;
    return is_asked(u, name);
}

static rks_status check_asked(const uniting *u, rks_error *err)
{
    for (size_t i = 0; i < u->column_count; i++) {
        bool found = false;
        for (size_t source = 0; !found && source < u->count; source++)
            found = source_column(u, source, u->columns[i]) != NULL;
        if (!found)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "columns: no dataset has a column \"%s\"",
                            u->columns[i]);
    }
    return u->columns != NULL && u->column_count == 0
               ? rks_fail(err, RKS_ERR_ARGUMENT, 0, "columns: the list is empty")
               : RKS_OK;
}

static rks_status unite_schemas(const uniting *u, rks_schema **schema, rks_error *err)
{
    rks_buffer json = {0};
    rks_status status = check_asked(u, err);
    if (status == RKS_OK)
        status = rks_buffer_add(&json, "{", 1, err);
    for (size_t i = 0; status == RKS_OK && i < u->count; i++) {
        const rks_schema *own = u->datasets[i]->schema;
        for (uint32_t c = 0; status == RKS_OK && c < rks_schema_columns(own); c++)
            if (is_new(u, i, rks_schema_name(own, c)))
                status = put_column(u, i, rks_schema_column(own, c), &json, err);
    }
    if (status == RKS_OK)
        status = rks_buffer_add(&json, "}", 2, err);
    if (status == RKS_OK)
        status = rks_schema_parse((const char *)json.data, schema, err);
    rks_buffer_free(&json);
    return status;
}

/* ---- the rest ------------------------------------------------------------------------------- */

static bool has_index(const rks_dataset *dataset, const char *name)
{
    for (size_t i = 0; i < dataset->index_count; i++)
        if (strcmp(dataset->index[i], name) == 0)
            return true;
    return false;
}

static rks_status unite_index(const uniting *u, rks_dataset *made, rks_error *err)
{
    const rks_dataset *first = u->datasets[0];
    made->index = rks_alloc(first->index_count, sizeof(*made->index), err);
    if (made->index == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < first->index_count; i++) {
        bool all = is_asked(u, first->index[i]);
        for (size_t other = 1; all && other < u->count; other++)
            all = has_index(u->datasets[other], first->index[i]);
        if (!all)
            continue;
        if ((made->index[made->index_count] = rks_strdup(first->index[i], err)) == NULL)
            return RKS_ERR_MEMORY;
        made->index_count++;
    }
    return RKS_OK;
}

/* Positions count stored samples: those of a source come after those of the sources before it. */
static rks_status unite_excluded(const uniting *u, rks_excluded *made, rks_error *err)
{
    uint64_t before = 0, runs = 0;
    for (size_t i = 0; i < u->count; i++)
        runs += u->datasets[i]->excluded.run_count;
    if (runs == 0)
        return RKS_OK;
    made->runs = rks_alloc_raw(runs, sizeof(*made->runs), err);
    if (made->runs == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < u->count; i++) {
        const rks_excluded *one = &u->datasets[i]->excluded;
        for (uint64_t k = 0; k < one->run_count; k++)
            made->runs[made->run_count++] =
                (rks_excluded_run){(uint32_t)(one->runs[k].first + before), one->runs[k].count};
        made->samples += one->samples;
        made->bytes += one->bytes;
        made->duplicates += one->duplicates;
        before += rks_dataset_stored(u->datasets[i]);
    }
    return RKS_OK;
}

rks_digest rks_dataset_united_id(const rks_digest *ids, size_t count)
{
    /* The bytes of a digest in memory are those of its two numbers, low first. */
    return count == 1 ? ids[0] : rks_checksum128(ids, count * sizeof(*ids));
}

static rks_status unite_ids(const uniting *u, rks_digest *id, rks_error *err)
{
    rks_digest *ids = rks_alloc(u->count, sizeof(*ids), err);
    if (ids == NULL)
        return RKS_ERR_MEMORY;
    for (size_t i = 0; i < u->count; i++)
        ids[i] = u->datasets[i]->id;
    *id = rks_dataset_united_id(ids, u->count);
    rks_free(ids);
    return RKS_OK;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static rks_status check_sources(const uniting *u, rks_error *err)
{
    if (u->count == 0 || u->count > RKS_SOURCES_MAX)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "%zu datasets to open as one; from 1 to %d are",
                        u->count, RKS_SOURCES_MAX);
    for (size_t i = 0; i < u->count; i++)
        if (u->names[i][0] == '\0')
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "dataset %zu has an empty name", i);
    const char **sorted = rks_alloc(u->count, sizeof(*sorted), err);
    rks_status status = sorted == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (sorted != NULL) {
        memcpy(sorted, u->names, u->count * sizeof(*sorted));
        qsort(sorted, u->count, sizeof(*sorted), compare_texts);
    }
    for (size_t i = 1; status == RKS_OK && i < u->count; i++)
        if (strcmp(sorted[i], sorted[i - 1]) == 0)
            status = rks_fail(err, RKS_ERR_ARGUMENT, 0,
                              "two datasets are named %s; give each a name of its own", sorted[i]);
    rks_free(sorted);
    return status;
}

/* Allocates room for all shards and units, after checks of their numbers. */
static rks_status make_tables(const uniting *u, rks_dataset *made, rks_error *err)
{
    uint64_t stored = 0;
    size_t shards = 0, units = 0;
    for (size_t i = 0; i < u->count; i++) {
        stored += rks_dataset_stored(u->datasets[i]);
        shards += u->datasets[i]->shard_count;
        units += u->datasets[i]->unit_count;
    }
    if (stored > UINT32_MAX || shards > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%" PRIu64 " stored samples together; a dataset has fewer than 2^32",
                        stored);
    made->shards = rks_alloc(shards, sizeof(*made->shards), err);
    made->units = rks_alloc(units, sizeof(*made->units), err);
    made->sources = rks_alloc(u->count, sizeof(*made->sources), err);
    /* A single dataset with fewer columns keeps its own description. */
    const rks_dataset *alone = u->count == 1 ? u->datasets[0] : NULL;
    const char *build = alone == NULL ? NULL : alone->build_options;
    made->build_options = rks_strdup(build == NULL ? "{}" : build, err);
    made->generation = alone == NULL ? 1 : alone->generation;
    made->unit_size = alone == NULL ? 0 : alone->unit_size;
    return made->shards == NULL || made->units == NULL || made->sources == NULL ||
                   made->build_options == NULL
               ? RKS_ERR_MEMORY
               : RKS_OK;
}

/* Takes over a source's dataset. */
static rks_status add_source(uniting *u, size_t i, rks_dataset *made, rks_error *err)
{
    rks_dataset_source *source = &made->sources[made->source_count++];
    *source = (rks_dataset_source){.dataset = u->datasets[i],
                                   .first = made->count,
                                   .first_shard = (uint32_t)made->shard_count};
    u->datasets[i] = NULL;
    source->name = rks_strdup(u->names[i], err);
    if (source->name == NULL)
        return RKS_ERR_MEMORY;
    made->derived_keys = made->derived_keys || source->dataset->derived_keys;
    return rks_dataset_append(made, source->dataset, err);
}

static rks_status unite(uniting *u, rks_dataset *made, rks_error *err)
{
    rks_status status = check_sources(u, err);
    if (status == RKS_OK)
        status = make_tables(u, made, err);
    if (status == RKS_OK)
        status = unite_schemas(u, &made->schema, err);
    if (status == RKS_OK)
        status = unite_index(u, made, err);
    if (status == RKS_OK)
        status = unite_excluded(u, &made->excluded, err);
    if (status == RKS_OK)
        status = unite_ids(u, &made->id, err);
    for (size_t i = 0; status == RKS_OK && i < u->count; i++)
        status = add_source(u, i, made, err);
    return status;
}

rks_status rks_dataset_unite(rks_dataset **datasets, const char *const *names, size_t count,
                             const char *const *columns, size_t column_count, rks_dataset **united,
                             rks_error *err)
{
    uniting u = {datasets, names, count, columns, column_count};
    rks_dataset *made = rks_alloc(1, sizeof(*made), err);
    rks_status status = made == NULL ? RKS_ERR_MEMORY : unite(&u, made, err);
    for (size_t i = 0; i < count; i++) {
        rks_dataset_free(datasets[i]);
        datasets[i] = NULL;
    }
    if (status == RKS_OK) {
        *united = made;
        made = NULL;
    }
    rks_dataset_free(made);
    return status;
}

/* ---- which source --------------------------------------------------------------------------- */

size_t rks_dataset_source_of_shard(const rks_dataset *dataset, size_t shard)
{
    size_t low = 0, high = dataset->source_count;
    while (high - low > 1) { /* sources without shards have the same first shard as the next one:
                              * the last of them has it */
        size_t middle = low + (high - low) / 2;
        if (dataset->sources[middle].first_shard <= shard)
            low = middle;
        else
            high = middle;
    }
    return low;
}

size_t rks_dataset_source_of_id(const rks_dataset *dataset, uint64_t id)
{
    size_t low = 0, high = dataset->source_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (dataset->sources[middle].first <= id)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const rks_dataset *rks_dataset_of_shard(const rks_dataset *dataset, size_t shard)
{
    return dataset->source_count == 0
               ? dataset
               : dataset->sources[rks_dataset_source_of_shard(dataset, shard)].dataset;
}
