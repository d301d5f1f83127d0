/* SPDX-License-Identifier: Apache-2.0
 *
 * dedup.c: of equal contents all but the lowest position are left out.
 *
 * Each rank makes a 16-byte entry of each of its samples: 96 bits of the XXH3-128 of the contents,
 * and the position. Entries travel to all, each rank keeps those whose hash it is in charge of
 * (hash % ranks), and sorts them: 32 bytes a sample, spread over the ranks. XXH3 is no defence
 * against somebody who makes collisions, so equal hashes are candidates only: the rank in charge
 * fetches them, and bytes decide. What that reads is the candidates alone, and nothing where there
 * are none. Of different contents under one hash SEEDS are compared with; later ones stay in. */
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/pairs.h"
#include "builder/commit.h"
#include "builder/leave_out.h"
#include "exchange/exchange.h"
#include "store/duplicates.h"
#include "store/store.h"

enum {
    ENTRY = sizeof(rks_pair),
    SEEDS = 16,
    BATCH_SAMPLES = 512,
    BATCH_BYTES = 32 << 20,
};

static uint64_t hash_bits = UINT64_MAX;

void rks_leaving_hash_bits(uint64_t bits)
{
    hash_bits = bits;
}

typedef struct dedup {
    rks_leaving *at;
    uint64_t samples;  /* this rank's */
    rks_pair *own;     /* an entry a sample of this rank */
    rks_pair *charged; /* those that this rank is in charge of */
    uint64_t charged_count, charged_room;
    rks_buffer scratch;
    /* Comparing: a batch of candidates, run behind run. */
    rks_store *store;
    rks_value *others; /* one a column, as at->values */
    uint64_t ids[BATCH_SAMPLES];
    bool begins[BATCH_SAMPLES]; /* a run */
    size_t count, room, seeds;
    size_t seed[SEEDS]; /* of the run at hand: places in ids, contents that all differ */
    rks_buffer found;   /* uint32: positions of duplicates */
} dedup;

/* ---- contents -------------------------------------------------------------------------------- */

/* Without a key among the columns the payload is the content as it is. */
static rks_status digest_content(dedup *d, const rks_record_view *view, rks_digest *digest,
                                 rks_error *err)
{
    rks_leaving *at = d->at;
    if (at->key < 0) {
        *digest = rks_checksum128(view->payload, view->payload_size);
        return RKS_OK;
    }
    rks_status status =
        rks_record_decode(at->schema, view->payload, view->payload_size, at->values, err);
    d->scratch.size = 0;
    for (uint32_t i = 0; status == RKS_OK && i < rks_schema_columns(at->schema); i++) {
        const rks_value *value = &at->values[i];
        uint64_t size = value->data == NULL ? UINT64_MAX : value->size;
        if ((int)i == at->key)
            continue;
        status = rks_buffer_add(&d->scratch, &size, sizeof(size), err);
        if (status == RKS_OK && value->data != NULL)
            status = rks_buffer_add(&d->scratch, value->dims, sizeof(value->dims), err);
        if (status == RKS_OK && value->data != NULL)
            status = rks_buffer_add(&d->scratch, value->data, (size_t)value->size, err);
    }
    if (status == RKS_OK)
        *digest = rks_checksum128(d->scratch.data, d->scratch.size);
    return status;
}

static rks_status enter(rks_leaving *at, void *user, const rks_shard *shard, uint64_t row,
                        const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)at, (void)unit;
    dedup *d = user;
    rks_record_view view;
    rks_digest digest = {0};
    rks_status status = rks_shard_locate(shard, row, &view, err);
    if (status == RKS_OK)
        status = digest_content(d, &view, &digest, err);
    if (rks_shard_faulted(shard, view.record, view.record_size))
        status = rks_shard_read_failed(shard, row, &view, err);
    if (status != RKS_OK)
        return status;
    d->own[d->samples++] =
        (rks_pair){digest.high & hash_bits, (digest.low & hash_bits) << 32 | position};
    return RKS_OK;
}

static bool same_hash(const rks_pair *one, const rks_pair *other)
{
    return one->first == other->first && one->second >> 32 == other->second >> 32;
}

static uint32_t rank_in_charge(const dedup *d, const rks_pair *entry)
{
    return (uint32_t)(entry->first % rks_group_size(d->at->group));
}

/* COLLECTIVE. Room for what this rank is in charge of, exactly. */
static rks_status make_room(dedup *d, rks_status status, rks_error *err)
{
    uint32_t ranks = rks_group_size(d->at->group);
    uint64_t *counts = rks_alloc(ranks, sizeof(*counts), err);
    if (counts == NULL && status == RKS_OK)
        status = RKS_ERR_MEMORY;
    for (uint64_t i = 0; status == RKS_OK && i < d->samples; i++)
        counts[rank_in_charge(d, &d->own[i])]++;
    const rks_fact fact = rks_fact_sum(counts, ranks);
    status = rks_group_agree_on(d->at->group, "build: contents", status, &fact, 1, NULL, err);
    if (status == RKS_OK) {
        d->charged_room = counts[rks_group_rank(d->at->group)];
        d->charged = rks_alloc_raw(d->charged_room, ENTRY, err);
        if (d->charged == NULL)
            status = RKS_ERR_MEMORY;
    }
    rks_free(counts);
    return rks_group_agree(d->at->group, "build: room for contents", status, err);
}

