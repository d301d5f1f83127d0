/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_plan.c: rankstore plan: what the batches of an epoch would be, for any number of ranks. */
#include <stdlib.h>
#include <string.h>

#include "balance.h"
#include "batches_file.h"
#include "cli.h"
#include "strategy_table.h"
#include "lengths_file.h"
#include "mix.h"
#include "skip.h"
#include "step_list.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    const char *output, *lengths, *skip;
    cli_step_place place;
    uint64_t step;
    cli_plan_args plan;
    cli_store_args store;
    uint32_t processes;
    bool compare, json;
    rks_step_range skipped[RKS_PLAN_SKIPS_MAX];
} args;

static void print_plan_report(const cli_figures *figures)
{
    const rks_plan_report *report = &figures->report;
    printf("%s over %s: %s, %s, %s\n", figures->strategy, cli_counted(figures->world, "rank"),
           cli_counted(report->steps, "step"), cli_counted(report->batches, "batch"),
           cli_counted(report->samples, "sample"));
    if (report->bins > 0)
        printf("  tokens        %s in %s, %.2f %% full\n", cli_count(report->tokens),
               cli_counted(report->bins, "bin"), 100 * report->fill);
    else
        printf("  tokens        %s, padded to %s: %.2f %% waste\n", cli_count(report->tokens),
               cli_count(report->padded_tokens), 100 * (1 - report->efficiency));
    printf("  balance       %.3f (mean over steps of mean / largest cost over ranks), of tokens "
           "%.3f\n",
           report->balance, report->token_balance);
    printf("  waiting       %.2f %% of all ranks' time, if time is as cost\n", 100 * report->lost);
    printf("  tokens/step   %s\n", cli_count((uint64_t)report->tokens_per_step));
    printf("  largest batch %s padded tokens (rank %u, step %s): size memory by it\n",
           cli_count(report->largest_batch), report->largest_batch_rank,
           cli_count(report->largest_batch_step));
    printf("  batches       from %s, half up to %s, 95 %% up to %s padded tokens\n",
           cli_count(report->smallest_batch), cli_count(report->median_batch),
           cli_count(report->p95_batch));
    printf("  the largest   of each rank: from %s; of each step: from %s padded tokens\n",
           cli_count(report->least_largest_of_ranks), cli_count(report->least_largest_of_steps));
    if (report->dropped + report->repeated + report->truncated > 0)
        printf("  dropped %s, repeated %s, truncated %s\n", cli_count(report->dropped),
               cli_count(report->repeated), cli_count(report->truncated));
    if (report->skipped > 0)
        printf("  skipped       %s, which no line above counts\n",
               cli_counted(report->skipped, "step"));
    if (report->pieces > 0)
        printf("  pieces        %s of the samples are pieces of longer ones\n",
               cli_count(report->pieces));
    cli_mix_print(figures->sources, figures->source_count);
    printf("  digest        %s, %.3f s\n", report->digest, figures->seconds);
}

/* With a store all ranks come here. */
static rks_status agree_if_open(rks_store *store, const char *phase, rks_status status,
                                rks_error *err)
{
    return store == NULL ? status : rks_group_agree(rks_store_group(store), phase, status, err);
}

static rks_status show_comparison(rks_store *store, const args *a, bool talks, cli_bar *bar,
                                  rks_error *err)
{
    cli_comparison comparison;
    rks_status status = cli_compare(store, &a->plan, false, bar, &comparison, err);
    cli_bar_end(bar);
    if (status == RKS_OK && comparison.best_time == 0 &&
        comparison.plans[comparison.chosen].status != RKS_OK) {
        *err = comparison.plans[comparison.chosen].err;
        status = comparison.plans[comparison.chosen].status;
    }
    status = agree_if_open(store, "plan: comparison", status, err);
    if (status == RKS_OK && talks && a->json)
        cli_print_json(cli_comparison_json(&comparison), JSON_INDENT(2));
    else if (status == RKS_OK && talks)
        cli_print_comparison(&comparison);
    cli_comparison_free(&comparison);
    return status;
}

