/* SPDX-License-Identifier: Apache-2.0
 *
 * absent_steps.c: the steps of a plan without the samples that nobody can deliver. */
#include "plan/absent_steps.h"

#include <string.h>

#include "base/memory.h"
#include "plan/plan_state.h"

struct rks_plan_absences {
    rks_absent_run *runs; /* ascending, and they do not meet */
    size_t run_count;
    uint64_t *present;    /* by rank, of a step */
    rks_step_part *parts; /* by rank */
    /* The last batch that was delivered. */
    uint32_t *ids;
    uint64_t ids_room;
    rks_piece *pieces;
    uint64_t pieces_room;
    uint32_t *bounds;
    uint64_t bounds_room;
    /* Those of an epoch's steps below `known` that are left out, ascending. */
    uint64_t epoch, known;
    uint32_t *left_out;
    size_t left_out_count, left_out_room;
};

/* ---- the deal -------------------------------------------------------------------------------- */

static uint32_t largest_part(const rks_step_part *parts, uint32_t world)
{
    uint32_t largest = 0;
    for (uint32_t rank = 1; rank < world; rank++)
        if (parts[rank].count > parts[largest].count)
            largest = rank;
    return largest;
}

bool rks_step_deal(const uint64_t *present, uint32_t world, rks_step_part *parts)
{
    uint64_t sum = 0;
    for (uint32_t rank = 0; rank < world; rank++) {
        parts[rank] = (rks_step_part){rank, 0, present[rank]};
        sum += present[rank];
    }
    if (sum < world)
        return false;
    for (uint32_t rank = 0; rank < world; rank++) {
        if (parts[rank].count > 0)
            continue;
        rks_step_part *giver = &parts[largest_part(parts, world)]; /* it has 2 or more */
        uint64_t half = giver->count / 2;
        giver->count -= half;
        parts[rank] = (rks_step_part){giver->from, giver->first + giver->count, half};
    }
    return true;
}

/* ---- absent samples -------------------------------------------------------------------------- */

rks_status rks_plan_absences_create(const rks_absent_run *runs, size_t count, uint32_t world,
                                    rks_plan_absences **absences, rks_error *err)
{
    rks_plan_absences *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    made->runs = rks_alloc_raw(count, sizeof(*made->runs), err);
    made->present = made->runs == NULL ? NULL : rks_alloc(world, sizeof(*made->present), err);
    made->parts = made->present == NULL ? NULL : rks_alloc(world, sizeof(*made->parts), err);
    if (made->parts == NULL) {
        rks_plan_absences_free(made);
        return RKS_ERR_MEMORY;
    }
    memcpy(made->runs, runs, count * sizeof(*runs));
    made->run_count = count;
    *absences = made;
    return RKS_OK;
}

void rks_plan_absences_free(rks_plan_absences *absences)
{
    if (absences == NULL)
        return;
    rks_free(absences->runs);
    rks_free(absences->present);
    rks_free(absences->parts);
    rks_free(absences->ids);
    rks_free(absences->pieces);
    rks_free(absences->bounds);
    rks_free(absences->left_out);
    rks_free(absences);
}

size_t rks_plan_absences_runs(const rks_plan_absences *absences, const rks_absent_run **runs)
{
    *runs = absences->runs;
    return absences->run_count;
}

static bool is_present(const rks_plan_absences *absences, uint32_t id)
{
    size_t low = 0, high = absences->run_count;
    while (low < high) { /* finds the first run that begins after it */
        size_t middle = low + (high - low) / 2;
        if (absences->runs[middle].first <= id)
            low = middle + 1;
        else
            high = middle;
    }
    return low == 0 || id - absences->runs[low - 1].first >= absences->runs[low - 1].count;
}

