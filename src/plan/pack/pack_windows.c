/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_windows.c: strategy "pack" with pack_window. Each epoch puts all samples in another order,
 * and packs each stretch of them that fills `pack_window` bins on its own, best-fit decreasing. So
 * in each epoch a sample shares its bin with other samples, even if no other sample has its length.
 *
 * pack_assign.c deals ids among equal lengths later. So this file shuffles lengths: the run of each
 * sample. The bin of a window with the most room moves on into the next window.
 *
 * Epochs need different numbers of bins. What packing all at once and the first epochs need, plus a
 * reserve, fixes the number of steps. An epoch that needs more takes windows of twice as many bins,
 * and so on. An epoch that needs fewer splits bins. The rest of an epoch after a change of world
 * has as few steps as its bins need. */
#include "plan/pack/packing.h"

#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/order/order.h"

/* The current window. */
typedef struct window {
    rks_pack *pack;
    rks_pack_shelf shelf;
    uint32_t *counts; /* of each run: its samples in the window */
    rks_bits runs;    /* runs that have samples in the window */
    uint64_t size;    /* size of all samples in the window */
    uint32_t capacity;
} window;

static void add_samples(window *w, uint32_t run, uint32_t count)
{
    if (w->counts[run] == 0)
        rks_bits_set(&w->runs, run);
    w->counts[run] += count;
    w->size += (uint64_t)count * w->pack->runs[run].size;
}

/* Moves the bin with the most room out of groups [first, group_count) into the next window. */
static void carry(window *w, size_t first)
{
    rks_pack_group *groups = w->pack->groups, *most = NULL;
    uint64_t bins = 0;
    for (size_t i = first; i < w->pack->group_count; i++) {
        bins += groups[i].bins;
        if (groups[i].bins > 0 && (most == NULL || groups[i].room > most->room))
            most = &groups[i];
    }
    if (most == NULL || bins < 2)
        return;
    most->bins--;
    for (uint32_t at = most->pattern; at != RKS_PACK_NONE; at = w->pack->patterns[at].before)
        add_samples(w, w->pack->patterns[at].run, w->pack->patterns[at].count);
}

static rks_status fit_window(window *w, bool last, rks_error *err)
{
    rks_pack *pack = w->pack;
    size_t first = pack->group_count;
    rks_status status = RKS_OK;
    uint32_t run = rks_bits_find(&w->runs, 0);
    while (run != RKS_BITS_NONE && status == RKS_OK) {
        status = rks_pack_fit_run(&w->shelf, pack, run, w->counts[run], w->capacity, err);
        w->counts[run] = 0;
        rks_bits_clear(&w->runs, run);
        run = rks_bits_find(&w->runs, run);
    }
    rks_pack_shelf_clear(&w->shelf, pack, first);
    w->size = 0;
    if (!last && status == RKS_OK)
        carry(w, first);
    return status;
}

/* Packs windows of the samples in the order of `order`, which holds the run of each. */
static rks_status fit_windows(window *w, const uint32_t *order, uint64_t count, uint64_t room,
                              rks_error *err)
{
    rks_status status = RKS_OK;
    uint64_t done = 0;
    for (uint64_t i = 0; i < count && status == RKS_OK; i++) {
        uint32_t size = w->pack->runs[order[i]].size;
        if (w->size > 0 && w->size + size > room)
            status = fit_window(w, false, err);
        add_samples(w, order[i], 1);
        if (status == RKS_OK)
            status = rks_plan_pause(&done, 1, err);
    }
    return status == RKS_OK ? fit_window(w, true, err) : status;
}

/* Fills `order` with the run of each sample, and shuffles it. */
static rks_status shuffle_runs(const rks_pack *pack, uint64_t key, uint32_t *order, rks_error *err)
{
    for (size_t run = 0; run < pack->run_count; run++)
        for (uint32_t i = pack->runs[run].first; i < pack->runs[run + 1].first; i++)
            order[i] = (uint32_t)run;
    return rks_plan_shuffle(key, order, pack->runs[pack->run_count].first, err);
}