static rks_status show_plan(rks_store *store, const args *a, bool talks, cli_bar *bar,
                            rks_error *err)
{
    cli_figures figures;
    const char *strategy = a->plan.options.strategy == NULL ? "bucket" : a->plan.options.strategy;
    bool writes = a->output != NULL;
    rks_status status =
        cli_figures_make(store, &a->plan, strategy, writes ? CLI_KEEP_PLAN : 0, bar, &figures, err);
    if (status == RKS_OK && figures.status != RKS_OK) {
        *err = figures.err;
        status = figures.status;
    }
    if (status == RKS_OK && talks && writes)
        status = cli_write_batches(store, &figures, &a->plan, a->output, a->json, bar, err);
    cli_bar_end(bar);
    status = agree_if_open(store, "plan: shown", status, err);
    if (status == RKS_OK && talks && writes) {
        if (strcmp(a->output, "-") != 0)
            fprintf(stderr, "%s: %s of %s\n", cli_shown(a->output),
                    cli_counted(figures.report.batches, "batch"),
                    cli_counted(figures.report.samples, "sample"));
    } else if (status == RKS_OK && talks && a->json) {
        cli_print_json(cli_figures_json(&figures), JSON_INDENT(2));
    } else if (status == RKS_OK && talks) {
        print_plan_report(&figures);
    }
    cli_figures_free(&figures);
    return status;
}

static rks_status show_what_was_asked(rks_store *store, const args *a, bool talks, cli_bar *bar,
                                      rks_error *err)
{
    if (a->step != UINT64_MAX)
        return cli_list_step(store, &a->plan, &a->place, a->json, err);
    return a->compare ? show_comparison(store, a, talks, bar, err)
                      : show_plan(store, a, talks, bar, err);
}

/* One rank plans: no others have the lengths, which may come from its standard input. */
static int run_lengths(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    uint32_t *lengths = NULL;
    cli_bar bar;
    if (rks_group_rank(group) != 0)
        return CLI_GOOD;
    rks_status status = cli_read_lengths(a->lengths, &lengths, &a->plan.count, &err);
    a->plan.lengths = lengths;
    if (status == RKS_OK)
        status = cli_balance_take(NULL, &a->plan, &err);
    cli_bar_begin(&bar, group);
    if (status == RKS_OK)
        status = cli_mix_take(NULL, &a->plan, &err);
    if (status == RKS_OK)
        status = show_what_was_asked(NULL, a, true, &bar, &err);
    cli_bar_end(&bar);
    cli_mix_free(&a->plan);
    cli_balance_free(&a->plan);
    free(lengths);
    return status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
}

static int run_plan(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    cli_bar bar;
    bool talks = rks_group_rank(group) == 0;
    int code = cli_open(group, &a->words, &a->store, &store);
    if (code >= 0)
        return code;
    cli_bar_begin(&bar, group);
    rks_status status = cli_mix_take(store, &a->plan, &err);
    if (status == RKS_OK)
        status = cli_balance_take(store, &a->plan, &err);
    if (status == RKS_OK)
        status = show_what_was_asked(store, a, talks, &bar, &err);
    cli_bar_end(&bar);
    cli_mix_free(&a->plan);
    cli_balance_free(&a->plan);
    code = status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
    rks_store_close(store, 0);
    return code;
}

static void set_plan_defaults(void *user)
{
    args *a = user;
    rks_plan_options_default(&a->plan.options);
    a->plan.options.length_multiple = 0; /* as the Python package plans */
    a->plan.options.strategy = NULL;     /* --compare asks whether one was named */
    rks_store_options_default(&a->store.options);
    a->step = UINT64_MAX;
    a->place.rank = UINT32_MAX;
}

/* Without a strategy and a bound, the plan is the one that the state is of. */
static int read_state(args *a)
{
    rks_error err;
    const rks_plan_options *o = &a->plan.options;
    if (a->place.path == NULL)
        return -1;
    rks_status status = cli_state_read(a->place.path, &a->place.state, &err);
    if (status != RKS_OK)
        return cli_fail(NULL, status, &err);
    if (o->strategy == NULL && o->batch_size == 0 && o->max_tokens == 0 && o->max_length == 0 &&
        o->capacity == 0)
        cli_state_options(&a->place.state, &a->plan.options);
    return -1;
}

