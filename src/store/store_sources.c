/* SPDX-License-Identifier: Apache-2.0
 *
 * store_sources.c: the datasets that a store was opened over. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "dataset/length_description.h"
#include "store/store.h"

size_t rks_store_sources(const rks_store *store)
{
    return store->dataset->source_count == 0 ? 1 : store->dataset->source_count;
}

/* Returns the last part of the directory's name. */
static const char *last_part(const char *directory)
{
    const char *slash = strrchr(directory, '/');
    return slash == NULL || slash[1] == '\0' ? directory : slash + 1;
}

static rks_status check_number(const rks_store *store, size_t number, rks_error *err)
{
    if (number < rks_store_sources(store))
        return RKS_OK;
    return rks_fail(err, RKS_ERR_ARGUMENT, 0, "source %zu: the dataset has %zu", number,
                    rks_store_sources(store));
}

rks_status rks_store_source(const rks_store *store, size_t number, rks_source *source,
                            rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    size_t room = source->struct_size;
    if (check_number(store, number, err) != RKS_OK)
        return RKS_ERR_ARGUMENT;
    const rks_dataset_source *of = dataset->source_count == 0 ? NULL : &dataset->sources[number];
    const rks_dataset *own = of == NULL ? dataset : of->dataset;
    rks_source all = {
        .struct_size = room,
        .name = of == NULL ? last_part(store->directory) : of->name,
        .directory = of == NULL ? store->directory : of->directory,
        .first = of == NULL ? 0 : of->first,
        .count = own->count,
        .bytes = rks_dataset_bytes(own),
    };
    char id[RKS_DIGEST_TEXT];
    rks_digest_format(own->id, id);
    snprintf(all.dataset, sizeof(all.dataset), "%s", id);
    memcpy(source, &all, room < sizeof(all) ? room : sizeof(all));
    return RKS_OK;
}

rks_status rks_store_source_length(const rks_store *store, size_t number, rks_source_length *length,
                                   rks_error *err)
{
    const rks_dataset *dataset = store->dataset;
    size_t room = length->struct_size;
    rks_length_rule rule;
    if (check_number(store, number, err) != RKS_OK)
        return RKS_ERR_ARGUMENT;
    rks_dataset_length_rule(dataset->source_count == 0 ? dataset : dataset->sources[number].dataset,
                            &rule);
    rks_source_length all = {
        .struct_size = room, .unit = rule.unit, .by_function = rule.by_function};
    snprintf(all.name, sizeof(all.name), "%s", rule.name);
    memcpy(length, &all, room < sizeof(all) ? room : sizeof(all));
    return RKS_OK;
}

int64_t rks_store_source_of(const rks_store *store, uint64_t sample_id)
{
    if (sample_id >= store->dataset->count)
        return -1;
    return (int64_t)rks_dataset_source_of_id(store->dataset, sample_id);
}
