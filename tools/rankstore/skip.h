/* SPDX-License-Identifier: Apache-2.0
 *
 * skip.h: --skip: steps that a plan leaves out. */
#ifndef RKS_TOOLS_SKIP_H
#define RKS_TOOLS_SKIP_H

#include "cli.h"

/* Takes EPOCH:FIRST-LAST,... (NULL: none) into the options, which borrow `ranges`. -1, or an exit
 * code after saying what is wrong. */
int cli_skip_take(const cli_command *command, const char *text, rks_plan_options *options,
                  rks_step_range ranges[RKS_PLAN_SKIPS_MAX]);

#endif
