/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_create.c: makes a plan from lengths and options, and frees it. */
#include "plan/plan_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_usage.h"
#include "plan/cancellation.h"
#include "plan/mix/mix.h"
#include "plan/plan_memory.h"
#include "plan/strategy.h"
#include "plan/cache/epoch_cache_area.h"

/* What the planner knows from all lengths. */
typedef struct rks_plan_facts {
    uint64_t absent;
    uint64_t too_long;
    uint64_t tokens; /* of what is planned, after truncation; a length of 0 counts as 1 */
    uint32_t longest;
} rks_plan_facts;

static rks_status look_at_lengths(const rks_plan_input *in, rks_plan_facts *facts, rks_error *err)
{
    const rks_plan_config *config = &in->config;
    uint32_t limit = config->limit;
    uint64_t absent = 0;
    uint64_t too_long = 0;
    uint64_t tokens = 0;
    uint32_t longest = 0;
    for (uint64_t i = 0, end; i < in->count;) {
        rks_status status = rks_plan_stretch(i, in->count, &end, err);
        if (status != RKS_OK)
            return status;
        for (; i < end; i++) {
            uint32_t length = in->lengths[i];
            uint32_t within = length > limit || length == RKS_LENGTH_ABSENT ? 0 : length;
            absent += length == RKS_LENGTH_ABSENT;
            too_long += length > limit;
            tokens += within == 0 ? 1 : within;
            longest = within > longest ? within : longest;
        }
    }
    tokens -= absent;
    if (limit != UINT32_MAX)
        too_long -= absent;
    if (too_long > 0 && config->too_long == TOO_LONG_ERROR) {
        uint64_t id = 0;
        while (in->lengths[id] <= limit || in->lengths[id] == RKS_LENGTH_ABSENT)
            id++;
        return rks_fail(err, RKS_ERR_DATA, 0,
                        "sample %" PRIu64 " has length %" PRIu32 ", above %s %" PRIu32 " (%" PRIu64
                        " of %" PRIu64 " samples are); too_long may be drop%s, truncate or split",
                        id, in->lengths[id], config->limit_by, limit, too_long, in->count,
                        config->strategy->packs ? "" : ", alone");
    }
    if (too_long > 0 && config->too_long == TOO_LONG_TRUNCATE) {
        longest = limit;
        tokens += too_long * limit;
    }
    *facts = (rks_plan_facts){
        .absent = absent, .too_long = too_long, .tokens = tokens, .longest = longest};
    return RKS_OK;
}

/* Adds the costs of samples to the digest, since they are an option, too. */
static void digest_balance(rks_plan_config *config, uint64_t count)
{
    char text[64];
    uint64_t costs = rks_checksum64(config->balance, count * sizeof(*config->balance));
    int size = snprintf(text, sizeof(text), "%s balance=%016" PRIx64, config->digest, costs);
    snprintf(config->digest, sizeof(config->digest), "%016" PRIx64,
             rks_checksum64(text, (size_t)size));
    size_t used = strlen(config->words);
    snprintf(config->words + used, sizeof(config->words) - used, "%sbalance=%016" PRIx64,
             used > 0 ? " " : "", costs);
}

static rks_status read_arguments(rks_plan *plan, const rks_plan_samples *samples,
                                 const rks_plan_options *options, rks_error *err)
{
    const char *dataset = samples->dataset;
    rks_status status = rks_plan_config_read(options, &plan->in.config, err);
    if (status != RKS_OK)
        return status;
    rks_digest digest;
    if (dataset != NULL && !rks_digest_parse(dataset, &digest))
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "dataset \"%.40s\": not 32 hexadecimal digits",
                        dataset);
    if (samples->lengths == NULL && samples->count > 0)
        return rks_fail(err, RKS_ERR_ARGUMENT, 0, "lengths is NULL");
    if (samples->count > UINT32_MAX)
        return rks_fail(err, RKS_ERR_UNSUPPORTED, 0,
                        "plan: %" PRIu64 " samples; it is made for less than 2^32", samples->count);
    if (dataset != NULL)
        memcpy(plan->dataset, dataset, sizeof(plan->dataset));
    plan->in.lengths = samples->lengths;
    plan->in.count = samples->count;
    if (plan->in.config.balance != NULL)
        digest_balance(&plan->in.config, samples->count);
    return RKS_OK;
}

static rks_status set_order(rks_plan *plan, const void *order, rks_error *err)
{
    if (!rks_plan_sorts(&plan->in.config))
        return RKS_OK;
    plan->in.order = order;
    if (order != NULL)
        return RKS_OK;
    plan->own_order = rks_alloc_raw(plan->in.count, sizeof(*plan->own_order), err);
    if (plan->own_order == NULL)
        return RKS_ERR_MEMORY;
    rks_usage_add(RKS_MEMORY_PLAN, plan->in.count * sizeof(*plan->own_order));
    plan->in.order = plan->own_order;
    return rks_plan_sort(plan->in.lengths, plan->in.count, plan->own_order, err);
}

/* Returns true if one rank of a node lays out epochs for all. Pack only by windows; otherwise each
 * rank lays out its own bins. */
static bool is_laid_out_once(const rks_plan_config *config)
{
    return !config->strategy->packs || rks_plan_windows(config);
}

