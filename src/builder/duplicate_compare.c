/* SPDX-License-Identifier: Apache-2.0
 *
 * duplicate_compare.c: decides which samples with one hash have the same content. A run of them is
 * walked by position, and each one is compared with those before it whose contents differ. SEEDS of
 * these are kept; later samples with yet another content are not left out.
 *
 * The bytes are read from the shards if this rank sees all that it needs. Else a store of the
 * sealed parts fetches candidates in batches, run after run. A batch begins with the samples to
 * which those of the current run are compared. */
#include "builder/exclusions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/sort_pairs.h"
#include "rankstore/store.h"

enum {
    SEEDS = 16,
    BATCH_SAMPLES = 512,
    BATCH_BYTES = 32 << 20,
};

typedef struct comparing {
    rks_exclusions *at;
    rks_value *others; /* one for each column, as at->values */
    rks_buffer found;  /* uint32: positions of duplicates */
    size_t seeds;      /* in the current run: contents that all differ */
    /* If contents are read from the shards: */
    uint64_t *starts;   /* position of each unit's first sample */
    rks_shard **opened; /* other ranks' shards, by number */
    rks_record_view views[SEEDS];
    const rks_shard *shards[SEEDS];
    uint64_t rows[SEEDS];
    /* If contents come from a store: */
    rks_store *store;
    uint64_t ids[BATCH_SAMPLES];
    bool begins[BATCH_SAMPLES]; /* a run begins with this sample */
    size_t count, room;
    size_t seed[SEEDS]; /* places in ids of the seeds */
} comparing;

static bool same_values(const comparing *c)
{
    const rks_value *one = c->at->values, *other = c->others;
    for (uint32_t i = 0; i < rks_schema_columns(c->at->schema); i++) {
        if ((int)i == c->at->key || (one[i].data == NULL && other[i].data == NULL))
            continue;
        if (one[i].data == NULL || other[i].data == NULL || one[i].size != other[i].size ||
            memcmp(one[i].dims, other[i].dims, sizeof(one[i].dims)) != 0 ||
            memcmp(one[i].data, other[i].data, (size_t)one[i].size) != 0)
            return false;
    }
    return true;
}

static rks_status compare_payloads(comparing *c, const uint8_t *one, size_t size,
                                   const uint8_t *other, size_t other_size, bool *same,
                                   rks_error *err)
{
    rks_exclusions *at = c->at;
    if (at->key < 0) { /* if no column is a key, the payload itself is the content */
        *same = size == other_size && memcmp(one, other, size) == 0;
        return RKS_OK;
    }
    rks_status status = rks_record_decode(at->schema, one, size, at->values, err);
    if (status == RKS_OK)
        status = rks_record_decode(at->schema, other, other_size, c->others, err);
    *same = status == RKS_OK && same_values(c);
    return status;
}

static rks_status may_go_on(const comparing *c, rks_error *err)
{
    rks_status status = rks_group_must_stop(c->at->group, err);
    return status == RKS_OK ? rks_check_interrupt(err) : status;
}

/* Returns true if the entry has the same hash as a neighbour. *begins: it is the first one of
 * them. */
static bool is_candidate(const rks_pair *entries, size_t count, size_t i, bool *begins)
{
    *begins = i == 0 || !rks_same_hash(&entries[i - 1], &entries[i]);
    return !*begins || (i + 1 < count && rks_same_hash(&entries[i], &entries[i + 1]));
}

/* Adds all that was found to this rank's part of the list. */
static rks_status list_found(comparing *c, rks_error *err)
{
    uint32_t *positions = (uint32_t *)(void *)c->found.data;
    size_t count = c->found.size / sizeof(*positions);
    rks_status status = RKS_OK;
    rks_exclusions_sort(positions, count);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = rks_exclusions_add(c->at, positions[i], err);
    return status;
}

static void free_comparing(comparing *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; c->opened != NULL && i < c->at->dataset->shard_count; i++)
        rks_shard_close(c->opened[i]);
    rks_free(c->opened);
    rks_free(c->starts);
    rks_free(c->others);
    rks_buffer_free(&c->found);
    rks_free(c);
}

