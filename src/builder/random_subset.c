/* SPDX-License-Identifier: Apache-2.0
 *
 * random_subset.c: a sample of N consists of the N samples with the lowest draws
 * (ingest/row_sampling.h).
 *
 * Draws are even, so the N-th lowest of M is close to N / M of their range:
 *
 *       0 ......... |   window   | ......... limit
 *        counted     looked at
 *
 * Each rank reports how many of its draws are below the window, and which are in it. The window
 * has eight standard deviations on each side, so one look is enough; if it is not, the next
 * window is 16 times as wide. It takes 8 bytes a sample, and 16 for each one in the window: 4 MB
 * for 10^9 samples. */
#include "builder/exclusions.h"

#include <inttypes.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sort_pairs.h"
#include "ingest/row_sampling.h"

static uint64_t window_draws = UINT64_MAX;

void rks_exclusions_window(uint64_t draws)
{
    window_draws = draws;
}

typedef struct drawing {
    uint64_t *draws; /* of this rank's samples that count, by position */
    uint64_t count, walked;
    uint64_t low, high; /* the window, both ends inclusive */
    uint64_t below;     /* how many draws are below it */
    rks_buffer inside;  /* rks_pair: draw, position */
    rks_pair last;      /* the last one that is drawn into the sample */
} drawing;

static rks_status draw_sample(rks_exclusions *at, void *user, const rks_shard *shard, uint64_t row,
                              const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)position;
    drawing *d = user;
    rks_record_view view;
    rks_status status = rks_shard_locate(shard, row, &view, err);
    if (status != RKS_OK)
        return status;
    d->draws[d->count++] = rks_draw(at->selection->seed, unit->unit, view.source_row);
    return rks_exclusions_check_read(RKS_OK, shard, row, &view, err);
}

static rks_status look_at_draw(rks_exclusions *at, void *user, const rks_shard *shard, uint64_t row,
                               const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)at, (void)shard, (void)row, (void)unit;
    drawing *d = user;
    const rks_pair pair = {d->draws[d->walked++], position};
    d->below += pair.first < d->low;
    return pair.first < d->low || pair.first > d->high
               ? RKS_OK
               : rks_buffer_add(&d->inside, &pair, sizeof(pair), err);
}

static rks_status drop_rest(rks_exclusions *at, void *user, const rks_shard *shard, uint64_t row,
                            const rks_unit_summary *unit, uint32_t position, rks_error *err)
{
    (void)unit;
    drawing *d = user;
    rks_record_view view;
    uint64_t drawn = d->draws[d->walked++];
    if (drawn < d->last.first || (drawn == d->last.first && position <= d->last.second))
        return RKS_OK;
    rks_status status = rks_shard_locate(shard, row, &view, err);
    if (status != RKS_OK)
        return status;
    status =
        rks_exclusions_weigh(at, view.payload, view.payload_size, view.key_size, &at->bytes, err);
    status = rks_exclusions_check_read(status, shard, row, &view, err);
    return status == RKS_OK ? rks_exclusions_add(at, position, err) : status;
}

static uint64_t root_of(uint64_t number)
{
    uint64_t root = 0;
    for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit >>= 1)
        if ((root + bit) * (root + bit) <= number)
            root += bit;
    return root;
}

/* Returns how far the window reaches on each side, in draws. A sample's standard deviation is at
 * most sqrt(M) / 2. */
static uint64_t first_reach(uint64_t samples)
{
    return window_draws != UINT64_MAX ? window_draws : 4 * root_of(samples) + 64;
}

/* Sets the window, the same on all ranks. */
static void set_window(drawing *d, const rks_selection *selection, uint64_t samples, uint64_t reach)
{
    uint64_t limit = rks_draw_limit(selection->sample_rate);
    const __uint128_t top = limit == 0 ? (__uint128_t)1 << 64 : limit;
    __uint128_t middle = top / samples * selection->sample, side = top / samples * reach;
    d->low = middle > side ? (uint64_t)(middle - side) : 0;
    d->high = middle + side > UINT64_MAX ? UINT64_MAX : (uint64_t)(middle + side);
    if (reach >= samples) { /* all of them */
        d->low = 0;
        d->high = UINT64_MAX;
    }
    d->below = d->walked = 0;
    d->inside.size = 0;
}

