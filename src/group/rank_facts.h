/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_facts.h: what each rank brings to the bootstrap's first round: its version, host, doors and
 * key. */
#ifndef RKS_GROUP_RANK_FACTS_H
#define RKS_GROUP_RANK_FACTS_H

#include "group/group_state.h"

/* Round 1. Nothing in it is secret: the bootstrap may be a store that anyone can read. In all
 * versions of the library it has RKS_RANK_FACTS_SIZE bytes and begins with the version, so that
 * ranks of different ones read each other's, and nothing more. */
enum { RKS_RANK_FACTS_SIZE = 1024 };
typedef struct rks_rank_facts {
    char version[16];
    char host[32];
    char node[64];         /* what counts as a node */
    uint64_t doors[DOORS]; /* doors through which it can share descriptors */
    uint64_t network[2]; /* boot id's hash, network namespace: if both are equal, loopback connects
                          * the ranks */
    uint32_t silence_ms;
    uint32_t secret_source;
    uint8_t session[16];
    uint8_t public_key[RKS_KEY_SIZE];
    rks_error error;   /* set by a rank that cannot take part */
    uint8_t room[304]; /* zeros */
} rks_rank_facts;
_Static_assert(sizeof(rks_rank_facts) == RKS_RANK_FACTS_SIZE,
               "ranks of other versions send as many bytes");

/* Fills *mine, which is zero, and begins the job's secret. `several`: there are other ranks. */
rks_status rks_rank_facts_own(const rks_group_options *options, uint32_t rank, bool several,
                              rks_rank_facts *mine, job_secret *job, rks_error *err);
/* Ends the texts with NUL: they come from another rank. */
void rks_rank_facts_end_texts(rks_rank_facts *theirs);
/* RKS_ERR_ARGUMENT if ranks have different versions, limits or sources of the secret, or the error
 * of the first rank that cannot take part. */
rks_status rks_rank_facts_compare(const rks_rank_facts *all, uint32_t size, rks_error *err);
/* Numbers the group's nodes in the order in which they appear. All ranks of a node have a door in
 * common. */
rks_status rks_group_number_nodes(rks_group *group, const rks_rank_facts *all, rks_error *err);

#endif
