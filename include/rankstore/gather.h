/* SPDX-License-Identifier: Apache-2.0
 *
 * rankstore/gather.h: uneven results of all ranks to one. Part of rankstore.h. */
#ifndef RANKSTORE_GATHER_H
#define RANKSTORE_GATHER_H

#include "rankstore/group.h"
#include "rankstore/schema.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gathers results: samples with the key (name, index), of which `schema` describes one. Each rank
 * adds its results; rank `dst` receives all of them in the order of (name, index), one at a time,
 * in bounded memory. Nothing goes through a GPU or pickle. Until the call ends, results are in
 * files of a temporary directory under `directory` (NULL: TMPDIR, else /tmp). */
typedef struct rks_gather rks_gather;

typedef struct rks_gather_item {
    const char *name;
    uint64_t index;
    uint32_t rank;           /* who added it */
    const rks_value *values; /* valid during the callback */
    size_t name_size;        /* bytes of `name`, which may hold NULs; one NUL follows them */
} rks_gather_item;
/* Receives a result. An error ends the gather with that error on all ranks. */
typedef rks_status (*rks_gather_fn)(void *user, const rks_gather_item *item, rks_error *err);

typedef struct rks_gather_report {
    size_t struct_size;
    uint64_t items; /* all ranks */
    uint64_t names;
    uint64_t gaps;       /* indices missing between a name's lowest and highest */
    char gap_first[256]; /* the first gaps: "name: 3..5"; may be cut. '?' stands for a control
                          * character of a name */
} rks_gather_report;

/* COLLECTIVE. */
RKS_API rks_status rks_gather_open(rks_group *group, const char *schema, const char *directory,
                                   rks_gather **gather, rks_error *err);
/* Adds a result. The name has 1 to 511 bytes, any, like a key of a dataset. RKS_ERR_DATA above 3
 * GiB a result. */
RKS_API rks_status rks_gather_add_named(rks_gather *gather, const void *name, size_t name_size,
                                        uint64_t index, const rks_value *values, rks_error *err);
/* Adds a result whose name ends with a NUL. */
RKS_API rks_status rks_gather_add(rks_gather *gather, const char *name, uint64_t index,
                                  const rks_value *values, rks_error *err);
/* COLLECTIVE. Sends all results to rank `dst`, which alone calls `receive`. RKS_ERR_DATA names both
 * ranks if a (name, index) was added twice. Pass RKS_OK, or the status
 * that the caller's own work ended with: then all ranks fail with it and *err. */
RKS_API rks_status rks_gather_run(rks_gather *gather, rks_status status, uint32_t dst,
                                  rks_gather_fn receive, void *user, rks_gather_report *report,
                                  rks_error *err);
RKS_API void rks_gather_close(rks_gather *gather); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
