/* SPDX-License-Identifier: Apache-2.0
 *
 * dedup.c: leaves out samples whose content a sample with a lower position has.
 *
 * Each rank makes an entry of 16 bytes for each of its samples: 96 bits of the XXH3-128 of the
 * content, and the position. Each rank handles a share of the hashes (hash % ranks), and sorts
 * its entries. On one node all write their entries to one memory, and each picks its share.
 * Between nodes the exchange sends entries to all. That takes 32 bytes a sample, spread over the
 * ranks; large tables may be paged out. XXH3 does not resist deliberate collisions, so equal
 * hashes only make candidates: bytes decide (duplicate_compare.c). Only candidates are read, and
 * nothing if there are none. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sort_pairs.h"
#include "base/scratch.h"
#include "builder/exclusions.h"
#include "exchange/exchange.h"
#include "store/duplicates.h"
#include "store/store.h"

enum { ENTRY = sizeof(rks_pair), AT_ONCE = RKS_EXCLUSIONS_LOOK };

static uint64_t hash_bits = UINT64_MAX;

void rks_exclusions_hash_bits(uint64_t bits)
{
    hash_bits = bits;
}

typedef struct dedup {
    rks_exclusions *at;
    rks_pair *own; /* entries of this rank: all of them, or on one node those not yet in the shared
                    * memory */
    uint64_t own_count;
    uint64_t place;    /* in the shared memory: place of the next entry */
    rks_pair *charged; /* the entries of this rank's share */
    uint64_t charged_count, charged_room;
    rks_scratch own_memory, charged_memory; /* memory of the two */
    rks_buffer scratch;
} dedup;

static bool on_one_node(const dedup *d)
{
    return rks_group_nodes(d->at->group) == 1;
}

/* ---- contents -------------------------------------------------------------------------------- */

/* If no column is a key, the payload itself is the content. */
static rks_status digest_content(dedup *d, const rks_record_view *view, rks_digest *digest,
                                 rks_error *err)
{
    rks_exclusions *at = d->at;
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

/* Writes this rank's entries to the shared memory. */
static rks_status flush_entries(dedup *d, rks_error *err)
{
    const uint8_t *bytes = (const uint8_t *)d->own;
    size_t size = d->own_count * ENTRY;
    for (size_t put = 0; put < size;) {
        ssize_t count =
            pwrite(d->at->memory, bytes + put, size - put, (off_t)(d->place * ENTRY + put));
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return rks_fail_errno(err, count < 0 ? errno : ENOMEM, "contents in memory");
        put += (size_t)count;
    }
    d->place += d->own_count;
    d->own_count = 0;
    return RKS_OK;
}

static rks_status enter(rks_exclusions *at, void *user, const rks_shard *shard, uint64_t row,
                        const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)at, (void)unit;
    dedup *d = user;
    rks_record_view view;
    rks_digest digest = {0};
    rks_status status = rks_shard_locate(shard, row, &view, err);
    if (status != RKS_OK)
        return status;
    status = digest_content(d, &view, &digest, err);
    status = rks_exclusions_check_read(status, shard, row, &view, err);
    if (status != RKS_OK)
        return status;
    d->own[d->own_count++] =
        (rks_pair){digest.high & hash_bits, (digest.low & hash_bits) << 32 | position};
    return on_one_node(d) && d->own_count == AT_ONCE ? flush_entries(d, err) : RKS_OK;
}

static uint32_t rank_in_charge(const dedup *d, const rks_pair *entry)
{
    return (uint32_t)(entry->first % rks_group_size(d->at->group));
}

static bool is_charged(const dedup *d, const rks_pair *entry)
{
    return rank_in_charge(d, entry) == rks_group_rank(d->at->group);
}

static void keep_charged(dedup *d, const rks_pair *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_charged(d, &entries[i]) && d->charged_count < d->charged_room)
            d->charged[d->charged_count++] = entries[i];
}

