/* SPDX-License-Identifier: Apache-2.0
 *
 * verify_units.c: the units of a dataset by their shards, so that a dataset of many shards is
 * compared with them in one walk over its units. */
#include "base/memory.h"
#include "manage/verify.h"

rks_status rks_verify_units_sort(const rks_dataset *dataset, rks_verify_units *units,
                                 rks_error *err)
{
    size_t count = dataset->unit_count, shards = dataset->shard_count;
    uint64_t position = 0;
    *units = (rks_verify_units){.begin = rks_alloc(shards + 2, sizeof(*units->begin), err),
                                .order = rks_alloc(count, sizeof(*units->order), err),
                                .positions = rks_alloc(count, sizeof(*units->positions), err)};
    if (units->begin == NULL || units->order == NULL || units->positions == NULL)
        return RKS_ERR_MEMORY;
    /* begin[s + 2] counts the units of shard s; later begin[s + 1] is where its next one goes. */
    for (size_t i = 0; i < count; i++) {
        units->begin[dataset->units[i].shard + 2]++;
        units->positions[i] = position;
        position += dataset->units[i].summary.samples;
    }
    for (size_t shard = 0; shard < shards; shard++)
        units->begin[shard + 2] += units->begin[shard + 1];
    for (size_t i = 0; i < count; i++)
        units->order[units->begin[dataset->units[i].shard + 1]++] = i;
    return RKS_OK;
}

void rks_verify_units_free(rks_verify_units *units)
{
    rks_free(units->begin);
    rks_free(units->order);
    rks_free(units->positions);
    *units = (rks_verify_units){0};
}
