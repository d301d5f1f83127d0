/* SPDX-License-Identifier: Apache-2.0
 *
 * exclusions.h: which sealed samples a build's selection leaves out: first duplicates by content,
 * then all but the N that a sample of N draws. Every rank gets the same list. The agreements are
 * drawn at the top of build.c. */
#ifndef RKS_BUILDER_EXCLUSIONS_H
#define RKS_BUILDER_EXCLUSIONS_H

#include "base/sort_pairs.h"
#include "builder/parts_state.h"
#include "group/agreement.h"
#include "rankstore/store.h"

enum { RKS_EXCLUSIONS_LOOK = 1 << 12 }; /* samples between two checks for an interrupt */

/* Begin with group, parts and selection, and with -1 for key, offered and memory. */
typedef struct rks_exclusions {
    rks_group *group;
    rks_parts *parts;
    const rks_selection *selection;
    rks_dataset *dataset; /* NULL: not made yet; used only by a rank whose own status is RKS_OK */
    const uint32_t *holders;
    const rks_schema *schema;
    int key;           /* column that holds the key and does not count as content; -1: none */
    rks_value *values; /* one for each column */
    rks_buffer runs;   /* the runs that this rank adds to the list */
    uint64_t bytes;    /* column and key bytes of those samples */
    /* Memory for duplicates on one node, which all its ranks write and read. */
    int offered; /* the leader's descriptor */
    int memory;
    rks_fd_offer *offer;
} rks_exclusions;

/* Call it before the ranks agree that all rows are read. The fact `offer`, if there is one, is part
 * of that agreement. */
rks_status rks_exclusions_begin(rks_exclusions *at, rks_error *err);
/* Call it right after that agreement. */
rks_status rks_exclusions_receive(rks_exclusions *at, const rks_agreed *agreed, size_t fact,
                                  rks_error *err);
/* COLLECTIVE. Leaves out samples as the selection says: sets dataset->excluded, count and id.
 * Without dedup and sample there is nothing to do and no agreement. `status`, and what is returned,
 * are this rank's own; `dataset` is used only if it is RKS_OK. */
rks_status rks_exclusions_run(rks_exclusions *at, rks_status status, rks_dataset *dataset,
                              const uint32_t *holders, rks_error *err);
void rks_exclusions_end(rks_exclusions *at);

/* ---- for the files that choose --------------------------------------------------------------- */

typedef rks_status (*rks_exclusions_fn)(rks_exclusions *at, void *user, const rks_shard *shard,
                                        uint64_t row, const rks_unit_summary *unit,
                                        uint32_t position, rks_error *err);

/* Calls `visit` for each sample that this rank holds and that is not excluded yet, by position. */
rks_status rks_exclusions_each(rks_exclusions *at, rks_exclusions_fn visit, void *user,
                               rks_error *err);
/* Returns how many samples this rank holds, with excluded ones. */
uint64_t rks_exclusions_held(const rks_exclusions *at);
/* Sorts positions in ascending order, as the list needs them. NULL is allowed if there are none. */
void rks_exclusions_sort(uint32_t *positions, size_t count);
/* Adds to this rank's part of the list. Positions must be ascending. */
rks_status rks_exclusions_add(rks_exclusions *at, uint32_t position, rks_error *err);
/* Call it after a use of the record, with its status. A page that could not be read is the error
 * that counts, since nothing follows from its zeros. */
rks_status rks_exclusions_check_read(rks_status status, const rks_shard *shard, uint64_t row,
                                     const rks_record_view *view, rks_error *err);
/* Adds a record's column and key bytes to *bytes. */
rks_status rks_exclusions_weigh(rks_exclusions *at, const void *payload, size_t size,
                                size_t key_size, uint64_t *bytes, rks_error *err);
/* COLLECTIVE. Joins what the ranks have added to the list. *own: this rank's result before, and
 * afterwards; returns what all ranks return. *undecided (may be NULL) becomes the sum over the
 * ranks; unless it is 0, nothing is joined and what a rank has added stays. */
rks_status rks_exclusions_join(rks_exclusions *at, const char *phase, rks_status *own,
                               uint64_t *undecided, rks_error *err);

/* COLLECTIVE. dedup.c: leaves out all but the first of equal contents. *own and the return value:
 * as above. */
rks_status rks_exclusions_dedup(rks_exclusions *at, rks_status *own, rks_error *err);
/* COLLECTIVE. random_subset.c: leaves out all but the N with the lowest draws. */
rks_status rks_exclusions_subset(rks_exclusions *at, rks_status *own, rks_error *err);

/* Entries of contents: `first` is the hash; `second` has low bits of the hash above the
 * position. */
static inline bool rks_same_hash(const rks_pair *one, const rks_pair *other)
{
    return one->first == other->first && one->second >> 32 == other->second >> 32;
}

/* duplicate_compare.c: of sorted entries with equal hashes, adds those to this rank's list whose
 * content an earlier one has. *undecided: this rank cannot open the shards that it needs, and
 * nothing is added. */
rks_status rks_exclusions_compare(rks_exclusions *at, const rks_pair *entries, size_t count,
                                  bool *undecided, rks_error *err);
/* The same with a store of the dataset, which asks other ranks. */
rks_status rks_exclusions_compare_by_store(rks_exclusions *at, rks_store *store,
                                           const rks_pair *entries, size_t count, rks_error *err);

/* For tests of different samples with one hash: which bits of hashes count; by default all. */
void rks_exclusions_hash_bits(uint64_t bits);
/* For tests: how many draws are looked at first, on each side of where the last one is expected;
 * UINT64_MAX: as many as random_subset.c computes. */
void rks_exclusions_window(uint64_t draws);

#endif