/* Packs the base by windows of `bins` bins. */
static rks_status pack_windows(const rks_plan_input *in, uint64_t key, uint64_t bins,
                               rks_pack *pack, rks_error *err)
{
    uint64_t count = pack->runs[pack->run_count].first;
    window w = {.pack = pack, .capacity = in->config.capacity};
    rks_status status = RKS_ERR_MEMORY;
    uint32_t *order = rks_alloc_raw(count, sizeof(*order), err);
    if (order == NULL)
        return status;
    rks_plan_advise(order, count * sizeof(*order));
    rks_usage_add(RKS_MEMORY_PLAN, count * sizeof(*order));
    w.counts = rks_alloc(pack->run_count, sizeof(*w.counts), err);
    if (w.counts == NULL)
        goto out;
    status = rks_pack_shelf_make(&w.shelf, w.capacity, err);
    if (status == RKS_OK)
        status = rks_bits_make(&w.runs, pack->run_count, err);
    if (status == RKS_OK)
        status = shuffle_runs(pack, key, order, err);
    if (status == RKS_OK)
        status = fit_windows(&w, order, count, bins * w.capacity, err);

out:
    rks_usage_sub(RKS_MEMORY_PLAN, count * sizeof(*order));
    rks_free(order);
    rks_free(w.counts);
    rks_free(w.runs.levels[0]);
    rks_pack_shelf_free(&w.shelf);
    return status;
}

/* Packs the base by windows of `bins` bins, or all at once if `bins` is 0. */
static rks_status pack_base(const rks_plan_input *in, const rks_plan_base *base, uint32_t world,
                            uint64_t key, uint64_t bins, rks_pack **pack, rks_error *err)
{
    rks_pack *made = NULL;
    rks_status status = rks_pack_begin(in, base, world, &made, err);
    if (status != RKS_OK)
        return status;
    status = bins == 0 ? rks_pack_fit(made, in->config.capacity, err)
                       : pack_windows(in, key, bins, made, err);
    if (status != RKS_OK) {
        rks_pack_free(made);
        return status;
    }
    rks_pack_settle(&in->config, made);
    *pack = made;
    return RKS_OK;
}

/* Returns the steps of a whole epoch. */
static uint64_t steps_for(const rks_plan_input *in, uint64_t samples, uint32_t world)
{
    const rks_plan_config *config = &in->config;
    uint64_t slots = (uint64_t)world * config->micro_batches, full = slots * config->batch_size;
    if (config->tail == TAIL_DROP) {
        uint64_t steps = in->window_least / full;
        return steps == 0 && samples >= full ? 1 : steps;
    }
    uint64_t steps = (in->window_most + full - 1) / full;
    uint64_t fewest = (in->window_all + full - 1) / full;
    uint64_t last = config->tail == TAIL_SPLIT ? slots : 1; /* samples that the last step needs */
    uint64_t possible = samples < last ? 1 : (samples - last) / full + 1;
    steps = steps < possible ? steps : possible;
    return steps > fewest ? steps : fewest;
}

rks_status rks_pack_look(rks_plan_input *in, const rks_plan_base *base, uint64_t key, uint64_t bins,
                         rks_error *err)
{
    rks_pack *pack = NULL;
    rks_status status = pack_base(in, base, in->config.world, key, bins, &pack, err);
    if (status != RKS_OK)
        return status;
    if (bins == 0) {
        in->window_all = in->window_most = pack->bins;
        in->window_least = UINT64_MAX;
    } else if (pack->bins < in->window_least) {
        in->window_least = pack->bins;
    }
    in->window_most = pack->bins > in->window_most ? pack->bins : in->window_most;
    rks_pack_free(pack);
    return RKS_OK;
}

rks_status rks_pack_lay_out_windows(const rks_plan_input *in, const rks_plan_base *base,
                                    uint32_t world, uint64_t key, bool whole,
                                    rks_plan_layout *layout, rks_error *err)
{
    const rks_plan_config *config = &in->config;
    uint64_t bins = config->pack_window, full = (uint64_t)world * config->micro_batches;
    uint64_t steps = whole ? steps_for(in, base->count, world) : 0;
    rks_pack *pack = NULL;
    full *= config->batch_size;
    rks_pack_free(layout->pack);
    layout->pack = NULL;
    layout->base = base->count; /* for errors */
    rks_status status = pack_base(in, base, world, key, bins, &pack, err);
    while (status == RKS_OK && steps > 0 && config->tail != TAIL_DROP &&
           pack->bins > steps * full && bins > 0) {
        bins = 2 * bins < pack->bins ? 2 * bins : 0;
        rks_pack_free(pack);
        status = pack_base(in, base, world, key, bins, &pack, err);
    }
    if (status != RKS_OK)
        return status;
    status = rks_pack_even(in, world, steps, pack, err);
    if (status == RKS_OK)
        return rks_pack_keep(layout, base, pack, err);
    rks_pack_free(pack);
    return status;
}
