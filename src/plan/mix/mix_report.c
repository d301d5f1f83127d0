/* SPDX-License-Identifier: Apache-2.0
 *
 * mix_report.c: what an epoch draws of each source, and how evenly. */
#include "plan/mix/mix.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/plan_state.h"
#include "plan/order/order.h"

/* The samples and pieces of each source, over an epoch and over the last steps of it. */
typedef struct window {
    uint32_t *steps;  /* of each of the last steps and each source */
    uint64_t *sums;   /* of each source over these */
    uint64_t items;   /* of all over these */
    uint64_t *epochs; /* of each source over the epoch */
    uint8_t *seen;    /* a bit for each sample */
} window;

static rks_status count_step(rks_plan *plan, uint64_t epoch, uint64_t step, window *w,
                             rks_plan_source *list, rks_error *err)
{
    const rks_mix *mix = plan->in.mix;
    uint32_t *counts = w->steps + step % RKS_MIX_WINDOW * mix->sources;
    for (size_t i = 0; i < mix->sources; i++) {
        w->sums[i] -= counts[i];
        w->items -= counts[i];
        counts[i] = 0;
    }
    for (uint32_t rank = 0; rank < plan->in.config.world; rank++) {
        rks_step_batch batch;
        rks_status status = rks_plan_planned(plan, epoch, step, rank, &batch, err);
        if (status != RKS_OK)
            return status;
        const uint32_t *ids = batch.ids;
        const size_t count = batch.count;
        const rks_piece *piece = batch.pieces;
        size_t pieces = batch.piece_count, at = 0;
        for (size_t i = 0; i < count; i++) {
            size_t source = rks_mix_source(mix, ids[i]);
            uint8_t bit = (uint8_t)(1u << (ids[i] % 8));
            const rks_piece *part = at < pieces && piece[at].place == i ? &piece[at++] : NULL;
            counts[source]++;
            list[source].draws += part == NULL || part->start == 0;
            list[source].tokens += part != NULL ? part->count : rks_plan_length(&plan->in, ids[i]);
            list[source].distinct += (w->seen[ids[i] / 8] & bit) == 0;
            w->seen[ids[i] / 8] |= bit;
        }
    }
    for (size_t i = 0; i < mix->sources; i++) {
        w->sums[i] += counts[i];
        w->items += counts[i];
    }
    return RKS_OK;
}

static void measure(const rks_mix *mix, const window *w, uint64_t all, rks_plan_source *list)
{
    for (size_t i = 0; i < mix->sources; i++) {
        double off = (double)w->sums[i] / (double)w->items - (double)w->epochs[i] / (double)all;
        off = off < 0 ? -off : off;
        list[i].deviation = off > list[i].deviation ? off : list[i].deviation;
    }
}

/* Twice over the epoch: for all draws, then for windows of them. */
static rks_status count_epoch(rks_plan *plan, uint64_t epoch, window *w, rks_plan_source *list,
                              rks_plan_source *again, rks_error *err)
{
    const rks_mix *mix = plan->in.mix;
    uint64_t steps = 0, all = 0;
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    for (uint64_t step = 0; step < steps && status == RKS_OK; step++) {
        status = count_step(plan, epoch, step, w, list, err);
        for (size_t i = 0; i < mix->sources; i++)
            w->epochs[i] += w->steps[step % RKS_MIX_WINDOW * mix->sources + i];
    }
    for (size_t i = 0; i < mix->sources; i++)
        all += w->epochs[i];
    memset(w->steps, 0, RKS_MIX_WINDOW * mix->sources * sizeof(*w->steps));
    memset(w->sums, 0, mix->sources * sizeof(*w->sums));
    w->items = 0;
    for (uint64_t step = 0; step < steps && status == RKS_OK; step++) {
        status = count_step(plan, epoch, step, w, again, err);
        if (status == RKS_OK && (step + 1 >= RKS_MIX_WINDOW || step + 1 == steps))
            measure(mix, w, all, list);
    }
    return status;
}

rks_status rks_mix_report(rks_plan *plan, uint64_t epoch, rks_plan_source *list, rks_error *err)
{
    const rks_mix *mix = plan->in.mix;
    rks_status status = RKS_ERR_MEMORY;
    window w = {.steps = rks_alloc(RKS_MIX_WINDOW * mix->sources, sizeof(*w.steps), err)};
    rks_plan_source *again = rks_alloc(mix->sources, sizeof(*again), err);
    w.sums = rks_alloc(mix->sources, sizeof(*w.sums), err);
    w.epochs = rks_alloc(mix->sources, sizeof(*w.epochs), err);
    w.seen = rks_alloc(plan->in.count / 8 + 1, 1, err);
    if (w.epochs != NULL && w.steps != NULL && again != NULL && w.sums != NULL && w.seen != NULL)
        status = count_epoch(plan, epoch, &w, list, again, err);
    uint64_t all = 0;
    for (size_t i = 0; i < mix->sources && status == RKS_OK; i++)
        all += plan->image.quotas[i];
    for (size_t i = 0; i < mix->sources && status == RKS_OK; i++) {
        list[i].name = mix->names[i];
        list[i].samples = mix->sizes[i];
        list[i].share =
            all == 0 ? 0 : (double)plan->image.quotas[i] / (double)all; /* counts, odds */
    }
    rks_free(w.steps);
    rks_free(again);
    rks_free(w.sums);
    rks_free(w.epochs);
    rks_free(w.seen);
    return status;
}

rks_status rks_plan_sources(rks_plan *plan, uint64_t epoch, rks_plan_source *list, size_t room,
                            size_t *count, rks_error *err)
{
    if (plan->in.mix == NULL)
        return rks_fail(err, RKS_ERR_STATE, 0, "sources: the plan has no mix");
    size_t size = room == 0 ? 0 : list[0].struct_size, sources = plan->in.mix->sources;
    if (room > 0 && (size < sizeof(list->struct_size) || size > sizeof(*list)))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "rks_plan_source: struct_size %zu, not %zu", size,
                        sizeof(*list));
    rks_plan_source *made = rks_alloc(sources, sizeof(*made), err);
    rks_status status = made == NULL ? RKS_ERR_MEMORY : RKS_OK;
    if (status == RKS_OK && room > 0)
        status = rks_mix_report(plan, epoch, made, err);
    for (size_t i = 0; i < sources && i < room && status == RKS_OK; i++) {
        made[i].struct_size = size;
        memcpy((uint8_t *)list + i * size, &made[i], size);
    }
    rks_free(made);
    if (status == RKS_OK)
        *count = sources;
    return status;
}