/* Splits the samples that are too long, and estimates how many batches there are. */
static rks_status set_samples(rks_plan_input *in, rks_error *err)
{
    rks_plan_facts facts = {0};
    rks_status status = look_at_lengths(in, &facts, err);
    if (status != RKS_OK)
        return status;
    in->absent = facts.absent;
    in->too_long = facts.too_long;
    in->longest = facts.longest;
    status = rks_plan_split(in, &facts.tokens, err);
    if (status != RKS_OK)
        return status;
    uint64_t by_tokens = facts.tokens / in->config.max_tokens;
    uint64_t by_count =
        (in->count - facts.absent - in->cut_count + in->piece_count) / in->config.batch_size;
    in->batches_like = by_tokens > by_count ? by_tokens : by_count;
    return RKS_OK;
}

static rks_status set_mix(rks_plan *plan, rks_error *err)
{
    rks_plan_input *in = &plan->in;
    if (in->config.mix == NULL)
        return RKS_OK;
    rks_status status = rks_mix_create(in, in->config.mix, &plan->own_mix, err);
    in->config.mix = NULL; /* the caller may free it now */
    if (status == RKS_OK)
        in->batches_like = rks_mix_batches_like(in, err);
    return status;
}

/* Lays out or makes the first epoch, so that an impossible plan fails here. */
static rks_status make_first(rks_plan *plan, rks_error *err)
{
    if (plan->in.config.per_epoch || plan->in.mix != NULL)
        return rks_plan_prepare(plan, 0, err);
    if (plan->cache != NULL && is_laid_out_once(&plan->in.config))
        return rks_cache_lay_out(plan, err);
    return rks_plan_lay_out(&plan->in, &plan->image, err);
}

rks_status rks_plan_create_shared(const rks_plan_samples *samples, const rks_plan_options *options,
                                  const rks_plan_share_options *share, rks_plan **plan,
                                  rks_error *err)
{
    rks_plan *made = rks_alloc(1, sizeof(*made), err);
    if (made == NULL)
        return RKS_ERR_MEMORY;
    rks_status status = read_arguments(made, samples, options, err);
    if (status == RKS_OK)
        status = set_samples(&made->in, err);
    if (status == RKS_OK)
        status = set_mix(made, err);
    if (status == RKS_OK)
        status = rks_plan_memory_check(&made->in, err);
    if (status == RKS_OK)
        status = set_order(made, samples->order, err);
    if (status == RKS_OK && samples->absent_count > 0)
        status = rks_plan_absences_create(samples->absent, samples->absent_count,
                                          made->in.config.world, &made->absences, err);
    if (status == RKS_OK && share != NULL && made->in.mix == NULL)
        status = rks_cache_open(made, share, err);
    if (status == RKS_OK)
        status = make_first(made, err);
    if (status == RKS_OK)
        status = rks_plan_skip_all(made, made->in.config.skip, made->in.config.skips, err);
    made->in.config.skip = NULL; /* the caller may free it now */
    if (status != RKS_OK)
        goto out;
    if (made->cache != NULL && !rks_epoch_cache_is_mapped(made))
        rks_epoch_image_clear(&made->image); /* from the first request on, the node shares it */
    *plan = made;
    made = NULL;

out:
    rks_plan_free(made);
    return status;
}

rks_status rks_plan_create_sorted(const uint32_t *lengths, uint64_t count, const void *order,
                                  const char *dataset, const rks_plan_options *options,
                                  rks_plan **plan, rks_error *err)
{
    const rks_plan_samples samples = {
        .lengths = lengths, .count = count, .order = order, .dataset = dataset};
    return rks_plan_create_shared(&samples, options, NULL, plan, err);
}

static rks_status check_absent(const rks_plan_samples *samples, rks_error *err)
{
    uint64_t least = 0;
    for (size_t i = 0; i < samples->absent_count; i++) {
        const rks_absent_run *run = &samples->absent[i];
        uint64_t end = (uint64_t)run->first + run->count;
        if (run->count == 0 || run->first < least || end > samples->count)
            return rks_fail(err, RKS_ERR_ARGUMENT, 0,
                            "absent: run %zu is %" PRIu32 " samples from %" PRIu32
                            " on; runs are ascending, do not meet, and end at %" PRIu64,
                            i, run->count, run->first, samples->count);
        least = end + 1;
    }
    return RKS_OK;
}

rks_status rks_plan_create(const uint32_t *lengths, uint64_t count, const char *dataset,
                           const rks_plan_options *options, rks_plan **plan, rks_error *err)
{
    rks_plan_options chosen = {.struct_size = sizeof(chosen)};
    if (options != NULL)
        memcpy(&chosen, options,
               options->struct_size < sizeof(chosen) ? options->struct_size : sizeof(chosen));
    const rks_plan_samples samples = {.lengths = lengths,
                                      .count = count,
                                      .dataset = dataset,
                                      .absent = chosen.absent,
                                      .absent_count = chosen.absent_count};
    rks_status status = check_absent(&samples, err);
    return status == RKS_OK ? rks_plan_create_shared(&samples, options, NULL, plan, err) : status;
}

void rks_plan_free(rks_plan *plan)
{
    if (plan == NULL)
        return;
    rks_cache_close(plan);
    rks_mix_free(plan->own_mix);
    rks_mix_free_changes(&plan->progress.schedule);
    rks_plan_layout_free(&plan->in.whole);
    rks_epoch_image_clear(&plan->image);
    rks_usage_sub(RKS_MEMORY_PLAN,
                  (plan->own_order == NULL ? 0 : plan->in.count) * sizeof(uint32_t));
    rks_plan_free_pieces(&plan->in);
    rks_plan_absences_free(plan->absences);
    rks_free(plan->progress.skips);
    rks_free(plan->own_order);
    rks_free(plan->earlier);
    if (plan->finder.free != NULL)
        plan->finder.free(plan->finder.user);
    rks_free(plan);
}
