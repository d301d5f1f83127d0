/* SPDX-License-Identifier: Apache-2.0
 *
 * leave_out.c: which sealed samples do not count: duplicates by content (dedup.c), then all but the
 * N that a sample takes. Every rank comes to the same list.
 *
 * The sample is the N with the lowest draws (draw.h). The N-th lowest draw is found byte by byte,
 * with the counts of 256 bins added up over the ranks. 8 bytes a sample. */
#include "builder/leave_out.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "builder/commit.h"
#include "ingest/draw.h"

enum { BINS = 256 };

/* ---- this rank's samples --------------------------------------------------------------------- */

static const rks_shard *sealed_shard(const rks_leaving *at, uint32_t number)
{
    for (size_t i = 0; i < at->parts->sealed_count; i++)
        if (rks_digest_equal(rks_shard_id(at->parts->sealed[i]), at->dataset->shards[number].id))
            return at->parts->sealed[i];
    return NULL;
}

rks_status rks_leaving_each(rks_leaving *at, rks_leaving_fn visit, void *user, rks_error *err)
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
            if ((p - begin) % RKS_LEAVING_LOOK == 0) {
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

uint64_t rks_leaving_count(const rks_leaving *at)
{
    uint64_t count = 0;
    for (size_t i = 0; i < at->dataset->unit_count; i++)
        if (at->holders[at->dataset->units[i].shard] == rks_group_rank(at->group))
            count += at->dataset->units[i].summary.samples;
    return count;
}

rks_status rks_leaving_add(rks_leaving *at, uint32_t position, rks_error *err)
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

static rks_status add_runs(rks_leaving *at, const rks_agreed *agreed, rks_error *err)
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

rks_status rks_leaving_join(rks_leaving *at, const char *phase, rks_status status, rks_error *err)
{
    rks_excluded *excluded = &at->dataset->excluded;
    rks_agreed agreed;
    const rks_fact fact = rks_fact_bytes(at->runs.data, at->runs.size);
    status = rks_group_agree_on(at->group, phase, status, &fact, 1, &agreed, err);
    if (status == RKS_OK)
        status = add_runs(at, &agreed, err);
    excluded->samples = 0;
    for (uint64_t i = 0; i < excluded->run_count; i++)
        excluded->samples += excluded->runs[i].count;
    at->runs.size = 0;
    return rks_group_agree(at->group, phase, status, err);
}

/* ---- a sample of N ------------------------------------------------------------------------- */

typedef struct drawing {
    uint64_t *draws;
    uint64_t count;
    uint64_t left; /* samples to take of those that begin like `last` */
    uint64_t last; /* draw of the last sample that is taken */
    uint64_t walked;
    uint32_t end; /* of the samples with this very draw, positions below it are taken */
    rks_buffer ties;
} drawing;

static rks_status draw(rks_leaving *at, void *user, const rks_shard *shard, uint64_t row,
                       const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)position;
    drawing *d = user;
    rks_record_view view;
    rks_status status = rks_shard_locate(shard, row, &view, err);
    if (status == RKS_OK && rks_shard_faulted(shard, view.record, view.record_size))
        status = rks_shard_read_failed(shard, row, &view, err);
    if (status == RKS_OK)
        d->draws[d->count++] = rks_draw(at->selection->seed, unit->unit, view.source_row);
    return status;
}

/* COLLECTIVE. One more byte of the last draw. */
static rks_status narrow(rks_leaving *at, drawing *d, int byte, rks_status status, rks_error *err)
{
    uint64_t bins[BINS] = {0};
    int shift = 56 - 8 * byte;
    for (uint64_t i = 0; status == RKS_OK && i < d->count; i++)
        if (byte == 0 || d->draws[i] >> (shift + 8) == d->last >> (shift + 8))
            bins[d->draws[i] >> shift & 0xff]++;
    const rks_fact fact = rks_fact_sum(bins, BINS);
    status = rks_group_agree_on(at->group, "build: sample", status, &fact, 1, NULL, err);
    uint64_t bin = 0;
    for (; status == RKS_OK && bin < BINS && d->left > bins[bin]; bin++)
        d->left -= bins[bin];
    d->last |= (bin & 0xff) << shift;
    return status;
}

