/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: what memory the ranks hold, for the commands that print figures of a run. */
#ifndef RKS_TOOLS_MEMORY_H
#define RKS_TOOLS_MEMORY_H

#include <jansson.h>

#include "rankstore.h"

/* Begin with {0}; end with cli_memory_free. */
typedef struct cli_memory {
    rks_memory_use *ranks; /* rank_count entries */
    rks_memory_most most;
    uint32_t rank_count;
} cli_memory;

/* COLLECTIVE. */
rks_status cli_memory_gather(rks_group *group, cli_memory *memory, rks_error *err);
/* {KIND: {current, current_rank, peak, peak_rank, least_peak, ranks: [{current, peak}]}}, the
 * caller's. */
json_t *cli_memory_json(const cli_memory *memory);
/* A line for each kind that any rank held. */
void cli_memory_print(const cli_memory *memory);
void cli_memory_free(cli_memory *memory);

#endif
