/* SPDX-License-Identifier: Apache-2.0
 *
 * mix.h: --mix, --mix-by, --mix-unit and --samples: how many times each sample occurs in an epoch,
 * and --remix and --curriculum: how that changes. */
#ifndef RKS_TOOLS_MIX_H
#define RKS_TOOLS_MIX_H

#include <jansson.h>

#include "cli.h"

/* What goes together: -1, or an exit code after saying what is wrong. */
int cli_mix_check(const cli_command *command, const cli_plan_args *args);
/* Sets args->options.mix if one of the options was given. Without a store (NULL) the plan is over
 * args->lengths. End with cli_mix_free, on failure too. */
rks_status cli_mix_take(rks_store *store, cli_plan_args *args, rks_error *err);
void cli_mix_free(cli_plan_args *args);

/* The plan with its changes: of the store, else over args->lengths. All ranks of a store come here,
 * after cli_mix_take. */
rks_status cli_mix_plan(rks_store *store, const cli_plan_args *args,
                        const rks_plan_options *options, rks_plan **plan, rks_error *err);
/* What each source has in an epoch of a plan with a mix. `list` is NULL without one; free it. */
rks_status cli_mix_sources(rks_plan *plan, const cli_plan_args *args, rks_plan_source **list,
                           size_t *count, rks_error *err);
/* A line for each source that is drawn. */
void cli_mix_print(const rks_plan_source *list, size_t count);
/* [{name, share, samples, draws, distinct, repeats, tokens, deviation}, ...] */
json_t *cli_mix_json(const rks_plan_source *list, size_t count);

#endif
