/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_figures.c: one walk over the batches of an epoch. */
#include "plan_figures.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mix.h"

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static rks_status figures_error(rks_status status, const char *text, rks_error *err)
{
    *err = (rks_error){.status = status, .rank = -1};
    snprintf(err->text, sizeof(err->text), "%s", text);
    return status;
}

/* ---- who owns what --------------------------------------------------------------------------- */

typedef struct shard {
    int64_t owner; /* -1: missing */
    double mean;   /* bytes of a sample */
} shard;

/* A world of the job's own size: its owners. Another: the shards dealt out as opening deals those
 * that all ranks see: each to the rank with the fewest bytes so far, the lowest at a tie. */
static shard *deal_shards(rks_store *store, uint32_t world, cli_rank_figures *ranks)
{
    char *text = NULL;
    rks_error err;
    if (rks_store_info_json(store, &text, &err) != RKS_OK)
        return NULL;
    json_t *info = json_loads(text, 0, NULL), *one;
    const json_t *list = json_object_get(info, "shards");
    shard *shards = calloc(json_array_size(list) + 1, sizeof(*shards));
    uint64_t *load = calloc(world, sizeof(*load));
    size_t i;
    bool own = world == rks_group_size(rks_store_group(store));
    json_array_foreach(list, i, one)
    {
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(one, "bytes"));
        uint64_t samples = (uint64_t)json_integer_value(json_object_get(one, "samples"));
        if (shards == NULL || load == NULL)
            break;
        shards[i].owner = json_integer_value(json_object_get(one, "owner"));
        shards[i].mean = samples == 0 ? 0 : (double)bytes / (double)samples;
        if (shards[i].owner >= 0 && !own) {
            uint32_t least = 0;
            for (uint32_t rank = 1; rank < world; rank++)
                least = load[rank] < load[least] ? rank : least;
            shards[i].owner = least;
            load[least] += bytes + 1;
        }
        if (shards[i].owner >= 0)
            ranks[shards[i].owner].owned_bytes += bytes;
    }
    if (load == NULL) {
        free(shards);
        shards = NULL;
    }
    json_decref(info);
    rks_release(text);
    free(load);
    return shards;
}

/* ---- the walk -------------------------------------------------------------------------------- */

enum cost { PADDED, TOKENS, QUADRATIC, POLYNOMIAL };

typedef struct walk {
    rks_store *store;
    rks_plan *plan;
    const cli_plan_args *args;
    const uint32_t *lengths;
    uint32_t clamp;
    uint32_t multiple; /* lengths count as rounded up to it */
    enum cost cost;
    bool packs;
    bool sums; /* batches are samples one after another */
    double per_step;
    uint32_t micro_batches;
    shard *shards; /* NULL: nobody asks by rank */
    cli_figures *figures;
    double *costs;      /* of the step's batches, by rank */
    double *step_costs; /* of the optimizer step's, by rank */
} walk;

uint64_t cli_bin_first(uint64_t count, size_t bins, size_t i)
{
    /* Both below 2^40. */
    return bins == 0 ? 0 : count / bins * i + count % bins * i / bins;
}

/* Of `count` samples as long as this one. */
static double cost_of(const walk *w, double length, double count)
{
    const rks_plan_options *options = &w->args->options;
    switch (w->cost) {
    case QUADRATIC:
        return length * length * count;
    case POLYNOMIAL:
        return (options->cost_linear + options->cost_quadratic * length) * length * count;
    case PADDED:
    case TOKENS:
        break;
    }
    return length * count;
}

static uint64_t width_of(const walk *w, uint64_t length)
{
    return (length + w->multiple - 1) / w->multiple * w->multiple;
}

/* What a step costs besides its samples, whatever is in it: a twentieth of a full batch of samples
 * of mean length, which is the same for all strategies. */
static double cost_per_step(const walk *w)
{
    enum { SHARE = 20, BATCH_SIZE = 64 };
    const rks_plan_options *options = &w->args->options;
    const rks_plan_report *report = &w->figures->report;
    double mean = report->samples == 0 ? 1 : (double)report->tokens / (double)report->samples;
    double room = (double)(w->packs ? options->capacity : options->max_tokens);
    double count = options->batch_size == 0 ? BATCH_SIZE : options->batch_size;
    if (room > 0 && mean > 0)
        count = room / mean;
    return cost_of(w, mean, count) / SHARE;
}

