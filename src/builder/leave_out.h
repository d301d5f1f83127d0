/* SPDX-License-Identifier: Apache-2.0
 *
 * leave_out.h: which sealed samples a build's selection leaves out: duplicates by content, then all
 * but the N that a sample takes. Every rank comes to the same list. The agreements are drawn at the
 * top of build.c. */
#ifndef RKS_BUILDER_LEAVE_OUT_H
#define RKS_BUILDER_LEAVE_OUT_H

#include "base/pairs.h"
#include "builder/parts_internal.h"
#include "group/agreement.h"
#include "rankstore/store.h"

enum { RKS_LEAVING_LOOK = 1 << 12 }; /* samples between two looks at whether to stop */

/* Begin with group, parts and selection, and -1 for key, offered and memory. */
typedef struct rks_leaving {
    rks_group *group;
    rks_parts *parts;
    const rks_selection *selection;
    rks_dataset
        *dataset; /* NULL: not yet made; only a rank whose own status is RKS_OK looks at it */
    const uint32_t *holders;
    const rks_schema *schema;
    int key;           /* column that holds the key, and is not content; -1: none */
    rks_value *values; /* one a column */
    rks_buffer runs;   /* what this rank adds to the list */
    uint64_t bytes;    /* column and key bytes of these samples */
    /* To look for duplicates on one node: memory that all its ranks write to and read. */
    int offered; /* the leader's own descriptor */
    int memory;
    rks_fd_offer *offer;
} rks_leaving;

/* Before the ranks agree that all rows are read: the fact `offer`, if there is one, goes with that.
 */
rks_status rks_leaving_begin(rks_leaving *at, rks_error *err);
/* Right after that agreement. */
rks_status rks_leaving_take(rks_leaving *at, const rks_agreed *agreed, size_t fact, rks_error *err);
/* COLLECTIVE. Sets what the selection leaves out of the sealed samples: dataset->excluded, count
 * and id. Without dedup and sample there is nothing to do and no agreement. `status` is this rank's
 * own, and so is what is returned; `dataset` is not looked at unless it is RKS_OK. */
rks_status rks_leaving_run(rks_leaving *at, rks_status status, rks_dataset *dataset,
                           const uint32_t *holders, rks_error *err);
void rks_leaving_end(rks_leaving *at);

/* ---- for the files that choose --------------------------------------------------------------- */

typedef rks_status (*rks_leaving_fn)(rks_leaving *at, void *user, const rks_shard *shard,
                                     uint64_t row, const rks_unit_summary *unit, uint32_t position,
                                     rks_error *err);

/* Calls `visit` for each sample that this rank holds and that is not excluded yet, by position. */
rks_status rks_leaving_each(rks_leaving *at, rks_leaving_fn visit, void *user, rks_error *err);
/* Samples that this rank holds, excluded ones among them. */
uint64_t rks_leaving_count(const rks_leaving *at);
/* Ascending, as the list takes them; NULL is accepted if there are none. */
void rks_leaving_sort(uint32_t *positions, size_t count);
/* Adds to this rank's part of the list; positions ascend. */
rks_status rks_leaving_add(rks_leaving *at, uint32_t position, rks_error *err);
/* After a use of the record, with its status: a page that could not be read is the error that counts,
 * since what was made of its zeros says nothing. */
rks_status rks_leaving_used(rks_status status, const rks_shard *shard, uint64_t row,
                            const rks_record_view *view, rks_error *err);
/* Adds a record's column and key bytes to *bytes. */
rks_status rks_leaving_weigh(rks_leaving *at, const void *payload, size_t size, size_t key_size,
                             uint64_t *bytes, rks_error *err);
/* COLLECTIVE. Joins what the ranks have added to the list. *own is what became of this rank before,
 * and then; returns what all ranks return. *undecided (may be NULL) becomes the sum over the ranks:
 * unless it is 0 nothing is joined, and what a rank has added stays. */
rks_status rks_leaving_join(rks_leaving *at, const char *phase, rks_status *own,
                            uint64_t *undecided, rks_error *err);

/* COLLECTIVE. dedup.c: all but the first of equal contents. *own and what is returned: as above. */
rks_status rks_leaving_duplicates(rks_leaving *at, rks_status *own, rks_error *err);
/* COLLECTIVE. lowest_draws.c: all but the N with the lowest draws. */
rks_status rks_leaving_rest(rks_leaving *at, rks_status *own, rks_error *err);

/* An entry of a sample's content: hash, low bits of the hash with the position below them. */
static inline bool rks_same_hash(const rks_pair *one, const rks_pair *other)
{
    return one->first == other->first && one->second >> 32 == other->second >> 32;
}

/* same_contents.c: of entries with equal hashes, sorted, those whose content an earlier one has are
 * added to this rank's list. *undecided: shards that are needed cannot be opened from here, and
 * nothing is added. */
rks_status rks_leaving_compare(rks_leaving *at, const rks_pair *entries, size_t count,
                               bool *undecided, rks_error *err);
/* The same by a store of the dataset, which asks other ranks. */
rks_status rks_leaving_compare_by_store(rks_leaving *at, rks_store *store, const rks_pair *entries,
                                        size_t count, rks_error *err);

/* For tests of samples that differ and have one hash: which bits of hashes count; all of them. */
void rks_leaving_hash_bits(uint64_t bits);
/* For tests: how many draws are looked at first, on each side of where the last one is expected;
 * UINT64_MAX: as many as lowest_draws.c says. */
void rks_leaving_window(uint64_t draws);

#endif
