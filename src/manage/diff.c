/* SPDX-License-Identifier: Apache-2.0
 *
 * diff.c: two stores, compared by key and contents.
 *
 * Every rank reads the samples that it serves and makes 8 bytes of each: XXH3-64 over its key and
 * its columns in the order of their names. They go to all ranks in chunks of ids, and rank 0 keeps
 * those of `b`, then looks up each of `a` by its key's hash. Equal hashes of key and contents are
 * equal samples; where contents differ, the full keys decide. What nobody has found is only in b.
 * A column "__key__" that one side alone has does not count if it repeats the key. Samples that
 * a quarantine leaves out are in neither.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "group/agreement.h"
#include "manage/sample_scan.h"
#include "rankstore/manage.h"
#include "shard/schema.h"

enum { CHUNK = 1 << 20 }; /* ids in a round */

typedef struct common_column {
    uint32_t in_a, in_b;
    const char *name;
} common_column;

/* What is hashed for a column. */
typedef struct print {
    uint64_t hash;
    uint64_t size; /* UINT64_MAX: missing */
    uint32_t dims[RKS_DIMS_MAX];
} print;

typedef struct diff {
    rks_store *a, *b;
    rks_diff_options options;
    rks_diff_fn found;
    void *user;
    common_column *columns; /* sorted by name */
    uint32_t column_count;
    int key_a, key_b; /* the column "__key__" if only this side has it, else -1 */
    print *prints;    /* of one sample: its key, then its columns */
    rks_buffer differing;
    rks_buffer mine;      /* this rank's part of the chunk, by id */
    uint64_t *chunk;      /* rank 0: all of the chunk */
    uint64_t *contents_b; /* rank 0: by id */
    uint8_t *matched;     /* rank 0: a bit for each id of b */
    rks_scratch contents_scratch, matched_scratch;
    rks_diff_report report;
    uint64_t told[3];
    uint64_t done, total, samples, ticked_ms; /* of this rank's work, for progress */
    bool of_b;
} diff;

void(rks_diff_options_default)(rks_diff_options *options)
{
    *options = (rks_diff_options){.struct_size = sizeof(*options), .head = 10};
}

/* ---- columns ---------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const common_column *)a)->name, ((const common_column *)b)->name);
}

/* Returns true if the types are equal without `?`: values that exist then have the same bytes. */
static bool same_type(const rks_column *a, const rks_column *b)
{
    size_t one = strlen(a->type) - a->nullable, other = strlen(b->type) - b->nullable;
    return one == other && memcmp(a->type, b->type, one) == 0;
}

static bool asked_for(const diff *d, const char *name)
{
    for (size_t i = 0; i < d->options.column_count; i++)
        if (strcmp(d->options.columns[i], name) == 0)
            return true;
    return d->options.columns == NULL;
}

static rks_status tell_column(diff *d, const rks_column *a, const rks_column *b, rks_error *err)
{
    const char *between = d->differing.size > 0 ? "; " : "";
    if (a != NULL && b != NULL)
        return rks_buffer_print(&d->differing, err, "%s%s: %s in a, %s in b", between, a->name,
                                a->type, b->type);
    return rks_buffer_print(&d->differing, err, "%s%s: %s, not in %s", between,
                            a == NULL ? b->name : a->name, a == NULL ? b->type : a->type,
                            a == NULL ? "a" : "b");
}

static bool repeats_key(const rks_column *column)
{
    return strcmp(column->name, "__key__") == 0 &&
           (column->kind == RKS_KIND_STR || column->kind == RKS_KIND_BYTES);
}

