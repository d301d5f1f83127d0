/* SPDX-License-Identifier: Apache-2.0
 *
 * leave_out.h: shared by leave_out.c and dedup.c only. */
#ifndef RKS_BUILDER_LEAVE_OUT_H
#define RKS_BUILDER_LEAVE_OUT_H

#include "builder/parts_internal.h"

enum { RKS_LEAVING_LOOK = 1 << 12 }; /* samples between two looks at whether to stop */

typedef struct rks_leaving {
    rks_group *group;
    rks_parts *parts;
    rks_dataset *dataset;
    const uint32_t *holders;
    const rks_selection *selection;
    const rks_schema *schema;
    int key;           /* column that holds the key, and is no content; -1: none */
    rks_value *values; /* one a column */
    rks_buffer runs;   /* what this rank adds to the list */
} rks_leaving;

typedef rks_status (*rks_leaving_fn)(rks_leaving *at, void *user, const rks_shard *shard,
                                     uint64_t row, const rks_unit_summary *unit, uint32_t position,
                                     rks_error *err);

/* Calls `visit` for each sample that this rank holds and that is not excluded yet, by position. */
rks_status rks_leaving_each(rks_leaving *at, rks_leaving_fn visit, void *user, rks_error *err);
/* Samples that this rank holds, excluded ones among them. */
uint64_t rks_leaving_count(const rks_leaving *at);
/* Ascending, as the list takes them; NULL is accepted where there are none. */
void rks_leaving_sort(uint32_t *positions, size_t count);
/* Adds to this rank's part of the list; positions ascend. */
rks_status rks_leaving_add(rks_leaving *at, uint32_t position, rks_error *err);
/* COLLECTIVE. Joins what the ranks have added to the list. */
rks_status rks_leaving_join(rks_leaving *at, const char *phase, rks_status status, rks_error *err);

/* COLLECTIVE. dedup.c: all but the first of equal contents. */
rks_status rks_leaving_duplicates(rks_leaving *at, rks_error *err);
/* For tests of samples that differ and have one hash: which bits of hashes count; all of them. */
void rks_leaving_hash_bits(uint64_t bits);

#endif
