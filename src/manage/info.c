/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: describes a dataset as JSON, for the command line, scripts and bindings. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "dataset/length_description.h"
#include "home/address.h"
#include "rankstore/manage.h"
#include "store/store.h"

enum { DIGITS = 1 << 16 };

/* Returns the `rank`-th smallest of the present lengths, counting from 0. Makes two passes over 16
 * bits each, without a copy or a sort of the lengths. */
static uint32_t nth_length(const uint32_t *lengths, uint64_t count, uint64_t rank,
                           uint64_t *histogram)
{
    uint32_t high = 0;
    memset(histogram, 0, DIGITS * sizeof(*histogram));
    for (uint64_t i = 0; i < count; i++)
        if (lengths[i] != RKS_LENGTH_ABSENT)
            histogram[lengths[i] >> 16]++;
    while (rank >= histogram[high])
        rank -= histogram[high++];
    memset(histogram, 0, DIGITS * sizeof(*histogram));
    for (uint64_t i = 0; i < count; i++)
        if (lengths[i] != RKS_LENGTH_ABSENT && lengths[i] >> 16 == high)
            histogram[lengths[i] & 0xffff]++;
    uint32_t low = 0;
    while (rank >= histogram[low])
        rank -= histogram[low++];
    return high << 16 | low;
}

static json_t *describe_lengths(rks_store *store, rks_error *err)
{
    const uint32_t *lengths = rks_store_lengths(store);
    uint64_t count = store->dataset->count, total = 0, present = 0;
    uint32_t min = UINT32_MAX, max = 0, median = 0, p99 = 0;
    uint64_t *histogram = rks_alloc(DIGITS, sizeof(*histogram), err);
    if (histogram == NULL)
        return NULL;
    for (uint64_t i = 0; i < count; i++) {
        if (lengths[i] == RKS_LENGTH_ABSENT)
            continue;
        present++;
        total += lengths[i];
        min = lengths[i] < min ? lengths[i] : min;
        max = lengths[i] > max ? lengths[i] : max;
    }
    if (present > 0) {
        median = nth_length(lengths, count, (present - 1) / 2, histogram);
        p99 = nth_length(lengths, count, (present - 1) * 99 / 100, histogram);
    }
    rks_free(histogram);
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:I}", "min", (json_int_t)(present == 0 ? 0 : min),
                     "median", (json_int_t)median, "mean",
                     present == 0 ? 0.0 : (double)total / (double)present, "p99", (json_int_t)p99,
                     "max", (json_int_t)max, "total", (json_int_t)total);
}

/* Paths may hold any bytes; JSON holds UTF-8. */
static json_t *text_of(const char *text)
{
    json_t *string = json_string(text);
    if (string != NULL)
        return string;
    size_t size = strlen(text);
    char *shown = malloc(4 * size + 1), *at = shown;
    if (shown == NULL)
        return NULL;
    for (size_t i = 0; i < size; i++)
        at += (unsigned char)text[i] < 0x80 && text[i] != '\\'
                  ? sprintf(at, "%c", text[i])
                  : sprintf(at, "\\x%02x", (unsigned)(unsigned char)text[i]);
    string = json_string(shown);
    free(shown);
    return string;
}

static json_t *describe_shards(const rks_store *store)
{
    json_t *list = json_array();
    for (size_t i = 0; i < store->dataset->shard_count; i++) {
        const rks_dataset_shard *shard = &store->dataset->shards[i];
        char id[RKS_DIGEST_TEXT];
        rks_digest_format(shard->id, id);
        json_array_append_new(
            list,
            json_pack(
                "{s:s, s:o, s:I, s:I, s:I, s:i}", "id", id, "path",
                text_of(store->shards[i] != NULL ? rks_shard_path(store->shards[i]) : shard->name),
                "samples", (json_int_t)shard->samples, "bytes", (json_int_t)shard->bytes,
                "file_bytes", (json_int_t)shard->file_bytes, "owner", (int)store->owners[i][0]));
    }
    return list;
}

