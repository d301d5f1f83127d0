/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan_memory.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/call_memory.h"
#include "base/memory.h"
#include "plan/mix/mix.h"
#include "plan/strategy.h"

uint64_t rks_plan_memory(const rks_plan_input *in)
{
    const rks_plan_config *config = &in->config;
    uint64_t items = in->count + in->piece_count;
    const rks_plan_amounts amounts = {
        .items = items,
        .draws = in->mix == NULL ? items : in->mix->draws,
        .pieces = in->piece_count,
        .batches = in->batches_like,
        .ordered = config->strategy->order != RKS_ORDER_BY_ID,
        .mixed = in->mix != NULL,
        .packs = config->strategy->packs,
        .windows = rks_plan_windows(config),
    };
    return rks_memory_of_plan(&amounts);
}

rks_status rks_plan_memory_check(const rks_plan_input *in, rks_error *err)
{
    char what[160], advice[120] = "; plan a selection, or fewer samples at once";
    uint64_t draws = in->mix == NULL ? 0 : in->mix->draws;
    if (draws > in->count + in->piece_count)
        snprintf(what, sizeof(what), "plan: an epoch of %" PRIu64 " draws of %" PRIu64 " samples",
                 draws, in->count);
    else if (in->piece_count > in->count)
        snprintf(what, sizeof(what), "plan: %" PRIu64 " samples and %" PRIu64 " pieces of them",
                 in->count, in->piece_count);
    else
        snprintf(what, sizeof(what), "plan: %" PRIu64 " samples", in->count);
    if (draws > in->count + in->piece_count)
        snprintf(advice, sizeof(advice), "; give samples, the draws of an epoch");
    else if (in->piece_count > in->count)
        snprintf(advice, sizeof(advice), "; make %s (%" PRIu32 ") larger", in->config.limit_by,
                 in->config.limit);
    return rks_memory_check(rks_plan_memory(in), what, advice, err);
}
