/* SPDX-License-Identifier: Apache-2.0
 *
 * balance.h: --balance: what each sample costs a rank, for the balance over ranks alone. */
#ifndef RKS_TOOLS_BALANCE_H
#define RKS_TOOLS_BALANCE_H

#include "cli.h"

/* Sets args->options.balance if --balance was given: the costs that Plan's balance= has, bit for
 * bit. `store` NULL: over args->lengths, which have no columns. The lengths must stay as they are.
 * End with cli_balance_free, on failure too. */
rks_status cli_balance_take(rks_store *store, cli_plan_args *args, rks_error *err);
void cli_balance_free(cli_plan_args *args);

#endif
