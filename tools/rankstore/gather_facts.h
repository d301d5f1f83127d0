/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_facts.h: what each rank brings, on all of them. */
#ifndef RANKSTORE_GATHER_FACTS_H
#define RANKSTORE_GATHER_FACTS_H

#include "rankstore.h"

/* COLLECTIVE. `size` bytes of this rank; `status` with *err is what became of them, and the first
 * failing rank's is returned on all. To be freed also if it fails. */
static inline rks_status cli_gather(rks_group *group, const char *phase, rks_status status,
                                    const void *mine, size_t size, rks_gathered *all,
                                    rks_error *err)
{
    *all = (rks_gathered){0};
    return rks_group_allgather(group, phase, status, mine, size, all, err);
}

static inline const void *cli_gathered_of(const rks_gathered *all, uint32_t rank, size_t *size)
{
    *size = (size_t)(all->offsets[rank + 1] - all->offsets[rank]);
    return all->bytes + all->offsets[rank];
}

static inline void cli_gathered_free(rks_gathered *all)
{
    rks_release(all->bytes);
    rks_release(all->offsets);
}

#endif