static void take_charge(dedup *d, const rks_pair *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rank_in_charge(d, &entries[i]) == rks_group_rank(d->at->group) &&
            d->charged_count < d->charged_room)
            d->charged[d->charged_count++] = entries[i];
}

static rks_status read_entries(void *user, uint64_t offset, void *bytes, size_t size,
                               rks_error *err)
{
    const dedup *d = user;
    if (offset > d->samples * ENTRY || size > d->samples * ENTRY - offset)
        return rks_fail(err, RKS_ERR_PEER, 0, "a rank asked beyond the end of the contents");
    memcpy(bytes, (const uint8_t *)d->own + offset, size);
    return RKS_OK;
}

static rks_status write_entries(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                                size_t size, rks_error *err)
{
    (void)offset;
    rks_pair some[RKS_LEAVING_LOOK];
    if (size % ENTRY != 0) /* chunks and streams are whole entries */
        return rks_fail(err, RKS_ERR_PEER, 0, "rank %" PRIu32 " sent part of an entry", sender);
    for (size_t at = 0; at < size;) {
        size_t piece = size - at < sizeof(some) ? size - at : sizeof(some);
        memcpy(some, (const uint8_t *)bytes + at, piece);
        take_charge(user, some, piece / ENTRY);
        at += piece;
    }
    return RKS_OK;
}

/* COLLECTIVE. Every rank sees the entries of all. */
static rks_status exchange_entries(dedup *d, rks_error *err)
{
    take_charge(d, d->own, d->samples);
    if (rks_group_size(d->at->group) == 1)
        return RKS_OK;
    const rks_exchange_job job = {
        .size = d->samples * ENTRY,
        .receives = true,
        .read = read_entries,
        .write = write_entries,
        .user = d,
        .chunk = 4 << 20,
    };
    rks_status status = rks_exchange_run(d->at->group, "auto", &job, NULL, NULL, err);
    if (status == RKS_OK && d->charged_count != d->charged_room)
        status =
            rks_fail(err, RKS_ERR_PEER, 0, "contents of %" PRIu64 " samples came, not %" PRIu64,
                     d->charged_count, d->charged_room);
    return rks_group_agree(d->at->group, "build: contents exchanged", status, err);
}

/* ---- bytes decide ---------------------------------------------------------------------------- */

/* COLLECTIVE. The sealed parts as a store whose ids are positions. */
static rks_status open_store(dedup *d, bool *needed, rks_error *err)
{
    uint64_t candidates = 0;
    rks_leaving *at = d->at;
    for (uint64_t i = 1; i < d->charged_count; i++)
        candidates += same_hash(&d->charged[i - 1], &d->charged[i]);
    rks_status status = RKS_OK;
    d->others = rks_alloc(rks_schema_columns(at->schema), sizeof(*d->others), err);
    if (d->others == NULL)
        status = RKS_ERR_MEMORY;
    const rks_fact fact = rks_fact_sum(&candidates, 1);
    status = rks_group_agree_on(at->group, "build: candidates", status, &fact, 1, NULL, err);
    *needed = status == RKS_OK && candidates > 0;
    return *needed ? rks_commit_open(at->group, at->parts->directory, RKS_OK, at->dataset,
                                     NULL, &d->store, err)
                   : status;
}

static bool same_values(const dedup *d)
{
    const rks_value *one = d->at->values, *other = d->others;
    for (uint32_t i = 0; i < rks_schema_columns(d->at->schema); i++) {
        if ((int)i == d->at->key || (one[i].data == NULL && other[i].data == NULL))
            continue;
        if (one[i].data == NULL || other[i].data == NULL || one[i].size != other[i].size ||
            memcmp(one[i].dims, other[i].dims, sizeof(one[i].dims)) != 0 ||
            memcmp(one[i].data, other[i].data, (size_t)one[i].size) != 0)
            return false;
    }
    return true;
}

static rks_status compare_payloads(dedup *d, rks_batch *batch, size_t one, size_t other, bool *same,
                                   rks_error *err)
{
    size_t size = 0, other_size = 0;
    const uint8_t *payload = rks_batch_payload(batch, one, &size);
    const uint8_t *other_payload = rks_batch_payload(batch, other, &other_size);
    if (d->at->key < 0) {
        *same = size == other_size && memcmp(payload, other_payload, size) == 0;
        return RKS_OK;
    }
    rks_status status = rks_record_decode(d->at->schema, payload, size, d->at->values, err);
    if (status == RKS_OK)
        status = rks_record_decode(d->at->schema, other_payload, other_size, d->others, err);
    *same = status == RKS_OK && same_values(d);
    return status;
}