static rks_status make_charged(dedup *d, uint64_t room, rks_error *err)
{
    d->charged_room = room;
    rks_status status =
        rks_scratch_take(room, ENTRY, d->at->parts->directory, &d->charged_memory, err);
    d->charged = d->charged_memory.bytes;
    return status;
}

static rks_status make_entries(dedup *d, uint64_t room, rks_error *err)
{
    rks_status status = rks_scratch_take(room, ENTRY, d->at->parts->directory, &d->own_memory, err);
    d->own = d->own_memory.bytes;
    return status == RKS_OK ? rks_exclusions_each(d->at, enter, d, err) : status;
}

/* ---- on one node ----------------------------------------------------------------------------- */

/* Returns how many samples lower ranks hold: their entries come first. */
static uint64_t held_below(const rks_exclusions *at)
{
    const rks_dataset *dataset = at->dataset;
    uint64_t count = 0;
    for (size_t i = 0; i < dataset->unit_count; i++)
        if (at->holders[dataset->units[i].shard] < rks_group_rank(at->group))
            count += dataset->units[i].summary.samples;
    return count;
}

static rks_status get_entries(const dedup *d, uint64_t first, rks_pair *entries, size_t count,
                              rks_error *err)
{
    size_t size = count * ENTRY;
    for (size_t got = 0; got < size;) {
        ssize_t more = pread(d->at->memory, (uint8_t *)entries + got, size - got,
                             (off_t)(first * ENTRY + got));
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return rks_fail_errno(err, more < 0 ? errno : EIO, "contents in memory");
        got += (size_t)more;
    }
    return RKS_OK;
}

/* Counts this rank's share of the entries of all ranks, then copies it. */
static rks_status pick_share(dedup *d, rks_error *err)
{
    uint64_t all = d->at->dataset->count, room = 0;
    rks_pair *some = rks_alloc_raw(AT_ONCE, ENTRY, err);
    rks_status status = some == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (int turn = 0; turn < 2 && status == RKS_OK; turn++) {
        for (uint64_t first = 0; status == RKS_OK && first < all; first += AT_ONCE) {
            size_t count = all - first < AT_ONCE ? (size_t)(all - first) : AT_ONCE;
            status = get_entries(d, first, some, count, err);
            for (size_t i = 0; turn == 0 && status == RKS_OK && i < count; i++)
                room += is_charged(d, &some[i]);
            if (turn == 1 && status == RKS_OK)
                keep_charged(d, some, count);
        }
        if (turn == 0 && status == RKS_OK)
            status = make_charged(d, room, err);
    }
    rks_free(some);
    return status;
}

/* COLLECTIVE. */
static rks_status gather_on_node(dedup *d, rks_status *own, rks_error *err)
{
    if (*own == RKS_OK) {
        d->place = held_below(d->at);
        *own = make_entries(d, AT_ONCE, err);
    }
    if (*own == RKS_OK)
        *own = flush_entries(d, err);
    rks_status status = rks_group_agree(d->at->group, "build: contents", *own, err);
    if (status == RKS_OK)
        *own = pick_share(d, err);
    return status;
}

/* ---- between nodes --------------------------------------------------------------------------- */

/* COLLECTIVE. Allocates exactly as much as this rank's share needs. */
static rks_status make_room(dedup *d, rks_status own, rks_error *err)
{
    uint32_t ranks = rks_group_size(d->at->group);
    uint64_t *counts = rks_alloc(ranks, sizeof(*counts), err);
    if (counts == NULL && own == RKS_OK)
        own = RKS_ERR_MEMORY;
    for (uint64_t i = 0; own == RKS_OK && i < d->own_count; i++)
        counts[rank_in_charge(d, &d->own[i])]++;
    const rks_fact fact = rks_fact_sum(counts, ranks);
    rks_status status =
        rks_group_agree_on(d->at->group, "build: contents", own, &fact, 1, NULL, err);
    if (status == RKS_OK)
        status = make_charged(d, counts[rks_group_rank(d->at->group)], err);
    rks_free(counts);
    return rks_group_agree(d->at->group, "build: room for contents", status, err);
}

