/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_plan.c: rankstore plan: what the batches of an epoch would be, for any number of ranks. */
#include <stdlib.h>
#include <string.h>

#include "batches_file.h"
#include "cli.h"
#include "compare.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    const char *output;
    cli_plan_args plan;
    rks_store_options store;
    uint32_t processes;
    bool compare, json;
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
    printf("  digest        %s, %.3f s\n", report->digest, figures->seconds);
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
    status = rks_group_agree(rks_store_group(store), "plan: comparison", status, err);
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
    status = rks_group_agree(rks_store_group(store), "plan: shown", status, err);
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

static int run_plan(rks_group *group, void *user)
{
    const args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    cli_bar bar;
    bool talks = rks_group_rank(group) == 0;
    int code = cli_open(group, a->words.items[0], &a->store, &store);
    if (code >= 0)
        return code;
    cli_bar_begin(&bar, group);
    rks_status status = a->compare ? show_comparison(store, a, talks, &bar, &err)
                                   : show_plan(store, a, talks, &bar, &err);
    cli_bar_end(&bar);
    code = status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
    rks_store_close(store, 0);
    return code;
}

static void set_plan_defaults(void *user)
{
    args *a = user;
    rks_plan_options_default(&a->plan.options);
    a->plan.options.length_multiple = 0; /* as the Python package plans */
    a->plan.options.strategy = NULL; /* --compare asks whether one was named */
    rks_store_options_default(&a->store);
}

static int plan(void *user)
{
    args *a = user;
    int code = cli_plan_cost(&cli_plan, &a->plan);
    if (code >= 0)
        return code;
    if (a->compare && a->plan.options.strategy != NULL &&
        strcmp(a->plan.options.strategy, "pack") == 0)
        return cli_usage(&cli_plan, "--compare: padded batches of one budget are compared; show "
                                    "--strategy pack alone");
    if (a->compare && a->output != NULL)
        return cli_usage(&cli_plan, "-o writes one plan, --compare shows all");
    if (!a->compare && cli_steps_misfit(&a->plan))
        return cli_usage(&cli_plan, CLI_STEPS_RULE);
    return cli_run(a->processes, run_plan, user);
}

static const cli_option options[] = {
    CLI_PLAN_OPTIONS(args, plan),
    {"--world", "N", CLI_U32, offsetof(args, plan.options.world), .help = "plan for N ranks",
     .normal = "as many as run", .least = 1, .most = 1 << 20},
    {"--compare", NULL, CLI_FLAG, offsetof(args, compare),
     .help = "all strategies side by side, and what one gains over --strategy (else over random)"},
    {"-o", "FILE", CLI_TEXT, offsetof(args, output),
     .help = "write the batches to FILE, or to standard output (-)"},
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print JSON"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_plan = {
    .name = "plan",
    .arguments = "DIR",
    .summary = "Show the batches that a plan would make, for any number of ranks",
    .examples = {"rankstore plan store --max-tokens 32k --world 8 --compare",
                 "rankstore plan store --strategy pack --capacity 8k --world 8"},
    .text =
        "The file of -o is binary (FORMAT.md, Batches of a plan); with --json it has an object a "
        "line: first what the plan is, then {step, rank, ids} for each batch.",
    CLI_OPTIONS(options, args, words),
    CLI_ONE_DATASET,
    .defaults = set_plan_defaults,
    .run = plan,
};
