/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: reports figures, bounds and the digest of an epoch.
 *
 * The digest is XXH3-128 of the batches, step by step and in each step rank by rank: step (8
 * bytes), rank (4), number of ids (4), ids (4 each), pieces (place, start, count: 4 each),
 * little-endian. */
#include "plan/plan_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/pack/packing.h"
#include "plan/mix/mix.h"
#include "plan/strategy.h"

/* The cost of a batch. It is used only for figures, so floating point is exact enough. */
typedef struct rks_plan_load {
    double cost, tokens;
} rks_plan_load;

/* Returns the cost that the ranks of a step should have alike. */
static double cost_for_balance(const rks_plan_input *in, uint64_t longest, uint64_t sum,
                               uint64_t count)
{
    const rks_plan_config *config = &in->config;
    double length = (double)longest;
    switch (config->cost) {
    case COST_TOKENS:
        return (double)sum;
    case COST_QUADRATIC:
        return length * length * (double)count;
    case COST_POLYNOMIAL:
        return ((double)config->cost_linear + (double)config->cost_quadratic * length) * length *
               (double)count;
    case COST_PADDED:
        break;
    }
    return (double)(longest * count);
}

static rks_plan_load report_batch(const rks_plan_input *in, const rks_epoch_image *image,
                                  const uint32_t *ids, size_t count, rks_plan_report *report,
                                  uint64_t *padded)
{
    const rks_piece *piece;
    size_t pieces;
    rks_plan_pieces_at(image, ids, count, &piece, &pieces);
    const rks_piece *end = piece + pieces;
    report->pieces += pieces;
    uint64_t longest = 0, sum = 0, room = 0;
    double cost = 0;
    const rks_plan_config *config = &in->config;
    uint32_t clamp = config->clamp;
    bool packs = config->strategy->packs, balances = config->balance != NULL;
    for (size_t i = 0; i < count; i++) {
        uint32_t length = in->lengths[ids[i]];
        bool is_piece = piece != end && piece->place == i;
        if (balances)
            cost +=
                (double)(is_piece ? rks_plan_part_of_balance(in, ids[i], piece->start, piece->count)
                                  : config->balance[ids[i]]);
        if (is_piece) {
            length = piece++->count;
        } else if (length > clamp) {
            length = clamp;
            report->truncated++;
        }
        longest = length > longest ? length : longest;
        sum += length;
        room += rks_plan_width(config, length);
        if (packs && !balances)
            cost += (double)rks_pack_cost(config, (uint32_t)rks_plan_size(config, length));
    }
    longest = rks_plan_width(config, longest);
    *padded = rks_plan_sums(config) ? room : longest * count;
    report->tokens += sum;
    report->padded_tokens += *padded;
    return (rks_plan_load){packs || balances ? cost : cost_for_balance(in, longest, sum, count),
                           (double)sum};
}

static void digest_batch(const rks_epoch_image *image, rks_digester *digester, uint64_t step,
                         uint32_t rank, const uint32_t *ids, size_t count)
{
    uint8_t head[16];
    const rks_piece *pieces;
    size_t piece_count;
    rks_store_u64(head, step);
    rks_store_u32(head + 8, rank);
    rks_store_u32(head + 12, (uint32_t)count);
    rks_digester_update(digester, head, sizeof(head));
    rks_digester_update(digester, ids, count * sizeof(*ids));
    rks_plan_pieces_at(image, ids, count, &pieces, &piece_count);
    rks_digester_update(digester, pieces, piece_count * sizeof(*pieces));
}

/* Sums over the optimizer steps so far. */
typedef struct rks_plan_balance {
    rks_plan_load *loads; /* of each rank in the current optimizer step */
    rks_plan_load ratios; /* mean / largest */
    double mean, largest; /* cost */
    uint64_t steps;
    uint8_t *seen; /* with a mix: a bit for each sample and piece delivered */
    uint64_t samples, distinct, bins;
    uint64_t unasked; /* samples since the last pause */
    uint64_t *padded; /* padded tokens of each step that is not skipped, and each rank */
} rks_plan_balance;

static void end_step(rks_plan_balance *balance, uint32_t world)
{
    rks_plan_load sum = {0}, most = {0};
    for (uint32_t rank = 0; rank < world; rank++) {
        rks_plan_load *load = &balance->loads[rank];
        sum.cost += load->cost;
        sum.tokens += load->tokens;
        most.cost = load->cost > most.cost ? load->cost : most.cost;
        most.tokens = load->tokens > most.tokens ? load->tokens : most.tokens;
        *load = (rks_plan_load){0};
    }
    balance->ratios.cost += most.cost > 0 ? sum.cost / world / most.cost : 1;
    balance->ratios.tokens += most.tokens > 0 ? sum.tokens / world / most.tokens : 1;
    balance->mean += sum.cost / world;
    balance->largest += most.cost;
    balance->steps++;
}

