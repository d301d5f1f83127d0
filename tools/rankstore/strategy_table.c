/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_table.c: the same data and options, planned by each strategy. */
#include "strategy_table.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "terminal.h"

static const char *const strategies[CLI_STRATEGIES] = {"random", "sequential", "sorted", "bucket"};

static rks_status find_chosen(const char *name, cli_comparison *comparison, rks_error *err)
{
    comparison->base = 0;
    comparison->chosen = CLI_STRATEGIES - 1;
    for (size_t i = 0; name != NULL && i < CLI_STRATEGIES; i++)
        if (strcmp(name, strategies[i]) == 0) {
            comparison->base = comparison->chosen = i;
            return RKS_OK;
        }
    if (name == NULL)
        return RKS_OK;
    const char *near = cli_nearest(name, strategies, CLI_STRATEGIES);
    *err = (rks_error){.status = RKS_ERR_ARGUMENT, .rank = -1};
    snprintf(err->text, sizeof(err->text), "there is no strategy '%.60s'%s%s%s", name,
             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return RKS_ERR_ARGUMENT;
}

rks_status cli_compare(rks_store *store, const cli_plan_args *args, bool by_rank, cli_bar *bar,
                       cli_comparison *comparison, rks_error *err)
{
    *comparison = (cli_comparison){0};
    rks_status status = find_chosen(args->options.strategy, comparison, err);
    for (size_t i = 0; status == RKS_OK && i < CLI_STRATEGIES; i++) {
        cli_figures *plan = &comparison->plans[i];
        unsigned keep = by_rank && i == comparison->chosen ? CLI_KEEP_BY_RANK : 0;
        status = cli_figures_make(store, args, strategies[i], keep, bar, plan, err);
        if (status == RKS_OK && plan->status == RKS_OK &&
            (comparison->best_time == 0 || plan->time < comparison->best_time))
            comparison->best_time = plan->time;
    }
    while (comparison->base < CLI_STRATEGIES - 1 &&
           comparison->plans[comparison->base].status != RKS_OK)
        comparison->base++;
    return status;
}

void cli_comparison_free(cli_comparison *comparison)
{
    for (size_t i = 0; i < CLI_STRATEGIES; i++)
        cli_figures_free(&comparison->plans[i]);
}

double cli_relative_time(const cli_comparison *comparison, const cli_figures *plan)
{
    return comparison->best_time > 0 ? plan->time / comparison->best_time : 1;
}

bool cli_gain_text(const cli_comparison *comparison, size_t plan, char text[160])
{
    const cli_figures *base = &comparison->plans[comparison->base],
                      *other = &comparison->plans[plan];
    if (plan == comparison->base || base->status != RKS_OK || other->status != RKS_OK ||
        base->report.padded_tokens == 0 || base->time <= 0)
        return false;
    double padded = (double)other->report.padded_tokens / (double)base->report.padded_tokens;
    double time = other->time / base->time;
    char tokens[64] = "as many", word[32] = "of its time";
    if (padded != 1)
        snprintf(tokens, sizeof(tokens), "%.1f %% %s", 100 * fabs(1 - padded),
                 padded < 1 ? "fewer" : "more");
    if (time >= 1)
        snprintf(word, sizeof(word), "times as long");
    snprintf(text, 160, "%s: %s padded tokens %s %s, an epoch takes %.2f %s", other->strategy,
             tokens, padded == 1 ? "as" : "than", base->strategy, time, word);
    return true;
}

static void print_rows(const cli_comparison *comparison)
{
    printf("  %-10s %8s %14s %14s %10s %8s %10s %6s\n", "strategy", "steps", "tokens",
           "padded tokens", "efficiency", "balance", "largest", "time");
    for (size_t i = 0; i < CLI_STRATEGIES; i++) {
        const cli_figures *plan = &comparison->plans[i];
        const rks_plan_report *report = &plan->report;
        if (plan->status != RKS_OK)
            printf("  %-10s no plan: %s\n", plan->strategy, plan->err.text);
        else
            printf("  %-10s %8s %14s %14s %8.2f %% %8.3f %10s %6.2f\n", plan->strategy,
                   cli_count(report->steps), cli_count(report->tokens),
                   cli_count(report->padded_tokens), 100 * report->efficiency, report->balance,
                   cli_count(report->largest_batch), cli_relative_time(comparison, plan));
    }
}

static void print_waste(const cli_comparison *comparison)
{
    printf("\npadding, of all padded tokens\n");
    for (size_t i = 0; i < CLI_STRATEGIES; i++) {
        const cli_figures *plan = &comparison->plans[i];
        if (plan->status != RKS_OK)
            continue;
        double waste = 1 - plan->report.efficiency;
        printf("  %-10s %6.2f %%  ", plan->strategy, 100 * waste);
        cli_print_bar(stdout, waste, cli_width(STDOUT_FILENO) - 23);
        printf("\n");
    }
}

void cli_print_comparison(const cli_comparison *comparison)
{
    char text[160];
    const cli_figures *any = &comparison->plans[comparison->base];
    printf("strategies for %s\n", cli_counted(any->world, "rank"));
    print_rows(comparison);
    print_waste(comparison);
    printf("\n");
    for (size_t i = 0; i < CLI_STRATEGIES; i++)
        if (cli_gain_text(comparison, i, text))
            printf("%s\n", text);
    printf("(largest: padded tokens of the largest batch; time: of an epoch, relative to the "
           "shortest.\n"
           "A step takes as long as its costliest batch, plus a twentieth of a full batch.)\n");
}

json_t *cli_comparison_json(const cli_comparison *comparison)
{
    json_t *list = json_array();
    for (size_t i = 0; i < CLI_STRATEGIES; i++) {
        const cli_figures *plan = &comparison->plans[i];
        json_t *object = cli_figures_json(plan);
        if (plan->status == RKS_OK)
            json_object_set_new(object, "relative_time",
                                json_real(cli_relative_time(comparison, plan)));
        json_array_append_new(list, object);
    }
    return json_pack("{s:i, s:s, s:o}", "schema_version", 1, "base", strategies[comparison->base],
                     "plans", list);
}