/* A batch's cost; its tokens are added to *tokens. */
static double add_batch(walk *w, uint32_t rank, const uint32_t *ids, size_t count, uint64_t *tokens)
{
    uint64_t longest = 0, sum = 0, room = 0;
    double cost = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t length = w->lengths[ids[i]];
        length = length < w->clamp ? length : w->clamp;
        longest = length > longest ? length : longest;
        sum += length;
        uint64_t width = width_of(w, length);
        room += width;
        if (w->packs)
            cost += cost_of(w, (double)width_of(w, length == 0 ? 1 : length), 1);
    }
    longest = width_of(w, longest);
    uint64_t padded = w->sums ? room : longest * count;
    *tokens += sum;
    if (w->shards != NULL) {
        cli_rank_figures *figures = &w->figures->ranks[rank];
        figures->samples += count;
        figures->tokens += sum;
        figures->padded_tokens += padded;
        if (padded > figures->largest_batch)
            figures->largest_batch = padded;
        for (size_t i = 0; i < count; i++) {
            const shard *from = &w->shards[rks_store_shard(w->store, ids[i])];
            figures->fetched_samples += from->owner != rank;
            figures->fetched_bytes += from->owner != rank ? from->mean : 0;
        }
    }
    if (w->packs)
        return cost;
    return w->cost == TOKENS ? (double)sum : cost_of(w, (double)longest, (double)count);
}

static void keep_step(walk *w, uint64_t step, size_t *bin, uint64_t tokens, double most)
{
    cli_figures *figures = w->figures;
    while (step >= figures->steps[*bin].end)
        ++*bin;
    cli_step_bin *at = &figures->steps[*bin];
    at->least = step == at->first || tokens < at->least ? tokens : at->least;
    at->most = tokens > at->most ? tokens : at->most;
    at->sum += tokens;
    size_t row = 0;
    for (uint32_t rank = 0; rank < figures->world; rank++) {
        while (rank >= cli_bin_first(figures->world, figures->rank_bins, row + 1))
            row++;
        figures->busy[*bin * figures->rank_bins + row] += most > 0 ? w->costs[rank] / most : 1;
    }
}

static void finish_busy(cli_figures *figures)
{
    for (size_t bin = 0; bin < figures->step_bins; bin++)
        for (size_t row = 0; row < figures->rank_bins; row++) {
            uint64_t steps = figures->steps[bin].end - figures->steps[bin].first;
            uint64_t ranks = cli_bin_first(figures->world, figures->rank_bins, row + 1) -
                             cli_bin_first(figures->world, figures->rank_bins, row);
            figures->busy[bin * figures->rank_bins + row] /= (double)(steps * ranks);
        }
}

/* An optimizer step is over: its ranks have waited for the costliest one. */
static void add_time(walk *w, uint64_t step)
{
    double most = 0;
    for (uint32_t rank = 0; rank < w->figures->world; rank++) {
        w->step_costs[rank] += w->costs[rank];
        most = w->step_costs[rank] > most ? w->step_costs[rank] : most;
    }
    if ((step + 1) % w->micro_batches != 0)
        return;
    w->figures->time += most + w->per_step;
    memset(w->step_costs, 0, w->figures->world * sizeof(*w->step_costs));
}

static rks_status go(walk *w, cli_bar *bar, rks_error *err)
{
    cli_figures *figures = w->figures;
    size_t bin = 0;
    uint64_t number = 0; /* of the step in the plan, which has those that are skipped, too */
    for (uint64_t step = 0; step < figures->report.steps; step++, number++) {
        uint64_t tokens = 0;
        double most = 0;
        rks_status found = rks_plan_next_step(w->plan, w->args->epoch, number, &number, err);
        if (found != RKS_OK)
            return found;
        if (step % 1024 == 0) {
            cli_bar_part(bar, figures->strategy, step, figures->report.steps);
            rks_status status = cli_check_interrupt(err);
            if (status != RKS_OK)
                return status;
        }
        for (uint32_t rank = 0; rank < figures->world; rank++) {
            const uint32_t *ids;
            size_t count;
            rks_status status =
                rks_plan_batch(w->plan, w->args->epoch, number, rank, &ids, &count, err);
            if (status != RKS_OK)
                return status;
            w->costs[rank] = add_batch(w, rank, ids, count, &tokens);
            most = w->costs[rank] > most ? w->costs[rank] : most;
        }
        add_time(w, step);
        if (figures->busy != NULL)
            keep_step(w, step, &bin, tokens, most);
    }
    if (figures->busy != NULL)
        finish_busy(figures);
    return RKS_OK;
}