static json_t *describe_units(const rks_dataset *dataset)
{
    json_int_t filtered = 0, bad = 0;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        filtered += (json_int_t)dataset->units[i].summary.filtered;
        bad += (json_int_t)dataset->units[i].summary.bad;
    }
    json_int_t duplicates = (json_int_t)dataset->excluded.duplicates;
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "units", (json_int_t)dataset->unit_count,
                     "filtered", filtered, "bad", bad, "duplicates", duplicates, "sampled_out",
                     (json_int_t)dataset->excluded.samples - duplicates);
}

static void add_generation(json_t *list, uint64_t generation, uint64_t samples, uint64_t bytes,
                           rks_digest digest)
{
    char id[RKS_DIGEST_TEXT];
    rks_digest_format(digest, id);
    json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:s}", "generation",
                                          (json_int_t)generation, "samples", (json_int_t)samples,
                                          "bytes", (json_int_t)bytes, "id", id));
}

static void add_dataset(json_t *list, const rks_dataset *dataset)
{
    add_generation(list, rks_dataset_number(dataset), dataset->count, rks_dataset_bytes(dataset),
                   dataset->id);
}

static void add_summary(json_t *list, const rks_dataset_summary *summary)
{
    add_generation(list, summary->generation, summary->samples, summary->bytes, summary->id);
}

/* Lists those in this rank's directory, ascending. */
static json_t *describe_generations(const rks_store *store)
{
    json_t *list = json_array();
    uint64_t *numbers = NULL;
    size_t count = 0;
    rks_dataset_summary newest, older;
    if (store->dataset->source_count > 1) {
        add_dataset(list, store->dataset);
        return list;
    }
    if (rks_dataset_generations(store->directory, &numbers, &count, NULL) != RKS_OK)
        count = 0;
    bool is_there = rks_dataset_summarize(store->directory, 0, &newest, NULL) == RKS_OK;
    for (size_t i = 0; i < count; i++) {
        if (is_there && numbers[i] >= newest.generation)
            break; /* kept, but the generation after it was never committed */
        if (rks_dataset_summarize(store->directory, numbers[i], &older, NULL) == RKS_OK)
            add_summary(list, &older);
    }
    if (is_there)
        add_summary(list, &newest);
    else
        add_dataset(list, store->dataset);
    rks_free(numbers);
    return list;
}

static json_t *describe_sources(const rks_store *store)
{
    json_t *list = json_array();
    for (size_t i = 0; i < rks_store_sources(store); i++) {
        rks_source source = {.struct_size = sizeof(source)};
        rks_store_source(store, i, &source, NULL);
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:s, s:I, s:I, s:I}", "name", text_of(source.name),
                            "directory", text_of(source.directory), "dataset", source.dataset,
                            "first", (json_int_t)source.first, "samples", (json_int_t)source.count,
                            "bytes", (json_int_t)source.bytes));
    }
    return list;
}

