/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_stats.c: rankstore stats: how a dataset's lengths or the numbers of an index column are
 * spread, and what a plan makes of them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "balance.h"
#include "cli.h"
#include "plan_figures.h"
#include "histogram.h"
#include "mix.h"
#include "page.h"
#include "pictures.h"
#include "sources.h"
#include "terminal.h"
#include "value.h"

enum { ROWS = 24 };

typedef struct args {
    cli_list words; /* the directory */
    const char *by;
    const char *html;
    cli_plan_args plan;
    cli_store_args store;
    uint32_t processes;
    bool json;
} args;

/* If a bin holds many bounds, prints their number. */
static void print_bounds(const cli_bin *bin, const cli_figures *figures)
{
    size_t first = 0, end;
    while (first < figures->bound_count && figures->bounds[first] < bin->low)
        first++;
    for (end = first; end < figures->bound_count && figures->bounds[end] < bin->high; end++)
        ;
    if (end == first)
        return;
    printf(cli_unicode() ? " \xe2\x94\xa4 " : " <| ");
    if (end - first > 3)
        printf("%s to %s, %s edges", cli_count(figures->bounds[first]),
               cli_count(figures->bounds[end - 1]), cli_count(end - first));
    for (size_t i = first; i < end && end - first <= 3; i++)
        printf("%s%s", i == first ? "" : ", ", cli_count(figures->bounds[i]));
}

static void print_quantiles(const cli_histogram *histogram)
{
    const cli_column *column = histogram->column;
    char text[32];
    printf("  min %s", cli_column_text(column, histogram->min, text));
    for (size_t q = 0; q < CLI_QUANTILES; q++)
        printf("%s%s %s", q == CLI_QUANTILES / 2 ? "\n  " : ", ", cli_quantiles[q].name,
               cli_column_text(column, histogram->quantiles[q], text));
    printf(", max %s\n", cli_column_text(column, histogram->max, text));
    printf("  mean %s", cli_number_text(histogram->mean, false, text));
    if (cli_column_is_length(column))
        printf(", total %s", cli_count(histogram->total));
    printf("\n");
}

static void print_bins(const cli_histogram *histogram, const cli_figures *figures)
{
    const char *dash = cli_unicode() ? "\xe2\x80\x93" : "-";
    char text[72];
    int widest = 0, extra = cli_unicode() ? 2 : 0; /* the dash has three bytes and one place */
    for (size_t i = 0; i < histogram->bin_count; i++) {
        cli_bin_text(histogram, &histogram->bins[i], dash, text);
        int places = (int)strlen(text) - (strstr(text, dash) != NULL ? extra : 0);
        widest = places > widest ? places : widest;
    }
    bool bounds = figures->bound_count > 0;
    int cells = cli_width(STDOUT_FILENO) - widest - 18 - (bounds ? 26 : 0);
    cells = cells < 10 ? 10 : cells;
    printf("\n  %*s  %12s%s\n", widest, histogram->column->name, "samples",
           bounds ? "  and beside the bars: bucket edges" : "");
    for (size_t i = 0; i < histogram->bin_count; i++) {
        const cli_bin *bin = &histogram->bins[i];
        cli_bin_text(histogram, bin, dash, text);
        printf("  %*s  %12s  ", widest + (strstr(text, dash) != NULL ? extra : 0), text,
               cli_count(bin->count));
        cli_print_bar(stdout, (double)bin->count / (double)histogram->highest, cells);
        print_bounds(bin, figures);
        printf("\n");
    }
}

/* What `words` are to a reader: one directory, or "2 datasets". */
static void print_subject(const args *a)
{
    if (a->words.count == 1)
        cli_print_key(stdout, a->words.items[0], strlen(a->words.items[0]));
    else
        printf("%s", cli_counted(a->words.count, "dataset"));
}

static void print_stats(const rks_store *store, const args *a, const cli_histogram *histogram,
                        const cli_figures *figures)
{
    print_subject(a);
    printf(": ");
    cli_print_key(stdout, histogram->column->name, strlen(histogram->column->name));
    printf(" of %s", cli_counted(histogram->count, "sample"));
    if (histogram->absent > 0)
        printf(", %s in missing shards", cli_count(histogram->absent));
    if (histogram->not_finite > 0)
        printf(", %s not finite", cli_count(histogram->not_finite));
    printf("\n");
    cli_print_sources(store);
    if (histogram->count == 0)
        return;
    print_quantiles(histogram);
    print_bins(histogram, figures);
    if (figures->status != RKS_OK)
        printf("\n  no plan: %s\n", figures->err.text);
    else if (figures->world > 0) {
        printf("\n  plan: %s for %s: %s, %.1f %% padding\n", figures->strategy,
               cli_counted(figures->world, "rank"), cli_counted(figures->report.steps, "step"),
               100 * (1 - figures->report.efficiency));
        cli_mix_print(figures->sources, figures->source_count);
    }
}

