/* SPDX-License-Identifier: Apache-2.0
 *
 * batches_file.h: the batches of an epoch as a file, for those who read them with something else.
 */
#ifndef RKS_TOOLS_BATCHES_FILE_H
#define RKS_TOOLS_BATCHES_FILE_H

#include "cli.h"
#include "plan_figures.h"

/* Writes figures->plan's epoch to `path` ("-": stdout) in the binary form of FORMAT.md, "Batches of
 * a plan", or as JSON lines. A regular file appears when it is whole. Fails with RKS_ERR_IO naming
 * the file, with RKS_ERR_CANCELLED after Ctrl-C. */
rks_status cli_write_batches(rks_store *store, const cli_figures *figures,
                             const cli_plan_args *args, const char *path, bool as_json,
                             cli_bar *bar, rks_error *err);

#endif
