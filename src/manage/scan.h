/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.h: all samples of a store, one after another, in bounded memory. */
#ifndef RKS_MANAGE_SCAN_H
#define RKS_MANAGE_SCAN_H

#include "store/store.h"

/* The sample's values, key and schema; valid during the call. */
typedef rks_status (*rks_scan_fn)(void *user, uint64_t id, const rks_sample *sample, uint64_t bytes,
                                  rks_error *err);

typedef struct rks_scan {
    rks_store *store;
    int64_t owner; /* only what this rank serves; -1: all that somebody serves */
    rks_scan_fn visit;
    void *user;
} rks_scan;

/* Samples [first, end), ascending, the next batch on its way while one is visited: at most 32 MiB
 * of either, or one sample. Interrupts, and ranks that fail, are noticed. Not collective. */
rks_status rks_store_scan(const rks_scan *scan, uint64_t first, uint64_t end, rks_error *err);

#endif