/* Counts what a plan with a mix delivers. */
static void count_drawn(const rks_plan_input *in, const rks_epoch_image *image, const uint32_t *ids,
                        size_t count, rks_plan_balance *balance)
{
    const rks_piece *piece;
    size_t pieces, at = 0;
    rks_plan_pieces_at(image, ids, count, &piece, &pieces);
    for (size_t i = 0; i < count; i++) {
        uint64_t item = ids[i];
        if (at < pieces && piece[at].place == i)
            item = in->count + rks_plan_piece_number(in, ids[i], piece[at++].start);
        uint8_t bit = (uint8_t)(1u << (item % 8));
        balance->distinct += (balance->seen[item / 8] & bit) == 0;
        balance->seen[item / 8] |= bit;
    }
}

/* Reports repeated and dropped samples of a mix. The current layout must be that of the last
 * steps. */
static void report_drawn(const rks_plan_input *in, const rks_epoch_image *image,
                         const rks_plan_balance *balance, rks_plan_report *report)
{
    const rks_plan_layout *last = image->layout;
    report->repeated = balance->samples - balance->distinct;
    report->dropped = in->count - in->cut_count - rks_plan_uncut(in);
    report->dropped += last->base - (image->samples - image->repeated);
}

/* An epoch that is reported. */
typedef struct rks_plan_reporting {
    rks_plan *plan;
    uint64_t epoch;
    rks_digester *digester;
    rks_plan_report *report;
    rks_plan_balance *balance;
} rks_plan_reporting;

/* Reports a batch, which is number `at` of those that are not skipped. */
static rks_status report_one(const rks_plan_reporting *reporting, uint64_t step, uint32_t rank,
                             uint64_t at, rks_error *err)
{
    rks_plan *plan = reporting->plan;
    rks_plan_balance *balance = reporting->balance;
    uint64_t epoch = reporting->epoch;
    rks_step_batch batch;
    rks_status status = rks_plan_planned(plan, epoch, step, rank, &batch, err);
    if (status != RKS_OK)
        return status;
    balance->samples += batch.count;
    balance->bins += batch.bins;
    if (balance->seen != NULL)
        count_drawn(&plan->in, &plan->image, batch.ids, batch.count, balance);
    if (plan->absences != NULL)
        reporting->report->absent +=
            batch.count - rks_plan_present(plan->absences, batch.ids, batch.count);
    rks_plan_load load = report_batch(&plan->in, &plan->image, batch.ids, batch.count,
                                      reporting->report, &balance->padded[at]);
    balance->loads[rank].cost += load.cost;
    balance->loads[rank].tokens += load.tokens;
    digest_batch(&plan->image, reporting->digester, step, rank, batch.ids, batch.count);
    return rks_plan_pause(&balance->unasked, batch.count, err);
}

/* Reports all steps of an epoch. `steps` also counts those that are skipped. */
static rks_status report_steps(const rks_plan_reporting *reporting, uint64_t steps, rks_error *err)
{
    const rks_plan *plan = reporting->plan;
    uint32_t world = plan->in.config.world;
    uint64_t at = 0, epoch = reporting->epoch;
    uint64_t segment = rks_plan_segment_of(&plan->progress, epoch);
    for (uint64_t step = 0; step < steps; step++) {
        if (rks_plan_unskipped(&plan->progress, epoch, segment, step) != step)
            continue;
        bool left_out = false;
        rks_status status = rks_plan_left_out(reporting->plan, epoch, step, &left_out, err);
        reporting->report->left_out += left_out;
        for (uint32_t rank = 0; status == RKS_OK && rank < world; rank++)
            status = report_one(reporting, step, rank, at++, err);
        if (status != RKS_OK)
            return status;
        if ((step + 1) % plan->in.config.micro_batches == 0)
            end_step(reporting->balance, world);
    }
    return RKS_OK;
}

/* Returns the number of the step before which `delivered` steps are not skipped. */
static uint64_t step_number(rks_epoch_progress *progress, uint64_t epoch, uint64_t delivered)
{
    uint64_t segment = rks_plan_segment_of(progress, epoch), first, end, at = 0;
    while (rks_plan_next_skip(progress, epoch, segment, at, UINT64_MAX, &first, &end) &&
           first <= delivered) {
        delivered += end - first;
        at = end;
    }
    return delivered;
}

static void set_shares(const rks_plan_input *in, const rks_epoch_image *image,
                       const rks_plan_balance *balance, rks_plan_report *report)
{
    const rks_pack *pack = image->layout->pack;
    report->balance = balance->ratios.cost / (double)balance->steps;
    report->token_balance = balance->ratios.tokens / (double)balance->steps;
    report->lost = balance->largest > 0 ? 1 - balance->mean / balance->largest : 0;
    report->efficiency =
        report->padded_tokens == 0 ? 1 : (double)report->tokens / (double)report->padded_tokens;
    report->tokens_per_step = (double)report->tokens / (double)balance->steps;
    if (pack == NULL)
        return;
    report->bins = balance->bins;
    report->fill = (double)report->tokens / ((double)report->bins * in->config.capacity);
}

