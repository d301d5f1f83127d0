/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy_table.h: the strategies side by side. */
#ifndef RKS_TOOLS_STRATEGY_TABLE_H
#define RKS_TOOLS_STRATEGY_TABLE_H

#include "plan_figures.h"

enum { CLI_STRATEGIES = 4 };
typedef struct cli_comparison {
    cli_figures plans[CLI_STRATEGIES]; /* random, sequential, sorted, bucket */
    size_t chosen;                     /* what --strategy says, else bucket */
    size_t base;      /* what the others are held against: --strategy, else random */
    double best_time; /* of the plans that can be made; 0 if none can */
} cli_comparison;

/* COLLECTIVE. Plans that cannot be made stand in their place with their error. `by_rank`: the
 * chosen plan's figures are kept by rank and step. End with cli_comparison_free. */
rks_status cli_compare(rks_store *store, const cli_plan_args *args, bool by_rank, cli_bar *bar,
                       cli_comparison *comparison, rks_error *err);
void cli_comparison_free(cli_comparison *comparison);

/* A plan's time relative to the shortest of all, from 1. */
double cli_relative_time(const cli_comparison *comparison, const cli_figures *plan);
/* "bucket: 31.0 % fewer padded tokens than random, an epoch takes 0.68 of its time"; false where
 * there is nothing to say: the base itself, and plans that cannot be made. */
bool cli_gain_text(const cli_comparison *comparison, size_t plan, char text[160]);

void cli_print_comparison(const cli_comparison *comparison);
/* {world, base, plans: [as plan --json, with relative_time]}. */
json_t *cli_comparison_json(const cli_comparison *comparison);

#endif
