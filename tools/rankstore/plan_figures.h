/* SPDX-License-Identifier: Apache-2.0
 *
 * plan_figures.h: what a plan's epoch costs whom: by strategy, step and rank. */
#ifndef RKS_TOOLS_PLAN_FIGURES_H
#define RKS_TOOLS_PLAN_FIGURES_H

#include <jansson.h>

#include "cli.h"

/* What a rank does in the epoch, and what lies on its disk. */
typedef struct cli_rank_figures {
    uint64_t samples, tokens, padded_tokens;
    uint64_t largest_batch;   /* padded tokens */
    uint64_t owned_bytes;     /* of the shards that it serves */
    uint64_t fetched_samples; /* of its batches, in shards of other ranks */
    double fetched_bytes;     /* the same, each sample at its shard's mean size */
} cli_rank_figures;

/* Steps or ranks, some next to each other as one where there are many. */
enum { CLI_STEP_BINS = 120, CLI_RANK_BINS = 64 };
typedef struct cli_step_bin {
    uint64_t first, end;       /* steps */
    uint64_t least, most, sum; /* tokens of a step */
} cli_step_bin;

typedef struct cli_figures {
    const char *strategy;
    uint32_t world;
    rks_status status; /* not RKS_OK: there is no such plan, and err says why */
    rks_error err;
    rks_plan_report report;
    double seconds; /* planning took */
    double time;    /* sum over steps of the cost of the costliest batch, and of a step itself: what
                     * an epoch takes where ranks wait for each other, in the units of `cost` */
    rks_plan *plan; /* only if asked for */
    uint32_t *bounds; /* of the neighbourhoods, as rks_plan_bounds */
    size_t bound_count;
    rks_plan_source *sources; /* with a mix */
    size_t source_count;
    /* By rank and step, only if asked for: */
    cli_rank_figures *ranks; /* world of them */
    size_t step_bins, rank_bins;
    cli_step_bin *steps;
    double *busy; /* step_bins x rank_bins: mean of cost / cost of the step's costliest batch */
} cli_figures;

/* --steps per_epoch beside options that it does not go with: refused, except if strategies are
 * compared, of which random alone takes it. */
bool cli_steps_misfit(const cli_plan_args *args);
#define CLI_STEPS_RULE "--steps per_epoch needs --strategy random and --max-tokens"

/* COLLECTIVE, unless `store` is NULL: then the plan is over args->lengths. Makes the plan on all
 * ranks; rank 0 goes over its epoch. A plan that cannot be made
 * is not a failure: figures->status tells it. Fails if memory is short, a peer is lost or Ctrl-C
 * was pressed. End with cli_figures_free. */
enum cli_keep { CLI_KEEP_BY_RANK = 1, CLI_KEEP_PLAN = 2 };
rks_status cli_figures_make(rks_store *store, const cli_plan_args *args, const char *strategy,
                            unsigned keep, cli_bar *bar, cli_figures *figures, rks_error *err);
void cli_figures_free(cli_figures *figures);

/* Steps [first, end) or ranks of bin `i` of `bins` that `count` are spread over. */
uint64_t cli_bin_first(uint64_t count, size_t bins, size_t i);

/* {strategy, samples, steps, ...} as `plan --json` prints it. */
json_t *cli_figures_json(const cli_figures *figures);

#endif
