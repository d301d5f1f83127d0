/* SPDX-License-Identifier: Apache-2.0
 *
 * same.h: what callers of a collective call have to give alike. */
#ifndef RKS_GROUP_SAME_H
#define RKS_GROUP_SAME_H

#include "group/group.h"

typedef struct rks_given {
    const char *name; /* as callers know it: "where" */
    const char *text; /* NULL: not given */
} rks_given;

/* COLLECTIVE. Each rank brings `count` of them, by the same names. RKS_ERR_ARGUMENT on all ranks
 * names the first that differs: "export: where differs between rank 0 and rank 2". `status` and
 * *err are as in rks_group_agree. */
rks_status rks_same_on_all(rks_group *group, const char *what, rks_status status,
                           const rks_given *given, size_t count, rks_error *err);

/* The names as one text, which tells any two lists apart; NULL for no list. rks_free;
 * RKS_ERR_MEMORY.
 */
rks_status rks_given_list(const char *const *names, size_t count, char **text, rks_error *err);

#endif
