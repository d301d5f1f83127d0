/* SPDX-License-Identifier: Apache-2.0
 *
 * agreement.h: the one idiom of collective work. Each rank does its part alone and keeps the first
 * status that is not RKS_OK. Then one agreement carries the first failure, and the few facts that
 * all ranks need:
 *
 *     status = look_around(directory, &mine, err);
 *     const rks_fact facts[] = {rks_fact_same("exchange", options->exchange),
 *                               rks_fact_fixed(&mine, sizeof(mine))};
 *     status = rks_group_agree_on(group, "open: dataset", status, facts, 2, &agreed, err);
 *     for (uint32_t rank = 0; status == RKS_OK && rank < ranks; rank++)
 *         memcpy(&one, rks_agreed_get(&agreed, rank, 1, NULL), sizeof(one));
 *
 * What a rank makes of the facts is its own part again: if that fails, the next agreement carries
 * it. So no agreement is spent on a step that changes nothing for the other ranks. */
#ifndef RKS_GROUP_AGREEMENT_H
#define RKS_GROUP_AGREEMENT_H

#include "group/group.h"

enum rks_fact_kind {
    RKS_FACT_FIXED,
    RKS_FACT_OPTIONAL,
    RKS_FACT_BYTES,
    RKS_FACT_SAME,
    RKS_FACT_SUM
};

/* Reports how rank `rank`'s value differs from rank 0's: fills *err and returns its status. Called
 * only for values that differ. `ours` or `theirs` is NULL if that rank gave none. The bytes do not
 * end with NUL. */
typedef rks_status (*rks_differ_fn)(const char *name, const char *ours, size_t our_size,
                                    const char *theirs, size_t their_size, uint32_t rank,
                                    rks_error *err);

/* One of the values that a rank brings to an agreement. All ranks bring the same list of kinds and
 * names. The bytes belong to the caller and are read during the call.
 *
 * The facts bound what the agreement can need: a rank allocates no more, whatever another one
 * announces or sends. */
typedef struct rks_fact {
    enum rks_fact_kind kind;
    const char *name;  /* of RKS_FACT_SAME, for the error: "exchange" */
    const void *bytes; /* NULL: this rank has no value */
    size_t size;
    uint64_t most;        /* of RKS_FACT_BYTES: bytes of all ranks together */
    rks_differ_fn differ; /* of RKS_FACT_SAME; NULL: "NAME differs between rank 0 and rank 3" */
    uint64_t *sums;       /* of RKS_FACT_SUM */
} rks_fact;

/* `size` bytes of every rank. Another size from a rank is an error. */
static inline rks_fact rks_fact_fixed(const void *bytes, size_t size)
{
    return (rks_fact){.kind = RKS_FACT_FIXED, .bytes = bytes, .size = size};
}

/* `size` bytes, the same size on all ranks, or nothing (NULL). */
static inline rks_fact rks_fact_optional(const void *bytes, size_t size)
{
    return (rks_fact){.kind = RKS_FACT_OPTIONAL, .bytes = bytes, .size = size};
}

/* Any number of bytes from each rank; NULL: none. `most`, the same on all ranks, limits all of them
 * together. If it is exceeded, the error names the rank that exceeds it. */
static inline rks_fact rks_fact_bytes(const void *bytes, size_t size, uint64_t most)
{
    return (rks_fact){.kind = RKS_FACT_BYTES, .bytes = bytes, .size = size, .most = most};
}

/* A value that must be the same on all ranks. If it is not, all return RKS_ERR_ARGUMENT, which
 * names the first value that differs and two ranks. NULL: not given, which equals only another
 * NULL. Of a value above 16 KiB only the beginning is sent, with a digest of all of it. */
static inline rks_fact rks_fact_same_bytes(const char *name, const void *bytes, size_t size,
                                           rks_differ_fn differ)
{
    return (rks_fact){
        .kind = RKS_FACT_SAME, .name = name, .bytes = bytes, .size = size, .differ = differ};
}

rks_fact rks_fact_same(const char *name, const char *text);
/* The error shows both texts: "exchange differs: rank 0 has pull, rank 3 has mpi". */
rks_fact rks_fact_same_shown(const char *name, const char *text);

/* Writes a list of names as one text that differs for any two lists, for rks_fact_same; NULL for no
 * list. The caller frees it with rks_free. RKS_ERR_MEMORY. */
rks_status rks_list_text(const char *const *names, size_t count, char **text, rks_error *err);

/* If the agreement succeeds, each of the `count` numbers becomes the sum over all ranks. */
static inline rks_fact rks_fact_sum(uint64_t *sums, size_t count)
{
    return (rks_fact){
        .kind = RKS_FACT_SUM, .bytes = sums, .size = count * sizeof(*sums), .sums = sums};
}

/* The facts of all ranks. The group owns the memory and reuses it in its next collective call. */
typedef struct rks_agreed {
    const rks_group *group;
    uint64_t sequence;
} rks_agreed;

/* COLLECTIVE. One call of the control tree, however many facts there are. If a rank brings a status
 * other than RKS_OK, all return the first failing rank's error, as in rks_group_agree. Then values
 * that must be the same are compared, rank after rank and fact after fact. `agreed`: NULL if only
 * sums and comparisons are needed. */
rks_status rks_group_agree_on(rks_group *group, const char *phase, rks_status status,
                              const rks_fact *facts, size_t count, rks_agreed *agreed,
                              rks_error *err);

/* Returns the bytes of a rank's fact, aligned to 8; NULL if the rank gave none. `size` may be
 * NULL. */
const void *rks_agreed_get(const rks_agreed *agreed, uint32_t rank, size_t fact, size_t *size);

/* A node's leader sends a descriptor to the ranks of its node, between two agreements that they
 * make anyway:
 *
 *     open      before the first agreement; the leader brings `fd`, others -1
 *     fact      is part of the first agreement
 *     take      right after it, on all ranks: *shared becomes this rank's own duplicate
 *     close     after the second agreement, which shows the leader that all have theirs; until
 *               then it keeps `fd` open
 *
 * Between processes it uses SCM_RIGHTS and checks the peer's user; between threads, dup. `fact` and
 * `close` accept NULL, for a rank whose `open` has failed. */
typedef struct rks_fd_offer rks_fd_offer;
rks_status rks_fd_offer_open(rks_group *group, int fd, rks_fd_offer **offer, rks_error *err);
rks_fact rks_fd_offer_fact(const rks_fd_offer *offer);
rks_status rks_fd_offer_take(rks_fd_offer *offer, const rks_agreed *agreed, size_t fact,
                             int *shared, rks_error *err);
void rks_fd_offer_close(rks_fd_offer *offer);

#endif
