/* SPDX-License-Identifier: Apache-2.0
 *
 * filter.h: the samples of an open store that a condition holds for. */
#ifndef RKS_TOOLS_FILTER_H
#define RKS_TOOLS_FILTER_H

#include "rankstore.h"

typedef struct cli_filter cli_filter;

/* `where` as rks_where_parse, over the store's columns and, where no column has that name, `id` and
 * `length`; NULL: every sample. Samples are read only if the condition names a column of
 * theirs. RKS_ERR_ARGUMENT as rks_where_parse. */
rks_status cli_filter_open(rks_store *store, const char *where, cli_filter **filter,
                           rks_error *err);
void cli_filter_close(cli_filter *filter); /* NULL is accepted */

/* Calls `take` for the samples from `first` to before `first` + CLI_FILTER_CHUNK that are there and
 * fit, in id order, for the first `most` of them (0: all). A failure of `take` ends the walk. */
enum { CLI_FILTER_CHUNK = 256 };
typedef rks_status (*cli_take)(void *user, uint64_t id, rks_error *err);
rks_status cli_filter_walk(cli_filter *filter, uint64_t first, uint64_t most, cli_take take,
                           void *user, rks_error *err);

#endif
