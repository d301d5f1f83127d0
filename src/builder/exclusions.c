/* SPDX-License-Identifier: Apache-2.0
 *
 * exclusions.c: what all ways of leaving out need: this rank's samples, and the list. */
#include "builder/exclusions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/shared_memory.h"

/* ---- this rank's samples --------------------------------------------------------------------- */

static const rks_shard *sealed_shard(const rks_exclusions *at, uint32_t number)
{
    for (size_t i = 0; i < at->parts->sealed_count; i++)
        if (rks_digest_equal(rks_shard_id(at->parts->sealed[i]), at->dataset->shards[number].id))
            return at->parts->sealed[i];
    return NULL;
}

rks_status rks_exclusions_each(rks_exclusions *at, rks_exclusions_fn visit, void *user,
                               rks_error *err)
{
    const rks_dataset *dataset = at->dataset;
    const rks_excluded *excluded = &dataset->excluded;
    uint64_t position = 0, run = 0;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        uint64_t begin = position, end = position + unit->summary.samples;
        position = end;
        if (at->holders[unit->shard] != rks_group_rank(at->group))
            continue;
        const rks_shard *shard = sealed_shard(at, unit->shard);
        for (uint64_t p = begin; status == RKS_OK && p < end; p++) {
            while (run < excluded->run_count &&
                   (uint64_t)excluded->runs[run].first + excluded->runs[run].count <= p)
                run++;
            if (run < excluded->run_count && excluded->runs[run].first <= p)
                continue;
            if ((p - begin) % RKS_EXCLUSIONS_LOOK == 0) {
                status = rks_group_must_stop(at->group, err);
                if (status == RKS_OK)
                    status = rks_check_interrupt(err);
            }
            if (status == RKS_OK)
                status = visit(at, user, shard, unit->first_row + (p - begin), &unit->summary,
                               (uint32_t)p, err);
        }
    }
    return status;
}

uint64_t rks_exclusions_held(const rks_exclusions *at)
{
    uint64_t count = 0;
    for (size_t i = 0; i < at->dataset->unit_count; i++)
        if (at->holders[at->dataset->units[i].shard] == rks_group_rank(at->group))
            count += at->dataset->units[i].summary.samples;
    return count;
}

rks_status rks_exclusions_add(rks_exclusions *at, uint32_t position, rks_error *err)
{
    rks_excluded_run *last =
        at->runs.size == 0 ? NULL : (rks_excluded_run *)(void *)(at->runs.data + at->runs.size) - 1;
    if (last != NULL && (uint64_t)last->first + last->count == position) {
        last->count++;
        return RKS_OK;
    }
    const rks_excluded_run run = {position, 1};
    return rks_buffer_add(&at->runs, &run, sizeof(run), err);
}