static rks_status tie(rks_leaving *at, void *user, const rks_shard *shard, uint64_t row,
                      const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)at, (void)shard, (void)row, (void)unit;
    drawing *d = user;
    return d->draws[d->walked++] == d->last
               ? rks_buffer_add(&d->ties, &position, sizeof(position), err)
               : RKS_OK;
}

static rks_status drop(rks_leaving *at, void *user, const rks_shard *shard, uint64_t row,
                       const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)shard, (void)row, (void)unit;
    drawing *d = user;
    uint64_t drawn = d->draws[d->walked++];
    bool taken = drawn < d->last || (drawn == d->last && position < d->end);
    return taken ? RKS_OK : rks_leaving_add(at, position, err);
}

static int by_number(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

void rks_leaving_sort(uint32_t *positions, size_t count)
{
    if (count > 0)
        qsort(positions, count, sizeof(*positions), by_number);
}

/* COLLECTIVE. Samples of units may have equal draws: the lowest positions are taken. Returns this
 * rank's own status. */
static rks_status settle_ties(rks_leaving *at, drawing *d, rks_error *err)
{
    rks_agreed agreed;
    rks_buffer all = {0};
    rks_status status = rks_leaving_each(at, tie, d, err);
    const rks_fact fact = rks_fact_bytes(d->ties.data, d->ties.size);
    status = rks_group_agree_on(at->group, "build: last of the sample", status, &fact, 1, &agreed,
                                err);
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(at->group); rank++) {
        size_t size = 0;
        const void *theirs = rks_agreed_get(&agreed, rank, 0, &size);
        status = rks_buffer_add(&all, theirs, size, err);
    }
    uint64_t ties = all.size / sizeof(uint32_t);
    if (status == RKS_OK && d->left > ties)
        status = rks_fail(err, RKS_ERR_PEER, 0,
                          "the ranks hold %" PRIu64 " samples of the last draw, %" PRIu64 " are needed",
                          ties, d->left);
    if (status == RKS_OK) {
        uint32_t *positions = (uint32_t *)(void *)all.data;
        rks_leaving_sort(positions, ties);
        d->end = d->left == 0 ? 0 : positions[d->left - 1] + 1;
    }
    d->walked = 0;
    rks_buffer_free(&all);
    return status;
}

static rks_status leave_out_rest(rks_leaving *at, rks_error *err)
{
    uint64_t counted = at->dataset->count - at->dataset->excluded.samples;
    drawing d = {.left = at->selection->sample};
    if (counted <= at->selection->sample)
        return RKS_OK;
    d.draws = rks_alloc_raw(rks_leaving_count(at), sizeof(*d.draws), err);
    rks_status status = d.draws == NULL ? RKS_ERR_MEMORY : rks_leaving_each(at, draw, &d, err);
    for (int byte = 0; byte < 8 && (byte == 0 || status == RKS_OK); byte++)
        status = narrow(at, &d, byte, status, err);
    if (status == RKS_OK) {
        status = settle_ties(at, &d, err);
        if (status == RKS_OK)
            status = rks_leaving_each(at, drop, &d, err);
        status = rks_leaving_join(at, "build: sample taken", status, err);
    }
    rks_free(d.draws);
    rks_buffer_free(&d.ties);
    return status;
}

/* ---- the list ------------------------------------------------------------------------------ */