/* Finds the last sample that is drawn: the `left`-th of those in the windows of all ranks. Of equal
 * draws the lowest positions count. */
static rks_status find_last(drawing *d, const rks_group *group, const rks_agreed *agreed,
                            uint64_t left, rks_error *err)
{
    rks_buffer all = {0};
    rks_status status = RKS_OK;
    for (uint32_t rank = 0; status == RKS_OK && rank < rks_group_size(group); rank++) {
        size_t size = 0;
        const void *theirs = rks_agreed_get(agreed, rank, 0, &size);
        status = rks_buffer_add(&all, theirs, size, err);
    }
    rks_pair *pairs = (rks_pair *)(void *)all.data;
    if (status == RKS_OK) {
        rks_pairs_sort(pairs, all.size / sizeof(*pairs));
        d->last = pairs[left - 1];
    }
    rks_buffer_free(&all);
    return status;
}

static uint64_t shown_in_all(const rks_group *group, const rks_agreed *agreed)
{
    uint64_t shown = 0;
    for (uint32_t rank = 0; rank < rks_group_size(group); rank++) {
        size_t size = 0;
        rks_agreed_get(agreed, rank, 0, &size);
        shown += size / sizeof(rks_pair);
    }
    return shown;
}

/* COLLECTIVE. *found: something is to be left out, and d->last is known. */
static rks_status look_for_last(rks_exclusions *at, drawing *d, uint64_t samples, rks_status *own,
                                bool *found, rks_error *err)
{
    uint64_t take = at->selection->sample, reach = first_reach(samples);
    *found = false;
    for (;; reach = reach > samples / 16 ? samples : 16 * reach + 1) {
        rks_agreed agreed;
        if (*own == RKS_OK && samples > take) {
            set_window(d, at->selection, samples, reach);
            *own = rks_exclusions_each(at, look_at_draw, d, err);
        }
        const rks_fact facts[] = {
            rks_fact_bytes(d->inside.data, d->inside.size, samples * sizeof(rks_pair)),
            rks_fact_sum(&d->below, 1)};
        rks_status status =
            rks_group_agree_on(at->group, "build: sample", *own, facts, 2, &agreed, err);
        if (status != RKS_OK || samples <= take)
            return status;
        *found = d->below < take && take - d->below <= shown_in_all(at->group, &agreed);
        if (*found) {
            *own = find_last(d, at->group, &agreed, take - d->below, err);
            return RKS_OK;
        }
        if (reach >= samples) {
            *own =
                rks_fail(err, RKS_ERR_PEER, 0, "the ranks show fewer draws than they hold samples");
            return RKS_OK;
        }
    }
}

rks_status rks_exclusions_subset(rks_exclusions *at, rks_status *own, rks_error *err)
{
    drawing d = {0};
    bool found = false;
    uint64_t samples = *own == RKS_OK ? at->dataset->count - at->dataset->excluded.samples : 0;
    if (*own == RKS_OK && samples > at->selection->sample) {
        d.draws = rks_alloc_raw(rks_exclusions_held(at), sizeof(*d.draws), err);
        *own = d.draws == NULL ? RKS_ERR_MEMORY : rks_exclusions_each(at, draw_sample, &d, err);
    }
    rks_status status = look_for_last(at, &d, samples, own, &found, err);
    if (status == RKS_OK && found) {
        d.walked = 0;
        if (*own == RKS_OK)
            *own = rks_exclusions_each(at, drop_rest, &d, err);
        status = rks_exclusions_join(at, "build: sample taken", own, NULL, err);
    }
    rks_free(d.draws);
    rks_buffer_free(&d.inside);
    return status;
}