/* Room for what is kept by rank and step. */
static bool make_room_for_steps(walk *w)
{
    cli_figures *figures = w->figures;
    uint64_t steps = figures->report.steps;
    figures->step_bins = steps < CLI_STEP_BINS ? (size_t)steps : CLI_STEP_BINS;
    figures->rank_bins = figures->world < CLI_RANK_BINS ? figures->world : CLI_RANK_BINS;
    figures->ranks = calloc(figures->world, sizeof(*figures->ranks));
    figures->steps = calloc(figures->step_bins, sizeof(*figures->steps));
    figures->busy = calloc(figures->step_bins * figures->rank_bins, sizeof(*figures->busy));
    if (figures->ranks == NULL || figures->steps == NULL || figures->busy == NULL)
        return false;
    for (size_t i = 0; i < figures->step_bins; i++) {
        figures->steps[i].first = cli_bin_first(steps, figures->step_bins, i);
        figures->steps[i].end = cli_bin_first(steps, figures->step_bins, i + 1);
    }
    w->shards = deal_shards(w->store, figures->world, figures->ranks);
    return w->shards != NULL;
}

static rks_status look_over(walk *w, bool by_rank, cli_bar *bar, rks_error *err)
{
    const rks_plan_options *options = &w->args->options;
    rks_status status = RKS_OK;
    w->clamp = w->figures->report.cut == 0 ? UINT32_MAX : w->figures->report.cut;
    w->multiple = w->figures->report.length_multiple;
    if (options->cost != NULL)
        w->cost = strcmp(options->cost, "tokens") == 0       ? TOKENS
                  : strcmp(options->cost, "quadratic") == 0  ? QUADRATIC
                  : strcmp(options->cost, "polynomial") == 0 ? POLYNOMIAL
                                                             : PADDED;
    w->packs = strcmp(w->figures->strategy, "pack") == 0;
    w->sums = w->packs || (w->cost == TOKENS && options->max_tokens > 0);
    w->per_step = cost_per_step(w);
    w->micro_batches = options->micro_batches == 0 ? 1 : options->micro_batches;
    w->costs = calloc(w->figures->world, sizeof(*w->costs));
    w->step_costs = calloc(w->figures->world, sizeof(*w->step_costs));
    if (w->costs == NULL || w->step_costs == NULL || (by_rank && !make_room_for_steps(w)))
        status = figures_error(RKS_ERR_MEMORY, "no memory for the figures of the plan", err);
    if (status == RKS_OK)
        status = rks_plan_bounds(w->plan, w->args->epoch, &w->figures->bounds,
                                 &w->figures->bound_count, err);
    if (status == RKS_OK)
        status = go(w, bar, err);
    free(w->costs);
    free(w->step_costs);
    free(w->shards);
    return status;
}

/* What says that these options make no plan of this data; all ranks know it alike. */
static bool is_no_plan(rks_status status)
{
    return status == RKS_ERR_DATA;
}

int cli_plan_cost(const cli_command *command, cli_plan_args *args)
{
    static const char name[] = "polynomial";
    rks_plan_options *options = &args->options;
    if (options->cost == NULL || strncmp(options->cost, name, sizeof(name) - 1) != 0) {
        const char *rest = options->cost == NULL ? NULL : strchr(options->cost, ':');
        return rest == NULL ? -1 : cli_usage(command, "--cost: ':' follows polynomial alone");
    }
    double factors[2];
    const char *at = options->cost + sizeof(name) - 1;
    for (int i = 0; i < 2; i++) {
        char *end = NULL;
        if (*at != (i == 0 ? ':' : ','))
            return cli_usage(command, "--cost: '%s' is not polynomial:A,B", options->cost);
        factors[i] = strtod(at + 1, &end);
        if (end == at + 1)
            return cli_usage(command, "--cost: '%s' is not polynomial:A,B", options->cost);
        at = end;
    }
    if (*at != '\0')
        return cli_usage(command, "--cost: '%s' is not polynomial:A,B", options->cost);
    options->cost = name;
    options->cost_linear = factors[0];
    options->cost_quadratic = factors[1];
    return -1;
}

bool cli_steps_misfit(const cli_plan_args *args)
{
    const rks_plan_options *options = &args->options;
    return options->steps != NULL && strcmp(options->steps, "per_epoch") == 0 &&
           (options->max_tokens == 0 || options->strategy == NULL ||
            strcmp(options->strategy, "random") != 0);
}