/* Column and key bytes of the excluded samples that this rank holds. */
static rks_status weigh(rks_leaving *at, uint64_t *bytes, rks_error *err)
{
    const rks_dataset *dataset = at->dataset;
    const rks_excluded *excluded = &dataset->excluded;
    uint64_t begin = 0, run = 0;
    rks_status status = RKS_OK;
    for (size_t i = 0; status == RKS_OK && i < dataset->unit_count; i++) {
        const rks_dataset_unit *unit = &dataset->units[i];
        uint64_t end = begin + unit->summary.samples;
        bool mine = at->holders[unit->shard] == rks_group_rank(at->group);
        const rks_shard *shard = mine ? sealed_shard(at, unit->shard) : NULL;
        for (; run < excluded->run_count && excluded->runs[run].first < end; run++) {
            uint64_t from = excluded->runs[run].first, to = from + excluded->runs[run].count;
            from = from < begin ? begin : from;
            for (uint64_t p = from; mine && status == RKS_OK && p < to && p < end; p++) {
                rks_record_view view;
                uint64_t row = unit->first_row + (p - begin);
                status = rks_shard_locate(shard, row, &view, err);
                if (status == RKS_OK)
                    status = rks_record_decode(at->schema, view.payload, view.payload_size,
                                               at->values, err);
                if (status == RKS_OK && rks_shard_faulted(shard, view.record, view.record_size))
                    status = rks_shard_read_failed(shard, row, &view, err);
                for (uint32_t c = 0; status == RKS_OK && c < rks_schema_columns(at->schema); c++)
                    *bytes += at->values[c].data == NULL ? 0 : at->values[c].size;
                *bytes += status == RKS_OK ? view.key_size : 0;
            }
            if (to > end)
                break; /* it goes on in the next unit */
        }
        begin = end;
    }
    return status;
}

/* COLLECTIVE. The dataset as it is with its list. Returns this rank's own status. */
static rks_status finish(rks_leaving *at, rks_error *err)
{
    rks_dataset *dataset = at->dataset;
    uint64_t bytes = 0;
    rks_buffer encoded = {0};
    rks_status status = weigh(at, &bytes, err);
    const rks_fact fact = rks_fact_sum(&bytes, 1);
    status = rks_group_agree_on(at->group, "build: excluded bytes", status, &fact, 1, NULL, err);
    dataset->excluded.bytes += bytes;
    if (status == RKS_OK)
        status = rks_excluded_encode(&dataset->excluded, &encoded, err);
    if (status == RKS_OK) {
        dataset->count -= dataset->excluded.samples;
        dataset->id = rks_dataset_id(dataset);
    }
    rks_buffer_free(&encoded);
    return status;
}

rks_status rks_commit_leave_out(rks_parts *parts, rks_status status, rks_dataset *dataset,
                                const uint32_t *holders, rks_error *err)
{
    const rks_selection *selection = &parts->options.selection;
    rks_leaving at = {
        .group = parts->group,
        .parts = parts,
        .dataset = dataset,
        .holders = holders,
        .selection = selection,
        .schema = status == RKS_OK ? dataset->schema : NULL,
        .key = -1,
    };
    if (!selection->dedup && selection->sample == 0)
        return status;
    if (status == RKS_OK && dataset->count > UINT32_MAX)
        status = rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                          "%" PRIu64 " samples before any is left out: at most %" PRIu32
                          " can be stored",
                          dataset->count, UINT32_MAX);
    if (status == RKS_OK) {
        at.values = rks_alloc(rks_schema_columns(at.schema), sizeof(*at.values), err);
        status = at.values == NULL ? RKS_ERR_MEMORY : RKS_OK;
    }
    status = rks_group_agree(parts->group, "build: leaving out", status, err);
    if (status == RKS_OK && dataset->count == 0)
        goto out;
    if (status == RKS_OK && selection->dedup)
        status = rks_leaving_duplicates(&at, err);
    if (status == RKS_OK && selection->sample > 0)
        status = leave_out_rest(&at, err);
    if (status == RKS_OK && dataset->excluded.samples > 0)
        status = finish(&at, err);
out:
    rks_free(at.values);
    rks_buffer_free(&at.runs);
    return status;
}