/* Refuses what --compare cannot show. Returns -1 if it can show all, else the exit code. */
static int check_compare(const args *a)
{
    if (a->plan.options.strategy != NULL && strcmp(a->plan.options.strategy, "pack") == 0)
        return cli_usage(&cli_plan, "--compare: padded batches of one budget are compared; show "
                                    "--strategy pack alone");
    if (a->output != NULL)
        return cli_usage(&cli_plan, "-o writes one plan, --compare shows all");
    if (a->skip != NULL)
        return cli_usage(&cli_plan, "--compare shows plans of different steps; show what --skip "
                                    "leaves of one");
    if (a->plan.stages.count + a->plan.remixes.count > 0)
        return cli_usage(&cli_plan,
                         "--compare shows plans of different steps; show what %s makes "
                         "of one",
                         a->plan.stages.count > 0 ? "--curriculum" : "--remix");
    return -1;
}

/* The same for --step and what goes with it. */
static int check_step(const args *a)
{
    bool asked = a->step != UINT64_MAX;
    if (!asked && (a->place.rank != UINT32_MAX || a->place.path != NULL))
        return cli_usage(&cli_plan, "--rank and --state need --step");
    if (asked && (a->compare || a->output != NULL))
        return cli_usage(&cli_plan, "--step lists one step; --compare and -o are of an epoch");
    return -1;
}

static int plan(void *user)
{
    args *a = user;
    int code = cli_plan_cost(&cli_plan, &a->plan);
    a->plan.lengths_file = a->lengths != NULL;
    if (code < 0)
        code = cli_mix_check(&cli_plan, &a->plan);
    if (code < 0)
        code = cli_skip_take(&cli_plan, a->skip, &a->plan.options, a->skipped);
    if (code < 0)
        code = read_state(a);
    if (code < 0 && a->compare)
        code = check_compare(a);
    if (code < 0)
        code = check_step(a);
    if (code >= 0)
        return code;
    a->place.step = a->step;
    if ((a->words.count == 0) == (a->lengths == NULL))
        return cli_usage(&cli_plan, "one dataset or --lengths FILE is needed");
    if (!a->compare && cli_steps_misfit(&a->plan))
        return cli_usage(&cli_plan, CLI_STEPS_RULE);
    return a->lengths != NULL ? cli_run(1, run_lengths, user)
                              : cli_run(a->processes, run_plan, user);
}

static const cli_option options[] = {
    CLI_PLAN_OPTIONS(args, plan),
    {"--world", "N", CLI_U32, offsetof(args, plan.options.world), .help = "plan for N ranks",
     .normal = "as many as run", .least = 1, .most = 1 << 20},
    {"--skip", "STEPS", CLI_TEXT, offsetof(args, skip),
     .help = "EPOCH:FIRST-LAST,...: skip these steps, FIRST and LAST included"},
    {"--compare", NULL, CLI_FLAG, offsetof(args, compare),
     .help = "show all strategies side by side, and the gain over --strategy (else over random)"},
    {"--lengths", "FILE", CLI_TEXT, offsetof(args, lengths),
     .help = "plan over the lengths in FILE instead of a dataset's: .npy, or text with a number "
             "for each sample; - is standard input"},
    {"--step", "N", CLI_U64, offsetof(args, step),
     .help = "list rank, id, length and key of each sample of step N, counted from 0"},
    {"--rank", "R", CLI_U32, offsetof(args, place.rank), .help = "with --step: only rank R",
     .normal = "all", .most = (1 << 20) - 1},
    {"--state", "FILE", CLI_TEXT, offsetof(args, place.path),
     .help = "with --step: use the epoch of this saved state, as these ranks resume it; "
             "without --strategy, --batch-size, --max-tokens, --max-length and --capacity, plan "
             "and number of ranks are the state's"},
    {"-o", "FILE", CLI_TEXT, offsetof(args, output),
     .help = "write the batches to FILE; - is standard output"},
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print JSON"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_plan = {
    .name = "plan",
    .arguments = "[DIR...]",
    .summary = "Show the batches that a plan would make, for any number of ranks",
    .examples = {"rankstore plan store --max-tokens 32k --world 8 --compare",
                 "rankstore plan store --strategy pack --capacity 8k --world 8"},
    .text = "-o writes a binary file (FORMAT.md, Batches of a plan). With --json it writes a JSON "
            "object a line: first the plan, then {step, rank, ids} of each batch.\n\n" CLI_SEVERAL,
    CLI_OPTIONS(options, args, words),
    .least = 0,
    .most = CLI_MANY,
    .needs = "one dataset is needed",
    .defaults = set_plan_defaults,
    .run = plan,
};