rks_status rks_plan_report_get(rks_plan *plan, uint64_t epoch, rks_plan_report *report,
                               rks_error *err)
{
    size_t size = report->struct_size;
    if (size < sizeof(report->struct_size))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "rks_plan_report: set struct_size first");
    uint64_t steps = 0, skipped = 0;
    rks_status status = rks_plan_steps(plan, epoch, &steps, err);
    if (status == RKS_OK)
        status = rks_plan_skipped_by_user(plan, epoch, steps, &skipped, err);
    if (status == RKS_OK)
        status = rks_plan_prepare(plan, epoch, err);
    if (status != RKS_OK)
        return status;
    if (skipped == steps)
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "report: all %" PRIu64 " steps of epoch %" PRIu64 " are skipped", steps,
                        epoch);
    const rks_plan_layout *layout = plan->image.layout;
    uint64_t batches = (steps - skipped) * plan->in.config.world;
    rks_digester *digester = rks_digester_create(err);
    uint64_t *padded = rks_alloc_raw(batches, sizeof(*padded), err);
    rks_plan_balance balance = {
        .loads = rks_alloc(plan->in.config.world, sizeof(*balance.loads), err), .padded = padded};
    if (plan->in.mix != NULL)
        balance.seen = rks_alloc(rks_mix_items(&plan->in) / 8 + 1, 1, err);
    if (digester == NULL || padded == NULL || balance.loads == NULL ||
        (plan->in.mix != NULL && balance.seen == NULL)) {
        rks_digester_free(digester);
        rks_free(padded);
        rks_free(balance.loads);
        rks_free(balance.seen);
        return RKS_ERR_MEMORY;
    }
    rks_usage_add(RKS_MEMORY_PLAN, batches * sizeof(*padded));
    rks_plan_report made = {.struct_size = size};
    made.length_multiple = plan->in.config.length_multiple;
    made.cut = plan->in.config.clamp == UINT32_MAX ? 0 : plan->in.config.clamp;
    made.batches = batches;
    made.steps = steps - skipped;
    made.skipped = skipped;
    made.repeated = plan->image.repeated;
    made.dropped = layout->base - (plan->image.samples - plan->image.repeated);
    made.dropped +=
        plan->in.absent + (plan->in.config.too_long == TOO_LONG_DROP ? plan->in.too_long : 0);
    const rks_plan_reporting reporting = {plan, epoch, digester, &made, &balance};
    status = report_steps(&reporting, steps, err);
    made.samples = balance.samples;
    if (status == RKS_OK && plan->in.mix != NULL)
        report_drawn(&plan->in, &plan->image, &balance, &made);
    if (status == RKS_OK) {
        rks_plan_spread(padded, made.steps, plan->in.config.world, &made);
        made.largest_batch_step = step_number(&plan->progress, epoch, made.largest_batch_step);
        set_shares(&plan->in, &plan->image, &balance, &made);
    }
    rks_usage_sub(RKS_MEMORY_PLAN, batches * sizeof(*padded));
    rks_free(padded);
    rks_free(balance.loads);
    rks_free(balance.seen);
    rks_digest_format(rks_digester_result(digester), made.digest);
    rks_digester_free(digester);
    if (status != RKS_OK)
        return status;
    memcpy(report, &made, size < sizeof(made) ? size : sizeof(made));
    return RKS_OK;
}

static int compare_bounds(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

rks_status rks_plan_bounds(rks_plan *plan, uint64_t epoch, uint32_t **bounds, size_t *count,
                           rks_error *err)
{
    rks_status status = rks_plan_prepare(plan, epoch, err);
    if (status != RKS_OK)
        return status;
    const rks_plan_layout *layout = plan->image.layout;
    size_t filled = 0, kept = 0;
    uint32_t *list = NULL;
    if (plan->in.config.strategy->neighbourhoods) {
        list = rks_alloc(layout->count, sizeof(*list), err);
        if (list == NULL)
            return RKS_ERR_MEMORY;
        for (size_t i = 0; i < layout->count; i++)
            if (!layout->groups[i].alone)
                list[filled++] = layout->groups[i].longest;
        qsort(list, filled, sizeof(*list), compare_bounds);
        for (size_t i = 0; i < filled; i++)
            if (kept == 0 || list[kept - 1] != list[i])
                list[kept++] = list[i];
    }
    if (kept == 0) {
        rks_free(list);
        list = NULL;
    }
    *bounds = list;
    *count = kept;
    return RKS_OK;
}
