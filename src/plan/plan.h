/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: the planner's interface for the store layer, beyond rankstore.h. One rank of a node can
 * sort the lengths into memory that the node's ranks share.
 *
 * The sorted order holds the ids by length, longest first, and equal lengths by id. It does not
 * depend on options, seed or epoch, so several plans over the same lengths may borrow one order. */
#ifndef RKS_PLAN_PLAN_H
#define RKS_PLAN_PLAN_H

#include "rankstore/mix.h"
#include "rankstore/plan.h"

/* The planner version of plans without a mix, and with one. Every state holds it, and a state of
 * another version is refused. A change of any plan's bits needs a new number. */
enum { RKS_PLAN_VERSION = 2, RKS_PLAN_VERSION_MIX = 3 };

/* The length of an absent sample whose length is not known, or that is not chosen. The planner
 * never plans it and counts it as dropped. */
#define RKS_LENGTH_ABSENT UINT32_MAX

enum {
    RKS_PLAN_BATCH_MAX = 1 << 24,
    RKS_PLAN_WORLD_MAX = 1 << 20,
    RKS_PLAN_CAPACITY_MAX = 1 << 24, /* 4 bytes a token while bins are filled */
    RKS_PLAN_MULTIPLE_MAX = 1 << 16,
    RKS_PLAN_MICRO_MAX = 1 << 16
};

/* Sets *bytes to the size of the sorted order of `count` samples, which must be aligned for
 * uint32_t. Sets 0 if these options need no order (random, sequential). RKS_ERR_ARGUMENT for wrong
 * options, as from rks_plan_create. RKS_ERR_UNSUPPORTED for 2^32 samples or more. */
rks_status rks_plan_order_bytes(uint64_t count, const rks_plan_options *options, uint64_t *bytes,
                                rks_error *err);

/* Writes the sorted order of `count` lengths to `order`, which has the size of
 * rks_plan_order_bytes. Allocates up to 256 KiB during the call, or 4 bytes a sample if a length is
 * above 65,535. RKS_ERR_UNSUPPORTED for 2^32 samples or more, RKS_ERR_MEMORY, or RKS_ERR_CANCELLED
 * after an interrupt. */
rks_status rks_plan_sort(const uint32_t *lengths, uint64_t count, void *order, rks_error *err);

/* Makes a plan like rks_plan_create, but borrows `order`, made by rks_plan_sort over the same
 * lengths. It must outlive the plan. NULL: the plan sorts, if it needs the order, and owns it. */
rks_status rks_plan_create_sorted(const uint32_t *lengths, uint64_t count, const void *order,
                                  const char *dataset, const rks_plan_options *options,
                                  rks_plan **plan, rks_error *err);

/* The samples of a plan. */
typedef struct rks_plan_samples {
    const uint32_t *lengths; /* borrowed */
    uint64_t count;
    const void *order;            /* as of rks_plan_create_sorted */
    const char *dataset;          /* its id; NULL if unknown */
    const rks_absent_run *absent; /* ascending, and they do not meet: these are planned, and left
                                   * out of the batches (absent_steps.h). Copied */
    size_t absent_count;
} rks_plan_samples;

struct rks_plan_share_options; /* plan/cache/epoch_cache.h */
/* Makes a plan like rks_plan_create_sorted, and shares its epochs with the other ranks of the node
 * (plan/cache/epoch_cache.h). If `share` is NULL or the options have a mix, each rank makes its own
 * epochs. */
rks_status rks_plan_create_shared(const rks_plan_samples *samples, const rks_plan_options *options,
                                  const struct rks_plan_share_options *share, rks_plan **plan,
                                  rks_error *err);

/* Sets after how many samples long work checks for an interrupt, for tests. 0 restores the default,
 * 2^20. Process-wide; do not call it while a plan is made. */
void rks_plan_stretch_set(uint64_t samples);

/* Returns true if the plan can give the batch of that step without planning. A plan with a mix may
 * hold only a stretch of the epoch's steps. */
bool rks_plan_is_computed(const rks_plan *plan, uint64_t epoch, uint64_t step);

/* Writes a mix in words to `text` of `room` bytes, with a digest of all of it: "web=0.7 code=0.2
 * samples=900 unit=samples (16 digits)". Also sets *digest, unless it is NULL. `count` is the
 * plan's number of samples. */
void rks_mix_describe(const rks_plan_mix *mix, uint64_t count, char *text, size_t room,
                      uint64_t *digest);

#endif