static rks_status match_columns(diff *d, rks_error *err)
{
    const rks_schema *a = d->a->dataset->schema, *b = d->b->dataset->schema;
    rks_status status = RKS_OK;
    for (size_t i = 0; i < d->options.column_count; i++)
        if (rks_schema_find(a, d->options.columns[i]) < 0 &&
            rks_schema_find(b, d->options.columns[i]) < 0)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0, "diff: neither dataset has a column \"%s\"",
                            d->options.columns[i]);
    d->columns = rks_alloc(rks_schema_columns(a), sizeof(*d->columns), err);
    d->prints = rks_alloc(rks_schema_columns(a) + 1, sizeof(*d->prints), err);
    if (d->columns == NULL || d->prints == NULL)
        return RKS_ERR_MEMORY;
    for (uint32_t i = 0; status == RKS_OK && i < rks_schema_columns(a); i++) {
        const rks_column *ours = rks_schema_column(a, i);
        int other = rks_schema_find(b, ours->name);
        const rks_column *theirs = other < 0 ? NULL : rks_schema_column(b, (uint32_t)other);
        if (!asked_for(d, ours->name))
            continue;
        if (theirs == NULL && repeats_key(ours))
            d->key_a = (int)i;
        else if (theirs == NULL || !same_type(ours, theirs))
            status = tell_column(d, ours, theirs, err);
        else
            d->columns[d->column_count++] = (common_column){i, (uint32_t)other, ours->name};
    }
    for (uint32_t i = 0; status == RKS_OK && i < rks_schema_columns(b); i++) {
        const rks_column *theirs = rks_schema_column(b, i);
        if (!asked_for(d, theirs->name) || rks_schema_find(a, theirs->name) >= 0)
            continue;
        if (repeats_key(theirs))
            d->key_b = (int)i;
        else
            status = tell_column(d, NULL, theirs, err);
    }
    if (d->column_count > 0)
        qsort(d->columns, d->column_count, sizeof(*d->columns), by_name);
    return status;
}

/* ---- contents ----------------------------------------------------------------------------- */

static void count_diff_progress(diff *d, uint64_t bytes)
{
    d->done += bytes;
    d->samples++;
    uint64_t now = rks_now_ms();
    if (now - d->ticked_ms < 100)
        return;
    d->ticked_ms = now;
    const rks_work work = {.done = d->done, .total = d->total, .samples = d->samples};
    rks_group_tell_progress(d->a->group, &work, "");
    if (d->options.progress != NULL)
        d->options.progress(d->options.progress_user, "diff", d->done, d->total, d->samples);
}

static rks_status hash_sample(void *user, uint64_t id, const rks_sample *sample, uint64_t bytes,
                              rks_error *err)
{
    diff *d = user;
    (void)id;
    memset(d->prints, 0, (d->column_count + 1) * sizeof(*d->prints));
    rks_digest key = rks_checksum128(sample->key, sample->key_size);
    memcpy(d->prints[0].dims, &key, sizeof(key));
    d->prints[0].size = sample->key_size;
    for (uint32_t i = 0; i < d->column_count; i++) {
        print *of = &d->prints[i + 1];
        const rks_value *value = &sample->values[d->of_b ? d->columns[i].in_b : d->columns[i].in_a];
        of->size = UINT64_MAX;
        if (value->data == NULL)
            continue;
        of->size = value->size;
        of->hash = rks_checksum64(value->data, (size_t)value->size);
        memcpy(of->dims, value->dims, sizeof(of->dims));
    }
    uint64_t hash = rks_checksum64(d->prints, (d->column_count + 1) * sizeof(*d->prints));
    int repeated = d->of_b ? d->key_b : d->key_a;
    const rks_value *again = repeated < 0 ? NULL : &sample->values[repeated];
    if (again != NULL && (again->data == NULL || again->size != sample->key_size ||
                          memcmp(again->data, sample->key, sample->key_size) != 0))
        hash = ~hash; /* the other side cannot have these contents */
    count_diff_progress(d, bytes);
    return rks_buffer_add(&d->mine, &hash, sizeof(hash), err);
}

/* Places what all ranks brought for ids [first, end). Each rank brings the samples that it serves,
 * by id. */
