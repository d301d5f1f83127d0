/* SPDX-License-Identifier: Apache-2.0
 *
 * state_file.h: a saved state of a plan in a file, as C has it, or in Python's
 * {"version": 1, "plan": "..."}. */
#ifndef RKS_TOOLS_STATE_FILE_H
#define RKS_TOOLS_STATE_FILE_H

#include "cli.h"

enum { CLI_STATE_ROOM = 2 * RKS_STATE_MAX }; /* Python's form quotes the state */

typedef struct cli_state {
    char text[CLI_STATE_ROOM]; /* C's form */
    char words[RKS_STATE_MAX]; /* texts of options, which the plan's options borrow */
} cli_state;

/* Whoever calls it reads the file. It may hold anything: rks_plan_resume checks it. */
rks_status cli_state_read(const char *path, cli_state *state, rks_error *err);

/* Sets the options that the state's plan was made with, its seed and its number of ranks (unless
 * options->world is given). Those that a state does not hold, costs and weights of samples, stay:
 * rks_plan_resume names what differs then. A state without options changes nothing. */
void cli_state_options(cli_state *state, rks_plan_options *options);

#endif