static int by_number(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

void rks_exclusions_sort(uint32_t *positions, size_t count)
{
    if (count > 0)
        qsort(positions, count, sizeof(*positions), by_number);
}

rks_status rks_exclusions_check_read(rks_status status, const rks_shard *shard, uint64_t row,
                                     const rks_record_view *view, rks_error *err)
{
    return rks_shard_faulted(shard, view->record, view->record_size)
               ? rks_shard_read_failed(shard, row, view, err)
               : status;
}

rks_status rks_exclusions_weigh(rks_exclusions *at, const void *payload, size_t size,
                                size_t key_size, uint64_t *bytes, rks_error *err)
{
    rks_status status = rks_record_decode(at->schema, payload, size, at->values, err);
    if (status != RKS_OK)
        return status;
    for (uint32_t c = 0; c < rks_schema_columns(at->schema); c++)
        *bytes += at->values[c].data == NULL ? 0 : at->values[c].size;
    *bytes += key_size;
    return RKS_OK;
}

/* ---- the list ------------------------------------------------------------------------------ */

static rks_status add_runs(rks_exclusions *at, const rks_agreed *agreed, rks_error *err)
{
    rks_excluded *excluded = &at->dataset->excluded;
    uint64_t more = 0;
    size_t size = 0;
    for (uint32_t rank = 0; rank < rks_group_size(at->group); rank++) {
        rks_agreed_get(agreed, rank, 0, &size);
        more += size / sizeof(*excluded->runs);
    }
    if (more == 0)
        return RKS_OK;
    rks_excluded_run *runs =
        rks_realloc(excluded->runs, excluded->run_count + more, sizeof(*runs), err);
    if (runs == NULL)
        return RKS_ERR_MEMORY;
    excluded->runs = runs;
    for (uint32_t rank = 0; rank < rks_group_size(at->group); rank++) {
        const void *theirs = rks_agreed_get(agreed, rank, 0, &size);
        size_t count = size / sizeof(*runs);
        if (count > 0)
            memcpy(runs + excluded->run_count, theirs, count * sizeof(*runs));
        excluded->run_count += count;
    }
    return rks_excluded_settle(runs, &excluded->run_count, err);
}

rks_status rks_exclusions_join(rks_exclusions *at, const char *phase, rks_status *own,
                               uint64_t *undecided, rks_error *err)
{
    uint64_t sums[2] = {at->bytes, undecided == NULL ? 0 : *undecided};
    rks_agreed agreed;
    uint64_t samples = *own == RKS_OK ? rks_dataset_stored(at->dataset) : 0;
    const rks_fact facts[] = {
        rks_fact_bytes(at->runs.data, at->runs.size, samples * sizeof(rks_excluded_run)),
        rks_fact_sum(sums, 2)};
    rks_status status = rks_group_agree_on(at->group, phase, *own, facts, 2, &agreed, err);
    if (status != RKS_OK)
        return status;
    if (undecided != NULL)
        *undecided = sums[1];
    if (sums[1] > 0)
        return RKS_OK;
    rks_excluded *excluded = &at->dataset->excluded;
    *own = add_runs(at, &agreed, err);
    excluded->bytes += sums[0];
    excluded->samples = 0;
    for (uint64_t i = 0; i < excluded->run_count; i++)
        excluded->samples += excluded->runs[i].count;
    at->runs.size = 0;
    at->bytes = 0;
    return RKS_OK;
}

/* Gives the dataset its list. */
static rks_status apply_list(rks_dataset *dataset, rks_error *err)
{
    rks_buffer encoded = {0};
    rks_status status = rks_excluded_encode(&dataset->excluded, &encoded, err);
    rks_buffer_free(&encoded);
    if (status != RKS_OK)
        return status;
    dataset->count -= dataset->excluded.samples;
    dataset->id = rks_dataset_id(dataset);
    return RKS_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

rks_status rks_exclusions_begin(rks_exclusions *at, rks_error *err)
{
    if (!at->selection->dedup || rks_group_nodes(at->group) > 1)
        return RKS_OK;
    if (rks_group_is_leader(at->group)) {
        rks_status status = rks_shared_growing("contents", &at->offered, err);
        if (status != RKS_OK)
            return status;
    }
    return rks_fd_offer_open(at->group, at->offered, &at->offer, err);
}

rks_status rks_exclusions_receive(rks_exclusions *at, const rks_agreed *agreed, size_t fact,
                                  rks_error *err)
{
    return at->offer == NULL ? RKS_OK
                             : rks_fd_offer_take(at->offer, agreed, fact, &at->memory, err);
}

void rks_exclusions_end(rks_exclusions *at)
{
    rks_fd_offer_close(at->offer);
    if (at->offered >= 0)
        close(at->offered);
    if (at->memory >= 0)
        close(at->memory);
    rks_free(at->values);
    rks_buffer_free(&at->runs);
}

/* This rank's part, without the others. */
static rks_status prepare_exclusions(rks_exclusions *at, rks_error *err)
{
    if (at->dataset->count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "%" PRIu64 " samples before any is left out: at most %" PRIu32
                        " can be stored",
                        at->dataset->count, UINT32_MAX);
    at->schema = at->dataset->schema;
    if (at->selection->key != NULL)
        at->key = rks_schema_find(at->schema, at->selection->key);
    at->values = rks_alloc(rks_schema_columns(at->schema), sizeof(*at->values), err);
    return at->values == NULL ? RKS_ERR_MEMORY : RKS_OK;
}

rks_status rks_exclusions_run(rks_exclusions *at, rks_status status, rks_dataset *dataset,
                              const uint32_t *holders, rks_error *err)
{
    if (!at->selection->dedup && at->selection->sample == 0)
        return status;
    rks_status own = status, all = RKS_OK;
    at->dataset = dataset;
    at->holders = holders;
    if (own == RKS_OK)
        own = prepare_exclusions(at, err);
    if (at->selection->dedup)
        all = rks_exclusions_dedup(at, &own, err);
    if (all == RKS_OK && at->selection->sample > 0)
        all = rks_exclusions_subset(at, &own, err);
    if (all != RKS_OK)
        return all;
    return own == RKS_OK && dataset->excluded.samples > 0 ? apply_list(dataset, err) : own;
}