static void print_stats_json(const rks_store *store, const args *a, const cli_histogram *histogram,
                             const cli_figures *figures)
{
    json_t *bounds = json_array();
    for (size_t i = 0; i < figures->bound_count; i++)
        json_array_append_new(bounds, json_integer(figures->bounds[i]));
    json_t *object =
        json_pack("{s:i, s:o, s:s, s:I}", "schema_version", 1, "directory",
                  cli_text_json(a->words.items[0], strlen(a->words.items[0])), "dataset",
                  rks_store_dataset(store), "samples", (json_int_t)rks_store_count(store));
    json_object_update_new(object, cli_histogram_json(histogram));
    json_object_set_new(object, "sources", cli_sources_json(store));
    json_object_set_new(object, "bounds", bounds);
    if (figures->world > 0 || figures->status != RKS_OK)
        json_object_set_new(object, "plan", cli_figures_json(figures));
    cli_print_json(object, JSON_INDENT(2));
}

static rks_status write_page(rks_store *store, const args *a, const cli_column *column,
                             const cli_comparison *comparison, cli_bar *bar, rks_error *err)
{
    cli_column lengths;
    cli_output output;
    cli_histogram *histograms = calloc(2, sizeof(*histograms));
    cli_page page = {.directory = a->words.items[0],
                     .store = store,
                     .lengths = histograms,
                     .comparison = comparison,
                     .args = &a->plan};
    if (histograms == NULL) {
        snprintf(err->text, sizeof(err->text), "no memory for two histograms");
        return RKS_ERR_MEMORY;
    }
    cli_column_find(store, NULL, &lengths, NULL, 0);
    rks_status status = cli_histogram_make(&lengths, PICTURE_BINS, bar, &histograms[0], err);
    if (status == RKS_OK && !cli_column_is_length(column)) {
        page.column = &histograms[1];
        status = cli_histogram_make(column, PICTURE_BINS, bar, &histograms[1], err);
    }
    if (status == RKS_OK)
        status = cli_output_open(&output, a->html, err);
    if (status == RKS_OK) {
        cli_print_page(output.file, &page);
        status = cli_output_close(&output, RKS_OK, err);
    }
    free(histograms);
    return status;
}

/* COLLECTIVE in the plans; rank 0 looks at the columns. */
static rks_status show_page(rks_store *store, const args *a, const cli_column *column,
                            rks_error *err)
{
    rks_group *group = rks_store_group(store);
    cli_comparison comparison = {0};
    cli_bar bar;
    cli_bar_begin(&bar, group);
    rks_status status = cli_compare(store, &a->plan, true, &bar, &comparison, err);
    if (status == RKS_OK && rks_group_rank(group) == 0)
        status = write_page(store, a, column, &comparison, &bar, err);
    cli_bar_end(&bar);
    status = rks_group_agree(group, "stats: page", status, err);
    if (status == RKS_OK && rks_group_rank(group) == 0)
        fprintf(stderr, "%s: a page of pictures of %s\n", cli_shown(a->html),
                cli_counted(rks_store_count(store), "sample"));
    cli_comparison_free(&comparison);
    return status;
}

/* COLLECTIVE in the plan; rank 0 looks at the column. */
static rks_status show_stats(rks_store *store, const args *a, const cli_column *column,
                             rks_error *err)
{
    rks_group *group = rks_store_group(store);
    bool talks = rks_group_rank(group) == 0;
    cli_histogram *histogram = calloc(1, sizeof(*histogram));
    cli_figures figures = {0};
    cli_bar bar;
    rks_status status = RKS_OK;
    cli_bar_begin(&bar, group);
    if (histogram == NULL) {
        status = RKS_ERR_MEMORY;
        snprintf(err->text, sizeof(err->text), "no memory for a histogram");
    } else if (talks) {
        status = cli_histogram_make(column, ROWS, &bar, histogram, err);
    }
    status = rks_group_agree(group, "stats", status, err);
    if (status == RKS_OK && a->by == NULL && rks_store_count(store) > 0)
        status = cli_figures_make(
            store, &a->plan, a->plan.options.strategy == NULL ? "bucket" : a->plan.options.strategy,
            false, &bar, &figures, err);
    cli_bar_end(&bar);
    if (status == RKS_OK && talks && a->json)
        print_stats_json(store, a, histogram, &figures);
    else if (status == RKS_OK && talks)
        print_stats(store, a, histogram, &figures);
    cli_figures_free(&figures);
    free(histogram);
    return status;
}