static rks_status place_contents(const rks_store *store, const rks_agreed *agreed, uint64_t first,
                                 uint64_t end, uint64_t *all, rks_error *err)
{
    uint32_t ranks = rks_group_size(store->group);
    size_t *taken = rks_alloc(ranks, sizeof(*taken), err), size = 0;
    rks_status status = taken == NULL ? RKS_ERR_MEMORY : RKS_OK;
    for (uint64_t id = first; id < end && status == RKS_OK; id++) {
        int64_t owner = rks_store_owner(store, id);
        if (owner < 0)
            continue; /* the quarantine leaves it out */
        const uint8_t *brought = rks_agreed_get(agreed, (uint32_t)owner, 0, &size);
        if (size - taken[owner] < sizeof(uint64_t)) {
            status = rks_fail(err, RKS_ERR_PEER, 0,
                              "diff: rank %" PRId64 " sent too little about its samples", owner);
        } else {
            memcpy(&all[id - first], brought + taken[owner], sizeof(uint64_t));
            taken[owner] += sizeof(uint64_t);
        }
    }
    rks_free(taken);
    return status;
}

/* COLLECTIVE. Collects the contents of ids [first, end) in `all` on rank 0. `status`: the result of
 * the round before. */
static rks_status gather_chunk(diff *d, rks_store *store, rks_status status, uint64_t first,
                               uint64_t end, uint64_t *all, rks_error *err)
{
    rks_group *group = store->group;
    rks_agreed agreed;
    rks_scan scan = {store, rks_group_rank(group), hash_sample, d};
    d->of_b = store == d->b;
    d->mine.size = 0;
    if (status == RKS_OK)
        status = rks_store_scan(&scan, first, end, err);
    const rks_fact fact =
        rks_fact_bytes(d->mine.data, d->mine.size, (end - first) * sizeof(uint64_t));
    status = rks_group_agree_on(group, "diff: contents", status, &fact, 1, &agreed, err);
    return status == RKS_OK && rks_group_rank(group) == 0
               ? place_contents(store, &agreed, first, end, all, err)
               : status;
}

/* ---- comparing, on rank 0 -------------------------------------------------------------------- */

static rks_status report_difference(diff *d, rks_difference kind, uint64_t id_a, uint64_t id_b,
                                    rks_error *err)
{
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    uint64_t *counts[] = {&d->report.only_a, &d->report.only_b, &d->report.changed};
    (*counts[kind])++;
    if (d->found == NULL || d->told[kind] >= d->options.head)
        return RKS_OK;
    d->told[kind]++;
    rks_status status = rks_store_key(kind == RKS_ONLY_IN_B ? d->b : d->a,
                                      kind == RKS_ONLY_IN_B ? id_b : id_a, key, &size, err);
    if (status == RKS_OK)
        d->found(d->user, kind, key, size, id_a, id_b);
    return status;
}

typedef struct search {
    diff *d;
    uint64_t id_a, content;
    uint64_t same;  /* the id in b of the same sample, or UINT64_MAX */
    uint64_t other; /* the id in b with that key and other contents */
    uint8_t key[RKS_KEY_MAX];
    size_t key_size; /* bytes; 0: not read yet */
    rks_status status;
    rks_error err;
} search;

static bool is_matched(const diff *d, uint64_t id)
{
    return d->matched[id / 8] >> (id % 8) & 1;
}

static void set_matched(diff *d, uint64_t id)
{
    d->matched[id / 8] |= (uint8_t)(1u << (id % 8));
}

static bool look(void *user, uint64_t id)
{
    search *s = user;
    uint8_t key[RKS_KEY_MAX];
    size_t size = 0;
    if (is_matched(s->d, id))
        return true;
    if (s->d->contents_b[id] == s->content) {
        s->same = id;
        return false;
    }
    if (s->key_size == 0)
        s->status = rks_store_key(s->d->a, s->id_a, s->key, &s->key_size, &s->err);
    if (s->status == RKS_OK)
        s->status = rks_store_key(s->d->b, id, key, &size, &s->err);
    if (s->status != RKS_OK)
        return false;
    if (size == s->key_size && memcmp(key, s->key, size) == 0)
        s->other = id;
    return s->other == UINT64_MAX;
}