static rks_status make_comparing(rks_exclusions *at, comparing **made, rks_error *err)
{
    const rks_dataset *dataset = at->dataset;
    comparing *c = rks_alloc(1, sizeof(*c), err);
    if (c == NULL)
        return RKS_ERR_MEMORY;
    c->at = at;
    c->others = rks_alloc(rks_schema_columns(at->schema), sizeof(*c->others), err);
    c->starts = c->others == NULL ? NULL : rks_alloc(dataset->unit_count, sizeof(uint64_t), err);
    c->opened =
        c->starts == NULL ? NULL : rks_alloc(dataset->shard_count, sizeof(rks_shard *), err);
    if (c->opened == NULL) {
        free_comparing(c);
        return RKS_ERR_MEMORY;
    }
    for (size_t i = 1; i < dataset->unit_count; i++)
        c->starts[i] = c->starts[i - 1] + dataset->units[i - 1].summary.samples;
    *made = c;
    return RKS_OK;
}

/* ---- from the shards ------------------------------------------------------------------------- */

/* Shards of this rank are open. Returns NULL if this rank does not see the shard. */
static const rks_shard *shard_of(comparing *c, uint32_t number)
{
    const rks_parts *parts = c->at->parts;
    const rks_dataset_shard *wanted = &c->at->dataset->shards[number];
    for (size_t i = 0; i < parts->sealed_count; i++)
        if (rks_digest_equal(rks_shard_id(parts->sealed[i]), wanted->id))
            return parts->sealed[i];
    if (c->opened[number] == NULL) {
        char *path = rks_format(NULL, "%s/%s.json", parts->directory, wanted->name);
        if (path == NULL || rks_shard_open(path, &c->opened[number], NULL) != RKS_OK)
            c->opened[number] = NULL;
        rks_free(path);
    }
    const rks_shard *shard = c->opened[number];
    bool same =
        shard != NULL && rks_digest_equal(rks_shard_manifest_digest(shard), wanted->manifest);
    return same ? shard : NULL;
}

