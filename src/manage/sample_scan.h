/* SPDX-License-Identifier: Apache-2.0
 *
 * sample_scan.h: reads all samples of a store, one after another, in bounded memory. */
#ifndef RKS_MANAGE_SAMPLE_SCAN_H
#define RKS_MANAGE_SAMPLE_SCAN_H

#include "store/store.h"

/* Receives a sample's values, key and schema, which are valid during the call. */
typedef rks_status (*rks_scan_fn)(void *user, uint64_t id, const rks_sample *sample, uint64_t bytes,
                                  rks_error *err);

typedef struct rks_scan {
    rks_store *store;
    int64_t owner; /* -1: all samples; else only those that this rank serves */
    rks_scan_fn visit;
    void *user;
} rks_scan;

/* Visits samples [first, end) in ascending order, and fetches the next batch meanwhile. Each batch
 * has at most 32 MiB, or one sample. Returns an error if interrupted or if a rank fails. Not
 * collective. */
rks_status rks_store_scan(const rks_scan *scan, uint64_t first, uint64_t end, rks_error *err);

#endif
