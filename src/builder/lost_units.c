/* SPDX-License-Identifier: Apache-2.0
 *
 * lost_units.c: deals the units of lost shards, and reads them. */
#include "builder/lost_units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "builder/input.h"
#include "dataset/dataset_json.h"

/* Returns the unit's number in the input. */
static uint64_t number_in_input(const rks_dataset *dataset, const rks_dataset_unit *unit)
{
    return unit->summary.unit - dataset->shards[unit->shard].first_unit;
}

void rks_lost_units_seen(const rks_parts *parts, uint64_t *seen, size_t count)
{
    const rks_dataset *dataset = rks_parts_repaired(parts);
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        if (rks_parts_is_lost(parts, unit->shard) && number_in_input(dataset, unit) < count)
            seen[number_in_input(dataset, unit)] = unit->summary.seen;
    }
}

static int largest_first(const void *a, const void *b)
{
    const rks_dataset_shard *left = *(const rks_dataset_shard *const *)a;
    const rks_dataset_shard *right = *(const rks_dataset_shard *const *)b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return rks_dataset_compare_ids(left->id, right->id);
}

/* Sets rank_of[s] for the lost shards: the rank that has the fewest bytes of the dataset, so that
 * an empty disk is filled. */
static rks_status deal_shards(const rks_parts *parts, uint32_t ranks, uint32_t *rank_of,
                              rks_error *err)
{
    const rks_dataset *dataset = rks_parts_repaired(parts);
    size_t count = 0;
    uint64_t *loads = rks_alloc(ranks, sizeof(*loads), err);
    const rks_dataset_shard **lost = rks_alloc(dataset->shard_count, sizeof(*lost), err);
    rks_status status = loads == NULL || lost == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint32_t rank = 0; status == RKS_OK && rank < ranks; rank++)
        loads[rank] = rks_parts_held(parts, rank);
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++)
        if (rks_parts_is_lost(parts, i))
            lost[count++] = &dataset->shards[i];
    if (status == RKS_OK)
        qsort(lost, count, sizeof(*lost), largest_first);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        uint32_t least = 0;
        for (uint32_t rank = 1; rank < ranks; rank++)
            least = loads[rank] < loads[least] ? rank : least;
        rank_of[lost[i] - dataset->shards] = least;
        loads[least] += lost[i]->bytes + 1; /* empty ones are dealt out, too */
    }
    rks_free(loads);
    rks_free(lost);
    return status;
}

rks_status rks_lost_units_deal(const rks_parts *parts, const rks_input *input, uint32_t ranks,
                               uint32_t *owners, rks_error *err)
{
    const rks_dataset *dataset = rks_parts_repaired(parts);
    uint32_t *rank_of = rks_alloc(dataset->shard_count, sizeof(*rank_of), err);
    rks_status status = rank_of == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = deal_shards(parts, ranks, rank_of, err);
    for (size_t i = 0; status == RKS_OK && i < input->unit_count; i++)
        owners[i] = UINT32_MAX;
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        uint64_t number = number_in_input(dataset, unit);
        if (!rks_parts_is_lost(parts, unit->shard))
            continue;
        if (number < input->unit_count)
            owners[number] = rank_of[unit->shard];
        else
            status = rks_fail(err, RKS_ERR_DATA, ESTALE,
                              "source: it has %zu units now, but a lost shard holds unit %" PRIu64
                              ": it has changed since it was built",
                              input->unit_count, number);
    }
    rks_free(rank_of);
    return status;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int by_row(const void *a, const void *b)
{
    const rks_dataset_unit *left = *(const rks_dataset_unit *const *)a;
    const rks_dataset_unit *right = *(const rks_dataset_unit *const *)b;
    if (left->first_row != right->first_row)
        return left->first_row < right->first_row ? -1 : 1;
    if (left->summary.samples != right->summary.samples) /* empty ones before */
        return left->summary.samples < right->summary.samples ? -1 : 1;
    return (left->summary.unit > right->summary.unit) - (left->summary.unit < right->summary.unit);
}

/* Lists the shard's units as numbers of the input, in the order of their rows. */
static size_t list_in_order(const rks_dataset *dataset, size_t shard, const rks_dataset_unit **room,
                            size_t *units)
{
    size_t count = 0;
    for (size_t i = 0; i < dataset->unit_count; i++)
        if (dataset->units[i].shard == shard)
            room[count++] = &dataset->units[i];
    if (count > 0)
        qsort(room, count, sizeof(*room), by_row);
    for (size_t i = 0; i < count; i++)
        units[i] = (size_t)number_in_input(dataset, room[i]);
    return count;
}

/* The figures of the shards before the one that is read. */
typedef struct so_far {
    const rks_read_units *reading;
    uint64_t bytes, samples;
} so_far;

static rks_status tick_so_far(void *user, uint64_t bytes, uint64_t samples, rks_error *err)
{
    const so_far *before = user;
    return before->reading->tick(before->reading->user, before->bytes + bytes,
                                 before->samples + samples, err);
}

rks_status rks_lost_units_read(const rks_read_units *reading, uint64_t *samples, rks_error *err)
{
    const rks_dataset *dataset = rks_parts_repaired(reading->parts);
    const rks_dataset_unit **room = rks_alloc(dataset->unit_count, sizeof(*room), err);
    size_t *units = rks_alloc(dataset->unit_count, sizeof(*units), err);
    so_far before = {.reading = reading};
    rks_status status = room == NULL || units == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->shard_count; i++) {
        size_t count =
            rks_parts_is_lost(reading->parts, i) ? list_in_order(dataset, i, room, units) : 0;
        if (count == 0 || reading->owners[units[0]] != reading->rank)
            continue;
        rks_read_units one = *reading;
        uint64_t read = 0;
        one.units = units;
        one.unit_count = count;
        one.tick = tick_so_far;
        one.user = &before;
        status = rks_parts_begin_lost(reading->parts, i, err);
        if (status == RKS_OK)
            status = rks_read_units_run(&one, &read, err);
        before.samples += read;
        for (size_t k = 0; k < count; k++)
            before.bytes += reading->input->units[units[k]].size;
    }
    *samples = before.samples;
    rks_free(room);
    rks_free(units);
    return status;
}

rks_status rks_lost_stream_begin(rks_parts *parts, uint32_t rank, uint32_t ranks, rks_error *err)
{
    const rks_dataset *dataset = rks_parts_repaired(parts);
    size_t mine = SIZE_MAX;
    bool alone = true;
    for (size_t i = 0; i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        if (!rks_parts_is_lost(parts, unit->shard))
            continue;
        bool writes = number_in_input(dataset, unit) % ranks == rank;
        alone = alone && (!writes || mine == SIZE_MAX || mine == unit->shard);
        mine = writes ? unit->shard : mine;
    }
    uint64_t row = 0; /* the stream's order is that of the numbers */
    for (size_t i = 0; mine != SIZE_MAX && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        if (unit->shard != mine)
            continue;
        alone = alone && unit->first_row == row && number_in_input(dataset, unit) % ranks == rank;
        row += unit->summary.samples;
    }
    return rks_parts_begin_lost(parts, alone ? mine : SIZE_MAX, err);
}
