/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_plan.c: rankstore plan: what the batches of an epoch would be, for any number of ranks. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#include "cli.h"
#include "value.h"

typedef struct args {
    cli_list words; /* the directory */
    cli_plan_args plan;
    rks_store_options store;
    uint32_t processes;
    bool compare, json;
} args;

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static rks_status make(rks_store *store, const rks_plan_options *options, uint64_t epoch,
                       rks_plan_report *report, double *seconds, rks_error *err)
{
    rks_plan *plan = NULL;
    *report = (rks_plan_report){.struct_size = sizeof(*report)};
    double begun = now();
    rks_status status = rks_plan_open(store, options, &plan, err);
    if (status == RKS_OK)
        status = rks_plan_report_get(plan, epoch, report, err);
    *seconds = now() - begun;
    rks_plan_free(plan);
    return status;
}

static json_t *report_json(const rks_plan_report *report, const char *strategy, double seconds)
{
    return json_pack(
        "{s:i, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:s, s:f, s:I, s:I, s:I, s:I, s:f}",
        "schema_version", 1, "strategy", strategy, "samples", (json_int_t)report->samples, "steps",
        (json_int_t)report->steps, "batches", (json_int_t)report->batches, "tokens",
        (json_int_t)report->tokens, "padded_tokens", (json_int_t)report->padded_tokens,
        "efficiency", report->efficiency, "balance", report->balance, "digest", report->digest,
        "seconds", seconds, "dropped", (json_int_t)report->dropped, "repeated",
        (json_int_t)report->repeated, "truncated", (json_int_t)report->truncated, "largest_batch",
        (json_int_t)report->largest_batch, "tokens_per_step", report->tokens_per_step);
}

static void print_report(const rks_plan_report *report, const char *strategy, uint32_t world,
                         double seconds)
{
    printf("%s over %u ranks: %s steps, %s batches, %s samples\n", strategy, world,
           cli_count(report->steps), cli_count(report->batches), cli_count(report->samples));
    printf("  tokens        %s, padded to %s: %.2f %% waste\n", cli_count(report->tokens),
           cli_count(report->padded_tokens), 100 * (1 - report->efficiency));
    printf("  balance       %.3f (mean over steps of mean / largest cost over ranks)\n",
           report->balance);
    printf("  tokens/step   %s\n", cli_count((uint64_t)report->tokens_per_step));
    printf("  largest batch %s padded tokens\n", cli_count(report->largest_batch));
    if (report->dropped + report->repeated + report->truncated > 0)
        printf("  dropped %s, repeated %s, truncated %s\n", cli_count(report->dropped),
               cli_count(report->repeated), cli_count(report->truncated));
    printf("  digest        %s, %.3f s\n", report->digest, seconds);
}

static rks_status compare(rks_store *store, const args *a, bool talks, rks_error *err)
{
    static const char *const strategies[] = {"random", "bucket", "sorted"};
    json_t *list = json_array();
    rks_status status = RKS_OK;
    if (talks && !a->json)
        printf("padding waste (one # is 2 %%)\n");
    for (size_t i = 0; status == RKS_OK && i < 3; i++) {
        rks_plan_options options = a->plan.options;
        rks_plan_report report;
        double seconds = 0;
        options.strategy = strategies[i];
        status = make(store, &options, a->plan.epoch, &report, &seconds, err);
        if (status != RKS_OK || !talks)
            continue;
        double waste = 1 - report.efficiency;
        char bar[51] = "";
        for (int cell = 0; cell < (int)(waste * 50 + 0.5) && cell < 50; cell++) {
            bar[cell] = '#';
            bar[cell + 1] = '\0';
        }
        if (a->json)
            json_array_append_new(list, report_json(&report, strategies[i], seconds));
        else
            printf("  %-7s %6.2f %% %-50s %s steps, balance %.3f\n", strategies[i], 100 * waste,
                   bar, cli_count(report.steps), report.balance);
    }
    if (talks && a->json && status == RKS_OK)
        cli_print_json(json_pack("{s:i, s:O}", "schema_version", 1, "plans", list), JSON_INDENT(2));
    json_decref(list);
    return status;
}

static int run_plan(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    rks_plan_report report;
    bool talks = rks_group_rank(group) == 0;
    double seconds = 0;
    int code = cli_open(group, a->words.items[0], &a->store, &store);
    if (code >= 0)
        return code;
    const char *strategy = a->plan.options.strategy == NULL ? "bucket" : a->plan.options.strategy;
    uint32_t world = a->plan.options.world == 0 ? rks_group_size(group) : a->plan.options.world;
    rks_status status = a->compare
                            ? compare(store, a, talks, &err)
                            : make(store, &a->plan.options, a->plan.epoch, &report, &seconds, &err);
    if (status != RKS_OK)
        code = cli_fail(group, status, &err);
    else if (talks && !a->compare && a->json)
        cli_print_json(report_json(&report, strategy, seconds), JSON_INDENT(2));
    else if (talks && !a->compare)
        print_report(&report, strategy, world, seconds);
    rks_store_close(store, 0);
    return status == RKS_OK ? CLI_GOOD : code;
}

static void defaults(void *user)
{
    args *a = user;
    rks_plan_options_default(&a->plan.options);
    rks_store_options_default(&a->store);
}

static int plan(void *user)
{
    return cli_run(((args *)user)->processes, run_plan, user);
}

static const cli_option options[] = {
    CLI_PLAN_OPTIONS(args, plan),
    {"--world", "N", CLI_U32, offsetof(args, plan.options.world), .help = "plan for N ranks",
     .normal = "as many as run"},
    {"--compare", NULL, CLI_FLAG, offsetof(args, compare),
     .help = "padding waste of random, bucket and sorted side by side"},
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print JSON"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_plan = {
    .name = "plan",
    .arguments = "DIR",
    .summary = "Show the batches that a plan would make, for any number of ranks",
    .examples = {"rankstore plan store --max-tokens 32k --world 64",
                 "rankstore plan store --max-tokens 32k --compare"},
    .options = options,
    .option_count = CLI_COUNT(options),
    .args_size = sizeof(args),
    .words = offsetof(args, words),
    .least = 1,
    .most = 1,
    .needs = "one dataset is needed",
    .defaults = defaults,
    .run = plan,
};