uint64_t rks_plan_present(const rks_plan_absences *absences, const uint32_t *ids, size_t count)
{
    uint64_t present = 0;
    for (size_t i = 0; i < count; i++)
        present += is_present(absences, ids[i]);
    return present;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Counts a step's present samples, up to one for each rank. */
static rks_status has_enough(rks_plan *plan, uint64_t epoch, uint64_t step, bool *enough,
                             rks_error *err)
{
    uint32_t world = plan->in.config.world;
    uint64_t found = 0;
    for (uint32_t rank = 0; rank < world && found < world; rank++) {
        rks_step_batch batch;
        rks_status status = rks_plan_planned(plan, epoch, step, rank, &batch, err);
        if (status != RKS_OK)
            return status;
        for (size_t i = 0; i < batch.count && found < world; i++)
            found += is_present(plan->absences, batch.ids[i]);
    }
    *enough = found >= world;
    return RKS_OK;
}

void rks_plan_forget_left_out(rks_plan *plan)
{
    if (plan->absences != NULL)
        plan->absences->known = plan->absences->left_out_count = 0;
}

/* Counts the known steps below `step` that are left out. */
static size_t left_out_below(const rks_plan_absences *absences, uint64_t step)
{
    size_t low = 0, high = absences->left_out_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (absences->left_out[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

rks_status rks_plan_left_out(rks_plan *plan, uint64_t epoch, uint64_t step, bool *left_out,
                             rks_error *err)
{
    const rks_plan_absences *absences = plan->absences;
    uint32_t micro = plan->in.config.micro_batches;
    uint64_t first = step - step % micro;
    bool enough = true;
    rks_status status = RKS_OK;
    *left_out = false;
    if (absences == NULL)
        return RKS_OK;
    if (absences->epoch == epoch && step < absences->known) {
        size_t at = left_out_below(absences, step);
        *left_out = at < absences->left_out_count && absences->left_out[at] == step;
        return RKS_OK;
    }
    for (uint32_t i = 0; status == RKS_OK && enough && i < micro; i++)
        status = has_enough(plan, epoch, first + i, &enough, err);
    *left_out = !enough;
    return status;
}

static rks_status note_left_out(rks_plan_absences *absences, uint64_t first, uint32_t count,
                                rks_error *err)
{
    if (absences->left_out_count + count > absences->left_out_room) {
        size_t room = 2 * absences->left_out_room + count;
        uint32_t *grown = rks_realloc(absences->left_out, room, sizeof(*grown), err);
        if (grown == NULL)
            return RKS_ERR_MEMORY;
        absences->left_out = grown;
        absences->left_out_room = room;
    }
    for (uint32_t i = 0; i < count; i++)
        absences->left_out[absences->left_out_count++] = (uint32_t)(first + i);
    return RKS_OK;
}

rks_status rks_plan_count_left_out(rks_plan *plan, uint64_t epoch, uint64_t begin, uint64_t end,
                                   uint64_t *count, rks_error *err)
{
    rks_plan_absences *absences = plan->absences;
    uint32_t micro = plan->in.config.micro_batches;
    rks_status status = RKS_OK;
    if (absences->epoch != epoch)
        rks_plan_forget_left_out(plan);
    absences->epoch = epoch;
    while (status == RKS_OK && absences->known < end) {
        bool left_out = false;
        status = rks_plan_left_out(plan, epoch, absences->known, &left_out, err);
        if (status == RKS_OK && left_out)
            status = note_left_out(absences, absences->known, micro, err);
        if (status == RKS_OK)
            absences->known += micro;
    }
    *count = left_out_below(absences, end) - left_out_below(absences, begin);
    return status;
}

static bool has_present(const rks_plan_absences *absences, const rks_step_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (is_present(absences, batch->ids[i]))
            return true;
    return false;
}

/* Finds what the rank delivers: *part of planned batch *batch, which is that of part->from. */
static rks_status find_part(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                            rks_step_part *part, rks_step_batch *batch, rks_error *err)
{
    rks_plan_absences *absences = plan->absences;
    uint32_t world = plan->in.config.world;
    bool left_out = false, lacks = false;
    rks_status status = RKS_OK;
    *part = (rks_step_part){rank, 0, UINT64_MAX};
    for (uint32_t other = 0; status == RKS_OK && !lacks && other < world; other++) {
        status = rks_plan_planned(plan, epoch, step, other, batch, err);
        lacks = status == RKS_OK && !has_present(absences, batch);
    }
    if (status == RKS_OK && lacks)
        status = rks_plan_left_out(plan, epoch, step, &left_out, err);
    for (uint32_t other = 0; status == RKS_OK && lacks && !left_out && other < world; other++) {
        status = rks_plan_planned(plan, epoch, step, other, batch, err);
        if (status == RKS_OK)
            absences->present[other] = rks_plan_present(absences, batch->ids, batch->count);
    }
    if (status == RKS_OK && lacks && !left_out &&
        rks_step_deal(absences->present, world, absences->parts))
        *part = absences->parts[rank];
    return status == RKS_OK ? rks_plan_planned(plan, epoch, step, part->from, batch, err) : status;
}

static rks_status make_rooms(rks_plan_absences *absences, const rks_step_batch *batch,
                             rks_error *err)
{
    if (batch->count > absences->ids_room || absences->ids == NULL) {
        uint32_t *ids = rks_realloc(absences->ids, batch->count, sizeof(*ids), err);
        if (ids == NULL)
            return RKS_ERR_MEMORY;
        absences->ids = ids;
        absences->ids_room = batch->count;
    }
    if (batch->piece_count > absences->pieces_room) {
        rks_piece *pieces = rks_realloc(absences->pieces, batch->piece_count, sizeof(*pieces), err);
        if (pieces == NULL)
            return RKS_ERR_MEMORY;
        absences->pieces = pieces;
        absences->pieces_room = batch->piece_count;
    }
    if (batch->bins + 1 > absences->bounds_room) {
        uint32_t *bounds = rks_realloc(absences->bounds, batch->bins + 1, sizeof(*bounds), err);
        if (bounds == NULL)
            return RKS_ERR_MEMORY;
        absences->bounds = bounds;
        absences->bounds_room = batch->bins + 1;
    }
    return RKS_OK;
}

/* Copies the part's samples, with their pieces and bins. Bins without any of them are gone. */
static void copy_part_of_step(rks_plan_absences *absences, const rks_step_part *part,
                              const rks_step_batch *planned, rks_step_batch *batch)
{
    size_t piece = 0, pieces = 0, bins = 0, bin = 0, bin_end = 0;
    uint64_t seen = 0, taken = 0;
    absences->bounds[0] = 0;
    for (size_t i = 0; i < planned->count; i++) {
        bool is_piece = piece < planned->piece_count && planned->pieces[piece].place == i;
        for (; bin < planned->bins && planned->bounds[bin] - planned->bounds[0] <= i; bin++)
            bin_end = planned->bounds[bin + 1] - planned->bounds[0];
        if (is_present(absences, planned->ids[i]) && seen++ >= part->first && taken < part->count) {
            if (is_piece) {
                absences->pieces[pieces] = planned->pieces[piece];
                absences->pieces[pieces++].place = (uint32_t)taken;
            }
            absences->ids[taken++] = planned->ids[i];
        }
        piece += is_piece;
        if (planned->bins > 0 && i + 1 == bin_end && taken > absences->bounds[bins])
            absences->bounds[++bins] = (uint32_t)taken;
    }
    *batch = (rks_step_batch){.ids = absences->ids,
                              .count = taken,
                              .pieces = absences->pieces,
                              .piece_count = pieces,
                              .bounds = absences->bounds,
                              .bins = bins};
}

rks_status rks_plan_deliver(rks_plan *plan, uint64_t epoch, uint64_t step, uint32_t rank,
                            rks_step_batch *batch, rks_error *err)
{
    rks_step_part part;
    rks_step_batch planned;
    rks_status status = find_part(plan, epoch, step, rank, &part, &planned, err);
    if (status == RKS_OK)
        status = make_rooms(plan->absences, &planned, err);
    if (status == RKS_OK)
        copy_part_of_step(plan->absences, &part, &planned, batch);
    return status;
}
