/* SPDX-License-Identifier: Apache-2.0
 *
 * dataset_digest.c: a digest of all that dataset.json says, without printing it. Each number is
 * eight bytes, and each text has its size before it, so that no two datasets feed the same bytes.
 * And one of the places of units, which two builds of one input have in common. */
#include <string.h>

#include "base/memory.h"
#include "dataset/dataset.h"

static void feed_number(rks_digester *digester, uint64_t number)
{
    rks_digester_update(digester, &number, sizeof(number));
}

static void feed_text(rks_digester *digester, const char *text)
{
    size_t size = text == NULL ? 0 : strlen(text);
    feed_number(digester, text == NULL ? UINT64_MAX : size);
    rks_digester_update(digester, text == NULL ? "" : text, size);
}

static void put_top(rks_digester *digester, const rks_dataset *dataset)
{
    const uint64_t numbers[] = {
        dataset->id.low,       dataset->id.high,
        dataset->build_id.low, dataset->build_id.high,
        dataset->count,        dataset->derived_keys,
        dataset->unit_size,    dataset->generation > 1 ? dataset->generation : 1,
        dataset->index_count,  dataset->shard_count,
        dataset->unit_count,   dataset->excluded.samples,
        dataset->revision,
    };
    rks_digester_update(digester, numbers, sizeof(numbers));
    feed_text(digester, rks_schema_text(dataset->schema));
    feed_text(digester, dataset->build_options == NULL ? "{}" : dataset->build_options);
    feed_text(digester, dataset->added_options);
    feed_text(digester, dataset->made_from);
    for (size_t i = 0; i < dataset->index_count; i++)
        feed_text(digester, dataset->index[i]);
}

static void put_excluded(rks_digester *digester, const rks_excluded *excluded)
{
    const uint64_t numbers[] = {excluded->bytes, excluded->duplicates, excluded->run_count,
                                excluded->digest.low, excluded->digest.high};
    feed_text(digester, excluded->name);
    rks_digester_update(digester, numbers, sizeof(numbers));
}

static void put_index_files(rks_digester *digester, const rks_dataset *dataset)
{
    feed_number(digester, dataset->index_file_count);
    for (size_t i = 0; i < dataset->index_file_count; i++) {
        const rks_index_file *file = &dataset->index_files[i];
        const uint64_t numbers[] = {file->digest.low, file->digest.high, file->bytes,
                                    file->samples};
        rks_digester_update(digester, numbers, sizeof(numbers));
    }
}

static void put_shard(rks_digester *digester, const rks_dataset_shard *shard)
{
    const uint64_t numbers[] = {shard->id.low,        shard->id.high,   shard->manifest.low,
                                shard->manifest.high, shard->samples,   shard->bytes,
                                shard->file_bytes,    shard->largest,   shard->build.low,
                                shard->build.high,    shard->first_unit};
    feed_text(digester, shard->name);
    feed_text(digester, shard->origin);
    rks_digester_update(digester, numbers, sizeof(numbers));
}

static void put_unit(rks_digester *digester, const rks_dataset_unit *unit, bool named)
{
    const rks_unit_summary *summary = &unit->summary;
    const uint64_t numbers[] = {summary->unit,
                                summary->seen,
                                summary->samples,
                                summary->filtered,
                                summary->bad,
                                summary->bytes,
                                summary->first_source_row,
                                summary->digest.low,
                                summary->digest.high,
                                unit->shard,
                                unit->first_row};
    rks_digester_update(digester, numbers, sizeof(numbers));
    if (named)
        feed_text(digester, unit->key_name);
}

rks_status rks_dataset_digest(const rks_dataset *dataset, rks_digest *digest, rks_error *err)
{
    rks_digester *digester = rks_digester_create(err);
    if (digester == NULL)
        return RKS_ERR_MEMORY;
    put_top(digester, dataset);
    if (dataset->excluded.samples > 0)
        put_excluded(digester, &dataset->excluded);
    put_index_files(digester, dataset);
    for (size_t i = 0; i < dataset->shard_count; i++)
        put_shard(digester, &dataset->shards[i]);
    for (size_t i = 0; i < dataset->unit_count; i++)
        put_unit(digester, &dataset->units[i], dataset->derived_keys);
    *digest = rks_digester_result(digester);
    rks_digester_free(digester);
    return RKS_OK;
}

/* Writes each shard's number in the order of units; UINT32_MAX: it has none. */
static uint32_t number_by_units(const rks_dataset *dataset, uint32_t *number)
{
    uint32_t count = 0;
    memset(number, 0xff, dataset->shard_count * sizeof(*number));
    for (size_t i = 0; i < dataset->unit_count; i++)
        if (number[dataset->units[i].shard] == UINT32_MAX)
            number[dataset->units[i].shard] = count++;
    return count;
}

rks_status rks_dataset_places_digest(const rks_dataset *dataset, rks_digest *digest, rks_error *err)
{
    uint32_t *number = rks_alloc(dataset->shard_count, sizeof(*number), err);
    rks_digester *digester = number == NULL ? NULL : rks_digester_create(err);
    if (digester == NULL) {
        rks_free(number);
        return RKS_ERR_MEMORY;
    }
    feed_number(digester, number_by_units(dataset, number));
    feed_number(digester, dataset->shard_count);
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        const rks_digest build = rks_dataset_build_of(dataset, unit->shard);
        const uint64_t numbers[] = {unit->summary.unit,
                                    unit->summary.samples,
                                    unit->summary.digest.low,
                                    unit->summary.digest.high,
                                    number[unit->shard],
                                    unit->first_row,
                                    build.low,
                                    build.high,
                                    dataset->shards[unit->shard].first_unit};
        rks_digester_update(digester, numbers, sizeof(numbers));
        if (dataset->derived_keys)
            feed_text(digester, unit->key_name);
    }
    *digest = rks_digester_result(digester);
    rks_digester_free(digester);
    rks_free(number);
    return RKS_OK;
}