static rks_status read_entries(void *user, uint32_t sender, uint64_t offset, void *bytes,
                               size_t size, rks_error *err)
{
    (void)sender;
    const dedup *d = user;
    if (offset > d->own_count * ENTRY || size > d->own_count * ENTRY - offset)
        return rks_fail(err, RKS_ERR_PEER, 0, "a rank asked beyond the end of the contents");
    memcpy(bytes, (const uint8_t *)d->own + offset, size);
    return RKS_OK;
}

static rks_status write_entries(void *user, uint32_t sender, uint64_t offset, const void *bytes,
                                size_t size, rks_error *err)
{
    (void)offset;
    rks_pair some[RKS_EXCLUSIONS_LOOK];
    if (size % ENTRY != 0) /* chunks and streams consist of whole entries */
        return rks_fail(err, RKS_ERR_PEER, 0, "rank %" PRIu32 " sent part of an entry", sender);
    for (size_t at = 0; at < size;) {
        size_t part = size - at < sizeof(some) ? size - at : sizeof(some);
        memcpy(some, (const uint8_t *)bytes + at, part);
        keep_charged(user, some, part / ENTRY);
        at += part;
    }
    return RKS_OK;
}

/* COLLECTIVE. Every rank receives the entries of all. */
static rks_status gather_from_nodes(dedup *d, rks_status *own, rks_error *err)
{
    if (*own == RKS_OK)
        *own = make_entries(d, rks_exclusions_held(d->at), err);
    rks_status status = make_room(d, *own, err);
    if (status != RKS_OK)
        return status;
    keep_charged(d, d->own, d->own_count);
    const rks_exchange_job job = {
        .size = d->own_count * ENTRY,
        .receives = true,
        .read = read_entries,
        .write = write_entries,
        .user = d,
        .chunk = 4 << 20,
    };
    status = rks_exchange_run(d->at->group, "auto", &job, NULL, NULL, err);
    if (status == RKS_OK && d->charged_count != d->charged_room)
        *own = rks_fail(err, RKS_ERR_PEER, 0, "contents of %" PRIu64 " samples came, not %" PRIu64,
                        d->charged_count, d->charged_room);
    return status;
}

/* ---- the duplicates -------------------------------------------------------------------------- */

/* COLLECTIVE. Compares contents, read from the shards; or, if some rank does not see a shard that
 * it needs, from a store whose ids are positions. */
static rks_status compare_all(dedup *d, rks_status *own, rks_error *err)
{
    rks_exclusions *at = d->at;
    bool unseen = false;
    rks_store *store = NULL;
    if (*own == RKS_OK)
        *own = rks_exclusions_compare(at, d->charged, d->charged_count, &unseen, err);
    uint64_t undecided = unseen;
    rks_status status = rks_exclusions_join(at, "build: duplicates", own, &undecided, err);
    if (status != RKS_OK || undecided == 0)
        return status;
    const rks_sealed_dataset sealed = {.directory = at->parts->directory, .dataset = at->dataset};
    status = rks_commit_open(at->group, &sealed, NULL, &store, err);
    if (status != RKS_OK)
        return status;
    if (unseen)
        *own = rks_exclusions_compare_by_store(at, store, d->charged, d->charged_count, err);
    status = rks_exclusions_join(at, "build: contents compared", own, NULL, err);
    rks_store_close(store, 0);
    return status;
}

rks_status rks_exclusions_dedup(rks_exclusions *at, rks_status *own, rks_error *err)
{
    dedup d = {.at = at};
    rks_status status =
        on_one_node(&d) ? gather_on_node(&d, own, err) : gather_from_nodes(&d, own, err);
    rks_scratch_give(&d.own_memory);
    if (status == RKS_OK) {
        rks_pairs_sort(d.charged, *own == RKS_OK ? d.charged_count : 0);
        status = compare_all(&d, own, err);
    }
    if (status == RKS_OK && *own == RKS_OK)
        at->dataset->excluded.duplicates = at->dataset->excluded.samples;
    rks_scratch_give(&d.charged_memory);
    rks_buffer_free(&d.scratch);
    return status;
}