rks_status cli_figures_make(rks_store *store, const cli_plan_args *args, const char *strategy,
                            unsigned keep, cli_bar *bar, cli_figures *figures, rks_error *err)
{
    rks_group *group = store == NULL ? NULL : rks_store_group(store);
    rks_plan_options options = args->options;
    walk w = {.store = store,
              .args = args,
              .lengths = store == NULL ? args->lengths : rks_store_sealed_lengths(store),
              .figures = figures};
    options.strategy = strategy;
    if (strcmp(strategy, "random") != 0)
        options.steps = NULL; /* beside others: see cli_steps_misfit() */
    *figures = (cli_figures){.strategy = strategy, .report.struct_size = sizeof(figures->report)};
    double begun = now();
    cli_bar_part(bar, strategy, 0, 1);
    options.whole = true; /* figures are those of the complete dataset */
    rks_status status = cli_mix_plan(store, args, &options, &w.plan, err);
    if (is_no_plan(status)) {
        figures->status = status;
        figures->err = *err;
        return RKS_OK;
    }
    if (status != RKS_OK)
        return status;
    figures->world = rks_plan_world(w.plan);
    if (group == NULL || rks_group_rank(group) == 0) {
        status = rks_plan_report_get(w.plan, args->epoch, &figures->report, err);
        figures->seconds = now() - begun;
        if (is_no_plan(status)) {
            figures->status = status;
            figures->err = *err;
            status = RKS_OK;
        } else if (status == RKS_OK) {
            status = look_over(&w, (keep & CLI_KEEP_BY_RANK) != 0, bar, err);
        }
        if (status == RKS_OK && figures->status == RKS_OK)
            status = cli_mix_sources(w.plan, args, &figures->sources, &figures->source_count, err);
    }
    if ((keep & CLI_KEEP_PLAN) != 0)
        figures->plan = w.plan;
    else
        rks_plan_free(w.plan);
    return group == NULL ? status : rks_group_agree(group, "plan: figures", status, err);
}

void cli_figures_free(cli_figures *figures)
{
    rks_plan_free(figures->plan);
    rks_release(figures->bounds);
    free(figures->ranks);
    free(figures->steps);
    free(figures->busy);
    free(figures->sources);
    *figures = (cli_figures){0};
}

json_t *cli_figures_json(const cli_figures *figures)
{
    const rks_plan_report *report = &figures->report;
    if (figures->status != RKS_OK)
        return json_pack("{s:i, s:s, s:s}", "schema_version", 1, "strategy", figures->strategy,
                         "error", figures->err.text);
    json_t *made = json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:f, s:I, s:I, s:I, s:I, s:I, "
        "s:f, "
        "s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}",
        "schema_version", 1, "strategy", figures->strategy, "world", (json_int_t)figures->world,
        "samples", (json_int_t)report->samples, "steps", (json_int_t)report->steps, "batches",
        (json_int_t)report->batches, "tokens", (json_int_t)report->tokens, "padded_tokens",
        (json_int_t)report->padded_tokens, "efficiency", report->efficiency, "balance",
        report->balance, "digest", report->digest, "seconds", figures->seconds, "dropped",
        (json_int_t)report->dropped, "repeated", (json_int_t)report->repeated, "truncated",
        (json_int_t)report->truncated, "pieces", (json_int_t)report->pieces, "largest_batch",
        (json_int_t)report->largest_batch, "tokens_per_step", report->tokens_per_step, "time",
        figures->time, "largest_batch_rank", (json_int_t)report->largest_batch_rank,
        "largest_batch_step", (json_int_t)report->largest_batch_step, "smallest_batch",
        (json_int_t)report->smallest_batch, "median_batch", (json_int_t)report->median_batch,
        "p95_batch", (json_int_t)report->p95_batch, "least_largest_of_ranks",
        (json_int_t)report->least_largest_of_ranks, "least_largest_of_steps",
        (json_int_t)report->least_largest_of_steps, "bins", (json_int_t)report->bins, "fill",
        report->fill, "token_balance", report->token_balance, "lost", report->lost);
    json_object_set_new(made, "skipped", json_integer((json_int_t)report->skipped));
    json_object_set_new(made, "absent", json_integer((json_int_t)report->absent));
    json_object_set_new(made, "left_out", json_integer((json_int_t)report->left_out));
    if (figures->sources != NULL)
        json_object_set_new(made, "sources", cli_mix_json(figures->sources, figures->source_count));
    return made;
}