static int run_stats(rks_group *group, void *user)
{
    args *a = user;
    rks_error err = {0};
    rks_store *store = NULL;
    cli_column column;
    char problem[384];
    int code = cli_open(group, &a->words, &a->store, &store);
    if (code >= 0)
        return code;
    if (cli_column_find(store, a->by, &column, problem, sizeof(problem))) {
        rks_status status = cli_mix_take(store, &a->plan, &err);
        if (status == RKS_OK)
            status = cli_balance_take(store, &a->plan, &err);
        if (status == RKS_OK && a->html != NULL)
            status = show_page(store, a, &column, &err);
        if (status == RKS_OK)
            status = show_stats(store, a, &column, &err);
        code = status == RKS_OK ? CLI_GOOD : cli_fail(group, status, &err);
    } else {
        if (rks_group_rank(group) == 0)
            fprintf(stderr, "rankstore stats: %s\n", cli_shown(problem));
        code = CLI_USAGE;
    }
    cli_mix_free(&a->plan);
    cli_balance_free(&a->plan);
    rks_store_close(store, 0);
    return code;
}

static void set_stats_defaults(void *user)
{
    args *a = user;
    rks_plan_options_default(&a->plan.options);
    a->plan.options.length_multiple = 0; /* as the Python package plans */
    a->plan.options.strategy = NULL;     /* the page asks whether one was named */
    rks_store_options_default(&a->store.options);
}

static int stats(void *user)
{
    args *a = user;
    int code = cli_plan_cost(&cli_stats, &a->plan);
    if (code < 0)
        code = cli_mix_check(&cli_stats, &a->plan);
    if (code >= 0)
        return code;
    if (a->html != NULL && a->plan.options.strategy != NULL &&
        strcmp(a->plan.options.strategy, "pack") == 0)
        return cli_usage(&cli_stats, "--html compares padded batches of one budget; --strategy "
                                     "pack is not among them");
    if (a->html != NULL && a->plan.stages.count + a->plan.remixes.count > 0)
        return cli_usage(&cli_stats,
                         "--html shows plans of different steps; show what %s makes of "
                         "one with rankstore plan",
                         a->plan.stages.count > 0 ? "--curriculum" : "--remix");
    if (a->html == NULL && cli_steps_misfit(&a->plan))
        return cli_usage(&cli_stats, CLI_STEPS_RULE);
    return cli_run(a->processes, run_stats, user);
}

static const cli_option options[] = {
    {"--by", "COLUMN", CLI_TEXT, offsetof(args, by), .help = "show an index column (build --index)",
     .normal = "the lengths"},
    {"--html", "FILE", CLI_TEXT, offsetof(args, html),
     .help = "also write a page of pictures: lengths, padding by strategy, balance, bytes"},
    CLI_PLAN_OPTIONS(args, plan),
    {"--world", "N", CLI_U32, offsetof(args, plan.options.world), .help = "plan for N ranks",
     .normal = "as many as run", .least = 1, .most = 1 << 20},
    CLI_PROCESSES(args, processes),
    CLI_JSON(args, json, "print JSON"),
    CLI_STORE_OPTIONS(args, store),
};

const cli_command cli_stats = {
    .name = "stats",
    .arguments = "DIR...",
    .summary = "Show how lengths are spread, and where a plan's buckets end",
    .examples = {"rankstore stats store --max-tokens 32k --world 64",
                 "rankstore stats store --max-tokens 32k --world 8 --html store.html"},
    .text =
        "A quantile q of n sorted values is the one at place floor(q (n - 1)). Bars use block "
        "characters, or ASCII if the locale is not UTF-8. Index columns have no plan. The page of "
        "--html is one file that loads nothing and runs no scripts.\n\n" CLI_SEVERAL,
    CLI_OPTIONS(options, args, words),
    CLI_DATASETS,
    .defaults = set_stats_defaults,
    .run = stats,
};