static rks_status compare_one(diff *d, uint64_t id, uint64_t content, rks_error *err)
{
    search s = {.d = d, .id_a = id, .content = content, .same = UINT64_MAX, .other = UINT64_MAX};
    rks_status status = rks_index_find(d->b->index, rks_store_key_hashes(d->a)[id], look, &s, err);
    if (status == RKS_OK && s.status != RKS_OK) {
        if (err != NULL)
            *err = s.err;
        return s.status;
    }
    if (status != RKS_OK)
        return status;
    uint64_t match = s.same != UINT64_MAX ? s.same : s.other;
    if (match == UINT64_MAX)
        return report_difference(d, RKS_ONLY_IN_A, id, UINT64_MAX, err);
    set_matched(d, match);
    if (s.same == UINT64_MAX)
        return report_difference(d, RKS_CHANGED, id, match, err);
    d->report.same++;
    return RKS_OK;
}

static rks_status compare_chunk(diff *d, uint64_t first, uint64_t end, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint64_t id = first; status == RKS_OK && id < end; id++) {
        if (!rks_store_is_quarantined(d->a, id))
            status = compare_one(d, id, d->chunk[id - first], err);
        if (status == RKS_OK && id % 4096 == 0)
            status = rks_group_must_stop(d->a->group, err);
    }
    return status;
}

static rks_status tell_unmatched(diff *d, rks_error *err)
{
    rks_status status = RKS_OK;
    for (uint64_t id = 0; status == RKS_OK && id < rks_store_count(d->b); id++)
        if (!is_matched(d, id))
            status = report_difference(d, RKS_ONLY_IN_B, UINT64_MAX, id, err);
    return status;
}

/* ---- all ranks ----------------------------------------------------------------------------- */

static rks_status make_room(diff *d, rks_error *err)
{
    uint64_t count = rks_store_count(d->b);
    rks_status status = match_columns(d, err);
    if (status != RKS_OK || rks_group_rank(d->a->group) != 0)
        return status;
    d->chunk = rks_alloc_raw(CHUNK, sizeof(*d->chunk), err);
    if (d->chunk == NULL)
        return RKS_ERR_MEMORY;
    status = rks_scratch_take(count, sizeof(*d->contents_b), NULL, &d->contents_scratch, err);
    if (status == RKS_OK)
        status = rks_scratch_take(count / 8 + 1, 1, NULL, &d->matched_scratch, err);
    if (status != RKS_OK)
        return status;
    d->contents_b = d->contents_scratch.bytes;
    d->matched = d->matched_scratch.bytes;
    for (uint64_t id = 0; id < count; id++)
        if (rks_store_is_quarantined(d->b, id))
            set_matched(d, id); /* it is neither compared nor reported */
    return RKS_OK;
}