/* Describes what dataset.json says. NULL if memory lacks. */
static json_t *describe_dataset(const rks_dataset *dataset)
{
    char id[RKS_DIGEST_TEXT];
    json_int_t file_bytes = 0;
    rks_digest_format(dataset->id, id);
    for (size_t i = 0; i < dataset->shard_count; i++)
        file_bytes += (json_int_t)dataset->shards[i].file_bytes;
    json_t *index = json_array();
    for (size_t i = 0; i < dataset->index_count; i++)
        json_array_append_new(index, json_string(dataset->index[i]));
    json_t *info = json_pack(
        "{s:I, s:I, s:I, s:s, s:o, s:s, s:o, s:o*}", "samples", (json_int_t)dataset->count, "bytes",
        (json_int_t)rks_dataset_bytes(dataset), "file_bytes", file_bytes, "dataset", id, "schema",
        json_loads(rks_schema_text(dataset->schema), 0, NULL), "keys",
        dataset->derived_keys ? "derived" : "stored", "index", index, "build",
        dataset->build_options == NULL ? NULL : json_loads(dataset->build_options, 0, NULL));
    if (info == NULL)
        return NULL;
    if (dataset->unit_size > 0)
        json_object_set_new(info, "unit_size", json_integer((json_int_t)dataset->unit_size));
    char length[RKS_LENGTH_WORDS];
    rks_dataset_length_words(dataset, length);
    if (length[0] != '\0')
        json_object_set_new(info, "length", text_of(length));
    json_object_set_new(info, "generation", json_integer((json_int_t)rks_dataset_number(dataset)));
    json_t *units = describe_units(dataset);
    if (units != NULL)
        json_object_update(info, units);
    json_decref(units);
    return info;
}

/* Prints what dataset.json says, then the members of `more`; takes that over. */
static rks_status print_info(const char *directory, const rks_dataset *dataset, json_t *more,
                             char **json, rks_error *err)
{
    json_t *info = json_pack("{s:i, s:o}", "schema_version", 1, "directory", text_of(directory));
    json_t *described = describe_dataset(dataset);
    bool good = json_object_update(info, described) == 0 && json_object_update(info, more) == 0;
    char *text = good ? json_dumps(info, JSON_INDENT(2)) : NULL;
    json_decref(info);
    json_decref(described);
    json_decref(more);
    if (text == NULL)
        return rks_fail(err, RKS_ERR_MEMORY, 0, "out of memory: describing the dataset");
    *json = rks_strdup(text, err);
    free(text);
    return *json == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

/* The name that says where a dataset is: of one in an object store its URL, not the local copy. */
static const char *shown_place(const rks_store *store)
{
    const char *home = store->staging_count == 1 ? rks_staging_home(store->stagings[0]) : NULL;
    return home != NULL && rks_home_is_url(home) ? home : store->directory;
}

rks_status rks_store_info_json(rks_store *store, char **json, rks_error *err)
{
    json_t *lengths = describe_lengths(store, err);
    if (lengths == NULL)
        return RKS_ERR_MEMORY;
    json_t *more =
        json_pack("{s:I, s:o, s:o, s:o, s:o}", "quarantined", (json_int_t)store->quarantined_count,
                  "shards", describe_shards(store), "lengths", lengths, "generations",
                  describe_generations(store), "sources", describe_sources(store));
    return print_info(shown_place(store), store->dataset, more, json, err);
}

/* Describes what programs ask that build from a dataset: how lengths count, what it was made from.
 */
static json_t *describe_origin(const rks_dataset *dataset)
{
    rks_length_rule rule;
    json_t *origin = json_object();
    if (dataset->made_from[0] != '\0')
        json_object_set_new(origin, "made_from", text_of(dataset->made_from));
    rks_dataset_length_rule(dataset, &rule);
    json_object_set_new(origin, "length_column",
                        rule.name[0] == '\0' ? json_null() : text_of(rule.name));
    json_object_set_new(origin, "length_unit", json_integer(rule.unit));
    return origin;
}

rks_status rks_dataset_info_json(const char *directory, char **json, rks_error *err)
{
    rks_dataset *dataset = NULL;
    if (directory == NULL || json == NULL)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "a dataset's description needs a directory");
    char *path = rks_strdup(directory, err);
    if (path == NULL)
        return RKS_ERR_MEMORY;
    uint64_t generation = rks_dataset_take_generation(path);
    rks_status status = generation == 0
                            ? rks_dataset_load_json(path, &dataset, err)
                            : rks_dataset_load_generation(path, generation, &dataset, err);
    if (status == RKS_OK)
        status = print_info(path, dataset, describe_origin(dataset), json, err);
    rks_dataset_free(dataset);
    rks_free(path);
    return status;
}
