/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: what the store layer needs of the planner beyond rankstore.h: the sorted order can lie
 * in memory that the ranks of a node share, sorted by one of them.
 *
 * The order does not depend on options, seed or epoch: ids by length, longest first, equal lengths
 * by id. So several plans over the same lengths may borrow one order. */
#ifndef RKS_PLAN_PLAN_H
#define RKS_PLAN_PLAN_H

#include "rankstore/mix.h"
#include "rankstore/plan.h"

/* In every state; a change of any plan's bits needs another number. Version 2: random fills its
 * budget, bucket with batch_size alone cuts by padding. Other states of version 1 resume. Version 3
 * changes plans of a mix alone, so other plans stay of version 2. A mix that resumes a state of
 * version 2 is of that version from then on. */
enum { RKS_PLAN_VERSION = 2, RKS_PLAN_VERSION_MIX = 3 };

/* A length that no sample has: of one that is not there (a partial store). Never planned, and
 * counted as dropped. */
#define RKS_LENGTH_ABSENT UINT32_MAX

enum {
    RKS_PLAN_BATCH_MAX = 1 << 24,
    RKS_PLAN_WORLD_MAX = 1 << 20,
    RKS_PLAN_CAPACITY_MAX = 1 << 24, /* 4 bytes a token while bins are filled */
    RKS_PLAN_MULTIPLE_MAX = 1 << 16,
    RKS_PLAN_MICRO_MAX = 1 << 16
};

/* Bytes of the sorted order of `count` samples, aligned for uint32_t; 0 where these options need
 * none (random, sequential). Wrong options are refused as by rks_plan_create. */
rks_status rks_plan_order_bytes(uint64_t count, const rks_plan_options *options, uint64_t *bytes,
                                rks_error *err);

/* Writes the order. Takes 256 KiB for a while, and 4 bytes a sample where a length is above 65,535.
 */
rks_status rks_plan_sort(const uint32_t *lengths, uint64_t count, void *order, rks_error *err);

/* rks_plan_create with an order from rks_plan_sort over the same lengths; borrowed, it must outlive
 * the plan. NULL: sorted here where it is needed. */
rks_status rks_plan_create_sorted(const uint32_t *lengths, uint64_t count, const void *order,
                                  const char *dataset, const rks_plan_options *options,
                                  rks_plan **plan, rks_error *err);

struct rks_plan_share_options; /* plan/share.h */
/* The same, with the epochs of the ranks of a node in one place (plan/share.h); `share` NULL, or a
 * mix in the options: each rank has its own. */
rks_status rks_plan_create_shared(const uint32_t *lengths, uint64_t count, const void *order,
                                  const char *dataset, const rks_plan_options *options,
                                  const struct rks_plan_share_options *share, rks_plan **plan,
                                  rks_error *err);

/* After how many samples long work looks for an interrupt, for tests; 0: the default. Process-wide;
 * not while a plan is made. */
void rks_plan_stretch_set(uint64_t samples);

/* Is the batch of that step there, without planning a stretch of its own? */
bool rks_plan_is_at_hand(const rks_plan *plan, uint64_t epoch, uint64_t step);

/* A mix in words, with a digest of all of it: "web=0.7 code=0.2
 * samples=900 unit=samples (16 digits)". *digest
 * may be NULL. `count` is that of the plan's samples. */
void rks_mix_describe(const rks_plan_mix *mix, uint64_t count, char *text, size_t room,
                      uint64_t *digest);

#endif
