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

/* Results are samples with the key (name, index): `schema` describes one result. Each rank adds
 * what it has; `dst` receives all of it ordered by (name, index), one at a time, with its memory
 * bounded. Nothing goes through a GPU or pickle; results lie in files of a temporary directory
 * under `directory` (NULL: TMPDIR, else /tmp) until the call ends. */
typedef struct rks_gather rks_gather;

typedef struct rks_gather_item {
    const char *name;
    uint64_t index;
    uint32_t rank;           /* who added it */
    const rks_value *values; /* valid during the callback */
    size_t name_size;        /* bytes of `name`, which may hold NULs; one NUL follows them */
} rks_gather_item;
/* A failure ends the gather with that error on all ranks. */
typedef rks_status (*rks_gather_fn)(void *user, const rks_gather_item *item, rks_error *err);

typedef struct rks_gather_report {
    size_t struct_size;
    uint64_t items; /* all ranks */
    uint64_t names;
    uint64_t gaps;       /* indices missing between a name's lowest and highest */
    char gap_first[256]; /* the first ones: "name: 3..5"; may be cut. Control characters of a name
                          * are shown as '?' */
} rks_gather_report;

/* COLLECTIVE. */
RKS_API rks_status rks_gather_open(rks_group *group, const char *schema, const char *directory,
                                   rks_gather **gather, rks_error *err);
/* Name: 1 to 511 bytes, any: what a dataset can have as a key can be a name. A result has at most
 * 3 GiB (RKS_ERR_DATA). */
RKS_API rks_status rks_gather_add_named(rks_gather *gather, const void *name, size_t name_size,
                                        uint64_t index, const rks_value *values, rks_error *err);
/* The same, of a name that ends with a NUL. */
RKS_API rks_status rks_gather_add(rks_gather *gather, const char *name, uint64_t index,
                                  const rks_value *values, rks_error *err);
/* COLLECTIVE. `receive` is called on `dst` only. A (name, index) added twice is RKS_ERR_DATA naming
 * both ranks. `status` as in rks_builder_commit. */
RKS_API rks_status rks_gather_run(rks_gather *gather, rks_status status, uint32_t dst,
                                  rks_gather_fn receive, void *user, rks_gather_report *report,
                                  rks_error *err);
RKS_API void rks_gather_close(rks_gather *gather); /* NULL is accepted */

#ifdef __cplusplus
}
#endif

#endif
