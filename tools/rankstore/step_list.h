/* SPDX-License-Identifier: Apache-2.0
 *
 * step_list.h: which samples a step of a plan has. */
#ifndef RKS_TOOLS_STEP_LIST_H
#define RKS_TOOLS_STEP_LIST_H

#include "cli.h"
#include "state_file.h"

typedef struct cli_step_place {
    const char *path; /* a file with a state of the plan, whose epoch is meant; NULL: none */
    cli_state state;  /* what it holds */
    uint64_t step;    /* of the epoch, or of what is left of it after the state */
    uint32_t rank;    /* UINT32_MAX: all */
} cli_step_place;

/* COLLECTIVE, unless `store` is NULL: then the plan is over args->lengths, and samples have no
 * keys. Prints the samples on rank 0: rank, id, length and key of each in a line, or JSON lines; of
 * a piece its own length, and which items of its sample it is. */
rks_status cli_list_step(rks_store *store, const cli_plan_args *args, const cli_step_place *place,
                         bool as_json, rks_error *err);

#endif