/* Of the batch's samples, those that an earlier one of their run equals. */
static rks_status judge(dedup *d, rks_batch *batch, rks_error *err)
{
    rks_status status = RKS_OK;
    for (size_t i = d->seeds; status == RKS_OK && i < d->count; i++) {
        bool same = false;
        if (d->begins[i])
            d->seeds = 0;
        for (size_t k = 0; status == RKS_OK && !same && k < d->seeds; k++)
            status = compare_payloads(d, batch, d->seed[k], i, &same, err);
        const uint32_t position = (uint32_t)d->ids[i];
        if (status == RKS_OK && same)
            status = rks_buffer_add(&d->found, &position, sizeof(position), err);
        else if (d->seeds < SEEDS && d->seeds + 1 < d->room)
            d->seed[d->seeds++] = i;
    }
    return status;
}

/* The next batch begins with what the run at hand is compared with. */
static rks_status end_batch(dedup *d, rks_error *err)
{
    rks_batch *batch = NULL;
    if (d->count == 0)
        return RKS_OK;
    rks_status status = rks_group_must_stop(d->at->group, err);
    if (status == RKS_OK)
        status = rks_check_interrupt(err);
    if (status == RKS_OK)
        status = rks_store_fetch(d->store, d->ids, d->count, &batch, err);
    if (status == RKS_OK)
        status = judge(d, batch, err);
    rks_batch_free(batch);
    for (size_t i = 0; i < d->seeds; i++) { /* seeds ascend: none is overwritten before it moves */
        d->ids[i] = d->ids[d->seed[i]];
        d->begins[i] = false;
        d->seed[i] = i;
    }
    d->count = d->seeds;
    return status;
}

static rks_status compare_candidates(dedup *d, rks_error *err)
{
    uint64_t largest = 1;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < d->at->dataset->shard_count; i++)
        if (d->at->dataset->shards[i].largest > largest)
            largest = d->at->dataset->shards[i].largest;
    uint64_t fit = BATCH_BYTES / largest;
    d->room = fit < 2 ? 2 : fit < BATCH_SAMPLES ? (size_t)fit : BATCH_SAMPLES;
    for (uint64_t i = 0; status == RKS_OK && i < d->charged_count; i++) {
        bool begins = i == 0 || !same_hash(&d->charged[i - 1], &d->charged[i]);
        bool goes_on = i + 1 < d->charged_count && same_hash(&d->charged[i], &d->charged[i + 1]);
        if (begins && !goes_on)
            continue;
        d->ids[d->count] = (uint32_t)d->charged[i].second;
        d->begins[d->count] = begins;
        d->count++;
        if (d->count == d->room)
            status = end_batch(d, err);
    }
    return status == RKS_OK && d->count > d->seeds ? end_batch(d, err) : status;
}

/* ---- the list -------------------------------------------------------------------------------- */

static rks_status list_duplicates(dedup *d, rks_error *err)
{
    uint32_t *positions = (uint32_t *)(void *)d->found.data;
    size_t count = d->found.size / sizeof(*positions);
    rks_status status = RKS_OK;
    rks_leaving_sort(positions, count);
    for (size_t i = 0; status == RKS_OK && i < count; i++)
        status = rks_leaving_add(d->at, positions[i], err);
    return status;
}

/* COLLECTIVE. */
static rks_status find_candidates(dedup *d, rks_error *err)
{
    rks_leaving *at = d->at;
    d->own = rks_alloc_raw(rks_leaving_count(at), ENTRY, err);
    rks_status status = d->own == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK)
        status = rks_leaving_each(at, enter, d, err);
    status = make_room(d, status, err);
    if (status == RKS_OK)
        status = exchange_entries(d, err);
    rks_free(d->own);
    d->own = NULL;
    if (status == RKS_OK)
        rks_pairs_sort(d->charged, d->charged_count);
    return status;
}

rks_status rks_leaving_duplicates(rks_leaving *at, rks_error *err)
{
    bool needed = false;
    dedup *d = rks_alloc(1, sizeof(*d), err);
    rks_status status = d == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && at->selection->key != NULL)
        at->key = rks_schema_find(at->schema, at->selection->key);
    status = rks_group_agree(at->group, "build: duplicates", status, err);
    if (status != RKS_OK)
        goto out;
    d->at = at;
    status = find_candidates(d, err);
    if (status == RKS_OK)
        status = open_store(d, &needed, err);
    if (status == RKS_OK && needed) {
        status = compare_candidates(d, err);
        status = rks_group_agree(at->group, "build: contents compared", status, err);
        rks_store_close(d->store, 0);
    }
    if (status == RKS_OK)
        status = rks_leaving_join(at, "build: duplicates", list_duplicates(d, err), err);
    if (status == RKS_OK)
        at->dataset->excluded.duplicates = at->dataset->excluded.samples;
out:
    if (d != NULL) {
        rks_free(d->charged);
        rks_free(d->others);
        rks_buffer_free(&d->scratch);
        rks_buffer_free(&d->found);
    }
    rks_free(d);
    return status;
}