/* *shard becomes NULL if this rank does not see it. */
static rks_status find_sample(comparing *c, uint32_t position, const rks_shard **shard,
                              uint64_t *row, rks_record_view *view, rks_error *err)
{
    const rks_dataset *dataset = c->at->dataset;
    size_t low = 0, high = dataset->unit_count;
    while (high - low > 1) { /* finds the last unit that begins at or before it */
        size_t middle = low + (high - low) / 2;
        if (c->starts[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    const rks_dataset_unit *unit = &dataset->units[low];
    *shard = shard_of(c, unit->shard);
    *row = unit->first_row + (position - c->starts[low]);
    return *shard == NULL ? RKS_OK : rks_shard_locate(*shard, *row, view, err);
}

/* *unseen: like *undecided in rks_exclusions_compare. */
static rks_status judge_sample(comparing *c, uint32_t position, bool begins, bool *unseen,
                               rks_error *err)
{
    const rks_shard *shard;
    uint64_t row;
    rks_record_view view;
    bool same = false;
    rks_status status = find_sample(c, position, &shard, &row, &view, err);
    if (status != RKS_OK)
        return status;
    if (shard == NULL) {
        *unseen = true;
        return RKS_OK;
    }
    if (begins)
        c->seeds = 0;
    for (size_t k = 0; !same && k < c->seeds; k++) {
        status = compare_payloads(c, c->views[k].payload, c->views[k].payload_size, view.payload,
                                  view.payload_size, &same, err);
        status = rks_exclusions_check_read(status, c->shards[k], c->rows[k], &c->views[k], err);
        status = rks_exclusions_check_read(status, shard, row, &view, err);
        if (status != RKS_OK)
            return status;
    }
    if (same) {
        status = rks_exclusions_weigh(c->at, view.payload, view.payload_size, view.key_size,
                                      &c->at->bytes, err);
        status = rks_exclusions_check_read(status, shard, row, &view, err);
        return status == RKS_OK ? rks_buffer_add(&c->found, &position, sizeof(position), err)
                                : status;
    }
    if (c->seeds < SEEDS) {
        c->views[c->seeds] = view;
        c->shards[c->seeds] = shard;
        c->rows[c->seeds++] = row;
    }
    return RKS_OK;
}

rks_status rks_exclusions_compare(rks_exclusions *at, const rks_pair *entries, size_t count,
                                  bool *undecided, rks_error *err)
{
    comparing *c = NULL;
    rks_status status = make_comparing(at, &c, err);
    if (status != RKS_OK)
        return status;
    for (size_t i = 0; status == RKS_OK && !*undecided && i < count; i++) {
        bool begins;
        if (i % RKS_EXCLUSIONS_LOOK == 0)
            status = may_go_on(c, err);
        if (status == RKS_OK && is_candidate(entries, count, i, &begins))
            status = judge_sample(c, (uint32_t)entries[i].second, begins, undecided, err);
    }
    if (*undecided)
        at->bytes = 0;
    else if (status == RKS_OK)
        status = list_found(c, err);
    free_comparing(c);
    return status;
}

/* ---- by a store ------------------------------------------------------------------------------ */

/* Returns 0 for a derived key, which is not part of the record. */
static size_t stored_key_size(const comparing *c, rks_batch *batch, size_t i)
{
    size_t size = 0;
    if (!c->at->dataset->derived_keys)
        rks_batch_key(batch, i, &size);
    return size;
}

/* Finds those of the batch's samples that equal an earlier one of their run. */
static rks_status judge_batch(comparing *c, rks_batch *batch, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = c->seeds; status == RKS_OK && i < c->count; i++) {
        bool same = false;
        size_t size = 0, other_size = 0;
        const uint8_t *payload = rks_batch_payload(batch, i, &size);
        if (c->begins[i])
            c->seeds = 0;
        for (size_t k = 0; status == RKS_OK && !same && k < c->seeds; k++) {
            const uint8_t *other = rks_batch_payload(batch, c->seed[k], &other_size);
            status = compare_payloads(c, other, other_size, payload, size, &same, err);
        }
        if (status != RKS_OK)
            return status;
        const uint32_t position = (uint32_t)c->ids[i];
        if (same) {
            status = rks_exclusions_weigh(c->at, payload, size, stored_key_size(c, batch, i),
                                          &c->at->bytes, err);
            if (status == RKS_OK)
                status = rks_buffer_add(&c->found, &position, sizeof(position), err);
        } else if (c->seeds < SEEDS && c->seeds + 1 < c->room) {
            c->seed[c->seeds++] = i;
        }
    }
    return status;
}

/* The next batch begins with the samples to which the current run is compared. */
static rks_status end_batch(comparing *c, rks_error *err)
{
    rks_batch *batch = NULL;
    if (c->count == 0)
        return RKS_OK;
    rks_status status = may_go_on(c, err);
    if (status == RKS_OK)
        status = rks_store_fetch(c->store, c->ids, c->count, &batch, err);
    if (status == RKS_OK)
        status = judge_batch(c, batch, err);
    rks_batch_free(batch);
    for (size_t i = 0; i < c->seeds; i++) { /* seeds are ascending, so none is overwritten before it
                                             * is moved */
        c->ids[i] = c->ids[c->seed[i]];
        c->begins[i] = false;
        c->seed[i] = i;
    }
    c->count = c->seeds;
    return status;
}

static size_t batch_room(const rks_dataset *dataset)
{
    uint64_t largest = 1;
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (dataset->shards[i].largest > largest)
            largest = dataset->shards[i].largest;
    uint64_t fit = BATCH_BYTES / largest;
    return fit < 2 ? 2 : fit < BATCH_SAMPLES ? (size_t)fit : BATCH_SAMPLES;
}

rks_status rks_exclusions_compare_by_store(rks_exclusions *at, rks_store *store,
                                           const rks_pair *entries, size_t count, rks_error *err)
{
    comparing *c = NULL;
    rks_status status = make_comparing(at, &c, err);
    if (status != RKS_OK)
        return status;
    c->store = store;
    c->room = batch_room(at->dataset);
    for (size_t i = 0; status == RKS_OK && i < count; i++) {
        if (!is_candidate(entries, count, i, &c->begins[c->count]))
            continue;
        c->ids[c->count++] = (uint32_t)entries[i].second;
        if (c->count == c->room)
            status = end_batch(c, err);
    }
    if (status == RKS_OK && c->count > c->seeds)
        status = end_batch(c, err);
    if (status == RKS_OK)
        status = list_found(c, err);
    free_comparing(c);
    return status;
}