/* COLLECTIVE. */
static rks_status compare_datasets(diff *d, rks_error *err)
{
    bool compares = rks_group_rank(d->a->group) == 0;
    uint64_t in_a = rks_store_count(d->a), in_b = rks_store_count(d->b);
    rks_status status = RKS_OK;
    for (uint64_t first = 0; status == RKS_OK && first < in_b; first += CHUNK) {
        uint64_t end = in_b - first < CHUNK ? in_b : first + CHUNK;
        status =
            gather_chunk(d, d->b, status, first, end, compares ? d->contents_b + first : NULL, err);
        status = rks_group_agree(d->a->group, "diff: taken", status, err);
    }
    for (uint64_t first = 0; status == RKS_OK && first < in_a; first += CHUNK) {
        uint64_t end = in_a - first < CHUNK ? in_a : first + CHUNK;
        status = gather_chunk(d, d->a, status, first, end, d->chunk, err);
        if (status == RKS_OK && compares)
            status = compare_chunk(d, first, end, err);
        status = rks_group_agree(d->a->group, "diff: compared", status, err);
    }
    if (status == RKS_OK && compares)
        status = tell_unmatched(d, err);
    rks_agreed agreed;
    const rks_fact fact = rks_fact_fixed(&d->report, sizeof(d->report));
    status = rks_group_agree_on(d->a->group, "diff: the rest", status, &fact, 1, &agreed, err);
    if (status == RKS_OK) {
        memcpy(&d->report, rks_agreed_get(&agreed, 0, 0, NULL), sizeof(d->report));
        d->report.columns[sizeof(d->report.columns) - 1] = '\0'; /* another rank may send
                                                                  * anything */
    }
    return status;
}

/* Returns how many bytes this rank will read. */
static uint64_t bytes_of(const rks_store *store)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        if (store->owners[i][0] == (int32_t)rks_group_rank(store->group))
            bytes += store->dataset->shards[i].bytes;
    return bytes;
}

static rks_status check_partial(const rks_store *store, rks_error *err)
{
    for (size_t i = 0; i < store->dataset->shard_count; i++)
        if (store->owners[i][0] < 0)
            return rks_fail(err, RKS_ERR_STATE, 0, "diff: %s is not whole: shard %s is missing",
                            store->directory, store->dataset->shards[i].name);
    return RKS_OK;
}

/* COLLECTIVE. */
static rks_status begin_together(const diff *d, rks_status status, rks_error *err)
{
    char *columns = NULL, head[24];
    snprintf(head, sizeof(head), "%" PRIu64, d->options.head);
    if (status == RKS_OK)
        status = rks_list_text(d->options.columns, d->options.column_count, &columns, err);
    const rks_fact given[] = {rks_fact_same("diff: columns", columns),
                              rks_fact_same("diff: head", head)};
    status = rks_group_agree_on(d->a->group, "diff", status, given, 2, NULL, err);
    rks_free(columns);
    return status;
}

rks_status rks_diff(rks_store *a, rks_store *b, const rks_diff_options *options, rks_diff_fn found,
                    void *user, rks_diff_report *report, rks_error *err)
{
    diff d = {.a = a, .b = b, .found = found, .user = user, .key_a = -1, .key_b = -1};
    rks_diff_options_default(&d.options);
    if (options != NULL)
        memcpy(&d.options, options,
               options->struct_size < sizeof(d.options) ? options->struct_size : sizeof(d.options));
    d.total = bytes_of(a) + bytes_of(b);
    rks_status status = a->group == b->group ? RKS_OK
                                             : rks_fail(err, RKS_ERR_ARGUMENT, 0,
                                                        "diff: the stores are of two groups");
    if (status == RKS_OK)
        status = check_partial(a, err);
    if (status == RKS_OK)
        status = check_partial(b, err);
    if (status == RKS_OK)
        status = make_room(&d, err);
    status = begin_together(&d, status, err);
    if (status == RKS_OK)
        status = compare_datasets(&d, err);
    if (status == RKS_OK && report != NULL) {
        size_t room = report->struct_size;
        snprintf(d.report.columns, sizeof(d.report.columns), "%.*s", (int)d.differing.size,
                 d.differing.data == NULL ? "" : (const char *)d.differing.data);
        memcpy(report, &d.report, room < sizeof(d.report) ? room : sizeof(d.report));
        report->struct_size = room;
    }
    rks_buffer_free(&d.differing);
    rks_buffer_free(&d.mine);
    rks_free(d.columns);
    rks_free(d.prints);
    rks_free(d.chunk);
    rks_scratch_give(&d.contents_scratch);
    rks_scratch_give(&d.matched_scratch);
    return status;
}
